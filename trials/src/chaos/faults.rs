//! What is done to a cluster of three, by the rows of the fault matrix, and the proof that it bit.
//!
//! A fault strikes and is over when it comes back: packets flow, every process runs or starts. What it
//! cannot prove to have done fails the run: a trial whose harm never happened shows nothing.

pub(super) mod clock;
mod copies;
pub(super) mod damage;
mod disks;
mod links;
mod mix;
mod partitions;
mod processes;

use std::path::Path;
use std::time::{Duration, Instant};

use super::Failure;
use super::cluster::Cluster;
use super::flaky_disk::mounted::MountedDisk;
use super::net::NODES;
use crate::workload::Chance;

/// What a fault has in its hands.
pub(super) struct World<'a> {
    pub(super) cluster: &'a mut Cluster,
    /// One for each node, where the fault [needs](Needs) them.
    pub(super) disks: &'a mut [MountedDisk],
    /// Where each node's clock is set, where the fault needs it.
    pub(super) clocks: &'a [std::path::PathBuf],
    pub(super) chance: &'a mut Chance,
    pub(super) seed: u64,
    /// The run's directory.
    pub(super) dir: &'a Path,
    /// How long harm lasts that can be of any length, at most.
    pub(super) longest: Duration,
}

/// Proof of harm.
#[derive(Clone, Debug, Default)]
pub(super) struct Bite {
    /// What was seen of it.
    pub(super) seen: String,
    /// Sectors that were thrown away.
    pub(super) sectors: u64,
    /// The only node that was harmed, where one was.
    pub(super) struck: Option<u32>,
}

impl Bite {
    fn of(seen: String) -> Result<Self, Failure> {
        Ok(Self { seen, sectors: 0, struck: None })
    }

    /// Harm to this node alone.
    fn at(node: u32, seen: String) -> Result<Self, Failure> {
        Ok(Self { seen, sectors: 0, struck: Some(node) })
    }
}

/// What has to be prepared for a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Every node on a flaky disk of its own.
    pub disks: bool,
    /// Every node's clock can be set.
    pub clocks: bool,
}

