//! A cluster from one seed, on one thread: the real shards on the real log, on disks that forget,
//! with a network between them that is cut, slowed and broken.
//!
//! Chance decides when everything happens and what harm is done. What clients see is a history like
//! any other, and the same checker judges it; a watcher sees what happens inside, and holds every
//! write, message and confirm against what consensus promises. The same seed gives the same history
//! and the same hash over all events; tests run seeds twice.

mod administration;
mod agenda;
mod clients;
pub mod command;
mod disks;
mod heads;
mod marks;
mod nemesis;
mod network;
mod node;
mod operator;
mod planted;
mod store;
#[cfg(test)]
mod tests;
mod watch;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use cluster::shard::{GroupReport, Shard};
use machine::{NodeId, Version};

use crate::checker::{Report, Rules, check};
use crate::history::{Event, History, Nanos, Stage, What};
use agenda::{Event as Occasion, Micros};
pub use clients::{AmqpCounts, LockCounts, RatedCounts, StreamCounts};
use watch::Status;
use world::{Death, World};

/// The vhost of all queues.
const VHOST: &str = "/";

/// How large and how long a run is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Nodes, each a replica of every group.
    pub nodes: usize,
    /// Milliseconds under load and harm.
    pub load_ms: u64,
    /// Milliseconds under load after all is healed.
    pub healed_ms: u64,
    /// Milliseconds between two single failures after that.
    pub calm_ms: u64,
    /// Files are damaged whatever the seed; without it, in two of nine seeds.
    pub damages: bool,
    /// Nodes join, go and are replaced, where there are three or more.
    pub changes_members: bool,
    /// For hunts of planted bugs: harms and clients aim at rare moments. A node is cut off for about as long as it takes
    /// until it refuses what it is asked; a link is cut, and then nodes die.
    pub is_aimed: bool,
    /// Some clients speak AMQP with sessions of the broker.
    pub has_sessions: bool,
    /// Somebody changes policies, users, what they may do, limits and vhosts.
    pub has_policies: bool,
    /// Somebody pauses queues, and somebody sends dead letters on.
    pub has_operations: bool,
    /// Somebody purges queues, and undoes it.
    pub has_undo: bool,
    /// There are streams, which some publish to and some read.
    pub has_streams: bool,
    /// Some want locks.
    pub has_locks: bool,
    /// There are queues with rates.
    pub has_rates: bool,
    pub versions: Versions,
}

/// What the nodes' programs read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Versions {
    /// The first version: what seeds did that once failed, they do again.
    First,
    Newest,
    /// The first, until a node starts again with a newer program, one after the other.
    Upgrade,
    /// The newest, until a node starts again with a program of the version to come: `Version::TRIAL`. What is new in it
    /// is used once the cluster has agreed, and in some seeds the version is raised by force before that.
    Trial,
}

impl Versions {
    /// By the number of the seed: one of four is an upgrade.
    pub fn of(seed: u64) -> Self {
        if seed % 4 == 3 { Self::Upgrade } else { Self::Newest }
    }

    /// What the founders' programs read, and those that they are upgraded to.
    fn programs(self) -> (Version, Option<Version>) {
        match self {
            Self::First => (Version::FIRST, None),
            Self::Newest => (Version::NEWEST, None),
            Self::Upgrade => (Version::FIRST, Some(Version::NEWEST)),
            Self::Trial => (Version::NEWEST, Some(Version::TRIAL)),
        }
    }
}

