//! F3 (with power cuts), F5, F6, F8, F9 and F10: disks that forget, fail, fill or are slow.

use std::time::Duration;

use super::{Bite, World};
use crate::chaos::Failure;
use crate::chaos::diskfault::{FailingSync, fill_for, must_stop};
use crate::chaos::flaky_disk::mounted::{Cut, MountedDisk};
use crate::chaos::net::NODES;
use crate::chaos::trial::Harm;

fn disk<'w>(world: &'w mut World<'_>, node: u32) -> &'w mut MountedDisk {
    &mut world.disks[node as usize - 1]
}

/// Slowest flush after a cut, in milliseconds: the next cut is more likely to come in one.
const FLUSH_MS_MAX: u64 = 6;

fn any_cut(world: &mut World<'_>) -> Cut {
    if world.chance.percent(50) { Cut::Tear { seed: world.chance.number() } } else { Cut::Drop }
}

/// The power of these nodes goes: they say nothing more, then their disks forget.
fn power_cut(world: &mut World<'_>, nodes: &[u32]) -> Result<u64, Failure> {
    for node in nodes {
        world.cluster.node(*node).stop()?;
    }
    for node in nodes {
        let cut = any_cut(world);
        disk(world, *node).cut(cut)?;
    }
    for node in nodes {
        world.cluster.node(*node).kill()?;
    }
    let mut sectors = 0;
    for node in nodes {
        sectors += disk(world, *node).power_on()?;
        let ms = world.chance.within(0, FLUSH_MS_MAX);
        disk(world, *node).slow_flushes(ms)?;
    }
    Ok(sectors)
}

pub(super) fn power_one(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.any_node() };
    let sectors = power_cut(world, &[node])?;
    std::thread::sleep(world.a_while());
    world.cluster.node(node).start()?;
    Ok(Bite { seen: format!("node {node} lost {sectors} sectors"), sectors, struck: None })
}

/// All at once: what was confirmed is on two of three disks, or it was never safe.
pub(super) fn power_all(world: &mut World<'_>) -> Result<Bite, Failure> {
    let all: Vec<u32> = (1..=NODES).collect();
    let sectors = power_cut(world, &all)?;
    for node in all {
        world.cluster.node(node).start()?;
    }
    Ok(Bite { seen: format!("all nodes together lost {sectors} sectors"), sectors, struck: None })
}

/// The schedule of nats-io/nats-server issue 7567, for three nodes: one pauses, another loses its
/// power, the first goes on, the third pauses. Whoever answered from memory has lost by then.
pub(super) fn nats_7567(world: &mut World<'_>) -> Result<Bite, Failure> {
    let cut = world.leader()?;
    let others: Vec<u32> = crate::chaos::net::others(cut).collect();
    let (paused, third) = (others[0], others[1]);
    world.cluster.node(paused).stop()?;
    std::thread::sleep(world.a_while());
    if !world.cluster.node(paused).is_stopped() {
        return Err(Failure::Trial(format!("SIGSTOP did not stop node {paused}")));
    }
    let sectors = power_cut(world, &[cut])?;
    world.cluster.node(cut).start()?;
    world.cluster.node(paused).go_on()?;
    world.cluster.node(third).stop()?;
    std::thread::sleep(world.a_while());
    world.cluster.node(third).go_on()?;
    let seen = format!(
        "node {paused} paused, node {cut} lost {sectors} sectors, {paused} went on, {third} paused"
    );
    Ok(Bite { seen, sectors, struck: None })
}

/// One node's sync fails: it ends, names the file, and the others go on.
pub(super) fn failing_sync(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.any_node() };
    let mut harm = FailingSync::new(world.dir)?;
    harm.strike(world.cluster.node(node), world.chance)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(node).start()?;
    Bite::of(format!("node {node} ended after EIO"))
}

/// One node's disk fails to flush and forgets what it was to flush.
pub(super) fn failing_flush(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.any_node() };
    disk(world, node).fail_flushes(true)?;
    let stopped = must_stop(world.cluster.node(node));
    disk(world, node).fail_flushes(false)?;
    stopped?;
    disk(world, node).cut(Cut::Drop)?;
    let sectors = disk(world, node).power_on()?;
    std::thread::sleep(world.a_while());
    world.cluster.node(node).start()?;
    Ok(Bite { seen: format!("node {node} ended when its disk failed"), sectors, struck: None })
}

/// One node's disk is full for a while. It may wait or stop; it must serve when there is space.
pub(super) fn full(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.any_node() };
    let time = world.a_while();
    let left = fill_for(disk(world, node).data(), time)?;
    let broker = world.cluster.node(node);
    let seen = match broker.exited()? {
        Some(status) if status.success() => {
            return Err(Failure::Broken("a full disk ended a node with success".to_owned()));
        }
        Some(status) => {
            broker.start()?;
            format!("node {node} stopped at a full disk ({status})")
        }
        None => format!("node {node} went on with a full disk"),
    };
    Bite::of(format!("{seen}, {left} bytes left"))
}

/// One node's flushes take 50 ms to a second longer.
pub(super) fn slow(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.follower()? };
    let ms = world.chance.within(50, 1000);
    let before = disk(world, node).flushes()?;
    disk(world, node).slow_flushes(ms)?;
    std::thread::sleep(world.a_while().max(Duration::from_millis(ms * 3)));
    disk(world, node).slow_flushes(0)?;
    let flushes = disk(world, node).flushes()? - before;
    if flushes == 0 {
        return Err(Failure::Trial(format!("node {node} flushed nothing while its disk was slow")));
    }
    Bite::of(format!("{flushes} flushes of node {node} took {ms} ms longer"))
}

/// Every disk is full at once. Nobody may confirm what it cannot store; all serve when there is space.
pub(super) fn all_full(world: &mut World<'_>) -> Result<Bite, Failure> {
    let time = world.a_while();
    let dirs: Vec<_> = world.disks.iter().map(|disk| disk.data().to_owned()).collect();
    let left = std::thread::scope(|scope| {
        let fills: Vec<_> =
            dirs.iter().map(|dir| scope.spawn(move || fill_for(dir, time))).collect();
        let ends = fills.into_iter().map(|fill| fill.join().expect("filling does not panic"));
        ends.collect::<Result<Vec<u64>, Failure>>()
    })?;
    let mut stopped = Vec::new();
    for node in 1..=NODES {
        let broker = world.cluster.node(node);
        let Some(status) = broker.exited()? else { continue };
        if status.success() {
            return Err(Failure::Broken(format!("a full disk ended node {node} with success")));
        }
        broker.start()?;
        stopped.push(node);
    }
    let most = left.into_iter().max().unwrap_or(0);
    let ms = time.as_millis();
    Bite::of(format!("all disks full for {ms} ms, {most} bytes left at most, {stopped:?} stopped"))
}
