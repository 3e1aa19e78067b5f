//! `millrace relay run`: drains until it is told to stop.
#![allow(clippy::disallowed_methods, reason = "starts the relay and its screen")]

use std::process::ExitCode;

use relay::{Metrics, Source};
use service::io::screen::show;
use service::settings::Values;

use super::options::{self, File, Run};
use super::screen::{self, Screen};
use crate::cmd::flags::Flags;
use crate::cmd::log::{self, LogFormat};

/// It was a slot of the log: to start again changes nothing, and somebody has to decide.
const EXIT_SLOT_LOST: u8 = 3;

const EXIT_CODES: &str = "\
Exit codes:
  0    it was told to stop, or --check-config found nothing wrong
  1    it cannot go on as it is set up: the reason is on standard error
  2    the command line is wrong
  3    the replication slot is lost: `millrace relay resync` first. A supervisor that starts it again
       without that gets the same answer (systemd: RestartPreventExitStatus=3)
  130  it was told to stop a second time, and left at once";

/// Drain the outbox: every committed row is published and confirmed, at least once
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags<Run>,
    #[command(flatten)]
    file: File,
    /// Check the settings and exit: 0 if they are right
    #[arg(long)]
    check_config: bool,
}

/// Runs until a signal, or until it cannot go on.
pub(crate) fn run(args: Args) -> ExitCode {
    let (config, values) = match options::config(&args.flags.given, &args.file) {
        Ok(read) => read,
        Err(problems) => {
            return screen::fail(&format!("The settings are wrong:\n  {}", problems.join("\n  ")));
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    let format = match values.text("log_format") {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Text,
    };
    log::begin(&values.words("log"), format);
    if config.no_confirms {
        tracing::warn!(
            "--unsafe-no-confirms: rows are marked before the broker has taken their messages; \
             a crash of the broker or the network LOSES messages"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(drain(config, &values)),
        Err(error) => Err(relay::Error::setup(format!("cannot start: {error}"))),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    let code = screen::fail(&error.to_string());
    match error {
        relay::Error::SlotLost { .. } => ExitCode::from(EXIT_SLOT_LOST),
        relay::Error::Setup { .. }
        | relay::Error::Database { .. }
        | relay::Error::Broker { .. } => code,
    }
}

async fn drain(config: relay::Config, values: &Values) -> Result<(), relay::Error> {
    let metrics = Metrics::default();
    if let Some(address) = values.text("metrics") {
        let listener = service::io::http::bind(address).await;
        let listener = listener
            .map_err(|error| relay::Error::setup(format!("--metrics {address}: {error}")))?;
        tokio::spawn(service::io::http::serve(listener, metrics.clone()));
    }
    let stopped = service::io::stop::on_signals("what is published is confirmed and marked first");
    let every = values.text("report_every").map(|_| values.time("report_every"));
    let screen = tokio::spawn(show(Screen::new(metrics.clone()), every, values.is_on("json")));
    tracing::info!(
        table = %config.mapping.table,
        broker = %config.broker,
        source = match config.source {
            Source::Poll => "poll",
            Source::Wal { .. } => "wal",
            Source::Messages { .. } => "messages",
        },
        "draining"
    );
    let result = match config.source {
        Source::Poll => relay::io::run_poll(config, metrics.clone(), stopped).await,
        Source::Wal { .. } | Source::Messages { .. } => {
            relay::io::run_slot(config, metrics.clone(), stopped).await
        }
    };
    screen.abort();
    tracing::info!(confirmed = metrics.confirmed.get(), "ended");
    result
}
