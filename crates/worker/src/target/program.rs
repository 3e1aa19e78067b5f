//! Programs: what they are started with, what their ends mean, and the lines that long-lived ones speak.
//!
//! With `mode = "once"` each job is a process of its own: its body is on stdin, its facts are in `MILLRACE_JOB_…`.
//!
//! | End | Outcome |
//! | --- | --- |
//! | exit 0 | done |
//! | exit 75 (`EX_TEMPFAIL`) | retry |
//! | a status of `reject_exits` (65, `EX_DATAERR`) | reject |
//! | another status, a signal, too much output, no end in time | retry |
//!
//! With `mode = "lines"` processes stay: see [`lines`].

pub mod lines;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::job::Message;
use crate::limits::WHY_BYTES_MAX;
use crate::outcome::Outcome;
use crate::value::{Secret, Time};

/// Most processes of one target.
pub const PROCESSES_MAX: usize = 1000;
/// Largest text of one variable: Linux takes 128 KiB.
const VARIABLE_BYTES_MAX: usize = 100 << 10;
/// `EX_TEMPFAIL` of sysexits.h.
const TEMPFAIL: i32 = 75;

/// `[target.NAME] kind = "program"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// `once`: a process for each job. `lines`: processes that stay and speak JSON lines.
    #[serde(default)]
    pub mode: Mode,
    /// Processes at a time. 1 to 1000.
    #[serde(default = "processes")]
    pub processes: usize,
    /// `lines`: jobs that one process has at a time. 1 to 1000.
    #[serde(default = "one")]
    pub in_flight: usize,
    /// Where it runs; none: where the worker runs.
    pub directory: Option<PathBuf>,
    /// Variables of the worker that it sees. All others are hidden from it.
    #[serde(default = "environment")]
    pub environment: Vec<String>,
    /// Variables that are set for it. Values are secrets: `file:PATH` and `env:NAME` work.
    #[serde(default)]
    pub set: BTreeMap<String, Secret>,
    /// For one job. 100 ms to 24 h.
    #[serde(default = "a_minute")]
    pub timeout: Time,
    /// Between SIGTERM and SIGKILL. At most 10 min.
    #[serde(default = "five_seconds")]
    pub stop_grace: Time,
    /// `once`: all that it may print. `lines`: its longest line. More: it is killed. 1 KiB to 64 MiB.
    #[serde(default = "output_bytes")]
    pub output_bytes_max: usize,
    /// `once`: exit statuses that no other attempt can help.
    #[serde(default = "reject_exits")]
    pub reject_exits: Vec<i32>,
    /// Bytes of address space of each process (RLIMIT_AS).
    pub memory_bytes_max: Option<u64>,
    /// Seconds of CPU of each process (RLIMIT_CPU).
    pub cpu_seconds_max: Option<u64>,
    /// Open files of each process (RLIMIT_NOFILE).
    pub files_max: Option<u64>,
    /// Processes of the user that the worker runs as (RLIMIT_NPROC). Does not bind root.
    pub user_processes_max: Option<u64>,
}

/// How jobs are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Once,
    Lines,
}

fn processes() -> usize {
    8
}

fn one() -> usize {
    1
}

fn environment() -> Vec<String> {
    ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"].map(String::from).to_vec()
}

fn a_minute() -> Time {
    Time(Duration::from_secs(60))
}

fn five_seconds() -> Time {
    Time(Duration::from_secs(5))
}

fn output_bytes() -> usize {
    1 << 20
}

fn reject_exits() -> Vec<i32> {
    vec![65]
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !name.starts_with("MILLRACE_JOB_")
}

