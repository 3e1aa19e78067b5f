//! A shard: the core that owns some of the node's groups.
//!
//! It is told the time, takes what happened, and says what to do: append, fetch, send, answer. One
//! step drains everything that waited, and everything that its groups want written in that step is
//! one append. It never waits and never asks.
//!
//! For every group it plays up to two parts. As the *producer* it gathers what its own sessions append
//! into numbered batches and keeps track of what they hold, whoever leads. As the *leader* it takes
//! numbered batches and questions of all nodes, its own among them.

mod answers;
mod appends;
mod catalog;
mod clock;
mod cuts;
mod digests;
mod leading;
mod lending;
mod local;
mod members;
mod outbound;
mod peeks;
mod peers;
mod reach;
mod report;
mod requests;
mod snapshots;
mod tally;
mod version;
mod withholding;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use machine::{Catalog, CatalogCommand, GroupId, NodeId, ProducerId, QueueId, SessionId, Version};
use wal::{CommitBatch, Place};

pub use report::{Elsewhere, GroupReport, Report};
pub use requests::ForShard;
pub use tally::{Behind, LedQueue, Piece, StreamPlace, WantedLine, WantedPlace};

use crate::bodies::{FetchPart, Source};
use crate::exchange::{Fetch, Input, Located, Now, Output, WantedQueue};
use crate::group::Group;
use crate::group::catalog::CatalogGroup;
use crate::group::queues::QueueGroup;
use crate::limits::Sizes;
use crate::queues::{GroupEffect, Queues};
use crate::replica::Replica;
use crate::request::{Answer, Ticket};
use crate::waiter::Waiter;
use appends::Appends;
use clock::Clock;
use cuts::Cuts;
use local::Local;
use members::Members;
use outbound::Outbound;
use peers::Peers;
use reach::Reach;

/// Who a shard's node is.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub node: NodeId,
    /// Grows with every start of the node.
    pub boot: u64,
    /// Decides what elsewhere is left to chance.
    pub seed: u64,
    /// The newest version that it reads and writes.
    pub speaks: Version,
}

/// Some of a node's groups.
pub struct Shard {
    me: Member,
    number: usize,
    shards: usize,
    catalog: Option<CatalogGroup>,
    groups: BTreeMap<GroupId, QueueGroup>,
    /// Queues of this node's memory only; in shard 0.
    local: Option<Local>,
    /// What this node's sessions have in each group, wherever it is led.
    out: BTreeMap<GroupId, Outbound>,
    peers: Peers,
    reach: Reach,
    members: Members,
    appends: Appends,
    clock: Clock,
    group_effects: Vec<GroupEffect>,
    own: VecDeque<Input>,
    /// What shard 0 does for all shards.
    node_wide: NodeWide,
    /// Looks at messages that are being read.
    peeks: usize,
    cuts: Cuts,
    /// The node is stopping: settles are logged at once, and leadership moves away until this time at the latest.
    closing: Option<u64>,
    sizes: Sizes,
    /// A dead-letter worker is attached.
    has_dead_letter_worker: bool,
    /// A group confirms nothing while its replicas differ.
    stops_at_differences: bool,
    /// The log has what this program cannot read: nothing is done any more.
    is_outdated: bool,
}

/// What is to be written by one append.
#[derive(Default)]
struct Gathered {
    batch: CommitBatch,
    written: Vec<(GroupId, u64)>,
    bytes: usize,
}

/// What shard 0 does for all shards of its node.
#[derive(Default)]
struct NodeWide {
    /// Sessions that some shards have ended and others not yet.
    ending: BTreeMap<(SessionId, Option<Ticket>), Ending>,
    /// Queues of no use any more that this node's catalog has not heard of yet.
    unheard: BTreeSet<QueueId>,
    /// When the cluster's version was to be raised last, in `Now::mono_ms`.
    raised_ms: Option<u64>,
}

/// A session on its way out.
#[derive(Default)]
struct Ending {
    shards: usize,
    unused: Vec<QueueId>,
}

