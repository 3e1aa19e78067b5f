//! What the configuration file says of pipelines and of the limits of targets.

use std::time::Duration;

use serde::Deserialize;

use crate::limits::{
    ATTEMPTS_MAX, BUFFER_BYTES, BUFFER_MAX, DELAY_MAX, PIPELINES_MAX, RUN_JOBS_MAX,
};
use crate::limits::{RATE_MAX, RATE_MIN, TIMEOUT_MAX};
use crate::value::Time;

/// Everything that a pool is set up with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub pipelines: Vec<PipelineSettings>,
    pub targets: Vec<TargetSettings>,
    /// Bytes of job bodies that the process may hold; 0: [`BUFFER_BYTES`].
    pub buffer_bytes: usize,
}

/// What must not overtake what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Any job may overtake any other.
    #[default]
    None,
    /// Jobs of one key start one after the other, in the order in which this process took them. A job that is to be
    /// tried again, or is throttled, waits at the head of its key *in this process*, and the jobs behind it wait too.
    /// Other keys go on, for as long as the buffer has jobs of them: what waits behind a key counts in `buffer`. The
    /// order ends where the process cannot keep it: a wait longer than 15 minutes
    /// (the job goes back to its source and the next one starts), a lost connection or lease, and several processes
    /// that take from the same queue.
    Key,
}

/// `[[pipeline]]`: one queue of one source, and the target that executes its jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineSettings {
    /// Its name in logs and metrics. Not empty.
    pub name: String,
    /// The source's name, `[source.NAME]`. The pool does not read it.
    pub source: String,
    /// The target's name, `[target.NAME]`.
    pub target: String,
    /// Pipelines of a higher priority start first, always: lower ones get what is left. 0 to 255, default 0.
    pub priority: u8,
    /// The share among pipelines of the same target and priority, counted in jobs. 1 to 1000, default 1.
    pub weight: u32,
    /// Runs at once. 1 to 65535, default 100.
    pub concurrency: usize,
    /// Jobs in hand: waiting, running, or not yet settled. The source gets room for no more. At least 1,
    /// at most 65535; default four times the concurrency, at least 16.
    pub buffer: Option<usize>,
    /// `none` (default) or `key`: see [`Order`].
    pub order: Order,
    /// Jobs of one key at once; 0 (default): no limit. With `order = "key"` it is 1.
    pub key_concurrency: usize,
    /// Jobs of one key that start per second; none (default): no limit. 0.001 to 1000000.
    pub key_rate: Option<f64>,
    /// Jobs of one key that may start at once after a pause; default `key_rate` / 20, at least 2. 1 to 1000000.
    pub key_burst: Option<u32>,
    /// Longest time of one attempt, where the job does not say. 1ms to 12h, default 30s.
    pub timeout: Time,
    /// Attempts before a job is dead, where the job does not say. 1 to 1000, default 10.
    pub attempts_max: u32,
    /// The longest wait before the second attempt. It doubles with each attempt, and the real wait is anywhere
    /// between nothing and it (full jitter). 1ms to 7d, default 1s.
    pub backoff: Time,
    /// The doubling ends here. 1ms to 7d, default 10m.
    pub backoff_max: Time,
}

impl Default for PipelineSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            source: String::new(),
            target: String::new(),
            priority: 0,
            weight: 1,
            concurrency: 100,
            buffer: None,
            order: Order::None,
            key_concurrency: 0,
            key_rate: None,
            key_burst: None,
            timeout: Time(Duration::from_secs(30)),
            attempts_max: 10,
            backoff: Time(Duration::from_secs(1)),
            backoff_max: Time(Duration::from_secs(600)),
        }
    }
}

impl PipelineSettings {
    /// A pipeline with the defaults.
    pub fn new(name: impl Into<String>, target: impl Into<String>) -> Self {
        Self { name: name.into(), target: target.into(), ..Self::default() }
    }

    /// Jobs in hand, as set or by default.
    pub fn buffer_jobs(&self) -> usize {
        self.buffer.unwrap_or_else(|| self.concurrency.saturating_mul(4).max(16)).min(BUFFER_MAX)
    }

