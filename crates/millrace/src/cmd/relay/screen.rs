//! How it goes: rates, backlog, the time of each step.

use std::process::ExitCode;
use std::time::Duration;

use relay::{Step, Total};
use serde_json::json;
use service::io::screen::Shown;

use crate::cmd::terminal;

/// What happened between two samples.
struct Report {
    rate: f64,
    /// Milliseconds a batch spent in each step; none: no batch ended.
    steps: [Option<f64>; 4],
}

impl Report {
    fn between(before: &Total, after: &Total, time: Duration) -> Self {
        let mut steps = [None; 4];
        for (at, step) in steps.iter_mut().enumerate() {
            // A source that is gone takes its counts with it.
            let sum = after.steps[at].0.saturating_sub(before.steps[at].0);
            let count = after.steps[at].1.saturating_sub(before.steps[at].1);
            *step = (count > 0).then(|| sum as f64 / count as f64 / 1e6);
        }
        let confirmed = after.confirmed.saturating_sub(before.confirmed) as f64;
        Self { rate: confirmed / time.as_secs_f64().max(1e-9), steps }
    }

    fn line(&self, now: &Total) -> String {
        let steps: Vec<String> = Step::ALL
            .iter()
            .zip(&self.steps)
            .filter_map(|(step, ms)| ms.map(|ms| format!("{} {ms:.1} ms", step.name())))
            .collect();
        let mut line = format!(
            "{:.0} rows/s, {} confirmed, backlog {}, oldest {:.1} s",
            self.rate,
            now.confirmed,
            backlog(now),
            now.oldest_age
        );
        for (what, count) in [("waiting", now.parked), ("dead", now.dead)] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        if !steps.is_empty() {
            line += &format!("; a batch: {}", steps.join(", "));
        }
        if let Some(problem) = &now.problem {
            line += &format!("; {problem}");
        }
        if let Some(failure) = &now.last_failure {
            line += &format!("; last failure: {failure}");
        }
        line
    }

    fn json(&self, now: &Total) -> String {
        let steps: serde_json::Map<String, serde_json::Value> = Step::ALL
            .iter()
            .zip(&self.steps)
            .map(|(step, ms)| (format!("{}_ms", step.name()), json!(ms)))
            .collect();
        json!({
            "rows_per_s": self.rate,
            "confirmed": now.confirmed,
            "backlog": now.backlog,
            "oldest_s": now.oldest_age,
            "waiting": now.parked,
            "dead": now.dead,
            "batch": steps,
            "problem": &now.problem,
            "last_failure": &now.last_failure,
        })
        .to_string()
    }
}

fn backlog(now: &Total) -> String {
    match now.backlog {
        100_000.. => "100,000 or more".into(),
        count => count.to_string(),
    }
}

/// What is shown while a relay runs.
pub(super) struct Screen {
    total: Box<dyn Fn() -> Total + Send>,
    before: Total,
}

impl Screen {
    /// `total` says how it stands.
    pub(super) fn new(total: impl Fn() -> Total + Send + 'static) -> Self {
        Self { before: total(), total: Box::new(total) }
    }

    fn report(&mut self, since: Duration) -> (Report, Total) {
        let now = (self.total)();
        let report = Report::between(&self.before, &now, since);
        self.before = now.clone();
        (report, now)
    }
}

impl Shown for Screen {
    fn line(&mut self, since: Duration) -> String {
        let (report, now) = self.report(since);
        report.line(&now)
    }

    fn json(&mut self, since: Duration) -> String {
        let (report, now) = self.report(since);
        report.json(&now)
    }
}

/// An error, as every command says it.
pub(super) fn fail(why: &str) -> ExitCode {
    terminal::remark(&format!("millrace relay: {why}"));
    ExitCode::FAILURE
}
