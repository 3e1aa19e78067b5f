//! The screen of a service: one line that changes on a terminal, JSON lines on standard output, or lines in the log.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How a service stands, as words and as JSON. Made only as the one that is shown.
pub trait Shown {
    /// Called once for each line, with the time since the line before.
    fn line(&mut self, since: Duration) -> String;

    /// As [`Shown::line`], as a JSON object without a line end.
    fn json(&mut self, since: Duration) -> String;
}

/// Shows `service` for ever: each `every`, or each second on a terminal or as JSON, or each ten seconds in the log.
/// Zero shows nothing.
pub async fn show(mut service: impl Shown, every: Option<Duration>, is_json: bool) {
    let is_terminal = std::io::stderr().is_terminal() && !is_json;
    let usual = Duration::from_secs(if is_terminal || is_json { 1 } else { 10 });
    let every = every.unwrap_or(usual);
    if every.is_zero() {
        return;
    }
    let bar = is_terminal.then(|| {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {wide_msg}").expect("a style"));
        bar
    });
    let mut at = Instant::now();
    loop {
        tokio::time::sleep(every).await;
        let now = Instant::now();
        let since = now - at;
        at = now;
        match &bar {
            // Nobody is left to tell if standard output is gone; the service goes on.
            _ if is_json => drop(writeln!(std::io::stdout(), "{}", service.json(since))),
            Some(bar) => {
                bar.set_message(service.line(since));
                bar.tick();
            }
            None => tracing::info!("{}", service.line(since)),
        }
    }
}
