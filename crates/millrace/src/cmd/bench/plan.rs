//! What a run consists of, worked out from the command line: names, shares, topology.

use std::time::Duration;

use amqp::{FieldTable, FieldValue, Method, TableRef, exchange, queue};
use client::io::blocking::Blocking;
use client::{Error, Options, Url};
use serde::Serialize;

use super::Args;
use super::due::Due;
use super::stencil::Extras;

const WARMUP: Duration = Duration::from_secs(2);

/// A run, checked.
pub(super) struct Plan {
    pub(super) url: Url,
    consumer_url: Url,
    pub(super) queues: Vec<String>,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    pub(super) pids: Vec<u32>,
    pub(super) quiet: bool,
    pub(super) parameters: Parameters,
    no_declare: bool,
    purge: bool,
    delete: bool,
    exchange_type: String,
    /// Of the queues.
    arguments: FieldTable,
    /// Of the consumers.
    pub(super) consumer_arguments: FieldTable,
    /// When all messages are due, if that is known before the run.
    due: Option<Due>,
}

/// What a reader of the results must know to repeat them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Parameters {
    pub(super) url: String,
    pub(super) publishers: u32,
    pub(super) consumers: u32,
    pub(super) queues: u32,
    pub(super) size: u32,
    pub(super) window: u32,
    pub(super) rate: f64,
    pub(super) duration_s: f64,
    pub(super) warmup_s: f64,
    pub(super) count: Option<u64>,
    pub(super) prefetch: u16,
    pub(super) ack_every: u64,
    pub(super) auto_ack: bool,
    pub(super) transient: bool,
    pub(super) quorum: bool,
    pub(super) exchange: Option<String>,
    pub(super) routing_key: Option<String>,
    pub(super) arguments: Vec<String>,
    pub(super) consumer_arguments: Vec<String>,
    pub(super) priorities: Option<u8>,
    pub(super) expiration_ms: Option<u64>,
    pub(super) message_ids: bool,
    pub(super) keys: Option<u32>,
    /// From and to, in seconds after the start.
    pub(super) delay_s: Option<(f64, f64)>,
}

impl Plan {
    pub(super) fn new(args: &Args) -> Result<Self, String> {
        if args.publishers == 0 && args.consumers == 0 {
            return Err("nothing to do: --publishers and --consumers are both 0".into());
        }
        if !args.rate.is_finite() || args.rate < 0.0 {
            return Err("--rate must be a number of messages per second, 0 or more".into());
        }
        let digits = args.queues.to_string().len();
        // Names of one length, so that all messages of a run are equally long.
        let name = |number| format!("{}-{number:0digits$}", args.queue_prefix);
        let queues: Vec<String> = (1..=args.queues).map(name).collect();
        for name in queues.iter().chain(&args.exchange).chain([&args.routing_key]) {
            if name.len() > client::limits::SHORT_STRING_BYTES_MAX {
                return Err(format!("`{name}` is longer than AMQP can carry (255 bytes)"));
            }
        }
        let is_steady = args.count.is_none() && args.publishers > 0 && args.consumers > 0;
        let warmup = args.warmup.unwrap_or(if is_steady { WARMUP } else { Duration::ZERO });
        // With a smaller prefetch the server would wait for acknowledgements that wait for deliveries.
        let prefetch = if args.prefetch == 0 { u64::MAX } else { args.prefetch.into() };
        let ack_every = args.ack_every.min(prefetch);
        let parameters = Parameters {
            url: args.url.to_string(),
            publishers: args.publishers,
            consumers: args.consumers,
            queues: args.queues,
            size: args.size,
            window: args.window,
            rate: args.rate,
            duration_s: args.duration.as_secs_f64(),
            warmup_s: warmup.as_secs_f64(),
            count: args.count,
            prefetch: args.prefetch,
            ack_every: if args.auto_ack { 0 } else { ack_every },
            auto_ack: args.auto_ack,
            transient: args.transient,
            quorum: args.quorum,
            exchange: args.exchange.clone(),
            routing_key: args.exchange.as_ref().map(|_| args.routing_key.clone()),
            arguments: args.argument.iter().map(ToString::to_string).collect(),
            consumer_arguments: args.consumer_argument.iter().map(ToString::to_string).collect(),
            priorities: args.priorities,
            expiration_ms: args.expiration,
            message_ids: args.message_ids,
            keys: args.keys,
            delay_s: args.delay.map(|span| (span.from.as_secs_f64(), span.to.as_secs_f64())),
        };
        let mut arguments = FieldTable::new();
        if args.quorum {
            arguments.insert("x-queue-type", FieldValue::LongStr(b"quorum".to_vec()));
        }
        if let Some(highest) = args.priorities {
            arguments.insert("x-max-priority", FieldValue::I32(highest.into()));
        }
        for argument in &args.argument {
            arguments.insert(argument.name.clone(), argument.value.clone());
        }
        let of_consumers = args.consumer_argument.iter();
        let consumer_arguments =
            of_consumers.map(|argument| (argument.name.clone(), argument.value.clone())).collect();
        Ok(Self {
            url: args.url.clone(),
            consumer_url: args.consumer_url.as_ref().unwrap_or(&args.url).clone(),
            queues,
            warmup,
            duration: args.duration,
            pids: args.pid.clone(),
            quiet: args.quiet,
            parameters,
            no_declare: args.no_declare,
            purge: args.purge,
            delete: args.delete,
            exchange_type: args.exchange_type.clone(),
            arguments,
            consumer_arguments,
            due: None,
        })
    }

