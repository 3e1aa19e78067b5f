//! F1: who does not hear whom.

use std::time::Duration;

use super::{Bite, World};
use crate::chaos::Failure;
use crate::chaos::broker::Kind;
use crate::chaos::net::{CLIENTS, NODES, host, others};

/// The leader hears nobody, and nobody hears it; its clients still reach it.
pub(super) fn isolate_leader(world: &mut World<'_>) -> Result<Bite, Failure> {
    let old = world.leader()?;
    world.cluster.net.isolate(old)?;
    let new = world.led_elsewhere(old)?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("node {old} cut off, node {new} led"))
}

/// The same with a follower: nobody may notice.
pub(super) fn isolate_follower(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = world.follower()?;
    world.cluster.net.isolate(node)?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("follower {node} cut off"))
}

/// One against two, clients on the side of the two: the one is as good as gone.
pub(super) fn halves(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = world.any_node();
    world.cluster.net.isolate(node)?;
    world.cluster.net.deafen(node, CLIENTS)?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("node {node} cut off, from clients too"))
}

/// Two nodes that do not hear each other, and a third that hears both. With three nodes this is the
/// bridge and the ring of majorities in one.
pub(super) fn bridge(world: &mut World<'_>) -> Result<Bite, Failure> {
    let bridge = world.any_node();
    let ends: Vec<u32> = others(bridge).collect();
    world.cluster.net.cut(ends[0], ends[1])?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("nodes {ends:?} do not hear each other"))
}

/// The leader of a queue and one other node do not hear each other; the third hears both.
pub(super) fn cut_link(world: &mut World<'_>) -> Result<Bite, Failure> {
    let leader = world.leader()?;
    let other = world.another(leader);
    world.cluster.net.cut(leader, other)?;
    let then = leads_where_all_reach(world, [leader, other])?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("the link between leader {leader} and node {other} cut{then}"))
}

/// Of a cut link both ends are served: by the node that reaches both. RabbitMQ's leader stays.
fn leads_where_all_reach(world: &mut World<'_>, ends: [u32; 2]) -> Result<String, Failure> {
    if world.cluster.kind == Kind::Rabbitmq {
        return Ok(String::new());
    }
    // The lead may have moved between the look at it and the cut: what counts is that no end has it.
    world.led_by_none_of(&ends).map(|new| format!(", node {new} led"))
}

/// The same in one direction only: what one sends arrives, what the other sends does not.
pub(super) fn cut_link_one_way(world: &mut World<'_>) -> Result<Bite, Failure> {
    let leader = world.leader()?;
    let mut ends = [leader, world.another(leader)];
    if world.chance.percent(50) {
        ends.reverse();
    }
    let [deaf, dumb] = ends;
    world.cluster.net.deafen(deaf, host(dumb))?;
    let then = leads_where_all_reach(world, ends)?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("node {deaf} does not hear node {dumb}, which hears it{then}"))
}

/// The leader hears nobody, though all hear it; or nobody hears it, though it hears all.
pub(super) fn one_way(world: &mut World<'_>) -> Result<Bite, Failure> {
    let old = world.leader()?;
    let is_deaf = world.chance.percent(50);
    for other in others(old) {
        if is_deaf {
            world.cluster.net.deafen(old, host(other))?;
        } else {
            world.cluster.net.deafen(other, host(old))?;
        }
    }
    let new = world.led_elsewhere(old)?;
    std::thread::sleep(world.a_while());
    let what = if is_deaf { "deaf" } else { "dumb" };
    world.heal(&format!("leader {old} {what}, node {new} led"))
}

/// Clients do not reach one node, which is otherwise well.
pub(super) fn clients_cut(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = world.any_node();
    world.cluster.net.deafen(node, CLIENTS)?;
    std::thread::sleep(world.a_while());
    world.heal(&format!("node {node} without clients"))
}

/// Shortest and longest time of a link that comes and goes, in milliseconds.
const FLAP_MS: (u64, u64) = (100, 2000);

/// A node comes and goes.
pub(super) fn flapping(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = world.any_node();
    let mut packets = 0;
    let mut left = world.longest * 2;
    let mut times = 0;
    while !left.is_zero() {
        let pause = |world: &mut World<'_>, left: &mut Duration| {
            let time = world.chance.within(FLAP_MS.0, FLAP_MS.1);
            let time = Duration::from_millis(time).min(*left);
            *left -= time;
            std::thread::sleep(time);
        };
        for other in 1..=NODES {
            if other != node {
                world.cluster.net.cut(node, other)?;
            }
        }
        pause(world, &mut left);
        packets += world.cluster.net.heal()?;
        pause(world, &mut left);
        times += 1;
    }
    if packets == 0 {
        return Err(Failure::Trial("flapping: no packet was stopped".to_owned()));
    }
    Bite::of(format!("node {node} came and went {times} times; {packets} packets stopped"))
}
