//! A run is over.

use std::time::Instant;

use super::breaker::{Sign, Turn};
use super::held::{Held, HeldId, State};
use super::keys::Next;
use super::ready::Unit;
use super::runs::{Cut, Run};
use super::verdict::{Case, Verdict, cut, judge, sign};
use super::{Effect, Notice, Order, Pool, RunId, TargetId};
use crate::limits::HOLD_MAX;
use crate::outcome::{Outcome, Scope};
use crate::settlement::Settlement;

impl Pool {
    /// A run is over, with an outcome for each of its jobs.
    pub(super) fn finished(
        &mut self,
        id: RunId,
        outcomes: Vec<Outcome>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(run) = self.runs.finish(id) else { return };
        let target = self.pipelines[run.pipeline].target;
        self.pipelines[run.pipeline].runs -= 1;
        let sign = match run.cut {
            Some(Cut::Stop) => Sign::Nothing,
            Some(Cut::Timeout) | None => run_sign(&outcomes),
        };
        let turn = self.targets[target].finish(sign, run.is_trying, now);
        self.tell_turn(target, turn, &outcomes, effects);
        let missing = || Outcome::retry("the target has given no outcome");
        let mut outcomes = outcomes.into_iter().chain(std::iter::repeat_with(missing));
        let Run { pipeline, first, rest, cut, .. } = run;
        for job in std::iter::once(first).chain(rest) {
            let outcome = outcomes.next().expect("it repeats for ever");
            self.targets[target].outcomes.count(&outcome);
            self.obey(target, pipeline, job, &outcome, now, effects);
            self.end_attempt(pipeline, job, outcome, cut, now, effects);
        }
    }

    fn tell_turn(
        &self,
        target: usize,
        turn: Turn,
        outcomes: &[Outcome],
        effects: &mut Vec<Effect>,
    ) {
        let target = TargetId(target as u16);
        let notice = match turn {
            Turn::Same => return,
            Turn::Closed => Notice::BreakerClosed { target },
            Turn::Opened { until } => {
                let why = outcomes.iter().find_map(failure).unwrap_or("no outcome").to_owned();
                Notice::BreakerOpened { target, until, why: cut(why) }
            }
        };
        effects.push(Effect::Notice(notice));
    }

    /// Does what an outcome says of other jobs than its own.
    fn obey(
        &mut self,
        target: usize,
        pipeline: usize,
        job: HeldId,
        outcome: &Outcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let id = TargetId(target as u16);
        match outcome {
            Outcome::Throttle { scope: Scope::Target, until, why } => {
                if self.targets[target].throttle(now + *until, now) {
                    let why = cut(why.clone());
                    let notice = Notice::Throttled { target: id, until: *until, why };
                    effects.push(Effect::Notice(notice));
                }
                if *until > HOLD_MAX {
                    self.send_target_back(target, now);
                }
            }
            Outcome::Throttle { scope: Scope::Key, until, .. } => {
                if let Some(key) = self.held.at(job).key {
                    // Not longer than a job may wait here: then the next one asks again.
                    let until = now + (*until).min(HOLD_MAX);
                    let next = self.pipelines[pipeline].keys.block(key, until, now);
                    self.heed(pipeline, key, next, now);
                }
            }
            Outcome::Config { why } => {
                if self.targets[target].stopped.is_none() {
                    self.targets[target].stopped = Some(cut(why.clone()));
                    let why = cut(why.clone());
                    effects.push(Effect::Notice(Notice::TargetStopped { target: id, why }));
                    self.send_target_back(target, now);
                }
            }
            Outcome::Done { .. }
            | Outcome::Retry { .. }
            | Outcome::TokenDead { .. }
            | Outcome::Reject { .. } => {}
        }
    }

    /// What waits for a target that starts nothing for long goes back.
    fn send_target_back(&mut self, target: usize, now: Instant) {
        let one = &self.targets[target];
        let keeps_ordered = one.stopped.is_none() && one.long_throttle(true, now).is_none();
        for at in one.pipelines.clone() {
            let is_ordered = self.pipelines[at].settings.order == Order::Key;
            let keeps = |held: &Held| keeps_ordered && is_ordered && held.key.is_some();
            self.send_all_back(at, |held| !keeps(held), now);
        }
    }

