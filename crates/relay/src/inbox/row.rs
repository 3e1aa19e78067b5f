//! A delivery as a row. Whatever a message holds becomes a row that the database takes, with what did not fit told
//! in its `error`; the payload is kept to the byte.

use amqp::Properties;
use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::json;
use super::key::{Candidates, Key};
use crate::limits::{MESSAGE_ID_LETTERS_MAX, shortened};

/// What stands for U+0000, in letters that every encoding has: ids that differ still do.
pub(super) const ZERO: &str = "\\u{0}";
/// What is begun instead of a message-id where there is none.
const NO_ID: &str = "no-id:";

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub message_id: String,
    /// The routing key, or what else is the key.
    pub key: Option<String>,
    /// The property `type`.
    pub kind: Option<String>,
    /// The headers as JSON.
    pub headers: Option<String>,
    /// The other properties, and the exchange, as JSON.
    pub properties: Option<String>,
    pub payload: Bytes,
    /// What of the message is not in the row as it was.
    pub error: Option<String>,
    /// The id was made here.
    pub is_without_id: bool,
    is_plain: bool,
}

/// How a message came, and which part of it is its key.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
    pub key: &'a Key,
}

impl Row {
    /// A message as it was delivered; `new_id` makes something unique, for one without a message-id.
    pub fn new(
        route: Route<'_>,
        properties: &Properties<'_>,
        payload: Bytes,
        new_id: impl FnOnce() -> String,
    ) -> Self {
        let mut flaws = Vec::new();
        let given = properties.message_id.filter(|id| !id.is_empty());
        let message_id = match given {
            Some(id) => fitting(text("message-id", id, &mut flaws), &mut flaws),
            None => format!("{NO_ID}{}", new_id()),
        };
        let headers = properties.headers.map(|table| json::object(&table.to_table(), &mut flaws));
        let routing_key = text("routing key", route.routing_key, &mut flaws);
        let key = route.key.of(Candidates {
            routing_key: &routing_key,
            correlation_id: properties.correlation_id,
            headers: headers.as_ref(),
        });
        Self {
            message_id,
            key: key.map(|key| key.replace('\0', ZERO)),
            kind: properties.kind.map(|kind| text("type", kind, &mut flaws)),
            headers: headers.map(|headers| Value::Object(headers).to_string()),
            properties: Some(Value::Object(others(route, properties, &mut flaws)).to_string()),
            payload,
            error: (!flaws.is_empty()).then(|| shortened(&flaws.join("; "))),
            is_without_id: given.is_none(),
            is_plain: false,
        }
    }

    /// A message whose properties are not AMQP.
    pub fn unreadable(
        route: Route<'_>,
        payload: Bytes,
        why: &str,
        new_id: impl FnOnce() -> String,
    ) -> Self {
        let route = Route { exchange: "", ..route };
        let row = Self::new(route, &Properties::default(), payload, new_id);
        Self { error: Some(shortened(why)), properties: None, ..row }
    }