impl Shard {
    /// Shard `number` of `shards` on a node, with the groups recovered for it.
    pub fn new(
        me: Member,
        number: usize,
        shards: usize,
        catalog: Option<CatalogGroup>,
        groups: BTreeMap<GroupId, QueueGroup>,
        sizes: Sizes,
    ) -> Self {
        let mut shard = Self {
            me,
            number,
            shards,
            catalog,
            groups,
            local: (number == 0).then(|| Local::new(me.node)),
            out: BTreeMap::new(),
            peers: Peers::default(),
            reach: Reach::default(),
            members: Members::new(shards),
            appends: Appends::default(),
            clock: Clock::default(),
            has_dead_letter_worker: false,
            stops_at_differences: false,
            is_outdated: false,
            group_effects: Vec::new(),
            own: VecDeque::new(),
            node_wide: NodeWide::default(),
            peeks: 0,
            cuts: Cuts::default(),
            closing: None,
            sizes,
        };
        for group in shard.with_replicas() {
            shard.outbound(group);
            let replica = shard.replica(group).expect("it was just listed");
            replica.bound_messages(sizes.append_bytes);
            // The only voter need not wait for a timeout.
            if replica.log().is_alone() && replica.is_voter() {
                replica.campaign();
            }
        }
        shard
    }

    /// The shard that serves `group`.
    pub fn of(group: GroupId, shards: usize) -> usize {
        if group.is_local() { 0 } else { group.0 as usize % shards }
    }

    /// The node that a session is connected to.
    pub fn node_of(session: SessionId) -> Option<NodeId> {
        let node = session.0 >> SESSION_BITS;
        (node != 0).then_some(NodeId(node))
    }

    /// The first session of a node.
    pub fn first_session(node: NodeId) -> SessionId {
        // The one before is the node's dead-letter worker.
        SessionId((node.0 << SESSION_BITS) + 1)
    }

    /// The session of a node that is given what leaves the queues that the node leads.
    pub fn dead_letter_worker(node: NodeId) -> SessionId {
        SessionId(node.0 << SESSION_BITS)
    }

    /// Proposes that this node's earlier life is over; then the groups are held against the catalog.
    pub fn start(&mut self, now: Now, outputs: &mut Vec<Output>) {
        self.set_now(now);
        if self.number == 0 {
            let command = CatalogCommand::NodeStarted { node: self.me.node };
            self.change(now, &command, Waiter::Nobody, outputs);
        }
        self.finish(now, outputs);
    }

    /// The node stops: what was gathered is not to wait any longer, and others are to lead. To be
    /// stepped on until [`Shard::is_idle`].
    pub fn close(&mut self, now: Now) {
        if self.closing.is_none() {
            self.closing = Some(now.mono_ms + CLOSING_MS);
            self.clock.tick_now(now);
        }
    }

    /// Whether everything taken is synced and answered, as far as that is possible.
    pub fn is_idle(&self, now: Now) -> bool {
        let is_over = self.closing.is_some_and(|until| until <= now.mono_ms);
        let is_led_elsewhere = |replica: &Replica| replica.log().is_alone() || !replica.is_leader();
        self.appends.is_empty()
            && self.own.is_empty()
            && self.out.values().all(Outbound::is_idle)
            && self.groups.values().all(QueueGroup::is_idle)
            && (is_over || self.all_groups().all(|group| is_led_elsewhere(&group.replica)))
            || (is_over && self.appends.is_empty() && !self.is_alone())
    }

    /// Takes everything in `inputs`, in order.
    pub fn step(&mut self, now: Now, inputs: &mut Vec<Input>, outputs: &mut Vec<Output>) {
        if self.is_outdated {
            inputs.clear();
            return;
        }
        if self.clock.begin_step(now) {
            self.was_away(now, outputs);
        }
        self.set_now(now);
        for input in inputs.drain(..) {
            self.take(now, input, outputs);
        }
        while let Some(input) = self.own.pop_front() {
            self.take(now, input, outputs);
        }
        if self.clock.ticks_at(now) {
            self.tick(now, outputs);
        }
        self.campaign_where_due(now);
        self.finish(now, outputs);
    }

    fn set_now(&mut self, now: Now) {
        self.clock.now = now;
        self.groups.values_mut().for_each(|group| group.set_now(now));
        if let Some(local) = &mut self.local {
            local.set_now(now);
        }
    }

