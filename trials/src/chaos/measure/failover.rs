//! The leader of a queue fails under load: how long nobody hears a confirm, and what is lost by it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::gaps::{Outcome, Publish, longest_gap, median, succeeded};
use super::probe::{self, Id, Probes};
use super::{Options, word};
use crate::chaos::Failure;
use crate::chaos::broker::Kind;
use crate::chaos::cluster::Cluster;
use crate::chaos::net::others;
use crate::history::Nanos;
use crate::workload::io::now;

/// How a leader fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// `kill -9`: its sockets close.
    Killed,
    /// SIGSTOP: its sockets stay, and nobody answers.
    Frozen,
    /// No packet between it and the other two.
    CutOff,
}

const QUEUE: &str = "failover";
/// Load before and after.
const BEFORE: Duration = Duration::from_millis(1500);
/// How long a leader is away.
const AWAY_KILLED: Duration = Duration::from_secs(3);
const AWAY: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_secs(2);
/// How long a cluster may take to become whole by itself, once the leader is back.
const HEALS: Duration = Duration::from_secs(20);
const CATCH_UP: Duration = Duration::from_secs(120);

/// One failover.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    pub leader: u32,
    /// Longest time without a confirm, from the fault until the leader is let back: of the publisher
    /// that waited longest.
    pub gap_ms: f64,
    /// The same, from there until everything is as before.
    pub return_gap_ms: f64,
    /// Refused and unknown publishes, lost channels and connections.
    pub errors: u64,
    /// Messages that were in the queue more than once.
    pub duplicates: u64,
    /// Confirmed, and not in the queue.
    pub lost: u64,
    /// Publishes begun while the leader was away: confirmed, and all.
    pub succeeded: u64,
    pub begun: u64,
    /// Who leads then.
    pub new_leader: Option<u32>,
    /// Whether the old leader had to be restarted by hand to become a member again.
    pub needed_restart: bool,
}

/// All of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Failovers {
    pub way: Way,
    pub rounds: Vec<Round>,
}

/// The table's head.
pub const HEAD: &str = "| leader | broker | rounds | longest gap between confirms p50 / max | \
    at its return p50 / max | errors | duplicates | lost | restarts by hand | publishes that succeeded while it was away |\n\
    | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |\n";

impl Failovers {
    pub fn row(&self, broker: &str) -> String {
        let figures = |figure: fn(&Round) -> f64| {
            let all: Vec<f64> = self.rounds.iter().map(figure).collect();
            let max = all.iter().copied().fold(0.0, f64::max);
            format!("{:.0} / {:.0} ms", median(&all), max)
        };
        let sum = |figure: fn(&Round) -> u64| self.rounds.iter().map(figure).sum::<u64>();
        let share = 100.0 * sum(|round| round.succeeded) as f64 / sum(|round| round.begun) as f64;
        format!(
            "| {} | {broker} | {} | {} | {} | {} | {} | {} | {} | {share:.2} % of {} |\n",
            match self.way {
                Way::Killed => "killed -9",
                Way::Frozen => "frozen 10 s",
                Way::CutOff => "cut off 10 s",
            },
            self.rounds.len(),
            figures(|round| round.gap_ms),
            figures(|round| round.return_gap_ms),
            sum(|round| round.errors),
            sum(|round| round.duplicates),
            sum(|round| round.lost),
            sum(|round| u64::from(round.needed_restart)),
            sum(|round| round.begun),
        )
    }
}

/// Rounds of every way that is asked for.
pub(super) fn measure(options: &Options, cluster: &mut Cluster) -> Result<Vec<Failovers>, Failure> {
    let runtime = Runtime::new()?;
    probe::declare(&runtime, cluster.addresses()[0], cluster.kind, QUEUE)?;
    let mut all = Vec::new();
    let mut first = 0;
    for way in [Way::Killed, Way::Frozen, Way::CutOff] {
        if !options.ways.is_empty() && !options.ways.contains(&way) {
            continue;
        }
        let mut rounds = Vec::new();
        for _ in 0..options.rounds_of(cluster.kind, way) {
            let round = fail_over(&runtime, cluster, way, first)?;
            first += 2;
            println!("{} {way:?}: {}", word(cluster.kind), round.line());
            rounds.push(round);
        }
        all.push(Failovers { way, rounds });
    }
    Ok(all)
}

