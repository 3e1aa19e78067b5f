//! What a session has on its way to a client that takes nothing, and how it goes on when the client does.
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
#[allow(dead_code, reason = "other tests use the rest")]
mod world;

use broker::session::Input;
use broker::{Config, limits};
use machine::NodeId;
use world::World;

/// The node that every test runs on.
pub(crate) const NODE: NodeId = NodeId(1);

const BODY_BYTES: usize = 50_000;
const MESSAGES: u64 = 120;
const CONSUMERS: usize = 2;
/// A run of messages that a consumer is sent where all have much on their way: it is encoded whole.
const RUN_BYTES: usize = limits::WINDOW_BYTES_LOW as usize;

/// A session with messages in its queue and a client that takes nothing, beside others that have so much on their way.
fn deaf(others: u64) -> World {
    let mut world = World::running();
    let body = "x".repeat(BODY_BYTES);
    for _ in 0..MESSAGES {
        world.say(&format!("1 basic.publish routing-key=q body={body}"));
    }
    world.others_outbound = others;
    world.takes_nothing = true;
    world
}

/// The client takes what waits: how many messages that is.
fn take(world: &mut World) -> u64 {
    world.takes_nothing = false;
    let lines = world.settle_down();
    world.takes_nothing = true;
    world.step(Input::Written);
    world.settle_down();
    lines.iter().filter(|line| line.contains(" basic.deliver ")).count() as u64
}

/// Bytes that wait for the socket, and all that is on its way.
fn waiting(world: &World) -> (usize, u64) {
    let encoded = world.out.bytes.len();
    (encoded, world.session.outbound_bytes(encoded))
}

#[test]
fn a_client_that_takes_nothing_is_sent_what_one_window_holds() {
    let mut world = deaf(0);
    world.say("1 basic.consume queue=q consumer-tag=c no-ack");
    let (encoded, all) = waiting(&world);
    let window = limits::WINDOW_BYTES as usize;
    assert!(encoded > window && encoded < window + limits::OUTBOUND_BYTES_LOW, "{encoded}");
    assert_eq!(all, encoded as u64, "all of it is encoded");
}

#[test]
fn where_others_have_all_there_is_it_is_sent_its_floor_and_nothing_is_lost() {
    let mut world = deaf(Config::default().outbound_bytes_max);
    for consumer in 0..CONSUMERS {
        world.say(&format!("1 basic.consume queue=q consumer-tag=c{consumer} no-ack"));
    }
    let mut delivered = 0;
    while delivered < MESSAGES {
        let (encoded, all) = waiting(&world);
        assert!(encoded <= limits::OUTBOUND_BYTES_FLOOR + RUN_BYTES, "{encoded} bytes are encoded");
        let most = limits::OUTBOUND_BYTES_FLOOR + CONSUMERS * RUN_BYTES;
        assert!(all <= most as u64, "{all} bytes are on their way");
        let taken = take(&mut world);
        assert!(taken > 0, "a client that takes goes on; {delivered} were delivered");
        delivered += taken;
    }
    assert_eq!(delivered, MESSAGES);
    assert!(world.session.wants_input(world.out.bytes.len()));
}

#[test]
fn a_session_that_has_its_floor_waits_for_its_own_socket_alone() {
    let mut world = deaf(Config::default().outbound_bytes_max);
    let body = "x".repeat(BODY_BYTES);
    let unroutable = format!("1 basic.publish mandatory routing-key=nowhere body={body}");
    world.say(&unroutable);
    assert!(world.session.wants_input(world.out.bytes.len()), "below its floor");
    world.say(&unroutable);
    let encoded = world.out.bytes.len();
    assert!(!world.session.wants_input(encoded) && !world.session.wants_replies(encoded));
    assert!(world.session.wants_written(encoded), "or nothing would wake it");
    take(&mut world);
    assert!(world.session.wants_input(world.out.bytes.len()));
}

#[test]
fn publishes_are_confirmed_while_deliveries_wait() {
    let mut world = deaf(Config::default().outbound_bytes_max);
    for consumer in 0..CONSUMERS {
        world.say(&format!("1 basic.consume queue=q consumer-tag=c{consumer} no-ack"));
    }
    let (encoded, all) = waiting(&world);
    assert!(all > encoded as u64, "some wait");
    world.say("2 channel.open");
    world.say("2 basic.publish routing-key=q body=x");
    assert_eq!(world.session.in_flight_bytes(), 0, "a majority has it");
}
