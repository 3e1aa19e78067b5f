//! The manager: which job may start when, and what follows an outcome. A core: told the time, the jobs and the
//! outcomes, it says what is to be done. Of a job that runs it keeps the message, so that a throttled one can wait
//! here; the body is shared, not copied.
//!
//! ```text
//!   Took ──> [take]: too often out? refused? ──> queue: keys (order, jobs at once, rate) ──> ready ──┐
//!                                                  ^                                                 v
//!   Settled <── source <── Settle <── [verdict] <──┴── Finished <── target <── Start <── [start]: priority, weight,
//!                                     waits again                              concurrency, rate, breaker, throttle
//! ```
//!
//! What is counted: `concurrency`, of a pipeline and of a target, and a target's `rate` count runs; what is set per
//! key counts jobs.
//!
//! A source that was given room uses it when it can; room is not taken back. While a target has stopped, or is throttled
//! for more than 10 s, what comes nevertheless goes back at once.
//!
//! The first step should be a `Tick`: it gives the sources their first room.

mod breaker;
mod bucket;
mod change;
mod finish;
mod held;
mod keys;
mod leases;
mod pipeline;
mod ready;
mod runs;
mod settings;
mod start;
mod status;
mod take;
mod target;
mod tell;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::{Duration, Instant};

pub use breaker::Breaker;
pub use pipeline::Proof;
pub use settings::{BREAKER, LIMITS, PIPELINE};
pub use settings::{BreakerSettings, Order, PipelineSettings, Settings, TargetSettings};
pub use status::{PipelineStatus, TargetStatus};
pub use target::Outcomes;

use client::Chance;
use held::Slab;
use pipeline::Pipeline;
use runs::Runs;
use target::Target;

use crate::job::{Job, Message, Receipt};
use crate::outcome::Outcome;
use crate::settlement::Settled;

/// A pipeline: one queue of one source, and the target that executes its jobs. Its place in the list of pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineId(pub u16);

/// A target: its place in the list of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u16);

/// One execution of one job, or of several that go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// What happens to a pool.
#[derive(Debug)]
pub enum Input {
    /// A source took jobs. They count against the room it was given.
    Took { pipeline: PipelineId, jobs: Vec<Job> },
    /// A run is over: one outcome for each of its jobs, in their order.
    Finished { run: RunId, outcomes: Vec<Outcome> },
    /// The source has carried out settlements: what the proof counts.
    Settled { pipeline: PipelineId, receipts: Vec<Receipt> },
    /// Leases were made longer. One that is missing is asked for again, until it has run out.
    Renewed { pipeline: PipelineId, leases: Vec<(Receipt, Instant)> },
    /// The source has lost these jobs: somebody else gets them. What has not started is dropped; what runs goes on
    /// to its end, and is not settled.
    Lost { pipeline: PipelineId, receipts: Vec<Receipt> },
    /// The rate that this process may use of a target's, in runs per second; none: all that is set.
    Share { target: TargetId, rate: Option<f64> },
    /// Nothing of this pipeline is started until it is resumed; sources get no room.
    Paused { pipeline: PipelineId, is_paused: bool },
    /// A target whose settings were wrong was mended: it goes on.
    Mended { target: TargetId },
    /// Fetch nothing more. What has not started goes back; what runs has until `deadline`.
    Stop { deadline: Instant },
    /// Time has passed: the deadline that the pool told has come.
    Tick,
}

/// What a pool wants done.
#[derive(Debug)]
pub enum Effect {
    /// Execute these jobs together, within the time.
    Start {
        run: RunId,
        pipeline: PipelineId,
        target: TargetId,
        jobs: Vec<Message>,
        deadline: Instant,
    },
    /// The run's time is over: stop it. It is still answered with `Finished`.
    Cancel { run: RunId },
    /// Carry these out at the source.
    Settle { pipeline: PipelineId, settled: Vec<Settled> },
    /// The source may take so many jobs more.
    Room { pipeline: PipelineId, jobs: usize },
    /// Make these leases longer.
    Renew { pipeline: PipelineId, receipts: Vec<Receipt> },
    /// Something that an operator should see, once per change.
    Notice(Notice),
    /// After `Stop`: everything is settled, and the [`Proof`] holds. Said again, should jobs come and go after it.
    Stopped,
}

/// A change of state that is worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    BreakerOpened {
        target: TargetId,
        until: Duration,
        why: String,
    },
    BreakerClosed {
        target: TargetId,
    },
    Throttled {
        target: TargetId,
        until: Duration,
        why: String,
    },
    /// The target has stopped: its settings are wrong.
    TargetStopped {
        target: TargetId,
        why: String,
    },
    JobDead {
        pipeline: PipelineId,
        id: String,
        why: String,
    },
}

/// What `Stop` has begun.
#[derive(Debug)]
struct Stopping {
    deadline: Instant,
    /// The deadline has come: what still ran was told to stop.
    is_cut: bool,
}

/// The manager's state.
#[derive(Debug)]
pub struct Pool {
    pipelines: Vec<Pipeline>,
    targets: Vec<Target>,
    held: Slab,
    runs: Runs,
    chance: Chance,
    bytes_held: usize,
    bytes_max: usize,
    /// The time of the last step; none: there was none. Time does not go back.
    now: Option<Instant>,
    stop: Option<Stopping>,
    is_stopped_told: bool,
}

