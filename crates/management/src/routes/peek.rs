//! Messages that are looked at where they are: nothing is taken, and nothing counts as delivered.

use amqp::Properties;
use broker::stored::{self, split_head};
use bytes::Bytes;
use cluster::limits::SOUGHT_BYTES_MAX;
use cluster::{PeekSpec, PeekedMessage};
use machine::{GroupId, MessageState, Outcome, PeekFilter, Position, QueueId};
use serde_json::{Map, Value, json};

use super::messages::{shown as shown_properties, shown_payload};
use crate::arguments;
use crate::asked::Asked;
use crate::limits::{NAME_BYTES_MAX, PEEKED_MESSAGES, PEEKED_MESSAGES_MAX, PEEKED_PAYLOAD_BYTES};
use crate::node::View;
use crate::reply::Problem;
use crate::work::{Begin, Peek, WantedHeader, Work};

pub(super) fn peek(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    let filter = match asked.word("state") {
        None | Some("all") => PeekFilter::All,
        Some("ready") => PeekFilter::Ready,
        Some("unacked") => PeekFilter::Held,
        Some("delayed") => PeekFilter::Delayed,
        Some("dead") => PeekFilter::Dead,
        Some(other) => {
            let states = "ready, unacked, delayed, dead or all";
            return Err(Problem::bad(format!(
                "there is no state '{other}': it should be {states}"
            )));
        }
    };
    let from = match asked.word("from") {
        None | Some("last") => Position::FIRST,
        Some(cursor) => position(cursor).ok_or_else(|| {
            let wanted = "a position that an answer names, or last";
            Problem::bad(format!("from should be {wanted}, not '{cursor}'"))
        })?,
    };
    let is_base64 = match asked.word("encoding") {
        None | Some("auto") => false,
        Some("base64") => true,
        Some(other) => return Err(Problem::bad(format!("unknown encoding '{other}'"))),
    };
    let count = number(asked, "count", PEEKED_MESSAGES, 1..=PEEKED_MESSAGES_MAX)?;
    let body_bytes_max = number(asked, "truncate", PEEKED_PAYLOAD_BYTES, 0..=u32::MAX.into())?;
    let contains = asked.word("contains").unwrap_or_default();
    if contains.len() > SOUGHT_BYTES_MAX {
        return Err(Problem::bad(format!("contains should have at most {SOUGHT_BYTES_MAX} bytes")));
    }
    let spec = PeekSpec {
        from,
        filter,
        count: u32::try_from(count).unwrap_or(u32::MAX),
        body_bytes_max: u32::try_from(body_bytes_max).unwrap_or(u32::MAX),
        contains: Bytes::copy_from_slice(contains.as_bytes()),
    };
    let last = queue.partition_count() as u64 - 1;
    let partition = number(asked, "partition", 0, 0..=last)? as usize;
    let found = queue.partitions().nth(partition).ok_or(Problem::NotFound)?;
    let stream = match queue.settings().subscription() {
        Some(subscription) => view.catalog.queue_by_id(subscription.stream),
        None => Some(queue).filter(|queue| queue.settings().is_stream()),
    };
    let stream = stream.and_then(|stream| stream.partitions().nth(partition));
    let stream = stream.map(|it| (it.group, it.queue));
    let begin = begin(asked, stream)?;
    if matches!(begin, Begin::Since { .. }) && found.group.is_local() {
        return Err(Problem::bad(format!(
            "messages of queue '{}' do not say when they came: it is transient or exclusive",
            queue.name
        )));
    }
    let header = asked.word("header").map(wanted_header).transpose()?;
    Ok(Work::Peek(Peek { queue: (found.group, found.queue), spec, begin, header, is_base64 }))
}

fn begin(asked: &Asked, stream: Option<(GroupId, QueueId)>) -> Result<Begin, Problem> {
    let is_last = asked.word("from") == Some("last");
    match (asked.word("from_time"), is_last) {
        (None, false) => Ok(Begin::Here),
        (None, true) => Ok(Begin::Last),
        (Some(_), true) => Err(Problem::bad("from=last has no from_time: it begins elsewhere")),
        (Some(word), false) => {
            let time_ms = word.parse().map_err(|_| {
                let wanted = "a time in milliseconds since 1970";
                Problem::bad(format!("from_time should be {wanted}, not '{word}'"))
            })?;
            Ok(Begin::Since { time_ms, stream })
        }
    }
}

/// `NAME:VALUE`.
fn wanted_header(word: &str) -> Result<WantedHeader, Problem> {
    let parts = word.split_once(':').filter(|(name, _)| !name.is_empty());
    let Some((name, value)) = parts.filter(|(name, _)| name.len() <= NAME_BYTES_MAX) else {
        return Err(Problem::bad(format!(
            "header should be NAME:VALUE, with a name of 1 to {NAME_BYTES_MAX} bytes"
        )));
    };
    Ok(WantedHeader { name: name.to_owned(), value: value.to_owned() })
}

/// Whether a stored message has the header, with this value as it is shown: a text as it is, and others as in JSON.
pub(crate) fn has_header(head: &[u8], WantedHeader { name, value }: &WantedHeader) -> bool {
    let properties = split_head(head).and_then(|(_, raw)| Properties::decode(raw).ok());
    let headers = properties.and_then(|properties| properties.headers);
    let Some(headers) = headers.filter(|headers| headers.find(name).is_some()) else {
        return false;
    };
    match arguments::shown_table(&headers.to_table()).get(name) {
        Some(Value::String(text)) => text == value,
        Some(other) => serde_json::to_string(other).is_ok_and(|text| text == *value),
        None => false,
    }
}

