//! Which message makes which span: for the collector of OpenTelemetry, if there is one.
//!
//! A message whose headers have a sampled `traceparent` makes a span when it is published, and one each time a client is
//! given it. All of them are children of the span that its publisher named. Names and attributes are those of
//! OpenTelemetry's semantic conventions for RabbitMQ.
//!
//! | Span | Begins | Ends |
//! | --- | --- | --- |
//! | `publish` | when the message has come | with its confirm; at once if none is due, or in a transaction |
//! | `deliver`, `get` | when the message goes to the client | when it is settled; at once if no settling is due |
//!
//! A connection keeps a bounded number of spans open. What comes beyond is over when it begins: nothing is lost but how
//! long it took.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use amqp::{Properties, TableRef, ValueRef};
use machine::Outcome;
use otlp::{Kind, Parent, Span, Value};

use crate::channel::unacked::Run;
use crate::connection::tickets::ChannelRef;
use crate::limits::SPANS_OPEN_MAX;
use crate::passing::Passing;
use crate::stored::destination_texts;

/// What a destination is called that is neither an exchange nor a key.
const DEFAULT: &str = "amq.default";

/// The spans of one connection that are not over.
#[derive(Debug)]
pub(crate) struct Spans {
    /// The node's address that the client has connected to.
    server: Option<SocketAddr>,
    /// By the run of confirms that they wait for.
    published: BTreeMap<(ChannelRef, u64), Vec<Span>>,
    /// By their delivery tags.
    given: BTreeMap<(ChannelRef, u64), Span>,
    open: usize,
}

/// A message that a client is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'g> {
    /// `deliver`, or `get`.
    pub(crate) is_asked: bool,
    pub(crate) queue: &'g str,
    pub(crate) tag: u64,
    /// The client does not settle it.
    pub(crate) no_ack: bool,
    pub(crate) redelivered: bool,
}

impl Spans {
    pub(crate) fn new(server: Option<SocketAddr>) -> Self {
        Self { server, published: BTreeMap::new(), given: BTreeMap::new(), open: 0 }
    }

    /// A client published to this vhost. `run`: its confirm waits for that run of its channel.
    pub(crate) fn published(
        &mut self,
        now: Instant,
        (at, run): (ChannelRef, Option<u64>),
        vhost: &str,
        passing: Passing<'_>,
        out: &mut Vec<Span>,
    ) {
        let Some((parent, properties)) = traced(passing.properties) else { return };
        let (exchange, key) = destination_texts(passing.destination);
        let what = What { name: "publish", kind: Kind::Producer, operation: "send" };
        let destination = destination(&[exchange, key]);
        let mut span = what.span(now, parent, destination);
        self.describe(&mut span, vhost, key, &properties, passing.body);
        match run {
            Some(run) if self.open < SPANS_OPEN_MAX => {
                self.open += 1;
                self.published.entry((at, run)).or_default().push(span);
            }
            Some(_) | None => out.push(span),
        }
    }

    /// The publishes of a run are stored, or refused: their confirms are due.
    pub(crate) fn confirmed(
        &mut self,
        now: Instant,
        at: ChannelRef,
        run: u64,
        is_stored: bool,
        out: &mut Vec<Span>,
    ) {
        let spans = self.published.remove(&(at, run)).unwrap_or_default();
        self.open -= spans.len();
        let error = (!is_stored).then_some("nack");
        out.extend(spans.into_iter().map(|span| Span { ended: now, error, ..span }));
    }

    /// A client of this vhost is given a message.
    pub(crate) fn given(
        &mut self,
        now: Instant,
        at: ChannelRef,
        vhost: &str,
        given: Given<'_>,
        passing: Passing<'_>,
        out: &mut Vec<Span>,
    ) {
        let Some((parent, properties)) = traced(passing.properties) else { return };
        let Given { is_asked, queue, tag, no_ack, redelivered } = given;
        let (exchange, key) = destination_texts(passing.destination);
        let (name, operation) = if is_asked { ("get", "receive") } else { ("deliver", "process") };
        let what = What { name, kind: Kind::Consumer, operation };
        let queue = if queue == key { "" } else { queue };
        let mut span = what.span(now, parent, destination(&[exchange, key, queue]));
        self.describe(&mut span, vhost, key, &properties, passing.body);
        let tag_shown = i64::try_from(tag).unwrap_or(i64::MAX);
        span.attributes.push(("messaging.rabbitmq.message.delivery_tag", Value::Number(tag_shown)));
        if redelivered {
            span.attributes.push(("millrace.redelivered", Value::Switch(true)));
        }
        if no_ack || self.open >= SPANS_OPEN_MAX {
            out.push(span);
        } else {
            self.open += 1;
            self.given.insert((at, tag), span);
        }
    }