impl Pool {
    /// A pool in which nothing has happened. `seed` is for the jitter of the delays.
    ///
    /// # Panics
    /// The settings have [problems](Settings::problems).
    pub fn new(settings: Settings, seed: u64) -> Self {
        let problems = settings.problems();
        assert!(problems.is_empty(), "the settings were looked at before: {problems:?}");
        let bytes_max = settings.bytes_max();
        let place = |one: &PipelineSettings| settings.target(&one.target).expect("no problem");
        let pipelines: Vec<Pipeline> = (settings.pipelines.iter())
            .map(|one| {
                let target = place(one);
                let limits = &settings.targets[target];
                Pipeline::new(one.clone(), target, limits.run_jobs_max, limits.linger.0)
            })
            .collect();
        let targets = (settings.targets.into_iter().enumerate())
            .map(|(target, limits)| {
                let is_its = |at: &usize| pipelines[*at].target == target;
                let mut its: Vec<usize> = (0..pipelines.len()).filter(is_its).collect();
                its.sort_by_key(|at| std::cmp::Reverse(pipelines[*at].settings.priority));
                Target::new(limits, its)
            })
            .collect();
        Self {
            pipelines,
            targets,
            held: Slab::default(),
            runs: Runs::default(),
            chance: Chance::new(seed),
            bytes_held: 0,
            bytes_max,
            now: None,
            stop: None,
            is_stopped_told: false,
        }
    }

    /// One thing has happened.
    pub fn step(&mut self, now: Instant, input: Input, effects: &mut Vec<Effect>) {
        self.step_all(now, [input], effects);
    }

    /// Several things have happened: one decision for all of them, which is cheaper.
    pub fn step_all(
        &mut self,
        now: Instant,
        inputs: impl IntoIterator<Item = Input>,
        effects: &mut Vec<Effect>,
    ) {
        let now = self.begin_step(now);
        for input in inputs {
            self.take_in(input, now, effects);
        }
        self.pass_time(now, effects);
        self.start_runs(now, effects);
        self.tell_sources(now, effects);
        self.tell_stopped(effects);
    }

    /// When the next [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let stop = self.stop.as_ref().filter(|stop| !stop.is_cut).map(|stop| stop.deadline);
        let now = self.now?;
        let targets = self.targets.iter().flat_map(|one| [one.wake_at, one.takes_again_at(now)]);
        let pipelines = self.pipelines.iter().flat_map(|one| {
            let parked = one.parked.first().map(|(until, _)| *until);
            [one.ready.lingers_until(), parked, one.keys.alarm_at(), one.look_at_leases_at]
        });
        targets.chain(pipelines).chain([stop, self.runs.deadline()]).flatten().min()
    }

    fn begin_step(&mut self, now: Instant) -> Instant {
        let is_first = self.now.is_none();
        let now = self.now.map_or(now, |before| before.max(now));
        self.now = Some(now);
        if is_first {
            self.targets.iter_mut().for_each(|target| target.share(None, now));
        }
        now
    }

    fn take_in(&mut self, input: Input, now: Instant, effects: &mut Vec<Effect>) {
        match input {
            Input::Took { pipeline, jobs } => self.took(pipeline, jobs, now, effects),
            Input::Finished { run, outcomes } => self.finished(run, outcomes, now, effects),
            Input::Settled { pipeline, receipts } => self.settled(pipeline, receipts),
            Input::Renewed { pipeline, leases } => self.renewed(pipeline, leases, now),
            Input::Lost { pipeline, receipts } => self.lost(pipeline, receipts, now),
            Input::Share { target, rate } => self.targets[usize::from(target.0)].share(rate, now),
            Input::Paused { pipeline, is_paused } => {
                self.pipelines[usize::from(pipeline.0)].is_paused = is_paused;
            }
            Input::Mended { target } => self.targets[usize::from(target.0)].stopped = None,
            Input::Stop { deadline } => self.stop(deadline, now),
            Input::Tick => {}
        }
    }

    fn stop(&mut self, deadline: Instant, now: Instant) {
        if let Some(stop) = &mut self.stop {
            stop.deadline = stop.deadline.min(deadline);
            return;
        }
        self.stop = Some(Stopping { deadline, is_cut: false });
        self.targets.iter_mut().for_each(|target| target.wake_at = None);
        for at in 0..self.pipelines.len() {
            self.send_all_back(at, |_| true, now);
        }
    }

    /// Does what is due.
    fn pass_time(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while let Some(run) = self.runs.cut_late(now) {
            effects.push(Effect::Cancel { run });
        }
        if let Some(stop) = self.stop.as_mut().filter(|stop| !stop.is_cut && stop.deadline <= now) {
            stop.is_cut = true;
            let runs = self.runs.cut_all();
            effects.extend(runs.into_iter().map(|run| Effect::Cancel { run }));
        }
        for at in 0..self.pipelines.len() {
            self.look_at_leases(at, now);
            let pipeline = &mut self.pipelines[at];
            pipeline.ready.pass_time(now);
            while let Some((until, id)) = pipeline.parked.pop_first() {
                if until > now {
                    pipeline.parked.insert((until, id));
                    break;
                }
                pipeline.ready.push_first(ready::Unit::Job(id));
            }
            while let Some(key) = self.pipelines[at].keys.next_alarm(now) {
                let next = self.pipelines[at].keys.look(key, now);
                self.heed(at, key, next, now);
            }
        }
    }

    fn tell_stopped(&mut self, effects: &mut Vec<Effect>) {
        let is_over = self.stop.is_some()
            && !self.is_stopped_told
            && self.runs.is_empty()
            && self.pipelines.iter().all(|one| one.held() == 0);
        if is_over {
            let proof = self.proof();
            assert!(proof.holds(), "every job that was taken has an end: {proof}");
            assert_eq!(self.bytes_held, 0, "no body is held any more");
            self.is_stopped_told = true;
            effects.push(Effect::Stopped);
        }
    }
}
