//! `millrace move`: the messages of queues from one AMQP 0-9-1 broker to another, while applications go on.
//!
//! Both brokers are looked at first (`survey`): nothing is moved unless everything can be. Each queue then has a carrier of
//! its own (`carrier`).
#![allow(
    clippy::disallowed_methods,
    reason = "a command reads files and clocks, starts tasks and talks to its user"
)]

mod carrier;
mod counts;
mod flight;
mod list;
mod looks;
pub(super) mod pace;
pub(super) mod place;
mod survey;
mod target;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use client::{Options, Url};
use serde_json::{Value, json};
use service::io::{screen, stop};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::bench::options::{Argument, argument};
use super::log::Log;
use super::terminal;
use super::url::UrlParser;
use crate::table::clean;
use carrier::{End, Job};
use counts::{Counted, Counts, Screen, sum};
use pace::Pace;
use place::Place;

const HELP: &str = "\
Examples:
  millrace move --from amqp://guest:guest@old --to amqp://guest:guest@new --queue orders
                                     until the queue at `old` is empty
  millrace move --from ... --to ... --all definitions.json --pattern 'shop.*' --dry-run
                                     what there is to move, and whether it can be
  millrace move --from ... --to ... --all definitions.json --follow --rate 5000
                                     for ever, at most 5,000 messages a second
  rabbitmqctl -q list_queues name | millrace move --from ... --to ... --all - --json

A message is settled at the source only after the target has confirmed it: none is lost, whatever is killed. What is not
settled is at the source, so a second run goes on where the first one ended. After a cut (a broker or this command was
killed, a connection was lost) a message may be at the target twice; one of the two has the header x-millrace-repeat.
URLs may come from the environment, where `ps` does not show them: MILLRACE_MOVE_FROM, MILLRACE_MOVE_TO.

Exit codes:
  0    all queues are empty at the source; with --follow: a stop was asked for; with --dry-run: all can be moved
  1    a queue could not be moved, or not to its end: the reason is on standard error, the rest is at the source
  2    the command line is wrong
  3    all was moved, and some of it may be there twice (only with --fail-on-repeats)
  4    a stop was asked for before all queues were empty: run the command again to go on
  130  a stop was asked for a second time, and the command ended at once";

/// All was moved, some of it may be there twice, and that was not to be.
const EXIT_REPEATED: u8 = 3;
/// There is more to move.
const EXIT_STOPPED: u8 = 4;
/// The least of the bytes in flight that a queue gets.
const BYTES_MIN: usize = 64 << 10;

/// Move the messages of queues to another broker, while applications go on: at least once, in order, resumable
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = HELP)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["queue", "all"]))]
pub(crate) struct Args {
    /// Source broker: amqp://user:password@host:port/vhost, or amqps:// for TLS (?cacertfile=ca.pem)
    #[arg(
        long,
        value_name = "URL",
        env = "MILLRACE_MOVE_FROM",
        hide_env_values = true,
        value_parser = UrlParser
    )]
    from: Url,
    /// Target broker, likewise
    #[arg(
        long,
        value_name = "URL",
        env = "MILLRACE_MOVE_TO",
        hide_env_values = true,
        value_parser = UrlParser
    )]
    to: Url,
    /// Move this queue to the queue of the same name (repeatable)
    #[arg(long, short, value_name = "NAME")]
    queue: Vec<String>,
    /// Move all queues of this file: definitions of a broker (JSON), or names, one a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "queue")]
    all: Option<PathBuf>,
    /// Of --all, move only queues whose name matches: * stands for any text, ? for one character
    #[arg(long, value_name = "PATTERN", requires = "all", conflicts_with = "queue")]
    pattern: Option<String>,
    /// Stop when the queues have no ready message left at the source (this is the default)
    #[arg(long, conflicts_with = "follow")]
    until_empty: bool,
    /// Go on until a stop is asked for, and move what comes
    #[arg(long)]
    follow: bool,
    /// Look at both brokers and say what would be moved; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Declare queues that are missing at the target: as the definitions say, else durable with --argument
    #[arg(long)]
    declare: bool,
    /// With --declare: an argument of queues that no definitions describe: a number, true, false or text (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = argument, requires = "declare")]
    argument: Vec<Argument>,
    /// Publish to the target's default exchange: needs no permission to declare, but routing keys become queue names
    #[arg(long)]
    default_exchange: bool,
    /// Move at most so many messages a second, all queues together
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Maximum number of messages on their way, per queue
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// Maximum MiB of messages on their way, all queues together; memory is about three times that
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    in_flight: u32,
    /// Number of queues that are moved at a time; --follow moves all
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
    /// Give a queue up when a broker is away, or the target confirms nothing, for this time (5m, 60s)
    #[arg(long, value_name = "TIME", value_parser = super::bench::duration, default_value = "5m")]
    give_up_after: Duration,
    /// Exit with code 3 if messages may be at the target twice
    #[arg(long)]
    fail_on_repeats: bool,
    /// Print JSON lines: progress, each queue at its end, the end
    #[arg(long)]
    json: bool,
    /// How often to show progress; 0s never [default: 1s on a terminal or with --json, 10s in a log]
    #[arg(long, value_name = "TIME", value_parser = super::bench::duration)]
    report_every: Option<Duration>,
    #[command(flatten)]
    log: Log,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.001..=1e9).contains(&rate) => Ok(rate),
        Ok(_) | Err(_) => Err("a rate is a number of messages a second, from 0.001".into()),
    }
}

