//! A job as one JSON text, for brokers whose messages are only a body: Redis lists and MNS, and SQS where a job has
//! more than its ten attributes.
//!
//! ```json
//! {"millrace": 1, "id": "42", "type": "mail", "key": "customer-7", "content_type": "application/json",
//!  "headers": {"trace": "abc"}, "body": {"to": "a@example.org"}, "attempt": 1, "timeout_ms": 5000,
//!  "attempts_max": 10, "then": …, "batch": …, "published_ms": 1700000000000}
//! ```
//!
//! `millrace` says that it is one, and its version; everything else may be absent. `body` is a text, or any other JSON
//! value: then the job's body is its JSON text. A body that is no text is in `body64`, as base64. `then` and `batch`
//! are JSON values. `due_ms` is for MNS and SQS: not before this time. What is no envelope is a job with that body.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::job::{Extras, Header, Message};

/// The version that `millrace` says.
const VERSION: u32 = 1;

/// What was read from a message: a job, and what its source keeps of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    pub message: Message,
    /// The order key, as text.
    pub key: Option<String>,
    pub published_ms: Option<u64>,
    /// Not before this time, in milliseconds since 1970.
    pub due_ms: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    millrace: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    then: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
}

/// Reads an envelope; a text that is none is a job with that body. The id may be empty: then the publisher gave none.
///
/// # Errors
/// It says that it is an envelope, and is none: why.
pub fn read(text: &Bytes) -> Result<Envelope, String> {
    if !says_it_is_one(text) {
        let message = Message { body: text.clone(), attempt: 1, ..Message::default() };
        return Ok(Envelope { message, ..Envelope::default() });
    }
    let written: Written =
        serde_json::from_slice(text).map_err(|error| format!("the envelope is wrong: {error}"))?;
    if written.millrace != VERSION {
        return Err(format!("the envelope has version {}, not {VERSION}", written.millrace));
    }
    unwrap(written)
}

/// Whether a text begins as an envelope: an object in which `millrace` is a number.
fn says_it_is_one(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Mark {
        millrace: Option<u64>,
    }
    // Most bodies are told apart by their first byte.
    text.trim_ascii_start().first() == Some(&b'{')
        && memory_of_mark(text)
        && serde_json::from_slice::<Mark>(text).is_ok_and(|mark| mark.millrace.is_some())
}

/// Whether the word is in it at all: cheaper than to parse every foreign body.
fn memory_of_mark(text: &[u8]) -> bool {
    const MARK: &[u8] = b"\"millrace\"";
    text.windows(MARK.len()).any(|window| window == MARK)
}

fn unwrap(written: Written) -> Result<Envelope, String> {
    let (body, is_json) = match (written.body, written.body64) {
        (Some(_), Some(_)) => return Err("the envelope has both body and body64".into()),
        (Some(value), None) => body_of(&value)?,
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text).map_err(|error| format!("body64: {error}"))?;
            (Bytes::from(bytes), false)
        }
        (None, None) => (Bytes::new(), false),
    };
    let extras = Extras {
        timeout: written.timeout_ms.map(Duration::from_millis),
        attempts_max: written.attempts_max,
        then: written.then.map(|then| then.get().to_owned()),
        batch: written.batch.map(|batch| batch.get().to_owned()),
    };
    let content_type = written.content_type.or_else(|| is_json.then(|| "application/json".into()));
    let message = Message {
        id: written.id,
        kind: written.kind,
        content_type,
        headers: written.headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
        body,
        attempt: written.attempt.unwrap_or(1).max(1),
        extras: (extras != Extras::default()).then(|| Box::new(extras)),
    };
    let (published_ms, due_ms) = (written.published_ms, written.due_ms);
    Ok(Envelope { message, key: written.key, published_ms, due_ms })
}

/// The body that a JSON value stands for, and whether it is JSON itself.
fn body_of(value: &RawValue) -> Result<(Bytes, bool), String> {
    if value.get().starts_with('"') {
        let text: String = serde_json::from_str(value.get()).map_err(|error| error.to_string())?;
        return Ok((Bytes::from(text), false));
    }
    Ok((Bytes::copy_from_slice(value.get().as_bytes()), true))
}

