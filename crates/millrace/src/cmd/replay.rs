//! `millrace stream replay`: a part of a stream, copied in order into a queue or an exchange.
//!
//! A reader of the stream, and a publisher with a window. The stream is read no further than the window is long, because
//! what is read makes room only when the target has confirmed it (`book`). Where it stands is the first message that is
//! not confirmed: to begin there again loses nothing.
#![allow(
    clippy::disallowed_methods,
    reason = "a command reads clocks, starts tasks and talks to its user"
)]

mod book;
mod place;
mod progress;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use bytes::BytesMut;
use client::{
    Address, Connection, Consumer, ConsumerOptions, Delivery, Options, Outcome, Publisher, Url,
    Verdict,
};
use machine::{Filter, Matcher};
use serde_json::json;
use service::io::{screen, stop};
use tokio::sync::watch;

use super::mover::pace::Pace;
use super::mover::place::Place;
use super::terminal;
use super::url::UrlParser;
use crate::table::clean;
use book::Book;
use place::{OFFSET, Range, Start};
use progress::{Progress, Screen};

pub(crate) const HELP: &str = "\
Places in a stream:
  first, next          the oldest message that is kept; behind the last one there is now
  4711                 an offset
  6h, 7D, @1767225600  what came in this time; what came then or later, in seconds since 1970: up to a second too early
--to is the first message that is not copied.

Messages keep their properties, headers and, with --into, their routing keys; they get the headers x-replayed-offset and
x-replayed-from. A message that is copied a second time because a connection was lost has the same offset.

Exit codes:
  0    all was copied
  1    it ended before: the reason and the offset are on standard error, --from OFFSET goes on there
  2    the command line is wrong
  4    a stop was asked for: --from OFFSET goes on there";

