//! `millrace relay run`: drains until it is told to stop.
#![allow(clippy::disallowed_methods, reason = "starts the relay and its screen")]

use std::process::ExitCode;
use std::time::Duration;

use relay::{Metrics, Source};
use service::io::screen::show;

use super::options::{File, Options};
use super::screen::{self, Screen};
use crate::cmd::log::Log;

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
    options: Options,
    #[command(flatten)]
    file: File,
    /// Do not wait for confirms: a crash of the broker loses messages whose rows are marked already
    #[arg(long)]
    unsafe_no_confirms: bool,
    /// Say how it goes every so often: 1s, 10s, 0s for never [default: 1s on a terminal, else 10s]
    #[arg(long, value_name = "TIME")]
    report_every: Option<String>,
    /// Say how it goes as JSON lines on standard output
    #[arg(long)]
    json: bool,
    /// Serve /metrics (Prometheus), /health and /ready on this address: 127.0.0.1:9187
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    #[command(flatten)]
    log: Log,
    /// Check the settings and exit: 0 if they are right
    #[arg(long)]
    check_config: bool,
}

impl Args {
    /// With what the file says where flags are silent.
    fn with_file(mut self) -> Result<Self, String> {
        let Some(path) = self.file.config.clone() else { return Ok(self) };
        self.options = self.options.with_file(Some(&path))?;
        let Options { metrics, report_every, json, log, log_format, unsafe_no_confirms, .. } =
            &self.options;
        self.metrics = self.metrics.or(metrics.clone());
        self.report_every = self.report_every.or(report_every.clone());
        self.json |= json.unwrap_or_default();
        self.unsafe_no_confirms |= unsafe_no_confirms.unwrap_or_default();
        self.log = self.log.or(log.as_deref(), log_format.as_deref())?;
        Ok(self)
    }
}

/// Runs until a signal, or until it cannot go on.
pub(crate) fn run(args: Args) -> ExitCode {
    let args = match args.with_file() {
        Ok(args) => args,
        Err(problem) => return screen::fail(&format!("The settings are wrong:\n  {problem}")),
    };
    let mut config = match args.options.config() {
        Ok(config) => config,
        Err(problems) => {
            return screen::fail(&format!("The settings are wrong:\n  {}", problems.join("\n  ")));
        }
    };
    config.no_confirms = args.unsafe_no_confirms;
    let every = match args.report_every.as_deref().map(service::duration).transpose() {
        Ok(every) => every,
        Err(why) => return screen::fail(&format!("--report-every: {why}")),
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    args.log.begin();
    if config.no_confirms {
        tracing::warn!(
            "--unsafe-no-confirms: rows are marked before the broker has taken their messages; \
             a crash of the broker or the network LOSES messages"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(drain(config, &args, every)),
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

async fn drain(
    config: relay::Config,
    args: &Args,
    every: Option<Duration>,
) -> Result<(), relay::Error> {
    let metrics = Metrics::default();
    if let Some(address) = &args.metrics {
        let listener = service::io::http::bind(address).await;
        let listener = listener
            .map_err(|error| relay::Error::setup(format!("--metrics {address}: {error}")))?;
        tokio::spawn(service::io::http::serve(listener, metrics.clone()));
    }
    let stopped = service::io::stop::on_signals("what is published is confirmed and marked first");
    let screen = tokio::spawn(show(Screen::new(metrics.clone()), every, args.json));
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
