//! A shard: the core that owns some of the node's groups.
//!
//! It is told the time, takes what happened, and says what to do: append, fetch, answer. One step
//! drains everything that waited, and everything that its groups want written in that step is one
//! append. It never waits and never asks.

mod answers;
mod exchange;
mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use machine::{
    Applied, Batch, Catalog, CatalogCommand, GroupId, NodeId, QueueId, QueueSettings, SessionId,
};
use raft::eraftpb::Entry;
use wal::{CommitBatch, Place};

pub(crate) use answers::{refuse, tell};
pub use exchange::{Input, Located, Now, Output, SegmentExtent, Then};

use crate::bodies::{FetchPart, Source};
use crate::catalog_group::CatalogGroup;
use crate::limits::{Sizes, TICK_MS};
use crate::proposals::Waiter;
use crate::queue_group::QueueGroup;
use crate::queues::{Origin, Queues, Wish};
use crate::request::Ticket;

/// Some of a node's groups.
pub struct Shard {
    node: NodeId,
    number: usize,
    shards: usize,
    catalog: Option<CatalogGroup>,
    groups: BTreeMap<GroupId, QueueGroup>,
    /// Queues of this node's memory only; in shard 0.
    local: Option<Local>,
    appends: u64,
    /// The entries of each append that is being written.
    writing: VecDeque<(u64, Vec<(GroupId, u64)>)>,
    unsynced_bytes: VecDeque<(u64, usize)>,
    next_tick_ms: u64,
    wishes: Vec<Wish>,
    committed: Vec<Entry>,
    own: VecDeque<Input>,
    /// Whether the groups are still being held against the catalog.
    reconciling: bool,
    /// Sessions that some shards have ended and others not yet; in shard 0.
    ending: BTreeMap<(SessionId, Option<Ticket>), Ending>,
    /// Bytes proposed since something was last handed out for writing.
    gathered_bytes: usize,
    /// Settles wait for nothing any more.
    is_closing: bool,
    sizes: Sizes,
}

/// What is to be written by one append.
#[derive(Default)]
struct Gathered {
    batch: CommitBatch,
    written: Vec<(GroupId, u64)>,
    bytes: usize,
}

/// A session on its way out.
#[derive(Default)]
struct Ending {
    shards: usize,
    unused: Vec<QueueId>,
}

/// The group without a log.
struct Local {
    queues: Queues,
    index: u64,
}

impl Shard {
    /// Shard `number` of `shards` on `node`, with the groups recovered for it.
    pub fn new(
        node: NodeId,
        number: usize,
        shards: usize,
        catalog: Option<CatalogGroup>,
        groups: BTreeMap<GroupId, QueueGroup>,
        sizes: Sizes,
    ) -> Self {
        let local = (number == 0).then(|| Local {
            queues: Queues::new(GroupId::local(node), machine::QueueMachine::new()),
            index: 0,
        });
        let mut shard = Self {
            node,
            number,
            shards,
            catalog,
            groups,
            local,
            appends: 0,
            writing: VecDeque::new(),
            unsynced_bytes: VecDeque::new(),
            next_tick_ms: 0,
            wishes: Vec::new(),
            committed: Vec::new(),
            own: VecDeque::new(),
            reconciling: false,
            ending: BTreeMap::new(),
            gathered_bytes: 0,
            is_closing: false,
            sizes,
        };
        if let Some(local) = &mut shard.local {
            local.queues.lead();
        }
        shard.campaign();
        shard
    }

    /// The shard that serves `group`.
    pub fn of(group: GroupId, shards: usize) -> usize {
        if group.is_local() { 0 } else { group.0 as usize % shards }
    }

    /// Proposes that this node's earlier life is over; then the groups are held against the catalog.
    pub fn start(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let node = self.node;
        if let Some(catalog) = &mut self.catalog {
            let command = CatalogCommand::NodeStarted { node };
            catalog.propose(now.wall_ms, command, Waiter::Nobody, outputs);
        }
        self.finish(now, outputs);
    }

