//! `trials differential`: programs by seed, by file, or those that once showed a difference.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::brokers::Brokers;
use super::pool::{Bench, Item, Traces, run_all};
use super::runner::{Timeout, Trace};
use super::shrink::shrink;
use super::{Pair, cases, generate};
use crate::chaos::Failure;

/// What to compare.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// These seeds: A..B
    #[arg(long, value_parser = seeds, default_value = "1..2001")]
    seeds: Seeds,
    /// Only this seed, without the cases
    #[arg(long)]
    seed: Option<u64>,
    /// Only the program in this file
    #[arg(long)]
    script: Option<PathBuf>,
    /// Show programs and both traces
    #[arg(long)]
    story: bool,
    /// Look for the shortest program that shows a difference, for each kind of difference
    #[arg(long)]
    shrink: bool,
    /// RabbitMQ beside itself: is the comparison itself steady?
    #[arg(long)]
    itself: bool,
    /// Programs that run at once
    #[arg(long, default_value_t = 64)]
    threads: usize,
    /// The broker's binary
    #[arg(long, default_value = "target/release/millrace")]
    broker: PathBuf,
    /// Where RabbitMQ listens already
    #[arg(long)]
    reference: Option<SocketAddr>,
    /// Where the broker that is tried listens already
    #[arg(long)]
    tried: Option<SocketAddr>,
    /// Where brokers have their files if not in memory
    #[arg(long, default_value = "target/trials")]
    dir: PathBuf,
}

#[derive(Clone, Debug)]
struct Seeds(std::ops::Range<u64>);

fn seeds(text: &str) -> Result<Seeds, String> {
    let range = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    range.map(Seeds).ok_or_else(|| "seeds are A..B".to_owned())
}

/// A line of progress after so many programs.
const PROGRESS: usize = 500;
/// Programs of one kind of difference that are looked at again.
const LOOKED_AT: usize = 4;

/// Differences that look alike, by what they look like.
type Kinds = BTreeMap<String, Vec<(Item, Traces)>>;

impl Options {
    /// True if nothing differs.
    pub fn run(&self) -> Result<bool, Failure> {
        let binary = (!self.itself).then_some(self.broker.as_path());
        if let Some(binary) = binary.filter(|path| self.tried.is_none() && !path.exists()) {
            return Err(Failure::Trial(format!("there is no broker at {}", binary.display())));
        }
        let started = Brokers::start(self.reference, self.tried, binary, &self.dir);
        let mut brokers = match started {
            // What this machine cannot do is skipped, and said so.
            Err(skipped @ Failure::Skipped(_)) => {
                println!("{skipped}");
                return Ok(true);
            }
            started => started?,
        };
        let passed = match self.single()? {
            Some(item) => self.run_one(brokers.pair, &item),
            None => self.run_many(brokers.pair)?,
        };
        if !brokers.is_alive()? {
            let log = brokers.folder().join("millrace/output.txt");
            let last = crate::chaos::broker::tail(&log);
            return Err(Failure::Broken(format!("Millrace died:\n{last}")));
        }
        brokers.stop()?;
        Ok(passed)
    }

    fn single(&self) -> Result<Option<Item>, Failure> {
        if let Some(path) = &self.script {
            return cases::read_one(path).map(Some);
        }
        Ok(self.seed.map(item))
    }

    fn run_one(&self, pair: Pair, item: &Item) -> bool {
        let mut bench = Bench::new(pair);
        if self.story {
            let traces = bench.try_once(&item.program, Timeout::USUAL);
            println!("{}", story(item, &traces, usize::MAX));
            return traces.reference == traces.tried;
        }
        let traces = bench.try_once(&item.program, Timeout::USUAL);
        self.judge(pair, vec![(item.clone(), traces)])
    }

    fn run_many(&self, pair: Pair) -> Result<bool, Failure> {
        let begin = Instant::now();
        let cases = cases::read()?;
        let mut operations = 0;
        let mut counted = 0;
        let items: Vec<Item> = cases.into_iter().collect();
        let total = items.len() as u64 + self.seeds.0.end.saturating_sub(self.seeds.0.start);
        let items = items.into_iter().chain(self.seeds.0.clone().map(item));
        let items = items.inspect(|item| operations += item.program.0.len());
        let different = run_all(pair, self.threads, items, |count| {
            counted = count;
            if count % PROGRESS == 0 {
                println!("{count} of {total} programs, {:.0} s", begin.elapsed().as_secs_f64());
            }
        });
        println!(
            "{counted} programs, {operations} operations, {:.0} s: {} to look at again",
            begin.elapsed().as_secs_f64(),
            different.len()
        );
        Ok(self.judge(pair, different))
    }