/// Moves all queues; the exit code says whether all of it was done.
pub(crate) fn run(args: Args) -> ExitCode {
    args.log.begin();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(move_all(&args)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            let lines: Vec<String> = why.lines().map(clean).collect();
            terminal::remark(&format!("millrace move: {}", lines.join("\n")));
            ExitCode::FAILURE
        }
    }
}

async fn move_all(args: &Args) -> Result<u8, String> {
    let place = |url: &Url| (url.host.clone(), url.port, url.vhost.clone());
    if place(&args.from) == place(&args.to) {
        return Err("--from and --to are the same broker and vhost: nothing would end".into());
    }
    let queues = list::wanted(args)?;
    let options = Options::named("millrace move");
    let found = survey::look(args, &options, queues).await?;
    if args.dry_run {
        survey::tell(args, &found);
        return Ok(found.iter().any(|queue| queue.problem(args).is_some()).into());
    }
    let problems: Vec<String> = found.iter().filter_map(|queue| queue.problem(args)).collect();
    if !problems.is_empty() {
        return Err(format!("nothing was moved:\n  {}", problems.join("\n  ")));
    }
    survey::prepare(args, &options, &found).await?;
    let begun = Instant::now();
    let counted: Arc<[Counted]> = found
        .iter()
        .map(|queue| {
            let counts = Arc::<Counts>::default();
            counts.ready.store(queue.ready.into(), Relaxed);
            (queue.wanted.name.clone(), counts)
        })
        .collect();
    let stop = stop::on_signals(
        "what is on its way is confirmed and settled; the rest stays at the source",
    );
    let screen = Screen::new(counted.clone(), args.follow);
    let screen = tokio::spawn(screen::show(screen, args.report_every, args.json));
    let watcher = tokio::spawn(survey::watch(args.from.clone(), options.clone(), counted.clone()));
    let ends = carry_all(args, &options, &counted, &stop).await;
    screen.abort();
    watcher.abort();
    survey::clear(args, &options, &found).await;
    Ok(conclude(args, &counted, &ends, begun))
}

/// How a queue ended.
type Ended = Result<End, String>;

