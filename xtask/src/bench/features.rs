//! `bench features`: what arguments of queues cost. Every kind of queue beside a plain one in the same run;
//! a million delayed messages; a million dead letters. RabbitMQ where it can do the same.

mod scenario;
mod tables;

use crate::Outcome;
use crate::brokers::{Broker, Kind};
use crate::process::target;
use scenario::{Beside, Death, Queues};
use tables::{DeadRow, DelayRow, QueueRow, Tables};

const USAGE: &str = "cargo xtask bench features [--seconds S] [--runs N] [--messages N] \
                     [--only queues,delay,dead-letter] [--broker millrace|rabbitmq]";
/// RabbitMQ takes so much longer that it gets fewer.
const RABBITMQ_PART: u64 = 5;

struct Options {
    seconds: u32,
    runs: usize,
    messages: u64,
    only: String,
    kinds: Vec<Kind>,
}

impl Options {
    fn has(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.split(',').any(|word| word == part)
    }

    fn messages(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Millrace => self.messages,
            Kind::RabbitMq => self.messages / RABBITMQ_PART,
        }
    }
}

pub(super) fn parse(words: &[String]) -> Result<impl FnOnce() -> Outcome, String> {
    let mut options = Options {
        seconds: 3,
        runs: 3,
        messages: 1_000_000,
        only: String::new(),
        kinds: vec![Kind::Millrace, Kind::RabbitMq],
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        let bad = |error| format!("{word}: {error}\nusage: {USAGE}");
        match word.as_str() {
            "--seconds" => options.seconds = value.parse().map_err(bad)?,
            "--runs" => options.runs = value.parse().map_err(bad)?,
            "--messages" => options.messages = value.parse().map_err(bad)?,
            "--only" => options.only.clone_from(value),
            "--broker" => options.kinds.retain(|kind| kind.word() == value),
            _ => return Err(format!("{word}?\nusage: {USAGE}")),
        }
    }
    Ok(move || measure(&options))
}

/// One broker after the other: the one that rests takes nothing from the one that works. What fails is
/// told at the end: the rest is worth having.
fn measure(options: &Options) -> Outcome {
    let mut tables = Tables::new(options.seconds, options.runs);
    for kind in &options.kinds {
        let broker = Broker::start(*kind, &super::folder(*kind), super::port(*kind))?;
        measure_one(options, *kind, &broker, &mut tables);
        if let Err(why) = broker.stop() {
            tables.failed(why);
        }
    }
    println!("\n{tables}");
    for (name, text) in
        [("bench-features.md", tables.to_string()), ("bench-features.json", tables.to_json())]
    {
        let path = target().join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    tables.complaint().map_or(Ok(()), Err)
}

fn measure_one(options: &Options, kind: Kind, broker: &Broker, tables: &mut Tables) {
    let at = scenario::At { port: super::port(kind), pid: broker.pid() };
    if options.has("queues") {
        for bytes in [128, 1024] {
            measure_queues(options, kind, bytes, at, tables);
        }
    }
    // RabbitMQ's plugin for delays is not part of it.
    if options.has("delay") && kind == Kind::Millrace {
        for beside in [Beside::Nothing, Beside::Load] {
            match scenario::delays(at, options.messages, beside) {
                Ok(delays) => {
                    println!("delayed on {}, {}: {delays}", kind.name(), beside.name());
                    let messages = options.messages;
                    tables.delays.push(DelayRow { kind, beside, messages, delays });
                }
                Err(why) => tables.failed(why),
            }
        }
    }
    if options.has("dead-letter") {
        for death in Death::ALL {
            let messages = options.messages(kind);
            match scenario::dead_letters(at, messages, death) {
                Ok(dead) => {
                    println!("{} on {}: {dead}", death.word(), kind.name());
                    tables.dead.push(DeadRow { kind, death, messages, dead });
                }
                Err(why) => tables.failed(why),
            }
        }
    }
}

/// All kinds of queues in every run, so that a machine that slows down slows all of them.
fn measure_queues(
    options: &Options,
    kind: Kind,
    bytes: usize,
    at: scenario::At,
    tables: &mut Tables,
) {
    let all: Vec<Queues> = Queues::ALL.into_iter().filter(|queues| queues.is_for(kind)).collect();
    let mut rows: Vec<QueueRow> =
        all.iter().map(|queues| QueueRow::new(kind, *queues, bytes)).collect();
    for turn in 0..options.runs {
        for index in 0..all.len() {
            let index = (index + turn) % all.len();
            match scenario::load(at, all[index], bytes, options.seconds) {
                Ok(load) => {
                    println!("{} queue, {bytes} B, on {}: {load}", all[index].name(), kind.name());
                    rows[index].runs.push(load);
                }
                Err(why) => tables.failed(why),
            }
        }
    }
    tables.queues.extend(rows);
}
