//! What no client should send, and what there is too much of: refused, bounded, and never a panic.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: the time begins now, and what cannot be read fails it"
)]

#[path = "support/fake_cluster.rs"]
mod fake_cluster;
#[path = "support/wire.rs"]
#[allow(dead_code, reason = "scripts use the rest")]
mod wire;
#[path = "support/world.rs"]
mod world;

use std::time::Duration;

use broker::session::Input;
use broker::{Config, limits};
use machine::NodeId;
use proptest::prelude::*;
use world::World;

/// The node that every test runs on.
pub(crate) const NODE: NodeId = NodeId(1);

fn is_closed_with(lines: &[String], code: u16) -> bool {
    let close = format!("0 connection.close reply-code={code} ");
    lines.iter().any(|line| line.starts_with(&close))
}

#[test]
fn a_claimed_frame_length_reserves_no_memory() {
    let mut world = World::running();
    let before = world.session.buffer().capacity();
    let lines = world.feed(&[1, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF]);
    assert!(is_closed_with(&lines, 501), "{lines:?}");
    assert!(world.session.buffer().capacity() <= before.max(4096));
}

#[test]
fn before_tune_ok_a_frame_has_no_more_than_8_kib() {
    let mut world = World::connected(Config::default());
    world.say("protocol-header");
    let lines = world.feed(&[1, 0, 0, 0, 0, 0x20, 0x01]);
    assert!(is_closed_with(&lines, 501), "{lines:?}");
}

#[test]
fn a_login_of_a_mebibyte_is_refused_like_any_other() {
    let mut world = World::connected(Config::default());
    world.say("protocol-header");
    let long = "x".repeat(limits::CREDENTIAL_BYTES_MAX + 1);
    let lines = world.say(&format!(
        "0 connection.start-ok client-properties={{capabilities=\
         {{authentication_failure_close=bool:true}}}} mechanism=PLAIN response=\\0guest\\0{long}"
    ));
    assert!(is_closed_with(&lines, 403), "{lines:?}");
}

#[test]
fn half_sent_bodies_keep_their_room_and_when_there_is_none_the_next_waits() {
    let mut world = World::running();
    let room = limits::IN_FLIGHT_BYTES_MAX / limits::MESSAGE_BYTES_CAP;
    for channel in 2..=u16::try_from(room).unwrap() + 2 {
        assert!(!world.session.is_blocked(), "there is room for channel {channel}");
        world.say(&format!("{channel} channel.open"));
        let publish = &world.methods["basic.publish"].clone();
        let method = wire::encode(publish, &Default::default());
        let mut bytes = wire::frame(1, channel, &method);
        bytes.extend(wire::header(channel, limits::MESSAGE_BYTES_CAP, &[0, 0]));
        bytes.extend(wire::frame(3, channel, b"begun"));
        assert!(world.feed(&bytes).is_empty());
    }
    assert!(world.session.is_blocked() && !world.session.wants_input(0));
    assert!(world.session.is_running(), "it waits, and is not closed");
    assert_eq!(world.session.in_flight_bytes(), limits::IN_FLIGHT_BYTES_MAX);
}

#[test]
fn tables_that_are_too_deep_or_too_long_end_their_channel_with_406() {
    let nested = |levels: usize| format!("{}int:1{}", "{a=".repeat(levels), "}".repeat(levels));
    let entries = |count: usize| {
        let entries: Vec<String> = (0..count).map(|n| format!("k{n}=void")).collect();
        format!("{{{}}}", entries.join(" "))
    };
    for table in [nested(257), nested(65), entries(16_385)] {
        let mut world = World::running();
        let lines = world.say(&format!("1 queue.declare queue=x arguments={table}"));
        assert!(lines[0].starts_with("1 channel.close reply-code=406"), "{lines:?}");
        assert!(world.session.is_running());
    }
    for table in [nested(40), entries(3000)] {
        let mut world = World::running();
        let lines = world.say(&format!("1 queue.declare queue=x arguments={table}"));
        assert!(lines[0].starts_with("1 queue.declare-ok"), "{lines:?}");
    }
}

