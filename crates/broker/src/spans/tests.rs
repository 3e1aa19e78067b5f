#![allow(clippy::disallowed_methods, reason = "somewhere to count from")]

use std::time::Duration;

use amqp::{FieldTable, FieldValue};
use bytes::BytesMut;
use machine::{GroupId, QueueId};

use super::*;
use crate::channel::unacked::Source;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const AT: ChannelRef = ChannelRef { number: 1, life: 7 };

/// A connection, its clock, and the spans that are over.
struct World {
    spans: Spans,
    now: Instant,
    out: Vec<Span>,
}

impl World {
    fn new() -> Self {
        let server = "10.0.0.1:5672".parse().unwrap();
        Self { spans: Spans::new(Some(server)), now: Instant::now(), out: Vec::new() }
    }

    fn publish(&mut self, run: Option<u64>, destination: &[u8], properties: &[u8]) {
        let passing = Passing { destination, properties, body: b"hello" };
        self.spans.published(self.now, (AT, run), "shop", passing, &mut self.out);
    }

    fn deliver(&mut self, tag: u64, no_ack: bool) {
        let passing = Passing {
            destination: b"\x06orders\x03new",
            properties: &with_parent(),
            body: b"hello",
        };
        let given = Given { is_asked: false, queue: "jobs", tag, no_ack, redelivered: tag > 100 };
        self.spans.given(self.now, AT, "shop", given, passing, &mut self.out);
    }

    fn settle(&mut self, at: ChannelRef, first_tag: u64, count: u32, outcome: Outcome) {
        let source = Source { group: GroupId(1), queue: QueueId(7), consumer: 1 };
        let run = Run { first_tag, first_seq: 1, count, source };
        self.spans.settled(self.now, at, &run, outcome, &mut self.out);
    }

    fn passes(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// The names of the spans that are over, how long they took, and why they failed.
    fn over(&mut self) -> Vec<(String, u128, Option<&'static str>)> {
        let out = std::mem::take(&mut self.out).into_iter();
        out.map(|span| (span.name, (span.ended - span.began).as_millis(), span.error)).collect()
    }
}

fn with_headers(headers: &[(&str, FieldValue)]) -> BytesMut {
    let mut table = FieldTable::new();
    for (name, value) in headers {
        table.insert(*name, value.clone());
    }
    let table = table.to_bytes();
    let headers = Some(TableRef::validate(&table).unwrap());
    let mut raw = BytesMut::new();
    Properties {
        headers,
        message_id: Some("m-1"),
        correlation_id: Some("c-1"),
        ..Properties::default()
    }
    .encode(&mut raw);
    raw
}

fn long(text: &str) -> FieldValue {
    FieldValue::LongStr(text.as_bytes().to_vec())
}

fn with_parent() -> BytesMut {
    with_headers(&[("traceparent", long(PARENT))])
}

const ORDERS: &[u8] = b"\x06orders\x03new";

#[test]
fn a_publish_ends_with_its_confirm_and_only_of_its_run_and_channel() {
    let mut world = World::new();
    world.publish(Some(3), ORDERS, &with_parent());
    world.publish(Some(3), ORDERS, &with_parent());
    world.publish(Some(4), ORDERS, &with_parent());
    world.passes(5);
    let other = ChannelRef { number: 1, life: 8 };
    world.spans.confirmed(world.now, other, 3, true, &mut world.out);
    assert!(world.over().is_empty());
    world.spans.confirmed(world.now, AT, 3, true, &mut world.out);
    let one = ("publish orders:new".to_owned(), 5, None);
    assert_eq!(world.over(), [one.clone(), one]);
    world.spans.confirmed(world.now, AT, 4, false, &mut world.out);
    assert_eq!(world.over(), [("publish orders:new".to_owned(), 5, Some("nack"))]);
}

#[test]
fn a_publish_without_a_confirm_is_over_at_once() {
    let mut world = World::new();
    world.publish(None, ORDERS, &with_parent());
    assert_eq!(world.over(), [("publish orders:new".to_owned(), 0, None)]);
}

#[test]
fn only_a_sampled_traceparent_that_is_text_makes_a_span() {
    let mut world = World::new();
    let unsampled = PARENT.replace("-01", "-00");
    let wrong = [
        BytesMut::from(&b"\0\0"[..]),
        with_headers(&[]),
        with_headers(&[("traceparent", long(&unsampled))]),
        with_headers(&[("traceparent", long("00-1-2-01"))]),
        with_headers(&[("traceparent", FieldValue::I32(1))]),
        with_headers(&[("Traceparent", long(PARENT))]),
        BytesMut::from(&b"nonsense"[..]),
    ];
    for properties in &wrong {
        world.publish(None, ORDERS, properties);
        assert!(world.over().is_empty(), "{properties:?}");
    }
    let state = ("tracestate", long("a=1"));
    let bytes = ("traceparent", FieldValue::Bytes(PARENT.as_bytes().to_vec()));
    world.publish(None, ORDERS, &with_headers(&[bytes, state]));
    assert_eq!(world.out[0].parent.state, "a=1");
}

/// What the spans of a message say whatever happened to it, and this beside.
fn sorted<'t>(more: &[&'t str]) -> Vec<&'t str> {
    let both = [
        "messaging.message.body.size=5",
        "messaging.message.conversation_id=c-1",
        "messaging.message.id=m-1",
        "messaging.rabbitmq.destination.routing_key=new",
        "messaging.system=rabbitmq",
        "millrace.vhost=shop",
        "server.address=10.0.0.1",
        "server.port=5672",
    ];
    let mut all = [&both[..], more].concat();
    all.sort_unstable();
    all
}

