//! A node: its disk, which outlives everything, and its process, which does not.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use broker::population::Population;
use cluster::exchange::{Input, Now};
use cluster::limits::Sizes;
use cluster::peer::message::Message;
use cluster::recovery::{self, Genesis, Opened};
use cluster::shard::{ForShard, GroupReport, Member, Shard};
use cluster::{Counted, Request};
use machine::{
    Applied, Catalog, CatalogCommand, Command, EntryReader, GroupId, NodeId, NodeInfo, SessionId,
    Version,
};
use wal::sim::SimDisk;
use wal::{Boot, Config, Error, Identity, Wal};

use super::agenda::Micros;
use super::states;
use super::store::Store;

/// Data groups.
const GROUPS: u32 = 3;
/// Small log files, so that they are recycled all the time.
const FILE_BYTES: u64 = 48 << 10;
/// What is held back for a full disk: a quarter, which is one log file, for the log alone.
pub(super) const BALLAST_BYTES: u64 = 4 * FILE_BYTES;
/// The wall clock when the simulation begins.
const WALL_MS: u64 = 1_700_000_000_000;
/// The bits of a session's number that say which node it lives on.
const NODE_SHIFT: u32 = 48;

/// A node's place in the cluster.
///
/// ```text
///   Absent ──joins──> Member ──its disk is lost──> Lost ──taken out──> Removed
///                        └──────────────taken out──────────────────────^
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It may join one day.
    Absent,
    Member,
    /// Its disk is, and it with it, until it is taken out.
    Lost,
    /// It was taken out, and its process stopped.
    Removed,
}

pub(super) struct Node {
    pub(super) place: Place,
    pub(super) id: NodeId,
    pub(super) disk: SimDisk,
    pub(super) shards: usize,
    /// Decides when it runs for election.
    seed: u64,
    /// The newest version that its program reads.
    pub(super) speaks: Version,
    /// It found out that it reads too little, and comes back with a newer program.
    pub(super) is_outdated: bool,
    pub(super) life: Option<Life>,
    /// Counts starts.
    pub(super) lives: u64,
    pub(super) is_paused: bool,
    /// How wrong its clock on the wall is, in milliseconds.
    pub(super) wall_error_ms: i64,
    /// Whatever is given free on its disk is gone at once.
    pub(super) is_squeezed: bool,
    /// A sync takes from and to so long.
    pub(super) sync: (Micros, Micros),
    /// Between two turns of a shard's thread lies up to this.
    pub(super) busy: Micros,
}

/// The process.
pub(super) struct Life {
    pub(super) shards: Vec<Shard>,
    pub(super) inboxes: Vec<Vec<Input>>,
    pub(super) store: Store,
    /// What its sessions route by.
    pub(super) catalog: Catalog,
    /// What limits of users and vhosts are held against.
    pub(super) population: RefCell<Population>,
    /// The nodes that its groups count on.
    pub(super) counted: Counted,
    /// When each shard's thread takes its next turn.
    pub(super) turns: Vec<Micros>,
    /// Before which it does not.
    pub(super) busy_until: Vec<Micros>,
    /// Shards whose groups agree with the catalog.
    pub(super) reconciled: usize,
    started: Micros,
    /// The clock on the wall at its start: it looks at it only then.
    wall_ms: u64,
    sessions: u64,
}

/// What was found on the disk at a start.
pub(super) struct Found {
    pub(super) life: Life,
    pub(super) logs: Logs,
}

/// By group.
pub(super) type Logs = BTreeMap<u32, Log>;

/// A group's log as it was found.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The index of the checkpoint.
    pub(super) checkpoint: u64,
    /// The entries above it: index, term, data.
    pub(super) entries: Vec<(u64, u64, bytes::Bytes)>,
    /// Version, term, vote and commit.
    pub(super) hard_state: Option<bytes::Bytes>,
}