/// One kind of harm.
pub struct Fault {
    pub name: &'static str,
    /// Of the fault matrix.
    pub row: &'static str,
    pub needs: Needs,
    /// Whether RabbitMQ, too, can be made to suffer it.
    pub for_all: bool,
    pub(super) strike: fn(&mut World<'_>) -> Result<Bite, Failure>,
}

const fn fault(
    row: &'static str,
    name: &'static str,
    strike: fn(&mut World<'_>) -> Result<Bite, Failure>,
) -> Fault {
    Fault { name, row, needs: Needs { disks: false, clocks: false }, for_all: true, strike }
}

const fn on_disks(
    row: &'static str,
    name: &'static str,
    strike: fn(&mut World<'_>) -> Result<Bite, Failure>,
) -> Fault {
    Fault {
        needs: Needs { disks: true, clocks: false },
        for_all: false,
        ..fault(row, name, strike)
    }
}

const fn ours(
    row: &'static str,
    name: &'static str,
    strike: fn(&mut World<'_>) -> Result<Bite, Failure>,
) -> Fault {
    Fault { for_all: false, ..fault(row, name, strike) }
}

/// Every kind, but for the mix of all.
pub const FAULTS: &[Fault] = &[
    fault("F1", "isolate-leader", partitions::isolate_leader),
    fault("F1", "isolate-follower", partitions::isolate_follower),
    fault("F1", "halves", partitions::halves),
    fault("F1", "ring", partitions::bridge),
    fault("F1", "one-way", partitions::one_way),
    fault("F1", "cut-link", partitions::cut_link),
    fault("F1", "cut-link-one-way", partitions::cut_link_one_way),
    fault("F1", "clients-cut", partitions::clients_cut),
    fault("F1", "flapping", partitions::flapping),
    fault("F2", "kill-leader", processes::kill_leader),
    fault("F2", "kill-one", processes::kill_one),
    fault("F2", "kill-loop", processes::kill_loop),
    fault("F2", "kill-all", processes::kill_all),
    fault("F3", "stop-leader", processes::stop_leader),
    fault("F3", "stop-follower", processes::stop_follower),
    fault("F3", "stop-all", processes::stop_all),
    on_disks("F3", "nats-7567", disks::nats_7567),
    Fault {
        needs: Needs { disks: false, clocks: true },
        for_all: false,
        ..fault("F4", "clock", clock::jump)
    },
    on_disks("F5", "power-one", disks::power_one),
    on_disks("F6", "power-all", disks::power_all),
    ours("F8", "eio", disks::failing_sync),
    on_disks("F8", "badflush", disks::failing_flush),
    ours("F7", damage::NAME, damage::one_replica),
    ours("F14", "old-copy", copies::old_copy),
    ours("F14", "forgetful-copy", copies::forgetful_copy),
    ours("F14", "twin", copies::twin),
    ours("F14", "twin-takes-over", copies::twin_takes_over),
    on_disks("F9", "disk-full", disks::full),
    on_disks("F9", "disk-full-all", disks::all_full),
    on_disks("F10", "slow-disk", disks::slow),
    fault("F10", "slow-cpu", processes::slow_cpu),
    fault("F11", "loss", links::loss),
    fault("F11", "narrow", links::narrow),
    fault("F11", "resets", links::resets),
    fault("F13", "outage", processes::outage),
];

/// F18: any of them, and sometimes two at a time.
pub const MIX: Fault =
    Fault { needs: Needs { disks: true, clocks: true }, ..on_disks("F18", "mix", mix::any) };

/// The fault of that name.
pub fn named(name: &str) -> Option<&'static Fault> {
    FAULTS.iter().chain([&MIX]).find(|fault| fault.name == name)
}

/// The queue whose leader is looked for: one consumer, strict order.
const QUEUE: &str = "orders";
/// How long leadership may take to be known, or to be elsewhere.
const LED: Duration = Duration::from_secs(30);
/// How long a majority may go without a leader.
const ELECTED: Duration = Duration::from_secs(30);

impl World<'_> {
    fn any_node(&mut self) -> u32 {
        self.chance.within(1, u64::from(NODES) + 1) as u32
    }

    fn leader(&mut self) -> Result<u32, Failure> {
        self.cluster.wait_leader(QUEUE, LED)
    }

    fn follower(&mut self) -> Result<u32, Failure> {
        let leader = self.leader()?;
        Ok(self.another(leader))
    }

    /// Any node but that one.
    fn another(&mut self, node: u32) -> u32 {
        let others: Vec<u32> = super::net::others(node).collect();
        others[self.chance.within(0, others.len() as u64) as usize]
    }

    /// A time between a second and the longest.
    fn a_while(&mut self) -> Duration {
        let longest = self.longest.as_millis() as u64;
        Duration::from_millis(self.chance.within(longest.min(1000), longest + 1))
    }

    /// Waits until another node leads what `old` led, as the others see it.
    fn led_elsewhere(&mut self, old: u32) -> Result<u32, Failure> {
        self.led_by_none_of(&[old])
    }

    /// Waits until a node that is none of these leads, as such nodes see it.
    fn led_by_none_of(&mut self, nodes: &[u32]) -> Result<u32, Failure> {
        let asked: Vec<u32> = (1..=NODES).filter(|node| !nodes.contains(node)).collect();
        let begin = Instant::now();
        while begin.elapsed() < ELECTED {
            match self.cluster.leader_of(QUEUE, &asked)? {
                Some(leader) if !nodes.contains(&leader) => return Ok(leader),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let seen = (1..=NODES).map(|node| {
            let leader = self.cluster.leader_of(QUEUE, &[node]);
            format!("node {node} sees {leader:?}")
        });
        let seen: Vec<String> = seen.collect();
        Err(Failure::Broken(format!(
            "nodes {nodes:?} may not lead {QUEUE}, and {ELECTED:?} later nobody else does: {}",
            seen.join(", ")
        )))
    }

    /// Packets flow again; they must have been stopped before.
    fn heal(&mut self, what: &str) -> Result<Bite, Failure> {
        match self.cluster.net.heal()? {
            0 => Err(Failure::Trial(format!("{what}: no packet was stopped"))),
            packets => Bite::of(format!("{what}; {packets} packets stopped")),
        }
    }
}
