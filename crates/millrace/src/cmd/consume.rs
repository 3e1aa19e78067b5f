//! `millrace consume`: messages of a queue to standard output.
#![allow(clippy::disallowed_methods, reason = "a command reads clocks and talks to its user")]

mod listener;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use amqp::{ArrayRef, Properties, TableRef, ValueRef, Widened};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use client::{Connection, Consumer, ConsumerOptions, Delivery, Options, Outcome, QueueSpec, Url};
use listener::Listener;
use serde_json::{Map, Value, json};

use super::bench::options::{Argument, argument};
use super::terminal;
use super::url::UrlParser;

const EXAMPLES: &str = "\
Examples:
  millrace consume --queue greetings                   until Ctrl-C, one line a message
  millrace consume --queue greetings --count 10
  millrace consume --queue orders --format json | jq .routing_key
  millrace consume --queue orders --count 1 --ack-mode requeue
                                                       look at the first and leave it there
  millrace consume --queue orders --idle 2s > backup   take all there is, stop after 2 quiet seconds
  millrace consume --queue events --argument x-stream-offset=first
                                                       read a stream from its oldest message on
  millrace consume --url 'amqps://app:secret@broker.example?cacertfile=ca.pem' --queue orders

The command acknowledges a message after writing it to standard output; if standard output is a pipe, after its reader
has taken it. When you stop the command, or its reader ends, all other messages go back to the queue. A reader takes
more than it shows (`head -3` reads thousands of bytes at once): use --count 3 to take three messages. With
x-stream-offset the command ends if the connection is lost: it would begin anew. JSON lines hold
body (text) or body_base64, exchange, routing_key, redelivered, properties and headers.";

/// Write the messages of a queue to standard output
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The broker: amqp://user:password@host:port/vhost, or amqps:// for TLS (?cacertfile=ca.pem)
    #[arg(
        long,
        env = "AMQP_URL",
        hide_env_values = true,
        value_parser = UrlParser,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    url: Url,
    /// Name of the queue
    #[arg(long, short, value_name = "NAME")]
    queue: String,
    /// Declare the queue, durable, if it is missing
    #[arg(long)]
    declare: bool,
    /// Stop after this many messages
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop when no message has come for this time (2s, 500ms)
    #[arg(long, value_parser = super::bench::duration)]
    idle: Option<Duration>,
    /// Maximum number of unacknowledged messages
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    prefetch: u16,
    /// An argument of the consumer, such as x-priority=5, or x-stream-offset=first for a stream (repeatable)
    #[arg(long = "argument", value_name = "NAME=VALUE", value_parser = argument)]
    arguments: Vec<Argument>,
    /// What to do with a message after writing it
    #[arg(long, value_enum, default_value_t = AckMode::Ack)]
    ack_mode: AckMode,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Body)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AckMode {
    /// Acknowledge the message: the server forgets it
    Ack,
    /// Put the message back into the queue
    Requeue,
    /// Reject the message: the server dead-letters or drops it
    Reject,
    /// Consume without acknowledgements: the server forgets a message when it sends it, before it is written
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The body and a newline
    Body,
    /// The body only
    Raw,
    /// One JSON object per line, with properties
    Json,
}

/// Where in a stream a consumer begins.
const OFFSET: &str = "x-stream-offset";

/// How often is looked whether the reader of standard output has taken something: soon, and then less often.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(50);

/// Consumes until the count is reached, nothing comes, or Ctrl-C.
pub(crate) fn run(args: Args) -> ExitCode {
    // The client says when a connection is lost.
    super::log::begin("warn", super::log::LogFormat::Text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(consume(&args)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            terminal::remark(&format!("millrace consume: {why}"));
            ExitCode::FAILURE
        }
    }
}

async fn consume(args: &Args) -> Result<(), String> {
    let plain = |error: client::Error| error.to_string();
    let options = Options::named("millrace consume");
    // Without another attempt: a wrong address or login is told at once. Later losses are waited out.
    let mut connection =
        Connection::open(&args.url, &options.clone().without_retry()).await.map_err(plain)?;
    if args.declare {
        connection.declare_queue(&QueueSpec::durable(&args.queue)).await.map_err(plain)?;
    }
    connection.close().await.map_err(plain)?;
    // Not more than is wanted: the rest would come back to the queue as redelivered.
    let wanted = args.count.unwrap_or(u64::MAX).min(args.prefetch.into());
    let options = match args.arguments.iter().any(|argument| argument.name == OFFSET) {
        true => options.without_retry(),
        false => options,
    };
    let arguments = args.arguments.iter();
    let arguments =
        arguments.map(|argument| (argument.name.clone(), argument.value.clone())).collect();
    let how = ConsumerOptions {
        arguments,
        prefetch: u16::try_from(wanted).unwrap_or(u16::MAX),
        no_ack: args.ack_mode == AckMode::Auto,
        ..ConsumerOptions::default()
    };
    let mut consumer =
        Consumer::open(&args.url, &options, &args.queue, how).await.map_err(plain)?;
    let result = write_all(args, &mut consumer, &mut Listener::new()).await;
    // Whatever the reason to stop: what was written out is told to the server.
    consumer.close().await.map_err(plain)?;
    result
}