#[test]
fn bad_properties_end_the_connection_with_502() {
    for properties in [vec![0x00, 0x01], vec![0x80, 0x00, 9, b'x'], vec![0x20, 0, 0, 0, 0, 1, 9]] {
        let mut world = World::running();
        let publish = &world.methods["basic.publish"].clone();
        let mut bytes = wire::frame(1, 1, &wire::encode(publish, &Default::default()));
        bytes.extend(wire::header(1, 0, &properties));
        let lines = world.feed(&bytes);
        assert!(is_closed_with(&lines, 502), "{properties:?}: {lines:?}");
    }
}

#[test]
fn a_name_with_a_nul_or_no_text_ends_the_connection_with_502() {
    for name in [&b"a\0b"[..], &[0xFF, 0xFE]] {
        let mut world = World::running();
        let mut payload = vec![0, 50, 0, 10, 0, 0, name.len() as u8];
        payload.extend_from_slice(name);
        payload.extend([0, 0, 0, 0, 0]);
        let lines = world.feed(&wire::frame(1, 1, &payload));
        assert!(is_closed_with(&lines, 502), "{lines:?}");
    }
}

#[test]
fn an_ack_of_many_messages_is_one_request() {
    let mut world = World::running();
    world.say("1 basic.consume queue=q consumer-tag=c");
    let one = world.bytes("1 basic.publish routing-key=q body=x");
    let sent = world.feed(&one.repeat(1000)).len();
    assert!(sent > limits::WINDOW_MESSAGES_START as usize);
    world.asked.clear();
    world.say("1 basic.ack multiple");
    assert_eq!(world.asked("settle"), 1);
}

#[test]
fn without_a_prefetch_a_channel_is_sent_no_more_than_its_cap() {
    let mut world = World::running();
    world.say("1 basic.consume queue=q consumer-tag=c");
    let one = world.bytes("1 basic.publish routing-key=q");
    let mut sent = 0;
    while sent < limits::UNACKED_MAX as usize {
        let more = world.feed(&one.repeat(8192)).len();
        assert!(more > 0, "stopped after {sent}");
        sent += more;
    }
    assert_eq!(sent, limits::UNACKED_MAX as usize);
    assert_eq!(world.feed(&one).len(), 0);
    assert_eq!(world.say("1 basic.ack delivery-tag=1").len(), 1, "one acked, one more sent");
}

#[test]
fn a_client_that_takes_no_bytes_is_neither_read_nor_given_credit() {
    let mut world = World::running();
    world.say("1 basic.consume queue=q consumer-tag=c no-ack");
    world.out.bytes.resize(limits::OUTBOUND_BYTES_LOW + 1, 0);
    let one = world.bytes("1 basic.publish routing-key=q");
    world.session.buffer().extend_from_slice(&one.repeat(1000));
    world.step(Input::Received);
    for _ in 0..3 {
        for request in std::mem::take(&mut world.out.requests) {
            world.cluster.ask(machine::SessionId(1), request);
        }
        let mut answers: Vec<_> =
            std::mem::take(&mut world.cluster.answers).into_iter().map(|(_, a)| a).collect();
        world.step(Input::Answered(&mut answers));
    }
    assert!(world.session.wants_written(world.out.bytes.len()), "credit is owed");
    assert!(world.out.requests.is_empty(), "and not given");
    world.out.bytes.clear();
    world.step(Input::Written);
    assert!(!world.session.wants_written(0));
    assert_eq!(world.out.requests.len(), 1, "it is given when the bytes are gone");

    assert!(world.session.wants_input(limits::OUTBOUND_BYTES_MAX - 1));
    assert!(!world.session.wants_input(limits::OUTBOUND_BYTES_MAX));
    assert!(!world.session.wants_replies(limits::OUTBOUND_BYTES_MAX));
}

#[test]
fn a_publisher_is_not_read_while_too_much_of_it_is_not_logged() {
    let mut world = World::running();
    world.holds_appends = true;
    let frame = wire::frame(3, 1, &vec![b'x'; 100_000]);
    let publish = world.methods["basic.publish"].clone();
    let values = wire::pairs(&["routing-key=q".to_owned()]);
    let mut bytes = wire::frame(1, 1, &wire::encode(&publish, &values));
    bytes.extend(wire::header(1, 100_000, &[0, 0]));
    bytes.extend(frame);
    let mut sent = 0;
    while world.session.wants_input(0) {
        world.feed(&bytes);
        sent += 100_000;
        assert!(sent < 2 * limits::UNLOGGED_BYTES_MAX, "it is read for ever");
    }
    world.answer_held();
    assert!(world.session.wants_input(0));
}

