//! A job as the fields of a stream's entry.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::job::{Extras, Header};
use crate::settlement::Cause;
use crate::source::envelope::Envelope;

/// A field's name and its value.
pub type Field = (Bytes, Bytes);

/// Reads a job. The id may be empty: then the publisher gave none.
///
/// # Errors
/// A field is wrong: which, and why.
pub fn read(fields: Vec<Field>) -> Result<Envelope, String> {
    let mut envelope = Envelope::default();
    let mut extras = Extras::default();
    envelope.message.attempt = 1;
    for (name, value) in fields {
        let name = text("a field's name", &name)?;
        if name == "body" {
            envelope.message.body = value;
            continue;
        }
        let value = text(&name, &value)?;
        let message = &mut envelope.message;
        match name.as_str() {
            "id" => message.id = value,
            "type" => message.kind = value,
            "key" => envelope.key = Some(value),
            "content_type" => message.content_type = Some(value),
            "headers" => message.headers.extend(headers(&value)?),
            "attempt" => message.attempt = number::<u32>(&name, &value)?.max(1),
            "timeout_ms" => extras.timeout = Some(Duration::from_millis(number(&name, &value)?)),
            "attempts_max" => extras.attempts_max = Some(number(&name, &value)?),
            "then" => extras.then = Some(value),
            "batch" => extras.batch = Some(value),
            "published_ms" => envelope.published_ms = Some(number(&name, &value)?),
            _ => message.headers.push(Header { name, value }),
        }
    }
    if extras != Extras::default() {
        envelope.message.extras = Some(Box::new(extras));
    }
    Ok(envelope)
}

fn text(name: &str, value: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(value) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(format!("`{name}` is no text")),
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{name}` is no number: {value}"))
}

fn headers(json: &str) -> Result<Vec<Header>, String> {
    let map: BTreeMap<String, String> = serde_json::from_str(json)
        .map_err(|error| format!("`headers` is no JSON object of texts: {error}"))?;
    Ok(map.into_iter().map(|(name, value)| Header { name, value }).collect())
}

/// Writes a job.
pub fn write(envelope: &Envelope) -> Vec<Field> {
    let message = &envelope.message;
    let mut fields = Vec::new();
    let mut put = |name: &'static str, value: Option<String>| {
        if let Some(value) = value {
            fields.push((Bytes::from_static(name.as_bytes()), Bytes::from(value)));
        }
    };
    let filled = |text: &String| (!text.is_empty()).then(|| text.clone());
    put("id", filled(&message.id));
    put("type", filled(&message.kind));
    put("key", envelope.key.clone());
    put("content_type", message.content_type.clone());
    if !message.headers.is_empty() {
        let map: BTreeMap<&str, &str> =
            message.headers.iter().map(|h| (h.name.as_str(), h.value.as_str())).collect();
        put("headers", Some(serde_json::to_string(&map).expect("texts can be written as JSON")));
    }
    put("attempt", (message.attempt > 1).then(|| message.attempt.to_string()));
    if let Some(extras) = &message.extras {
        put("timeout_ms", extras.timeout.map(|timeout| timeout.as_millis().to_string()));
        put("attempts_max", extras.attempts_max.map(|max| max.to_string()));
        put("then", extras.then.clone());
        put("batch", extras.batch.clone());
    }
    put("published_ms", envelope.published_ms.map(|ms| ms.to_string()));
    fields.push((Bytes::from_static(b"body"), message.body.clone()));
    fields
}

/// What is added to the fields of a job that is dead. The script adds the time.
pub fn death(cause: Cause, why: &str) -> [Field; 2] {
    [
        (Bytes::from_static(b"dead_cause"), Bytes::from_static(cause.name().as_bytes())),
        (Bytes::from_static(b"dead_why"), Bytes::copy_from_slice(why.as_bytes())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Message;

    fn field(name: &str, value: &str) -> Field {
        (Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let extras = Extras {
            timeout: Some(Duration::from_millis(1500)),
            attempts_max: Some(4),
            then: Some("{}".into()),
            batch: Some("{\"id\":1}".into()),
        };
        let message = Message {
            id: "1".into(),
            kind: "mail".into(),
            content_type: Some("text/plain".into()),
            headers: vec![Header { name: "a".into(), value: "ü".into() }],
            body: Bytes::from_static(&[0, 255]),
            attempt: 7,
            extras: Some(Box::new(extras)),
        };
        let envelope =
            Envelope { message, key: Some("k".into()), published_ms: Some(5), due_ms: None };
        assert_eq!(read(write(&envelope)), Ok(envelope));
    }

    #[test]
    fn a_field_of_another_name_is_a_header() {
        let envelope = read(vec![field("colour", "red"), field("body", "x")]).expect("a job");
        assert_eq!(
            envelope.message.headers,
            [Header { name: "colour".into(), value: "red".into() }]
        );
        assert_eq!((&envelope.message.body[..], envelope.message.attempt), (&b"x"[..], 1));
    }

    #[test]
    fn a_field_that_is_wrong_says_why() {
        for (name, value) in [("attempt", "x"), ("timeout_ms", "-1"), ("headers", "[]")] {
            let error = read(vec![field(name, value)]).expect_err(name);
            assert!(error.contains(name), "{error}");
        }
        let error = read(vec![(Bytes::from_static(b"type"), Bytes::from_static(&[255]))]);
        assert!(error.is_err_and(|error| error.contains("type")));
    }
}
