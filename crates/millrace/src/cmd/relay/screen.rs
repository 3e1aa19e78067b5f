//! How it goes: rates, backlog, the time of each step.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command talks to its user, on time"
)]

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use relay::{Metrics, Step};
use serde_json::json;

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

/// Says how it goes, for ever: on a terminal in one line that changes, else in the log.
pub(super) async fn show(metrics: Metrics, every: Option<Duration>, is_json: bool) {
    let is_terminal = std::io::stderr().is_terminal() && !is_json;
    let usual = Duration::from_secs(if is_terminal || is_json { 1 } else { 10 });
    let every = every.unwrap_or(usual);
    if every.is_zero() {
        return;
    }
    let bar = is_terminal.then(|| {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {wide_msg}").expect("a style"));
        bar
    });
    let mut before = Sample::of(&metrics);
    let mut at = Instant::now();
    loop {
        tokio::time::sleep(every).await;
        let (after, now) = (Sample::of(&metrics), Instant::now());
        let report = Report::between(&before, &after, now - at);
        match &bar {
            _ if is_json => println!("{}", report.json(&metrics)),
            Some(bar) => {
                bar.set_message(report.line(&metrics));
                bar.tick();
            }
            None => tracing::info!("{}", report.line(&metrics)),
        }
        (before, at) = (after, now);
    }
}

/// An error, as every command says it.
pub(super) fn fail(why: &str) -> ExitCode {
    eprintln!("millrace relay: {why}");
    ExitCode::FAILURE
}