#[test]
fn messages_that_wait_for_their_queue_hold_the_publisher_back_however_small_they_are() {
    let mut world = World::running();
    world.say(
        "1 queue.declare queue=full arguments={x-max-length=int:5 x-overflow=str:reject-publish}",
    );
    world.say("1 confirm.select");
    world.holds_appends = true;
    let bytes = world.bytes("1 basic.publish routing-key=full").repeat(1000);
    let mut sent = 0;
    while world.session.wants_input(0) {
        world.feed(&bytes);
        sent += 1000;
        assert!(sent < limits::UNLOGGED_BYTES_MAX / 50, "it is read for ever");
    }
    assert_eq!(world.asked("admit"), 1, "the others wait for the first answer");
    let mut nacks = 0;
    for _ in 0..1 + sent.div_ceil(limits::ADMIT_MESSAGES) {
        let told = world.answer_held();
        nacks += told.iter().filter(|line| line.contains("basic.nack")).count();
    }
    assert!(world.session.wants_input(0));
    assert!(nacks > 0);
}

#[test]
fn a_publisher_that_is_not_read_is_not_taken_for_dead() {
    let config = Config { message_bytes_max: 64 << 20, ..Config::default() };
    let mut world = World::running_with(config, 1);
    world.holds_appends = true;
    let publish = world.methods["basic.publish"].clone();
    let values = wire::pairs(&["routing-key=q".to_owned()]);
    let mut bytes = wire::frame(1, 1, &wire::encode(&publish, &values));
    let parts = limits::UNLOGGED_BYTES_MAX / 100_000 + 1;
    bytes.extend(wire::header(1, parts as u64 * 100_000, &[0, 0]));
    bytes.extend(wire::frame(3, 1, &vec![b'x'; 100_000]).repeat(parts));
    world.feed(&bytes);
    assert!(!world.session.wants_input(0));
    for _ in 0..20 {
        world.now += Duration::from_millis(500);
        world.step(Input::DeadlinePassed);
    }
    assert!(!world.out.close, "it may have sent heartbeats that we did not read");
    world.answer_held();
    world.now += Duration::from_millis(1900);
    world.step(Input::DeadlinePassed);
    assert!(!world.out.close);
    world.now += Duration::from_millis(200);
    world.step(Input::DeadlinePassed);
    assert!(world.out.close, "now it is silent");
}

#[test]
fn what_comes_in_one_read_goes_into_appends_of_bounded_size() {
    let mut world = World::running();
    let body = "x".repeat(10_000);
    let one = world.bytes(&format!("1 basic.publish routing-key=q body={body}"));
    world.feed(&one.repeat(60));
    assert_eq!(world.asked("append"), 600_000_usize.div_ceil(limits::APPEND_BYTES));
}

#[test]
fn a_channel_that_waits_sets_aside_no_more_than_its_bound() {
    let mut world = World::running();
    world.holds_appends = true;
    world.say("1 basic.publish routing-key=q body=x");
    world.say("1 basic.get queue=q no-ack");
    let body = "x".repeat(50_000);
    let one = world.bytes(&format!("1 basic.publish routing-key=q body={body}"));
    let mut sent = 0;
    while world.session.wants_input(0) {
        world.feed(&one);
        sent += one.len();
        assert!(sent < 2 * limits::DEFERRED_BYTES_MAX, "it is read for ever");
    }
    world.feed(&one);
    let lines = world.answer_held();
    assert_eq!(lines.len(), 1, "the get is answered: {lines:?}");
    assert!(world.session.wants_input(0));
    world.answer_held();
    let lines = world.say("1 queue.declare queue=q durable passive");
    assert!(lines.is_empty(), "it waits for the appends");
    let lines = world.answer_held();
    let messages = sent / one.len() + 1;
    let expected = format!("1 queue.declare-ok queue=q message-count={messages} consumer-count=0");
    assert_eq!(lines, [expected], "every message that was set aside is stored, once");
}

#[test]
fn channels_may_be_opened_and_closed_for_ever() {
    let mut world = World::running();
    for _ in 0..3000 {
        world.say("2 channel.open");
        world.say("2 basic.consume queue=q no-ack");
        assert_eq!(world.say("2 channel.close"), ["2 channel.close-ok"]);
    }
}

