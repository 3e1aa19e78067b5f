//! F11: links that lose, are narrow, or break.

use std::time::Duration;

use super::{Bite, World};
use crate::chaos::Failure;
use crate::chaos::net::NODES;

/// Every node loses a share of what the others send it.
pub(super) fn loss(world: &mut World<'_>) -> Result<Bite, Failure> {
    let percent = world.chance.within(1, 31);
    for node in 1..=NODES {
        world.cluster.net.lose(node, percent)?;
    }
    std::thread::sleep(world.a_while());
    world.heal(&format!("{percent} % lost"))
}

/// One node can send a megabit a second.
pub(super) fn narrow(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.any_node() };
    world.cluster.net.narrow(node, 1000)?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("node {node} at 1 Mbit/s"))
}

/// Connections between nodes are reset, again and again.
pub(super) fn resets(world: &mut World<'_>) -> Result<Bite, Failure> {
    let mut packets = 0;
    for _ in 0..5 {
        let node = world.any_node();
        world.cluster.net.reset(node)?;
        std::thread::sleep(Duration::from_millis(world.chance.within(20, 400)));
        packets += world.cluster.net.heal()?;
        std::thread::sleep(Duration::from_millis(world.chance.within(50, 800)));
    }
    if packets == 0 {
        return Err(Failure::Trial("resets: nothing was reset".to_owned()));
    }
    Bite::of(format!("{packets} packets answered with a reset"))
}
