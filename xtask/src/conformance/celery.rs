//! Celery: real workers, started, fed and killed by `conformance/celery/run.py`.
//!
//! Not Celery's own tests, which mock most brokers, but what its users do: retries, countdowns, priorities,
//! dead letters, remote control, workers that die.

use std::path::PathBuf;
use std::process::Stdio;

use super::python::{has_module, install_packages, python};
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::process::{root, run_logged};

pub(super) const CELERY: Suite = Suite {
    name: "celery",
    version: "5.7.0",
    is_installed: || has_module("celery"),
    // The suites of these two pin what they need of them.
    install: |log| install_packages(&["celery==5.7.0", "kombu==5.7.0", "amqp==5.4.2"], log),
    installer: Installer::Pip,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(75),
    wants_port_5672: false,
};

/// Longest run of all cases: most of it is workers that start.
const RUN_MAX_SECONDS: u32 = 900;

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let mut run = target.command(RUN_MAX_SECONDS, python());
    run.arg(script()).arg(format!("amqp://guest:guest@{}:{}//", target.host, target.port));
    run.arg(&target.folder).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    // Celery warns a root user on every start of a worker.
    run.env("C_FORCE_ROOT", "1");
    let outcome = run_logged(&mut run, &target.log());
    let text = std::fs::read(target.log()).map_err(|error| error.to_string())?;
    let cases = cases(&String::from_utf8_lossy(&text));
    if cases.is_empty() { outcome.map(|()| cases) } else { Ok(cases) }
}

fn script() -> PathBuf {
    root().join("conformance/celery/run.py")
}

/// Reads `PASSED name` and `FAILED name: why`.
pub(super) fn cases(log: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for line in log.lines() {
        if let Some(name) = line.strip_prefix("PASSED ") {
            record(&mut cases, name, Verdict::Passed, "");
        } else if let Some(rest) = line.strip_prefix("FAILED ") {
            let (name, note) = rest.split_once(": ").unwrap_or((rest, ""));
            record(&mut cases, name, Verdict::Failed, note);
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_told_in_one_line_and_noise_between_is_no_case() {
        let log = "PASSED a chain\nTraceback: PASSED b\nFAILED a group: ValueError: 1: 2\n";
        let read: Vec<_> = cases(log).into_iter().map(|c| (c.name, c.verdict, c.note)).collect();
        let passed = ("a chain".to_string(), Verdict::Passed, String::new());
        let failed = ("a group".to_string(), Verdict::Failed, "ValueError: 1: 2".to_string());
        assert_eq!(read, [passed, failed]);
    }
}
