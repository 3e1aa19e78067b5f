//! Messages per second and what they cost all nodes together.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::gaps::median;
use super::{Options, must_exist, probe, word};
use crate::chaos::Failure;
use crate::chaos::broker::Kind;
use crate::chaos::cluster::Cluster;
use crate::chaos::net::NODES;

/// Where clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The publisher on node 1, the consumer on node 2.
    Apart,
    /// Both on the node that leads the queue.
    Leader,
}

/// One load on one broker.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    pub body_bytes: u32,
    pub queues: u32,
    pub place: Place,
    /// Who led the queue, where there is one.
    pub leader: Option<u32>,
    pub runs: Vec<Figures>,
}

/// What `millrace bench --json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    pub confirm_rate: f64,
    pub consume_rate: f64,
    pub confirm_us: Latencies,
    pub server: Server,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latencies {
    pub p50: f64,
    pub p99: f64,
}

/// All nodes together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// Seconds for a million messages, so microseconds for one.
    pub cpu_s_per_million: f64,
    pub rss_max: f64,
}

/// The table's head.
pub const HEAD: &str = "| load | clients | broker | published/s | consumed/s | \
    confirm p50 / p99 ms | CPU per message, all nodes | RSS, all nodes |\n\
    | --- | --- | --- | --: | --: | --: | --: | --: |\n";

impl Throughput {
    pub fn row(&self, broker: &str) -> String {
        let median =
            |figure: fn(&Figures) -> f64| median(&self.runs.iter().map(figure).collect::<Vec<_>>());
        let queues = if self.queues == 1 { "1 queue" } else { "10 queues" };
        format!(
            "| {} B, {queues} | {} | {broker} | {:.0} | {:.0} | {:.2} / {:.2} | {:.1} us | {:.0} MB |\n",
            self.body_bytes,
            match self.place {
                Place::Apart => "publishers on node 1, consumers on node 2",
                Place::Leader => "both on the leader",
            },
            median(|run| run.confirm_rate),
            median(|run| run.consume_rate),
            median(|run| run.confirm_us.p50 / 1000.0),
            median(|run| run.confirm_us.p99 / 1000.0),
            median(|run| run.server.cpu_s_per_million),
            median(|run| run.server.rss_max / f64::from(1 << 20)),
        )
    }
}

/// A run of the generator.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    pub generator: &'a Path,
    pub queue: &'a str,
    pub queues: u32,
    pub body_bytes: u32,
    pub publish: SocketAddr,
    pub consume: SocketAddr,
    /// Messages per second; 0: as many as the window allows.
    pub rate: u64,
    pub seconds: u32,
    pub pids: &'a [u32],
    /// A stream, which is declared with this argument. None: the queues are there.
    pub stream: Option<&'a str>,
}

impl Load<'_> {
    pub fn run(&self) -> Result<Figures, Failure> {
        must_exist(self.generator)?;
        let url = |address: SocketAddr| format!("amqp://guest:guest@{address}/%2F");
        let queues = self.queues.to_string();
        let mut bench = Command::new(self.generator);
        bench.args(["bench", "--json", "--quiet"]);
        match self.stream {
            Some(argument) => {
                bench.args(["--argument", "x-queue-type=stream", "--argument", argument])
            }
            None => bench.arg("--no-declare"),
        };
        bench.args(["--url", &url(self.publish), "--consumer-url", &url(self.consume)]);
        bench.args(["--publishers", &queues, "--consumers", &queues, "--queues", &queues]);
        bench.args(["--queue-prefix", self.queue, "--size", &self.body_bytes.to_string()]);
        let (prefetch, ack_every) =
            if self.stream.is_some() { ("10000", "1000") } else { ("1000", "100") };
        bench.args(["--window", "1000", "--prefetch", prefetch, "--ack-every", ack_every]);
        bench.args(["--rate", &self.rate.to_string()]);
        bench.args(["--duration", &format!("{}s", self.seconds)]);
        for pid in self.pids {
            bench.args(["--pid", &pid.to_string()]);
        }
        let output = bench.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::Broken(format!("millrace bench: {}", complaint.trim())));
        }
        serde_json::from_str(said.trim())
            .map_err(|error| Failure::Trial(format!("millrace bench said {said}: {error}")))
    }
}

/// As `millrace bench` names its queues.
pub fn queue_names(prefix: &str, queues: u32) -> Vec<String> {
    let digits = queues.to_string().len();
    (1..=queues).map(|number| format!("{prefix}-{number:0digits$}")).collect()
}

/// Every load, so many times.
pub(super) fn measure(options: &Options, cluster: &Cluster) -> Result<Vec<Throughput>, Failure> {
    let runtime = Runtime::new()?;
    let loads = [
        (1024, 1, Place::Apart),
        (1024, 1, Place::Leader),
        (1024, 10, Place::Apart),
        (128, 1, Place::Apart),
        (128, 1, Place::Leader),
        (128, 10, Place::Apart),
    ];
    let mut all = Vec::new();
    for (body_bytes, queues, place) in loads {
        let one = measure_one(options, cluster, &runtime, (body_bytes, queues, place))?;
        print!("{}", one.row(super::name(cluster.kind)));
        all.push(one);
    }
    Ok(all)
}

fn measure_one(
    options: &Options,
    cluster: &Cluster,
    runtime: &Runtime,
    (body_bytes, queues, place): (u32, u32, Place),
) -> Result<Throughput, Failure> {
    let prefix = format!("{}-{body_bytes}-{queues}-{place:?}", word(cluster.kind));
    let addresses = cluster.addresses();
    for (number, queue) in queue_names(&prefix, queues).iter().enumerate() {
        // RabbitMQ's leader is where a queue is declared: several of them on several nodes.
        let node = if cluster.kind == Kind::Rabbitmq { number % NODES as usize } else { 0 };
        probe::declare(runtime, addresses[node], cluster.kind, queue)?;
    }
    let first = &queue_names(&prefix, queues)[0];
    let leader = cluster.wait_leader(first, std::time::Duration::from_secs(30))?;
    let (publish, consume) = match place {
        Place::Apart => (addresses[0], addresses[1]),
        Place::Leader => (addresses[leader as usize - 1], addresses[leader as usize - 1]),
    };
    let pids = cluster.pids();
    let load = Load {
        generator: &options.broker,
        queue: &prefix,
        queues,
        body_bytes,
        publish,
        consume,
        rate: 0,
        seconds: options.seconds,
        pids: &pids,
        stream: None,
    };
    let runs = (0..options.runs).map(|_| load.run()).collect::<Result<_, _>>()?;
    let leader = (queues == 1).then_some(leader);
    Ok(Throughput { body_bytes, queues, place, leader, runs })
}
