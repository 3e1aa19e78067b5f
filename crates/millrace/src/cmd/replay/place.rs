//! Places in a stream as a user names them, the partitions that it has, and the offsets that the places are in each.

use std::time::Duration;

use amqp::{FieldTable, FieldValue, Widened};
use client::{Connection, Consumer, ConsumerOptions, Delivery, Options, Url};

/// The consumer's argument and the header.
pub(super) const OFFSET: &str = "x-stream-offset";
const PARTITION: &str = "x-partition";
/// No stream has this one: a broker that tells of it nevertheless knows no partitions.
const NO_PARTITION: u16 = u16::MAX;
/// What refuses a partition that is not there.
const PRECONDITION_FAILED: u16 = 406;
/// How long the first message of a place is waited for that may have none.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// How often retention may come between two looks at a stream.
const LOOKS_MAX: u32 = 10;

/// A place as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    First,
    /// Behind the last message.
    Next,
    At(u64),
    /// Seconds since 1970.
    Time(u64),
    /// `6h`.
    Age(String),
}

pub(super) fn parse(text: &str) -> Result<Start, String> {
    let digits = |text: &str| text.parse().ok();
    let unit = text.strip_suffix(['Y', 'M', 'D', 'h', 'm', 's']);
    Ok(match text {
        "first" => Start::First,
        "next" => Start::Next,
        _ => {
            match (digits(text), text.strip_prefix('@').and_then(digits), unit.and_then(digits)) {
                (Some(offset), _, _) => Start::At(offset),
                (_, Some(seconds), _) => Start::Time(seconds),
                (_, _, Some(1..)) => Start::Age(text.to_owned()),
                (None, None, Some(0) | None) => {
                    return Err("a place is first, next, an offset, an age as 6h or 7D, or @SECONDS since 1970".into());
                }
            }
        }
    })
}

/// What is copied: from one offset up to before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Range {
    pub(super) fn is_empty(&self) -> bool {
        self.from >= self.to
    }
}

/// What is read of a stream: all of it, or one of several partitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) url: &'a Url,
    pub(super) options: &'a Options,
    pub(super) stream: &'a str,
    /// None: the stream has one, or the broker knows no partitions.
    pub(super) partition: Option<u16>,
}

impl Source<'_> {
    /// The arguments of a reader that begins there.
    pub(super) fn reader(&self, offset: FieldValue) -> FieldTable {
        let mut arguments = FieldTable::new();
        arguments.insert(OFFSET, offset);
        if let Some(partition) = self.partition {
            arguments.insert(PARTITION, FieldValue::I32(partition.into()));
        }
        arguments
    }
}

/// The numbers of a stream's partitions. None: it has one, or the broker knows no partitions.
///
/// # Errors
/// In words: the stream cannot be asked about.
pub(super) async fn partitions(
    url: &Url,
    options: &Options,
    stream: &str,
) -> Result<Option<u16>, String> {
    let mut connection =
        Connection::open(url, options).await.map_err(|error| super::at_stream(&error))?;
    let mut count = 0;
    let is_there = async |connection: &mut Connection, number| match connection
        .look_up_partition(stream, number)
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(PRECONDITION_FAILED) => Ok(false),
        Err(error) => Err(super::at_stream(&error)),
    };
    if !is_there(&mut connection, NO_PARTITION).await? {
        while is_there(&mut connection, count).await? {
            count += 1;
        }
    }
    let _ = connection.close().await;
    Ok(Some(count).filter(|count| *count > 1))
}

/// The offsets of what is between two places now.
///
/// # Errors
/// In words: the stream cannot be read.
pub(super) async fn range(
    source: &Source<'_>,
    (from, to): (&Start, &Start),
) -> Result<Range, String> {
    let (first, next) = ends(source).await?;
    let mut offsets = [0, 0];
    for (offset, place) in offsets.iter_mut().zip([from, to]) {
        *offset = match place {
            Start::First => first,
            Start::Next => next,
            Start::At(offset) => *offset,
            Start::Time(seconds) => {
                let value = FieldValue::Timestamp(*seconds);
                first_at(source, value).await?.unwrap_or(next)
            }
            Start::Age(age) => {
                let value = FieldValue::LongStr(age.as_bytes().to_vec());
                first_at(source, value).await?.unwrap_or(next)
            }
        };
    }
    let [from, to] = offsets;
    if to > next {
        return Err(format!("the stream ends before offset {to}: its next offset is {next}"));
    }
    Ok(Range { from: from.max(first), to })
}

