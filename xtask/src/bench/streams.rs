//! `bench streams`: streams beside plain queues, in Millrace and in RabbitMQ, with messages of 1 KB, and the logs of
//! Kafka and Pulsar.
//!
//! How fast a stream is written, how fast one reader follows it, how fast one reads it back,
//! and what readers that wait at its end cost who writes. In Millrace also how fast one reader follows streams of
//! several partitions. Kafka and Pulsar are filled and read again by their own generators.

mod jvm;

use std::fmt::Write;

use jvm::Peer;

use super::generator::millrace;
use super::{folder, port, report};
use crate::Outcome;
use crate::brokers::{Broker, Kind};
use crate::json::number;
use crate::process::{output, target};

const USAGE: &str = "cargo xtask bench streams [--messages N] [--seconds S] [--runs N] \
                     [--broker millrace|rabbitmq|kafka|pulsar]";
/// Of a stream's readers. RabbitMQ wants one.
const PREFETCH: &[&str] = &["--prefetch", "10000", "--ack-every", "1000"];
const STREAM: &[&str] = &["--argument", "x-queue-type=stream"];
const FROM_FIRST: &[&str] = &["--consumer-argument", "x-stream-offset=first"];
const PARTITIONS: &[u32] = &[1, 2, 4, 8, 16];
/// Of a log that one reader reads back.
const LOG_PARTITIONS: u32 = 4;
const ALONE: &[&str] = &["--consumers", "0"];

struct Options {
    messages: u64,
    seconds: u32,
    runs: usize,
    kinds: Vec<Kind>,
    peers: Vec<Peer>,
}

/// What is measured in turn: its name, the words for the generator, and which of its figures count.
const LOADS: &[(&str, &[&[&str]], &str)] = &[
    ("written, plain queue", &[ALONE], "confirm_rate"),
    ("written, stream", &[ALONE, STREAM], "confirm_rate"),
    ("followed by one reader", &[STREAM, PREFETCH], "consume_rate"),
];

pub(super) fn parse(words: &[String]) -> Result<impl FnOnce() -> Outcome, String> {
    let options = options(words)?;
    Ok(move || measure(&options))
}

/// Gets what a measurement needs, while there is a way to the outside.
pub(super) fn install(words: &[String]) -> Outcome {
    options(words)?.peers.iter().try_for_each(|peer| peer.install())
}

fn options(words: &[String]) -> Result<Options, String> {
    let kinds = vec![Kind::Millrace, Kind::RabbitMq];
    let peers = vec![Peer::Kafka, Peer::KafkaSynced, Peer::Pulsar];
    let mut options = Options { messages: 1_000_000, seconds: 5, runs: 3, kinds, peers };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        let bad = |error| format!("{word}: {error}\nusage: {USAGE}");
        match word.as_str() {
            "--messages" => options.messages = value.parse().map_err(bad)?,
            "--seconds" => options.seconds = value.parse().map_err(bad)?,
            "--runs" => options.runs = value.parse().map_err(bad)?,
            "--broker" => {
                options.kinds.retain(|kind| kind.word() == value);
                options.peers.retain(|peer| peer.word() == value);
            }
            _ => return Err(format!("{word}?\nusage: {USAGE}")),
        }
    }
    Ok(options)
}

