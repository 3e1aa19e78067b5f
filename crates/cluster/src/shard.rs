//! A shard: the core that owns some of the node's groups.
//!
//! It is told the time, takes what happened, and says what to do: append, fetch, answer. One step
//! drains everything that waited, and everything that its groups want written in that step is one
//! append. It never waits and never asks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use machine::{
    Applied, Batch, Catalog, CatalogCommand, CatalogReply, GroupId, NodeId, QueueId, QueueSettings,
    SessionId, SessionOwner,
};
use raft::eraftpb::Entry;
use wal::{CommitBatch, Place};

use crate::bodies::{FetchPart, Run, Source};
use crate::catalog_group::CatalogGroup;
use crate::checkpoint::{Job, Stored};
use crate::limits::{Sizes, TICK_MS};
use crate::proposals::Waiter;
use crate::queue_group::QueueGroup;
use crate::queues::{Detached, NO_QUEUE, Origin, Queues, Wish};
use crate::request::{Answer, Request, Ticket};

/// The time, as a shard is told it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Milliseconds that only grow: for deadlines.
    pub mono_ms: u64,
    /// The wall clock, for what is stamped on entries.
    pub wall_ms: u64,
}

/// What happens to a shard.
#[derive(Debug)]
pub enum Input {
    Requests {
        session: SessionId,
        requests: Vec<Request>,
    },
    /// The session's task is gone without a word.
    SessionGone {
        session: SessionId,
    },
    /// Everything appended up to `number` is synced; the places of the entries of that append.
    Synced {
        number: u64,
        places: Vec<Place>,
    },
    Fetched {
        group: GroupId,
        queue: QueueId,
        runs: Vec<Run>,
    },
    /// The log wants entries up to `index` of `group` moved to segments.
    WantCheckpoint {
        group: GroupId,
    },
    Checkpointed {
        group: GroupId,
        index: u64,
        stored: Vec<Stored>,
    },
    /// There was no room for the checkpoint of `group`, and nothing came of it.
    CheckpointFailed {
        group: GroupId,
    },
    /// What the segments of `group` hold, to be compared with what is alive.
    ReviewSegments {
        group: GroupId,
        held: Vec<SegmentExtent>,
    },
    /// From the catalog's shard: `group` is to have this queue.
    CreateQueue {
        group: GroupId,
        queue: QueueId,
        settings: QueueSettings,
        then: Option<Then>,
    },
    /// From the catalog's shard: the queue is deleted.
    DropQueue {
        group: GroupId,
        queue: QueueId,
    },
    /// From any shard: the last consumer of an auto-delete queue is gone, by a detach that is answered
    /// once the queue is, too.
    DeleteUnused {
        queue: QueueId,
        detached: Option<(SessionId, Ticket)>,
    },
    /// A session says goodbye to every shard.
    EndSession {
        session: SessionId,
        ticket: Ticket,
    },
    /// From every shard: the session is over there, and these queues lost their last consumer.
    SessionEnded {
        session: SessionId,
        ticket: Option<Ticket>,
        unused: Vec<QueueId>,
    },
    /// At the start: these are the queues that the catalog has in this shard's groups.
    Reconcile {
        queues: Vec<(GroupId, QueueId, QueueSettings)>,
    },
    /// Nothing but time.
    TimePassed,
}

/// Messages of a queue that a segment holds, alive or not.
#[derive(Clone, Copy, Debug)]
pub struct SegmentExtent {
    pub queue: QueueId,
    pub first_seq: u64,
    pub last_seq: u64,
    pub count: u64,
}

/// The answer to a declaration, once the queue exists in its group.
#[derive(Debug)]
pub struct Then {
    pub session: SessionId,
    pub ticket: Ticket,
    pub reply: CatalogReply,
}

/// What a shard wants done. In order.
#[derive(Debug)]
pub enum Output {
    /// `entries` places are to come back with [`Input::Synced`].
    Append {
        number: u64,
        batch: CommitBatch,
        entries: usize,
    },
    Answer {
        session: SessionId,
        answer: Answer,
    },
    Fetch {
        group: GroupId,
        queue: QueueId,
        from_seq: u64,
        parts: Vec<Located>,
    },
    Forward {
        shard: usize,
        input: Input,
    },
    /// Let sessions route by this entry of the catalog.
    CatalogApplied {
        at: Applied,
        entry: Bytes,
    },
    Checkpoint(Job),
    /// The groups agree with the catalog: the node may accept sessions.
    Reconciled,
}