    /// The node stops: what was gathered is not to wait any longer. To be stepped on until
    /// [`Shard::is_idle`].
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// Whether everything taken is synced and answered.
    pub fn is_idle(&self) -> bool {
        let is_idle = |group: &QueueGroup| {
            !group.proposals.is_waiting() && group.settle_deadline_ms().is_none()
        };
        self.writing.is_empty()
            && self.own.is_empty()
            && !self.catalog.as_ref().is_some_and(CatalogGroup::is_waiting)
            && self.groups.values().all(is_idle)
    }

    /// Takes everything in `inputs`, in order.
    pub fn step(&mut self, now: Now, inputs: &mut Vec<Input>, outputs: &mut Vec<Output>) {
        for group in self.groups.values_mut() {
            group.queues.set_now(now.mono_ms);
        }
        for input in inputs.drain(..) {
            self.take(now, input, outputs);
        }
        while let Some(input) = self.own.pop_front() {
            self.take(now, input, outputs);
        }
        if now.mono_ms >= self.next_tick_ms {
            self.next_tick_ms = now.mono_ms + TICK_MS;
            self.tick();
        }
        self.finish(now, outputs);
    }

    /// When the shard wants to be stepped at the latest, in `Now::mono_ms`.
    pub fn deadline_ms(&self) -> u64 {
        let settles = self.groups.values().filter_map(QueueGroup::settle_deadline_ms);
        settles.min().unwrap_or(u64::MAX).min(self.next_tick_ms)
    }

    /// Bytes that were handed out for writing and are not synced.
    pub fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes.iter().map(|&(_, bytes)| bytes).sum()
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

    fn campaign(&mut self) {
        if let Some(catalog) = &mut self.catalog {
            catalog.replica.campaign();
        }
        for group in self.groups.values_mut() {
            group.replica.campaign();
        }
    }

    fn tick(&mut self) {
        if let Some(catalog) = &mut self.catalog {
            catalog.replica.tick();
        }
        for group in self.groups.values_mut() {
            group.replica.tick();
        }
    }

    fn take(&mut self, now: Now, input: Input, outputs: &mut Vec<Output>) {
        match input {
            Input::Requests { session, requests } => {
                for request in requests {
                    self.request(now, session, request, outputs);
                }
            }
            Input::SessionGone { session } => self.end_session(session, None, outputs),
            Input::Synced { number, places } => self.synced(number, places),
            Input::Fetched { group, queue, runs } => {
                if let Some(found) = self.groups.get_mut(&group) {
                    found.queues.fetched(queue, runs, &mut self.wishes);
                }
                self.grant(group, outputs);
            }
            Input::WantCheckpoint { group } => match (&mut self.catalog, group) {
                (Some(catalog), GroupId::CATALOG) => catalog.want_checkpoint(),
                (_, group) => {
                    if let Some(found) = self.groups.get_mut(&group) {
                        found.want_checkpoint();
                    }
                }
            },
            Input::Checkpointed { group, index, stored } => match (&mut self.catalog, group) {
                (Some(catalog), GroupId::CATALOG) => catalog.checkpointed(index),
                (_, group) => {
                    if let Some(found) = self.groups.get_mut(&group) {
                        found.checkpointed(index, &stored);
                    }
                }
            },
            Input::CheckpointFailed { group } => match (&mut self.catalog, group) {
                (Some(catalog), GroupId::CATALOG) => catalog.checkpoint_failed(),
                (_, group) => {
                    if let Some(found) = self.groups.get_mut(&group) {
                        found.checkpoint_failed();
                    }
                }
            },
            Input::ReviewSegments { group, held } => {
                if let Some(found) = self.groups.get_mut(&group) {
                    found.review(&held);
                }
            }
            Input::CreateQueue { group, queue, settings, then } => {
                self.create_queue(now, group, queue, &settings, then, outputs);
            }
            Input::DropQueue { group, queue, then } => {
                let waiter = created(then);
                let mut batch = Batch::new();
                batch.drop_queue(queue);
                self.append(now, group, batch, waiter, outputs);
            }
            Input::DeleteUnused { queue, detached } => {
                let waiter = match detached {
                    Some((session, ticket)) => Waiter::Detached { session, ticket },
                    None => Waiter::Nobody,
                };
                let kept = match &mut self.catalog {
                    Some(catalog) => catalog.delete_unused(now.wall_ms, queue, waiter, outputs),
                    None => Some(waiter),
                };
                kept.into_iter().for_each(|waiter| tell(waiter, outputs));
            }
            Input::EndSession { session, ticket } => {
                self.end_session(session, Some(ticket), outputs);
            }
            Input::SessionEnded { session, ticket, unused } => {
                self.session_ended(now, session, ticket, unused, outputs);
            }
            Input::Reconcile { queues } => self.reconcile(now, &queues, outputs),
            Input::PeerUp { .. }
            | Input::PeerDown { .. }
            | Input::Peers { .. }
            | Input::EntriesRead { .. }
            | Input::TimePassed => {}
        }
    }

