//! `millrace bench`: how fast, how late and how dear a broker is, measured over AMQP.
//!
//! Works against any AMQP 0-9-1 server. What it counts it has seen: deliveries by their tags, confirms by
//! the sequence numbers they name, bodies by their length.
#![allow(
    clippy::disallowed_methods,
    reason = "a load generator reads clocks, starts threads and talks to its user"
)]

mod consumer;
mod dead;
mod drive;
mod due;
pub(super) mod options;
mod plan;
mod process;
mod publisher;
mod report;
mod scan;
mod stencil;
mod tally;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use client::Url;

use super::terminal;
use super::url::UrlParser;

const EXAMPLES: &str = "\
Examples:
  millrace bench                              one publisher, one consumer, 1 KiB, 1000 unconfirmed
  millrace bench --size 128 --pid $(pidof millrace)
                                              also measure the server: CPU, memory, writes
  millrace bench --window 1                   time of a single confirm
  millrace bench --rate 5000                  latency below the limit, measured from the moment when
                                              each message should have been sent
  millrace bench --publishers 4 --consumers 4 --queues 4
  millrace bench --exchange fan --queues 10 --consumers 10
                                              every message to ten queues
  millrace bench --consumers 0 --count 1000000     fill a queue ...
  millrace bench --publishers 0                    ... and drain it
  millrace bench --url amqp://guest:guest@localhost:5673 --quorum --json
                                              another broker, one line of JSON
  millrace bench --url 'amqps://guest:guest@localhost?cacertfile=ca.pem'
                                              under TLS; what it costs here and in the server is in the report
  millrace bench --keys 10000 --consumers 8 --argument x-order=key --argument x-partition-by=correlation-id
                                              a queue with order by key
  millrace bench --priorities 10              a queue with x-max-priority, random priorities
  millrace bench --argument x-message-ttl=60000
                                              a queue with any argument
  millrace bench --count 1000000 --delay 15s..35s
                                              a million delayed messages (x-delay): end to end counts
                                              from when each was due; the report shows memory
  millrace bench --count 1000000 --dead-letter expired
                                              how fast a full queue moves to its dead-letter queue

Latencies are in microseconds. Confirm: from the write that carried the message to the read that carried its confirm.
End to end: from the write to the read of the delivery, by a timestamp in the first 8 bytes of the body. The end of a
run without --count is not measured: publishers wait for their confirms, and consumers take what is left.
Exit code 1: messages were refused, returned or lost.";