    /// What is wrong with it, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut found = Problems::of(format!("pipeline {:?}", self.name));
        found.unless(!self.name.is_empty(), "name is empty");
        found.unless(!self.target.is_empty(), "target is not set");
        found.within("weight", u64::from(self.weight), 1..=1000);
        found.within("concurrency", self.concurrency as u64, 1..=BUFFER_MAX as u64);
        found.within("buffer", self.buffer_jobs() as u64, 1..=BUFFER_MAX as u64);
        found.within("buffer", self.buffer.unwrap_or(1) as u64, 1..=BUFFER_MAX as u64);
        found.within("key_concurrency", self.key_concurrency as u64, 0..=BUFFER_MAX as u64);
        found.rate("key_rate", self.key_rate);
        found.within("key_burst", u64::from(self.key_burst.unwrap_or(1)), 1..=1_000_000);
        found.unless(
            self.key_burst.is_none() || self.key_rate.is_some(),
            "key_burst needs key_rate",
        );
        found.unless(
            self.order == Order::None || self.key_concurrency <= 1,
            "key_concurrency is 1 with order = \"key\": leave it out",
        );
        found.time("timeout", self.timeout, TIMEOUT_MAX);
        found.within("attempts_max", u64::from(self.attempts_max), 1..=u64::from(ATTEMPTS_MAX));
        found.time("backoff", self.backoff, DELAY_MAX);
        found.time("backoff_max", self.backoff_max, DELAY_MAX);
        found.unless(self.backoff <= self.backoff_max, "backoff is longer than backoff_max");
        found.list
    }
}

/// `[target.NAME.limits]`: how much a target takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSettings {
    /// Its name in logs and metrics: the table's.
    #[serde(skip)]
    pub name: String,
    /// Runs at once, of all its pipelines. 1 to 65535, default 256.
    pub concurrency: usize,
    /// Runs (requests) that start per second, whatever number of jobs each has; none (default): no limit.
    /// 0.001 to 1000000.
    pub rate: Option<f64>,
    /// Runs that may start at once after a pause; default `rate` / 20, at least 2. 1 to 1000000. Less than 2, or less
    /// than 20 ms of the rate, cannot reach the rate: timers are not that exact.
    pub burst: Option<u32>,
    /// Jobs of one run, where the target takes several; its own limit holds too. 1 to 1000, default 1000.
    pub run_jobs_max: usize,
    /// How long a run that is not full waits for more jobs. 0s to 60s, default 0s.
    pub linger: Time,
    /// When to leave it alone.
    pub breaker: BreakerSettings,
}

impl Default for TargetSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            concurrency: 256,
            rate: None,
            burst: None,
            run_jobs_max: RUN_JOBS_MAX,
            linger: Time(Duration::ZERO),
            breaker: BreakerSettings::default(),
        }
    }
}

/// `breaker`: after so many failed runs in a row nothing is started for a while, then one run tries.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSettings {
    /// Failed runs in a row that open it; 0: never. 0 to 1000000, default 20.
    pub failures: u32,
    /// How long it stays open. 1ms to 12h, default 30s.
    pub open_for: Time,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: 20, open_for: Time(Duration::from_secs(30)) }
    }
}

impl TargetSettings {
    /// A target with the defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// What is wrong with it, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut found = Problems::of(format!("target {:?}", self.name));
        found.unless(!self.name.is_empty(), "name is empty");
        found.within("concurrency", self.concurrency as u64, 1..=BUFFER_MAX as u64);
        found.rate("rate", self.rate);
        found.within("burst", u64::from(self.burst.unwrap_or(1)), 1..=1_000_000);
        found.unless(self.burst.is_none() || self.rate.is_some(), "burst needs rate");
        found.within("run_jobs_max", self.run_jobs_max as u64, 1..=RUN_JOBS_MAX as u64);
        found.unless(self.linger.0 <= Duration::from_secs(60), "linger is longer than 60s");
        found.within("breaker.failures", u64::from(self.breaker.failures), 0..=1_000_000);
        found.time("breaker.open_for", self.breaker.open_for, TIMEOUT_MAX);
        found.list
    }
}

impl Settings {
    /// What is wrong with all of it, a sentence each. [`Pool::new`](super::Pool::new) wants none.
    pub fn problems(&self) -> Vec<String> {
        let mut list: Vec<String> =
            self.targets.iter().flat_map(TargetSettings::problems).collect();
        list.extend(self.pipelines.iter().flat_map(PipelineSettings::problems));
        let count = self.pipelines.len().max(self.targets.len());
        if count > PIPELINES_MAX {
            list.push(format!("{count} pipelines or targets: one process takes {PIPELINES_MAX}"));
        }
        for pipeline in self.pipelines.iter().filter(|one| !one.target.is_empty()) {
            if self.target(&pipeline.target).is_none() {
                let PipelineSettings { name, target, .. } = pipeline;
                list.push(format!("pipeline {name:?}: there is no target {target:?}"));
            }
        }
        let names: Vec<&str> = self.pipelines.iter().map(|one| one.name.as_str()).collect();
        list.extend(twice(&names).map(|name| format!("two pipelines have the name {name:?}")));
        let names: Vec<&str> = self.targets.iter().map(|one| one.name.as_str()).collect();
        list.extend(twice(&names).map(|name| format!("two targets have the name {name:?}")));
        list
    }

