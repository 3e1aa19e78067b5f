//! What commands that run for long share: what they log, and how they are told to stop.
#![allow(clippy::disallowed_methods, reason = "waits for signals")]

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A signal to the process and to its group comes twice at once.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
/// Ended by whoever asked twice.
const EXIT_FORCED: i32 = 130;

/// What is logged, and how.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Log {
    /// What to log, as RUST_LOG has it
    #[arg(long, value_name = "FILTER", env = "MILLRACE_LOG", default_value = "info")]
    log: String,
    /// How to log: text, or json with one object a line
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Log {
    /// Logs to standard error from here on.
    pub(super) fn begin(&self) {
        let filter = tracing_subscriber::EnvFilter::new(&self.log);
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            // Colours are for eyes, not for files.
            LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
            LogFormat::Json => log.json().init(),
        }
    }
}

/// Becomes true with SIGTERM or SIGINT; `doing` says what is done then. The same once more ends the process at once.
pub(super) fn stop_on_signals(doing: &'static str) -> watch::Receiver<bool> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        let (Ok(mut term), Ok(mut int)) = signals else {
            // The receivers must not take it for the end of the sender.
            return std::future::pending().await;
        };
        let mut asked: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = term.recv() => (),
                _ = int.recv() => (),
            }
            match asked {
                Some(at) if at.elapsed() < SAME_SIGNAL => continue,
                // The database may hang in a commit: whoever asks again means it.
                Some(_) => std::process::exit(EXIT_FORCED),
                None => asked = Some(Instant::now()),
            }
            tracing::info!("stopping: {doing}; again: at once");
            stop.send_replace(true);
        }
    });
    stopped
}
