//! `millrace stream replay`: a part of a stream, copied in order into a queue or an exchange.
//!
//! A reader of the stream, and a publisher with a window (`copier`). The stream is read no further than the window is long,
//! because what is read makes room only when the target has confirmed it (`book`). Where it stands is the first message
//! that is not confirmed: to begin there again loses nothing. Partitions are copied one after the other: between them there
//! is no order to keep.
#![allow(
    clippy::disallowed_methods,
    reason = "a command reads clocks, starts tasks and talks to its user"
)]

mod book;
mod copier;
mod place;
mod progress;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use client::{Connection, Options, Url};
use machine::Filter;
use serde_json::json;
use service::io::{screen, stop};
use tokio::sync::watch;

use super::mover::pace::Pace;
use super::mover::place::Place;
use super::terminal;
use super::url::UrlParser;
use crate::table::clean;
use copier::Copier;
use place::{Source, Start};
use progress::{Part, Progress, Screen};

pub(crate) const HELP: &str = "\
Places in a stream:
  first, next          the oldest message that is kept; behind the last one there is now
  4711                 an offset
  6h, 7D, @1767225600  what came in this time; what came then or later, in seconds since 1970: up to a second too early
--to is the first message that is not copied.

The partitions of a stream are copied one after the other, each between these places; offsets are a partition's own, so
they need --partition.

Messages keep their properties, headers and, with --into, their routing keys; they get the headers x-replayed-offset,
x-replayed-from and, from one of several partitions, x-replayed-partition. A message that is copied a second time
because a connection was lost has the same offset.

Exit codes:
  0    all was copied
  1    it ended before: the reason and the place are on standard error; the options that it names go on there
  2    the command line is wrong
  4    a stop was asked for: likewise";

/// A stop was asked for.
const EXIT_STOPPED: u8 = 4;

/// Copy a part of a stream into a queue or an exchange: in order, at least once, resumable
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The stream
    stream: String,
    /// The broker: amqp://user:password@host:port/vhost, or amqps:// for TLS (?cacertfile=ca.pem)
    #[arg(
        long,
        value_name = "URL",
        env = "AMQP_URL",
        hide_env_values = true,
        value_parser = UrlParser,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    amqp: Url,
    /// Where to begin: first, an offset, an age as 6h, or @SECONDS since 1970
    #[arg(long, value_name = "PLACE", value_parser = place::parse)]
    from: Start,
    /// The first message that is not copied, likewise; next: what there is now
    #[arg(long, value_name = "PLACE", default_value = "next", value_parser = place::parse)]
    to: Start,
    /// Copy only this partition; may be given several times
    #[arg(long, value_name = "NUMBER")]
    partition: Vec<u16>,
    /// The queue that gets the messages
    #[arg(
        long,
        value_name = "QUEUE",
        required_unless_present = "exchange",
        conflicts_with = "exchange"
    )]
    into: Option<String>,
    /// The exchange that gets them
    #[arg(long, value_name = "EXCHANGE")]
    exchange: Option<String>,
    /// With --exchange: the routing key [default: that of each message]
    #[arg(long, value_name = "KEY", requires = "exchange")]
    key: Option<String>,
    /// Copy only what matches: topic patterns as 'orders.*.eu, refunds.#', or header:NAME=VALUE
    #[arg(long, value_name = "FILTER", value_parser = filter)]
    filter: Option<Filter>,
    /// Copy at most so many messages: 500/s, 1000/m or 10/h
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// Maximum number of messages on their way
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// How often to show progress; 0s never [default: 1s on a terminal or with --json, 10s in a log]
    #[arg(long, value_name = "TIME", value_parser = super::bench::duration)]
    report_every: Option<Duration>,
}

fn filter(text: &str) -> Result<Filter, String> {
    let why =
        "topic patterns, such as orders.*.eu, or header:NAME=VALUE; at most 64 and 1,024 bytes";
    broker::filter::from_text(text).map_err(|_| format!("a filter is {why}"))
}

/// Messages a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = broker::rate::messages(text).ok_or("a rate is as 500/s, 1000/m or 10/h")?;
    Ok(rate.count() as f64 * 1000.0 / rate.per_ms() as f64)
}

/// How it ended, where nothing was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Stopped,
}