    /// When the shard wants to be stepped at the latest, in `Now::mono_ms`.
    pub fn deadline_ms(&self) -> u64 {
        let settles = self.groups.values().filter_map(QueueGroup::settle_deadline_ms);
        let dispatches = self.groups.values().filter_map(QueueGroup::dispatch_deadline_ms);
        let campaigns = self.peers.next_campaign_ms();
        let times = self.groups.values().filter_map(|group| group.time_deadline_ms(self.clock.now));
        let times =
            times.chain(self.local.as_ref().and_then(|it| it.time_deadline_ms(self.clock.now)));
        let locks = self.groups.values().filter_map(QueueGroup::lock_deadline_ms);
        let due = settles.chain(dispatches).chain(campaigns).chain(times).chain(locks).min();
        let due = due.unwrap_or(u64::MAX);
        due.min(self.clock.next_tick_ms())
    }

    /// Bytes that are not on the disks of a majority, as far as this node waits for that.
    pub fn unsynced_bytes(&self) -> usize {
        let away = self.out.values().map(Outbound::bytes_away).sum::<usize>();
        // What this node's disk has, others' may not have yet: for the most part these are the same.
        let here = self.out.values().map(Outbound::bytes_here).sum::<usize>();
        self.appends.bytes().max(here) + away
    }

