//! Other settings while it runs: limits, rates, weights, times. Pipelines, targets and orders stay what they are.

use std::cmp::Reverse;
use std::time::Instant;

use client::Backoff;

use super::keys::Limits;
use super::settings::Settings;
use super::{Effect, Input, Pool};

impl Pool {
    /// Goes on with these settings; or with the old ones, and says why. What runs keeps its deadline.
    ///
    /// # Errors
    /// The settings have problems, or differ in what cannot change while it runs: the pipelines, the targets, what is
    /// ordered, and whether keys are limited at all. A sentence each.
    pub fn change(
        &mut self,
        now: Instant,
        settings: &Settings,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Vec<String>> {
        let problems = self.unchangeable(settings);
        if !problems.is_empty() {
            return Err(problems);
        }
        let now = self.begin_step(now);
        self.bytes_max = settings.bytes_max();
        for (target, new) in self.targets.iter_mut().zip(&settings.targets) {
            target.settings = new.clone();
            target.share_again(now);
        }
        for (at, new) in settings.pipelines.iter().enumerate() {
            let one = &mut self.pipelines[at];
            let target = &settings.targets[one.target];
            one.backoff = Backoff { first: new.backoff.0, longest: new.backoff_max.0 };
            one.ready.change(target.run_jobs_max, target.linger.0);
            one.settings = new.clone();
            for (key, next) in one.keys.change(Limits::of(new), now) {
                self.heed(at, key, next, now);
            }
        }
        let pipelines = &self.pipelines;
        for target in &mut self.targets {
            target.pipelines.sort_by_key(|at| Reverse(pipelines[*at].settings.priority));
        }
        self.step(now, Input::Tick, effects);
        Ok(())
    }

    /// What is wrong with these settings, or cannot change while it runs.
    fn unchangeable(&self, settings: &Settings) -> Vec<String> {
        let mut problems = settings.problems();
        let targets = self.targets.iter().map(|one| &one.settings.name);
        if !targets.eq(settings.targets.iter().map(|one| &one.name)) {
            problems.push("targets cannot come, go or change places while it runs".into());
        }
        let pipelines = self.pipelines.iter().map(|one| (&one.settings.name, &one.settings.target));
        if !pipelines.eq(settings.pipelines.iter().map(|one| (&one.name, &one.target))) {
            let problem = "pipelines cannot come, go, or change places or targets while it runs";
            problems.push(problem.into());
            return problems;
        }
        for (old, new) in self.pipelines.iter().zip(&settings.pipelines) {
            let is_limited = |one| Limits::of(one).is_every_key_limited;
            if old.settings.order != new.order || is_limited(&old.settings) != is_limited(new) {
                let name = &new.name;
                problems.push(format!(
                    "pipeline {name:?}: its order, or whether its keys are limited, cannot change while it runs"
                ));
            }
        }
        problems
    }
}
