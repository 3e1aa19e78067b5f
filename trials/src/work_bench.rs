//! Jobs that do nothing, worked off by Millrace's worker and by its peers on the same Redis, RabbitMQ or
//! PostgreSQL; pushes and webhooks to local servers.
//!
//! Everybody gets jobs of about 100 bytes, as many as take some seconds. Time and CPU count from the first job that was
//! handled to the last one.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement has clocks, files and a terminal; everything of it is below here"
)]

mod cases;
mod ladder;
pub mod noop;
mod provider;
mod race;
mod report;
mod servers;

use std::path::PathBuf;

use clap::Args;

use crate::chaos::Failure;
use cases::Case;
use report::Report;
use servers::Servers;

/// What is measured, and where things are.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Jobs of the backlog of Millrace's worker; peers get a part, so that each takes some seconds
    #[arg(long, default_value_t = 1_000_000)]
    jobs: u64,
    /// Only what holds one of these words
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A tenth of the jobs: shows that it works, not how well
    #[arg(long)]
    quick: bool,
    /// Millrace's binary
    #[arg(long, default_value = "target/release/millrace")]
    broker: PathBuf,
    /// RabbitMQ's
    #[arg(long, default_value = "/usr/lib/rabbitmq/bin/rabbitmq-server")]
    rabbitmq: PathBuf,
    /// Redis's
    #[arg(long, default_value = "redis-server")]
    redis: PathBuf,
    /// Where the peers' programs were built; without it they are skipped
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Where data and logs go
    #[arg(long, default_value = "target/bench-work")]
    dir: PathBuf,
    /// Processors for the worker or peer alone, as taskset reads them; without it everything shares the machine
    #[arg(long)]
    cpus: Option<String>,
    /// Write all figures to this file, too
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the table to this file, too
    #[arg(long)]
    markdown: Option<PathBuf>,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word.as_str()))
    }

    /// The jobs of a case that gets this part of them.
    fn jobs(&self, part: f64) -> u64 {
        let jobs = self.jobs as f64 * part * if self.quick { 0.1 } else { 1.0 };
        (jobs as u64).max(100)
    }
}

/// Measures everything. True: every backlog was worked off whole.
pub fn run(options: &Options) -> Result<bool, Failure> {
    std::fs::create_dir_all(&options.dir)?;
    let (dir, broker) = (options.dir.canonicalize()?, options.broker.canonicalize()?);
    let options = Options { dir, broker, ..options.clone() };
    let mut report = Report::default();
    for case in Case::all() {
        if !options.wants(&case.name()) {
            continue;
        }
        let measured = Servers::start(&options, case.needs()).and_then(|servers| {
            let row = race::run(&options, &servers, &case);
            servers.stop();
            row
        });
        match measured {
            Ok(row) => {
                println!("{row}");
                report.add(row);
            }
            Err(Failure::Skipped(why)) => report.skip(&case.name(), &why),
            Err(failure) => report.fail(&case.name(), &failure.to_string()),
        }
    }
    for rung in ladder::RUNGS.iter().filter(|rung| options.wants(rung.name)) {
        match ladder::run(&options, rung) {
            Ok(row) => {
                println!("{row}");
                report.add(row);
            }
            Err(failure) => report.fail(rung.name, &failure.to_string()),
        }
    }
    report.finish(options.markdown.as_deref(), options.json.as_deref())?;
    Ok(report.is_right())
}