    fn append(
        &mut self,
        now: Now,
        group: GroupId,
        batch: Batch,
        waiter: Waiter,
        outputs: &mut Vec<Output>,
    ) {
        let bytes = batch.bytes();
        let refused = match self.groups.get_mut(&group) {
            Some(_) if bytes > self.sizes.batch_bytes => vec![waiter],
            Some(found) => found.proposals.add(&mut found.replica, now.wall_ms, batch, waiter),
            None if group == GroupId::local(self.node) && self.local.is_some() => {
                self.apply_local(now, batch, waiter, outputs);
                return;
            }
            None => vec![waiter],
        };
        refuse(refused, outputs);
        self.gathered(now, bytes, outputs);
    }

    /// So much more is gathered: once that is enough for an append, it is handed out.
    fn gathered(&mut self, now: Now, bytes: usize, outputs: &mut Vec<Output>) {
        self.gathered_bytes += bytes;
        if self.gathered_bytes > self.sizes.append_bytes {
            self.finish_once(now, outputs);
        }
    }

    fn apply_local(&mut self, now: Now, batch: Batch, waiter: Waiter, outputs: &mut Vec<Output>) {
        let Some(local) = &mut self.local else { return };
        local.index += 1;
        let at = Applied { index: local.index, time_ms: now.wall_ms };
        let entry = Bytes::from(batch.stamp(now.wall_ms));
        let applied = local.queues.apply(at, &entry, Origin::Memory, &mut self.wishes);
        assert!(applied.is_ok(), "a batch of our own making cannot be read");
        if let Waiter::Appended { settles, .. } = &waiter {
            local.queues.settled_by_entry(settles, &mut self.wishes);
        }
        tell(waiter, outputs);
        self.grant(GroupId::local(self.node), outputs);
    }

    fn create_queue(
        &mut self,
        now: Now,
        group: GroupId,
        queue: QueueId,
        settings: &QueueSettings,
        then: Option<Then>,
        outputs: &mut Vec<Output>,
    ) {
        let mut batch = Batch::new();
        batch.create_queue(queue, settings);
        self.append(now, group, batch, created(then), outputs);
    }

    fn reconcile(
        &mut self,
        now: Now,
        queues: &[(GroupId, QueueId, QueueSettings)],
        outputs: &mut Vec<Output>,
    ) {
        let wanted: BTreeMap<(GroupId, QueueId), &QueueSettings> =
            queues.iter().map(|(group, queue, settings)| ((*group, *queue), settings)).collect();
        let mut have = BTreeSet::new();
        for (&group, found) in &self.groups {
            have.extend(found.queues.machine().queues().map(|queue| (group, queue)));
        }
        for &(group, queue) in &have {
            if !wanted.contains_key(&(group, queue)) {
                let mut batch = Batch::new();
                batch.drop_queue(queue);
                self.append(now, group, batch, Waiter::Nobody, outputs);
            }
        }
        for ((group, queue), settings) in wanted {
            if !have.contains(&(group, queue)) && !group.is_local() {
                self.create_queue(now, group, queue, settings, None, outputs);
            }
        }
        self.reconciling = true;
    }

