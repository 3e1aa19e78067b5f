//! Flower, Celery's web monitor, beside real workers: started, asked and stopped by `conformance/flower/run.py`.
//!
//! What it shows comes from the broker by three ways: events of workers, answers to what it asks them, and the
//! queues of the HTTP API.

use std::process::Stdio;

use super::celery::cases;
use super::python::{has_module, install_packages, python};
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, whole};
use crate::brokers::HTTP_ABOVE;
use crate::process::{root, run_logged};

pub(super) const FLOWER: Suite = Suite {
    name: "flower",
    version: "2.2.0",
    is_installed: || has_module("flower"),
    // Beside the Celery of its own suite.
    install: |log| {
        install_packages(&["flower==2.2.0", "celery==5.7.0", "kombu==5.7.0", "amqp==5.4.2"], log)
    },
    installer: Installer::Pip,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(25),
    wants_port_5672: false,
};

/// Longest run of all cases.
const RUN_MAX_SECONDS: u32 = 600;

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let http = u32::from(target.port) + u32::from(HTTP_ABOVE);
    let mut run = target.command(RUN_MAX_SECONDS, python());
    run.arg(root().join("conformance/flower/run.py")).arg(&target.host);
    run.args([target.port.to_string(), http.to_string()]).arg(&target.folder);
    run.args(&target.skips).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    let outcome = run_logged(&mut run, &target.log());
    let text = std::fs::read(target.log()).map_err(|error| error.to_string())?;
    let cases = cases(&String::from_utf8_lossy(&text));
    if cases.is_empty() { outcome.map(|()| cases) } else { Ok(cases) }
}
