//! Spans as OTLP has them, and a collector's answer.

use std::time::Instant;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Wire, Status};
use prost::Message as _;

use crate::{Kind, Span, Value};

/// Who sends spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    /// `service.instance.id`
    pub(crate) instance: String,
    /// `service.version`
    pub(crate) version: String,
}

/// The wall clock at a moment: the times of spans are told from there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) at: Instant,
    /// Nanoseconds since 1970.
    pub(crate) unix_ns: u64,
}

impl Clock {
    fn unix_ns(&self, moment: Instant) -> u64 {
        let ns = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
        };
        let ahead = self.unix_ns.saturating_add(ns(self.at, moment));
        ahead.saturating_sub(ns(moment, self.at))
    }
}

/// The parent came from elsewhere, and that is known (OTLP, `SpanFlags`).
const REMOTE_PARENT: u32 = 0x300;

/// A request with these spans, each with its id.
pub(crate) fn encode(
    sender: &Sender,
    clock: Clock,
    spans: impl Iterator<Item = (Span, [u8; 8])>,
) -> Vec<u8> {
    let of = |key: &str, text: &str| attribute(key, Value::Text(text.to_owned()));
    let attributes = vec![
        of("service.name", "millrace"),
        of("service.instance.id", &sender.instance),
        of("service.version", &sender.version),
    ];
    let scope = InstrumentationScope {
        name: "millrace".to_owned(),
        version: sender.version.clone(),
        ..InstrumentationScope::default()
    };
    let spans = spans.map(|(span, id)| wire(span, id, clock)).collect();
    let scope_spans = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
    let of_node = ResourceSpans {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_spans: vec![scope_spans],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![of_node] }.encode_to_vec()
}

/// Spans that the collector says it did not take. An answer that says nothing took all.
pub(crate) fn rejected(answer: &[u8]) -> u64 {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
    u64::try_from(partial).unwrap_or_default()
}

fn wire(span: Span, id: [u8; 8], clock: Clock) -> Wire {
    let Span { parent, name, kind, began, ended, attributes, error } = span;
    let kind = match kind {
        Kind::Producer => SpanKind::Producer,
        Kind::Consumer => SpanKind::Consumer,
    };
    let failure = error.map(|why| ("error.type", Value::Text(why.to_owned())));
    let attributes = attributes.into_iter().chain(failure);
    let status =
        error.map(|why| Status { code: StatusCode::Error.into(), message: why.to_owned() });
    Wire {
        trace_id: parent.trace_id.to_vec(),
        span_id: id.to_vec(),
        trace_state: parent.state,
        parent_span_id: parent.span_id.to_vec(),
        flags: u32::from(parent.flags) | REMOTE_PARENT,
        name,
        kind: kind.into(),
        start_time_unix_nano: clock.unix_ns(began),
        end_time_unix_nano: clock.unix_ns(ended),
        attributes: attributes.map(|(key, value)| attribute(key, value)).collect(),
        status,
        ..Wire::default()
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text),
        Value::Number(number) => any_value::Value::IntValue(number),
        Value::Switch(is_on) => any_value::Value::BoolValue(is_on),
    };
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;
    use crate::Parent;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "somewhere to count from")]
    fn a_span_has_its_trace_parent_times_and_attributes() {
        let parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let now = Instant::now() + Duration::from_secs(60);
        let clock = Clock { at: now, unix_ns: 1_000_000_000_000 };
        let span = Span {
            parent: Parent::read(parent, Some(b"a=1")).unwrap(),
            name: "publish orders:new".to_owned(),
            kind: Kind::Producer,
            began: now - Duration::from_millis(2),
            ended: now + Duration::from_nanos(7),
            attributes: vec![
                ("messaging.message.body.size", Value::Number(5)),
                ("millrace.redelivered", Value::Switch(true)),
            ],
            error: Some("nack"),
        };
        let sender = Sender { instance: "millrace@1".to_owned(), version: "0.1".to_owned() };
        let bytes = encode(&sender, clock, std::iter::once((span, [7; 8])));
        let request = ExportTraceServiceRequest::decode(&bytes[..]).unwrap();
        let of_node = &request.resource_spans[0];
        let resource = &of_node.resource.as_ref().unwrap().attributes;
        let keys: Vec<_> = resource.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["service.name", "service.instance.id", "service.version"]);
        let span = &of_node.scope_spans[0].spans[0];
        assert_eq!(span.trace_id[..2], [0x0a, 0xf7]);
        assert_eq!(span.parent_span_id[..2], [0xb7, 0xad]);
        assert_eq!((&span.span_id[..], span.trace_state.as_str()), (&[7; 8][..], "a=1"));
        assert_eq!((span.flags, span.kind()), (0x301, SpanKind::Producer));
        let times = (span.start_time_unix_nano, span.end_time_unix_nano);
        assert_eq!(times, (999_998_000_000, 1_000_000_000_007));
        assert_eq!(span.status.as_ref().unwrap().code(), StatusCode::Error);
        let keys: Vec<_> = span.attributes.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["messaging.message.body.size", "millrace.redelivered", "error.type"]);
    }

    #[test]
    fn an_answer_says_how_many_spans_were_not_taken() {
        let answer = |rejected_spans| {
            let error_message = String::new();
            let partial = ExportTracePartialSuccess { rejected_spans, error_message };
            ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!((rejected(&answer(3)), rejected(&answer(-1)), rejected(b"")), (3, 0, 0));
        assert_eq!(rejected(b"<html>"), 0);
    }
}