/// Messages that were written, oldest first, each with the byte where it ends.
type Written = VecDeque<(client::DeliveryTag, u64)>;

/// What happened while nothing was here to be written.
enum Heard {
    Delivery(Delivery),
    /// The reader has taken something.
    Taken,
    /// The reader is gone, or nothing has come for as long as --idle says.
    Over,
}

async fn write_all(args: &Args, consumer: &mut Consumer, out: &mut Listener) -> Result<(), String> {
    let mut stop = std::pin::pin!(stopped());
    let mut written = Written::new();
    let mut left = args.count.unwrap_or(u64::MAX);
    // With requeue the first message would come again and again: none is given back before the end.
    let settle_late = args.ack_mode == AckMode::Requeue;
    let mut quiet_since = Instant::now();
    let mut is_told = false;
    while left > 0 {
        let delivery = match consumer.try_next() {
            Some(delivery) => delivery,
            None => {
                // Nothing is acknowledged that may still be in our buffer, or in the pipe.
                if out.flush().is_err() {
                    break;
                }
                if !settle_late {
                    settle(args, consumer, &mut written, out.taken())?;
                }
                let first = written.front().map_or(u64::MAX, |(_, end)| *end);
                let first = if settle_late { u64::MAX } else { first };
                tokio::select! {
                    heard = hear(consumer, out, first, quiet_since, args.idle) => match heard? {
                        Heard::Delivery(delivery) => delivery,
                        Heard::Taken => continue,
                        Heard::Over => break,
                    },
                    () = &mut stop => {
                        is_told = true;
                        break;
                    }
                }
            }
        };
        if write_one(args, &delivery, out).is_err() {
            break; // Whoever read our output has gone; the message goes back to the queue.
        }
        written.push_back((delivery.tag, out.given()));
        quiet_since = Instant::now();
        left -= 1;
    }
    let flushed = out.flush();
    if flushed.is_ok() && !is_told {
        tokio::select! {
            () = all_taken(out) => (),
            () = &mut stop => (),
        }
    }
    // What the reader has not taken goes back to the queue when the connection is closed.
    settle(args, consumer, &mut written, if settle_late { u64::MAX } else { out.taken() })?;
    match flushed {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(format!("the output cannot be written: {error}")),
    }
}

/// Waits for a delivery, or until the reader has taken all up to byte `first`.
async fn hear(
    consumer: &mut Consumer,
    out: &Listener,
    first: u64,
    quiet_since: Instant,
    idle: Option<Duration>,
) -> Result<Heard, String> {
    // One wait for all looks: a connection that is being made again is not to begin anew with each.
    let mut next = std::pin::pin!(consumer.next());
    let mut look = LOOK_FIRST;
    loop {
        tokio::select! {
            delivery = &mut next => {
                return delivery.map(Heard::Delivery).map_err(|error| error.to_string());
            }
            () = until(quiet_since, idle) => return Ok(Heard::Over),
            () = tokio::time::sleep(look) => {}
        }
        if out.is_gone() {
            return Ok(Heard::Over);
        }
        if first <= out.taken() {
            return Ok(Heard::Taken);
        }
        look = (look * 2).min(LOOK_LAST);
    }
}

