//! Hosts on one machine, three or more: network namespaces on a bridge, and what can be done to their links.
//!
//! ```text
//! clients 10.77.0.254 on the bridge -- mlv1 | eth0 10.77.0.1 in ml1
//!                                   -- mlv2 | eth0 10.77.0.2 in ml2
//!                                   -- mlv3 | eth0 10.77.0.3 in ml3, and so on
//! ```
//!
//! All of it lives in network, process and mount namespaces of its own ([`enter`]): two trials do not
//! meet, and whatever was started or mounted ends with the command.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::Failure;
use super::flaky_disk::mounted::tool;

/// Nodes of a cluster, but for the trials that say otherwise.
pub const NODES: u32 = 3;
/// Hosts that there can be.
pub const NODES_MAX: u32 = 5;
/// Where clients live.
pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
/// Where nodes listen for each other.
pub const PEER_PORT: u16 = 7000;
/// Where nodes listen for operators.
pub const HTTP_PORT: u16 = 15672;

/// Set for the process inside the namespaces.
const INSIDE: &str = "TRIALS_NAMESPACE";
/// The old iptables: the newer one needs parts of the kernel that not every machine has.
const IPTABLES: &str = "iptables-legacy";

/// Whether this process is the one inside.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether this machine lets us have hosts, and if not, why.
pub fn is_possible() -> Result<(), Failure> {
    let skipped = |why: &str| Err(Failure::Skipped(why.to_owned()));
    if !rustix::process::geteuid().is_root() {
        return skipped("network namespaces need root");
    }
    for (program, package) in [("ip", "iproute2"), ("tc", "iproute2"), (IPTABLES, "iptables")] {
        if Command::new(program).arg("-V").output().is_err() {
            return skipped(&format!("{program} is missing (apt-get install {package})"));
        }
    }
    match Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--mount-proc", "true"])
        .status()
    {
        Ok(status) if status.success() => Ok(()),
        _ => skipped("the kernel refuses new namespaces"),
    }
}

