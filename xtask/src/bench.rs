//! `bench`: Millrace and RabbitMQ side by side, in one run, on one machine.
//!
//! Both brokers run all the time in one namespace; each load is put on one and then on the other, in
//! alternating order, and medians are shown. Every message is persistent, goes to a durable queue and
//! is confirmed. What is not comparable is said in the table: Millrace syncs before it confirms.

mod backlog;
mod cluster;
mod console;
mod features;
mod generator;
mod load;
mod relay;
mod report;
mod streams;
mod usage;
mod work;

use std::path::PathBuf;

use crate::brokers::{Broker, Kind};
use crate::process::{cargo, run, target};
use crate::{Outcome, namespace};
use generator::Generator;
use load::Load;
use report::Measured;

const MILLRACE_PORT: u16 = 5672;
const RABBITMQ_PORT: u16 = 5673;

const USAGE: &str = "cargo xtask bench [backlog [--messages N]] [--seconds S] [--runs N] \
                     [--only WORDS] [--broker millrace|rabbitmq] [--generator millrace|perftest]\n\
                     \x20      cargo xtask bench cluster [--only throughput,failover,slow-disk,partitions,locks] [--rounds N] \
                     [--quick] [--brokers millrace,rabbitmq] [--json FILE]\n\
                     \x20      cargo xtask bench features [--only queues,delay,dead-letter] [--messages N] \
                     [--seconds S] [--runs N] [--broker millrace|rabbitmq]\n\
                     \x20      cargo xtask bench streams [--messages N] [--seconds S] [--runs N] \
                     [--broker millrace|rabbitmq|kafka|pulsar]\n\
                     \x20      cargo xtask bench console [--queues N] [--seconds S]\n\
                     \x20      cargo xtask bench relay --help\n\
                     \x20      cargo xtask bench work --help";

struct Options {
    seconds: u32,
    runs: usize,
    /// Only loads whose name holds this.
    only: String,
    kinds: Vec<Kind>,
    generators: Vec<Generator>,
    is_backlog: bool,
    /// How long a backlog is.
    messages: u64,
}

/// `cargo xtask bench`
pub(crate) fn command(words: &[String]) -> Outcome {
    if let Some(("cluster", words)) = words.split_first().map(|(word, rest)| (word.as_str(), rest))
    {
        return cluster::measure(words);
    }
    if let Some(("relay", words)) = words.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        return relay::measure(words);
    }
    if let Some(("work", words)) = words.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        return work::measure(words);
    }
    let work: Box<dyn FnOnce() -> Outcome> = match words.split_first() {
        Some((word, rest)) if word == "features" => Box::new(features::parse(rest)?),
        Some((word, rest)) if word == "console" => Box::new(console::parse(rest)?),
        Some((word, rest)) if word == "streams" => Box::new(streams::parse(rest)?),
        _ => {
            let options = parse(words)?;
            Box::new(move || match options.is_backlog {
                true => backlog::measure(&options),
                false => measure(&options),
            })
        }
    };
    if !namespace::is_inside() {
        run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
        if let Some((_, rest)) = words.split_first().filter(|(word, _)| *word == "streams") {
            streams::install(rest)?;
        }
        let words = words.iter().map(String::as_str);
        return namespace::run_inside(&["bench"].into_iter().chain(words).collect::<Vec<_>>());
    }
    namespace::bring_up_loopback()?;
    work()
}

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options {
        seconds: 8,
        runs: 3,
        only: String::new(),
        kinds: vec![Kind::Millrace, Kind::RabbitMq],
        generators: vec![Generator::Millrace, Generator::PerfTest],
        is_backlog: false,
        messages: 10_000_000,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "backlog" {
            options.is_backlog = true;
            continue;
        }
        let value = words.next().ok_or(USAGE)?;
        let bad = |error| format!("{word}: {error}\nusage: {USAGE}");
        match word.as_str() {
            "--messages" => options.messages = value.parse().map_err(bad)?,
            "--seconds" => options.seconds = value.parse().map_err(bad)?,
            "--runs" => options.runs = value.parse().map_err(bad)?,
            "--only" => options.only.clone_from(value),
            "--broker" => options.kinds.retain(|kind| kind.word() == value),
            "--generator" => options.generators.retain(|one| one.word() == value),
            _ => return Err(format!("{word}?\nusage: {USAGE}")),
        }
    }
    Ok(options)
}

fn port(kind: Kind) -> u16 {
    match kind {
        Kind::Millrace => MILLRACE_PORT,
        Kind::RabbitMq => RABBITMQ_PORT,
    }
}

fn folder(kind: Kind) -> PathBuf {
    target().join("bench").join(kind.word())
}

fn measure(options: &Options) -> Outcome {
    let mut brokers = Vec::new();
    for kind in &options.kinds {
        brokers.push((*kind, Broker::start(*kind, &folder(*kind), port(*kind))?));
    }
    let mut measured = Vec::new();
    for load in load::all().into_iter().filter(|load| load.name().contains(&options.only)) {
        for generator in &options.generators {
            if generator.is_for(&load) {
                measured.extend(measure_load(options, *generator, &load, &brokers)?);
            }
        }
    }
    for (_, broker) in brokers {
        broker.stop()?;
    }
    report::write(&measured, options.seconds, options.runs)?;
    println!("\n{}", report::table(&measured, options.seconds, options.runs));
    Ok(())
}

/// All runs of one load from one generator, the brokers taking turns in being first.
fn measure_load(
    options: &Options,
    generator: Generator,
    load: &Load,
    brokers: &[(Kind, Broker)],
) -> Result<Vec<Measured>, String> {
    let mut runs: Vec<Vec<_>> = brokers.iter().map(|_| Vec::new()).collect();
    for turn in 0..options.runs {
        for index in 0..brokers.len() {
            let index = (index + turn) % brokers.len();
            let (kind, broker) = &brokers[index];
            let figures = generator.run(load, port(*kind), broker.pid(), options.seconds)?;
            println!("{} {} on {}: {figures}", generator.name(), load.name(), kind.name());
            runs[index].push(figures);
        }
    }
    let kinds = brokers.iter().map(|(kind, _)| *kind);
    Ok(kinds
        .zip(runs)
        .map(|(kind, runs)| Measured { kind, generator, load: *load, runs })
        .collect())
}
