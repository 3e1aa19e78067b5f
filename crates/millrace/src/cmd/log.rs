//! What commands that run for long log, and how.

use std::io::IsTerminal as _;

/// What is logged, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Log {
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
    pub(crate) fn begin(&self) {
        let filter = tracing_subscriber::EnvFilter::new(&self.log);
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            // Colours are for eyes, not for files.
            LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
            LogFormat::Json => log.json().init(),
        }
    }
}