impl Node {
    pub(super) fn new(
        id: NodeId,
        disk: SimDisk,
        shards: usize,
        seed: u64,
        sync: (Micros, Micros),
    ) -> Self {
        Self {
            place: Place::Member,
            id,
            disk,
            shards,
            seed,
            speaks: Version::NEWEST,
            is_outdated: false,
            life: None,
            lives: 0,
            is_paused: false,
            wall_error_ms: 0,
            is_squeezed: false,
            sync,
            busy: 0,
        }
    }

    /// Recovers what the disk has.
    pub(super) fn recover(&mut self, members: &[NodeId], now: Micros) -> Result<Found, Error> {
        self.lives += 1;
        let fresh = Identity { cluster: 7, node: self.id.0, incarnation: 1 };
        let mut config = Config::new(Identity::load(&self.disk)?.unwrap_or(fresh));
        config.file_bytes = FILE_BYTES;
        config.ballast_bytes = BALLAST_BYTES;
        let (wal, recovered) = Wal::open(self.disk.clone(), config)?;
        let genesis = genesis(members);
        let opened = Opened::new(wal, recovered, &genesis)?;
        let logs = logs(&opened)?;
        let boot = Boot::next(&self.disk)?;
        let me = Member { node: self.id, boot, seed: self.seed, speaks: self.speaks };
        let recovery::Node { wal, keeper, segments, groups } = opened.recover(me, &genesis)?;
        let catalog = groups.catalog()?;
        let shards = groups.into_shards(me, self.shards, Sizes::of(FILE_BYTES));
        let life = Life {
            inboxes: shards.iter().map(|_| Vec::new()).collect(),
            turns: vec![Micros::MAX; shards.len()],
            busy_until: vec![0; shards.len()],
            counted: Counted::new(shards.len()),
            shards,
            store: Store::new(wal, keeper, segments)?,
            catalog,
            population: RefCell::default(),
            reconciled: 0,
            started: now,
            wall_ms: (WALL_MS + now / 1000).saturating_add_signed(self.wall_error_ms),
            sessions: 0,
        };
        Ok(Found { life, logs })
    }

    /// The groups that it leads, or takes itself to lead.
    pub(super) fn led(&self) -> Vec<GroupId> {
        let shards = self.life.iter().flat_map(|life| &life.shards);
        let reports = shards.flat_map(|shard| shard.report_groups(false));
        reports.filter(|it| it.leader == Some(self.id)).map(|it| it.group).collect()
    }

    /// The time as this node's process sees it.
    pub(super) fn now(&self, now: Micros) -> Now {
        let (started, wall_ms) =
            self.life.as_ref().map_or((0, 0), |life| (life.started, life.wall_ms));
        let mono_ms = (now - started) / 1000;
        Now { mono_ms, wall_ms: wall_ms + mono_ms }
    }