#[test]
fn a_span_has_the_attributes_of_the_conventions() {
    let mut world = World::new();
    world.publish(None, ORDERS, &with_parent());
    world.deliver(101, true);
    let shown = |span: &Span| {
        let mut all: Vec<String> = span
            .attributes
            .iter()
            .map(|(key, value)| match value {
                Value::Text(text) => format!("{key}={text}"),
                Value::Number(number) => format!("{key}={number}"),
                Value::Switch(is_on) => format!("{key}={is_on}"),
            })
            .collect();
        all.sort();
        all
    };
    let publish = sorted(&[
        "messaging.destination.name=orders:new",
        "messaging.operation.name=publish",
        "messaging.operation.type=send",
    ]);
    assert_eq!(shown(&world.out[0]), publish);
    let deliver = sorted(&[
        "messaging.destination.name=orders:new:jobs",
        "messaging.operation.name=deliver",
        "messaging.operation.type=process",
        "messaging.rabbitmq.message.delivery_tag=101",
        "millrace.redelivered=true",
    ]);
    assert_eq!(shown(&world.out[1]), deliver);
    assert_eq!((world.out[0].kind, world.out[1].kind), (Kind::Producer, Kind::Consumer));
}

#[test]
fn a_destination_leaves_out_what_is_empty_or_said_twice() {
    let mut world = World::new();
    world.publish(None, b"\0\x04jobs", &with_parent());
    world.publish(None, b"\x03all\0", &with_parent());
    world.publish(None, b"\0\0", &with_parent());
    let passing = Passing { destination: b"\0\x04jobs", properties: &with_parent(), body: b"" };
    let given = Given { is_asked: true, queue: "jobs", tag: 1, no_ack: true, redelivered: false };
    world.spans.given(world.now, AT, "/", given, passing, &mut world.out);
    let names: Vec<String> = world.over().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["publish jobs", "publish all", "publish amq.default", "get jobs"]);
}

#[test]
fn a_delivery_ends_when_it_is_settled() {
    let mut world = World::new();
    (1..=5).for_each(|tag| world.deliver(tag, false));
    world.passes(8);
    world.settle(ChannelRef { number: 2, life: 9 }, 1, 5, Outcome::Done);
    assert!(world.over().is_empty(), "another channel has tags of its own");
    world.settle(AT, 1, 2, Outcome::Done);
    let done = ("deliver orders:new:jobs".to_owned(), 8, None);
    assert_eq!(world.over(), [done.clone(), done]);
    world.settle(AT, 1, 2, Outcome::Done);
    assert!(world.over().is_empty(), "they are over already");
    world.settle(AT, 3, 1, Outcome::Rejected);
    world.settle(AT, 4, 1, Outcome::Requeue);
    world.settle(AT, 5, 1, Outcome::Returned);
    let why: Vec<_> = world.over().into_iter().map(|(.., why)| why.unwrap()).collect();
    assert_eq!(why, ["rejected", "requeued", "returned"]);
}

#[test]
fn the_end_of_a_channel_ends_its_publishes_and_no_others() {
    let mut world = World::new();
    world.publish(Some(0), ORDERS, &with_parent());
    world.publish(Some(u64::MAX), ORDERS, &with_parent());
    world.deliver(1, false);
    let next = ChannelRef { life: AT.life + 1, ..AT };
    world.spans.channel_ended(world.now, next, &mut world.out);
    assert!(world.over().is_empty());
    world.spans.channel_ended(world.now, AT, &mut world.out);
    let why: Vec<_> = world.over().into_iter().map(|(.., why)| why).collect();
    assert_eq!(why, [Some("unconfirmed"); 2]);
    world.settle(AT, 1, 1, Outcome::Returned);
    assert_eq!(world.over().len(), 1);
}

#[test]
fn a_connection_keeps_so_many_spans_open_and_what_comes_beyond_is_over_at_once() {
    let mut world = World::new();
    (1..=SPANS_OPEN_MAX as u64).for_each(|tag| world.deliver(tag, false));
    assert!(world.over().is_empty());
    world.deliver(5000, false);
    world.publish(Some(1), ORDERS, &with_parent());
    assert_eq!(world.over().len(), 2);
    world.settle(AT, 1, 1, Outcome::Done);
    assert_eq!(world.over().len(), 1);
    world.publish(Some(1), ORDERS, &with_parent());
    assert!(world.over().is_empty(), "there is room again");
    world.spans.end(world.now, &mut world.out);
    let over = world.over();
    assert_eq!(over.len(), SPANS_OPEN_MAX);
    assert_eq!((over[0].2, over[1].2), (Some("unconfirmed"), Some("returned")));
    world.deliver(6000, false);
    assert!(world.over().is_empty(), "the end has left room");
}
