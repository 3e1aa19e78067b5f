//! `bench streams`: streams beside plain queues, in Millrace and in RabbitMQ, with messages of 1 KB.
//!
//! How fast a stream is written, how fast one reader follows it, how fast one reads it from the disk after a restart,
//! and what readers that wait at its end cost who writes. In Millrace also how fast one reader follows streams of
//! several partitions.

use std::fmt::Write;

use super::generator::millrace;
use super::{folder, port, report};
use crate::Outcome;
use crate::brokers::{Broker, Kind};
use crate::json::number;
use crate::process::{output, target};

const USAGE: &str = "cargo xtask bench streams [--messages N] [--seconds S] [--runs N] \
                     [--broker millrace|rabbitmq]";
/// Of a stream's readers. RabbitMQ wants one.
const PREFETCH: &[&str] = &["--prefetch", "10000", "--ack-every", "1000"];
const STREAM: &[&str] = &["--argument", "x-queue-type=stream"];
const FROM_FIRST: &[&str] = &["--consumer-argument", "x-stream-offset=first"];
const PARTITIONS: &[u32] = &[1, 2, 4, 8, 16];
const ALONE: &[&str] = &["--consumers", "0"];

struct Options {
    messages: u64,
    seconds: u32,
    runs: usize,
    kinds: Vec<Kind>,
}

/// What is measured in turn: its name, the words for the generator, and which of its figures count.
const LOADS: &[(&str, &[&[&str]], &str)] = &[
    ("written, plain queue", &[ALONE], "confirm_rate"),
    ("written, stream", &[ALONE, STREAM], "confirm_rate"),
    ("followed by one reader", &[STREAM, PREFETCH], "consume_rate"),
];

pub(super) fn parse(words: &[String]) -> Result<impl FnOnce() -> Outcome, String> {
    let kinds = vec![Kind::Millrace, Kind::RabbitMq];
    let mut options = Options { messages: 1_000_000, seconds: 5, runs: 3, kinds };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        let bad = |error| format!("{word}: {error}\nusage: {USAGE}");
        match word.as_str() {
            "--messages" => options.messages = value.parse().map_err(bad)?,
            "--seconds" => options.seconds = value.parse().map_err(bad)?,
            "--runs" => options.runs = value.parse().map_err(bad)?,
            "--broker" => options.kinds.retain(|kind| kind.word() == value),
            _ => return Err(format!("{word}?\nusage: {USAGE}")),
        }
    }
    Ok(move || measure(&options))
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
            tell(&mut text, *kind, name, median(runs));
        }
    }
    partitions(&mut text, options, &timed)?;
    for kind in &options.kinds {
        history(&mut text, *kind, options.messages)?;
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
        tell(text, kind, &format!("followed by one reader, {count} partitions"), median(runs));
    }
    Ok(())
}

/// What was written before a restart is read from the disk, by one reader and by four.
fn history(text: &mut String, kind: Kind, messages: u64) -> Outcome {
    let broker = Broker::start(kind, &folder(kind), port(kind))?;
    let count = messages.to_string();
    run(kind, &broker, &[ALONE, STREAM, &["--count", &count]].concat(), "confirm_rate")?;
    broker.stop()?;
    for (name, readers) in [("read from the disk", 1), ("read by four readers together", 4)] {
        let broker = Broker::start_again(kind, &folder(kind), port(kind))?;
        let (readers, count) = (readers.to_string(), (messages * readers).to_string());
        let words = ["--publishers", "0", "--consumers", &readers, "--count", &count];
        let words = [&words[..], STREAM, PREFETCH, FROM_FIRST].concat();
        let figures = run(kind, &broker, &words, "consume_rate")?;
        tell(text, kind, name, figures);
        broker.stop()?;
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

fn tell(text: &mut String, kind: Kind, name: &str, (rate, cpu_us): (f64, f64)) {
    let row = format!("| {} | {name} | {rate:.0} | {cpu_us:.2} us |", kind.name());
    println!("{row}");
    let _ = writeln!(text, "{row}");
}