    /// Whether clients can connect.
    pub(super) fn is_serving(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.reconciled >= life.shards.len())
    }

    /// Whether every group that the catalog wants here is here, and has the voters that it wants and no others: while a
    /// change is not over, the old ones are needed as well.
    pub(super) fn is_placed(&self) -> bool {
        let Some(life) = &self.life else { return false };
        let reports: Vec<_> =
            life.shards.iter().flat_map(|shard| shard.report_groups(false)).collect();
        (0..=life.catalog.group_count()).map(GroupId).all(|group| {
            let mut wished = life.catalog.voters(group).to_vec();
            wished.sort_unstable();
            let found = reports.iter().find(|report| report.group == group);
            let is_right = |it: &GroupReport| {
                it.voters == wished && it.outgoing.is_empty() && it.learners.is_empty()
            };
            !wished.contains(&self.id) || found.is_some_and(is_right)
        })
    }

    /// Whether the log's share of what is held back for a full disk is there, and gives room if it is given up.
    pub(super) fn has_ballast(&self) -> bool {
        let held = self.disk.contents("ballast").map_or(0, |ballast| ballast.len() as u64);
        !self.is_squeezed && held >= FILE_BYTES
    }

    /// Whether it says that its disk is full.
    pub(super) fn is_short(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.store.is_short())
    }

    /// Panics if a shard cannot say where a message is that its queues have, or keeps what is dead.
    pub(super) fn check(&self, nth: u64) {
        if let Some(life) = &self.life {
            let shard = &life.shards[nth as usize % life.shards.len()];
            shard.check_places();
            shard.check();
        }
    }

    /// The nodes that keep a group, counted from 0: as the replica here knows, or as the catalog wishes.
    pub(super) fn replicas_of(&self, group: GroupId) -> Vec<usize> {
        let Some(life) = &self.life else { return Vec::new() };
        let reports = life.shards[Shard::of(group, life.shards.len())].report_groups(false);
        let report = reports.into_iter().find(|report| report.group == group);
        let voters =
            report.map_or_else(|| life.catalog.voters(group).to_vec(), |report| report.voters);
        let nth = |voter: &NodeId| usize::try_from(voter.0 - 1).expect("a handful of nodes");
        voters.iter().map(nth).collect()
    }

    /// How it sees the others and its groups, and which groups are to have other voters, for the story.
    pub(super) fn stands(&self) -> String {
        let Some(life) = &self.life else { return " down".to_owned() };
        let up = life.shards.iter().map(|shard| numbers(&shard.report().up));
        let mut text = format!(
            " {} of {} shards serve; up {:?}, of {:?};",
            life.reconciled,
            self.shards,
            up.collect::<Vec<_>>(),
            numbers(&life.catalog.nodes().map(|info| info.node).collect::<Vec<_>>()),
        );
        for state in life.shards.iter().flat_map(|shard| states(shard, false)) {
            text += &format!(" {state}");
        }
        let reports: Vec<_> =
            life.shards.iter().flat_map(|shard| shard.report_groups(false)).collect();
        for group in (0..=life.catalog.group_count()).map(GroupId) {
            let wished = numbers(life.catalog.voters(group));
            let found = reports.iter().find(|report| report.group == group);
            let (voters, learners) = found
                .map(|found| (numbers(&found.voters), numbers(&found.learners)))
                .unwrap_or_default();
            if wished.iter().collect::<BTreeSet<_>>() != voters.iter().collect() {
                text += &format!(" group {} is to have {wished:?}", group.0);
            }
            if !learners.is_empty() {
                text += &format!(" group {} has learners {learners:?}", group.0);
            }
            if let Some(found) = found.filter(|found| !found.outgoing.is_empty()) {
                let outgoing = numbers(&found.outgoing);
                text += &format!(" group {} still needs most of {outgoing:?}", group.0);
            }
        }
        text
    }

    pub(super) fn open_session(&mut self) -> Option<SessionId> {
        let node = self.id.0;
        let life = self.life.as_mut()?;
        life.sessions += 1;
        Some(SessionId(node << NODE_SHIFT | life.sessions))
    }
}

fn numbers(nodes: &[NodeId]) -> Vec<u64> {
    nodes.iter().map(|node| node.0).collect()
}

/// The node that `session` lives on, counted from 0.
pub(super) fn home(session: SessionId) -> usize {
    usize::try_from(session.0 >> NODE_SHIFT).expect("16 bits").saturating_sub(1)
}

impl Life {
    /// When a shard wants its next turn if nothing comes before, on the simulator's clock.
    pub(super) fn deadline(&self, shard: usize) -> Micros {
        self.shards[shard].deadline_ms().saturating_mul(1000).saturating_add(self.started)
    }

    /// Hands requests over as the node's handle does: each to its shard, goodbyes to all.
    pub(super) fn submit(&mut self, session: SessionId, requests: Vec<Request>) {
        let parts = Shard::divide(session, requests, self.shards.len());
        for (inbox, ForShard { requests, goodbye }) in self.inboxes.iter_mut().zip(parts) {
            inbox.extend(requests.map(|(requests, _)| requests));
            inbox.extend(goodbye);
        }
    }

    /// The node's dead-letter worker is there.
    pub(super) fn open_dead_letter_worker(&mut self) {
        self.inboxes.iter_mut().for_each(|inbox| inbox.push(Input::DeadLetterWorkerOpened));
    }

    /// The session's task is gone without a word.
    pub(super) fn abandon(&mut self, session: SessionId) {
        for inbox in &mut self.inboxes {
            inbox.push(Input::SessionGone { session });
        }
    }

