//! Connections of the foreign client, and what their errors mean.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties, ErrorKind, ExchangeKind};

use super::{Plan, Recorder, Target};
use crate::history::What;
use crate::workload::FANOUT;
use crate::workload::special::{self, Argument, Special};

/// Longest wait for anything that a living broker answers at once.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// Longest wait for a connection to close.
const LEAVE: Duration = Duration::from_secs(1);
/// Pause before the next attempt to connect.
pub(super) const RETRY: Duration = Duration::from_millis(50);
/// How long a broker may take to come up before the first declare gives up.
const FIRST_ANSWER: Duration = Duration::from_secs(60);

pub(super) async fn connect(target: &Target, name: &str) -> Result<Connection, lapin::Error> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let uri = target.uri();
    let opening = Connection::connect(&uri, properties);
    let opened = tokio::time::timeout(ANSWER, opening).await.unwrap_or_else(|_| Err(too_late()));
    if opened.is_err() {
        // The next attempt is at another node, where there is one.
        target.next();
    }
    opened
}

/// The error of an answer that did not come in time.
pub(super) fn too_late() -> lapin::Error {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Waits for `what`, but not for ever.
pub(super) async fn answered<T>(
    what: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, lapin::Error> {
    tokio::time::timeout(ANSWER, what).await.unwrap_or_else(|_| Err(too_late()))
}

/// Closes a connection that may be lost already. Then the client's library may wait for an answer that cannot
/// come; whoever publishes or consumes has to go on long before the verdict asks why nothing came of it.
pub(super) async fn leave(connection: &Connection, why: &str) {
    let _ = tokio::time::timeout(LEAVE, connection.close(200, why.into())).await;
}

/// `connection-forced`: an operator or a shutdown, not a mistake of anybody. `internal-error`: what a
/// node has to say that is without a majority.
const NO_MISTAKES: [u16; 2] = [320, 541];

/// Writes down what no client of a right broker sees: bytes that do not parse, confirms for
/// nothing, and being told off although it kept to the protocol.
pub(super) fn note_error(recorder: &Recorder, name: &str, error: &lapin::Error) {
    let is_violation = match error.kind() {
        ErrorKind::ParsingError(_) | ErrorKind::InvalidChannel(_) => true,
        ErrorKind::ProtocolError(told) => !NO_MISTAKES.contains(&told.get_id()),
        _ => false,
    };
    if is_violation {
        recorder.saw(name, What::Protocol { text: format!("{name}: {error}") });
    }
}

/// Declares what the plan needs, on a broker that may still be starting.
pub(super) async fn declare(plan: &Plan, target: &Target) -> Result<(), String> {
    let deadline = tokio::time::Instant::now() + FIRST_ANSWER;
    loop {
        match try_declare(plan, target).await {
            Ok(()) => return Ok(()),
            Err(error) if tokio::time::Instant::now() >= deadline => {
                return Err(format!("cannot declare the queues: {error}"));
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn try_declare(plan: &Plan, target: &Target) -> Result<(), lapin::Error> {
    let connection = connect(target, "declare").await?;
    let channel = connection.create_channel().await?;
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let none = FieldTable::default();
    let fanout = ExchangeKind::Fanout;
    answered(channel.exchange_declare(FANOUT.into(), fanout, durable, none.clone())).await?;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    for stream in &plan.streams {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("stream".into()));
        let partitions = AMQPValue::LongLongInt(special::PARTITIONS);
        arguments.insert("x-partitions".into(), partitions);
        answered(channel.queue_declare((*stream).into(), durable, arguments)).await?;
    }
    for queue in &plan.queues {
        let mut arguments = FieldTable::default();
        if let Some(kind) = &plan.queue_type {
            arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.as_str().into()));
        }
        for (name, value) in queue.special.iter().flat_map(Special::arguments) {
            let value = match value {
                Argument::Number(number) => AMQPValue::LongLongInt(number),
                Argument::Text(text) => AMQPValue::LongString(text.into()),
                Argument::Truth(truth) => AMQPValue::Boolean(truth),
            };
            arguments.insert(name.into(), value);
        }
        answered(channel.queue_declare(queue.name.into(), durable, arguments)).await?;
    }
    let bound = plan.publishers.iter().flatten().filter(|channel| channel.exchange == FANOUT);
    for queue in bound.flat_map(|channel| &channel.queues) {
        let (queue, exchange, key) = ((*queue).into(), FANOUT.into(), "".into());
        let options = QueueBindOptions::default();
        answered(channel.queue_bind(queue, exchange, key, options, none.clone())).await?;
    }
    connection.close(200, "declared".into()).await
}
