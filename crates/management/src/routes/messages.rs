//! Messages that are published or taken by hand.

use amqp::{Properties, TableRef};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};

use super::exchanges;
use crate::arguments;
use crate::asked::{Asked, Body};
use crate::limits::GET_MESSAGES_MAX;
use crate::node::View;
use crate::reply::{Problem, Reply};
use crate::work::{Get, Publish, Step, Then, Work};

pub(super) fn get(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = asked.part("queue").to_owned();
    view.catalog.queue(asked.vhost(), &queue).ok_or(Problem::NotFound)?;
    let body = asked.object()?;
    let count = body.count("count")?.ok_or_else(|| crate::asked::missing("count"))?;
    let then = match body.text("ackmode")?.or(legacy_mode(&body)?) {
        Some("ack_requeue_false") => Then::Ack,
        Some("reject_requeue_false") => Then::Reject,
        Some("ack_requeue_true" | "reject_requeue_true") => Then::Requeue,
        Some(other) => return Err(Problem::bad(format!("unknown ackmode '{other}'"))),
        None => return Err(crate::asked::missing("ackmode")),
    };
    let is_base64 = match body.text("encoding")? {
        Some("base64") => true,
        Some("auto") => false,
        Some(other) => return Err(Problem::bad(format!("unknown encoding '{other}'"))),
        None => return Err(crate::asked::missing("encoding")),
    };
    let truncate =
        body.count("truncate")?.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let count = count.min(GET_MESSAGES_MAX);
    let step = Step::Get(Get { queue, count, then, is_base64, truncate });
    Ok(Work::Client { vhost: asked.vhost().to_owned(), step, reply: Reply::done() })
}

/// Before there were modes, a flag said whether messages go back.
fn legacy_mode(body: &Body) -> Result<Option<&'static str>, Problem> {
    if body.find("requeue").is_none() {
        return Ok(None);
    }
    let goes_back = body.flag("requeue", true)?;
    Ok(Some(if goes_back { "ack_requeue_true" } else { "ack_requeue_false" }))
}

pub(super) fn publish(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let exchange = exchanges::name(asked, "exchange");
    view.catalog.exchange(asked.vhost(), &exchange).ok_or(Problem::NotFound)?;
    let body = asked.object()?;
    let payload = payload(body.needed("payload")?, body.needed("payload_encoding")?)?;
    let properties = properties(&body.object("properties")?, &asked.user)?;
    let key = body.needed_short("routing_key")?.to_owned();
    let step = Step::Publish(Publish { exchange, key, properties, payload });
    Ok(Work::Client { vhost: asked.vhost().to_owned(), step, reply: Reply::done() })
}

/// What is in a message that is written so.
pub(super) fn payload(text: &str, encoding: &str) -> Result<Bytes, Problem> {
    match encoding {
        "string" => Ok(Bytes::copy_from_slice(text.as_bytes())),
        "base64" => {
            let decoded = STANDARD.decode(text);
            Ok(decoded.map_err(|_| Problem::bad("payload is not base64"))?.into())
        }
        other => Err(Problem::bad(format!("unknown payload_encoding '{other}'"))),
    }
}

/// Properties as on the wire.
fn properties(fields: &Map<String, Value>, user: &str) -> Result<Bytes, Problem> {
    let body = Body(fields.clone());
    let headers = arguments::table(&body.object("headers")?)?.to_bytes();
    let headers = TableRef::validate(&headers).map_err(|error| Problem::bad(error.to_string()))?;
    let octet = |name: &str| -> Result<Option<u8>, Problem> {
        let count = body.count(name)?;
        let small = count.map(u8::try_from).transpose();
        small.map_err(|_| Problem::bad(format!("{name} should be from 0 to 255")))
    };
    let text = |name: &str| body.short(name);
    let known = [
        "content_type",
        "content_encoding",
        "headers",
        "delivery_mode",
        "priority",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "timestamp",
        "type",
        "user_id",
        "app_id",
        "cluster_id",
    ];
    if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(Problem::bad(format!("there is no property '{unknown}'")));
    }
    let expiration = match body.find("expiration") {
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(_) | None => text("expiration")?.map(str::to_owned),
    };
    let named = text("user_id")?;
    if named.is_some_and(|named| named != user) {
        return Err(Problem::bad(format!("user_id should be '{user}', who publishes")));
    }
    let properties = Properties {
        content_type: text("content_type")?,
        content_encoding: text("content_encoding")?,
        headers: (!headers.is_empty()).then_some(headers),
        delivery_mode: octet("delivery_mode")?,
        priority: octet("priority")?,
        correlation_id: text("correlation_id")?,
        reply_to: text("reply_to")?,
        expiration: expiration.as_deref(),
        message_id: text("message_id")?,
        timestamp: body.count("timestamp")?,
        kind: text("type")?,
        user_id: named,
        app_id: text("app_id")?,
        cluster_id: text("cluster_id")?,
    };
    let mut raw = BytesMut::new();
    properties.encode(&mut raw);
    Ok(raw.freeze())
}

/// What is in a message, and how it is written: as text where it is one.
pub(crate) fn shown_payload(payload: &[u8], is_base64: bool) -> (String, &'static str) {
    match std::str::from_utf8(payload) {
        Ok(text) if !is_base64 => (text.to_owned(), "string"),
        Ok(_) | Err(_) => (STANDARD.encode(payload), "base64"),
    }
}

/// What a message's properties are in JSON.
pub(crate) fn shown(properties: &Properties<'_>) -> Value {
    let mut fields = Map::new();
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
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, Value::from(text?))));
    let numbers = [
        ("delivery_mode", properties.delivery_mode.map(u64::from)),
        ("priority", properties.priority.map(u64::from)),
        ("timestamp", properties.timestamp),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, count)| Some((name, Value::from(count?))));
    fields.extend(texts.chain(numbers).map(|(name, value)| (name.to_owned(), value)));
    if let Some(headers) = properties.headers {
        fields.insert("headers".to_owned(), arguments::shown_table(&headers.to_table()));
    }
    Value::Object(fields)
}