/// Runs this program again, with the same words, inside fresh namespaces. Whoever ends this process,
/// however, ends everything inside.
pub fn enter() -> Result<ExitCode, Failure> {
    is_possible()?;
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// What the process inside does first: the loopback interface is down in a fresh network.
pub fn bring_up_loopback() -> Result<(), Failure> {
    ip("link set lo up")
}

/// The address of a node.
pub fn host(node: u32) -> Ipv4Addr {
    assert!((1..=NODES_MAX).contains(&node), "there is no node {node}");
    Ipv4Addr::new(10, 77, 0, node as u8)
}

/// The nodes of three but this one.
pub fn others(node: u32) -> impl Iterator<Item = u32> {
    (1..=NODES).filter(move |other| *other != node)
}

/// What has to stand before a command so that it runs on a node's host.
pub fn on(node: u32) -> Vec<String> {
    vec!["nsenter".to_owned(), format!("--net=/run/netns/ml{node}")]
}

/// The bridge and its hosts. They end with the namespaces.
#[derive(Debug)]
pub struct Net {
    nodes: u32,
}

impl Net {
    /// Builds it for so many nodes; the process must be [inside](enter).
    pub fn create(nodes: u32) -> Result<Self, Failure> {
        assert!(is_inside(), "hosts are made in namespaces of their own");
        let is_there = |node: u32| Path::new(&format!("/run/netns/ml{node}")).exists();
        if !is_there(1) {
            tool("mount", &["-t", "tmpfs", "tmpfs", "/run"])?;
            ip("link add mlbr type bridge")?;
            ip("link set mlbr up")?;
            ip(&format!("addr add {CLIENTS}/24 dev mlbr"))?;
        }
        for node in (1..=nodes).filter(|node| !is_there(*node)) {
            ip(&format!("netns add ml{node}"))?;
            ip(&format!("link add mlv{node} type veth peer name eth0 netns ml{node}"))?;
            ip(&format!("link set mlv{node} master mlbr up"))?;
            ip(&format!("-n ml{node} addr add {}/24 dev eth0", host(node)))?;
            ip(&format!("-n ml{node} link set eth0 up"))?;
            ip(&format!("-n ml{node} link set lo up"))?;
        }
        let net = Self { nodes };
        net.heal()?;
        Ok(net)
    }

    /// `node` hears nothing more from `from`.
    pub fn deafen(&self, node: u32, from: Ipv4Addr) -> Result<(), Failure> {
        run_on(node, &format!("{IPTABLES} -w -A INPUT -s {from} -j DROP"))
    }

    /// Neither hears the other.
    pub fn cut(&self, one: u32, other: u32) -> Result<(), Failure> {
        self.deafen(one, host(other))?;
        self.deafen(other, host(one))
    }

    /// Nobody but its clients can reach `node`, and it can reach nobody.
    pub fn isolate(&self, node: u32) -> Result<(), Failure> {
        others(node).try_for_each(|other| self.cut(node, other))
    }

    /// `node` loses this share of what other nodes send it.
    pub fn lose(&self, node: u32, percent: u64) -> Result<(), Failure> {
        let probability = percent as f64 / 100.0;
        others(node).try_for_each(|other| {
            let from = host(other);
            run_on(
                node,
                &format!(
                    "{IPTABLES} -w -A INPUT -s {from} -m statistic --mode random \
                     --probability {probability} -j DROP"
                ),
            )
        })
    }

    /// Every connection of another node to `node` is reset at its next packet.
    pub fn reset(&self, node: u32) -> Result<(), Failure> {
        // The greater id dials: some of its connections are to the others' port.
        for end in ["--dport", "--sport"] {
            run_on(
                node,
                &format!(
                    "{IPTABLES} -w -A INPUT -p tcp {end} {PEER_PORT} -j REJECT --reject-with tcp-reset"
                ),
            )?;
        }
        Ok(())
    }

    /// `node` can send so many kilobits a second.
    pub fn narrow(&self, node: u32, kbit: u64) -> Result<(), Failure> {
        run_on(
            node,
            &format!(
                "tc qdisc replace dev eth0 root tbf rate {kbit}kbit burst 32kbit latency 400ms"
            ),
        )
    }

    /// Packets that rules have stopped, and that had to wait or were thrown away for bandwidth.
    pub fn stopped(&self) -> Result<u64, Failure> {
        let mut packets = 0;
        for node in 1..=self.nodes {
            let rules = output_on(node, &format!("{IPTABLES} -w -L INPUT -v -x -n"))?;
            packets += counted_by_rules(&rules);
            let waiting = output_on(node, "tc -s qdisc show dev eth0")?;
            packets += overlimits(&waiting);
        }
        Ok(packets)
    }

    /// Takes every rule away. Gives back how many packets they stopped.
    pub fn heal(&self) -> Result<u64, Failure> {
        let stopped = self.stopped()?;
        for node in 1..=self.nodes {
            run_on(node, &format!("{IPTABLES} -w -F"))?;
            // It fails where there is nothing to delete.
            let _ = run_on(node, "tc qdisc del dev eth0 root");
        }
        Ok(stopped)
    }
}

fn ip(words: &str) -> Result<(), Failure> {
    tool("ip", &words.split_whitespace().collect::<Vec<_>>()).map(drop)
}

fn run_on(node: u32, words: &str) -> Result<(), Failure> {
    output_on(node, words).map(drop)
}

fn output_on(node: u32, words: &str) -> Result<String, Failure> {
    let on = on(node);
    let output = Command::new(&on[0]).args(&on[1..]).args(words.split_whitespace()).output()?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::Trial(format!("{words}: {complaint}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sums the first column of the rules, whose targets are `DROP` and `REJECT`.
fn counted_by_rules(listing: &str) -> u64 {
    let words = listing.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| matches!(words.get(2), Some(&"DROP" | &"REJECT")))
        .filter_map(|words| words.first()?.parse::<u64>().ok())
        .sum()
}

/// The counter of a token bucket: ` Sent 0 bytes 0 pkt (dropped 0, overlimits 7 requeues 0)`.
fn overlimits(shown: &str) -> u64 {
    if !shown.contains("qdisc tbf") {
        return 0;
    }
    let after = shown.split_once("overlimits ").map_or("", |(_, after)| after);
    after.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_rules_stopped_are_counted() {
        let listing = "Chain INPUT (policy ACCEPT 5 packets, 9 bytes)\n\
            pkts bytes target prot opt in out source destination\n\
            12 700 DROP 0 -- * * 10.77.0.2 0.0.0.0/0\n\
            3 180 REJECT 6 -- * * 0.0.0.0/0 0.0.0.0/0 tcp dpt:7000\n";
        assert_eq!(counted_by_rules(listing), 15);
    }

    #[test]
    fn waiting_for_bandwidth_is_counted() {
        let shown = "qdisc tbf 8001: root refcnt 3 rate 1Mbit burst 4Kb lat 400ms\n \
            Sent 9 bytes 2 pkt (dropped 1, overlimits 7 requeues 0)\n";
        assert_eq!(overlimits(shown), 7);
        assert_eq!(overlimits("qdisc noqueue 0: root refcnt 2\n"), 0);
    }
}
