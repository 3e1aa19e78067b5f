//! Which job starts next.
//!
//! Per target: the pipelines of the highest priority that have work; among these, the one with the lowest pass
//! (stride scheduling: a run moves its pipeline's pass on by its jobs divided by the weight). The cost is a look at
//! each pipeline of the target for each run.

use std::time::Instant;

use super::held::{HeldId, State};
use super::ready::Unit;
use super::{Effect, PipelineId, Pool, TargetId};
use crate::limits::TIMEOUT_MAX;
use crate::value::Time;

/// The pass of one job of a pipeline of weight 1.
const STRIDE: u64 = 1 << 20;

impl Pool {
    /// Starts all that may start.
    pub(super) fn start_runs(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.stop.is_some() && cfg!(not(bug_pool_starts_after_stop)) {
            return;
        }
        for target in 0..self.targets.len() {
            self.start_runs_at(target, now, effects);
        }
    }

    fn start_runs_at(&mut self, target: usize, now: Instant, effects: &mut Vec<Effect>) {
        self.targets[target].wake_at = None;
        while let Some(pipeline) = self.choose(target) {
            match self.targets[target].may_start_at(now) {
                Some(at) if at <= now => self.start_run(target, pipeline, now, effects),
                later => {
                    self.targets[target].wake_at = later;
                    return;
                }
            }
        }
    }

    /// Whose turn it is.
    fn choose(&self, target: usize) -> Option<usize> {
        let target = &self.targets[target];
        let mut best: Option<(u8, u64, usize)> = None;
        for at in target.pipelines.iter().copied() {
            let pipeline = &self.pipelines[at];
            let priority = pipeline.settings.priority;
            if best.is_some_and(|(found, ..)| found > priority) {
                break;
            }
            if pipeline.has_work() {
                // Who had no work saves nothing up.
                let pass = pipeline.pass.max(target.passes.get(&priority).copied().unwrap_or(0));
                best = best.filter(|(_, other, _)| *other <= pass).or(Some((priority, pass, at)));
            }
        }
        best.map(|(_, _, at)| at)
    }

    /// Starts a run of this pipeline; or none, where its next jobs cannot start after all.
    fn start_run(&mut self, target: usize, at: usize, now: Instant, effects: &mut Vec<Effect>) {
        let (unit, group) = self.pipelines[at].ready.pop().expect("it has work");
        let jobs_max = if group.is_some() { self.run_jobs_max(target) } else { 1 };
        let mut first = None;
        let mut rest = Vec::new();
        let mut next = Some(unit);
        while let Some(unit) = next.take() {
            match self.claim(at, unit, group, now) {
                Some(job) if first.is_none() => first = Some(job),
                Some(job) => rest.push(job),
                None => {}
            }
            let jobs = rest.len() + usize::from(first.is_some());
            if let Some(group) = group.filter(|_| jobs < jobs_max) {
                next = self.pipelines[at].ready.pop_same(group);
            }
        }
        if let Some(group) = group {
            self.pipelines[at].ready.close(group, now);
        }
        if let Some(first) = first {
            self.begin(target, at, first, rest, now, effects);
        }
    }

    fn run_jobs_max(&self, target: usize) -> usize {
        self.targets[target].settings.run_jobs_max
    }

    /// The job of a unit, if it may start now. It leaves its queue.
    fn claim(&mut self, at: usize, unit: Unit, group: Option<u64>, now: Instant) -> Option<HeldId> {
        let held = &self.held;
        let pipeline = &mut self.pipelines[at];
        match unit {
            Unit::Job(id) => {
                if let Some(key) = held.at(id).key.filter(|key| pipeline.keys.holds(*key)) {
                    // Its key was throttled in the meantime.
                    let next = pipeline.keys.push(key, id, now);
                    self.heed(at, key, next, now);
                    return None;
                }
                self.unless_expired(id, now)
            }
            Unit::Key(key) => {
                let fits = |id| group.is_none() || held.at(id).group == group;
                let popped = pipeline.keys.pop(key, now, fits);
                let job = popped.and_then(|id| self.unless_expired(id, now));
                let keys = &mut self.pipelines[at].keys;
                if job.is_some() {
                    keys.start(key, now);
                }
                let next = keys.look(key, now);
                self.heed(at, key, next, now);
                job
            }
        }
    }

    /// The job; or none, where somebody else may have it by now.
    fn unless_expired(&mut self, id: HeldId, now: Instant) -> Option<HeldId> {
        if self.held.at(id).is_expired(now) && cfg!(not(bug_pool_expired_starts)) {
            self.forget_lost(id);
            return None;
        }
        Some(id)
    }

    fn begin(
        &mut self,
        target: usize,
        at: usize,
        first: HeldId,
        rest: Vec<HeldId>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let jobs = 1 + rest.len();
        let mut messages = Vec::with_capacity(jobs);
        let mut timeout = TIMEOUT_MAX;
        let Time(usual) = self.pipelines[at].settings.timeout;
        for id in std::iter::once(first).chain(rest.iter().copied()) {
            let held = self.held.at_mut(id);
            held.state = State::Running;
            let own = held.message.extras.as_ref().and_then(|extras| extras.timeout);
            timeout = timeout.min(own.unwrap_or(usual));
            messages.push(held.message.clone());
        }
        let is_trying = self.targets[target].start(now);
        let pipeline = &mut self.pipelines[at];
        pipeline.waiting -= jobs;
        pipeline.running += jobs;
        pipeline.runs += 1;
        let passes = &mut self.targets[target].passes;
        let pass = passes.entry(pipeline.settings.priority).or_default();
        *pass = pipeline.pass.max(*pass);
        let stride = STRIDE * jobs as u64 / u64::from(pipeline.settings.weight);
        pipeline.pass = pass.saturating_add(stride);
        let deadline = now + timeout;
        let run = self.runs.start(at, first, rest, deadline, is_trying);
        effects.push(Effect::Start {
            run,
            pipeline: PipelineId(at as u16),
            target: TargetId(target as u16),
            jobs: messages,
            deadline,
        });
    }
}