/// A stop was asked for.
const EXIT_STOPPED: u8 = 4;
/// Headers of what is copied.
const REPLAYED_OFFSET: &str = "x-replayed-offset";
const REPLAYED_FROM: &str = "x-replayed-from";
/// How long confirms are waited for at the end.
const END_WAIT: Duration = Duration::from_secs(10);

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
    let next = progress.next();
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
            "next_offset": next,
            "why": end.as_ref().err(),
            "exit_code": code,
        });
        terminal::say(&line.to_string());
    }
    if let Err(why) = end {
        terminal::remark(&clean(&format!("millrace stream replay: {why}")));
    }
    let stands = next.map_or(String::new(), |next| match end {
        Ok(End::Done) => format!("; the next offset is {next}"),
        Ok(End::Stopped) | Err(_) => format!("; --from {next} goes on"),
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
    let range = tokio::select! {
        range = place::range(&args.amqp, &options, &args.stream, (&args.from, &args.to)) => range?,
        () = asked(&mut stop) => return Ok(End::Stopped),
    };
    progress.begin(&range);
    if range.is_empty() {
        return Ok(End::Done);
    }
    let way = Way::open(args, &options).await?;
    let screen = Screen::new(progress.clone());
    let screen = tokio::spawn(screen::show(screen, args.report_every, is_json));
    let mut copier = Copier::open(args, &options, &range, &way, progress.clone()).await?;
    let end = copier.run(&mut stop).await;
    let end = copier.finish(end).await;
    screen.abort();
    way.close(args, &options).await;
    end
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

struct Copier<'a> {
    args: &'a Args,
    options: &'a Options,
    way: &'a Way,
    consumer: Consumer,
    /// Counts the consumers that there were.
    life: u32,
    publisher: Publisher,
    matcher: Option<Matcher>,
    pace: Option<Arc<Pace>>,
    book: Book<(u32, client::DeliveryTag)>,
    /// The next offset to read, and the first that is not copied.
    next: u64,
    end: u64,
    /// What was read and waits for its turn.
    waiting: Option<(u64, Delivery)>,
    has_permit: bool,
    verdicts: Vec<Verdict>,
    progress: Arc<Progress>,
}

impl<'a> Copier<'a> {
    async fn open(
        args: &'a Args,
        options: &'a Options,
        range: &Range,
        way: &'a Way,
        progress: Arc<Progress>,
    ) -> Result<Self, String> {
        let publisher = Publisher::open(&args.amqp, options, args.window.into()).await;
        Ok(Self {
            consumer: reader(args, options, range.from).await?,
            publisher: publisher.map_err(|error| at_target(&error))?,
            args,
            options,
            way,
            life: 0,
            matcher: args.filter.as_ref().map(Matcher::new),
            pace: args.rate.map(Pace::start),
            book: Book::new(range.from),
            next: range.from,
            end: range.to,
            waiting: None,
            has_permit: false,
            verdicts: Vec::new(),
            progress,
        })
    }

    async fn run(&mut self, stop: &mut watch::Receiver<bool>) -> Result<End, String> {
        loop {
            self.copy()?;
            if self.waiting.is_none() && self.next >= self.end && self.book.is_empty() {
                self.progress.at(self.end);
                return Ok(End::Done);
            }
            let wants_permit = self.waiting.is_some() && !self.has_permit;
            let pace = self.pace.as_deref().filter(|_| wants_permit);
            let permit = async {
                match pace {
                    Some(pace) => pace.take().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                driven = self.consumer.drive() => if let Err(error) = driven {
                    self.read_again(&error).await?;
                },
                driven = self.publisher.drive(&mut self.verdicts) => {
                    driven.map_err(|error| at_target(&error))?;
                    self.judge()?;
                }
                () = permit => self.has_permit = true,
                () = asked(stop) => return Ok(End::Stopped),
            }
        }
    }

    /// Publishes what is there, as far as the window and the rate allow.
    fn copy(&mut self) -> Result<(), String> {
        loop {
            if self.waiting.is_none() && !self.take()? {
                return Ok(());
            }
            let Some((offset, delivery)) = self.waiting.take() else { return Ok(()) };
            if self.pace.is_some() && !self.has_permit {
                self.waiting = Some((offset, delivery));
                return Ok(());
            }
            let published = self.publish(offset, &delivery);
            match published.map_err(|why| format!("the message at offset {offset}: {why}"))? {
                Some(seq) => {
                    self.has_permit = false;
                    self.book.sent(offset, seq, (self.life, delivery.tag));
                }
                None => {
                    self.waiting = Some((offset, delivery));
                    return Ok(());
                }
            }
        }
    }

    /// Takes the next message that is to be copied. False: it is not here, or there is none.
    fn take(&mut self) -> Result<bool, String> {
        while self.next < self.end
            && let Some(delivery) = self.consumer.try_next()
        {
            let offset = place::offset_of(&delivery)?;
            self.next = offset + 1;
            if offset >= self.end {
                // What lay before is gone.
                break;
            }
            if self.is_wanted(&delivery)? {
                self.waiting = Some((offset, delivery));
                return Ok(true);
            }
            self.progress.passed.fetch_add(1, Relaxed);
            self.book.passed(offset);
            self.consumer.settle(delivery.tag, Outcome::Done).map_err(|error| at_stream(&error))?;
            self.progress.at(self.book.next());
        }
        Ok(false)
    }

    fn is_wanted(&mut self, delivery: &Delivery) -> Result<bool, String> {
        let Some(matcher) = &mut self.matcher else { return Ok(true) };
        let properties = delivery.properties().map_err(|error| at_stream(&error))?;
        let mut head = BytesMut::new();
        let (exchange, key) = (delivery.exchange(), delivery.routing_key());
        broker::stored::write_head(exchange, key, &properties, &mut head);
        Ok(matcher.matches(&head))
    }

    fn publish(
        &mut self,
        offset: u64,
        delivery: &Delivery,
    ) -> Result<Option<client::PublishSeq>, String> {
        let properties = delivery.properties().map_err(|error| error.to_string())?;
        let headers = marked(&properties, offset, &self.args.stream);
        let headers = Some(TableRef::validate(&headers).map_err(|error| error.to_string())?);
        let to = Address {
            exchange: &self.way.exchange,
            routing_key: self.way.key.as_deref().unwrap_or(delivery.routing_key()),
            mandatory: true,
        };
        let properties = Properties { headers, ..properties };
        let published = self.publisher.try_publish(to, &properties, &delivery.body);
        published.map_err(|error| error.to_string())
    }

    /// What the target says of what was sent. What it does not take ends the replay.
    fn judge(&mut self) -> Result<(), String> {
        let mut refused: Option<(u64, String)> = None;
        for verdict in std::mem::take(&mut self.verdicts) {
            let (offset, why) = match verdict {
                Verdict::Confirmed(run) => {
                    self.progress.copied.fetch_add(run.count(), Relaxed);
                    for (life, tag) in self.book.confirmed(run) {
                        if life == self.life {
                            let settled = self.consumer.settle(tag, Outcome::Done);
                            settled.map_err(|error| at_stream(&error))?;
                        }
                    }
                    continue;
                }
                Verdict::Refused(run) => {
                    (self.book.offset_of(run.first), "basic.nack: is the queue full?".to_owned())
                }
                Verdict::Returned { seq, code, text } => {
                    (self.book.offset_of(seq), format!("{code} {text}"))
                }
            };
            let Some(offset) = offset else { continue };
            if refused.as_ref().is_none_or(|(first, _)| offset < *first) {
                refused = Some((offset, why));
            }
        }
        self.progress.at(self.book.next());
        refused.map_or(Ok(()), |(offset, why)| {
            Err(format!("the target does not take the message at offset {offset}: {why}"))
        })
    }

    /// The stream's connection is gone: reading goes on at the next message.
    async fn read_again(&mut self, error: &client::Error) -> Result<(), String> {
        if !error.is_temporary() {
            return Err(at_stream(error));
        }
        tracing::warn!(%error, offset = self.next, "the stream was lost; reading goes on");
        self.consumer = reader(self.args, self.options, self.next).await?;
        self.life += 1;
        Ok(())
    }

    /// Lets what was sent be confirmed.
    async fn finish(mut self, end: Result<End, String>) -> Result<End, String> {
        let end_at = tokio::time::Instant::now() + END_WAIT;
        let mut end = end;
        while self.book.has_sent() {
            tokio::select! {
                driven = self.publisher.drive(&mut self.verdicts) => if driven.is_err() { break },
                () = tokio::time::sleep_until(end_at) => break,
            }
            if let Err(why) = self.judge() {
                // Where it stands is before that.
                end = end.and(Err(why));
            }
            if end.is_err() {
                // Where the first refusal was nothing moves any more.
                break;
            }
        }
        let _ = tokio::time::timeout(END_WAIT, self.publisher.close()).await;
        let _ = tokio::time::timeout(END_WAIT, self.consumer.close()).await;
        end
    }
}

/// Reads the stream from this offset on. A lost connection is an error at once: it would begin there again.
async fn reader(args: &Args, options: &Options, from: u64) -> Result<Consumer, String> {
    let offset = i64::try_from(from).map_err(|_| "there is no such offset")?;
    let mut arguments = FieldTable::new();
    arguments.insert(OFFSET, FieldValue::I64(offset));
    let how = ConsumerOptions {
        prefetch: args.window,
        ack_every: (usize::from(args.window) / 4).clamp(1, 100),
        arguments,
        ..ConsumerOptions::default()
    };
    place::open(&args.amqp, options, &args.stream, how).await
}

/// The headers of a message as it is copied: whence it came, in place of where it lay.
fn marked(properties: &Properties<'_>, offset: u64, stream: &str) -> BytesMut {
    let FieldTable(mut fields) = properties.headers.map(|it| it.to_table()).unwrap_or_default();
    fields.retain(|(name, _)| ![OFFSET, REPLAYED_OFFSET, REPLAYED_FROM].contains(&name.as_str()));
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    fields.push((REPLAYED_OFFSET.to_owned(), FieldValue::I64(offset)));
    fields.push((REPLAYED_FROM.to_owned(), FieldValue::LongStr(stream.as_bytes().to_vec())));
    FieldTable(fields).to_bytes()
}

fn at_stream(error: &client::Error) -> String {
    format!("at the stream: {error}")
}

fn at_target(error: &client::Error) -> String {
    format!("at the target: {error}")
}
