//! A row to a message: what the relay publishes for it, the same at every attempt.

use amqp::{FieldWriter, Properties, TableRef};
use bytes::BytesMut;

use crate::attempts::{Fault, Reason};
use crate::cloudevents::{Event, Mode, STRUCTURED};
use crate::fields::Fields;
use crate::headers;
use crate::limits::{HEADERS_BYTES_MAX, SHORT_STRING_BYTES_MAX};
use crate::mapping::{Layout, Mapping};
use crate::timestamp;

/// The property `app-id` of every message.
const APP_ID: &str = "millrace-relay";

/// Makes messages of rows. Keeps buffers, nothing else.
#[derive(Debug)]
pub struct Composer {
    mapping: Mapping,
    layout: Layout,
    body_bytes_max: usize,
    /// A row without a payload is not a message with an empty body.
    needs_payload: bool,
    exchange: String,
    routing_key: String,
    headers: BytesMut,
    /// The attribute `source` of an event.
    source: String,
    /// An event that is all in the body.
    document: Vec<u8>,
}

/// A message that can be published.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
    pub properties: Properties<'a>,
    pub body: &'a [u8],
}

impl Composer {
    /// For rows that were read with `mapping`'s layout.
    pub fn new(mapping: &Mapping, body_bytes_max: usize) -> Self {
        Self {
            mapping: mapping.clone(),
            layout: mapping.layout(),
            body_bytes_max,
            needs_payload: false,
            exchange: String::new(),
            routing_key: String::new(),
            headers: BytesMut::new(),
            source: String::new(),
            document: Vec::new(),
        }
    }

    /// For messages of `pg_logical_emit_message`: nothing but their text says what they have, and a name that is not
    /// right must not make an empty body of it.
    pub fn of_messages(self, are_messages: bool) -> Self {
        Self { needs_payload: are_messages, ..self }
    }

    /// Which columns it expects.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The message of a row.
    ///
    /// # Errors
    /// No attempt can ever publish it: what is missing, too long or no JSON.
    pub fn compose<'a>(&'a mut self, fields: &'a Fields) -> Result<Outgoing<'a>, Fault> {
        let Self { mapping, layout, exchange, routing_key, headers, source, document, .. } = self;
        let value = |name: &str| fields.text(layout.find(name)?);
        let broken = |text: String| Fault { reason: Reason::Broken, text };
        for (what, template, out) in [
            ("exchange", &mapping.exchange, &mut *exchange),
            ("routing key", &mapping.routing_key, &mut *routing_key),
        ] {
            out.clear();
            template.render(out, value).map_err(|column| {
                broken(format!("the {what} needs column `{column}`, which is NULL or no text"))
            })?;
            check_short(what, out).map_err(broken)?;
        }
        let message_id = fields
            .text(layout.id)
            .ok_or_else(|| broken(format!("column `{}` (the id) is NULL", mapping.id)))?;
        check_short("message-id", message_id).map_err(broken)?;
        let kind = layout.message_type.and_then(|at| fields.text(at));
        check_short("type", kind.unwrap_or_default()).map_err(broken)?;
        let short = |what: &str, at: Option<usize>| match at.and_then(|at| fields.text(at)) {
            Some(text) => check_short(what, text).map(|()| Some(text)),
            None => Ok(None),
        };
        let correlation_id = short("correlation-id", layout.correlation_id).map_err(broken)?;
        let content_type = short("content-type", layout.content_type).map_err(broken)?;
        let expiration = layout.expiration.and_then(|at| fields.text(at));
        check_expiration(expiration).map_err(broken)?;
        let priority = layout.priority.and_then(|at| fields.text(at));
        let priority = priority.map(priority_of).transpose().map_err(broken)?;
        let mut has_headers = write_headers(mapping, layout, fields, headers).map_err(broken)?;
        let occurred = layout.occurred.and_then(|at| fields.text(at));
        let mut content_type = content_type.unwrap_or(&mapping.content_type);
        let mut body = fields.get(layout.payload);
        if let Some(events) = &mapping.cloudevents {
            source.clear();
            events.source.render(source, value).map_err(|column| {
                broken(format!("the source needs column `{column}`, which is NULL or no text"))
            })?;
            let event = Event {
                id: message_id,
                source: source.as_str(),
                kind: kind.unwrap_or_default(),
                time: occurred.and_then(timestamp::rfc3339),
                content_type,
                data: body,
            };
            if let Some(problem) = event.problem() {
                return Err(broken(problem.into()));
            }
            match events.mode {
                Mode::Binary => {
                    event.write_headers(headers);
                    has_headers = true;
                }
                Mode::Structured => {
                    *document = event.to_json().map_err(broken)?;
                    (content_type, body) = (STRUCTURED, Some(document.as_slice()));
                }
            }
        }
        if headers.len() > HEADERS_BYTES_MAX {
            let bytes = headers.len();
            return Err(broken(format!(
                "the headers have {bytes} bytes, and at most {HEADERS_BYTES_MAX} fit into a message"
            )));
        }
        let table = match has_headers {
            true => Some(TableRef::validate(headers).map_err(|error| broken(error.to_string()))?),
            false => None,
        };
        if self.needs_payload && fields.get(layout.payload).is_none() {
            return Err(broken(format!(
                "the message has no `{0}`: pg_logical_emit_message is given an object that has the body under `{0}` \
                 (docs/relay.md, Messages)",
                mapping.payload
            )));
        }
        let body = body.unwrap_or_default();
        if body.len() > self.body_bytes_max {
            let text = format!(
                "the body has {} bytes, more than --body-bytes-max {}",
                body.len(),
                self.body_bytes_max
            );
            return Err(Fault { reason: Reason::TooLarge, text });
        }
        let properties = Properties {
            content_type: Some(content_type),
            headers: table,
            delivery_mode: Some(2),
            priority,
            correlation_id,
            expiration,
            message_id: Some(message_id),
            timestamp: occurred.and_then(timestamp::seconds),
            kind,
            app_id: Some(APP_ID),
            ..Properties::default()
        };
        Ok(Outgoing { exchange, routing_key, properties, body })
    }
}

