//! What commands that run for long log, and how.

use std::io::IsTerminal as _;
use std::str::FromStr as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use super::terminal::LogWriter;

/// What is logged, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Log {
    /// Log level: error, warn, info, debug, trace or off; PART=LEVEL for one part, separated by commas [default: info]
    #[arg(long, value_name = "FILTER", env = "MILLRACE_LOG", value_parser = judged)]
    log: Option<String>,
    /// Log format: text, or json with one object per line [default: text]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Log {
    /// Logs to standard error from here on.
    pub(crate) fn begin(&self) {
        let format = self.log_format.unwrap_or(LogFormat::Text);
        begin(self.log.as_deref().unwrap_or("info"), format);
    }
}

/// Changes what is logged while the process runs.
#[derive(Clone)]
pub(crate) struct Dial(reload::Handle<EnvFilter, Registry>);

impl Dial {
    /// Logs what `text` says from here on.
    ///
    /// # Errors
    /// As [`filter`]; then nothing changes.
    pub(crate) fn turn(&self, text: &str) -> Result<(), String> {
        let filter = filter(text)?;
        self.0.reload(filter).map_err(|error| error.to_string())
    }
}

/// Logs to standard error from here on. A filter that nobody judged before and that is wrong means `info`.
pub(crate) fn begin(text: &str, format: LogFormat) -> Dial {
    let filter = filter(text).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    // Only what is said of itself, which would go to standard error in a way that panics.
    let lines =
        tracing_subscriber::fmt::layer().with_writer(|| LogWriter).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(lines.with_ansi(is_coloured())).init(),
        LogFormat::Json => registry.with(lines.json()).init(),
    }
    Dial(handle)
}

/// Colours are for eyes, not for files, and not for whoever set `NO_COLOR`.
fn is_coloured() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !is_unwanted
}

/// Reads a filter. A single word must be a level: as the name of a part, a typo in a level would silence the rest.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    const WANTED: &str = "it must be error, warn, info, debug, trace or off, or PART=LEVEL for one part \
         (info,cluster=debug)";
    let directives: Vec<_> = text.split(',').map(str::trim).collect();
    for directive in &directives {
        let is_word = !directive.contains(['=', '[', '{', '}', ']']);
        if directive.is_empty() || (is_word && LevelFilter::from_str(directive).is_err()) {
            return Err(format!("\"{directive}\" is not a log level: {WANTED}"));
        }
    }
    EnvFilter::builder().parse(directives.join(",")).map_err(|error| format!("{error}: {WANTED}"))
}

/// For `clap`: the text, if it is a filter.
fn judged(text: &str) -> Result<String, String> {
    filter(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_in_a_level_is_told_and_does_not_silence_the_log() {
        for text in ["inof", "debgu", "", "info,", "info,warm", "cluster=debgu", "cluster=[info"] {
            let told = filter(text).expect_err(text);
            assert!(told.contains("error, warn, info, debug, trace or off"), "{text}: {told}");
        }
        assert!(filter("inof").expect_err("a typo").starts_with("\"inof\" is not a log level"));
    }

    #[test]
    fn a_level_and_levels_of_parts_are_filters() {
        for text in ["info", "WARN", "off", "info,cluster=debug", "cluster::io=trace, broker=off"] {
            assert!(filter(text).is_ok(), "{text}");
        }
    }
}
