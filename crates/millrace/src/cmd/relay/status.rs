//! `millrace relay status`: backlog, failures, blocked keys, relays, slots.
#![allow(clippy::disallowed_methods, reason = "--watch waits between two looks")]

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use relay::admin::status::Status;

use super::options::{File, Options};
use super::session::{heading, say, with_each, with_name};

/// Cursor home, and everything below it cleared.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show the state of the outbox: backlog, failures, blocked keys, relays, slots
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Print one line of JSON for each refresh
    #[arg(long)]
    json: bool,
    /// Refresh at this interval: 1s, 10s
    #[arg(long, value_name = "TIME", value_parser = service::duration, num_args = 0..=1, default_missing_value = "2s")]
    watch: Option<Duration>,
}

/// Looks once, or until it is stopped.
pub(crate) fn run(args: Args) -> ExitCode {
    let is_terminal = std::io::stdout().is_terminal() && !args.json;
    with_each(&args.options, &args.file, async |session, config, name| {
        if name.is_some() && args.file.only.is_none() && args.watch.is_some() {
            return Err("--watch shows one source: name it with --only".into());
        }
        let mut before: Option<(Status, Instant)> = None;
        loop {
            let mut status = session.look(&config).await.map_err(|error| error.to_string())?;
            let now = Instant::now();
            if let Some((before, at)) = &before {
                status.since(before, (now - *at).as_secs_f64());
            }
            let text = match (args.json, name) {
                (true, None) => {
                    serde_json::to_string(&status).map_err(|error| error.to_string())?
                }
                (true, Some(name)) => {
                    let status =
                        serde_json::to_value(&status).map_err(|error| error.to_string())?;
                    with_name(status, name)
                }
                (false, None) => status.to_string(),
                (false, Some(name)) => format!("{}\n{status}", heading(name)),
            };
            let clear = if is_terminal && args.watch.is_some() { CLEAR } else { "" };
            say(&format!("{clear}{text}"));
            let Some(every) = args.watch else { return Ok(0) };
            before = Some((status, now));
            tokio::time::sleep(every.max(Duration::from_millis(100))).await;
        }
    })
}