#[test]
fn a_frame_may_come_byte_by_byte() {
    let mut world = World::running();
    let bytes = [
        world.bytes("1 confirm.select"),
        world.bytes("1 basic.publish routing-key=q body=hello p:delivery-mode=2"),
        world.bytes("1 basic.get queue=q no-ack"),
    ]
    .concat();
    let lines: Vec<String> = bytes.iter().flat_map(|byte| world.feed(&[*byte])).collect();
    let expected = [
        "1 confirm.select-ok",
        "1 basic.ack delivery-tag=1",
        "1 basic.get-ok delivery-tag=1 routing-key=q message-count=0 p:delivery-mode=2 body=hello",
    ];
    assert_eq!(lines, expected);
}

/// Lines that do something to a running connection, and lines that end it.
const LINES: [&str; 34] = [
    "1 basic.publish routing-key=q body=hello",
    "1 basic.publish exchange=amq.topic routing-key=a.b mandatory body=x",
    "2 basic.publish routing-key=q p:headers={CC=[str:r] BCC=[str:q]} body=copy",
    "1 basic.publish routing-key=nowhere mandatory p:reply-to=amq.rabbitmq.reply-to body=x",
    "1 basic.consume queue=q consumer-tag=a",
    "2 basic.consume queue=q consumer-tag=b no-ack no-wait",
    "2 basic.consume queue=amq.rabbitmq.reply-to no-ack",
    "1 basic.cancel consumer-tag=a",
    "2 basic.cancel consumer-tag=b no-wait",
    "1 basic.ack multiple",
    "1 basic.ack delivery-tag=1",
    "1 basic.nack delivery-tag=2 multiple requeue",
    "2 basic.reject delivery-tag=1 requeue",
    "1 basic.get queue=q",
    "2 basic.get queue=r no-ack",
    "1 basic.qos prefetch-count=3",
    "1 basic.qos prefetch-count=2 global",
    "1 basic.recover requeue",
    "1 queue.declare queue=q durable",
    "2 queue.declare queue=r exclusive auto-delete",
    "2 queue.declare",
    "1 queue.bind queue=q exchange=amq.topic routing-key=a.#",
    "1 queue.unbind queue=q exchange=amq.topic routing-key=a.#",
    "1 queue.purge queue=q no-wait",
    "2 queue.delete queue=r",
    "1 queue.delete queue=q",
    "1 exchange.declare exchange=e type=headers auto-delete",
    "1 confirm.select",
    "2 tx.select",
    "2 tx.commit",
    "2 tx.rollback",
    "1 channel.close",
    "2 channel.close-ok",
    "2 channel.open",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_conversation_is_answered_in_whole_frames(
        picks in proptest::collection::vec(0..LINES.len(), 1..60),
        cuts in proptest::collection::vec(1usize..200, 1..20),
        holds in any::<bool>(),
    ) {
        let mut world = World::running();
        world.holds_appends = holds;
        world.say("2 channel.open");
        let bytes: Vec<u8> = picks.iter().flat_map(|pick| world.bytes(LINES[*pick])).collect();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            world.feed(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
            world.answer_held();
        }
        for _ in 0..64 {
            world.answer_held();
        }
        let before = world.out.close;
        let lines = world.say("0 connection.close");
        let closed = lines.iter().any(|line| line == "0 connection.close-ok");
        prop_assert!(closed || before || !world.session.is_running(), "{:?}", lines);
    }

    #[test]
    fn spoiled_bytes_end_the_connection_at_worst(
        picks in proptest::collection::vec(0..LINES.len(), 1..30),
        spoiled in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut world = World::running();
        world.say("2 channel.open");
        let mut bytes: Vec<u8> = picks.iter().flat_map(|pick| world.bytes(LINES[*pick])).collect();
        for (place, value) in &spoiled {
            let place = place.index(bytes.len());
            bytes[place] = *value;
        }
        world.feed(&bytes);
    }

    #[test]
    fn any_bytes_before_the_login_end_the_connection_at_worst(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        has_header in any::<bool>(),
    ) {
        let mut world = World::connected(Config::default());
        if has_header {
            world.say("protocol-header");
        }
        world.feed(&bytes);
        prop_assert!(!world.session.is_running());
    }
}