/// Carries all queues, so many at a time.
async fn carry_all(
    args: &Args,
    options: &Options,
    counted: &[Counted],
    stop: &watch::Receiver<bool>,
) -> Vec<Ended> {
    let at_once = match args.follow {
        true => counted.len(),
        false => counted.len().min(args.parallel.into()),
    };
    let pace = args.rate.map(Pace::start);
    // What is fetched is held until its turn comes: a second's worth is enough.
    let prefetch = args.rate.map_or(args.window, |rate| (rate as u16).clamp(1, args.window));
    let bytes_max = ((args.in_flight as usize) << 20) / at_once.max(1);
    let chance = RandomState::new();
    let job = |at: usize| {
        let (queue, counts) = &counted[at];
        Job {
            from: args.from.clone(),
            to: args.to.clone(),
            options: options.clone(),
            queue: queue.clone(),
            place: Place::new(queue, &args.from, args.default_exchange),
            prefetch,
            window: args.window,
            bytes_max: bytes_max.max(BYTES_MIN),
            give_up_after: args.give_up_after,
            ends_when_empty: args.until_empty || !args.follow,
            pace: pace.clone(),
            counts: counts.clone(),
            stop: stop.clone(),
            seed: chance.hash_one(at),
        }
    };
    let mut ends: Vec<Ended> = vec![Ok(End::Stopped); counted.len()];
    let mut to_do: VecDeque<usize> = (0..counted.len()).collect();
    let mut running = JoinSet::new();
    loop {
        while running.len() < at_once && !*stop.borrow() {
            let Some(at) = to_do.pop_front() else { break };
            let job = job(at);
            running.spawn(async move { (at, carrier::carry(job).await) });
        }
        match running.join_next().await {
            None => return ends,
            Some(Ok((at, end))) => {
                tell_end(args, &counted[at], &end);
                ends[at] = end;
            }
            Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

/// Says how a queue ended, as soon as it has.
fn tell_end(args: &Args, (queue, counts): &Counted, end: &Ended) {
    counts.ended.store(1, Relaxed);
    counts.ready.store(0, Relaxed);
    let moved = counts.moved.load(Relaxed);
    if args.json {
        let mut line = json!({ "event": "queue", "queue": queue, "end": word(end), "why": null });
        if let (Value::Object(line), Value::Object(counts)) = (&mut line, counts.to_json()) {
            line.extend(counts);
            line.insert(
                "why".into(),
                end.as_ref().err().map_or(Value::Null, |why| why.as_str().into()),
            );
        }
        terminal::say(&line.to_string());
    }
    match end {
        Ok(End::Empty) if args.json => (),
        Ok(End::Empty) => {
            let repeats = repeats(counts);
            let queue = clean(queue);
            terminal::say(&format!(
                "{queue}: {moved} messages moved{repeats}; it is empty at the source"
            ));
        }
        Ok(End::Stopped) if args.json => (),
        Ok(End::Stopped) => {
            let queue = clean(queue);
            terminal::say(&format!("{queue}: {moved} messages moved{}; stopped", repeats(counts)));
        }
        Err(why) => {
            let told = format!("{queue}: {moved} messages moved, then it ended: {why}");
            terminal::remark(&clean(&told));
        }
    }
}

fn word(end: &Ended) -> &'static str {
    match end {
        Ok(End::Empty) => "empty",
        Ok(End::Stopped) => "stopped",
        Err(_) => "failed",
    }
}

fn repeats(counts: &Counts) -> String {
    match counts.repeats.load(Relaxed) {
        0 => String::new(),
        count => format!(", {count} of them may be there twice ({})", place::REPEAT),
    }
}

/// Says how all of it ended, and gives the exit code.
fn conclude(args: &Args, counted: &[Counted], ends: &[Ended], begun: Instant) -> u8 {
    let failed = ends.iter().filter(|end| end.is_err()).count();
    let stopped = ends.iter().filter(|end| matches!(end, Ok(End::Stopped))).count();
    let (moved, repeats) =
        (sum(counted, |counts| &counts.moved), sum(counted, |counts| &counts.repeats));
    let seconds = begun.elapsed().as_secs_f64();
    let code = match (failed, stopped) {
        (0, 0) if repeats > 0 && args.fail_on_repeats => EXIT_REPEATED,
        (0, 0) => 0,
        (0, _) if args.follow => 0,
        (0, _) => EXIT_STOPPED,
        (_, _) => 1,
    };
    if args.json {
        let line = json!({
            "event": "end",
            "queues": counted.len(),
            "failed": failed,
            "stopped": stopped,
            "moved": moved,
            "repeats": repeats,
            "seconds": counts::round(seconds),
            "exit_code": code,
        });
        terminal::say(&line.to_string());
    } else {
        let rate = moved as f64 / seconds.max(1e-6);
        terminal::remark(&format!(
            "{moved} messages moved in {seconds:.1} s, {rate:.0} per second, from {} queues",
            counted.len()
        ));
    }
    if failed > 0 {
        terminal::remark(&format!(
            "{failed} queues could not be moved to their end; the rest is at the source"
        ));
    }
    if code == EXIT_STOPPED {
        terminal::remark(
            "stopped before the end; the rest is at the source: run the command again to go on",
        );
    }
    code
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(words: &[&str]) -> Result<Args, String> {
        let brokers = ["move", "--from", "amqp://ann:hunter2@old", "--to", "amqp://new"];
        let line = Line::try_parse_from(brokers.iter().chain(words));
        line.map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn queues_are_named_or_listed_and_not_both() {
        assert!(
            parsed(&["--queue", "a", "--queue", "b"]).is_ok_and(|args| args.queue == ["a", "b"])
        );
        assert!(parsed(&["--all", "file", "--pattern", "a*"]).is_ok());
        for wrong in [
            &[][..],
            &["--queue", "a", "--all", "file"],
            &["--queue", "a", "--pattern", "a*"],
            &["--queue", "a", "--follow", "--until-empty"],
            &["--queue", "a", "--argument", "x=1"],
            &["--queue", "a", "--rate", "0"],
            &["--queue", "a", "--rate", "fast"],
        ] {
            let told = parsed(wrong).unwrap_err();
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn the_exit_code_says_what_is_left_to_do() {
        let counted: Vec<Counted> =
            ["a", "b"].map(|name| (name.to_owned(), Arc::<Counts>::default())).into();
        let code = |more: &[&str], ends: [Ended; 2]| {
            let args = parsed(&[&["--queue", "a", "--json"][..], more].concat()).unwrap();
            conclude(&args, &counted, &ends, Instant::now())
        };
        let (empty, stopped, failed) = (Ok(End::Empty), Ok(End::Stopped), Err("gone".to_owned()));
        assert_eq!(code(&[], [empty.clone(), empty.clone()]), 0);
        assert_eq!(code(&[], [empty.clone(), stopped.clone()]), EXIT_STOPPED);
        assert_eq!(code(&["--follow"], [stopped.clone(), stopped.clone()]), 0);
        assert_eq!(code(&["--follow"], [stopped, failed.clone()]), 1);
        assert_eq!(code(&[], [empty.clone(), failed]), 1);
        counts::add(&counted[0].1.repeats, 1);
        assert_eq!(code(&[], [empty.clone(), empty.clone()]), 0);
        assert_eq!(code(&["--fail-on-repeats"], [empty.clone(), empty]), EXIT_REPEATED);
    }
}
