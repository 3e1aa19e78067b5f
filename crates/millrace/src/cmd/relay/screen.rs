//! How it goes: rates, backlog, the time of each step.

use std::process::ExitCode;
use std::time::Duration;

use relay::{Metrics, Step};
use serde_json::json;
use service::io::screen::Shown;

use crate::cmd::terminal;

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
struct Sample {
    confirmed: u64,
    steps: [(u64, u64); 4],
}

impl Sample {
    fn of(metrics: &Metrics) -> Self {
        let steps = metrics.step_sums.each_ref().map(|(sum, count)| (sum.get(), count.get()));
        Self { confirmed: metrics.confirmed.get(), steps }
    }
}

/// What happened between two samples.
struct Report {
    rate: f64,
    /// Milliseconds a batch spent in each step; none: no batch ended.
    steps: [Option<f64>; 4],
}

impl Report {
    fn between(before: &Sample, after: &Sample, time: Duration) -> Self {
        let mut steps = [None; 4];
        for (at, step) in steps.iter_mut().enumerate() {
            let (sum, count) =
                (after.steps[at].0 - before.steps[at].0, after.steps[at].1 - before.steps[at].1);
            *step = (count > 0).then(|| sum as f64 / count as f64 / 1e6);
        }
        let confirmed = (after.confirmed - before.confirmed) as f64;
        Self { rate: confirmed / time.as_secs_f64().max(1e-9), steps }
    }

    fn line(&self, metrics: &Metrics) -> String {
        let steps: Vec<String> = Step::ALL
            .iter()
            .zip(&self.steps)
            .filter_map(|(step, ms)| ms.map(|ms| format!("{} {ms:.1} ms", step.name())))
            .collect();
        let mut line = format!(
            "{:.0} rows/s, {} confirmed, backlog {}, oldest {:.1} s",
            self.rate,
            metrics.confirmed.get(),
            backlog(metrics),
            metrics.oldest_age.get()
        );
        for (what, count) in [("waiting", metrics.parked.get()), ("dead", metrics.dead_now.get())] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        if !steps.is_empty() {
            line += &format!("; a batch: {}", steps.join(", "));
        }
        if let Some(problem) = metrics.problem() {
            line += &format!("; {problem}");
        }
        if let Some(failure) = metrics.last_failure() {
            line += &format!("; last failure: {failure}");
        }
        line
    }

    fn json(&self, metrics: &Metrics) -> String {
        let steps: serde_json::Map<String, serde_json::Value> = Step::ALL
            .iter()
            .zip(&self.steps)
            .map(|(step, ms)| (format!("{}_ms", step.name()), json!(ms)))
            .collect();
        json!({
            "rows_per_s": self.rate,
            "confirmed": metrics.confirmed.get(),
            "backlog": metrics.backlog.get(),
            "oldest_s": metrics.oldest_age.get(),
            "waiting": metrics.parked.get(),
            "dead": metrics.dead_now.get(),
            "batch": steps,
            "problem": metrics.problem(),
            "last_failure": metrics.last_failure(),
        })
        .to_string()
    }
}

fn backlog(metrics: &Metrics) -> String {
    match metrics.backlog.get() {
        100_000.. => "100,000 or more".into(),
        count => count.to_string(),
    }
}

/// What is shown while a relay runs.
pub(super) struct Screen {
    metrics: Metrics,
    before: Sample,
}

impl Screen {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { before: Sample::of(&metrics), metrics }
    }

    fn report(&mut self, since: Duration) -> Report {
        let now = Sample::of(&self.metrics);
        let report = Report::between(&self.before, &now, since);
        self.before = now;
        report
    }
}

impl Shown for Screen {
    fn line(&mut self, since: Duration) -> String {
        self.report(since).line(&self.metrics)
    }

    fn json(&mut self, since: Duration) -> String {
        self.report(since).json(&self.metrics)
    }
}

/// An error, as every command says it.
pub(super) fn fail(why: &str) -> ExitCode {
    terminal::remark(&format!("millrace relay: {why}"));
    ExitCode::FAILURE
}