    /// How many queues get a copy of each message.
    pub(super) fn copies(&self) -> u64 {
        if self.parameters.exchange.is_some() { self.queues.len() as u64 } else { 1 }
    }

    /// Routing keys that publisher `index` uses in turn.
    pub(super) fn routing_keys(&self, index: u32) -> Vec<String> {
        match &self.parameters.routing_key {
            Some(key) => vec![key.clone()],
            None => share(&self.queues, index, self.parameters.publishers),
        }
    }

    /// Queues that consumer `index` consumes.
    pub(super) fn consumed_queues(&self, index: u32) -> Vec<String> {
        share(&self.queues, index, self.parameters.consumers)
    }

    /// How many messages publisher `index` sends, if there is a limit.
    pub(super) fn count_of(&self, index: u32) -> Option<u64> {
        let publishers = u64::from(self.parameters.publishers);
        let count = self.parameters.count?;
        Some(count / publishers + u64::from(u64::from(index) < count % publishers))
    }

    /// Nanoseconds between two messages of one publisher; 0 without a rate.
    pub(super) fn interval_ns(&self) -> f64 {
        let Parameters { rate, publishers, .. } = self.parameters;
        if rate == 0.0 { 0.0 } else { 1e9 * f64::from(publishers) / rate }
    }

    /// What messages have besides their body, in a run that began at `start_ns`.
    pub(super) fn extras(&self, start_ns: u64) -> Extras {
        let Parameters { priorities, expiration_ms, message_ids, keys, .. } = self.parameters;
        let due = self.due(start_ns);
        Extras { priorities, expiration_ms, has_message_ids: message_ids, keys, due }
    }

    /// When delayed messages of a run that began at `start_ns` are due.
    fn due(&self, start_ns: u64) -> Option<Due> {
        let at = |seconds: f64| start_ns + (seconds * 1e9) as u64;
        self.due.or(self.parameters.delay_s.map(|(from, to)| Due::delayed(at(from), at(to))))
    }

    /// Messages are due then, whenever the run begins.
    pub(super) fn set_due(&mut self, due: Due) {
        self.due = Some(due);
    }

    /// Until when it is no wonder that nothing comes.
    pub(super) fn quiet_until_ns(&self, start_ns: u64) -> u64 {
        self.due(start_ns).map_or(0, |due| due.to_ns)
    }

    /// Opens a connection that never pauses for heartbeats.
    pub(super) fn connect(&self, role: &str) -> Result<Blocking, String> {
        self.connect_to(&self.url, role)
    }

    /// The same, to the node where consumers connect.
    pub(super) fn connect_consumer(&self, role: &str) -> Result<Blocking, String> {
        self.connect_to(&self.consumer_url, role)
    }

    fn connect_to(&self, url: &Url, role: &str) -> Result<Blocking, String> {
        let options = Options { heartbeat: 0, ..Options::named(format!("millrace bench {role}")) };
        Blocking::open(url, &options).map_err(|error| error.to_string())
    }

    /// Declares what the run needs; gives how many messages lie in the queues before it.
    pub(super) fn prepare(&self) -> Result<u64, String> {
        let mut connection = self.connect("setup")?;
        let prepared = self.declare(&mut connection).map_err(|error| error.to_string())?;
        connection.close().map_err(|error| error.to_string())?;
        Ok(prepared)
    }

