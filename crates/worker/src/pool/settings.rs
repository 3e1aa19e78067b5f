//! What the configuration file says of pipelines and of the limits of targets.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use service::settings::Kind::{Any, Choice, Count, Rate, Time as Length};
use service::settings::{Setting, Values, setting};
use service::{duration_words, settings};

use crate::limits::{
    ATTEMPTS_MAX, BUFFER_BYTES, BUFFER_MAX, DELAY_MAX, PIPELINES_MAX, RUN_JOBS_MAX,
};
use crate::limits::{RATE_MAX, RATE_MIN, TIMEOUT_MAX};
use crate::value::Time;

const MS: Duration = Duration::from_millis(1);

settings! {
    /// `[[pipeline]]`: one queue of one source, and the target that executes its jobs.
    pub const PIPELINE in None;

    /// Its name in logs and metrics
    name: Any("NAME"), otherwise("required");
    /// The source's name: `[source.NAME]`
    source: Any("NAME"), otherwise("required");
    /// The target's name: `[target.NAME]`
    target: Any("NAME"), otherwise("required");
    /// Pipelines of a higher priority start first, always: lower ones get what is left
    priority: Count(0..=255, ""), default("0"), reload;
    /// The share among pipelines of the same target and priority, counted in jobs
    weight: Count(1..=1000, ""), default("1"), reload;
    /// Runs at once
    concurrency: Count(1..=BUFFER_MAX as u64, "runs"), default("100"), reload;
    /// Jobs in hand: waiting, running, or not yet settled; the source gets room for no more
    buffer: Count(1..=BUFFER_MAX as u64, "jobs"), otherwise("four times the concurrency, at least 16"), reload;
    /// What must not overtake what; key: jobs of one key start one after the other
    order: Choice(&["none", "key"]), default("none");
    /// Jobs of one key at once; 0: no limit. With `order = "key"` it is 1. The first limit on keys and the
    /// end of the last one wait for a restart
    key_concurrency: Count(0..=BUFFER_MAX as u64, "jobs"), default("0"), reload;
    /// Jobs of one key that start
    key_rate: Rate(RATE_MIN..=RATE_MAX, "per second"), otherwise("no limit"), reload;
    /// Jobs of one key that may start at once after a pause
    key_burst: Count(1..=1_000_000, "jobs"), otherwise("key_rate / 20, at least 2"), reload;
    /// Longest time of one attempt, where the job does not say
    timeout: Length(MS..=TIMEOUT_MAX), default("30s"), reload;
    /// Attempts before a job is dead, where the job does not say
    attempts_max: Count(1..=ATTEMPTS_MAX as u64, "attempts"), default("10"), reload;
    /// The longest wait before the second attempt; it doubles, and the real wait is anywhere between
    /// nothing and it (full jitter)
    backoff: Length(MS..=DELAY_MAX), default("1s"), reload;
    /// The doubling ends here
    backoff_max: Length(MS..=DELAY_MAX), default("10m"), reload;
}

settings! {
    /// `[target.NAME.limits]`: how much a target takes.
    pub const LIMITS in None;

    /// Runs at once, of all its pipelines
    concurrency: Count(1..=BUFFER_MAX as u64, "runs"), default("256"), reload;
    /// Runs (requests) that start, whatever number of jobs each has
    rate: Rate(RATE_MIN..=RATE_MAX, "per second"), otherwise("no limit"), reload;
    /// Runs that may start at once after a pause; less than 2, or less than 20 ms of the rate, cannot reach
    /// the rate: timers are not that exact
    burst: Count(1..=1_000_000, "runs"), otherwise("rate / 20, at least 2"), reload;
    /// Jobs of one run, where the target takes several; its own limit holds, too
    run_jobs_max: Count(1..=RUN_JOBS_MAX as u64, "jobs"), default("1000"), reload;
    /// How long a run that is not full waits for more jobs
    linger: Length(Duration::ZERO..=Duration::from_secs(60)), default("0s"), reload;
}

settings! {
    /// `breaker`: after so many failed runs in a row nothing is started for a while, then one run tries.
    pub const BREAKER in None;

    /// Failed runs in a row that open it; 0: never
    failures: Count(0..=1_000_000, "runs"), default("20"), reload;
    /// How long it stays open
    open_for: Length(MS..=TIMEOUT_MAX), default("30s"), reload;
}

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

