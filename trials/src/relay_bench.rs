//! `millrace relay` beside what it replaces: system 1's processor and, where it is installed, Debezium
//! Server. One run, one machine, both brokers one after the other.
//!
//! Everybody drains the same backlog into the same durable queue. How fast is judged from outside: by the
//! broker's count of messages and the database's count of rows, from the first message that was seen
//! to the last row that was marked; and every run must have left both complete.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a measurement has clocks, files and a terminal; everything of it is below here"
)]

mod debezium;
mod inbox;
mod mode;
mod process;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::chaos::Failure;
use crate::ladder;
use crate::ladder::report::{Report, Row};
use crate::ladder::rig::{Rig, Site, name};

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Rows of the backlog
    #[arg(long, default_value_t = 300_000)]
    rows: u64,
    /// Only what holds one of these words
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// System 1's processor stops after this long, if it has not drained the backlog
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// A sixth of the rows: shows that it works, not how well
    #[arg(long)]
    quick: bool,
    /// Debezium Server's directory; needs a Java runtime of version 21
    #[arg(long, requires = "java")]
    debezium: Option<PathBuf>,
    /// That Java runtime
    #[arg(long)]
    java: Option<PathBuf>,
    /// More words for every `millrace relay run`
    #[arg(last = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    site: Site,
    /// Write all figures to this file, too
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the table to this file, too
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// Measures everything. True: every drain was complete, and nothing came twice.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let options = options.shortened();
    let mut report = Report::new(options.rows);
    for kind in options.site.kinds() {
        match Rig::start(&options.site, kind) {
            Ok(rig) => {
                measure_all(&options, &rig, &mut report);
                let is_over = rig.is_interrupted();
                rig.stop()?;
                if is_over {
                    break;
                }
            }
            // The other broker's figures are worth having.
            Err(Failure::Skipped(why)) => report.skip(format!("{}: {why}", name(kind))),
            Err(failure) => return Err(failure),
        }
    }
    report.finish(options.markdown.as_deref(), options.json.as_deref())?;
    Ok(report.is_right())
}

fn measure_all(options: &Options, rig: &Rig, report: &mut Report) {
    for form in [ladder::start(), ladder::last()] {
        if options.wants(&form.name) && !rig.is_interrupted() {
            let limit = Duration::from_secs_f64(options.seconds);
            note(report, rig, &form.name, ladder::measure(rig, &form, options.rows, limit));
        }
    }
    for mode in mode::all() {
        if options.wants(&mode.name) && !rig.is_interrupted() {
            let row = process::measure(rig, &mode, options);
            note(report, rig, &mode.name, row);
        }
    }
    if options.wants(inbox::NAME) && !rig.is_interrupted() {
        note(report, rig, inbox::NAME, inbox::measure(rig, options));
    }
    if options.wants(debezium::NAME) && !rig.is_interrupted() {
        match (&options.debezium, &options.java) {
            (Some(server), Some(java)) => {
                let row = debezium::measure(rig, server, java, options.rows);
                note(report, rig, debezium::NAME, row);
            }
            _ => report.skip(format!("{}: not asked for", debezium::NAME)),
        }
    }
}

/// One that fails does not hide the others.
fn note(report: &mut Report, rig: &Rig, what: &str, row: Result<Row, Failure>) {
    let row = match row {
        Ok(row) => row,
        Err(Failure::Skipped(why)) => return report.skip(format!("{what}: {why}")),
        Err(failure) => Row::failed(rig.kind(), what, failure.to_string()),
    };
    println!("{row}");
    report.add(row);
}

impl Options {
    fn shortened(&self) -> Self {
        if !self.quick {
            return self.clone();
        }
        Self { rows: self.rows / 6, seconds: self.seconds.min(2.0), ..self.clone() }
    }

    fn wants(&self, what: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| what.contains(word.as_str()))
    }
}

/// When a process is given up that neither ends nor goes on.
pub(crate) struct Timeout {
    last: u64,
    since: Instant,
}

impl Timeout {
    const MAX: Duration = Duration::from_secs(30);

    pub(crate) fn new() -> Self {
        Self { last: 0, since: Instant::now() }
    }

    /// Whether anything has changed lately.
    pub(crate) fn is_left(&mut self, now: u64) -> bool {
        if now != self.last {
            *self = Self { last: now, since: Instant::now() };
        }
        self.since.elapsed() < Self::MAX
    }
}