    /// The same with nothing but letters of ASCII and its payload, for a database that refused it.
    pub(super) fn plain(&self, why: String) -> Self {
        Self {
            message_id: fitting(ascii(&self.message_id), &mut Vec::new()),
            key: self.key.as_deref().map(ascii),
            kind: self.kind.as_deref().map(ascii),
            headers: None,
            properties: None,
            payload: self.payload.clone(),
            error: Some(shortened(&ascii(&why))),
            is_without_id: self.is_without_id,
            is_plain: true,
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// About what it takes on the wire.
    pub fn bytes(&self) -> usize {
        let texts = [&self.key, &self.kind, &self.headers, &self.properties, &self.error];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        self.message_id.len() + texts + self.payload.len()
    }
}

/// What a text of PostgreSQL can hold of `given`.
fn text(what: &str, given: &str, flaws: &mut Vec<String>) -> String {
    if given.contains('\0') {
        flaws.push(format!("the {what} holds U+0000, which is written as {ZERO}"));
    }
    given.replace('\0', ZERO)
}

/// An id that is longer than a key may be ends in a hash of the whole: ids that differ still do.
fn fitting(id: String, flaws: &mut Vec<String>) -> String {
    if id.chars().count() <= MESSAGE_ID_LETTERS_MAX {
        return id;
    }
    let hash = format!("~{:x}", Sha256::digest(id.as_bytes()));
    let begin: String = id.chars().take(MESSAGE_ID_LETTERS_MAX - hash.len()).collect();
    flaws.push(format!(
        "the message-id is longer than {MESSAGE_ID_LETTERS_MAX} letters: its end is a hash of it"
    ));
    begin + &hash
}

fn ascii(given: &str) -> String {
    let mut plain = String::with_capacity(given.len());
    for letter in given.chars() {
        if letter.is_ascii() && letter != '\0' {
            plain.push(letter);
        } else {
            plain.extend(letter.escape_unicode());
        }
    }
    plain
}

fn others(route: Route<'_>, given: &Properties<'_>, flaws: &mut Vec<String>) -> Map<String, Value> {
    let mut found = Map::new();
    // The routing key is here where the column `key` has another.
    let routing_key = (*route.key != Key::RoutingKey).then_some(route.routing_key);
    let texts = [
        ("exchange", Some(route.exchange)),
        ("routing_key", routing_key),
        ("content_type", given.content_type),
        ("content_encoding", given.content_encoding),
        ("correlation_id", given.correlation_id),
        ("reply_to", given.reply_to),
        ("expiration", given.expiration),
        ("user_id", given.user_id),
        ("app_id", given.app_id),
        ("cluster_id", given.cluster_id),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            found.insert(name.into(), Value::String(text(name, value, flaws)));
        }
    }
    let numbers = [
        ("delivery_mode", given.delivery_mode.map(u64::from)),
        ("priority", given.priority.map(u64::from)),
        ("timestamp", given.timestamp),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            found.insert(name.into(), value.into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use amqp::{FieldTable, FieldValue, TableRef};

    use super::*;

    fn new(properties: &Properties<'_>) -> Row {
        with_key(&Key::RoutingKey, properties)
    }

    fn with_key(key: &Key, properties: &Properties<'_>) -> Row {
        let route = Route { exchange: "orders", routing_key: "eu.de", key };
        Row::new(route, properties, Bytes::from_static(b"\0\xff"), || "made".into())
    }

    #[test]
    fn everything_of_a_message_is_in_its_row() {
        let mut table = FieldTable::new();
        table.insert("tenant", FieldValue::LongStr(b"acme".to_vec()));
        let raw = table.to_bytes();
        let properties = Properties {
            message_id: Some("7"),
            kind: Some("OrderPlaced"),
            headers: Some(TableRef::validate(&raw).expect("a table")),
            content_type: Some("application/json"),
            timestamp: Some(1_700_000_000),
            ..Properties::default()
        };
        let row = new(&properties);
        assert_eq!((row.message_id.as_str(), row.key.as_deref()), ("7", Some("eu.de")));
        assert_eq!(row.kind.as_deref(), Some("OrderPlaced"));
        assert_eq!(row.headers.as_deref(), Some(r#"{"tenant":"acme"}"#));
        let others =
            r#"{"content_type":"application/json","exchange":"orders","timestamp":1700000000}"#;
        assert_eq!(row.properties.as_deref(), Some(others));
        assert_eq!((&row.payload[..], row.error), (&b"\0\xff"[..], None));
        assert!(!row.is_without_id);
    }

    #[test]
    fn the_routing_key_is_kept_where_something_else_is_the_key() {
        let properties = Properties {
            message_id: Some("7"),
            correlation_id: Some("c\0"),
            ..Properties::default()
        };
        let row = with_key(&Key::CorrelationId, &properties);
        assert_eq!(row.key.as_deref(), Some("c\\u{0}"));
        let others = row.properties.expect("it has some");
        assert!(others.contains(r#""routing_key":"eu.de""#), "{others}");
        assert_eq!(with_key(&Key::Header("x".into()), &properties).key, None);
    }

    #[test]
    fn a_message_without_an_id_gets_one_that_says_so() {
        for id in [None, Some("")] {
            let row = new(&Properties { message_id: id, ..Properties::default() });
            assert_eq!((row.message_id.as_str(), row.is_without_id), ("no-id:made", true));
        }
    }

    #[test]
    fn what_a_text_of_postgresql_cannot_hold_is_replaced_and_told() {
        let properties =
            Properties { message_id: Some("a\0b"), kind: Some("k\0"), ..Properties::default() };
        let row = new(&properties);
        assert_eq!(row.message_id, "a\\u{0}b");
        let error = row.error.expect("it is flawed");
        assert!(error.contains("message-id") && error.contains("type"), "{error}");
    }

    #[test]
    fn ids_that_are_too_long_for_a_key_still_differ_in_it() {
        let id = |last: &str| {
            let given = "\0".repeat(250) + last;
            new(&Properties { message_id: Some(&given), ..Properties::default() })
        };
        let (one, other) = (id("a"), id("b"));
        assert_eq!(one.message_id.chars().count(), MESSAGE_ID_LETTERS_MAX);
        assert_ne!(one.message_id, other.message_id);
        assert_eq!(one.message_id, id("a").message_id);
        assert!(one.error.as_ref().is_some_and(|error| error.contains("hash")), "{one:?}");
        assert_eq!(one.plain("why".into()).message_id, one.message_id);
    }

    #[test]
    fn a_plain_row_has_letters_of_ascii_only_and_the_whole_payload() {
        let row = new(&Properties { message_id: Some("grün"), ..Properties::default() });
        let plain = row.plain("the encoding LATIN1 has no „“".into());
        assert_eq!(plain.message_id, "gr\\u{fc}n");
        assert!(plain.error.as_ref().is_some_and(|error| error.is_ascii()));
        assert_eq!((plain.payload, plain.headers, plain.properties), (row.payload, None, None));
    }
}