/// One `[[pipeline]]`: [`PIPELINE`] has the meaning of each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineSettings {
    pub name: String,
    /// The pool does not read it.
    pub source: String,
    pub target: String,
    pub priority: u8,
    pub weight: u32,
    pub concurrency: usize,
    pub buffer: Option<usize>,
    pub order: Order,
    pub key_concurrency: usize,
    pub key_rate: Option<f64>,
    pub key_burst: Option<u32>,
    pub timeout: Time,
    pub attempts_max: u32,
    pub backoff: Time,
    pub backoff_max: Time,
}

impl Default for PipelineSettings {
    fn default() -> Self {
        let values = Values::defaults(&[PIPELINE]);
        Self {
            name: String::new(),
            source: String::new(),
            target: String::new(),
            priority: values.number("priority"),
            weight: values.number("weight"),
            concurrency: values.number("concurrency"),
            buffer: None,
            order: Order::None,
            key_concurrency: values.number("key_concurrency"),
            key_rate: None,
            key_burst: None,
            timeout: Time(values.time("timeout")),
            attempts_max: values.number("attempts_max"),
            backoff: Time(values.time("backoff")),
            backoff_max: Time(values.time("backoff_max")),
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
        found.within(PIPELINE, "weight", self.weight);
        found.within(PIPELINE, "concurrency", self.concurrency);
        found.within_if(PIPELINE, "buffer", self.buffer);
        found.within(PIPELINE, "key_concurrency", self.key_concurrency);
        found.within_if(PIPELINE, "key_rate", self.key_rate);
        found.within_if(PIPELINE, "key_burst", self.key_burst);
        found.unless(
            self.key_burst.is_none() || self.key_rate.is_some(),
            "key_burst needs key_rate",
        );
        found.unless(
            self.order == Order::None || self.key_concurrency <= 1,
            "key_concurrency is 1 with order = \"key\": leave it out",
        );
        found.time(PIPELINE, "timeout", self.timeout);
        found.within(PIPELINE, "attempts_max", self.attempts_max);
        found.time(PIPELINE, "backoff", self.backoff);
        found.time(PIPELINE, "backoff_max", self.backoff_max);
        found.unless(self.backoff <= self.backoff_max, "backoff is longer than backoff_max");
        found.list
    }
}

/// `[target.NAME.limits]`: [`LIMITS`] has the meaning of each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSettings {
    /// Its name in logs and metrics: the table's.
    #[serde(skip)]
    pub name: String,
    pub concurrency: usize,
    pub rate: Option<f64>,
    pub burst: Option<u32>,
    pub run_jobs_max: usize,
    pub linger: Time,
    /// When to leave it alone.
    pub breaker: BreakerSettings,
}

impl Default for TargetSettings {
    fn default() -> Self {
        let values = Values::defaults(&[LIMITS]);
        Self {
            name: String::new(),
            concurrency: values.number("concurrency"),
            rate: None,
            burst: None,
            run_jobs_max: values.number("run_jobs_max"),
            linger: Time(values.time("linger")),
            breaker: BreakerSettings::default(),
        }
    }
}

/// `breaker`: [`BREAKER`] has the meaning of each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSettings {
    pub failures: u32,
    pub open_for: Time,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        let values = Values::defaults(&[BREAKER]);
        Self { failures: values.number("failures"), open_for: Time(values.time("open_for")) }
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
        found.within(LIMITS, "concurrency", self.concurrency);
        found.within_if(LIMITS, "rate", self.rate);
        found.within_if(LIMITS, "burst", self.burst);
        found.unless(self.burst.is_none() || self.rate.is_some(), "burst needs rate");
        found.within(LIMITS, "run_jobs_max", self.run_jobs_max);
        found.time(LIMITS, "linger", self.linger);
        found.within(BREAKER, "breaker.failures", self.breaker.failures);
        found.time(BREAKER, "breaker.open_for", self.breaker.open_for);
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

    /// The value of a setting, whose key is the last part of `name`.
    fn within(&mut self, table: &'static [Setting], name: &str, value: impl fmt::Display) {
        let setting = setting(table, name.rsplit('.').next().unwrap_or(name));
        let problem = format!("{name} is {value}, and may be {}", setting.bounds());
        self.unless(setting.check(&value.to_string()).is_ok(), &problem);
    }

    fn within_if(
        &mut self,
        table: &'static [Setting],
        name: &str,
        value: Option<impl fmt::Display>,
    ) {
        if let Some(value) = value {
            self.within(table, name, value);
        }
    }

    fn time(&mut self, table: &'static [Setting], name: &str, value: Time) {
        self.within(table, name, duration_words(value.0));
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