/// A part of a fetch, with the place of its entry.
#[derive(Clone, Debug)]
pub struct Located {
    pub part: FetchPart,
    pub place: Option<Place>,
}

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
            queues: Queues::new(GroupId::LOCAL, machine::QueueMachine::new()),
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
        if group == GroupId::LOCAL { 0 } else { group.0 as usize % shards }
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
            Input::DropQueue { group, queue } => {
                let mut batch = Batch::new();
                batch.drop_queue(queue);
                self.append(now, group, batch, Waiter::Nobody, outputs);
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
            Input::TimePassed => {}
        }
    }

    fn request(
        &mut self,
        now: Now,
        session: SessionId,
        request: Request,
        outputs: &mut Vec<Output>,
    ) {
        match request {
            Request::Append { group, ticket, batch, settles } => {
                let waiter = Waiter::Appended { session, ticket, settles };
                self.append(now, group, batch, waiter, outputs);
            }
            Request::Catalog { ticket, command } => match &mut self.catalog {
                Some(catalog) => {
                    let waiter = Waiter::Catalog { session, ticket };
                    let bytes = catalog.propose(now.wall_ms, command, waiter, outputs);
                    self.gathered(now, bytes, outputs);
                }
                None => {
                    let request = Request::Catalog { ticket, command };
                    let input = Input::Requests { session, requests: vec![request] };
                    self.forward(0, input, outputs);
                }
            },
            Request::Attach { ticket, group, queue, consumer, spec } => {
                if let Some(queues) = self.queues(group) {
                    let mut wishes = Vec::new();
                    queues.attach(queue, consumer, spec, ticket, &mut wishes);
                    self.wishes.append(&mut wishes);
                } else {
                    let answer = Answer::Attached { ticket, result: Err(NO_QUEUE) };
                    outputs.push(Output::Answer { session, answer });
                }
                self.grant(group, outputs);
            }
            Request::Detach { ticket, group, queue, consumer } => {
                let mut wishes = Vec::new();
                let detached = match self.queues(group) {
                    Some(queues) => queues.detach(queue, consumer, ticket, &mut wishes),
                    None => Detached::Now,
                };
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
                match detached {
                    Detached::Now => {
                        let answer = Answer::Detached { ticket };
                        outputs.push(Output::Answer { session, answer });
                    }
                    Detached::QueueIsOver => {
                        let detached = Some((session, ticket));
                        self.forward(0, Input::DeleteUnused { queue, detached }, outputs);
                    }
                    Detached::AfterDeliveries => {}
                }
            }
            Request::Credit { group, queue, consumer, add } => {
                let mut wishes = Vec::new();
                if let Some(queues) = self.queues(group) {
                    queues.credit(queue, consumer, add, &mut wishes);
                }
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
            }
            Request::Settle { group, queue, consumer, ranges, outcome, credit } => {
                let mut wishes = Vec::new();
                if let Some(queues) = self.queues(group) {
                    queues.settle(queue, consumer, &ranges, outcome, credit, &mut wishes);
                }
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
            }
            Request::Get { ticket, group, queue, consumer, no_ack } => {
                let mut wishes = Vec::new();
                match self.queues(group) {
                    Some(queues) => {
                        queues.get(queue, consumer, no_ack, ticket, &mut wishes);
                    }
                    None => {
                        let answer = Answer::Got { ticket, delivery: None, ready: 0 };
                        wishes.push(Wish::Answer(session, answer));
                    }
                }
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
            }
            Request::Purge { ticket, group, queue } => {
                self.purge(now, session, ticket, group, queue, outputs);
            }
            Request::Status { ticket, group, queue } => {
                let status = self.queues(group).and_then(|queues| queues.machine().status(queue));
                let answer = Answer::Status { ticket, status };
                outputs.push(Output::Answer { session, answer });
            }
            Request::CloseQueue { ticket, group, queue, if_unused, if_empty } => {
                let result = match self.queues(group) {
                    Some(queues) => queues.close_queue(session, queue, if_unused, if_empty),
                    None => Ok(0),
                };
                let answer = Answer::Closed { ticket, result };
                outputs.push(Output::Answer { session, answer });
            }
            Request::EndSession { ticket } => {
                for shard in 0..self.shards {
                    self.forward(shard, Input::EndSession { session, ticket }, outputs);
                }
            }
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
            None if group == GroupId::LOCAL && self.local.is_some() => {
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
        self.grant(GroupId::LOCAL, outputs);
    }

    fn purge(
        &mut self,
        now: Now,
        session: SessionId,
        ticket: Ticket,
        group: GroupId,
        queue: QueueId,
        outputs: &mut Vec<Output>,
    ) {
        // What is purged must get into the log, or nobody would ever see it again.
        let may_log = match self.groups.get(&group) {
            Some(found) => found.replica.is_leader(),
            None => group == GroupId::LOCAL && self.local.is_some(),
        };
        let waiter = |count| Waiter::Purged { session, ticket, count };
        if !may_log {
            return refuse(vec![waiter(0)], outputs);
        }
        let Some(queues) = self.queues(group) else { return };
        let count = queues.purge(queue);
        let mut batches = Vec::new();
        while queues.settle_deadline_ms().is_some() {
            let mut batch = Batch::new();
            queues.take_settled(&mut batch);
            batches.push(batch);
        }
        let last = batches.pop().unwrap_or_default();
        for batch in batches {
            self.append(now, group, batch, Waiter::Nobody, outputs);
        }
        self.append(now, group, last, waiter(count), outputs);
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
        let waiter = match then {
            Some(Then { session, ticket, reply }) => Waiter::Created { session, ticket, reply },
            None => Waiter::Nobody,
        };
        self.append(now, group, batch, waiter, outputs);
    }

    /// Ends the session's part in this shard; shard 0 hears of it.
    fn end_session(
        &mut self,
        session: SessionId,
        ticket: Option<Ticket>,
        outputs: &mut Vec<Output>,
    ) {
        let (mut unused, mut wishes) = (Vec::new(), Vec::new());
        let groups: Vec<GroupId> = self.groups.keys().copied().chain([GroupId::LOCAL]).collect();
        for group in groups {
            if let Some(queues) = self.queues(group) {
                queues.end_session(session, &mut wishes);
            }
            for wish in wishes.drain(..) {
                match wish {
                    Wish::Unused(queue) => unused.push(queue),
                    other @ (Wish::Answer(..) | Wish::Fetch { .. }) => self.wishes.push(other),
                }
            }
            self.grant(group, outputs);
        }
        self.forward(0, Input::SessionEnded { session, ticket, unused }, outputs);
    }

    /// Once every shard has ended the session, what goes with it is deleted, then it is answered.
    fn session_ended(
        &mut self,
        now: Now,
        session: SessionId,
        ticket: Option<Ticket>,
        unused: Vec<QueueId>,
        outputs: &mut Vec<Output>,
    ) {
        let ending = self.ending.entry((session, ticket)).or_default();
        ending.shards += 1;
        ending.unused.extend(unused);
        if ending.shards < self.shards {
            return;
        }
        let Some(ending) = self.ending.remove(&(session, ticket)) else { return };
        let Some(catalog) = &mut self.catalog else { return };
        let mut waiter = ticket.map(|ticket| Waiter::SessionEnded { session, ticket });
        let owner = SessionOwner { node: self.node, session };
        // A declaration that is under way may still make it an owner.
        let has_exclusive =
            catalog.catalog().has_exclusive(owner) || catalog.is_waiting_for(session);
        let last = ending.unused.len().saturating_sub(1);
        for (nth, queue) in ending.unused.into_iter().enumerate() {
            let is_last = nth == last && !has_exclusive;
            let told = if is_last { waiter.take() } else { None };
            waiter = catalog
                .delete_unused(now.wall_ms, queue, told.unwrap_or(Waiter::Nobody), outputs)
                .filter(|waiter| !matches!(waiter, Waiter::Nobody))
                .or(waiter);
        }
        if has_exclusive {
            let command = CatalogCommand::SessionEnded { node: owner.node, session };
            let waiter = waiter.unwrap_or(Waiter::Nobody);
            catalog.propose(now.wall_ms, command, waiter, outputs);
        } else if let Some(waiter) = waiter {
            tell(waiter, outputs);
        }
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
            if !have.contains(&(group, queue)) && group != GroupId::LOCAL {
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
        self.grant(GroupId::LOCAL, outputs);
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
        if group == GroupId::LOCAL {
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

/// Tells a waiter that its entry is committed.
pub(crate) fn tell(waiter: Waiter, outputs: &mut Vec<Output>) {
    let (session, answer) = match waiter {
        Waiter::Appended { session, ticket, .. } => (session, Answer::Appended { ticket }),
        Waiter::Purged { session, ticket, count } => (session, Answer::Purged { ticket, count }),
        Waiter::Created { session, ticket, reply } => (session, Answer::Catalog { ticket, reply }),
        Waiter::Detached { session, ticket } => (session, Answer::Detached { ticket }),
        Waiter::SessionEnded { session, ticket } => (session, Answer::SessionEnded { ticket }),
        Waiter::Catalog { .. } | Waiter::Nobody => return,
    };
    outputs.push(Output::Answer { session, answer });
}

/// Tells waiters whose entry could not be proposed.
pub(crate) fn refuse(waiters: Vec<Waiter>, outputs: &mut Vec<Output>) {
    for waiter in waiters {
        let (session, ticket) = match waiter {
            Waiter::Appended { session, ticket, .. }
            | Waiter::Purged { session, ticket, .. }
            | Waiter::Catalog { session, ticket }
            | Waiter::Created { session, ticket, .. }
            | Waiter::Detached { session, ticket }
            | Waiter::SessionEnded { session, ticket } => (session, ticket),
            Waiter::Nobody => continue,
        };
        outputs.push(Output::Answer { session, answer: Answer::AppendFailed { ticket } });
    }
}