pub(crate) fn run(args: &Args, is_json: bool, vhost: Option<&str>) -> ExitCode {
    super::log::begin("warn", super::log::LogFormat::Text);
    let mut args = args.clone();
    if let Some(vhost) = vhost {
        vhost.clone_into(&mut args.amqp.vhost);
    }
    let progress = Arc::<Progress>::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let end = match runtime {
        Ok(runtime) => runtime.block_on(replay(&args, is_json, &progress)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    ExitCode::from(conclude(&end, is_json, &progress))
}

/// Says how it ended, and gives the exit code.
fn conclude(end: &Result<End, String>, is_json: bool, progress: &Progress) -> u8 {
    let (copied, passed) = (progress.copied.load(Relaxed), progress.passed.load(Relaxed));
    let place = progress.place();
    let (word, code) = match end {
        Ok(End::Done) => ("done", 0),
        Ok(End::Stopped) => ("stopped", EXIT_STOPPED),
        Err(_) => ("failed", 1),
    };
    if is_json {
        let line = json!({
            "event": "end",
            "end": word,
            "copied": copied,
            "passed_over": passed,
            "partition": place.as_ref().and_then(|place| place.partition),
            "next_offset": place.as_ref().map(|place| place.next),
            "not_begun": place.as_ref().map(|place| &place.not_begun),
            "why": end.as_ref().err(),
            "exit_code": code,
        });
        terminal::say(&line.to_string());
    }
    if let Err(why) = end {
        terminal::remark(&clean(&format!("millrace stream replay: {why}")));
    }
    let stands = place.map_or(String::new(), |place| match end {
        Ok(End::Done) => place.after(),
        Ok(End::Stopped) | Err(_) => place.to_go_on(),
    });
    if !is_json || end.is_err() {
        let also = if passed > 0 { format!(", {passed} passed over") } else { String::new() };
        terminal::remark(&format!("{copied} messages copied{also}{stands}"));
    }
    code
}

async fn replay(args: &Args, is_json: bool, progress: &Arc<Progress>) -> Result<End, String> {
    let mut stop = stop::on_signals("what is on its way is confirmed first");
    let options = Options::named("millrace stream replay");
    let parts = tokio::select! {
        parts = parts(args, &options) => parts?,
        () = asked(&mut stop) => return Ok(End::Stopped),
    };
    progress.begin(parts.clone());
    if parts.iter().all(|part| part.range.is_empty()) {
        return Ok(End::Done);
    }
    let way = Way::open(args, &options).await?;
    let screen = Screen::new(progress.clone());
    let screen = tokio::spawn(screen::show(screen, args.report_every, is_json));
    let end = copy_all(args, &options, &parts, &way, progress, &mut stop).await;
    screen.abort();
    way.close(args, &options).await;
    end
}

/// What is to be copied, partition by partition.
async fn parts(args: &Args, options: &Options) -> Result<Vec<Part>, String> {
    let partitions = match place::partitions(&args.amqp, options, &args.stream).await? {
        Some(count) if args.partition.is_empty() => (0..count).map(Some).collect(),
        None if args.partition.iter().all(|partition| *partition == 0) => vec![None],
        count => named(&args.partition, count.unwrap_or(1))?,
    };
    let is_offset = |place: &Start| matches!(place, Start::At(_));
    if partitions.len() > 1 && [&args.from, &args.to].into_iter().any(is_offset) {
        return Err("an offset is a partition's own: name one partition with --partition".into());
    }
    let mut parts = Vec::new();
    for partition in partitions {
        let range = place::range(&source(args, options, partition), (&args.from, &args.to)).await?;
        parts.push(Part { partition, range });
    }
    Ok(parts)
}

/// The partitions that were named, of so many.
fn named(numbers: &[u16], count: u16) -> Result<Vec<Option<u16>>, String> {
    match numbers.iter().find(|number| **number >= count) {
        Some(number) => Err(format!(
            "there is no partition {number}: the stream has the partitions 0 to {}",
            count - 1
        )),
        // One that is named twice is copied once.
        None => Ok(BTreeSet::from_iter(numbers).into_iter().copied().map(Some).collect()),
    }
}

fn source<'a>(args: &'a Args, options: &'a Options, partition: Option<u16>) -> Source<'a> {
    Source { url: &args.amqp, options, stream: &args.stream, partition }
}

/// Copies one after the other, until one does not end well.
async fn copy_all(
    args: &Args,
    options: &Options,
    parts: &[Part],
    way: &Way,
    progress: &Arc<Progress>,
    stop: &mut watch::Receiver<bool>,
) -> Result<End, String> {
    for (turn, Part { partition, range }) in parts.iter().enumerate() {
        progress.turn(turn);
        if range.is_empty() {
            continue;
        }
        let source = source(args, options, *partition);
        let mut copier = Copier::open(args, source, range, way, progress.clone()).await?;
        let end = copier.run(stop).await;
        let end = copier.finish(end).await?;
        if end == End::Stopped {
            return Ok(end);
        }
    }
    Ok(End::Done)
}

/// When a stop is asked for.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_asked| *is_asked).await.is_err() {
        // Whoever could ask is gone.
        std::future::pending::<()>().await;
    }
}

/// How messages are addressed.
struct Way {
    /// Of a queue: an exchange of its own, so that messages keep their routing keys.
    place: Option<Place>,
    exchange: String,
    key: Option<String>,
}

impl Way {
    async fn open(args: &Args, options: &Options) -> Result<Self, String> {
        let Some(queue) = &args.into else {
            let exchange = args.exchange.clone().unwrap_or_default();
            return Ok(Self { place: None, exchange, key: args.key.clone() });
        };
        if *queue == args.stream {
            return Err("the stream would be copied into itself, and that never ends".to_owned());
        }
        let place = Place::new(queue, &args.amqp, false);
        let exchange = place.exchange().unwrap_or_default().to_owned();
        let mut target =
            Connection::open(&args.amqp, options).await.map_err(|error| at_target(&error))?;
        place.prepare(&mut target).await.map_err(|error| at_target(&error))?;
        let _ = target.close().await;
        Ok(Self { place: Some(place), exchange, key: None })
    }

    /// Takes the way away. One that stays does no harm.
    async fn close(&self, args: &Args, options: &Options) {
        let Some(place) = &self.place else { return };
        let options = options.clone().without_retry();
        if let Ok(mut target) = Connection::open(&args.amqp, &options).await {
            let _ = place.remove(&mut target).await;
            let _ = target.close().await;
        }
    }
}

fn at_stream(error: &client::Error) -> String {
    format!("at the stream: {error}")
}

fn at_target(error: &client::Error) -> String {
    format!("at the target: {error}")
}