/// The offsets of the oldest message that is kept and of the next that comes.
async fn ends(source: &Source<'_>) -> Result<(u64, u64), String> {
    let first = || FieldValue::LongStr(b"first".to_vec());
    let mut before = None;
    for _ in 0..LOOKS_MAX {
        let count = count(source).await?;
        let Some(oldest) = first_at(source, first()).await? else {
            return match count {
                0 => Ok((0, 0)),
                _ => Err(format!("the stream gives none of its {count} messages")),
            };
        };
        // What retention removed meanwhile is counted, or not.
        if before == Some((oldest, count)) {
            return Ok((oldest, oldest + count));
        }
        before = Some((oldest, count));
    }
    // Messages come all the time: those of the last look are there.
    before.map(|(oldest, count)| (oldest, oldest + count)).ok_or_else(String::new)
}

async fn count(source: &Source<'_>) -> Result<u64, String> {
    let told = |error: client::Error| super::at_stream(&error);
    let mut connection = Connection::open(source.url, source.options).await.map_err(told)?;
    let found = match source.partition {
        Some(partition) => connection.look_up_partition(source.stream, partition).await,
        None => connection.look_up_queue(source.stream).await,
    };
    let _ = connection.close().await;
    Ok(found.map_err(told)?.message_count.into())
}

/// The offset of the first message of a place. None: none comes.
async fn first_at(source: &Source<'_>, offset: FieldValue) -> Result<Option<u64>, String> {
    let arguments = source.reader(offset);
    let how = ConsumerOptions { prefetch: 1, arguments, ..ConsumerOptions::default() };
    let mut consumer = open(source, how).await?;
    let first = match tokio::time::timeout(FIRST_WAIT, consumer.next()).await {
        Ok(Ok(delivery)) => Some(offset_of(&delivery)?),
        Ok(Err(error)) => return Err(super::at_stream(&error)),
        Err(_) => None,
    };
    let _ = consumer.close().await;
    Ok(first)
}

/// A reader that ends with its connection.
pub(super) async fn open(source: &Source<'_>, how: ConsumerOptions) -> Result<Consumer, String> {
    let Source { url, options, stream, .. } = *source;
    // It is tried again to connect, and never to go on: that would begin anew.
    let until = tokio::time::Instant::now() + options.retry_for;
    let mut wait = Duration::from_millis(100);
    let once = options.clone().without_retry();
    loop {
        match Consumer::open(url, &once, stream, how.clone()).await {
            Ok(consumer) => return Ok(consumer),
            Err(error) if error.is_temporary() && tokio::time::Instant::now() + wait < until => {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(5));
            }
            Err(error) => return Err(super::at_stream(&error)),
        }
    }
}

/// Where a message lies.
///
/// # Errors
/// It is of no stream.
pub(super) fn offset_of(delivery: &Delivery) -> Result<u64, String> {
    let properties = delivery.properties().map_err(|error| super::at_stream(&error))?;
    let value = properties.headers.and_then(|headers| headers.find(OFFSET));
    match value.map(|value| value.widened()) {
        Some(Widened::Integer(offset)) => u64::try_from(offset).map_err(|error| error.to_string()),
        Some(_) | None => Err("it is no stream: its messages have no x-stream-offset".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_words_offsets_times_and_ages() {
        for (text, place) in [
            ("first", Start::First),
            ("next", Start::Next),
            ("0", Start::At(0)),
            ("@1767225600", Start::Time(1_767_225_600)),
            ("6h", Start::Age("6h".into())),
        ] {
            assert_eq!(parse(text), Ok(place));
        }
        for wrong in ["", "last", "-1", "@", "0s", "6x", "h", "1.5h"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