impl Default for Size {
    fn default() -> Self {
        Self {
            nodes: 3,
            load_ms: 10_000,
            healed_ms: 3_000,
            calm_ms: 800,
            damages: false,
            changes_members: false,
            is_aimed: false,
            has_sessions: false,
            has_policies: false,
            has_operations: false,
            has_undo: false,
            has_streams: false,
            has_locks: false,
            has_rates: false,
            versions: Versions::First,
        }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    pub seed: u64,
    /// The history as it would stand in a file.
    pub events: Vec<Event>,
    pub report: Report,
    /// Over everything that happened.
    pub hash: u64,
    pub counts: Counts,
    /// What was done how often.
    pub harms: BTreeMap<&'static str, u64>,
    /// The story in short: harm, starts, leaders, violations.
    pub lines: Vec<String>,
}

/// What happened how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub events: u64,
    /// Processes that died, and those of them whose disk forgot.
    pub crashes: u64,
    pub power_cuts: u64,
    pub checkpoints: u64,
    /// Turns of writers and flushers that found the disk full.
    pub refused: u64,
    /// Snapshots that took a group's place on a node.
    pub snapshots: u64,
    /// Queues that were declared, used and deleted.
    pub visits: u64,
    /// Purges and transactions that were answered.
    pub purges: u64,
    pub transactions: u64,
    /// Messages that an operator looked at.
    pub looks: u64,
    /// Over AMQP.
    pub amqp: AmqpCounts,
    /// Changes of policies, users, rights, limits and vhosts, and what sessions were tried for at the end.
    pub administered: u64,
    pub examined: u64,
    /// Pauses that began or ended, and dead letters that were sent on.
    pub pauses: u64,
    pub retried: u64,
    /// Messages that were purged, and came back.
    pub brought_back: u64,
    pub streams: StreamCounts,
    pub locks: LockCounts,
    pub rated: RatedCounts,
    /// How often a cluster agreed on a newer version.
    pub raised: u64,
    /// How often a node found that it is too old, after somebody had raised the version by force.
    pub outdated: u64,
    /// Terms of groups with a leader.
    pub elections: u64,
    /// The most that one replica compared what it did with others.
    pub comparisons: u64,
    /// Deliveries and settles that were watched while nothing but single nodes failed.
    pub watched: u64,
    /// Leaders whose time was compared with the last one's.
    pub times: u64,
    /// Messages between nodes, and those lost with their connection.
    pub messages: u64,
    pub lost: u64,
    pub breaks: u64,
    /// Simulated milliseconds.
    pub ms: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.crashes += other.crashes;
        self.power_cuts += other.power_cuts;
        self.checkpoints += other.checkpoints;
        self.refused += other.refused;
        self.snapshots += other.snapshots;
        self.visits += other.visits;
        self.purges += other.purges;
        self.transactions += other.transactions;
        self.looks += other.looks;
        self.amqp += other.amqp;
        self.administered += other.administered;
        self.examined += other.examined;
        self.pauses += other.pauses;
        self.retried += other.retried;
        self.brought_back += other.brought_back;
        self.streams += other.streams;
        self.locks += other.locks;
        self.rated += other.rated;
        self.raised += other.raised;
        self.outdated += other.outdated;
        self.elections += other.elections;
        self.comparisons += other.comparisons;
        self.watched += other.watched;
        self.times += other.times;
        self.messages += other.messages;
        self.lost += other.lost;
        self.breaks += other.breaks;
        self.ms += other.ms;
    }
}

/// All nodes serve within this time after the first start, and after everything is healed.
const SERVES: Micros = 15_000_000;
/// After the load every queue is empty within this time.
const DRAINS: Micros = 30_000_000;
/// All replicas have applied the same within this time.
const AGREES: Micros = 10_000_000;
/// What is settled so long after a fault, or so long before one, must stay settled.
const HORIZON: Nanos = 2_000_000_000;
const LOGGED: Nanos = 500_000_000;
/// A leader without a majority has noticed by then.
const LATE: Nanos = 1_500_000_000;
/// Long after the last settle: nothing may come back.
const QUIET: Micros = 10_000_000;

/// Nodes that fail one after the other while nothing else is wrong.
const FAILURES: u32 = 2;

/// A node that starts has reached the others after this long.
const SOON_CONNECTED: Micros = 400_000;

/// A new leader waits for longer than this for what the others hold: less than `cluster::limits::JOIN_WAIT_MS`.
const SOON_REACHED: Micros = 700_000;

/// Runs one seed.
pub fn run(seed: u64, size: Size) -> Outcome {
    let mut world = World::new(seed, size);
    world.nemesis.has_damage |= size.damages;
    world.nemesis.is_aimed = size.is_aimed;
    live(&mut world, size);
    let World { agenda, network, watch, .. } = &world;
    let counts = Counts {
        events: agenda.count(),
        crashes: world.crashes,
        power_cuts: world.power_cuts,
        checkpoints: world.checkpoints(),
        refused: world.refused(),
        snapshots: world.snapshots,
        visits: world.clients.visits(),
        purges: world.clients.changes().0,
        transactions: world.clients.changes().1,
        looks: world.clients.looks(),
        amqp: world.clients.amqp_counts(),
        administered: world.clients.administered().0,
        examined: world.clients.administered().1,
        brought_back: world.clients.brought_back(),
        pauses: world.clients.operations().0,
        retried: world.clients.operations().1,
        streams: world.clients.stream_counts(),
        locks: world.clients.lock_counts(),
        rated: world.clients.rated_counts(),
        raised: world.raised,
        outdated: world.outdated,
        elections: watch.elections(),
        comparisons: watch.comparisons(),
        watched: watch.holds.judged,
        times: watch.times.judged,
        messages: network.sent,
        lost: network.lost,
        breaks: network.breaks,
        ms: agenda.now() / 1000,
    };
    let World { diary, agenda, nemesis, lines, .. } = world;
    let rules = Rules {
        confirmed_min: 50,
        faults_min: 1,
        settle_horizon: HORIZON,
        settle_logged: LOGGED,
        late: LATE,
        stuck_after: (SERVES + size.healed_ms * 1000 + DRAINS) * 1000,
        order_of_flagged: false,
        // Connections end while much is on its way to their consumers. What is brought back comes behind what came since.
        unordered: match size.has_undo {
            true => &[clients::WIRE_SHARED, clients::waverer::SHARED],
            false => &[clients::WIRE_SHARED],
        },
        ..Rules::default()
    };
    let report = check(&History::of(diary.events.clone()), &rules);
    let harms = nemesis.done;
    Outcome { seed, events: diary.events, report, hash: agenda.hash(), counts, harms, lines }
}