/// The headers of a row: of its JSON, then of its columns. A column gives way to the JSON's header of its name. Whether
/// there are any.
fn write_headers(
    mapping: &Mapping,
    layout: &Layout,
    fields: &Fields,
    out: &mut BytesMut,
) -> Result<bool, String> {
    let json = layout.headers.and_then(|at| fields.text(at)).map(headers::encode).transpose()?;
    let json = json.flatten();
    let mut has_any = json.is_some();
    let own = json.unwrap_or_default();
    if mapping.header_columns.is_empty() {
        *out = own;
        return Ok(has_any);
    }
    out.clear();
    out.extend_from_slice(&own);
    let own = TableRef::validate(&own).map_err(|error| error.to_string())?;
    for (header, &at) in mapping.header_columns.iter().zip(&layout.header_columns) {
        let Some(value) = fields.get(at) else { continue };
        has_any = true;
        if own.is_empty() || own.find(&header.header).is_none() {
            FieldWriter::new(out).text(&header.header, value);
        }
    }
    Ok(has_any)
}

/// Milliseconds, as brokers take them: another text would close the channel.
fn check_expiration(text: Option<&str>) -> Result<(), String> {
    match text {
        Some(text) if !text.bytes().all(|c| c.is_ascii_digit()) || text.parse::<u32>().is_err() => {
            Err(format!("the expiration is `{text}`: it is milliseconds, 0 to {}", u32::MAX))
        }
        Some(_) | None => Ok(()),
    }
}

fn priority_of(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| format!("the priority is `{text}`: it is a number from 0 to 255"))
}

