//! One disk of three is slow: what a confirm costs then, and whether leadership goes elsewhere.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::runtime::Runtime;

use super::throughput::{Figures, Load, queue_names};
use super::{Options, probe};
use crate::chaos::Failure;
use crate::chaos::cluster::Cluster;
use crate::chaos::flaky_disk::mounted::MountedDisk;
use crate::chaos::net::others;

/// Messages per second: far from any limit, so that a latency is no queueing.
pub const RATE: u64 = 1000;
/// How much longer every flush takes.
const DELAY_MS: u64 = 20;
/// How long leadership may take to move.
const MOVES: Duration = Duration::from_secs(30);
const PREFIX: &str = "slow";

/// Confirms with healthy disks, with a slow follower, with a slow leader.
#[derive(Clone, Debug, Serialize)]
pub struct SlowDisks {
    pub healthy: Figures,
    pub follower: Figures,
    pub leader: Figures,
    /// When another node led, after the leader's disk became slow; nothing: it stayed.
    pub moved_after_s: Option<f64>,
}

/// The table's head.
pub const HEAD: &str = "| broker | healthy, confirm p50 / p99 ms | a follower's disk +20 ms | \
    the leader's disk +20 ms | leadership moved after |\n| --- | --: | --: | --: | --: |\n";

impl SlowDisks {
    pub fn row(&self, broker: &str) -> String {
        let cell = |figures: &Figures| {
            let latencies = &figures.confirm_us;
            format!("{:.2} / {:.2}", latencies.p50 / 1000.0, latencies.p99 / 1000.0)
        };
        let moved = self.moved_after_s.map_or("stayed".to_owned(), |s| format!("{s:.1} s"));
        let Self { healthy, follower, leader, .. } = self;
        let (healthy, follower, leader) = (cell(healthy), cell(follower), cell(leader));
        format!("| {broker} | {healthy} | {follower} | {leader} | {moved} |\n")
    }
}

/// Measures all three.
pub(super) fn measure(
    options: &Options,
    cluster: &mut Cluster,
    disks: &[MountedDisk],
) -> Result<SlowDisks, Failure> {
    let runtime = Runtime::new()?;
    let queue = &queue_names(PREFIX, 1)[0];
    probe::declare(&runtime, cluster.addresses()[0], cluster.kind, queue)?;
    let disk = |node: u32| &disks[node as usize - 1];
    let run = |cluster: &Cluster, leader: u32| {
        // Clients on a node that is not slow: what is measured is the disk.
        let other = others(leader).last().expect("there are three nodes");
        let address = cluster.addresses()[other as usize - 1];
        let pids = cluster.pids();
        let seconds = options.seconds;
        let (generator, queue, pids) = (options.broker.as_path(), PREFIX, pids.as_slice());
        let (publish, consume) = (address, address);
        let (queues, body_bytes, rate) = (1, 1024, RATE);
        Load {
            generator,
            queue,
            queues,
            body_bytes,
            publish,
            consume,
            rate,
            seconds,
            pids,
            stream: None,
        }
        .run()
    };
    let leader = cluster.wait_leader(queue, MOVES)?;
    // The first run prepares log files, which is slow on disks like these; it does not count.
    run(cluster, leader)?;
    cluster.wait_caught_up(queue, MOVES)?;
    let leader = cluster.wait_leader(queue, MOVES)?;
    let healthy = run(cluster, leader)?;
    let follower_node = others(leader).next().expect("there are three nodes");
    disk(follower_node).slow_flushes(DELAY_MS)?;
    let follower = run(cluster, leader)?;
    disk(follower_node).slow_flushes(0)?;
    cluster.wait_caught_up(queue, MOVES)?;
    let leader_node = cluster.wait_leader(queue, MOVES)?;
    disk(leader_node).slow_flushes(DELAY_MS)?;
    let (leader, moved_after_s) = std::thread::scope(|scope| {
        let cluster = &*cluster;
        let watching = scope.spawn(move || moved(cluster, queue, leader_node));
        let figures = run(cluster, leader_node);
        (figures, watching.join().expect("watching does not panic"))
    });
    disk(leader_node).slow_flushes(0)?;
    Ok(SlowDisks { healthy, follower, leader: leader?, moved_after_s: moved_after_s? })
}

/// When somebody else leads.
fn moved(cluster: &Cluster, queue: &str, leader: u32) -> Result<Option<f64>, Failure> {
    let begin = Instant::now();
    while begin.elapsed() < MOVES {
        let now = cluster.leader_of(queue, &others(leader).collect::<Vec<_>>())?;
        if now.is_some_and(|now| now != leader) {
            return Ok(Some(begin.elapsed().as_secs_f64()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(None)
}
