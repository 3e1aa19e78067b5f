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

/// Make a new replication slot after one is lost, and publish the rows of the table again
#[derive(clap::Args)]
#[command(after_help = "\
The slot comes first, then the table is read: nothing is left out between the two. Rows that are marked as processed are
left alone. Of the others, those are published that occurred after the last confirmed commit, less an hour: some for the
second time, with the same message-ids. Messages of pg_logical_emit_message are nowhere but in the log: those that the
lost slot held back cannot be published again.

If it is stopped, or dies, before its end, it is not done: the next resync, or the next relay, reads the table again from
the same place. Start the relay again when this has ended.")]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Publish every row that is not marked as processed, however old
    #[arg(long)]
    all: bool,
    /// Say how it goes every so often: 1s, 10s, 0s for never [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = service::duration, default_value = "1s")]
    report_every: Duration,
    #[command(flatten)]
    log: Log,
}

/// Runs until the table is published, or a signal.
pub(crate) fn run(args: Args) -> ExitCode {
    let config = match options::config(&args.options.given, &args.file) {
        Ok((config, _)) => config,
        Err(problems) => {
            return screen::fail(&format!("The settings are wrong:\n  {}", problems.join("\n  ")));
        }
    };
    if config.source == Source::Poll {
        return screen::fail("resync is about replication slots: add --source wal");
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
        let stop = service::io::stop::on_signals("what is on its way to the broker is waited for");
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
            "Stopped before every row was published: the next relay, or the next resync, begins again",
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
        let mut line = format!("{published} rows published, {rate:.0}/s, {backlog} on their way");
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