fn check_short(what: &str, text: &str) -> Result<(), String> {
    if text.len() > SHORT_STRING_BYTES_MAX {
        return Err(format!("the {what} has {} bytes, more than AMQP's 255", text.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{HeaderColumn, Preset};

    fn composer(change: impl FnOnce(&mut Mapping)) -> Composer {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        change(&mut mapping);
        Composer::new(&mapping, 100)
    }

    fn row(values: &[Option<&str>]) -> Fields {
        values.iter().map(|value| value.map(str::as_bytes)).collect()
    }

    const ID: Option<&str> = Some("0b7a-1");
    const AT: Option<&str> = Some("2026-11-21 13:00:05+00");

    #[test]
    fn a_row_of_the_known_table_is_a_message_with_its_id_type_and_time() {
        let mut composer = composer(|_| ());
        let fields = row(&[ID, Some("{}"), Some("paid"), AT]);
        let message = composer.compose(&fields).expect("it can be published");
        assert_eq!((message.exchange, message.routing_key, message.body), ("", "paid", &b"{}"[..]));
        let properties = message.properties;
        assert_eq!(properties.message_id, ID);
        assert_eq!(properties.kind, Some("paid"));
        assert_eq!(properties.timestamp, Some(1_795_266_005));
        assert_eq!(properties.delivery_mode, Some(2));
        assert_eq!(properties.content_type, Some("application/json"));
    }

    #[test]
    fn a_row_that_amqp_cannot_carry_says_what_is_wrong() {
        let mut composer = composer(|mapping| mapping.headers = Some("headers".into()));
        let long = "k".repeat(256);
        let cases = [
            (row(&[ID, Some("{}"), None, AT, None]), "column `type`"),
            (row(&[None, Some("{}"), Some("t"), AT, None]), "the id"),
            (row(&[ID, Some("{}"), Some(&long), AT, None]), "routing key has 256 bytes"),
            (row(&[ID, Some("{}"), Some("t"), AT, Some("[]")]), "not a JSON object"),
        ];
        for (fields, words) in cases {
            let fault = composer.compose(&fields).map(drop).expect_err(words);
            assert_eq!(fault.reason, Reason::Broken);
            assert!(fault.text.contains(words), "{}", fault.text);
        }
        let big = "b".repeat(101);
        let fields = row(&[ID, Some(&big), Some("t"), AT, None]);
        let fault = composer.compose(&fields).map(drop).expect_err("it is too large");
        assert_eq!(fault.reason, Reason::TooLarge);
    }

    #[test]
    fn columns_are_headers_and_properties_and_what_is_null_is_none() {
        let some = |name: &str| Some(name.to_owned());
        let mut composer = composer(|mapping| {
            mapping.headers = some("headers");
            let headers = ["tenant", "trace=traceparent"];
            let headers = headers.map(|text| text.parse::<HeaderColumn>().expect("it is one"));
            mapping.header_columns = headers.to_vec();
            mapping.correlation_id = some("correlation");
            mapping.content_type_column = some("media");
            mapping.priority = some("priority");
            mapping.expiration = some("ttl");
        });
        let names = composer.layout().columns[4..].to_vec();
        assert_eq!(
            names,
            ["headers", "correlation", "media", "priority", "ttl", "tenant", "trace"]
        );
        let four = [ID, Some("{}"), Some("t"), AT];
        let full = [r#"{"traceparent":"json's"}"#, "c-1", "text/xml", "7", "60000", "acme", "x"];
        let full: Vec<_> = four.into_iter().chain(full.map(Some)).collect();
        let row_of_all = row(&full);
        let Properties { correlation_id, content_type, priority, expiration, headers, .. } =
            composer.compose(&row_of_all).expect("it can be published").properties;
        assert_eq!((correlation_id, content_type), (Some("c-1"), Some("text/xml")));
        assert_eq!((priority, expiration), (Some(7), Some("60000")));
        let table = headers.expect("there are some").to_table();
        let texts: Vec<_> = table.0.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let text = |text: &str| amqp::FieldValue::LongStr(text.into());
        assert_eq!(texts, [("traceparent", &text("json's")), ("tenant", &text("acme"))]);

        let none = row(&[four.to_vec(), vec![None; 7]].concat());
        let properties = composer.compose(&none).expect("it can be published").properties;
        assert_eq!(properties.content_type, Some("application/json"));
        assert!(properties.headers.is_none() && properties.priority.is_none());

        for (at, wrong, words) in [
            (7, "256", "the priority"),
            (8, "5 min", "the expiration"),
            (8, "-1", "the expiration"),
        ] {
            let mut values = full.clone();
            values[at] = Some(wrong);
            let fields = row(&values);
            let fault = composer.compose(&fields).map(drop).expect_err(wrong);
            assert!(fault.text.contains(words), "{}", fault.text);
        }
    }

    #[test]
    fn a_row_is_a_cloud_event_in_either_mode() {
        let with = |mode| {
            composer(|mapping| {
                let source = "/shop/{type}".parse().expect("it is a template");
                mapping.cloudevents = Some(crate::cloudevents::CloudEvents { mode, source });
            })
        };
        let mut structured = with(Mode::Structured);
        structured.body_bytes_max = 1000;
        let fields = row(&[ID, Some("{\"a\":1}"), Some("paid"), AT]);
        let message = structured.compose(&fields).expect("it can be published");
        assert_eq!(message.properties.content_type, Some(STRUCTURED));
        assert_eq!(
            (message.properties.message_id, message.properties.headers.is_none()),
            (ID, true)
        );
        let event: serde_json::Value = serde_json::from_slice(message.body).expect("JSON");
        assert_eq!((&event["id"], &event["source"]), (&"0b7a-1".into(), &"/shop/paid".into()));
        assert_eq!((&event["type"], &event["data"]["a"]), (&"paid".into(), &1.into()));
        assert_eq!(event["time"], "2026-11-21T13:00:05Z");

        let mut binary = with(Mode::Binary);
        let message = binary.compose(&fields).expect("it can be published");
        assert_eq!(
            (message.body, message.properties.content_type),
            (&b"{\"a\":1}"[..], Some("application/json"))
        );
        let headers = message.properties.headers.expect("the attributes").to_table();
        let source = amqp::FieldValue::LongStr(b"/shop/paid".to_vec());
        assert_eq!(headers.find("cloudEvents:source"), Some(&source));
        let untyped = row(&[ID, Some("{}"), Some(""), AT]);
        let fault = binary.compose(&untyped).map(drop).expect_err("it has no type");
        assert!(fault.text.contains("needs a type"), "{}", fault.text);
    }

    #[test]
    fn the_aggregate_of_debeziums_table_is_a_header() {
        let mut composer = Composer::new(&Mapping::preset(Preset::Debezium), 100);
        let fields = row(&[ID, Some("{}"), Some("paid"), Some("order-7"), Some("order")]);
        let message = composer.compose(&fields).expect("it can be published");
        assert_eq!(message.routing_key, "outbox.event.order");
        let headers = message.properties.headers.expect("there is one").to_table();
        let value = amqp::FieldValue::LongStr(b"order-7".to_vec());
        assert_eq!(headers.find("aggregateid"), Some(&value));
    }

    #[test]
    fn a_message_without_its_payload_is_not_one_with_an_empty_body() {
        let mut of_messages = composer(|_| ()).of_messages(true);
        let missing = row(&[ID, None, Some("t"), None]);
        let fault = of_messages.compose(&missing).map(drop).expect_err("it has no body");
        assert!(fault.reason == Reason::Broken && fault.text.contains("`content`"), "{fault:?}");
        let empty = row(&[ID, Some(""), Some("t"), None]);
        assert!(of_messages.compose(&empty).is_ok_and(|message| message.body.is_empty()));
        assert!(composer(|_| ()).compose(&missing).is_ok(), "of a table, NULL is an empty body");
    }

    #[test]
    fn headers_that_no_frame_has_room_for_are_a_fault_of_their_row() {
        let mut composer = composer(|mapping| mapping.headers = Some("headers".into()));
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(HEADERS_BYTES_MAX));
        let row = row(&[ID, Some("{}"), Some("t"), AT, Some(&long)]);
        let fault = composer.compose(&row).expect_err("they do not fit");
        assert!(fault.text.contains("fit into a message"), "{fault:?}");
    }

    #[test]
    fn headers_of_one_row_do_not_stay_for_the_next() {
        let mut composer = composer(|mapping| mapping.headers = Some("headers".into()));
        let with = row(&[ID, Some("{}"), Some("t"), AT, Some(r#"{"a":1}"#)]);
        assert!(composer.compose(&with).expect("fine").properties.headers.is_some());
        let without = row(&[ID, Some("{}"), Some("t"), AT, None]);
        assert!(composer.compose(&without).expect("fine").properties.headers.is_none());
    }
}
