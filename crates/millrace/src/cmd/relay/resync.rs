//! `millrace relay resync`: a new replication slot in the place of one that is lost.
#![allow(clippy::disallowed_methods, reason = "starts the relay's session and its screen")]

use std::process::ExitCode;
use std::time::Duration;

use relay::io::{Resynced, Since};
use relay::{Metrics, Source};

use super::options::{self, File, Options};
use super::screen;
use super::session::say;
use crate::cmd::log::Log;

/// Replace a lost replication slot, and publish the rows of the table again
#[derive(clap::Args)]
#[command(after_help = "\
The command first makes the slot, then reads the table, so no row is missed in between. It skips rows that are marked as
processed. Of the others it publishes those that occurred later than one hour before the last confirmed commit: some of
them for the second time, with the same message-ids. Messages of pg_logical_emit_message exist only in the log, so those
that the lost slot held cannot be published again.

If the command ends early, the next resync or the next relay reads the table again from the same place. Start the relay
when the command has finished.")]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Publish every row that is not marked as processed, however old
    #[arg(long)]
    all: bool,
    /// Interval of progress reports: 1s, 10s; 0s: none [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = service::duration, default_value = "1s")]
    report_every: Duration,
    #[command(flatten)]
    log: Log,
}

/// Runs until the table is published, or a signal.
pub(crate) fn run(args: Args) -> ExitCode {
    let config = match options::config(&args.options.given, &args.file) {
        Ok(config) => config,
        Err(problems) => {
            return screen::fail(&format!("The settings are wrong:\n  {}", problems.join("\n  ")));
        }
    };
    if config.source == Source::Poll {
        return screen::fail(
            "resync makes a replication slot, which --source poll does not use: add --source wal",
        );
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return screen::fail(&format!("cannot start: {error}")),
    };
    args.log.begin();
    let since = if args.all { Since::Beginning } else { Since::LastConfirmed };
    let metrics = Metrics::default();
    let counts = metrics.clone();
    let result = runtime.block_on(async {
        let stop = service::io::stop::on_signals(
            "the relay first waits for the confirms of messages that it has sent",
        );
        let teller = tokio::spawn(tell(metrics.clone(), args.report_every));
        let result = relay::io::resync(config, metrics, since, stop).await;
        teller.abort();
        result
    });
    match result {
        Ok(Resynced::Done) => {
            say(&format!("{} rows published; start the relay again", counts.confirmed.get()));
            ExitCode::SUCCESS
        }
        Ok(Resynced::Stopped) => screen::fail(
            "Stopped before every row was published: the next relay or the next resync reads the table again",
        ),
        Err(error) => screen::fail(&error.to_string()),
    }
}

/// Says how far it is, for ever. Before the first row the log says what is waited for.
async fn tell(metrics: Metrics, every: Duration) {
    if every.is_zero() {
        return;
    }
    let mut before = 0;
    loop {
        tokio::time::sleep(every).await;
        let published = metrics.confirmed.get();
        let backlog = metrics.backlog.get();
        if published == 0 && backlog == 0 && metrics.last_failure().is_none() {
            continue;
        }
        let rate = (published - before) as f64 / every.as_secs_f64();
        before = published;
        let mut line = format!("{published} rows published, {rate:.0}/s, {backlog} in flight");
        for (what, count) in [("waiting", metrics.parked.get()), ("dead", metrics.dead_now.get())] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        if let Some(problem) = metrics.problem() {
            line += &format!("; {problem}");
        }
        if let Some(failure) = metrics.last_failure() {
            line += &format!("; last failure: {failure}");
        }
        tracing::info!("{line}");
    }
}
