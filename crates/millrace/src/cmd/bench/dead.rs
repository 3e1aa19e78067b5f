//! `--dead-letter`: a queue is filled, then everything in it dies. Measured is how long it takes until all
//! of it is in the queue of the dead letters, where nobody consumes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use amqp::{Encoder, Method, TableRef, basic, queue};
use bytes::BytesMut;
use client::io::blocking::Blocking;
use serde::Serialize;

use super::Args;
use super::drive::{self, Cost};
use super::due::Due;
use super::options::{Argument, Death, argument};
use super::plan::Plan;
use super::process::Processes;
use super::report::{Server, round};
use super::scan::Listener;
use super::tally::now_ns;
use super::wire::{Notice, Wire, notice};

const MESSAGES: u64 = 1_000_000;
/// How often it is looked how many have arrived.
const LOOK: Duration = Duration::from_millis(20);
/// Nothing arrives for so long: the rest never will.
const STUCK_NS: u64 = 20_000_000_000;

/// What came of it. Field names are the JSON's.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    how: &'static str,
    messages: u64,
    fill_rate: f64,
    dead_lettered: u64,
    elapsed_s: f64,
    dead_letter_rate: f64,
    server: Option<Server>,
}

impl Report {
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text are always JSON")
    }

    pub(super) fn complaint(&self) -> Option<String> {
        let is_whole = self.dead_lettered == self.messages;
        let (got, of) = (self.dead_lettered, self.messages);
        (!is_whole).then(|| format!("{got} of {of} messages are in the dead-letter queue"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { how, messages, fill_rate, elapsed_s, dead_letter_rate, .. } = self;
        writeln!(out, "{messages} messages, filled at {fill_rate:.0} msg/s, then {how}")?;
        write!(out, "  dead-lettered {dead_letter_rate:>10.0} msg/s   within {elapsed_s:.2} s")?;
        self.server.as_ref().map_or(Ok(()), |server| write!(out, "\n  {server}"))
    }
}

/// Fills, kills, counts.
///
/// # Errors
/// The server refused something, or a message was not confirmed.
pub(super) fn run(args: &Args, how: Death) -> Result<Report, String> {
    let dead = format!("{}-dead", args.queue_prefix);
    let messages = args.count.unwrap_or(MESSAGES);
    let arguments = [
        argument("x-dead-letter-exchange=")?,
        argument(&format!("x-dead-letter-routing-key={dead}"))?,
    ];
    let fill = fill_of(args, messages, arguments);
    let mut plan = Plan::new(&fill)?;
    let expire_ns = now_ns() + args.expire_after.as_nanos() as u64;
    if how == Death::Expired {
        plan.set_due(Due::expires(expire_ns));
    }
    let mut connection = plan.connect("dead letters")?;
    let channel = connection.open_channel().map_err(|error| error.to_string())?;
    declare(&mut connection, channel, &dead, args.transient)?;
    let filled = drive::run(&plan)?;
    if filled.totals.confirmed != messages {
        return Err(format!("{} of {messages} messages were confirmed", filled.totals.confirmed));
    }
    let source = plan.queues.first().cloned().unwrap_or_default();
    let is_over = Arc::<AtomicBool>::default();
    let refuser = match how {
        Death::Rejected => Some(refuse(&plan, source.clone(), args.prefetch, &is_over)?),
        Death::Expired => {
            thread::sleep(Duration::from_nanos(expire_ns.saturating_sub(now_ns())));
            None
        }
    };
    let counted = count(&mut connection, channel, &dead, messages, &args.pid);
    is_over.store(true, Relaxed);
    let refused = refuser.map_or(Ok(()), |refuser| {
        refuser.join().unwrap_or_else(|_| Err("the consumer that rejects messages panicked".into()))
    });
    let Counted { arrived, elapsed_s, cost } = counted?;
    refused?;
    for name in [&source, &dead] {
        let delete = queue::Delete { queue: name, ..queue::Delete::default() };
        call(&mut connection, channel, &Method::QueueDelete(delete))?;
    }
    Ok(Report {
        how: match how {
            Death::Expired => "expired",
            Death::Rejected => "rejected",
        },
        messages,
        fill_rate: round(messages as f64 / filled.publish_s, 1),
        dead_lettered: arrived,
        elapsed_s: round(elapsed_s, 3),
        dead_letter_rate: round(arrived as f64 / elapsed_s, 1),
        server: cost.map(|cost| Server::new(&cost, elapsed_s, arrived)),
    })
}

/// The same run without consumers, into one queue with dead letters.
fn fill_of(args: &Args, messages: u64, arguments: [Argument; 2]) -> Args {
    let mut fill = args.clone();
    fill.argument.extend(arguments);
    Args { consumers: 0, queues: 1, count: Some(messages), purge: true, delete: false, ..fill }
}

struct Counted {
    arrived: u64,
    elapsed_s: f64,
    cost: Option<Cost>,
}

/// Waits until all are there, or nothing more comes.
fn count(
    connection: &mut Blocking,
    channel: u16,
    dead: &str,
    messages: u64,
    pids: &[u32],
) -> Result<Counted, String> {
    let processes = Processes::new(pids)?;
    let (before, rss_start, start_ns) = (processes.usage()?, processes.rss_bytes(), now_ns());
    let (mut rss_max, mut arrived, mut last_ns) = (rss_start, 0, start_ns);
    while arrived < messages && now_ns() < last_ns + STUCK_NS {
        thread::sleep(LOOK);
        let found = waiting(connection, channel, dead)?;
        if found > arrived {
            (arrived, last_ns) = (found, now_ns());
        }
        rss_max = rss_max.max(processes.rss_bytes());
    }
    let (after, rss_end) = (processes.usage()?, processes.rss_bytes());
    let cost =
        (!processes.is_empty()).then_some(Cost { before, after, rss_start, rss_end, rss_max });
    Ok(Counted { arrived, elapsed_s: (last_ns - start_ns).max(1) as f64 / 1e9, cost })
}

fn declare(
    connection: &mut Blocking,
    channel: u16,
    name: &str,
    transient: bool,
) -> Result<(), String> {
    let declare = queue::Declare { queue: name, durable: !transient, ..queue::Declare::default() };
    call(connection, channel, &Method::QueueDeclare(declare))?;
    let purge = queue::Purge { queue: name, no_wait: false };
    call(connection, channel, &Method::QueuePurge(purge)).map(drop)
}

fn waiting(connection: &mut Blocking, channel: u16, name: &str) -> Result<u64, String> {
    let look = queue::Declare { queue: name, passive: true, ..queue::Declare::default() };
    let answer = call(connection, channel, &Method::QueueDeclare(look))?;
    match Method::decode(&answer).map_err(|error| error.to_string())? {
        Method::QueueDeclareOk(ok) => Ok(ok.message_count.into()),
        other => Err(format!("{} came unasked", other.name())),
    }
}

fn call(
    connection: &mut Blocking,
    channel: u16,
    method: &Method<'_>,
) -> Result<bytes::Bytes, String> {
    connection.call(channel, method).map_err(|error| error.to_string())
}

/// A consumer that refuses everything, until it is told that all is over.
fn refuse(
    plan: &Plan,
    queue: String,
    prefetch: u16,
    is_over: &Arc<AtomicBool>,
) -> Result<JoinHandle<Result<(), String>>, String> {
    let mut connection = plan.connect_consumer("refuser")?;
    let channel = connection.open_channel().map_err(|error| error.to_string())?;
    let qos = basic::Qos { prefetch_size: 0, prefetch_count: prefetch, global: false };
    call(&mut connection, channel, &Method::BasicQos(qos))?;
    let mut wire = Wire::new(connection)?;
    let is_over = Arc::clone(is_over);
    let work = move || {
        let mut refuser = Refuser {
            channel,
            frame_max: wire.frame_max,
            got: 0,
            refused: 0,
            out: BytesMut::new(),
        };
        wire.send(&super::consumer::consume(
            &[queue],
            false,
            TableRef::default(),
            channel,
            wire.frame_max,
        ))?;
        while !is_over.load(Relaxed) {
            let came = wire.read()?;
            if came {
                wire.scan(&mut refuser)?;
            }
            if !came || refuser.got - refuser.refused >= REFUSE_EVERY {
                refuser.refuse();
            }
            wire.send(&refuser.out)?;
            refuser.out.clear();
        }
        wire.close()
    };
    thread::Builder::new().name("refuser".into()).spawn(work).map_err(|error| error.to_string())
}

/// Deliveries that are refused with one method, at least.
const REFUSE_EVERY: u64 = 100;

/// What the server says to the one who refuses.
struct Refuser {
    channel: u16,
    frame_max: u32,
    got: u64,
    refused: u64,
    out: BytesMut,
}

impl Refuser {
    fn refuse(&mut self) {
        if self.got > self.refused {
            let nack = basic::Nack { delivery_tag: self.got, multiple: true, requeue: false };
            let method = Method::BasicNack(nack);
            Encoder::new(&mut self.out, self.frame_max).method(self.channel, &method);
            self.refused = self.got;
        }
    }
}

impl Listener for Refuser {
    fn delivered(&mut self, tag: u64, _: bool) -> Result<(), String> {
        self.got = tag;
        Ok(())
    }

    fn content(&mut self, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn body(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn method(&mut self, _: u16, payload: &[u8]) -> Result<(), String> {
        match notice(payload)? {
            Notice::Blocked | Notice::Unblocked | Notice::Other => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_came_is_refused_at_once_and_only_once() {
        let mut refuser =
            Refuser { channel: 1, frame_max: 4096, got: 0, refused: 0, out: BytesMut::new() };
        (1..=120).for_each(|tag| refuser.delivered(tag, false).expect("it takes all"));
        refuser.refuse();
        refuser.refuse();
        let one = refuser.out.len();
        refuser.delivered(121, false).expect("it takes all");
        refuser.refuse();
        assert_eq!((refuser.refused, refuser.out.len()), (121, 2 * one));
    }
}