    /// The place of a target in the list.
    pub fn target(&self, name: &str) -> Option<usize> {
        self.targets.iter().position(|target| target.name == name)
    }

    /// Bytes of job bodies that may be held.
    pub(super) fn bytes_max(&self) -> usize {
        if self.buffer_bytes == 0 { BUFFER_BYTES } else { self.buffer_bytes }
    }
}

/// Names that an earlier one of the list has as well.
fn twice<'a>(names: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    names.iter().enumerate().filter(|(at, name)| names[..*at].contains(name)).map(|(_, name)| *name)
}

/// Collects sentences about one thing.
struct Problems {
    what: String,
    list: Vec<String>,
}

impl Problems {
    fn of(what: String) -> Self {
        Self { what, list: Vec::new() }
    }

    fn unless(&mut self, is_right: bool, problem: &str) {
        if !is_right {
            self.list.push(format!("{}: {problem}", self.what));
        }
    }

    fn within(&mut self, field: &str, value: u64, allowed: std::ops::RangeInclusive<u64>) {
        let (least, most) = (allowed.start(), allowed.end());
        let problem = format!("{field} is {value}, and may be {least} to {most}");
        self.unless(allowed.contains(&value), &problem);
    }

    fn rate(&mut self, field: &str, value: Option<f64>) {
        let value = value.unwrap_or(1.0);
        let problem = format!("{field} is {value}, and may be {RATE_MIN} to {RATE_MAX}");
        self.unless((RATE_MIN..=RATE_MAX).contains(&value), &problem);
    }

    fn time(&mut self, field: &str, value: Time, most: Duration) {
        let problem = format!("{field} is {:?}, and may be 1ms to {most:?}", value.0);
        self.unless(value.0 >= Duration::from_millis(1) && value.0 <= most, &problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            pipelines: vec![PipelineSettings::new("mail", "web")],
            targets: vec![TargetSettings::new("web")],
            buffer_bytes: 0,
        }
    }

    #[test]
    fn defaults_have_no_problem() {
        assert_eq!(settings().problems(), Vec::<String>::new());
    }

    #[test]
    fn every_value_out_of_its_bounds_is_told_with_its_place() {
        let text = "name = 'mail'\ntarget = 'web'\nconcurrency = 0\nkey_rate = -1.0\nweight = 0\ntimeout = '0s'\n\
                    order = 'key'\nkey_concurrency = 4\nbackoff = '2h'\nbackoff_max = '1s'\nattempts_max = 0\nbuffer = 70000";
        let problems = toml::from_str::<PipelineSettings>(text).unwrap().problems();
        for field in
            ["concurrency", "key_rate", "weight", "timeout", "backoff", "attempts_max", "buffer"]
        {
            let told = problems
                .iter()
                .any(|one| one.starts_with("pipeline \"mail\": ") && one.contains(field));
            assert!(told, "{field} is not told: {problems:?}");
        }
    }

    #[test]
    fn rates_that_are_no_number_are_a_problem() {
        for rate in [f64::NAN, f64::INFINITY, 0.0, -0.0, 1e9] {
            let target = TargetSettings { rate: Some(rate), ..TargetSettings::new("web") };
            assert_eq!(target.problems().len(), 1, "{rate}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused() {
        assert!(toml::from_str::<PipelineSettings>("nmae = 'mail'").is_err());
        assert!(toml::from_str::<TargetSettings>("breaker = { failure = 3 }").is_err());
    }

    #[test]
    fn a_target_that_is_not_there_and_a_name_given_twice_are_told() {
        let mut twice = settings();
        twice.pipelines.push(PipelineSettings::new("mail", "wbe"));
        assert_eq!(
            twice.problems(),
            [
                "pipeline \"mail\": there is no target \"wbe\"",
                "two pipelines have the name \"mail\""
            ]
        );
    }
}
