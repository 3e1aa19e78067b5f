//! Knows what a pool promises, and nothing of how it works.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::Backoff;
use worker::limits::HOLD_MAX;
use worker::pool::{Effect, Input, Notice, Proof, RunId, Settings};
use worker::{Job, Message, Outcome, Receipt, Scope, Settled};

use crate::parts::{Pipeline, Target};
use crate::rates::{Level, usual_burst};
use crate::rules::{End, Held, Rules, State};

#[derive(Debug)]
struct Run {
    pipeline: usize,
    receipts: Vec<Receipt>,
    deadline: Instant,
    is_cancelled: bool,
    is_cut_by_stop: bool,
}

/// Follows a pool, and panics where it breaks a promise.
#[derive(Debug)]
pub(crate) struct Checker {
    pipelines: Vec<Pipeline>,
    targets: Vec<Target>,
    runs: BTreeMap<RunId, Run>,
    stop: Option<Instant>,
    pub(crate) is_stopped: bool,
    bytes_max: usize,
}

impl Checker {
    pub(crate) fn new(settings: &Settings, now: Instant) -> Self {
        let pipelines = settings.pipelines.iter().map(|one| Pipeline {
            settings: one.clone(),
            target: settings.target(&one.target).unwrap(),
            held: BTreeMap::new(),
            granted: 0,
            runs: 0,
            is_paused: false,
            keys: BTreeMap::new(),
            blocked: BTreeMap::new(),
            proof: Proof::default(),
        });
        let targets = settings.targets.iter().map(|one| Target {
            settings: one.clone(),
            runs: 0,
            level: one.rate.map(|rate| {
                let burst = one.burst.map_or_else(|| usual_burst(rate), f64::from);
                Level::new(rate, burst, now)
            }),
            throttled_until: None,
            is_stopped: false,
            failures: 0,
            open_until: None,
            trying: None,
        });
        Self {
            pipelines: pipelines.collect(),
            targets: targets.collect(),
            runs: BTreeMap::new(),
            stop: None,
            is_stopped: false,
            bytes_max: settings.buffer_bytes,
        }
    }

    /// Before the pool is told.
    pub(crate) fn input(&mut self, now: Instant, input: &Input) {
        match input {
            Input::Took { pipeline, jobs } => self.took(usize::from(pipeline.0), jobs),
            Input::Finished { run, outcomes } => self.finished(now, *run, outcomes),
            Input::Settled { pipeline, receipts } => {
                let one = &mut self.pipelines[usize::from(pipeline.0)];
                for receipt in receipts {
                    match one.held.remove(receipt).unwrap().state {
                        State::Settled(End::Done) => one.proof.done += 1,
                        State::Settled(End::Returned) => one.proof.returned += 1,
                        State::Settled(End::Retried) => one.proof.retried += 1,
                        State::Settled(End::Dead) => one.proof.dead += 1,
                        other => panic!("the source settles {receipt:?} that is {other:?}"),
                    }
                }
            }
            Input::Renewed { pipeline, leases } => {
                for (receipt, until) in leases {
                    if let Some(held) =
                        self.pipelines[usize::from(pipeline.0)].held.get_mut(receipt)
                    {
                        held.lease_until = Some(*until);
                    }
                }
            }
            Input::Lost { pipeline, receipts } => {
                for receipt in receipts {
                    self.pipelines[usize::from(pipeline.0)].lose(*receipt);
                }
            }
            Input::Share { target, rate } => self.targets[usize::from(target.0)].share(*rate, now),
            Input::Paused { pipeline, is_paused } => {
                self.pipelines[usize::from(pipeline.0)].is_paused = *is_paused;
            }
            Input::Mended { target } => self.targets[usize::from(target.0)].is_stopped = false,
            Input::Stop { deadline } => self.stop = Some(*deadline),
            Input::Tick => {}
        }
    }

    fn took(&mut self, at: usize, jobs: &[Job]) {
        let one = &mut self.pipelines[at];
        one.granted -= jobs.len();
        self.is_stopped = false;
        for job in jobs {
            one.proof.taken += 1;
            let extras = job.message.extras.as_ref();
            let held = Held {
                key: job.key,
                group: job.group,
                bytes: job.message.body.len(),
                attempts_max: extras
                    .and_then(|one| one.attempts_max)
                    .unwrap_or(one.settings.attempts_max),
                timeout: extras.and_then(|one| one.timeout).unwrap_or(one.settings.timeout.0),
                attempt: job.message.attempt,
                attempt_taken: job.message.attempt,
                rest: None,
                state: State::Waiting,
                is_lost: false,
                lease_until: job.lease_until,
                not_before: None,
                was_cut_by_stop: false,
            };
            one.held.insert(job.receipt, held);
        }
    }

