//! What a session says of itself to whoever looks after the node.
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

use broker::session::describe::{ChannelDescription, ConnectionState, PublishMode};
use broker::{Config, limits};
use machine::NodeId;
use world::World;

/// The node that every test runs on.
pub(crate) const NODE: NodeId = NodeId(1);

/// What the first channel of a connection says after these lines of its client.
fn described(lines: &[&str]) -> ChannelDescription {
    let mut world = World::running();
    for line in lines {
        world.say(line);
    }
    world.session.describe_channel(1).unwrap()
}

#[test]
fn a_connection_is_nobodys_until_it_is_logged_in() {
    let before = World::connected(Config::default()).session.describe(0);
    assert_eq!((before.line.user.as_str(), before.line.vhost.as_str()), ("", ""));
    assert_eq!(before.line.state, ConnectionState::Opening);
    assert_eq!(before.line.peer, "127.0.0.1:40000".parse().unwrap());
    assert!(before.channels.is_empty());
    let after = World::running().session.describe(0);
    assert_eq!((after.line.user.as_str(), after.line.vhost.as_str()), ("guest", "/"));
    assert_eq!(after.line.state, ConnectionState::Running);
    assert_eq!((after.channels.len(), after.line.channel_count), (1, 1));
    assert_eq!(after.channels[0].publishes, PublishMode::Plain);
}

#[test]
fn a_channel_says_what_its_consumers_hold() {
    let described = described(&[
        "1 basic.publish routing-key=q body=one",
        "1 basic.publish routing-key=q body=two",
        "1 basic.qos prefetch-count=10",
        "1 basic.consume queue=q consumer-tag=reader",
        "1 basic.ack delivery-tag=1",
    ]);
    let channel = described.line;
    assert_eq!((channel.number, channel.unacked), (1, 1));
    assert_eq!((channel.prefetch, channel.prefetch_global), (10, 0));
    assert_eq!((described.consumers.len(), channel.consumer_count), (1, 1));
    let consumer = &described.consumers[0];
    assert_eq!((consumer.tag.as_str(), consumer.no_ack, consumer.prefetch), ("reader", false, 10));
    assert_eq!((consumer.held, consumer.credit), (1, 9), "it may hold ten");
}

#[test]
fn a_consumer_is_found_by_its_tag_however_many_there_are() {
    let mut world = World::running();
    for consumer in 0..2 * limits::DESCRIBED_CONSUMERS_MAX {
        world.say(&format!("1 basic.consume queue=q consumer-tag=c{consumer}"));
    }
    world.say("1 basic.consume queue=q consumer-tag=zebra");
    let first = world.session.describe_channel(1).unwrap().consumers;
    assert!(first.iter().all(|consumer| consumer.tag != "zebra"));
    assert_eq!(world.session.describe_consumer(1, "zebra").unwrap().tag, "zebra");
    assert_eq!(world.session.describe_consumer(1, "nobody"), None);
    assert_eq!(world.session.describe_consumer(2, "zebra"), None);
    assert_eq!(world.session.describe_channel(2), None);
}

#[test]
fn a_channel_says_how_many_publishes_are_not_confirmed() {
    let mut world = World::running();
    world.say("1 confirm.select");
    world.holds_appends = true;
    world.say("1 basic.publish routing-key=q body=one");
    world.say("1 basic.publish routing-key=q body=two");
    let unconfirmed = |world: &World| world.session.describe(0).channels[0].publishes;
    assert_eq!(unconfirmed(&world), PublishMode::Confirm { unconfirmed: 2 });
    assert!(world.session.describe_line(0).in_flight_bytes > 0);
    world.answer_held();
    assert_eq!(unconfirmed(&world), PublishMode::Confirm { unconfirmed: 0 });
    assert_eq!(world.session.describe_line(0).in_flight_bytes, 0);
}

#[test]
fn a_channel_says_what_its_transaction_holds() {
    let described = described(&[
        "1 basic.publish routing-key=q body=before",
        "1 basic.get queue=q",
        "1 tx.select",
        "1 basic.publish routing-key=q body=within",
        "1 basic.ack delivery-tag=1",
    ]);
    let PublishMode::Tx { publish_bytes, settles } = described.line.publishes else {
        panic!("{described:?}");
    };
    assert!(publish_bytes > 0);
    assert_eq!(settles, 1);
}

#[test]
fn a_description_is_bounded() {
    let mut world = World::running();
    for channel in 2..=u16::try_from(limits::DESCRIBED_CHANNELS_MAX).unwrap() + 1 {
        world.say(&format!("{channel} channel.open"));
    }
    for consumer in 0..=limits::DESCRIBED_CONSUMERS_MAX {
        world.say(&format!("1 basic.consume queue=q consumer-tag=c{consumer}"));
    }
    let described = world.session.describe(0);
    assert_eq!(described.channels.len(), limits::DESCRIBED_CHANNELS_MAX);
    assert_eq!(described.line.channel_count, limits::DESCRIBED_CHANNELS_MAX + 1);
    let channel = world.session.describe_channel(1).unwrap();
    assert_eq!(channel.consumers.len(), limits::DESCRIBED_CONSUMERS_MAX);
    assert_eq!(channel.line.consumer_count, limits::DESCRIBED_CONSUMERS_MAX + 1);
}

#[test]
fn bytes_that_wait_for_the_socket_are_on_their_way_to_the_client() {
    let world = World::running();
    let outbound = |waiting| world.session.describe_line(waiting).outbound_bytes;
    assert_eq!(outbound(5000), outbound(0) + 5000);
}