    /// The catalog, if this shard has it.
    pub fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_ref().map(CatalogGroup::catalog)
    }

    /// The groups of this shard.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &QueueGroup)> {
        self.groups.iter().map(|(&group, queues)| (group, queues))
    }

    /// Panics if something is not as it must be between steps. For tests: it looks at everything.
    pub fn check(&self) {
        let logged = self.groups.values().map(|group| &group.queues);
        let local = self.local.as_ref().map(|local| &local.queues);
        logged.chain(local).for_each(Queues::check);
    }

    /// Panics if the bytes of a message that lives lie nowhere, on whichever replica. For tests.
    pub fn check_places(&self) {
        self.groups.values().for_each(|group| group.queues.check_places());
    }

    fn take(&mut self, now: Now, input: Input, outputs: &mut Vec<Output>) {
        match input {
            Input::Requests { session, requests } => {
                for request in requests {
                    self.request(now, session, request, outputs);
                }
            }
            Input::SessionGone { session } => {
                if session == Self::dead_letter_worker(self.me.node) {
                    self.has_dead_letter_worker = false;
                }
                self.end_session(session, None, outputs);
            }
            Input::DeadLetterWorkerOpened => self.open_dead_letter_worker(outputs),
            Input::Synced { number, places } => self.synced(number, places, outputs),
            Input::Fetched { group, queue, reader, runs } => {
                if let Some(found) = self.groups.get_mut(&group) {
                    found.queues.fetched((queue, reader), runs, &mut self.group_effects);
                }
                self.grant(group, outputs);
            }
            Input::Peeked { group, session, ticket, result } => {
                self.peeked(group, session, ticket, result, outputs);
            }
            Input::WantCheckpoint { group } => {
                if let Some(group) = self.group_mut(group) {
                    group.want_checkpoint();
                }
            }
            Input::Checkpointed { group, index, stored } => {
                if let Some(found) = self.groups.get_mut(&group) {
                    found.queues.checkpointed(index, &stored);
                }
                if let Some(group) = self.group_mut(group) {
                    group.checkpointed(index);
                }
            }
            Input::WantCut { group, number } => self.want_cut(group, number, outputs),
            Input::CheckpointFailed { group } => {
                if let Some(group) = self.group_mut(group) {
                    group.checkpoint_failed();
                }
            }
            Input::ReviewSegments { group, held } => {
                if let Some(found) = self.groups.get_mut(&group) {
                    found.review(&held);
                }
            }
            Input::CreateQueue { group, queue, settings, agreed, then } => {
                let wanted = WantedQueue { group, queue, settings, revision: 0 };
                let batch = catalog::creation(&wanted, agreed);
                self.create_queue(now, group, batch, then, outputs);
            }
            Input::ChangeQueue { wanted, then } => {
                let batch = catalog::change(&wanted);
                self.create_queue(now, wanted.group, batch, then, outputs);
            }
            Input::DropQueue { group, queue, then } => {
                self.drop_queue(now, group, queue, then, outputs);
            }
            Input::Counted { shard, voting } => self.members.counted.set(shard, voting),
            Input::DeleteUnused { queue, detached } => {
                self.unused(now, queue, detached, outputs);
            }
            Input::EndSession { session, ticket } => {
                self.end_session(session, Some(ticket), outputs);
            }
            Input::SessionEnded { session, ticket, unused } => {
                self.session_ended(now, session, ticket, unused, outputs);
            }
            Input::Reconcile { queues, next_queue, agreed } => {
                self.reconcile(now, &queues, next_queue, agreed, outputs);
            }
            Input::Membership { nodes, groups, agreed } => {
                self.place(now, &nodes, groups);
                self.members.agreed = agreed;
            }
            Input::PeerUp { node, speaks } => self.peer_up(now, node, speaks, outputs),
            Input::PeerDown { node } => self.peer_down(now, node, outputs),
            Input::Peers { from, messages } => {
                for message in messages {
                    self.peer(now, from, message, outputs);
                }
            }
            Input::EntriesRead { group, number, entries } => {
                if let Some(replica) = self.replica(group) {
                    replica.read(number, entries);
                }
            }
            // The receiver itself tells the leader's `raft` how far it is.
            Input::SnapshotSent { group, to, .. } => self.peers.end_snapshot(group, to),
            Input::SnapshotArrived { group, index, .. } => {
                self.snapshot_arrived(now, group, index, outputs);
            }
            Input::SnapshotInstalled { group, index, term, state, stored } => {
                self.snapshot_installed(group, (index, term), &state, &stored, outputs);
            }
            Input::TimePassed => {}
        }
    }

    /// So much more is gathered: once that is enough for an append, it is handed out.
    fn gathered(&mut self, now: Now, bytes: usize, outputs: &mut Vec<Output>) {
        if self.appends.gather(bytes) > self.sizes.append_bytes {
            self.finish_once(now, outputs);
        }
    }

    fn synced(&mut self, number: u64, places: Vec<Place>, outputs: &mut Vec<Output>) {
        let mut places = places.into_iter();
        while let Some(append) = self.appends.pop_synced(number) {
            assert_eq!(append.number, number, "an append was synced out of order");
            for (group, index) in append.entries {
                let place = places.next().expect("a place for every entry");
                if let Some(replica) = self.replica(group) {
                    replica.placed(index, place);
                }
            }
        }
        self.persisted(number, outputs);
    }

    fn persisted(&mut self, number: u64, outputs: &mut Vec<Output>) {
        let mut messages = Vec::new();
        for group in self.with_replicas() {
            if let Some(replica) = self.replica(group) {
                replica.synced(number, &mut messages);
                self.send_raft(group, &mut messages, outputs);
            }
        }
    }

    /// Proposes what was gathered, hands out what is to be written, applies what is committed.
    fn finish(&mut self, now: Now, outputs: &mut Vec<Output>) {
        loop {
            self.finish_once(now, outputs);
            if self.is_outdated {
                return;
            }
            self.lead_early();
            if self.own.is_empty() {
                break;
            }
            while let Some(input) = self.own.pop_front() {
                self.take(now, input, outputs);
            }
        }
        self.answer_others(outputs);
    }

    fn finish_once(&mut self, now: Now, outputs: &mut Vec<Output>) {
        self.appends.begin();
        self.send_all_numbered(now, outputs);
        let mut gathered = Gathered::default();
        if self.catalog.is_some() {
            self.finish_catalog(now, &mut gathered, outputs);
            if gathered.bytes > self.sizes.append_bytes {
                self.hand_out(std::mem::take(&mut gathered), outputs);
            }
        }
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.finish_group(now, group, &mut gathered, outputs);
            // Many groups with much to write each need not fit one append.
            if gathered.bytes > self.sizes.append_bytes {
                self.hand_out(std::mem::take(&mut gathered), outputs);
            }
        }
        self.settle_local(now, outputs);
        self.answer_reconciled(outputs);
        self.hand_out(gathered, outputs);
        self.appends.end();
    }

    fn hand_out(&mut self, gathered: Gathered, outputs: &mut Vec<Output>) {
        let Gathered { batch, written, bytes } = gathered;
        if batch.is_empty() {
            return;
        }
        let entries = written.len();
        let number = self.appends.hand_out(written, bytes);
        outputs.push(Output::Append { number, batch, entries });
        if planted::is("ack_before_fsync") {
            // What was only handed out for writing counts as synced.
            self.persisted(number, outputs);
            self.own.push_back(Input::TimePassed);
        }
    }

    fn forward(&mut self, shard: usize, input: Input, outputs: &mut Vec<Output>) {
        if shard == self.number {
            self.own.push_back(input);
        } else {
            outputs.push(Output::Forward { shard, input });
        }
    }

    /// Turns what queues of `group` wanted into outputs.
    fn grant(&mut self, group: GroupId, outputs: &mut Vec<Output>) {
        let mut group_effects = std::mem::take(&mut self.group_effects);
        for group_effect in group_effects.drain(..) {
            match group_effect {
                GroupEffect::Answer(session, answer) => {
                    self.answer(group, session, answer, outputs);
                }
                GroupEffect::Fetch { queue, reader, parts } => {
                    let parts = self.located(group, parts);
                    outputs.push(Output::Fetch(Fetch { group, queue, reader, parts }));
                }
                GroupEffect::Leaving(leaving) if self.has_dead_letter_worker => {
                    let (session, answer) =
                        (Self::dead_letter_worker(self.me.node), Answer::Leaving(leaving));
                    outputs.push(Output::Answer { session, answer });
                }
                // It stays, and is told of again when there is a dead-letter worker.
                GroupEffect::Leaving(_) => {}
                GroupEffect::Unused(queue) => {
                    let input = Input::DeleteUnused { queue, detached: None };
                    self.forward(0, input, outputs);
                }
                GroupEffect::Borrow { queue, of, ask } => {
                    self.borrow((group, queue), of, ask, outputs);
                }
            }
        }
        self.group_effects = group_effects;
    }

    /// Where in the log the entries of these parts are.
    fn located(&self, group: GroupId, parts: Vec<FetchPart>) -> Vec<Located> {
        let log = self.groups.get(&group).map(|found| found.group.replica.log());
        let locate = |part: FetchPart| {
            let place = match (&part.source, log) {
                (Source::Entry { index, .. }, Some(log)) => log.place(*index),
                (_, _) => None,
            };
            Located { part, place }
        };
        parts.into_iter().map(locate).collect()
    }

    /// Lets the queues of `group` do something, if they are led here, and does what they effect.
    fn in_queues(
        &mut self,
        group: GroupId,
        outputs: &mut Vec<Output>,
        act: impl FnOnce(&mut Queues, &mut Vec<GroupEffect>),
    ) {
        let mut group_effects = std::mem::take(&mut self.group_effects);
        if let Some(queues) = self.queues(group) {
            act(queues, &mut group_effects);
        }
        self.group_effects = group_effects;
        self.grant(group, outputs);
    }

    fn queues(&mut self, group: GroupId) -> Option<&mut Queues> {
        if group.is_local() {
            let local = self.local.as_mut().filter(|local| local.group == group);
            return local.map(|local| &mut local.queues);
        }
        self.groups.get_mut(&group).map(|found| &mut found.queues)
    }

    /// What every replicated group has, of this one.
    fn group(&self, group: GroupId) -> Option<&Group> {
        if group == GroupId::CATALOG {
            return self.catalog.as_ref().map(|catalog| &catalog.group);
        }
        self.groups.get(&group).map(|found| &found.group)
    }

    fn group_mut(&mut self, group: GroupId) -> Option<&mut Group> {
        if group == GroupId::CATALOG {
            return self.catalog.as_mut().map(|catalog| &mut catalog.group);
        }
        self.groups.get_mut(&group).map(|found| &mut found.group)
    }

    fn replica(&mut self, group: GroupId) -> Option<&mut Replica> {
        self.group_mut(group).map(|group| &mut group.replica)
    }

    /// Every group that this shard has a replica of: the catalog first.
    fn all_groups(&self) -> impl Iterator<Item = &Group> {
        let catalog = self.catalog.iter().map(|catalog| &catalog.group);
        catalog.chain(self.groups.values().map(|found| &found.group))
    }

    /// The same, so that the shard can be changed meanwhile.
    fn with_replicas(&self) -> Vec<GroupId> {
        self.all_groups().map(|group| group.id).collect()
    }

    /// Whether no group of this shard has other replicas.
    fn is_alone(&self) -> bool {
        self.all_groups().all(|group| group.replica.log().is_alone())
    }

    fn producer(&self) -> ProducerId {
        ProducerId { node: self.me.node, boot: self.me.boot }
    }

    fn is_ours(me: NodeId, session: SessionId) -> bool {
        Self::node_of(session).is_none_or(|node| node == me)
    }
}

/// A session's number begins with its node's.
const SESSION_BITS: u32 = 48;
/// Milliseconds that a node which stops tries to hand over what it leads.
const CLOSING_MS: u64 = 2000;