fn measure(options: &Options) -> Outcome {
    let mut text = format!(
        "{}; 1 KB, window 1,000, {} runs of {} s, medians; history: {} messages.\n\n\
         | broker | load | messages/s | broker's CPU a message |\n| --- | --- | --: | --: |\n",
        report::machine(),
        options.runs,
        options.seconds,
        options.messages
    );
    let seconds = format!("{}s", options.seconds);
    let timed = ["--duration", &seconds, "--warmup", "1s"];
    for (name, words, figure) in LOADS {
        let mut runs = vec![Vec::new(); options.kinds.len()];
        for turn in 0..options.runs {
            for place in 0..options.kinds.len() {
                // They take turns in being first.
                let place = (place + turn) % options.kinds.len();
                let kind = options.kinds[place];
                let broker = Broker::start(kind, &folder(kind), port(kind))?;
                let words: Vec<&str> = words.iter().copied().flatten().copied().collect();
                runs[place].push(run(kind, &broker, &[&timed[..], &words].concat(), figure)?);
                broker.stop()?;
            }
        }
        for (kind, runs) in options.kinds.iter().zip(&mut runs) {
            tell(&mut text, kind.name(), name, median(runs));
        }
    }
    partitions(&mut text, options, &timed)?;
    for kind in &options.kinds {
        history(&mut text, *kind, options.messages)?;
    }
    for peer in &options.peers {
        log(&mut text, *peer, options)?;
    }
    println!("\n{text}");
    let path = target().join("bench-streams.md");
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// One reader of a stream of more and more partitions; those take turns as brokers do.
fn partitions(text: &mut String, options: &Options, timed: &[&str]) -> Outcome {
    let kind = Kind::Millrace;
    if !options.kinds.contains(&kind) {
        return Ok(());
    }
    let mut runs = vec![Vec::new(); PARTITIONS.len()];
    for turn in 0..options.runs {
        for place in 0..PARTITIONS.len() {
            let place = (place + turn) % PARTITIONS.len();
            let broker = Broker::start(kind, &folder(kind), port(kind))?;
            let count = format!("x-partitions={}", PARTITIONS[place]);
            let words = [timed, STREAM, PREFETCH, &["--argument", &count]].concat();
            runs[place].push(run(kind, &broker, &words, "consume_rate")?);
            broker.stop()?;
        }
    }
    for (count, runs) in PARTITIONS.iter().zip(&mut runs) {
        tell(
            text,
            kind.name(),
            &format!("followed by one reader, {count} partitions"),
            median(runs),
        );
    }
    Ok(())
}

/// What was written before a restart is read from the disk, by one reader and by four; in Millrace also from several
/// partitions.
fn history(text: &mut String, kind: Kind, messages: u64) -> Outcome {
    let all: &[u32] = if kind == Kind::Millrace { &[1, LOG_PARTITIONS] } else { &[1] };
    for partitions in all {
        let broker = Broker::start(kind, &folder(kind), port(kind))?;
        let count = messages.to_string();
        let argument = format!("x-partitions={partitions}");
        let stream: Vec<&str> = match partitions {
            1 => STREAM.to_vec(),
            _ => [STREAM, &["--argument", &argument]].concat(),
        };
        run(kind, &broker, &[ALONE, &stream, &["--count", &count]].concat(), "confirm_rate")?;
        let mut filled = Some(broker);
        for readers in if *partitions == 1 { &[1, 4][..] } else { &[1] } {
            let broker = read_from(kind, filled.take())?;
            let count = (messages * readers).to_string();
            let consumers = readers.to_string();
            let words = ["--publishers", "0", "--consumers", &consumers, "--count", &count];
            let words = [&words[..], &stream, PREFETCH, FROM_FIRST].concat();
            let figures = run(kind, &broker, &words, "consume_rate")?;
            let name = match (partitions, readers) {
                (1, 1) => "read back".to_string(),
                (1, _) => format!("read by {readers} readers together"),
                _ => format!("read back, {partitions} partitions"),
            };
            tell(text, kind.name(), &name, figures);
            filled = Some(broker);
        }
        filled.map_or(Ok(()), Broker::stop)?;
    }
    Ok(())
}

/// Millrace is started again, so that nothing is in its memory. RabbitMQ goes on: for a while after a start it says that
/// the node of its streams is down.
fn read_from(kind: Kind, filled: Option<Broker>) -> Result<Broker, String> {
    match (kind, filled) {
        (Kind::RabbitMq, Some(broker)) => Ok(broker),
        (_, filled) => {
            filled.map_or(Ok(()), Broker::stop)?;
            Broker::start_again(kind, &folder(kind), port(kind))
        }
    }
}

/// The same of a broker that has its own generator: a log is written, and read by one reader; of one partition and of
/// several.
fn log(text: &mut String, peer: Peer, options: &Options) -> Outcome {
    for partitions in [1, LOG_PARTITIONS] {
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for _ in 0..options.runs {
            let broker = peer.start()?;
            let topic = format!("t{partitions}");
            broker.topic(&topic, partitions)?;
            written.push(broker.write(&topic, options.messages)?);
            read.push(broker.read(&topic, options.messages)?);
            broker.stop()?;
        }
        let of =
            if partitions == 1 { "1 partition".into() } else { format!("{partitions} partitions") };
        tell(text, peer.name(), &format!("written by its generator, {of}"), median(&mut written));
        tell(text, peer.name(), &format!("read by one reader, {of}"), median(&mut read));
    }
    Ok(())
}

/// Messages a second, and microseconds of the broker's CPU for each.
fn run(kind: Kind, broker: &Broker, words: &[&str], figure: &str) -> Result<(f64, f64), String> {
    let mut bench = millrace(port(kind), broker.pid());
    let said = output(bench.args(["--size", "1024", "--window", "1000"]).args(words))?;
    let found = |path: &[&str]| number(&said, path).ok_or(format!("no {path:?} in {said}"));
    Ok((found(&[figure])?, found(&["server", "cpu_s_per_million"])?))
}

fn median(runs: &mut [(f64, f64)]) -> (f64, f64) {
    runs.sort_by(|one, other| one.0.total_cmp(&other.0));
    runs.get(runs.len() / 2).copied().unwrap_or_default()
}

fn tell(text: &mut String, broker: &str, name: &str, (rate, cpu_us): (f64, f64)) {
    let row = format!("| {broker} | {name} | {rate:.0} | {cpu_us:.2} us |");
    println!("{row}");
    let _ = writeln!(text, "{row}");
}
