//! A client that says anything, before its login or behind it: the connection is closed at worst.
#![no_main]
#![allow(dead_code, clippy::unwrap_used, reason = "the world is that of the broker's own tests")]

#[path = "../../crates/broker/tests/support/fake_cluster.rs"]
pub(crate) mod fake_cluster;
#[path = "../../crates/broker/tests/support/wire.rs"]
pub(crate) mod wire;
#[path = "../../crates/broker/tests/support/world.rs"]
mod world;

use broker::Config;
use machine::NodeId;
use world::World;

pub(crate) const NODE: NodeId = NodeId(1);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let mut world =
        if how & 1 == 0 { World::running() } else { World::connected(Config::default()) };
    world.holds_appends = how & 2 != 0;
    for part in bytes.chunks(1 + usize::from(how >> 2)) {
        world.feed(part);
        world.answer_held();
    }
});
