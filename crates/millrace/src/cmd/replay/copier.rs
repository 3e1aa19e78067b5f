//! Copies one partition of a stream: a reader, and a publisher with a window.
#![allow(clippy::disallowed_methods, reason = "a command reads clocks")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use bytes::BytesMut;
use client::{Address, Consumer, ConsumerOptions, Delivery, Outcome, Publisher, Verdict};
use machine::Matcher;
use tokio::sync::watch;

use super::book::Book;
use super::place::{self, OFFSET, Range, Source};
use super::progress::Progress;
use super::{Args, End, Pace, Way, asked, at_stream, at_target};

/// Headers of what is copied.
const REPLAYED_OFFSET: &str = "x-replayed-offset";
const REPLAYED_FROM: &str = "x-replayed-from";
const REPLAYED_PARTITION: &str = "x-replayed-partition";
/// The header of what a stream of several partitions delivers.
const STREAM_PARTITION: &str = "x-stream-partition";
/// How long confirms are waited for at the end.
const END_WAIT: Duration = Duration::from_secs(10);

pub(super) struct Copier<'a> {
    args: &'a Args,
    source: Source<'a>,
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
    pub(super) async fn open(
        args: &'a Args,
        source: Source<'a>,
        range: &Range,
        way: &'a Way,
        progress: Arc<Progress>,
    ) -> Result<Self, String> {
        let publisher = Publisher::open(&args.amqp, source.options, args.window.into()).await;
        Ok(Self {
            consumer: reader(args, &source, range.from).await?,
            publisher: publisher.map_err(|error| at_target(&error))?,
            args,
            source,
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

    pub(super) async fn run(&mut self, stop: &mut watch::Receiver<bool>) -> Result<End, String> {
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
        let headers = marked(&properties, &self.source, offset);
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
        self.consumer = reader(self.args, &self.source, self.next).await?;
        self.life += 1;
        Ok(())
    }

    /// Lets what was sent be confirmed.
    pub(super) async fn finish(mut self, end: Result<End, String>) -> Result<End, String> {
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
async fn reader(args: &Args, source: &Source<'_>, from: u64) -> Result<Consumer, String> {
    let offset = i64::try_from(from).map_err(|_| "there is no such offset")?;
    let how = ConsumerOptions {
        prefetch: args.window,
        ack_every: (usize::from(args.window) / 4).clamp(1, 100),
        arguments: source.reader(FieldValue::I64(offset)),
        ..ConsumerOptions::default()
    };
    place::open(source, how).await
}

/// The headers of a message as it is copied: whence it came, in place of where it lay.
fn marked(properties: &Properties<'_>, source: &Source<'_>, offset: u64) -> BytesMut {
    const OLD: [&str; 5] =
        [OFFSET, STREAM_PARTITION, REPLAYED_OFFSET, REPLAYED_FROM, REPLAYED_PARTITION];
    let FieldTable(mut fields) = properties.headers.map(|it| it.to_table()).unwrap_or_default();
    fields.retain(|(name, _)| !OLD.contains(&name.as_str()));
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    fields.push((REPLAYED_OFFSET.to_owned(), FieldValue::I64(offset)));
    if let Some(partition) = source.partition {
        fields.push((REPLAYED_PARTITION.to_owned(), FieldValue::I64(partition.into())));
    }
    let stream = source.stream.as_bytes().to_vec();
    fields.push((REPLAYED_FROM.to_owned(), FieldValue::LongStr(stream)));
    FieldTable(fields).to_bytes()
}
