//! F2, F3, F10 (CPU) and F13: processes that die, stand still or are slow.

use std::time::Duration;

use super::{Bite, World};
use crate::chaos::Failure;
use crate::chaos::net::{NODES, others};

/// `kill -9`, and proof that it ran before and does not now.
fn kill(world: &mut World<'_>, node: u32) -> Result<(), Failure> {
    let broker = world.cluster.node(node);
    if broker.exited()?.is_some() || broker.pid().is_none() {
        return Err(Failure::Broken(format!("node {node} had ended by itself")));
    }
    broker.kill()
}

pub(super) fn kill_leader(world: &mut World<'_>) -> Result<Bite, Failure> {
    let old = world.leader()?;
    kill(world, old)?;
    let new = world.led_elsewhere(old)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(old).start()?;
    Bite::at(old, format!("leader {old} killed, node {new} led"))
}

pub(super) fn kill_one(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = world.any_node();
    kill(world, node)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(node).start()?;
    Bite::at(node, format!("node {node} killed"))
}

/// One after the other, often before the one before has recovered. At any time one is down.
pub(super) fn kill_loop(world: &mut World<'_>) -> Result<Bite, Failure> {
    const TIMES: u32 = 5;
    let mut killed = Vec::new();
    for _ in 0..TIMES {
        let node = world.any_node();
        kill(world, node)?;
        world.cluster.node(node).start()?;
        killed.push(node);
        // Long enough to be in the middle of a start, or to be through.
        std::thread::sleep(Duration::from_millis(world.chance.within(50, 1500)));
    }
    Bite::of(format!("nodes {killed:?} killed, one after the other"))
}

/// All at once; they come back in any order.
pub(super) fn kill_all(world: &mut World<'_>) -> Result<Bite, Failure> {
    for node in 1..=NODES {
        kill(world, node)?;
    }
    for node in shuffled(world) {
        world.cluster.node(node).start()?;
        std::thread::sleep(Duration::from_millis(world.chance.within(0, 500)));
    }
    Bite::of("all nodes killed at once".to_owned())
}

/// All killed. Two come back, and must serve alone; the third comes later.
pub(super) fn outage(world: &mut World<'_>) -> Result<Bite, Failure> {
    let order = shuffled(world);
    for node in 1..=NODES {
        kill(world, node)?;
    }
    std::thread::sleep(Duration::from_secs(1));
    for node in &order[..2] {
        world.cluster.node(*node).start()?;
        std::thread::sleep(Duration::from_millis(world.chance.within(0, 1000)));
    }
    let late = order[2];
    let new = world.led_elsewhere(late)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(late).start()?;
    Bite::of(format!("all killed; node {new} led before node {late} was back"))
}

fn shuffled(world: &mut World<'_>) -> Vec<u32> {
    let first = world.any_node();
    let mut order: Vec<u32> = others(first).collect();
    if world.chance.percent(50) {
        order.reverse();
    }
    order.insert(0, first);
    order
}

/// SIGSTOP, with a look whether every thread stands.
pub(super) fn stop(world: &mut World<'_>, node: u32) -> Result<(), Failure> {
    let broker = world.cluster.node(node);
    broker.stop()?;
    for _ in 0..2000 {
        if broker.is_stopped() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Failure::Trial(format!("SIGSTOP did not stop node {node}")))
}

pub(super) fn stop_leader(world: &mut World<'_>) -> Result<Bite, Failure> {
    let old = world.leader()?;
    stop(world, old)?;
    let new = world.led_elsewhere(old)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(old).go_on()?;
    Bite::of(format!("leader {old} stood still (state T), node {new} led"))
}

pub(super) fn stop_follower(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = world.follower()?;
    stop(world, node)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(node).go_on()?;
    Bite::of(format!("follower {node} stood still (state T)"))
}

/// All of them; they go on one after the other, so that each in turn thinks it is alone.
pub(super) fn stop_all(world: &mut World<'_>) -> Result<Bite, Failure> {
    for node in 1..=NODES {
        stop(world, node)?;
    }
    std::thread::sleep(world.a_while());
    for node in shuffled(world) {
        world.cluster.node(node).go_on()?;
        std::thread::sleep(Duration::from_millis(world.chance.within(0, 2500)));
    }
    Bite::of("all nodes stood still (state T)".to_owned())
}

/// A node that runs one tenth of the time: every 200 ms it is let run for 20.
pub(super) fn slow_cpu(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.follower()? };
    let turns = (world.a_while().as_millis() / 200).max(5);
    for _ in 0..turns {
        stop(world, node)?;
        std::thread::sleep(Duration::from_millis(180));
        world.cluster.node(node).go_on()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Bite::of(format!("node {node} ran a tenth of {turns} turns"))
}