/// When it was quiet for so long.
async fn until(quiet_since: Instant, idle: Option<Duration>) {
    match idle.and_then(|idle| quiet_since.checked_add(idle)) {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// When the reader of standard output has taken everything, or is gone.
async fn all_taken(out: &Listener) {
    let mut look = LOOK_FIRST;
    while out.taken() < out.given() && !out.is_gone() {
        tokio::time::sleep(look).await;
        look = (look * 2).min(LOOK_LAST);
    }
}

/// Settles the messages that end at byte `taken` or before.
fn settle(
    args: &Args,
    consumer: &mut Consumer,
    written: &mut Written,
    taken: u64,
) -> Result<(), String> {
    let outcome = match args.ack_mode {
        AckMode::Ack | AckMode::Auto => Outcome::Done,
        AckMode::Requeue => Outcome::Requeue,
        AckMode::Reject => Outcome::DeadLetter,
    };
    while let Some((tag, _)) = written.pop_front_if(|(_, end)| *end <= taken) {
        consumer.settle(tag, outcome).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Ctrl-C, or a request to end.
async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => (),
        _ = terminate.recv() => (),
    }
}

fn write_one(args: &Args, delivery: &Delivery, out: &mut impl Write) -> io::Result<()> {
    match args.format {
        Format::Raw => out.write_all(&delivery.body),
        Format::Body => {
            out.write_all(&delivery.body)?;
            out.write_all(b"\n")
        }
        Format::Json => {
            serde_json::to_writer(&mut *out, &to_json(delivery))?;
            out.write_all(b"\n")
        }
    }
}

fn to_json(delivery: &Delivery) -> Value {
    let mut line = Map::new();
    line.insert("exchange".into(), delivery.exchange().into());
    line.insert("routing_key".into(), delivery.routing_key().into());
    line.insert("redelivered".into(), delivery.redelivered.into());
    match delivery.properties() {
        Ok(properties) => {
            line.insert("properties".into(), properties_to_json(&properties));
            if let Some(headers) = properties.headers {
                line.insert("headers".into(), table_to_json(headers));
            }
        }
        Err(error) => {
            line.insert("properties_error".into(), error.to_string().into());
        }
    }
    match std::str::from_utf8(&delivery.body) {
        Ok(text) => line.insert("body".into(), text.into()),
        Err(_) => line.insert("body_base64".into(), STANDARD.encode(&delivery.body).into()),
    };
    Value::Object(line)
}

fn properties_to_json(properties: &Properties<'_>) -> Value {
    let texts = [
        ("content_type", properties.content_type),
        ("content_encoding", properties.content_encoding),
        ("correlation_id", properties.correlation_id),
        ("reply_to", properties.reply_to),
        ("expiration", properties.expiration),
        ("message_id", properties.message_id),
        ("type", properties.kind),
        ("user_id", properties.user_id),
        ("app_id", properties.app_id),
        ("cluster_id", properties.cluster_id),
    ];
    let numbers = [
        ("delivery_mode", properties.delivery_mode.map(u64::from)),
        ("priority", properties.priority.map(u64::from)),
        ("timestamp", properties.timestamp),
    ];
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?.into())));
    let numbers =
        numbers.into_iter().filter_map(|(key, number)| Some((key.to_owned(), number?.into())));
    Value::Object(texts.chain(numbers).collect())
}

fn table_to_json(table: TableRef<'_>) -> Value {
    // `TableRef` has bounded the depth: this cannot recurse further than its 16 levels.
    Value::Object(table.iter().map(|(key, value)| (key.to_owned(), value_to_json(value))).collect())
}

fn array_to_json(array: ArrayRef<'_>) -> Value {
    Value::Array(array.iter().map(value_to_json).collect())
}

fn value_to_json(value: ValueRef<'_>) -> Value {
    match value.widened() {
        Widened::Bool(value) => value.into(),
        Widened::Integer(value) => value.into(),
        Widened::F32(value) => value.into(),
        Widened::F64(value) => value.into(),
        Widened::Decimal { scale, value } => json!({ "scale": scale, "value": value }),
        Widened::LongStr(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
        },
        Widened::Bytes(bytes) => json!({ "base64": STANDARD.encode(bytes) }),
        Widened::Array(array) => array_to_json(array),
        Widened::Timestamp(seconds) => seconds.into(),
        Widened::Table(table) => table_to_json(table),
        Widened::Void => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp::{FieldTable, FieldValue};

    #[test]
    fn headers_of_every_kind_become_json() {
        let mut inner = FieldTable::new();
        inner.insert("count", FieldValue::I64(2));
        let mut table = FieldTable::new();
        table
            .insert("tenant", FieldValue::LongStr(b"seven".to_vec()))
            .insert("raw", FieldValue::Bytes(vec![255]))
            .insert("x-death", FieldValue::Array(vec![FieldValue::Table(inner)]))
            .insert("none", FieldValue::Void);
        let bytes = table.to_bytes();
        let value = table_to_json(TableRef::validate(&bytes).expect("it is a table"));
        let expected = json!({
            "tenant": "seven", "raw": { "base64": "/w==" }, "x-death": [{ "count": 2 }], "none": null
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn only_properties_that_are_there_become_json() {
        let properties =
            Properties { delivery_mode: Some(2), message_id: Some("m1"), ..Properties::default() };
        let expected = json!({ "delivery_mode": 2, "message_id": "m1" });
        assert_eq!(properties_to_json(&properties), expected);
    }
}
