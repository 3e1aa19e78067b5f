//! `millrace relay resync`: a new replication slot in the place of one that is lost.
#![allow(clippy::disallowed_methods, reason = "starts the relay's session and waits for signals")]

use std::process::ExitCode;

use relay::io::Since;
use relay::{Metrics, Source};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::options::{File, Options};
use super::screen;
use super::session::say;

/// Make a new replication slot after one is lost, and publish the rows of the table again
#[derive(clap::Args)]
#[command(after_help = "\
The slot comes first, then the table is read: nothing is left out between the two. Rows that are marked as processed are
left alone. Of the others, those are published that occurred after the last confirmed commit, less an hour: some for the
second time, with the same message-ids. Messages of pg_logical_emit_message are nowhere but in the log: those that the
lost slot held back cannot be published again.

Start the relay again when this has ended.")]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Publish every row that is not marked as processed, however old
    #[arg(long)]
    all: bool,
}

/// Runs until the table is published, or a signal.
pub(crate) fn run(args: Args) -> ExitCode {
    let config = match args.options.clone().with_file(args.file.config.as_deref()) {
        Ok(options) => options.config(),
        Err(problem) => Err(vec![problem]),
    };
    let config = match config {
        Ok(config) => config,
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
    let since = if args.all { Since::Beginning } else { Since::LastConfirmed };
    let metrics = Metrics::default();
    let (stop, stopped) = watch::channel(false);
    let counts = metrics.clone();
    let result = runtime.block_on(async {
        tokio::spawn(async move {
            let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
            let (Ok(mut term), Ok(mut int)) = signals else { return };
            tokio::select! {
                _ = term.recv() => (),
                _ = int.recv() => (),
            }
            stop.send_replace(true);
            // The receivers must not take it for the end of the sender.
            std::future::pending::<()>().await;
        });
        relay::io::resync(config, metrics, since, stopped).await
    });
    match result {
        Ok(relay::io::Resynced::Done) => {
            say(&format!("{} rows published; start the relay again", counts.confirmed.get()));
            ExitCode::SUCCESS
        }
        Ok(relay::io::Resynced::Stopped) => screen::fail(
            "Stopped before every row was published: the next relay, or the next resync, begins again",
        ),
        Err(error) => screen::fail(&error.to_string()),
    }
}
