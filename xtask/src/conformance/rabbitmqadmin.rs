//! rabbitmqadmin: RabbitMQ's own tool for its HTTP API, unchanged, by `conformance/rabbitmqadmin/run.py`.

use std::path::PathBuf;
use std::process::Stdio;

use super::celery::cases;
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, whole};
use crate::brokers::HTTP_ABOVE;
use crate::process::{root, run_logged};

pub(super) const RABBITMQADMIN: Suite = Suite {
    name: "rabbitmqadmin",
    version: "3.10.8",
    is_installed: || PathBuf::from(SCRIPT).exists(),
    // It comes with RabbitMQ, which is there before the suites are.
    install: |_| Err(format!("{SCRIPT} is missing: it comes with Debian's rabbitmq-server")),
    installer: Installer::Apt,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(15),
    wants_port_5672: false,
};

/// Where Debian's package of RabbitMQ puts it.
const SCRIPT: &str = "/usr/bin/rabbitmqadmin";

/// Longest run of all cases.
const RUN_MAX_SECONDS: u32 = 300;

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let http = u32::from(target.port) + u32::from(HTTP_ABOVE);
    let mut run = target.command(RUN_MAX_SECONDS, "python3");
    run.arg(root().join("conformance/rabbitmqadmin/run.py")).arg(SCRIPT);
    run.arg(&target.host).arg(http.to_string()).arg(&target.folder);
    run.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    let outcome = run_logged(&mut run, &target.log());
    let text = std::fs::read(target.log()).map_err(|error| error.to_string())?;
    let cases = cases(&String::from_utf8_lossy(&text));
    if cases.is_empty() { outcome.map(|()| cases) } else { Ok(cases) }
}
