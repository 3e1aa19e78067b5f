//! A run from its first connection to its last: starts the workers, says when to measure, watches.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use amqp::{Method, basic, confirm};
use hdrhistogram::Histogram;

use super::plan::Plan;
use super::process::{Processes, RSS_INTERVAL_MS, Usage, own_cpu_s};
use super::stencil::{Shape, Stencil};
use super::tally::{Conductor, Counters, Phase, Totals, merged, now_ns};
use super::wire::Wire;
use super::{consumer, publisher};
use crate::cmd::terminal;

const SECOND_NS: u64 = 1_000_000_000;
/// How often the main thread looks at its workers.
const TICK: Duration = Duration::from_millis(10);
/// All workers must be connected by then.
const START_WAIT_NS: u64 = 60 * SECOND_NS;
/// A drain is over when nothing has come for so long.
const IDLE_NS: u64 = SECOND_NS;
/// What is left in the queues at the end of a measured time is consumed for so long.
const DRAIN_WAIT_NS: u64 = 10 * SECOND_NS;

type Worker = JoinHandle<Result<Histogram<u64>, String>>;

/// What happened.
pub(super) struct Outcome {
    /// What was counted while it was measured.
    pub(super) measured: Totals,
    pub(super) publish_s: f64,
    pub(super) consume_s: f64,
    /// Over the whole run.
    pub(super) totals: Totals,
    pub(super) confirm_us: Histogram<u64>,
    pub(super) end_to_end_us: Histogram<u64>,
    pub(super) server: Option<Cost>,
    pub(super) generator_cpu_s: f64,
    /// How long CPU was measured.
    pub(super) cpu_s: f64,
    /// Messages in the queues before and after.
    pub(super) waiting: u64,
    pub(super) left: u64,
}

/// What the server used while it was measured.
pub(super) struct Cost {
    pub(super) before: Usage,
    pub(super) after: Usage,
    pub(super) rss_start: u64,
    pub(super) rss_end: u64,
    pub(super) rss_max: u64,
}

/// What is compared at the two ends of the measured time.
#[derive(Clone, Copy)]
struct Snapshot {
    at_ns: u64,
    totals: Totals,
    usage: Usage,
    rss: u64,
    own_cpu_s: f64,
}

impl Snapshot {
    fn take(processes: &Processes, totals: Totals) -> Result<Self, String> {
        let usage = processes.usage()?;
        let (rss, own_cpu_s) = (processes.rss_bytes(), own_cpu_s());
        Ok(Self { at_ns: now_ns(), totals, usage, rss, own_cpu_s })
    }
}

struct Run<'p> {
    plan: &'p Plan,
    conductor: Arc<Conductor>,
    publishers: Vec<(Worker, Arc<Counters>)>,
    consumers: Vec<(Worker, Arc<Counters>)>,
    processes: Processes,
    rss_max: u64,
    rss_looked_ns: u64,
    /// When and what the last line said.
    told: (u64, Totals),
    start_ns: u64,
}

/// Runs the plan.
///
/// # Errors
/// A worker could not connect, was refused, or saw what AMQP does not allow.
pub(super) fn run(plan: &Plan) -> Result<Outcome, String> {
    let processes = Processes::new(&plan.pids)?;
    let waiting = plan.prepare()?;
    let idle = Snapshot::take(&processes, Totals::default())?;
    let mut run = Run {
        plan,
        conductor: Arc::default(),
        publishers: Vec::new(),
        consumers: Vec::new(),
        processes,
        rss_max: 0,
        rss_looked_ns: 0,
        told: (0, Totals::default()),
        start_ns: now_ns(),
    };
    let measured = run.start().and_then(|()| run.measure(waiting, idle));
    if measured.is_err() {
        run.conductor.fail();
    }
    run.enter(Phase::Ending);
    let consumers = std::mem::take(&mut run.consumers);
    let publishers = std::mem::take(&mut run.publishers);
    let counters: Vec<_> = publishers.iter().chain(&consumers).map(|(_, c)| c.clone()).collect();
    // A worker's own words say more than that the run ended early.
    let confirm_us = join(publishers)?;
    let end_to_end_us = join(consumers)?;
    let measured = measured?;
    Ok(Outcome {
        confirm_us,
        end_to_end_us,
        totals: Totals::of(counters.iter()),
        waiting,
        left: plan.clean_up()?,
        ..measured
    })
}

