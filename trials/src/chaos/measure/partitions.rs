//! How fast one reader follows a stream of more and more partitions, which three nodes lead together.

use super::gaps::median;
use super::throughput::{Figures, Load};
use super::{Options, word};
use crate::chaos::Failure;
use crate::chaos::cluster::Cluster;

const COUNTS: [u16; 5] = [1, 2, 4, 8, 16];

/// The table's head.
pub const HEAD: &str = "| partitions, three nodes, 1 KB | published/s | consumed/s | confirm p50 / p99 ms | \
    CPU per message, all nodes |\n| --: | --: | --: | --: | --: |\n";

/// One number of partitions.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Followed {
    pub partitions: u16,
    pub runs: Vec<Figures>,
}

impl Followed {
    pub fn row(&self) -> String {
        let median =
            |figure: fn(&Figures) -> f64| median(&self.runs.iter().map(figure).collect::<Vec<_>>());
        format!(
            "| {} | {:.0} | {:.0} | {:.2} / {:.2} | {:.1} us |\n",
            self.partitions,
            median(|run| run.confirm_rate),
            median(|run| run.consume_rate),
            median(|run| run.confirm_us.p50 / 1000.0),
            median(|run| run.confirm_us.p99 / 1000.0),
            median(|run| run.server.cpu_s_per_million),
        )
    }
}

/// Each number of partitions, so many times, in turns. The publisher is on node 1, the reader on node 2.
pub(super) fn measure(options: &Options, cluster: &Cluster) -> Result<Vec<Followed>, Failure> {
    let empty = |partitions| Followed { partitions, runs: Vec::new() };
    let mut all = COUNTS.map(empty);
    let (addresses, pids) = (cluster.addresses(), cluster.pids());
    for turn in 0..options.runs {
        for place in 0..all.len() {
            let one = &mut all[(place + turn) % COUNTS.len()];
            let argument = format!("x-partitions={}", one.partitions);
            let load = Load {
                generator: &options.broker,
                queue: &format!("{}-{}-{turn}", word(cluster.kind), one.partitions),
                queues: 1,
                body_bytes: 1024,
                publish: addresses[0],
                consume: addresses[1],
                rate: 0,
                seconds: options.seconds,
                pids: &pids,
                stream: Some(&argument),
            };
            one.runs.push(load.run()?);
        }
    }
    all.iter().for_each(|one| print!("{}", one.row()));
    Ok(all.into())
}