    fn declare(&self, connection: &mut Blocking) -> Result<u64, Error> {
        let channel = connection.open_channel()?;
        if let (Some(name), false) = (&self.parameters.exchange, self.no_declare) {
            let declare = exchange::Declare {
                exchange: name,
                kind: &self.exchange_type,
                durable: !self.parameters.transient,
                ..exchange::Declare::default()
            };
            connection.call(channel, &Method::ExchangeDeclare(declare))?;
        }
        let mut waiting = 0;
        for name in &self.queues {
            if self.purge && !self.no_declare {
                self.declare_queue(connection, channel, name)?;
            }
            if self.purge {
                let purge = queue::Purge { queue: name, no_wait: false };
                connection.call(channel, &Method::QueuePurge(purge))?;
            }
            waiting += u64::from(self.declare_queue(connection, channel, name)?);
            if let (Some(exchange), Some(routing_key), false) =
                (&self.parameters.exchange, &self.parameters.routing_key, self.no_declare)
            {
                let arguments = TableRef::default();
                let bind =
                    queue::Bind { queue: name, exchange, routing_key, no_wait: false, arguments };
                connection.call(channel, &Method::QueueBind(bind))?;
            }
        }
        Ok(waiting)
    }

    fn declare_queue(
        &self,
        connection: &mut Blocking,
        channel: u16,
        name: &str,
    ) -> Result<u32, Error> {
        let arguments = self.arguments.to_bytes();
        let declare = queue::Declare {
            queue: name,
            passive: self.no_declare,
            durable: !self.parameters.transient,
            arguments: TableRef::validate(&arguments)?,
            ..queue::Declare::default()
        };
        let answer = connection.call(channel, &Method::QueueDeclare(declare))?;
        match Method::decode(&answer)? {
            Method::QueueDeclareOk(ok) => Ok(ok.message_count),
            other => Err(Error::Protocol { text: format!("{} came unasked", other.name()) }),
        }
    }

    /// Whether the queues are streams, as an argument says.
    pub(super) fn is_stream(&self) -> bool {
        let stream = FieldValue::LongStr(b"stream".to_vec());
        self.arguments.0.iter().any(|(name, value)| name == "x-queue-type" && *value == stream)
    }

    /// Looks how many messages are left in the queues, and deletes them if that was asked for.
    pub(super) fn clean_up(&self) -> Result<u64, String> {
        let mut connection = self.connect("setup")?;
        let left = self.look_and_delete(&mut connection).map_err(|error| error.to_string())?;
        connection.close().map_err(|error| error.to_string())?;
        Ok(left)
    }

    fn look_and_delete(&self, connection: &mut Blocking) -> Result<u64, Error> {
        let channel = connection.open_channel()?;
        let mut left = 0;
        for name in &self.queues {
            left += u64::from(self.declare_queue(connection, channel, name)?);
            if self.delete {
                let delete = queue::Delete { queue: name, ..queue::Delete::default() };
                connection.call(channel, &Method::QueueDelete(delete))?;
            }
        }
        if let (Some(exchange), true) = (&self.parameters.exchange, self.delete) {
            let delete = exchange::Delete { exchange, if_unused: false, no_wait: false };
            connection.call(channel, &Method::ExchangeDelete(delete))?;
        }
        Ok(left)
    }
}

/// What one of `sharers` gets: every one some, and all of it is given out.
fn share(all: &[String], index: u32, sharers: u32) -> Vec<String> {
    let (index, sharers) = (index as usize, sharers as usize);
    if sharers >= all.len() {
        return vec![all[index % all.len()].clone()];
    }
    all.iter().skip(index).step_by(sharers).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_is_shared_out_and_every_worker_has_one() {
        let all: Vec<String> = (1..=5).map(|number| number.to_string()).collect();
        for sharers in 1..=12 {
            let shares: Vec<_> = (0..sharers).map(|index| share(&all, index, sharers)).collect();
            assert!(shares.iter().all(|share| !share.is_empty()), "{sharers}");
            let mut given: Vec<_> = shares.concat();
            given.sort();
            given.dedup();
            assert_eq!(given, all, "{sharers}");
        }
        assert_eq!(share(&all, 1, 2), ["2", "4"]);
        assert_eq!(share(&all, 6, 7), ["2"]);
    }
}