    fn end_attempt(
        &mut self,
        at: usize,
        job: HeldId,
        outcome: Outcome,
        cut_by: Option<Cut>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let key = self.held.at(job).key;
        if self.held.at(job).state == State::RunningLost && cfg!(not(bug_pool_lost_settled)) {
            self.end_lost(at, job);
            self.free_key(at, key, now);
            return;
        }
        let scope_is_key = matches!(outcome, Outcome::Throttle { scope: Scope::Key, .. });
        let case = self.case(at, job, cut_by);
        match judge(outcome, case) {
            Verdict::Settle { settlement, publishes, end } => {
                self.tell_death(job, &settlement, effects);
                let settlement = self.with_rest(job, settlement);
                self.settle(job, settlement, publishes, end);
                self.free_key(at, key, now);
            }
            Verdict::Hold { after, attempt, rest, publishes } => {
                let held = self.held.at_mut(job);
                held.state = State::Waiting;
                let is_charged = attempt != held.message.attempt;
                held.is_charged |= is_charged;
                held.message.attempt = attempt;
                held.publishes.extend(publishes);
                if let Some(rest) = rest {
                    self.bytes_held = self.bytes_held - held.bytes + rest.len();
                    held.bytes = rest.len();
                    held.message.body = rest;
                    held.is_rest = true;
                }
                self.pipelines[at].running -= 1;
                self.pipelines[at].waiting += 1;
                if self.is_refused(at, job, now) {
                    self.send_back(job, after, now);
                    self.free_key(at, key, now);
                    return;
                }
                // A throttled target keeps the job from starting by itself.
                let until = if scope_is_key || is_charged { now + after } else { now };
                self.wait_again(at, job, key, until, now);
            }
        }
    }

    /// Puts a job that ran before the others that wait.
    fn wait_again(
        &mut self,
        at: usize,
        job: HeldId,
        key: Option<u64>,
        until: Instant,
        now: Instant,
    ) {
        let pipeline = &mut self.pipelines[at];
        match key.filter(|key| pipeline.keys.holds(*key)) {
            Some(key) => {
                let next = pipeline.keys.again(key, job, until, now);
                self.heed(at, key, next, now);
            }
            None if until > now => {
                pipeline.parked.insert((until, job));
            }
            None => pipeline.ready.push_first(Unit::Job(job)),
        }
    }

    /// A job that was lost while it ran has ended.
    fn end_lost(&mut self, at: usize, job: HeldId) {
        let held = self.held.remove(job);
        self.bytes_held -= held.bytes;
        self.pipelines[at].running -= 1;
        self.pipelines[at].running_lost -= 1;
    }

    /// The next job of the key may start.
    fn free_key(&mut self, at: usize, key: Option<u64>, now: Instant) {
        let Some(key) = key else { return };
        let next = self.pipelines[at].keys.finish(key, now);
        if cfg!(bug_pool_key_forgotten) && matches!(next, Next::Ready(_)) {
            return;
        }
        self.heed(at, key, next, now);
    }

    fn case(&mut self, at: usize, job: HeldId, cut_by: Option<Cut>) -> Case {
        let attempts_max = self.attempts_max(job);
        let held = self.held.at(job);
        let pipeline = &self.pipelines[at];
        let attempt = held.message.attempt.max(1);
        Case {
            attempt,
            attempts_max,
            backoff: pipeline.backoff.delay(attempt - 1, self.chance.next_bits()),
            is_ordered: pipeline.orders(held.key),
            is_stopping: self.stop.is_some(),
            is_cut_by_stop: cut_by == Some(Cut::Stop),
        }
    }

    fn tell_death(&self, job: HeldId, settlement: &Settlement, effects: &mut Vec<Effect>) {
        if let Settlement::Dead { why, .. } = settlement {
            let held = self.held.at(job);
            let (pipeline, id) = (held.pipeline, held.message.id.clone());
            effects.push(Effect::Notice(Notice::JobDead { pipeline, id, why: why.clone() }));
        }
    }

    /// What is done already is not done again.
    fn with_rest(&self, job: HeldId, settlement: Settlement) -> Settlement {
        let held = self.held.at(job);
        if !held.is_rest {
            return settlement;
        }
        let body = Some(held.message.body.clone());
        let attempt = held.message.attempt;
        match settlement {
            Settlement::Later { after, attempt, why, rest } => {
                Settlement::Later { after, attempt, why, rest: rest.or(body) }
            }
            Settlement::Return => Settlement::Later {
                after: std::time::Duration::ZERO,
                attempt,
                why: "stopping".into(),
                rest: body,
            },
            Settlement::Done | Settlement::Dead { .. } => settlement,
        }
    }
}

/// What a run says of its target's health: one success is enough.
fn run_sign(outcomes: &[Outcome]) -> Sign {
    let has = |wanted| outcomes.iter().any(|outcome| sign(outcome) == wanted);
    if has(Sign::Success) {
        Sign::Success
    } else if has(Sign::Failure) || outcomes.is_empty() {
        Sign::Failure
    } else {
        Sign::Nothing
    }
}

fn failure(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Retry { why, .. } => Some(why),
        Outcome::Done { .. }
        | Outcome::Throttle { .. }
        | Outcome::TokenDead { .. }
        | Outcome::Reject { .. }
        | Outcome::Config { .. } => None,
    }
}
