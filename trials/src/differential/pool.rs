//! Many programs at once: nearly all of the time is spent waiting, for answers or for time to pass.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Pair;
use super::program::Program;
use super::runner::{Site, Timeout, Trace, run};

/// A program and what it is called.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) program: Program,
}

/// What both brokers showed.
#[derive(Clone, Debug)]
pub(super) struct Traces {
    pub(super) reference: Trace,
    pub(super) tried: Trace,
    /// It took so long that queues may have gone which a program still uses.
    is_late: bool,
}

/// Connections to both brokers, for one program after the other.
pub(super) struct Bench {
    pair: Pair,
    reference: Site,
    tried: Site,
}

/// How often a difference is looked at again before it counts.
const REPEATS: usize = 3;
/// Runs on a machine that is too busy say nothing: so many are too many.
const LATE_MAX: usize = 10;

impl Bench {
    pub(super) fn new(pair: Pair) -> Bench {
        Bench { pair, reference: Site::new(pair.reference), tried: Site::new(pair.tried) }
    }

    /// Runs a program on both.
    pub(super) fn try_once(&mut self, program: &Program, timeout: Timeout) -> Traces {
        let prefix = prefix();
        let mut reference = run(&mut self.reference, program, &prefix, timeout);
        if let Err(error) = &reference {
            reference = Ok(Trace::failed(error));
            self.reference = Site::new(self.pair.reference);
        }
        // RabbitMQ beside itself needs another name.
        let prefix = if self.pair.reference == self.pair.tried { self::prefix() } else { prefix };
        let mut tried = run(&mut self.tried, program, &prefix, timeout);
        if let Err(error) = &tried {
            tried = Ok(Trace::failed(error));
            self.tried = Site::new(self.pair.tried);
        }
        let (reference, tried) = (reference.unwrap_or_default(), tried.unwrap_or_default());
        // Each operation uses every queue, at any time while it lasts.
        let slowest = self.reference.slowest.max(self.tried.slowest);
        let is_late = program.unused().is_some_and(|unused| slowest * 2 > unused);
        Traces { reference, tried, is_late }
    }

    /// The traces of a program whose traces differ each time that it runs, and with all patience;
    /// none if they once were equal.
    pub(super) fn difference(&mut self, program: &Program, timeout: Timeout) -> Option<Traces> {
        let mut seen: Vec<Traces> = Vec::new();
        let mut late = 0;
        while seen.len() < REPEATS {
            let traces = self.try_once(program, timeout);
            if traces.is_late {
                late += 1;
                if late > LATE_MAX {
                    println!(
                        "the brokers were too slow {late} times, so this program is not compared:\n{program}"
                    );
                    return None;
                }
                continue;
            }
            seen.push(traces);
            let is_equal = |one: &Traces| seen.iter().any(|two| one.reference == two.tried);
            if seen.iter().any(is_equal) {
                return None;
            }
        }
        seen.pop()
    }
}

impl Trace {
    fn failed(error: &io::Error) -> Trace {
        Trace(vec![vec![format!("the client failed: {error}")]])
    }
}

/// Runs all of `items`; those whose traces differ are handed back, with what was seen.
pub(super) fn run_all(
    pair: Pair,
    threads: usize,
    items: impl Iterator<Item = Item> + Send,
    mut progress: impl FnMut(usize),
) -> Vec<(Item, Traces)> {
    let items = std::sync::Mutex::new(items);
    let mut different = Vec::new();
    let (sender, receiver) = sync_channel(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, items) = (sender.clone(), &items);
            scope.spawn(move || {
                let mut bench = Bench::new(pair);
                loop {
                    let item = items.lock().ok().and_then(|mut items| items.next());
                    let Some(item) = item else { return };
                    let traces = bench.try_once(&item.program, Timeout::USUAL);
                    if sender.send((item, traces)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (count, (item, traces)) in receiver.iter().enumerate() {
            if traces.reference != traces.tried {
                different.push((item, traces));
            }
            progress(count + 1);
        }
    });
    different
}

/// A prefix that nothing on the brokers has yet.
fn prefix() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("d{:05}-{:07}.", now.as_secs() % 100_000, NEXT.fetch_add(1, Ordering::Relaxed))
}