fn fail_over(
    runtime: &Runtime,
    cluster: &mut Cluster,
    way: Way,
    first: u32,
) -> Result<Round, Failure> {
    cluster.wait_caught_up(QUEUE, CATCH_UP)?;
    let leader = cluster.wait_leader(QUEUE, CATCH_UP)?;
    let survivors: Vec<u32> = others(leader).collect();
    let all = cluster.addresses();
    let addresses: Vec<SocketAddr> = survivors.iter().map(|node| all[*node as usize - 1]).collect();
    let probes = Probes::start(runtime, &addresses, QUEUE, first);
    std::thread::sleep(BEFORE);
    let t0 = now();
    let away = match way {
        Way::Killed => cluster.node(leader).kill().map(|()| AWAY_KILLED)?,
        Way::Frozen => cluster.node(leader).stop().map(|()| AWAY)?,
        Way::CutOff => cluster.net.isolate(leader).map(|()| AWAY)?,
    };
    std::thread::sleep(away);
    if way == Way::Frozen && !cluster.node(leader).is_stopped() {
        return Err(Failure::Trial(format!("node {leader} was not frozen")));
    }
    let new_leader = cluster.leader_of(QUEUE, &survivors)?;
    let t1 = now();
    match way {
        Way::Killed => cluster.node(leader).start()?,
        Way::Frozen => cluster.node(leader).go_on()?,
        Way::CutOff => {
            if cluster.net.heal()? == 0 {
                return Err(Failure::Trial(format!("no packet of node {leader} was stopped")));
            }
        }
    }
    let needed_restart = match cluster.wait_ready(HEALS) {
        Ok(()) => false,
        // RabbitMQ's nodes may stay apart after they lost sight of each other: its manual says to
        // restart those on the smaller side.
        Err(_) if cluster.kind == Kind::Rabbitmq && way != Way::Killed => {
            cluster.node(leader).kill()?;
            cluster.node(leader).start()?;
            cluster.wait_ready(CATCH_UP).map(|()| true)?
        }
        Err(_) => cluster.wait_ready(CATCH_UP).map(|()| false)?,
    };
    std::thread::sleep(AFTER);
    let t2 = now();
    let seen = probes.end(runtime);
    let found = probe::drain(runtime, addresses[0], QUEUE)?;
    let publishers: Vec<Vec<Publish>> =
        seen.iter().map(|seen| seen.publishes.values().copied().collect()).collect();
    let gap = |from: Nanos, to: Nanos| {
        let longest = publishers.iter().map(|one| longest_gap(one, from, to)).max();
        longest.unwrap_or(Nanos::MAX) as f64 / 1e6
    };
    let counts = publishers.iter().map(|one| succeeded(one, t0, t1));
    let (succeeded, begun) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let not_confirmed = publishers.iter().flatten().filter(|one| !is_confirmed(one)).count() as u64;
    let confirmed =
        seen.iter().flat_map(|seen| &seen.publishes).filter(|(_, one)| is_confirmed(one));
    Ok(Round {
        leader,
        gap_ms: gap(t0, t1),
        return_gap_ms: gap(t1, t2),
        errors: not_confirmed + seen.iter().map(|seen| seen.errors).sum::<u64>(),
        duplicates: duplicates(&found),
        lost: confirmed.filter(|(id, _)| !found.contains_key(id)).count() as u64,
        succeeded,
        begun,
        new_leader,
        needed_restart,
    })
}

fn is_confirmed(publish: &Publish) -> bool {
    matches!(publish.outcome, Outcome::Confirmed(_))
}

fn duplicates(found: &BTreeMap<Id, u32>) -> u64 {
    found.values().map(|times| u64::from(times - 1)).sum()
}

impl Round {
    fn line(&self) -> String {
        let Self {
            leader, gap_ms, return_gap_ms, errors, duplicates, lost, succeeded, begun, ..
        } = self;
        let new_leader = self.new_leader.map_or("nobody".to_owned(), |node| node.to_string());
        format!(
            "node {leader} led, then {new_leader}; gap {gap_ms:.0} ms, at its return \
             {return_gap_ms:.0} ms; {errors} errors, {duplicates} duplicates, {lost} lost; \
             {succeeded} of {begun} succeeded{}",
            if self.needed_restart { "; had to be restarted by hand" } else { "" }
        )
    }
}