    fn finished(&mut self, now: Instant, id: RunId, outcomes: &[Outcome]) {
        let run = self.runs.remove(&id).unwrap();
        let one = &mut self.pipelines[run.pipeline];
        let target = &mut self.targets[one.target];
        one.runs -= 1;
        target.runs -= 1;
        if target.trying == Some(id) {
            target.trying = None;
        }
        let answered = outcomes.iter().any(|outcome| {
            matches!(
                outcome,
                Outcome::Done { .. } | Outcome::Reject { .. } | Outcome::TokenDead { .. }
            )
        });
        let failed = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Retry { .. }));
        if answered {
            target.failures = 0;
        } else if failed && !run.is_cut_by_stop && target.open_until.is_none() {
            target.failures += 1;
        }
        for (receipt, outcome) in run.receipts.iter().zip(outcomes) {
            let held = one.held.get_mut(receipt).unwrap();
            match outcome {
                Outcome::Throttle { scope: Scope::Target, until, .. } => {
                    target.throttled_until = target.throttled_until.max(Some(now + *until));
                }
                Outcome::Throttle { scope: Scope::Key, until, .. } => {
                    if let Some(key) = held.key {
                        let until = now + (*until).min(HOLD_MAX);
                        let blocked = one.blocked.entry(key).or_insert(until);
                        *blocked = until.max(*blocked);
                    }
                }
                Outcome::Config { .. } => target.is_stopped = true,
                Outcome::Done { .. }
                | Outcome::Retry { .. }
                | Outcome::TokenDead { .. }
                | Outcome::Reject { .. } => {}
            }
            if held.is_lost {
                one.held.remove(receipt);
            } else {
                held.was_cut_by_stop = run.is_cut_by_stop;
                held.state = State::Ended(outcome.clone());
            }
        }
    }

    /// After the pool was told.
    pub(crate) fn effects(&mut self, now: Instant, effects: &[Effect]) {
        // What has ended is known before what may start because of it.
        for effect in effects {
            if let Effect::Settle { pipeline, settled } = effect {
                settled.iter().for_each(|one| self.settled(now, usize::from(pipeline.0), one));
            }
        }
        for effect in effects {
            match effect {
                Effect::Start { run, pipeline, target, jobs, deadline } => {
                    let at = usize::from(pipeline.0);
                    assert_eq!(self.pipelines[at].target, usize::from(target.0));
                    self.started(now, *run, at, jobs, *deadline);
                }
                Effect::Cancel { run } => {
                    let run = self.runs.get_mut(run).expect("what is cancelled runs");
                    assert!(!run.is_cancelled, "a run is cancelled once");
                    run.is_cancelled = true;
                    assert!(
                        run.deadline <= now || self.stop.is_some_and(|at| at <= now),
                        "a run is cancelled early"
                    );
                }
                Effect::Settle { .. } => {}
                Effect::Room { .. } => {}
                Effect::Renew { pipeline, receipts } => {
                    for receipt in receipts {
                        let held = &self.pipelines[usize::from(pipeline.0)].held[receipt];
                        assert!(
                            held.lease_until.is_some_and(|until| until > now),
                            "renewed too late"
                        );
                    }
                }
                Effect::Notice(notice) => self.notice(now, notice),
                Effect::Stopped => {
                    assert!(self.stop.is_some() && self.runs.is_empty() && !self.is_stopped);
                    self.is_stopped = true;
                }
            }
        }
        self.after_step(now);
        // And so is what waits again, before room is given.
        for effect in effects {
            if let Effect::Room { pipeline, jobs } = effect {
                self.room(now, usize::from(pipeline.0), *jobs);
                self.bytes(now);
            }
        }
    }

    /// No room is given while the bytes are used up.
    fn bytes(&self, now: Instant) {
        let bytes: usize = self
            .pipelines
            .iter()
            .flat_map(|one| one.held.values())
            .filter(|held| !matches!(held.state, State::Settled(_)) && !held.is_given_up(now))
            .map(|held| held.bytes)
            .sum();
        assert!(
            bytes < self.bytes_max,
            "room is given with {bytes} bytes in hand of {}",
            self.bytes_max
        );
    }

    /// What must be true between steps.
    fn after_step(&mut self, now: Instant) {
        let is_cut = self.stop.is_some_and(|deadline| deadline <= now);
        for run in self.runs.values_mut() {
            assert!(run.deadline > now || run.is_cancelled, "a late run is not cancelled");
            assert!(!is_cut || run.is_cancelled, "a run goes on after the stop's deadline");
            run.is_cut_by_stop |= is_cut;
        }
        for one in &mut self.pipelines {
            let ended: Vec<Receipt> = one
                .held
                .iter()
                .filter(|(_, held)| matches!(held.state, State::Ended(_)))
                .map(|(receipt, _)| *receipt)
                .collect();
            for receipt in ended {
                one.waits_again(now, receipt);
                assert!(self.stop.is_none(), "{receipt:?} waits although nothing starts any more");
            }
        }
        for target in &self.targets {
            let failures = target.settings.breaker.failures;
            assert!(
                failures == 0 || target.failures < failures || target.open_until.is_some(),
                "{} failures in a row, and the breaker is closed",
                target.failures
            );
        }
        if self.is_stopped {
            assert!(
                self.pipelines
                    .iter()
                    .all(|one| one.held.values().all(|held| held.is_given_up(now))),
                "stopped with jobs in hand"
            );
        }
    }

    fn started(&mut self, now: Instant, id: RunId, at: usize, jobs: &[Message], deadline: Instant) {
        assert!(self.stop.is_none(), "a job starts after the stop");
        let one = &mut self.pipelines[at];
        let target = &mut self.targets[one.target];
        assert!(!one.is_paused, "a job of a paused pipeline starts");
        target.started(now, id);
        one.runs += 1;
        assert!(one.runs <= one.settings.concurrency, "more runs than the pipeline's concurrency");
        assert!(
            !jobs.is_empty() && jobs.len() <= target.settings.run_jobs_max,
            "{} jobs",
            jobs.len()
        );
        let receipts: Vec<Receipt> =
            jobs.iter().map(|job| Receipt(job.kind.parse().unwrap())).collect();
        let group = one.held[&receipts[0]].group;
        let mut timeout = Duration::MAX;
        for (receipt, job) in receipts.iter().zip(jobs) {
            one.started(now, *receipt, job);
            let held = &one.held[receipt];
            assert!(
                jobs.len() == 1 || (group.is_some() && held.group == group),
                "groups are mixed"
            );
            timeout = timeout.min(held.timeout);
        }
        assert_eq!(deadline, now + timeout, "the deadline is the jobs' timeout");
        let run =
            Run { pipeline: at, receipts, deadline, is_cancelled: false, is_cut_by_stop: false };
        assert!(self.runs.insert(id, run).is_none(), "a run's id is used twice");
    }

    fn settled(&mut self, now: Instant, at: usize, one: &Settled) {
        let pipeline = &mut self.pipelines[at];
        let target = &self.targets[pipeline.target];
        let is_parked = target.throttled_until.is_some_and(|until| until > now + HOLD_MAX);
        let receipt = one.receipt;
        let held = pipeline.held.get(&receipt);
        let held = held.unwrap_or_else(|| panic!("{receipt:?} is settled and not held"));
        assert!(!held.is_lost, "{receipt:?} is settled and lost");
        let settings = &pipeline.settings;
        let rules = Rules {
            is_ordered: pipeline.is_ordered(held.key),
            is_refusing: self.stop.is_some() || target.is_stopped || is_parked,
            backoff: Backoff { first: settings.backoff.0, longest: settings.backoff_max.0 },
        };
        let end = rules.end(held, &one.settlement);
        pipeline.held.get_mut(&receipt).unwrap().state = State::Settled(end);
    }

    fn room(&mut self, now: Instant, at: usize, jobs: usize) {
        let one = &mut self.pipelines[at];
        let target = &self.targets[one.target];
        assert!(
            jobs > 0 && self.stop.is_none() && !one.is_paused && !target.is_stopped,
            "room for nothing"
        );
        assert!(
            target.open_until.is_none_or(|until| until <= now),
            "room while the breaker is open"
        );
        one.granted += jobs;
        let most = one.settings.buffer_jobs();
        let in_hand = one.held.values().filter(|held| !held.is_given_up(now)).count();
        assert!(in_hand + one.granted <= most, "more room than the buffer of {most} jobs");
    }

    fn notice(&mut self, now: Instant, notice: &Notice) {
        match notice {
            Notice::BreakerOpened { target, until, .. } => {
                let target = &mut self.targets[usize::from(target.0)];
                target.open_until = Some(now + *until);
                target.trying = None;
                target.failures = 0;
            }
            Notice::BreakerClosed { target } => {
                let target = &mut self.targets[usize::from(target.0)];
                assert!(target.open_until.is_some(), "a closed breaker is closed");
                target.open_until = None;
                target.trying = None;
            }
            Notice::TargetStopped { target, .. } => {
                assert!(self.targets[usize::from(target.0)].is_stopped);
            }
            Notice::Throttled { .. } | Notice::JobDead { .. } => {}
        }
    }

    /// The pool's own figures are those that were seen.
    pub(crate) fn compare(&self, at: usize, proof: Proof, now: Instant) {
        let one = &self.pipelines[at];
        let seen = one.proof;
        assert_eq!(
            (seen.taken, seen.done, seen.returned, seen.retried, seen.dead),
            (proof.taken, proof.done, proof.returned, proof.retried, proof.dead),
            "the proof is not what was seen"
        );
        // What waits with a lease that has run out may be counted as lost already.
        let expired = one.held.values().filter(|held| held.is_given_up(now));
        let lost = seen.lost..=seen.lost + expired.count() as u64;
        assert!(lost.contains(&proof.lost), "{} are lost, and {lost:?} were", proof.lost);
        if self.is_stopped {
            assert!(proof.holds(), "{proof}");
        }
    }

    /// True if the source may still be told to settle this job, or was told.
    pub(crate) fn holds(&self, at: usize, receipt: Receipt) -> bool {
        self.pipelines[at].held.get(&receipt).is_some_and(|held| !held.is_lost)
    }

    pub(crate) fn jobs_of(&self, run: RunId) -> usize {
        self.runs[&run].receipts.len()
    }

    pub(crate) fn is_running(&self, run: RunId) -> bool {
        self.runs.contains_key(&run)
    }
}