    /// Looks again at a few differences of each kind, and tells of those that stay.
    fn judge(&self, pair: Pair, different: Vec<(Item, Traces)>) -> bool {
        let mut kinds = Kinds::new();
        for (item, traces) in different {
            kinds.entry(kind(&item, &traces)).or_default().push((item, traces));
        }
        let mut counts = BTreeMap::new();
        let mut again = Vec::new();
        for (kind, found) in &mut kinds {
            found.sort_by_key(|(item, _)| item.program.0.len());
            counts.insert(kind.clone(), found.len());
            again.extend(found.iter().take(LOOKED_AT).map(|(item, _)| item.clone()));
        }
        let mut steady = Kinds::new();
        for (item, traces) in look_again(pair, again) {
            steady.entry(kind(&item, &traces)).or_default().push((item, traces));
        }
        let mut bench = Bench::new(pair);
        for (kind, found) in &mut steady {
            found.sort_by_key(|(item, _)| item.program.0.len());
            let names: Vec<&str> = found.iter().map(|(item, _)| item.name.as_str()).collect();
            let count = counts.get(kind).copied().unwrap_or(0).max(found.len());
            println!("\n== {count} times: {kind}\n   {}", names.join(", "));
            let (item, traces) = &found[0];
            let shortest = if self.shrink { shrink(&mut bench, &item.program) } else { None };
            match shortest {
                Some((program, traces)) => {
                    println!("{}", story(&Item { program, ..item.clone() }, &traces, 0));
                }
                None => println!("{}", story(item, traces, 0)),
            }
        }
        println!(
            "{} kinds of differences, {} before they were looked at again",
            steady.len(),
            kinds.len()
        );
        steady.is_empty()
    }
}

fn item(seed: u64) -> Item {
    Item { name: format!("seed {seed}"), program: generate::program(seed) }
}

/// Those of `items` that differ again and again, now that little else runs.
fn look_again(pair: Pair, items: Vec<Item>) -> Vec<(Item, Traces)> {
    const THREADS: usize = 8;
    let items = std::sync::Mutex::new(items.into_iter());
    let found = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut bench = Bench::new(pair);
                loop {
                    let item = items.lock().ok().and_then(|mut items| items.next());
                    let Some(item) = item else { return };
                    if let Some(traces) = bench.difference(&item.program, Timeout::GREAT)
                        && let Ok(mut found) = found.lock()
                    {
                        found.push((item, traces));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_default()
}

/// Where two traces part: the number of the operation.
fn parting(traces: &Traces) -> Option<usize> {
    let Traces { reference, tried, .. } = traces;
    let count = reference.0.len().max(tried.0.len());
    (0..count).find(|index| reference.0.get(*index) != tried.0.get(*index))
}

/// What a difference looks like, without names and numbers.
fn kind(item: &Item, traces: &Traces) -> String {
    let Some(index) = parting(traces) else { return "none".to_owned() };
    let lines = |trace: &Trace| trace.0.get(index).cloned().unwrap_or_default();
    let (reference, tried) = (lines(&traces.reference), lines(&traces.tried));
    let first = (0..).find(|line| reference.get(*line) != tried.get(*line)).unwrap_or(0);
    let line = |lines: &[String]| lines.get(first).map_or("nothing".to_owned(), |line| plain(line));
    let verb = item.program.0.get(index).map(|operation| format!("{:?}", operation.verb));
    let verb = verb.unwrap_or_else(|| "end".to_owned());
    format!("{verb}: RabbitMQ: {}, Millrace: {}", line(&reference), line(&tried))
}

/// A line without numbers, and a message without its properties.
fn plain(line: &str) -> String {
    const LONGEST: usize = 120;
    if let Some((_, message)) = line.split_once(" < ") {
        let redelivered = if message.contains(" redelivered ") { " redelivered" } else { "" };
        let dead = if message.contains("x-death=") { " dead" } else { "" };
        return format!("delivers a{redelivered}{dead} message");
    }
    let mut plain = String::new();
    for letter in line.chars() {
        match letter {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            letter => plain.push(letter),
        }
    }
    plain.chars().take(LONGEST).collect()
}

/// The program with what both brokers showed, up to where they part and as many operations more.
fn story(item: &Item, traces: &Traces, more: usize) -> String {
    let mut text = format!("-- {}\n", item.name);
    let Traces { reference, tried, .. } = traces;
    let count = reference.0.len().max(tried.0.len());
    let told = parting(traces).map_or(count, |parting| parting.saturating_add(more));
    for index in 0..count {
        let operation = item.program.0.get(index);
        let operation = operation.map_or("(the end)".to_owned(), ToString::to_string);
        text.push_str(&format!("{operation}\n"));
        if index > told {
            continue;
        }
        let mut tell = |who: &str, trace: &Trace| {
            for line in trace.0.get(index).into_iter().flatten() {
                text.push_str(&format!("    {who}{line}\n"));
            }
        };
        if reference.0.get(index) == tried.0.get(index) {
            tell("", reference);
        } else {
            tell("RabbitMQ  ", reference);
            tell("Millrace  ", tried);
        }
    }
    text
}