    /// A client, or the end of its channel, has settled deliveries.
    pub(crate) fn settled(
        &mut self,
        now: Instant,
        at: ChannelRef,
        run: &Run,
        outcome: Outcome,
        out: &mut Vec<Span>,
    ) {
        if self.given.is_empty() {
            return;
        }
        let error = match outcome {
            Outcome::Done => None,
            Outcome::Rejected => Some("rejected"),
            Outcome::Requeue => Some("requeued"),
            Outcome::Returned => Some("returned"),
            Outcome::Purged
            | Outcome::Undelivered
            | Outcome::Expired
            | Outcome::Overflowed
            | Outcome::Exhausted
            | Outcome::PassedOver
            | Outcome::DeadLettered => return,
        };
        let tags = (at, run.first_tag)..(at, run.first_tag + u64::from(run.count));
        for (_, span) in self.given.extract_if(tags, |_, _| true) {
            self.open -= 1;
            out.push(Span { ended: now, error, ..span });
        }
    }

    /// A channel is over: its client hears of no more confirms. What it holds is settled by its channel.
    pub(crate) fn channel_ended(&mut self, now: Instant, at: ChannelRef, out: &mut Vec<Span>) {
        let runs = (at, 0)..=(at, u64::MAX);
        for (_, spans) in self.published.extract_if(runs, |_, _| true) {
            self.open -= spans.len();
            let error = Some("unconfirmed");
            out.extend(spans.into_iter().map(|span| Span { ended: now, error, ..span }));
        }
    }

    /// The connection is over: what its client holds goes back, and it hears of no more confirms.
    pub(crate) fn end(&mut self, now: Instant, out: &mut Vec<Span>) {
        self.open = 0;
        let published = std::mem::take(&mut self.published).into_values().flatten();
        out.extend(published.map(|span| Span { ended: now, error: Some("unconfirmed"), ..span }));
        let given = std::mem::take(&mut self.given).into_values();
        out.extend(given.map(|span| Span { ended: now, error: Some("returned"), ..span }));
    }

    fn describe(
        &self,
        span: &mut Span,
        vhost: &str,
        key: &str,
        properties: &Properties<'_>,
        body: &[u8],
    ) {
        let text = |text: &str| Value::Text(text.to_owned());
        let size = i64::try_from(body.len()).unwrap_or(i64::MAX);
        let attributes = &mut span.attributes;
        attributes.push(("messaging.message.body.size", Value::Number(size)));
        attributes.push(("millrace.vhost", text(vhost)));
        let said = [
            ("messaging.rabbitmq.destination.routing_key", Some(key).filter(|key| !key.is_empty())),
            ("messaging.message.id", properties.message_id),
            ("messaging.message.conversation_id", properties.correlation_id),
        ];
        attributes.extend(said.into_iter().filter_map(|(name, said)| Some((name, text(said?)))));
        if let Some(server) = self.server {
            attributes.push(("server.address", Value::Text(server.ip().to_string())));
            attributes.push(("server.port", Value::Number(server.port().into())));
        }
    }
}

/// What a span tells of.
struct What {
    /// Of the operation, as AMQP calls it.
    name: &'static str,
    kind: Kind,
    /// Of the operation, as OpenTelemetry sorts them.
    operation: &'static str,
}

impl What {
    fn span(self, now: Instant, parent: Parent, destination: String) -> Span {
        let Self { name, kind, operation } = self;
        let text = |text: &str| Value::Text(text.to_owned());
        let attributes = vec![
            ("messaging.system", text("rabbitmq")),
            ("messaging.operation.name", text(name)),
            ("messaging.operation.type", text(operation)),
            ("messaging.destination.name", text(&destination)),
        ];
        let name = format!("{name} {destination}");
        Span { parent, name, kind, began: now, ended: now, attributes, error: None }
    }
}

/// Exchange, routing key and queue with colons between, those that are not empty.
fn destination(parts: &[&str]) -> String {
    let said: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    if said.is_empty() { DEFAULT.to_owned() } else { said.join(":") }
}

/// The trace that the message belongs to, if it is wanted, and its properties.
fn traced(properties: &[u8]) -> Option<(Parent, Properties<'_>)> {
    let properties = Properties::decode(properties).ok()?;
    let headers = properties.headers.as_ref()?;
    let parent = Parent::read(text(headers, "traceparent")?, text(headers, "tracestate"))?;
    Some((parent, properties))
}

/// A header that is text; some clients write text as bytes.
fn text<'h>(headers: &TableRef<'h>, name: &str) -> Option<&'h [u8]> {
    let value = headers.find(name)?;
    let (ValueRef::LongStr(text) | ValueRef::Bytes(text)) = value else { return None };
    Some(text)
}

#[cfg(test)]
mod tests;