/// Measure a broker: messages per second, latencies, and the server's CPU per message
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The broker: amqp://user:password@host:port/vhost, or amqps:// for TLS (?cacertfile=ca.pem)
    #[arg(
        long,
        env = "AMQP_URL",
        hide_env_values = true,
        value_parser = UrlParser,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    url: Url,
    /// Broker for the consumers, if they use another node of the same cluster than publishers
    #[arg(long, value_name = "URL", value_parser = UrlParser)]
    consumer_url: Option<Url>,
    /// Number of publishing connections; 0 only drains the queues
    #[arg(long, short = 'x', default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=4096))]
    publishers: u32,
    /// Number of consuming connections; 0 only fills the queues
    #[arg(long, short = 'y', default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=4096))]
    consumers: u32,
    /// Number of queues; publishers and consumers are spread over them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    queues: u32,
    /// Size of a body in bytes; below 8 there is no end-to-end latency
    #[arg(long, short, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(..=134_217_728))]
    size: u32,
    /// Maximum number of unconfirmed messages per publisher; 0 publishes without confirms
    #[arg(long, short = 'c', default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=1_048_576))]
    window: u32,
    /// Messages per second of all publishers together; 0 is as fast as the window allows
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// How long to measure (10s, 500ms, 2m)
    #[arg(long, short, default_value = "15s", value_parser = duration)]
    duration: Duration,
    /// How long to run before measuring [default: 2s; none with --count or with one side only]
    #[arg(long, value_parser = duration)]
    warmup: Option<Duration>,
    /// Publish this many messages instead of running for a time (when draining: consume this many)
    #[arg(long, short = 'n')]
    count: Option<u64>,
    /// Maximum number of unacknowledged messages per consumer; 0 is no limit
    #[arg(long, short = 'q', default_value_t = 1000)]
    prefetch: u16,
    /// Acknowledge once per this many deliveries
    #[arg(long, short = 'A', default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    ack_every: u64,
    /// Consume without acknowledgements: the server forgets a message when it sends it
    #[arg(long)]
    auto_ack: bool,
    /// Use queues and messages that do not survive a restart of the server
    #[arg(long, conflicts_with = "quorum")]
    transient: bool,
    /// Declare quorum queues (x-queue-type=quorum): replicated on RabbitMQ
    #[arg(long)]
    quorum: bool,
    /// Name the queues PREFIX-1, PREFIX-2, ...
    #[arg(long, default_value = "bench", value_name = "PREFIX")]
    queue_prefix: String,
    /// Publish to this exchange, bound to all queues: every message goes to each of them
    #[arg(long, value_name = "NAME")]
    exchange: Option<String>,
    /// Type of the exchange
    #[arg(long, value_name = "TYPE", default_value = "fanout", requires = "exchange")]
    exchange_type: String,
    /// Routing key of messages and bindings
    #[arg(long, default_value = "bench", requires = "exchange")]
    routing_key: String,
    /// Declare queues with this argument: a number, true, false or text (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = options::argument)]
    argument: Vec<options::Argument>,
    /// Consume with this argument, for example x-stream-offset=first (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = options::argument)]
    consumer_argument: Vec<options::Argument>,
    /// Declare queues with this x-max-priority; each message gets a random priority
    #[arg(long, value_name = "HIGHEST")]
    priorities: Option<u8>,
    /// Give messages this expiration, in milliseconds
    #[arg(long, value_name = "MS")]
    expiration: Option<u64>,
    /// Give each message its own message-id
    #[arg(long)]
    message_ids: bool,
    /// Give each message one of so many keys at random, as its correlation-id
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keys: Option<u32>,
    /// Delay messages (x-delay): each is due at a random moment in this interval after the start
    #[arg(long, value_name = "FROM..TO", value_parser = options::span, requires = "count")]
    delay: Option<options::Span>,
    /// Fill a queue, and measure how fast its messages reach its dead-letter queue
    #[arg(long, value_enum, value_name = "HOW", conflicts_with_all = ["delay", "exchange"])]
    dead_letter: Option<options::Death>,
    /// With --dead-letter expired: when all messages expire, counted from the start; the fill must be over by then
    #[arg(long, default_value = "15s", value_parser = duration)]
    expire_after: Duration,
    /// Declare and bind nothing
    #[arg(long)]
    no_declare: bool,
    /// Empty the queues before the run
    #[arg(long)]
    purge: bool,
    /// Delete the queues and the exchange after the run
    #[arg(long, conflicts_with = "no_declare")]
    delete: bool,
    /// Measure this process of the server (repeatable)
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Print one line of JSON instead of text
    #[arg(long)]
    json: bool,
    /// Print no progress line each second on stderr
    #[arg(long)]
    quiet: bool,
}

/// Measures, prints the report, and says with the exit code whether it was clean.
pub(crate) fn run(args: Args) -> ExitCode {
    if let Some(how) = args.dead_letter {
        return told(dead::run(&args, how).and_then(|report| {
            terminal::say(&if args.json { report.to_json() } else { report.to_string() });
            report.complaint().map_or(Ok(()), Err)
        }));
    }
    told(plan::Plan::new(&args).and_then(|plan| {
        let outcome = drive::run(&plan)?;
        let report = report::Report::new(&plan, &outcome);
        if args.json {
            terminal::say(&report.to_json());
        } else {
            terminal::say(&report.to_string());
        }
        report.complaint().map_or(Ok(()), Err)
    }))
}

fn told(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            terminal::remark(&format!("millrace bench: {why}"));
            ExitCode::FAILURE
        }
    }
}

/// Reads `15s`, `500ms`, `2m`; a bare number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is not a unit; there are ms, s, m and h")),
    };
    let number: f64 =
        number.parse().map_err(|_| "a duration must look like 10s, 500ms or 2m".to_string())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("15"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert!(duration("15 parsecs").is_err());
        assert!(duration("s").is_err());
    }
}