impl Settings {
    /// What is wrong, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.command.first().is_none_or(String::is_empty) {
            problems.push("command is empty: it must be a program and its arguments".into());
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            problems.push("command holds a zero byte".into());
        }
        if !(1..=PROCESSES_MAX).contains(&self.processes) {
            problems.push(format!("processes must be from 1 to {PROCESSES_MAX}"));
        }
        if !(1..=1000).contains(&self.in_flight) {
            problems.push("in_flight must be from 1 to 1000".into());
        }
        if self.mode == Mode::Once && self.in_flight != 1 {
            problems.push("in_flight is for mode = \"lines\"".into());
        }
        let names = self.set.keys().chain(&self.environment).filter(|name| !is_variable(name));
        problems.extend(names.map(|name| format!("`{name}` cannot be set for a program")));
        let day = Duration::from_secs(86_400);
        if !(Duration::from_millis(100)..=day).contains(&self.timeout.0) {
            problems.push("timeout must be from 100ms to 24h".into());
        }
        if self.stop_grace.0 > Duration::from_secs(600) {
            problems.push("stop_grace must be at most 10m".into());
        }
        if !(1 << 10..=64 << 20).contains(&self.output_bytes_max) {
            problems.push("output_bytes_max must be from 1024 to 67108864".into());
        }
        if self.reject_exits.iter().any(|exit| !(1..=255).contains(exit)) {
            problems.push("reject_exits must be from 1 to 255".into());
        }
        problems
    }

    /// The limits, as arguments of `prlimit`.
    pub fn limits(&self) -> Vec<String> {
        let limits = [
            ("as", self.memory_bytes_max),
            ("cpu", self.cpu_seconds_max),
            ("nofile", self.files_max),
            ("nproc", self.user_processes_max),
        ];
        let set = limits.into_iter().filter_map(|(name, most)| Some((name, most?)));
        set.map(|(name, most)| format!("--{name}={most}:{most}")).collect()
    }
}

/// What a process for one job finds in its environment. `left`: its time.
///
/// # Errors
/// In words: the job's facts cannot be in an environment.
pub fn variables(job: &Message, left: Duration) -> Result<Vec<(&'static str, String)>, String> {
    let headers: BTreeMap<&str, &str> =
        job.headers.iter().map(|header| (header.name.as_str(), header.value.as_str())).collect();
    let headers = serde_json::to_string(&headers).map_err(|error| error.to_string())?;
    let variables = vec![
        ("MILLRACE_JOB_ID", job.id.clone()),
        ("MILLRACE_JOB_TYPE", job.kind.clone()),
        ("MILLRACE_JOB_ATTEMPT", job.attempt.to_string()),
        ("MILLRACE_JOB_CONTENT_TYPE", job.content_type.clone().unwrap_or_default()),
        ("MILLRACE_JOB_HEADERS", headers),
        ("MILLRACE_JOB_TIMEOUT_MS", left.as_millis().to_string()),
    ];
    for (name, value) in &variables {
        if value.contains('\0') {
            return Err(format!("{name} holds a zero byte, which no program can be given"));
        }
        if value.len() > VARIABLE_BYTES_MAX {
            return Err(format!("{name} has {} bytes: at most {VARIABLE_BYTES_MAX}", value.len()));
        }
    }
    Ok(variables)
}

/// How a process came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
    /// It printed more than it may.
    Flood,
    /// Its time was over.
    Late,
}

/// What the end of a job's process means. `said`: the end of what it printed on stderr.
pub fn judge(settings: &Settings, end: &End, said: &[u8]) -> Outcome {
    let text = last_words(said);
    let why = |what: String| if text.is_empty() { what } else { format!("{what}: {text}") };
    match end {
        End::Exit(0) => Outcome::done(),
        End::Exit(TEMPFAIL) => Outcome::retry(why("exit 75 (try again)".into())),
        End::Exit(status) if settings.reject_exits.contains(status) => {
            Outcome::reject(why(format!("exit {status}")))
        }
        End::Exit(status) => Outcome::retry(why(format!("exit {status}"))),
        End::Signal(signal) => Outcome::retry(why(format!("ended by signal {signal}"))),
        End::Flood => Outcome::retry(why(format!(
            "killed: it printed more than {} bytes",
            settings.output_bytes_max
        ))),
        End::Late => Outcome::retry(why("killed: it did not end in time".into())),
    }
}

/// The end of what a program said, on one line.
pub fn last_words(said: &[u8]) -> String {
    let most = WHY_BYTES_MAX / 2;
    let tail = &said[said.len().saturating_sub(most)..];
    let text = String::from_utf8_lossy(tail);
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests;