/// From the first start to the last look.
fn live(world: &mut World, size: Size) {
    if !wait(world, SERVES, "the nodes do not serve", World::is_whole) {
        return;
    }
    world.diary.saw("world", What::Load { on: true });
    world.agenda.after(500_000, Occasion::Harm);
    if world.changes_members {
        world.agenda.after(300_000, Occasion::Operator);
    }
    let end = world.agenda.now() + size.load_ms * 1000;
    world.run_until(end, |_| false);
    world.heal();
    world.clients.stay();
    if !wait(world, SERVES, "the nodes do not serve after the heal", World::is_whole) {
        return;
    }
    if !wait(world, SERVES, "the groups do not get the voters that they should", World::is_settled)
    {
        return;
    }
    if size.has_policies && !administration::settle(world) {
        return;
    }
    let end = world.agenda.now() + size.healed_ms * 1000;
    world.run_until(end, |_| false);
    if !wait(world, SERVES, "not every publisher is served after the heal", World::is_served) {
        return world.tell_unserved();
    }
    if size.nodes >= 3 && !fail_cleanly(world, size.calm_ms * 1000) {
        return;
    }
    world.diary.saw("world", What::Load { on: false });
    drain(world);
    if size.has_policies {
        let node = world.any_member();
        administration::examine(world, &[node]);
    }
    let end = world.agenda.now() + QUIET;
    world.run_until(end, |_| false);
    for node in 0..world.nodes.len() {
        world.crash(node, Death::PowerCut);
    }
    if wait(world, SERVES, "the nodes do not serve after a power cut", World::is_whole)
        && wait(world, SERVES, "the groups do not keep their voters", World::is_settled)
        && wait(world, SERVES, "the version is not raised", World::is_raised)
    {
        // Now the version may be agreed on that knows them.
        if size.has_policies && !administration::settle(world) {
            return;
        }
        drain(world);
        if size.has_policies {
            let nodes: Vec<usize> = world.members().collect();
            administration::examine(world, &nodes);
        }
    }
}

/// One node fails after the other, under load, then connections between nodes do: what clients have at the other
/// nodes does not suffer.
fn fail_cleanly(world: &mut World, calm: Micros) -> bool {
    world.watch.holds.begin();
    for _ in 0..FAILURES {
        let end = world.agenda.now() + calm;
        world.run_until(end, |_| false);
        let node = world.any_member();
        let death = if world.chance.percent(50) { Death::PowerCut } else { Death::Kill };
        world.crash(node, death);
        if !wait(world, SERVES, "the nodes do not serve after one failed", World::is_whole) {
            return false;
        }
    }
    // A connection that breaks takes nothing from anybody who lives.
    for _ in 0..FAILURES {
        let end = world.agenda.now() + calm;
        world.run_until(end, |_| false);
        let node = world.any_member();
        world.break_connection(node);
    }
    let end = world.agenda.now() + calm;
    world.run_until(end, |_| false);
    if world.nemesis.is_aimed && world.members().count() >= 5 {
        return (0..FAILURES).all(|_| fail_twice(world, calm));
    }
    true
}