/// A number of the query.
fn number(
    asked: &Asked,
    name: &str,
    default: u64,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<u64, Problem> {
    let Some(word) = asked.word(name) else { return Ok(default) };
    word.parse().ok().filter(|number| bounds.contains(number)).ok_or_else(|| {
        let (first, last) = (bounds.start(), bounds.end());
        Problem::bad(format!("{name} should be a whole number from {first} to {last}"))
    })
}

/// `17`, or `9.17` with a priority.
pub(super) fn position(cursor: &str) -> Option<Position> {
    match cursor.split_once('.') {
        None => Some(Position { priority: 0, seq: cursor.parse().ok()? }),
        Some((priority, seq)) => {
            Some(Position { priority: priority.parse().ok()?, seq: seq.parse().ok()? })
        }
    }
}

/// As [`position`] reads it.
pub(crate) fn cursor(Position { priority, seq }: Position) -> String {
    match priority {
        0 => seq.to_string(),
        _ => format!("{priority}.{seq}"),
    }
}

/// A message, but for who holds it.
pub(crate) fn shown(message: &PeekedMessage, is_base64: bool) -> Map<String, Value> {
    let PeekedMessage { is, enqueued_ms, head, body, body_bytes } = message;
    let (destination, properties) = split_head(head).unwrap_or_default();
    let (exchange, routing_key) = stored::destination_texts(destination);
    let properties = Properties::decode(properties).unwrap_or_default();
    let properties = shown_properties(&properties);
    let deaths = properties.pointer("/headers/x-death").cloned();
    let is_cut = (body.len() as u64) < *body_bytes;
    let (payload, encoding) = shown_payload(whole_characters(body, is_cut), is_base64);
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("position", cursor(is.position).into());
    put("priority", is.position.priority.into());
    put("exchange", exchange.into());
    put("routing_key", routing_key.into());
    put("properties", properties);
    put("payload", payload.into());
    put("payload_encoding", encoding.into());
    put("payload_bytes", (*body_bytes).into());
    put("truncated", is_cut.into());
    put("enqueued_at", (*enqueued_ms).into());
    put("expires_at", is.expires_ms.into());
    put("returns", is.returns.into());
    put("dead_letter_history", deaths.unwrap_or_else(|| json!([])));
    match is.state {
        MessageState::Ready => put("state", "ready".into()),
        MessageState::Held { .. } => put("state", "unacked".into()),
        MessageState::Delayed { due_ms } => {
            put("state", "delayed".into());
            put("due_at", due_ms.into());
        }
        MessageState::Dead { reason } => {
            put("state", "dead".into());
            put("reason", reason_of(reason).into());
        }
    }
    fields
}

/// Why a message is dead, in the words of `x-death`.
fn reason_of(reason: Outcome) -> &'static str {
    match reason {
        Outcome::Expired => "expired",
        Outcome::Overflowed => "maxlen",
        Outcome::Exhausted => "delivery_limit",
        Outcome::Rejected
        | Outcome::Done
        | Outcome::Purged
        | Outcome::Requeue
        | Outcome::Undelivered
        | Outcome::PassedOver
        | Outcome::DeadLettered
        | Outcome::Returned => "rejected",
    }
}

/// A text that was cut does not end within a character.
fn whole_characters(body: &[u8], is_cut: bool) -> &[u8] {
    match std::str::from_utf8(body) {
        Err(error) if is_cut && error.error_len().is_none() => &body[..error.valid_up_to()],
        Ok(_) | Err(_) => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for at in [Position { priority: 0, seq: 17 }, Position { priority: 9, seq: u64::MAX }] {
            assert_eq!(position(&cursor(at)), Some(at));
        }
        for wrong in ["", "x", "1.", ".1", "256.1", "-1", "1.2.3"] {
            assert_eq!(position(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_header_is_compared_as_it_is_shown() {
        let text = |text: &str| amqp::FieldValue::LongStr(text.as_bytes().to_vec());
        let headers = amqp::FieldTable(vec![
            ("kind".to_owned(), text("letter:a")),
            ("size".to_owned(), amqp::FieldValue::I32(7)),
            ("urgent".to_owned(), amqp::FieldValue::Bool(true)),
            ("tags".to_owned(), amqp::FieldValue::Array(vec![text("a"), text("b")])),
        ]);
        let raw = headers.to_bytes();
        let headers = Some(amqp::TableRef::validate(&raw).unwrap());
        let mut head = bytes::BytesMut::new();
        let properties = Properties { headers, ..Properties::default() };
        stored::write_head("", "jobs", &properties, &mut head);
        let has = |word: &str| has_header(&head, &wanted_header(word).unwrap());
        for (word, is_there) in [
            ("kind:letter:a", true),
            ("kind:letter", false),
            ("size:7", true),
            ("urgent:true", true),
            ("tags:[\"a\",\"b\"]", true),
            ("kin:letter:a", false),
            ("size:", false),
        ] {
            assert_eq!(has(word), is_there, "{word}");
        }
        let mut plain = bytes::BytesMut::new();
        stored::write_head("", "jobs", &Properties::default(), &mut plain);
        assert!(!has_header(&plain, &wanted_header("kind:").unwrap()));
        for wrong in ["kind", ":letter", ""] {
            assert!(wanted_header(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_text_that_is_cut_within_a_character_stays_a_text() {
        let text = "häuser".as_bytes();
        assert_eq!(whole_characters(&text[..2], true), b"h");
        assert_eq!(whole_characters(&text[..3], true), "hä".as_bytes());
        assert_eq!(whole_characters(b"a\xff", true), b"a\xff", "it is no text");
        assert_eq!(whole_characters(&text[..2], false), &text[..2], "it is no text, and whole");
    }
}