    /// A connection came up or went.
    pub(super) fn tell(&mut self, node: NodeId, is_up: bool, speaks: Version) {
        for inbox in &mut self.inboxes {
            inbox.push(match is_up {
                true => Input::PeerUp { node, speaks },
                false => Input::PeerDown { node },
            });
        }
    }

    /// What one read from a peer's connection brought, each message to its group's shard.
    pub(super) fn hear(&mut self, from: NodeId, messages: Vec<Message>) {
        let count = self.shards.len();
        let mut parts: Vec<Vec<Message>> = (0..count).map(|_| Vec::new()).collect();
        for message in messages {
            parts[Shard::of(message.group(), count)].push(message);
        }
        for (inbox, messages) in self.inboxes.iter_mut().zip(parts) {
            if !messages.is_empty() {
                inbox.push(Input::Peers { from, messages });
            }
        }
    }

    /// Whether its replica of the group is in no later term.
    pub(super) fn knows_no_later(&self, group: GroupId, term: u64) -> bool {
        let reports = self.shards.iter().flat_map(|shard| shard.report_groups(false));
        reports.filter(|report| report.group == group).any(|report| report.term <= term)
    }

    /// Something for a group's shard.
    pub(super) fn tell_group(&mut self, group: GroupId, input: Input) {
        self.inboxes[Shard::of(group, self.shards.len())].push(input);
    }

    /// The version of a command in this entry that is newer than what the cluster has agreed on before it.
    pub(super) fn too_early(&self, entry: &[u8]) -> Option<Version> {
        let mut agreed = self.catalog.agreed();
        for (_, command) in EntryReader::new(entry).into_iter().flatten().flatten() {
            let Command::Catalog(command) = command else { continue };
            if let CatalogCommand::RaiseVersion { to } = *command {
                agreed = agreed.max(to);
            } else if command.since() > agreed {
                return Some(command.since());
            }
        }
        None
    }

    /// Sessions route by this entry from now on.
    pub(super) fn route_by(&mut self, at: Applied, entry: &[u8]) {
        let commands = EntryReader::new(entry).expect("the shard has just applied it");
        let mut is_skipped = false;
        for command in commands {
            match command.expect("the shard has applied it").1 {
                // What comes again is not done again.
                Command::Numbered { producer, seq } => {
                    is_skipped = !self.catalog.begin_numbered(producer, seq);
                }
                Command::Catalog(command) if !is_skipped => {
                    self.catalog.apply(at, *command, &mut Vec::new());
                }
                Command::Catalog(_)
                | Command::Enqueue(_)
                | Command::Settle { .. }
                | Command::CreateQueue { .. }
                | Command::DropQueue { .. }
                | Command::Cancel { .. }
                | Command::MarkDelivered { .. }
                | Command::KeepMarks { .. }
                | Command::Lock(_)
                | Command::SetSettings { .. }
                | Command::Withhold { .. }
                | Command::KeepChain => {}
            }
        }
    }
}

fn groups_per_node(nodes: usize) -> u32 {
    (GROUPS / nodes as u32).max(1)
}

/// Where the others are told to find a node.
pub(super) fn address(node: NodeId) -> String {
    format!("node-{}:7000", node.0)
}

/// How every cluster of these nodes begins.
fn genesis(members: &[NodeId]) -> Genesis {
    let info = |node: &NodeId| NodeInfo { node: *node, address: address(*node), incarnation: 1 };
    let groups_per_node = groups_per_node(members.len());
    Genesis { nodes: members.iter().map(info).collect(), groups_per_node }
}

fn logs(opened: &Opened<SimDisk>) -> Result<Logs, Error> {
    let reader = opened.reader();
    let mut logs = Logs::new();
    for (group, found) in &opened.recovered().groups {
        let mut entries = Vec::new();
        for entry in &found.entries {
            entries.push((entry.index, entry.term, reader.read(entry.place)?));
        }
        let checkpoint = found.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.index);
        let hard_state = found.hard_state.clone();
        logs.insert(*group, Log { checkpoint, entries, hard_state });
    }
    Ok(logs)
}
