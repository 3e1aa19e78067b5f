//! A job as a message of SQS.
//!
//! The body is the job's body, or an envelope ([`crate::source::envelope`]). The message's attributes say the rest:
//! `x-job-id`, `x-job-type`, `x-job-key`, `x-job-attempt`, `x-job-timeout-ms`, `x-job-attempts-max`, `x-job-then`,
//! `x-job-batch`, `x-job-due-ms`, `content-type`; others are headers. A job that has more than ten of them, or a body that
//! is no text, is sent as an envelope.

use std::time::Duration;

use bytes::Bytes;

use super::{ATTRIBUTES_MAX, Attribute, Attributes, Received};
use crate::job::Header;
use crate::source::envelope::{self, Envelope};

/// Reads a job. Its attempt is what the message says: how often it came out is not in it yet.
///
/// # Errors
/// An attribute or the envelope is wrong: which, and why.
pub fn read(received: &Received) -> Result<Envelope, String> {
    let mut envelope = envelope::read(&Bytes::copy_from_slice(received.body.as_bytes()))?;
    let mut extras = envelope.message.extras.take().map(|extras| *extras).unwrap_or_default();
    for (name, attribute) in &received.message_attributes {
        let Some(value) = attribute.string_value.clone() else { continue };
        let message = &mut envelope.message;
        match name.as_str() {
            "x-job-id" => message.id = value,
            "x-job-type" => message.kind = value,
            "x-job-key" => envelope.key = Some(value),
            "x-job-attempt" => message.attempt = number::<u32>(name, &value)?.max(1),
            "x-job-timeout-ms" => {
                extras.timeout = Some(Duration::from_millis(number(name, &value)?));
            }
            "x-job-attempts-max" => extras.attempts_max = Some(number(name, &value)?),
            "x-job-then" => extras.then = Some(value),
            "x-job-batch" => extras.batch = Some(value),
            "x-job-due-ms" => envelope.due_ms = Some(number(name, &value)?),
            "content-type" => message.content_type = Some(value),
            _ => message.headers.push(Header { name: name.clone(), value }),
        }
    }
    if extras != crate::job::Extras::default() {
        envelope.message.extras = Some(Box::new(extras));
    }
    if envelope.message.id.is_empty() {
        envelope.message.id.clone_from(&received.message_id);
    }
    if envelope.key.is_none() {
        envelope.key = received.attributes.get("MessageGroupId").cloned();
    }
    let sent = received.attributes.get("SentTimestamp").and_then(|ms| ms.parse().ok());
    envelope.published_ms = envelope.published_ms.or(sent);
    Ok(envelope)
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{name}` is no number: {value}"))
}

/// Writes a job: the message's body, and its attributes.
pub fn write(envelope: &Envelope) -> (String, Attributes) {
    match std::str::from_utf8(&envelope.message.body) {
        Ok(body) if is_body(body) => match attributes(envelope) {
            Some(attributes) => (body.to_owned(), attributes),
            None => (envelope::write(envelope), Attributes::new()),
        },
        Ok(_) | Err(_) => (envelope::write(envelope), Attributes::new()),
    }
}

/// Whether SQS takes it as a body, and nobody takes it for an envelope.
fn is_body(body: &str) -> bool {
    let is_allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    !body.is_empty() && body.chars().all(is_allowed) && !body.contains("\"millrace\"")
}

fn attributes(envelope: &Envelope) -> Option<Attributes> {
    let message = &envelope.message;
    let extras = message.extras.as_deref();
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let mut put = |name, value: Option<String>| pairs.extend(value.map(|value| (name, value)));
    let filled = |text: &String| (!text.is_empty()).then(|| text.clone());
    put("x-job-id", filled(&message.id));
    put("x-job-type", filled(&message.kind));
    put("x-job-key", envelope.key.as_ref().and_then(filled));
    put("x-job-attempt", (message.attempt > 1).then(|| message.attempt.to_string()));
    put("x-job-due-ms", envelope.due_ms.map(|ms| ms.to_string()));
    put("content-type", message.content_type.as_ref().and_then(filled));
    if let Some(extras) = extras {
        put("x-job-timeout-ms", extras.timeout.map(|time| time.as_millis().to_string()));
        put("x-job-attempts-max", extras.attempts_max.map(|max| max.to_string()));
        put("x-job-then", extras.then.clone());
        put("x-job-batch", extras.batch.clone());
    }
    pairs.extend(message.headers.iter().map(|h| (h.name.as_str(), h.value.clone())));
    let is_name = |name: &str| {
        let is_sign = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !name.is_empty() && name.len() <= 256 && name.chars().all(is_sign)
    };
    let fits = pairs.len() <= ATTRIBUTES_MAX
        && pairs.iter().all(|(name, value)| is_name(name) && is_body_value(value));
    let attribute = |value| Attribute { data_type: "String".into(), string_value: Some(value) };
    fits.then(|| {
        pairs.into_iter().map(|(name, value)| (name.to_owned(), attribute(value))).collect()
    })
}

fn is_body_value(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c >= ' ' || matches!(c, '\t' | '\n' | '\r'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Message;

    fn job(headers: usize, body: &'static [u8]) -> Envelope {
        let headers = (0..headers)
            .map(|number| Header { name: format!("h{number}"), value: number.to_string() });
        let message = Message {
            id: "1".into(),
            kind: "mail".into(),
            headers: headers.collect(),
            body: Bytes::from_static(body),
            attempt: 3,
            ..Message::default()
        };
        Envelope { message, key: Some("k".into()), published_ms: None, due_ms: Some(9) }
    }

    fn again(envelope: &Envelope) -> Envelope {
        let (body, message_attributes) = write(envelope);
        read(&Received { body, message_attributes, ..Received::default() }).expect("it is a job")
    }

    #[test]
    fn what_is_written_is_read_again_whether_it_fits_or_not() {
        for job in
            [job(2, b"text"), job(9, b"text"), job(0, &[0, 255]), job(0, b""), job(1, b"\x01")]
        {
            assert_eq!(again(&job), job);
        }
        assert_eq!(write(&job(2, b"text")).0, "text", "a body stays as it is where it can");
    }

    #[test]
    fn a_plain_message_has_the_id_and_the_group_of_its_queue() {
        let attributes =
            [("SentTimestamp", "5"), ("MessageGroupId", "g")].map(|(a, b)| (a.into(), b.into()));
        let received = Received {
            message_id: "m".into(),
            body: "x".into(),
            attributes: attributes.into(),
            ..Received::default()
        };
        let envelope = read(&received).expect("it is a job");
        assert_eq!((envelope.message.id.as_str(), envelope.key.as_deref()), ("m", Some("g")));
        assert_eq!((envelope.published_ms, envelope.message.attempt), (Some(5), 1));
    }
}
