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

use broker::session::describe::{ConnectionDescription, PublishMode};
use broker::{Config, limits};
use machine::NodeId;
use world::World;

/// The node that every test runs on.
pub(crate) const NODE: NodeId = NodeId(1);

fn described(lines: &[&str]) -> ConnectionDescription {
    let mut world = World::running();
    for line in lines {
        world.say(line);
    }
    world.session.describe()
}

#[test]
fn a_connection_is_nobodys_until_it_is_logged_in() {
    let before = World::connected(Config::default()).session.describe();
    assert_eq!((before.user.as_str(), before.vhost.as_str()), ("", ""));
    assert_eq!(before.peer, "127.0.0.1:40000".parse().unwrap());
    assert!(before.channels.is_empty());
    let after = described(&[]);
    assert_eq!((after.user.as_str(), after.vhost.as_str()), ("guest", "/"));
    assert_eq!((after.channels.len(), after.channel_count), (1, 1));
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
    let channel = &described.channels[0];
    assert_eq!((channel.number, channel.unacked), (1, 1));
    assert_eq!((channel.prefetch, channel.prefetch_global), (10, 0));
    assert_eq!((channel.consumers.len(), channel.consumer_count), (1, 1));
    let consumer = &channel.consumers[0];
    assert_eq!((consumer.tag.as_str(), consumer.no_ack, consumer.prefetch), ("reader", false, 10));
}

#[test]
fn a_channel_says_how_many_publishes_are_not_confirmed() {
    let mut world = World::running();
    world.say("1 confirm.select");
    world.holds_appends = true;
    world.say("1 basic.publish routing-key=q body=one");
    world.say("1 basic.publish routing-key=q body=two");
    let unconfirmed = |world: &World| world.session.describe().channels[0].publishes;
    assert_eq!(unconfirmed(&world), PublishMode::Confirm { unconfirmed: 2 });
    assert!(world.session.describe().in_flight_bytes > 0);
    world.answer_held();
    assert_eq!(unconfirmed(&world), PublishMode::Confirm { unconfirmed: 0 });
    assert_eq!(world.session.describe().in_flight_bytes, 0);
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
    let PublishMode::Tx { publish_bytes, settles } = described.channels[0].publishes else {
        panic!("{:?}", described.channels[0]);
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
    let described = world.session.describe();
    assert_eq!(described.channels.len(), limits::DESCRIBED_CHANNELS_MAX);
    assert_eq!(described.channel_count, limits::DESCRIBED_CHANNELS_MAX + 1);
    let channel = &described.channels[0];
    assert_eq!(channel.consumers.len(), limits::DESCRIBED_CONSUMERS_MAX);
    assert_eq!(channel.consumer_count, limits::DESCRIBED_CONSUMERS_MAX + 1);
}
