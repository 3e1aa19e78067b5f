//! A row as a CloudEvent: CloudEvents 1.0, with its AMQP protocol binding and its JSON event format.
//!
//! In binary mode the attributes are headers, and the body is the data as it is. In structured mode the body is one JSON
//! object with attributes and data.

use amqp::FieldWriter;
use bytes::BytesMut;
use serde_json::value::RawValue;

use crate::template::Template;

/// The version of the specification that events say they have.
const SPECVERSION: &str = "1.0";
/// What begins the name of a header that is an attribute (AMQP protocol binding 3.1.3.1).
const PREFIX: &str = "cloudEvents:";
/// The content-type of an event in structured mode.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

/// How events are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Binary,
    Structured,
}

/// Rows are published as events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvents {
    pub mode: Mode,
    /// The attribute `source`.
    pub source: Template,
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event<'a> {
    pub id: &'a str,
    pub source: &'a str,
    pub kind: &'a str,
    pub time: Option<String>,
    pub content_type: &'a str,
    /// None: NULL.
    pub data: Option<&'a [u8]>,
}

impl Event<'_> {
    /// What is missing, in words.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.kind.is_empty() {
            return Some("a CloudEvent needs a type: its column is NULL, or --type-column is none");
        }
        self.source
            .is_empty()
            .then_some("a CloudEvent needs a source: --cloudevents-source is empty")
    }

    fn attributes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("specversion", Some(SPECVERSION)),
            ("id", Some(self.id)),
            ("source", Some(self.source)),
            ("type", Some(self.kind)),
            ("time", self.time.as_deref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    /// Appends the attributes as headers; `datacontenttype` is the message's content-type.
    pub(crate) fn write_headers(&self, out: &mut BytesMut) {
        for (name, value) in self.attributes() {
            FieldWriter::new(out).text(&format!("{PREFIX}{name}"), value.as_bytes());
        }
    }

    /// All of the event as JSON.
    ///
    /// # Errors
    /// In words: the data is neither the JSON that its content-type says, nor text.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, String> {
        let string = |text: &str| serde_json::Value::from(text).to_string();
        let mut parts: Vec<String> = self
            .attributes()
            .map(|(name, value)| format!("\"{name}\":{}", string(value)))
            .collect();
        if let Some(data) = self.data {
            parts.push(format!("\"datacontenttype\":{}", string(self.content_type)));
            let text = std::str::from_utf8(data).map_err(|_| {
                "the body is no text, which a structured CloudEvent needs: take --cloudevents binary"
            })?;
            let data = match is_json(self.content_type) {
                true => serde_json::from_str::<&RawValue>(text)
                    .map_err(|error| format!("the body is not JSON: {error}"))?
                    .get()
                    .to_owned(),
                false => string(text),
            };
            parts.push(format!("\"data\":{data}"));
        }
        Ok(format!("{{{}}}", parts.join(",")).into_bytes())
    }
}

/// `application/json`, or `…+json`, with or without parameters.
fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.rsplit(['/', '+']).next().is_some_and(|last| last.eq_ignore_ascii_case("json"))
}

#[cfg(test)]
mod tests {
    use amqp::TableRef;

    use super::*;

    fn event(content_type: &'static str, data: Option<&'static [u8]>) -> Event<'static> {
        let time = Some("2026-11-21T13:00:05Z".to_owned());
        Event { id: "7", source: "/shop", kind: "paid", time, content_type, data }
    }

    #[test]
    fn attributes_are_headers_in_binary_mode() {
        let mut out = BytesMut::new();
        event("avro/binary", Some(b"\xff")).write_headers(&mut out);
        let table = TableRef::validate(&out).expect("it is a table").to_table();
        let text = |name: &str| match table.find(name) {
            Some(amqp::FieldValue::LongStr(text)) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(text("cloudEvents:specversion"), "1.0");
        assert_eq!(
            (text("cloudEvents:id"), text("cloudEvents:source")),
            ("7".into(), "/shop".into())
        );
        assert_eq!(text("cloudEvents:type"), "paid");
        assert_eq!(text("cloudEvents:time"), "2026-11-21T13:00:05Z");
    }

    #[test]
    fn json_stays_as_it_was_written_and_text_is_a_string_in_structured_mode() {
        let json = |content_type, data| {
            let made = event(content_type, data).to_json().expect("it is an event");
            String::from_utf8(made).expect("it is text")
        };
        let head = r#"{"specversion":"1.0","id":"7","source":"/shop","type":"paid","time":"2026-11-21T13:00:05Z""#;
        assert_eq!(
            json("application/vnd.shop+json; v=1", Some(b"{\"a\": 1.50}")),
            format!(
                r#"{head},"datacontenttype":"application/vnd.shop+json; v=1","data":{{"a": 1.50}}}}"#
            )
        );
        assert_eq!(
            json("text/plain", Some(b"say \"x\"")),
            format!(r#"{head},"datacontenttype":"text/plain","data":"say \"x\""}}"#)
        );
        assert_eq!(json("text/plain", None), format!("{head}}}"));
        assert!(event("application/json", Some(b"{")).to_json().is_err());
        assert!(event("avro/binary", Some(b"\xff")).to_json().is_err());
    }

    #[test]
    fn an_event_without_type_or_source_is_none() {
        assert_eq!(event("", None).problem(), None);
        assert!(Event { kind: "", ..event("", None) }.problem().is_some());
        assert!(Event { source: "", ..event("", None) }.problem().is_some());
    }
}
