//! What a suite is, what it is given, and what it tells.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::process::command;

/// One client with its own tests.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) is_installed: fn() -> bool,
    /// Gets the client and builds its tests; the path is of the log.
    pub(crate) install: fn(&Path) -> Outcome,
    /// What it is installed with: those with the same take turns.
    pub(crate) installer: Installer,
    /// Runs all cases of a part but those in `Target::skips`.
    pub(super) run: fn(&Target) -> Result<Vec<Case>, String>,
    /// Parts that need nothing of each other. What cannot be parted is one part without a name.
    pub(super) parts: fn() -> Result<Vec<String>, String>,
    /// Who says what must pass.
    pub(super) judge: Judge,
    /// Whether the rest waits meanwhile, or how long a part takes, about: the longest begin first.
    pub(super) pace: Pace,
    /// Its tests connect to port 5672 whatever they are told.
    pub(super) wants_port_5672: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Installer {
    Apt,
    Cargo,
    Go,
    Maven,
    Pip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judge {
    /// What RabbitMQ passes, by the list in `conformance/expected`.
    RabbitMq,
    /// Every case must pass: they are ours, and RabbitMQ has not all of what they use.
    Ourselves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pace {
    Seconds(u32),
    /// It takes the whole machine: others would be late beside it.
    Alone,
}

/// The one part of a suite that cannot be parted.
pub(super) fn whole() -> Result<Vec<String>, String> {
    Ok(vec![String::new()])
}

/// The broker under test, and where a suite may write.
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    /// Variables with which `rabbitmqctl` finds the broker, if it is a RabbitMQ of ours.
    pub(super) control: Vec<(String, String)>,
    /// The suite's part that is wanted.
    pub(super) part: String,
    /// Cases that are not run.
    pub(super) skips: Vec<String>,
    /// What the broker does now is what is expected from now on.
    pub(super) is_bless: bool,
    /// A fresh folder for this run.
    pub(super) folder: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Passed,
    /// By the suite itself.
    Skipped,
    Failed,
}

/// One test of a client, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// What the test said when it failed, shortened.
    pub(super) note: String,
}

impl Target {
    pub(super) fn url(&self) -> String {
        format!("amqp://guest:guest@{}:{}/%2f", self.host, self.port)
    }

    /// Where the suite's own output goes.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log.txt")
    }

    /// A command that is ended after so many seconds.
    pub(super) fn command(&self, seconds: u32, program: impl AsRef<Path>) -> Command {
        let mut timed = command("timeout", &["-k", "10", &seconds.to_string()]);
        timed.arg(program.as_ref());
        timed
    }
}

/// Adds a case, or turns its verdict to the worse of both if it is told twice.
pub(super) fn record(cases: &mut Vec<Case>, name: &str, verdict: Verdict, note: &str) {
    match cases.iter_mut().find(|case| case.name == name) {
        Some(case) if case.verdict >= verdict => {}
        Some(case) => (case.verdict, case.note) = (verdict, note.into()),
        None => cases.push(Case { name: name.into(), verdict, note: note.into() }),
    }
}
