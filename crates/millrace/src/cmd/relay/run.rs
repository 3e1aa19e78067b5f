//! `millrace relay run`: drains until it is told to stop.
#![allow(clippy::disallowed_methods, reason = "starts the relay and its screen")]

mod several;

use std::collections::BTreeMap;
use std::process::ExitCode;

use relay::{Metrics, Source};
use service::io::http::{Orders, Watched, serve, serve_with_orders};
use service::io::pauses::Pauses;
use service::io::screen::show;
use service::settings::Values;
use tokio::sync::watch;

use self::several::Rereading;
use super::options::{self, File, Run, Wanted};
use super::screen::{self, Screen};
use crate::cmd::flags::Flags;
use crate::cmd::log::{self, LogFormat};

/// It was a slot of the log: to start again changes nothing, and somebody has to decide.
const EXIT_SLOT_LOST: u8 = 3;

const EXIT_CODES: &str = "\
Exit codes:
  0    the relay was asked to stop, or --check-config found nothing wrong
  1    the relay cannot continue with this setup: the reason is on standard error
  2    the command line is wrong
  3    the replication slot is lost: run `millrace relay resync` first. Until then every start ends with
       this code, so do not restart the relay automatically (systemd: RestartPreventExitStatus=3)
  130  the relay was asked to stop a second time, and ended at once";

/// Publish every committed row of the outbox, with confirms: at least once
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags<Run>,
    #[command(flatten)]
    file: File,
    /// Check the settings and exit, with exit code 0 if they are valid
    #[arg(long)]
    check_config: bool,
}

/// Runs until a signal, or until it cannot go on.
pub(crate) fn run(args: Args) -> ExitCode {
    let (wanted, values) = match options::wanted(&args.flags.given, &args.file) {
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
    if values.is_on("unsafe_no_confirms") {
        tracing::warn!(
            "--unsafe-no-confirms: the relay marks rows before the broker confirms their messages; a crash of the \
             broker, or a lost connection, LOSES messages"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(async {
            match wanted {
                Wanted::One(config) => drain(*config, &values).await,
                Wanted::Several(sources) => {
                    let file = Rereading { flags: args.flags.given, file: args.file };
                    several::drain(sources, file, &values).await
                }
            }
        }),
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

/// Serves the metrics, and takes orders, where it is set so. `parts` can rest by themselves.
async fn serve_watched<T: Watched>(
    values: &Values,
    watched: T,
    pauses: &Pauses,
    parts: Option<watch::Receiver<BTreeMap<String, Pauses>>>,
) -> Result<(), relay::Error> {
    let secret = options::orders_secret(values).map_err(relay::Error::setup)?;
    let Some(address) = values.text("metrics") else { return Ok(()) };
    let listener = service::io::http::bind(address).await;
    let listener =
        listener.map_err(|error| relay::Error::setup(format!("--metrics {address}: {error}")))?;
    let orders = secret.map(|secret| Orders::new(&secret, pauses.clone()));
    match (orders, parts) {
        (None, _) => tokio::spawn(serve(listener, watched)),
        (Some(orders), None) => tokio::spawn(serve_with_orders(listener, watched, orders)),
        (Some(orders), Some(parts)) => {
            let orders = orders.with_changing_parts(parts);
            tokio::spawn(serve_with_orders(listener, watched, orders))
        }
    };
    Ok(())
}

fn stops() -> watch::Receiver<bool> {
    service::io::stop::on_signals(
        "the relay first waits for confirms, and marks the rows that it has \
         published",
    )
}

async fn drain(config: relay::Config, values: &Values) -> Result<(), relay::Error> {
    let (metrics, pauses) = (Metrics::default(), Pauses::default());
    serve_watched(values, metrics.clone(), &pauses, None).await?;
    let stopped = stops();
    let every = values.text("report_every").map(|_| values.time("report_every"));
    let shown = metrics.clone();
    let screen = Screen::new(move || shown.total());
    let screen = tokio::spawn(show(screen, every, values.is_on("json")));
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
    let work = async |end: watch::Receiver<bool>| {
        metrics.paused.set(0);
        let (config, served) = (config.clone(), metrics.clone());
        let ended = relay::io::run(config, served, end).await;
        metrics.paused.set(pauses.is_wanted().into());
        ended
    };
    let result = pauses.run(stopped, work).await;
    screen.abort();
    tracing::info!(confirmed = metrics.confirmed.get(), "ended");
    result
}