    fn synced(&mut self, number: u64, places: Vec<Place>) {
        let mut places = places.into_iter();
        while self.writing.front().is_some_and(|&(append, _)| append <= number) {
            let Some((append, entries)) = self.writing.pop_front() else { break };
            assert_eq!(append, number, "an append was synced out of order");
            for (group, index) in entries {
                let place = places.next().expect("a place for every entry");
                if let Some(replica) = self.replica(group) {
                    replica.placed(index, place);
                }
            }
        }
        while self.unsynced_bytes.front().is_some_and(|&(append, _)| append <= number) {
            self.unsynced_bytes.pop_front();
        }
        if let Some(catalog) = &mut self.catalog {
            catalog.replica.synced(number);
        }
        for group in self.groups.values_mut() {
            group.replica.synced(number);
        }
    }

    /// Proposes what was gathered, hands out what is to be written, applies what is committed.
    fn finish(&mut self, now: Now, outputs: &mut Vec<Output>) {
        loop {
            self.finish_once(now, outputs);
            let Some(input) = self.own.pop_front() else { break };
            self.take(now, input, outputs);
        }
    }

    fn finish_once(&mut self, now: Now, outputs: &mut Vec<Output>) {
        self.gathered_bytes = 0;
        let mut gathered = Gathered::default();
        if let Some(catalog) = &mut self.catalog {
            refuse(catalog.flush(now.wall_ms), outputs);
            let mut committed = std::mem::take(&mut self.committed);
            let Gathered { batch, written, bytes } = &mut gathered;
            *bytes += catalog.replica.ready(self.appends + 1, batch, written, &mut committed);
            for entry in committed.drain(..) {
                self.apply_catalog(entry, outputs);
            }
            self.committed = committed;
        }
        if let Some(catalog) = &mut self.catalog {
            outputs.extend(catalog.due_checkpoint().map(Output::Checkpoint));
            if gathered.bytes > self.sizes.append_bytes {
                self.hand_out(std::mem::take(&mut gathered), outputs);
            }
        }
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            let Some(found) = self.groups.get_mut(&group) else { continue };
            refuse(found.flush(now, self.is_closing), outputs);
            let mut committed = std::mem::take(&mut self.committed);
            let Gathered { batch, written, bytes } = &mut gathered;
            *bytes += found.replica.ready(self.appends + 1, batch, written, &mut committed);
            for entry in committed.drain(..) {
                found.commit(entry, &mut self.wishes, outputs);
            }
            self.committed = committed;
            outputs.extend(found.due_checkpoint().map(Output::Checkpoint));
            self.grant(group, outputs);
            // Many groups with much to write each need not fit one append.
            if gathered.bytes > self.sizes.append_bytes {
                self.hand_out(std::mem::take(&mut gathered), outputs);
            }
        }
        self.settle_local(now, outputs);
        self.tell_reconciled(outputs);
        self.hand_out(gathered, outputs);
    }

    fn hand_out(&mut self, gathered: Gathered, outputs: &mut Vec<Output>) {
        let Gathered { batch, written, bytes } = gathered;
        if batch.is_empty() {
            return;
        }
        self.appends += 1;
        let (number, entries) = (self.appends, written.len());
        self.writing.push_back((number, written));
        self.unsynced_bytes.push_back((number, bytes));
        outputs.push(Output::Append { number, batch, entries });
        #[cfg(bug_ack_before_fsync)]
        self.pretend_synced(number);
    }

    /// Settles of queues that have no log need not wait for anything.
    fn settle_local(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let Some(local) = &mut self.local else { return };
        while local.queues.settle_deadline_ms().is_some() {
            let mut batch = Batch::new();
            local.queues.take_settled(&mut batch);
            if batch.is_empty() {
                break;
            }
            local.index += 1;
            let at = Applied { index: local.index, time_ms: now.wall_ms };
            let entry = Bytes::from(batch.stamp(now.wall_ms));
            let applied = local.queues.apply(at, &entry, Origin::Memory, &mut self.wishes);
            assert!(applied.is_ok(), "a batch of our own making cannot be read");
        }
        self.grant(GroupId::local(self.node), outputs);
    }

    /// Once every group leads and agrees with the catalog, the node may serve.
    fn tell_reconciled(&mut self, outputs: &mut Vec<Output>) {
        if self.reconciling && self.groups.values().all(QueueGroup::is_serving) {
            self.reconciling = false;
            outputs.push(Output::Reconciled);
        }
    }

    /// The planted bug: what was only handed out for writing counts as synced.
    #[cfg(bug_ack_before_fsync)]
    fn pretend_synced(&mut self, number: u64) {
        if let Some(catalog) = &mut self.catalog {
            catalog.replica.synced(number);
        }
        for group in self.groups.values_mut() {
            group.replica.synced(number);
        }
        self.own.push_back(Input::TimePassed);
    }

    fn apply_catalog(&mut self, entry: Entry, outputs: &mut Vec<Output>) {
        let Some(catalog) = &mut self.catalog else { return };
        let mut inputs = Vec::new();
        catalog.commit(&entry, &mut inputs, outputs);
        for (group, input) in inputs {
            self.forward(Self::of(group, self.shards), input, outputs);
        }
        if !self.catalog.as_ref().is_some_and(|catalog| catalog.is_started()) {
            return;
        }
        self.hand_out_reconciliation(outputs);
    }

    /// Once, after this node's start is in the catalog: what each shard's groups should have.
    fn hand_out_reconciliation(&mut self, outputs: &mut Vec<Output>) {
        let Some(catalog) = &mut self.catalog else { return };
        let Some(queues) = catalog.take_reconciliation() else { return };
        for shard in 0..self.shards {
            let queues = queues
                .iter()
                .filter(|(group, _, _)| Self::of(*group, self.shards) == shard)
                .cloned()
                .collect();
            self.forward(shard, Input::Reconcile { queues }, outputs);
        }
    }

    fn forward(&mut self, shard: usize, input: Input, outputs: &mut Vec<Output>) {
        if shard == self.number {
            self.own.push_back(input);
        } else {
            outputs.push(Output::Forward { shard, input });
        }
    }

    /// Turns what queues of `group` wished into outputs.
    fn grant(&mut self, group: GroupId, outputs: &mut Vec<Output>) {
        let mut wishes = std::mem::take(&mut self.wishes);
        for wish in wishes.drain(..) {
            match wish {
                Wish::Answer(session, answer) => outputs.push(Output::Answer { session, answer }),
                Wish::Fetch { queue, from_seq, parts } => {
                    let log = self.groups.get(&group).map(|found| found.replica.log());
                    let locate = |part: FetchPart| {
                        let place = match (&part.source, log) {
                            (Source::Entry { index, .. }, Some(log)) => log.place(*index),
                            (_, _) => None,
                        };
                        Located { part, place }
                    };
                    let parts = parts.into_iter().map(locate).collect();
                    outputs.push(Output::Fetch { group, queue, from_seq, parts });
                }
                Wish::Unused(queue) => {
                    let input = Input::DeleteUnused { queue, detached: None };
                    self.forward(0, input, outputs);
                }
            }
        }
        self.wishes = wishes;
    }

    fn queues(&mut self, group: GroupId) -> Option<&mut Queues> {
        if group == GroupId::local(self.node) {
            return self.local.as_mut().map(|local| &mut local.queues);
        }
        self.groups.get_mut(&group).map(|found| &mut found.queues)
    }

    fn replica(&mut self, group: GroupId) -> Option<&mut crate::replica::Replica> {
        if group == GroupId::CATALOG {
            return self.catalog.as_mut().map(|catalog| &mut catalog.replica);
        }
        self.groups.get_mut(&group).map(|found| &mut found.replica)
    }
}

/// Who waits for a queue to be created in its group, or dropped from it.
fn created(then: Option<Then>) -> Waiter {
    match then {
        Some(Then { session, ticket, reply }) => Waiter::Created { session, ticket, reply },
        None => Waiter::Nobody,
    }
}