/// Writes a job as an envelope.
pub fn write(envelope: &Envelope) -> String {
    let message = &envelope.message;
    let (body, body64) = match std::str::from_utf8(&message.body) {
        Ok("") => (None, None),
        Ok(text) => (serde_json::value::to_raw_value(text).ok(), None),
        Err(_) => (None, Some(STANDARD.encode(&message.body))),
    };
    let extras = message.extras.as_deref();
    let json = |text: &String| {
        // What is no JSON is kept as a text: its reader says what is wrong.
        RawValue::from_string(text.clone()).or_else(|_| serde_json::value::to_raw_value(text)).ok()
    };
    let written = Written {
        millrace: VERSION,
        id: message.id.clone(),
        kind: message.kind.clone(),
        key: envelope.key.clone(),
        content_type: message.content_type.clone(),
        headers: message.headers.iter().map(|h| (h.name.clone(), h.value.clone())).collect(),
        body,
        body64,
        attempt: (message.attempt > 1).then_some(message.attempt),
        timeout_ms: extras.and_then(|e| e.timeout).map(|t| t.as_millis() as u64),
        attempts_max: extras.and_then(|e| e.attempts_max),
        then: extras.and_then(|e| e.then.as_ref()).and_then(json),
        batch: extras.and_then(|e| e.batch.as_ref()).and_then(json),
        published_ms: envelope.published_ms,
        due_ms: envelope.due_ms,
    };
    serde_json::to_string(&written).expect("texts and numbers can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Envelope, String> {
        read(&Bytes::copy_from_slice(text.as_bytes()))
    }

    fn full() -> Envelope {
        let extras = Extras {
            timeout: Some(Duration::from_secs(5)),
            attempts_max: Some(3),
            then: Some("[{\"type\":\"next\"}]".into()),
            batch: Some("{\"id\":\"b\"}".into()),
        };
        let message = Message {
            id: "42".into(),
            kind: "mail".into(),
            content_type: Some("text/plain".into()),
            headers: vec![Header { name: "trace".into(), value: "a\"b".into() }],
            body: Bytes::from_static("häuser\n".as_bytes()),
            attempt: 3,
            extras: Some(Box::new(extras)),
        };
        let key = Some("customer".to_owned());
        Envelope { message, key, published_ms: Some(7), due_ms: Some(9) }
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(read_text(&write(&full())), Ok(full()));
        let mut binary = full();
        binary.message.body = Bytes::from_static(&[0, 255, 7]);
        assert_eq!(read_text(&write(&binary)), Ok(binary));
    }

    #[test]
    fn what_is_no_envelope_is_a_body() {
        for text in
            ["", "plain", "{\"a\":1}", "{\"millrace\":\"x\"}", "{broken \"millrace\"", "[1]"]
        {
            let envelope = read_text(text).expect("it is a body");
            assert_eq!(envelope.message.body, text.as_bytes(), "{text}");
            assert_eq!(envelope.message.attempt, 1);
        }
    }

    #[test]
    fn a_body_may_be_any_json() {
        let envelope = read_text("{\"millrace\":1,\"body\":{\"a\":[1, 2]}}").expect("it is one");
        assert_eq!(&envelope.message.body[..], b"{\"a\":[1, 2]}");
        assert_eq!(envelope.message.content_type.as_deref(), Some("application/json"));
        let text = read_text("{\"millrace\":1,\"body\":\"a\\nb\"}").expect("it is one");
        assert_eq!(&text.message.body[..], b"a\nb");
    }

    #[test]
    fn an_envelope_that_is_wrong_says_why() {
        let wrong = [
            ("{\"millrace\":2}", "version 2"),
            ("{\"millrace\":1,\"attempt\":\"x\"}", "invalid type"),
            ("{\"millrace\":1,\"body\":\"\",\"body64\":\"\"}", "both"),
            ("{\"millrace\":1,\"body64\":\"?\"}", "body64"),
        ];
        for (text, why) in wrong {
            let error = read_text(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