/// A node starts again, one of its links is cut, and a third node dies. If the first leads now, it must not give away
/// what sessions at the other end of that link hold.
fn fail_twice(world: &mut World, calm: Micros) -> bool {
    let [node, peer, third] = world.three_members();
    world.crash(node, Death::Kill);
    let end = world.agenda.now() + SERVES;
    world.run_until(end, |world| world.nodes[node].life.is_some());
    world.cut_link(node, peer);
    // The others elect at once, and the node is one of those who may be elected as soon as it reaches them.
    let end = world.agenda.now() + SOON_CONNECTED;
    world.run_until(end, |_| false);
    world.crash(third, Death::Kill);
    let end = world.agenda.now() + SOON_REACHED;
    world.run_until(end, |_| false);
    world.mend_link(node, peer);
    if !wait(world, SERVES, "the nodes do not serve after two failed", World::is_whole) {
        return false;
    }
    let end = world.agenda.now() + calm;
    world.run_until(end, |_| false);
    true
}

/// Everything is answered, every queue is empty, and all replicas are the same.
fn drain(world: &mut World) {
    world.clients.drain();
    let end = world.agenda.now() + DRAINS;
    if !world.run_until(end, |world| world.clients.is_drained()) {
        world.complain("the queues do not drain");
    }
    world.clients.drained(world.agenda.now(), &mut world.diary);
    let end = world.agenda.now() + AGREES;
    while !world.agree() {
        let soon = world.agenda.now() + 100_000;
        world.run_until(soon, |_| false);
        if world.agenda.now() > end {
            return world.complain("the replicas do not come to the same index");
        }
    }
    // The last change may be on its way still.
    while let Some(text) = world.differs_from_catalog() {
        let soon = world.agenda.now() + 100_000;
        world.run_until(soon, |_| false);
        if world.agenda.now() > end {
            return world.complain(&text);
        }
    }
    // The log is as short again as it should be, and says so.
    let end = world.agenda.now() + AGREES;
    if !world.run_until(end, |world| world.short().is_none()) {
        let node = world.short().map_or(0, |node| node + 1);
        world.complain(&format!("node {node} has room, and still says that its disk is full"));
    }
    // Nothing is under way any more: a leader that knows of less credit than a consumer gave would stop
    // giving it anything one day.
    let end = world.agenda.now() + AGREES;
    while let Some(text) = world.differs() {
        let soon = world.agenda.now() + 100_000;
        world.run_until(soon, |_| false);
        if world.agenda.now() > end {
            return world.complain(&text);
        }
    }
}

fn wait(world: &mut World, time: Micros, text: &str, enough: fn(&World) -> bool) -> bool {
    let end = world.agenda.now() + time;
    let comes = world.run_until(end, enough);
    if !comes {
        world.complain(text);
    }
    comes
}

/// Time, and what was seen when.
#[derive(Debug, Default)]
struct Diary {
    now: Micros,
    events: Vec<Event>,
    /// Publishers that were told that a message is safe, or refused, since the harm was over.
    served: BTreeSet<String>,
    /// Queues whose dead letters a policy may have sent somewhere.
    lettered: BTreeSet<String>,
}

impl Diary {
    /// Every event has a time of its own.
    fn nanos(&self) -> Nanos {
        let last = self.events.last().map_or(0, |event| event.t);
        (self.now * 1000).max(last + 1)
    }

    /// Whether a policy may have sent dead letters of the queue somewhere.
    fn has_letters(&self, queue: &str) -> bool {
        self.lettered.contains(queue)
    }

    fn saw(&mut self, p: &str, what: What) {
        let t = self.nanos();
        if let What::Policy { q, dead: Some(_), .. } = &what {
            self.lettered.extend(q.iter().cloned());
        }
        if matches!(what, What::Pub { k: Stage::Ok | Stage::Fail, .. }) && !self.served.contains(p)
        {
            self.served.insert(p.to_owned());
        }
        self.events.push(Event { t, p: p.to_owned(), what });
    }
}

/// A bit for each node.
fn mask(nodes: &[NodeId]) -> u64 {
    nodes.iter().fold(0, |mask, node| mask | 1 << (node.0 - 1))
}

/// How a shard stands with its groups.
fn states(shard: &Shard, with_digests: bool) -> Vec<Status> {
    // The watcher leaves this bug to the product: its replicas have to find it themselves.
    let with_digests = with_digests && !::planted::is("replica_settles_less");
    let reports = shard.report_groups(with_digests);
    reports.iter().map(|report| state(shard.node(), report, with_digests)).collect()
}

fn state(me: NodeId, report: &GroupReport, with_digests: bool) -> Status {
    Status {
        group: report.group,
        term: report.term,
        is_leader: report.leader == Some(me),
        commit: report.committed,
        applied: report.applied,
        voters: mask(if report.outgoing.is_empty() { &report.voters } else { &report.outgoing }),
        digest: with_digests.then_some(report.digest),
    }
}
