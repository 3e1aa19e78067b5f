//! `millrace work status` and `millrace work top`: how a running worker stands, as its `/status` says it.
#![allow(clippy::disallowed_methods, reason = "asks a worker, again and again")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use worker::io::metrics::Status;

use super::{fail, say, wait};

/// Cursor home, and everything below it cleared.
const CLEAR: &str = "\x1b[H\x1b[2J";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";
/// Errors of one target that are shown.
const ERRORS_SHOWN: usize = 5;

/// Show the state of a running worker
#[derive(clap::Args)]
#[command(after_help = "Exit code 0: the worker is ready. 1: it is not ready, or does not answer.")]
pub(super) struct Args {
    /// Address of the worker, as `[worker] metrics` says it
    #[arg(
        long,
        value_name = "ADDR",
        env = "MILLRACE_WORK_METRICS",
        default_value = "127.0.0.1:9190"
    )]
    address: String,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Watch a running worker: rates, jobs in flight, errors
#[derive(clap::Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    args: Args,
    /// Refresh interval
    #[arg(long, value_name = "TIME", value_parser = service::duration, default_value = "1s")]
    every: Duration,
    /// End after this many refreshes
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Looks once.
pub(super) fn run(args: &Args) -> ExitCode {
    match wait(ask(&args.address)) {
        Ok((status, text)) => {
            say(&if args.json {
                text
            } else {
                shown(&status, None, std::io::stdout().is_terminal())
            });
            if status.is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => fail(&why),
    }
}

/// Looks until it is stopped.
pub(super) fn top(args: &TopArgs) -> ExitCode {
    let ended = wait(async {
        let mut before: Option<(Status, Instant)> = None;
        let mut looks = 0;
        loop {
            let (status, _) = ask(&args.args.address).await?;
            let now = Instant::now();
            let rates = before.as_ref().map(|(before, at)| rates(before, &status, now - *at));
            let is_terminal = std::io::stdout().is_terminal();
            match args.args.json {
                true => say(&as_json(&status, rates.as_ref())),
                false => {
                    let clear = if is_terminal { CLEAR } else { "" };
                    say(&format!("{clear}{}", shown(&status, rates.as_ref(), is_terminal)));
                }
            }
            looks += 1;
            if args.count.is_some_and(|count| looks >= count) {
                return Ok(());
            }
            before = Some((status, now));
            tokio::time::sleep(args.every.max(Duration::from_millis(100))).await;
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

/// Asks a worker how it stands.
async fn ask(address: &str) -> Result<(Status, String), String> {
    let text = worker::io::metrics::ask(address).await.map_err(|error| {
        format!("no worker answers at {address}: {error}. Check that a worker runs and that its [worker] metrics is \
             this address")
    })?;
    let status = serde_json::from_str(&text).map_err(|error| {
        format!("the program that answers at {address} is not a worker: {error}")
    })?;
    Ok((status, text))
}

/// Jobs per second of each pipeline: settled, as done.
fn rates(before: &Status, after: &Status, since: Duration) -> BTreeMap<String, f64> {
    let done = |status: &Status| -> BTreeMap<String, u64> {
        let all = status.pipelines.iter();
        all.map(|one| (one.name.clone(), one.outcomes.get("done").copied().unwrap_or(0))).collect()
    };
    let (before, seconds) = (done(before), since.as_secs_f64().max(1e-9));
    let rate = |(name, now): (String, u64)| {
        let then = before.get(&name).copied().unwrap_or(0);
        (name, now.saturating_sub(then) as f64 / seconds)
    };
    done(after).into_iter().map(rate).collect()
}

fn shown(status: &Status, rates: Option<&BTreeMap<String, f64>>, has_colours: bool) -> String {
    let (red, plain) = if has_colours { (RED, PLAIN) } else { ("", "") };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |it: String| {
        let _ = writeln!(text, "{it}");
    };
    let ready = match &status.problem {
        None => "ready".to_owned(),
        Some(problem) => format!("{red}not ready: {problem}{plain}"),
    };
    line(format!("millrace work, pid {}, up {:.0} s, {ready}", status.pid, status.uptime_s));
    line(format!(
        "{:<20} {:>10} {:>8} {:>8} {:>10} {:>10} {:>8} {:>8} {:>8}",
        "PIPELINE", "DONE/S", "RUNNING", "IN HAND", "TAKEN", "DONE", "LATER", "DEAD", "OLDEST"
    ));
    for one in &status.pipelines {
        let settled = |name: &str| one.settled.get(name).copied().unwrap_or(0);
        let rate = rates.and_then(|rates| rates.get(&one.name));
        let rate = rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        line(format!(
            "{:<20} {rate:>10} {:>8} {:>8} {:>10} {:>10} {:>8} {:>8} {:>6.1} s",
            one.name,
            one.running,
            one.in_hand,
            one.taken,
            settled("done"),
            settled("later"),
            settled("dead"),
            one.oldest_s,
        ));
        if one.is_paused {
            let by = one.paused_by.as_ref().or(status.paused_by.as_ref());
            line(by.map_or("    paused".to_owned(), |by| format!("    paused by {by}")));
        }
    }
    line(format!(
        "{:<20} {:<10} {:>8} {:>10} {:>8} {:>8} {:>8}",
        "TARGET", "KIND", "RUNNING", "DONE", "RETRY", "REJECT", "DEAD TOK"
    ));
    for one in &status.targets {
        let count = |name: &str| one.outcomes.get(name).copied().unwrap_or(0);
        line(format!(
            "{:<20} {:<10} {:>8} {:>10} {:>8} {:>8} {:>8}",
            one.name,
            one.kind,
            one.running,
            count("done"),
            count("retry"),
            count("reject"),
            count("token_dead")
        ));
        let states = [
            ("stopped", &one.stopped),
            ("breaker open", &one.breaker),
            ("throttled", &one.throttle),
        ];
        for (what, why) in states {
            if let Some(why) = why {
                line(format!("    {red}{what}: {why}{plain}"));
            }
        }
        for error in one.errors.iter().take(ERRORS_SHOWN) {
            line(format!("    {:>8} x {}", error.count, error.why));
        }
    }
    text
}

fn as_json(status: &Status, rates: Option<&BTreeMap<String, f64>>) -> String {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    value["done_per_s"] = json!(rates);
    value.to_string()
}

#[cfg(test)]
mod tests {
    use worker::io::metrics::{PipelineStatus, TargetStatus};

    use super::*;

    fn status(done: u64) -> Status {
        let outcomes = BTreeMap::from([("done".to_owned(), done)]);
        let pipeline =
            PipelineStatus { name: "mail".into(), outcomes, ..PipelineStatus::default() };
        let target = TargetStatus {
            name: "hook".into(),
            stopped: Some("bad key".into()),
            ..TargetStatus::default()
        };
        Status { pipelines: vec![pipeline], targets: vec![target], ..Status::default() }
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let rates = rates(&status(10), &status(110), Duration::from_secs(2));
        assert_eq!(rates.get("mail"), Some(&50.0));
        assert!(
            shown(&status(110), Some(&rates), false).contains("mail                         50")
        );
    }

    #[test]
    fn it_is_said_who_paused_a_pipeline() {
        let mut status = status(0);
        status.pipelines[0].is_paused = true;
        assert!(shown(&status, None, false).contains("\n    paused\n"), "an older worker");
        status.paused_by = Some("ann".into());
        assert!(shown(&status, None, false).contains("\n    paused by ann\n"));
        status.pipelines[0].paused_by = Some("bob".into());
        assert!(shown(&status, None, false).contains("\n    paused by bob\n"));
    }

    #[test]
    fn colours_are_for_terminals() {
        assert!(shown(&status(0), None, true).contains("\x1b[31mstopped: bad key\x1b[0m"));
        assert!(shown(&status(0), None, false).contains("    stopped: bad key\n"));
    }
}
