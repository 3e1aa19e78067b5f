//! `millrace relay run`: drains until it is told to stop.
#![allow(clippy::disallowed_methods, reason = "starts the relay and its screen")]

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use relay::{Metrics, Source};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::options::{File, Options};
use super::screen;

/// Drain the outbox: every committed row is published and confirmed, at least once
#[derive(clap::Args)]
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
    /// What to log, as RUST_LOG has it
    #[arg(long, value_name = "FILTER", env = "MILLRACE_LOG", default_value = "info")]
    log: String,
    /// How to log: text, or json with one object a line
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Check the settings and exit: 0 if they are right
    #[arg(long)]
    check_config: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Runs until a signal, or until it cannot go on.
pub(crate) fn run(args: Args) -> ExitCode {
    let config = match args.options.clone().with_file(args.file.config.as_deref()) {
        Ok(options) => options.config(),
        Err(problem) => Err(vec![problem]),
    };
    let mut config = match config {
        Ok(config) => config,
        Err(problems) => {
            return screen::fail(&format!("The settings are wrong:\n  {}", problems.join("\n  ")));
        }
    };
    config.no_confirms = args.unsafe_no_confirms;
    let every = match args.report_every.as_deref().map(super::options::duration).transpose() {
        Ok(every) => every,
        Err(why) => return screen::fail(&format!("--report-every: {why}")),
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    let filter = tracing_subscriber::EnvFilter::new(&args.log);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    if config.no_confirms {
        tracing::warn!(
            "--unsafe-no-confirms: rows are marked before the broker has taken their messages; \
             a crash of the broker or the network LOSES messages"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(drain(config, &args, every)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => screen::fail(&why),
    }
}

async fn drain(config: relay::Config, args: &Args, every: Option<Duration>) -> Result<(), String> {
    let metrics = Metrics::default();
    if let Some(address) = &args.metrics {
        let listener = relay::io::http::bind(address).await;
        let listener = listener.map_err(|error| format!("--metrics {address}: {error}"))?;
        tokio::spawn(relay::io::http::serve(listener, metrics.clone()));
    }
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let (Ok(mut term), Ok(mut int)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return;
        };
        let mut asked: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = term.recv() => (),
                _ = int.recv() => (),
            }
            // A signal to the process and to its group comes twice at once.
            match asked {
                Some(at) if at.elapsed() < Duration::from_secs(1) => continue,
                // The database may hang in a commit: whoever asks again means it.
                Some(_) => std::process::exit(130),
                None => asked = Some(Instant::now()),
            }
            tracing::info!(
                "stopping: what is published is confirmed and marked first; again: at once"
            );
            stop.send_replace(true);
        }
    });
    let screen = tokio::spawn(screen::show(metrics.clone(), every, args.json));
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
    result.map_err(|error| error.to_string())
}