fn join(workers: Vec<(Worker, Arc<Counters>)>) -> Result<Histogram<u64>, String> {
    let results: Vec<_> = workers
        .into_iter()
        .map(|(worker, _)| worker.join().unwrap_or_else(|_| Err("a worker panicked".into())))
        .collect();
    let histograms: Result<Vec<_>, _> = results.into_iter().collect();
    Ok(merged(histograms?.into_iter()))
}

impl Run<'_> {
    /// Starts all workers: consumers consume, publishers wait for the word.
    fn start(&mut self) -> Result<(), String> {
        for index in 0..self.plan.parameters.consumers {
            let worker = self.start_consumer(index)?;
            self.consumers.push(worker);
        }
        for index in 0..self.plan.parameters.publishers {
            let worker = self.start_publisher(index)?;
            self.publishers.push(worker);
        }
        let give_up_ns = now_ns() + START_WAIT_NS;
        let is_ready = |worker: &(Worker, Arc<Counters>)| worker.1.ready.load(Relaxed);
        while !self.publishers.iter().chain(&self.consumers).all(is_ready) {
            self.check_workers()?;
            if now_ns() > give_up_ns {
                return Err("some connections were not made within a minute".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn start_publisher(&self, index: u32) -> Result<(Worker, Arc<Counters>), String> {
        let parameters = &self.plan.parameters;
        let mut connection = self.plan.connect(&format!("publisher {}", index + 1))?;
        let refused = |error: client::Error| error.to_string();
        let channel = connection.open_channel().map_err(refused)?;
        if parameters.window > 0 {
            let select = Method::ConfirmSelect(confirm::Select { no_wait: false });
            connection.call(channel, &select).map_err(refused)?;
        }
        let wire = Wire::new(connection)?;
        let shape = Shape {
            channel,
            frame_max: wire.frame_max,
            body_bytes: parameters.size as usize,
            persistent: !parameters.transient,
            exchange: parameters.exchange.as_deref().unwrap_or(""),
        };
        let task = publisher::Task {
            stencil: Stencil::new(
                shape,
                &self.plan.routing_keys(index),
                self.plan.extras(self.start_ns),
                u64::from(index),
            ),
            window: parameters.window,
            interval_ns: self.plan.interval_ns(),
            count: self.plan.count_of(index),
        };
        self.spawn(format!("publisher-{}", index + 1), move |conductor, counters| {
            publisher::run(task, wire, conductor, counters)
        })
    }

    fn start_consumer(&self, index: u32) -> Result<(Worker, Arc<Counters>), String> {
        let parameters = &self.plan.parameters;
        let mut connection = self.plan.connect_consumer(&format!("consumer {}", index + 1))?;
        let refused = |error: client::Error| error.to_string();
        let channel = connection.open_channel().map_err(refused)?;
        let qos =
            basic::Qos { prefetch_size: 0, prefetch_count: parameters.prefetch, global: false };
        connection.call(channel, &Method::BasicQos(qos)).map_err(refused)?;
        let wire = Wire::new(connection)?;
        let task = consumer::Task {
            queues: self.plan.consumed_queues(index),
            arguments: self.plan.consumer_arguments.clone(),
            ack_every: parameters.ack_every,
            // What an earlier run left may have had another size.
            body_bytes: (parameters.publishers > 0).then_some(parameters.size.into()),
            run_start_ns: if parameters.publishers > 0 { self.start_ns } else { u64::MAX },
        };
        self.spawn(format!("consumer-{}", index + 1), move |conductor, counters| {
            consumer::run(&task, wire, channel, conductor, counters)
        })
    }

    fn spawn(
        &self,
        name: String,
        work: impl FnOnce(&Conductor, Arc<Counters>) -> Result<Histogram<u64>, String> + Send + 'static,
    ) -> Result<(Worker, Arc<Counters>), String> {
        let counters = Arc::<Counters>::default();
        let (conductor, of_worker) = (self.conductor.clone(), counters.clone());
        let worker = thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let result = work(&conductor, of_worker);
                if result.is_err() {
                    conductor.fail();
                }
                result.map_err(|why| format!("{name}: {why}"))
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok((worker, counters))
    }

    fn measure(&mut self, waiting: u64, idle: Snapshot) -> Result<Outcome, String> {
        let is_drain = self.plan.parameters.publishers == 0;
        self.told = (now_ns(), Totals::default());
        if !self.plan.warmup.is_zero() {
            self.enter(Phase::Warming);
            let until = now_ns() + self.plan.warmup.as_nanos() as u64;
            self.watch(|_, now| now >= until)?;
        }
        // A drain begins when the first consumer does, not when all of them are there.
        let before = if is_drain { idle } else { Snapshot::take(&self.processes, self.totals())? };
        self.rss_max = before.rss;
        self.enter(Phase::Measuring);
        self.watch_measured(waiting, before.at_ns)?;
        let after = Snapshot::take(&self.processes, self.totals())?;
        let (publish_s, consume_s) = self.seconds(before.at_ns, after.at_ns);
        let server = (!self.processes.is_empty()).then_some(Cost {
            before: before.usage,
            after: after.usage,
            rss_start: before.rss,
            rss_end: after.rss,
            rss_max: self.rss_max.max(after.rss),
        });
        self.drain(waiting)?;
        Ok(Outcome {
            measured: after.totals.since(before.totals),
            publish_s,
            consume_s,
            totals: Totals::default(),
            confirm_us: merged(std::iter::empty()),
            end_to_end_us: merged(std::iter::empty()),
            server,
            generator_cpu_s: after.own_cpu_s - before.own_cpu_s,
            cpu_s: (after.at_ns - before.at_ns) as f64 / 1e9,
            waiting,
            left: 0,
        })
    }

    /// Waits until the time is up, or what was asked for has been done.
    fn watch_measured(&mut self, waiting: u64, start_ns: u64) -> Result<(), String> {
        let count = self.plan.parameters.count;
        let until = start_ns + self.plan.duration.as_nanos() as u64;
        if self.plan.parameters.publishers == 0 {
            let wanted = count.unwrap_or(waiting.max(1));
            return self.watch(|run, now| {
                let is_idle = now > run.last_ns().max(start_ns) + IDLE_NS;
                run.totals().consumed >= wanted || is_idle || (count.is_none() && now >= until)
            });
        }
        if count.is_none() {
            return self.watch(|_, now| now >= until);
        }
        self.watch(|run, now| {
            // What never comes is told as lost or left, not waited for.
            let quiet_until_ns = run.plan.quiet_until_ns(run.start_ns);
            let is_stuck = now > run.last_ns().max(start_ns).max(quiet_until_ns) + DRAIN_WAIT_NS;
            run.has_published() && (run.is_drained(waiting) || is_stuck)
        })
    }

    /// Lets publishers get their confirms and consumers what is left.
    fn drain(&mut self, waiting: u64) -> Result<(), String> {
        self.enter(Phase::Draining);
        self.watch(|run, _| run.has_published())?;
        if self.plan.parameters.publishers == 0 || self.consumers.is_empty() {
            return Ok(());
        }
        let give_up_ns = now_ns() + DRAIN_WAIT_NS;
        self.watch(|run, now| run.is_drained(waiting) || now >= give_up_ns)
    }

    /// How long publishing and consuming took. With a count: until the last message, not until it was noticed.
    fn seconds(&self, start_ns: u64, end_ns: u64) -> (f64, f64) {
        let seconds = |from: u64, until: u64| (until.max(from + 1) - from) as f64 / 1e9;
        let published_ns = last(&self.publishers).unwrap_or(end_ns);
        let consumed_ns = last(&self.consumers).unwrap_or(end_ns);
        if self.plan.parameters.publishers == 0 {
            let firsts = self.consumers.iter().map(|(_, counters)| counters.first_ns.load(Relaxed));
            let first_ns = firsts.filter(|time| *time > 0).min().unwrap_or(start_ns);
            return (seconds(start_ns, end_ns), seconds(first_ns, consumed_ns));
        }
        if self.plan.parameters.count.is_some() && self.plan.parameters.window > 0 {
            return (seconds(start_ns, published_ns), seconds(start_ns, consumed_ns));
        }
        (seconds(start_ns, end_ns), seconds(start_ns, end_ns))
    }

    /// All publishers have sent everything, and have their answers.
    fn has_published(&self) -> bool {
        self.publishers.iter().all(|(worker, _)| worker.is_finished())
    }

    /// Everything published, and what lay there before, has been consumed.
    fn is_drained(&self, waiting: u64) -> bool {
        let totals = self.totals();
        let gone = totals.nacked + totals.returned;
        let expected = waiting + totals.published.saturating_sub(gone) * self.plan.copies();
        self.consumers.is_empty() || totals.consumed - totals.redelivered >= expected
    }

    /// When the last confirm or delivery came; 0 if none has.
    fn last_ns(&self) -> u64 {
        last(&self.publishers).max(last(&self.consumers)).unwrap_or(0)
    }

    fn totals(&self) -> Totals {
        Totals::of(self.publishers.iter().chain(&self.consumers).map(|(_, counters)| counters))
    }

    fn enter(&self, phase: Phase) {
        let workers = self.publishers.iter().chain(&self.consumers);
        let threads: Vec<&Thread> = workers.map(|(worker, _)| worker.thread()).collect();
        self.conductor.enter(phase, threads.into_iter());
    }

    fn check_workers(&self) -> Result<(), String> {
        if self.conductor.has_failed() {
            Err("a publisher or a consumer failed".into())
        } else {
            Ok(())
        }
    }

    /// Looks around until `is_over`; tells the user once a second.
    fn watch(&mut self, is_over: impl Fn(&Self, u64) -> bool) -> Result<(), String> {
        loop {
            let now = now_ns();
            self.check_workers()?;
            if is_over(self, now) {
                return Ok(());
            }
            if now >= self.rss_looked_ns + RSS_INTERVAL_MS * 1_000_000 {
                self.rss_max = self.rss_max.max(self.processes.rss_bytes());
                self.rss_looked_ns = now;
            }
            if now >= self.told.0 + SECOND_NS {
                self.tell(now);
            }
            thread::sleep(TICK);
        }
    }

    fn tell(&mut self, now: u64) {
        let totals = self.totals();
        let (then, before) = std::mem::replace(&mut self.told, (now, totals));
        if self.plan.quiet {
            return;
        }
        let seconds = (now - then) as f64 / 1e9;
        let rate = |count: u64| (count as f64 / seconds).round() as u64;
        let since = totals.since(before);
        let line = format!(
            "{:>6.1} s {:9} | published {:>9}/s  confirmed {:>9}/s  consumed {:>9}/s{}",
            (now - self.start_ns) as f64 / 1e9,
            phase_name(self.conductor.phase()),
            rate(since.published),
            rate(since.confirmed),
            rate(since.consumed),
            if totals.blocked > 0 { "  BLOCKED by the server" } else { "" },
        );
        let mut stderr = std::io::stderr().lock();
        // Nobody is left to tell that telling failed.
        let _ = if stderr.is_terminal() {
            write!(stderr, "\r\x1b[2K{line}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{line}")
        };
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.plan.quiet && std::io::stderr().is_terminal() {
            terminal::remark("");
        }
    }
}

fn last(workers: &[(Worker, Arc<Counters>)]) -> Option<u64> {
    let times = workers.iter().map(|(_, c)| c.last_ns.load(Relaxed));
    times.max().filter(|time| *time > 0)
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Warming => "warming",
        Phase::Measuring => "measuring",
        Phase::Draining => "draining",
        Phase::Ending => "ending",
    }
}
