//! What passes through a vhost that is traced becomes messages at its exchange of traces, as RabbitMQ's firehose makes
//! them. Routing key: `publish.` and the exchange, or `deliver.` and the queue. Headers: the message's own properties,
//! and who did it. Body: the message's own.

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use bytes::{Bytes, BytesMut};
use machine::{Catalog, Exchange, Queue, QueueId};

use crate::channel::caller::Caller;
use crate::dead_letter::limits::LETTER_HEADERS_BYTES_MAX;
use crate::own::Own;
use crate::passing::Passing;
use crate::route_cache::Route;
use crate::stored::destination_texts;

/// A client published, and its message goes there.
pub(crate) fn published(caller: &mut Caller<'_, '_>, route: &Route, passing: Passing<'_>) {
    let catalog = caller.catalog();
    let plain = route.groups.iter().flat_map(|(_, queues)| queues.iter().copied());
    let special = route.special.iter().filter(|target| !target.is_history);
    let queues = plain.chain(special.map(|target| target.queue));
    let names = queues.filter_map(|queue| Some(text(name_of(catalog, queue)?))).collect();
    let (exchange, _) = destination_texts(passing.destination);
    let more = vec![("routed_queues", FieldValue::Array(names))];
    tell(caller, format!("publish.{exchange}"), passing, more);
}

/// A client is given a message of this queue.
pub(crate) fn delivered(
    caller: &mut Caller<'_, '_>,
    queue: QueueId,
    redelivered: bool,
    passing: Passing<'_>,
) {
    let (exchange, _) = destination_texts(passing.destination);
    if exchange == Exchange::TRACES {
        return;
    }
    let queue = name_of(caller.catalog(), queue).unwrap_or_default();
    let more = vec![("redelivered", FieldValue::I32(redelivered.into()))];
    tell(caller, format!("deliver.{queue}"), passing, more);
}

/// What a queue is called.
pub(crate) fn name_of(catalog: &Catalog, queue: QueueId) -> Option<&str> {
    catalog.queue_by_id(queue.base()).map(|Queue { name, .. }| name.as_str())
}

fn tell(
    caller: &mut Caller<'_, '_>,
    key: String,
    passing: Passing<'_>,
    more: Vec<(&'static str, FieldValue)>,
) {
    let Passing { destination, properties, body } = passing;
    let client = caller.client;
    let Ok(properties) = Properties::decode(properties) else { return };
    let (exchange, routing_key) = destination_texts(destination);
    let mut headers = FieldTable::new();
    headers
        .insert("exchange_name", text(exchange))
        .insert("routing_keys", FieldValue::Array(keys(routing_key, &properties)))
        .insert("properties", FieldValue::Table(table(&properties)))
        .insert("node", text(&format!("millrace@{}", client.node.0)))
        .insert("vhost", text(&client.vhost))
        .insert("connection", text(&client.peer.to_string()))
        .insert("channel", FieldValue::I32(caller.at.number.into()))
        .insert("user", text(&client.user));
    for (name, value) in more {
        headers.insert(name, value);
    }
    let mut headers = headers.to_bytes();
    if headers.len() > LETTER_HEADERS_BYTES_MAX {
        // It would not fit into a frame: who listens learns at least that a message passed.
        headers = shortened(exchange, routing_key, &client.vhost).to_bytes();
    }
    let Ok(table) = TableRef::validate(&headers) else { return };
    let mut raw = BytesMut::new();
    Properties { headers: Some(table), ..Properties::default() }.encode(&mut raw);
    caller.step.out.traces.push(Own {
        vhost: client.vhost.clone(),
        exchange: Exchange::TRACES,
        key,
        properties: raw,
        body: Bytes::copy_from_slice(body),
    });
}

/// What is said of a message whose properties are too large.
fn shortened(exchange: &str, key: &str, vhost: &str) -> FieldTable {
    let mut headers = FieldTable::new();
    headers
        .insert("exchange_name", text(exchange))
        .insert("routing_keys", FieldValue::Array(vec![text(key)]))
        .insert("vhost", text(vhost));
    headers
}

/// The routing key, and those of the header `CC`.
fn keys(key: &str, properties: &Properties<'_>) -> Vec<FieldValue> {
    let mut keys = vec![text(key)];
    let FieldTable(headers) =
        properties.headers.as_ref().map(TableRef::to_table).unwrap_or_default();
    for (name, value) in headers {
        if let ("CC", FieldValue::Array(more)) = (name.as_str(), value) {
            keys.extend(more);
        }
    }
    keys
}

/// The properties that a message has, with RabbitMQ's names.
fn table(properties: &Properties<'_>) -> FieldTable {
    let Properties {
        content_type,
        content_encoding,
        headers,
        delivery_mode,
        priority,
        correlation_id,
        reply_to,
        expiration,
        message_id,
        timestamp,
        kind,
        user_id,
        app_id,
        cluster_id,
    } = properties;
    let number = |number: &u8| FieldValue::I32((*number).into());
    let said = |said: &Option<&str>| said.map(text);
    let fields = [
        ("content_type", said(content_type)),
        ("content_encoding", said(content_encoding)),
        ("headers", headers.as_ref().map(|headers| FieldValue::Table(headers.to_table()))),
        ("delivery_mode", delivery_mode.as_ref().map(number)),
        ("priority", priority.as_ref().map(number)),
        ("correlation_id", said(correlation_id)),
        ("reply_to", said(reply_to)),
        ("expiration", said(expiration)),
        ("message_id", said(message_id)),
        ("timestamp", timestamp.map(FieldValue::Timestamp)),
        ("type", said(kind)),
        ("user_id", said(user_id)),
        ("app_id", said(app_id)),
        ("cluster_id", said(cluster_id)),
    ];
    let said = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    FieldTable(said.collect())
}

fn text(text: &str) -> FieldValue {
    FieldValue::LongStr(text.as_bytes().to_vec())
}
