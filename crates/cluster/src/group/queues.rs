//! A replicated group of queues: the group, its queues, and who asks for what.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use machine::{
    Applied, Batch, ConsumerId, Corrupt, EntryReader, GroupId, NodeId, ProducerId, QueueId,
    QueueSettings, Seqs, SessionId, StreamOffset,
};
use raft::eraftpb::{Entry, EntryType};

use super::settling::Settling;
use super::{Awaiting, Group};
use crate::checkpoint::Job;
use crate::digests::Digests;
use crate::exchange::{Now, SegmentExtent};
use crate::group_time::GroupTime;
use crate::inbox::{Taken, Verdict};
use crate::limits::{JOIN_WAIT_MS, RELINK_MS, SUCCESSION_MS};
use crate::peer::message::Message;
use crate::queues::{self, GroupEffect, Queues};
use crate::replica::Replica;
use crate::request::{Held, Request, Ticket};

/// One data group on this node.
pub struct QueueGroup {
    pub(crate) group: Group,
    pub(crate) queues: Queues,
    pub(crate) time: GroupTime,
    /// Nodes whose sessions have joined this leader, and under which epoch.
    pub(crate) joined: BTreeMap<NodeId, u64>,
    /// What sessions of this node asked and cannot be answered before deliveries begin.
    pub(crate) early_asked: Vec<Asked>,
    /// What this leader has proposed of settles and not applied.
    settling: Settling,
    /// Queues to which messages come back with an entry that may not be applied yet, and its index.
    returning_to: BTreeMap<QueueId, u64>,
    /// What this replica has done, and others.
    pub(crate) digests: Digests,
    /// The term in which this replica, as leader, had the log say that a chain is kept.
    pub(crate) chain_begun: u64,
    /// Ticks at which this leader's disk was behind the majority's.
    pub(crate) slow_ticks: u32,
    /// The group does not count on this replica.
    pub(crate) is_dismissed: bool,
}

/// A request that cannot be done yet.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) session: SessionId,
    pub(crate) request: Request,
    /// The entry that has to be applied first.
    index: u64,
}

impl QueueGroup {
    /// A queue's settings, and which change of the catalog they are from.
    pub fn settings(&self, queue: QueueId) -> Option<(&QueueSettings, u64)> {
        let machine = self.queues.machine();
        Some((machine.settings(queue)?, machine.revision(queue)?))
    }

    /// The messages of a stream that this replica keeps. None: it has no such stream.
    pub fn kept_of_stream(&self, queue: QueueId) -> Option<Range<u64>> {
        let machine = self.queues.machine();
        Some(machine.seq_at(queue, StreamOffset::First)?..machine.next_seq(queue)?)
    }

    /// How many locks this replica has.
    pub fn lock_count(&self) -> usize {
        self.queues.machine().locks().count().0
    }

    /// The group as recovered up to `applied`.
    pub(crate) fn new(replica: Replica, queues: Queues, group: GroupId, applied: u64) -> Self {
        let mut digests = Digests::default();
        digests.begin(applied, queues.machine().chain());
        Self {
            digests,
            chain_begun: 0,
            group: Group::new(group, replica, applied),
            queues,
            time: GroupTime::default(),
            joined: BTreeMap::new(),
            early_asked: Vec::new(),
            settling: Settling::default(),
            returning_to: BTreeMap::new(),
            slow_ticks: 0,
            is_dismissed: false,
        }
    }

    /// Sets the time of the queues, on the leader only. A follower may know nothing but its own clock, and the time
    /// of a machine never goes back: as a leader it would go by that clock.
    pub(crate) fn set_now(&mut self, now: Now) {
        if self.group.is_in_charge() {
            self.queues.set_now(now.mono_ms, self.time.at(now));
        }
    }

    pub(crate) fn settle_deadline_ms(&self) -> Option<u64> {
        self.queues.settle_deadline_ms().filter(|_| self.group.can_log())
    }

    /// When a message falls due, in `Now::mono_ms`.
    pub(crate) fn time_deadline_ms(&self, now: Now) -> Option<u64> {
        let due = self.queues.time_deadline_ms().filter(|_| self.group.can_log())?;
        Some(self.time.when(now, due))
    }

    /// Does what is due by the group's time.
    pub(crate) fn keep_time(&mut self, group_effects: &mut Vec<GroupEffect>) {
        if self.group.can_log() {
            self.queues.keep_time(group_effects);
        }
    }

    /// Proposes settles that have waited long enough, or that can follow what is proposed anyway.
    pub(crate) fn flush_settles(&mut self, now: Now, at_once: bool) -> usize {
        let mut bytes = 0;
        let last = self.group.replica.last_index();
        while self.settle_deadline_ms().is_some_and(|due| at_once || due <= now.mono_ms) {
            let mut batch = Batch::new();
            self.queues.take_settled(&mut batch);
            if batch.is_empty() {
                break;
            }
            bytes += batch.bytes();
            let entry = Bytes::from(batch.stamp(self.time.at(now)));
            let Ok(index) = self.group.replica.propose(entry.clone()) else { break };
            self.settling.proposed(index, self.group.replica.term(), entry);
            if !at_once {
                break;
            }
        }
        let logged_to = self.group.replica.last_index();
        if logged_to > last {
            let returning = self.queues.take_returning();
            self.returning_to.extend(returning.into_iter().map(|queue| (queue, logged_to)));
            let applied = self.group.applied();
            self.returning_to.retain(|_, to| *to > applied);
        }
        bytes
    }

    /// Answers questions about locks, and puts them into the log.
    pub(crate) fn flush_locks(&mut self, now: Now, group_effects: &mut Vec<GroupEffect>) {
        if !self.group.can_log() {
            return;
        }
        let (replica, time) = (&mut self.group.replica, &self.time);
        let time_ms = if planted::is("lock_by_own_clock") { now.wall_ms } else { time.at(now) };
        let propose = |batch: Batch| replica.propose(Bytes::from(batch.stamp(time_ms))).ok();
        self.queues.flush_locks(propose, group_effects);
    }

    /// When somebody who waits for a lock gets a turn, in `Now::mono_ms`.
    pub(crate) fn lock_deadline_ms(&self) -> Option<u64> {
        self.queues.lock_deadline_ms().filter(|_| self.group.can_log())
    }

    /// Takes a numbered batch into the log. `entry`: the whole of it, if there is one ready made, with the
    /// node's own time. `Err`: not now, because leadership is about to move.
    pub(crate) fn take(
        &mut self,
        now: Now,
        numbered: Taken,
        commands: &Bytes,
        entry: Option<Bytes>,
    ) -> Result<Verdict, Taken> {
        let machine = self.queues.machine();
        let last =
            (!machine.is_over(numbered.producer)).then(|| machine.last_numbered(numbered.producer));
        let time_ms = self.time.at(now);
        let entry = entry.filter(|_| time_ms == now.wall_ms);
        self.group.take(numbered, last, time_ms, commands, entry)
    }

    /// Applies a committed entry, unless this program is too old for it.
    pub(crate) fn commit(
        &mut self,
        entry: &Entry,
        group_effects: &mut Vec<GroupEffect>,
    ) -> Result<(), Corrupt> {
        self.group.apply_next(entry.index);
        // Before it is applied: what goes back to its place by the entry is in nobody's hands then.
        let settles = self.group.inbox.take_settles(entry.index);
        if !settles.is_empty() {
            self.queues.settled_by_entry(&settles, group_effects);
        }
        if entry.get_entry_type() != EntryType::EntryNormal {
            self.group.replica.apply_members(entry);
        } else if !entry.data.is_empty() {
            self.apply(entry, group_effects)?;
        }
        self.group.replica.applied(entry.index);
        self.settling.applied(entry.index, entry.term);
        Ok(())
    }

    fn apply(
        &mut self,
        entry: &Entry,
        group_effects: &mut Vec<GroupEffect>,
    ) -> Result<(), Corrupt> {
        let reader = EntryReader::new(&entry.data)?;
        // Planted: who follows goes by a clock of its own.
        let wrong_ms =
            if planted::is("expire_by_own_clock") && !self.group.serves() { 7 } else { 0 };
        let at = Applied { index: entry.index, time_ms: reader.time_ms() + wrong_ms };
        let origin =
            if self.group.serves() { queues::Origin::Committed } else { queues::Origin::Replayed };
        // It is applied, so it is on the disk, with a checksum.
        let place = self.group.replica.log().place(entry.index);
        self.queues.expect_entry(place.map_or(0, |place| place.checksum));
        self.queues.apply(at, &entry.data, origin, group_effects)?;
        if let Some(chain) = self.queues.machine().chain() {
            self.digests.note(entry.index, chain);
        }
        Ok(())
    }

    /// Settles of a numbered batch that was applied before it came again.
    pub(crate) fn settled_before(
        &mut self,
        settles: &[Held],
        group_effects: &mut Vec<GroupEffect>,
    ) {
        self.queues.settled_by_entry(settles, group_effects);
    }

    /// This node leads the group. Waits for the sessions of `nodes`; those of the latter lot cannot be reached since a
    /// moment.
    pub(crate) fn lead(&mut self, now: Now, nodes: BTreeSet<NodeId>, lost: &BTreeMap<NodeId, u64>) {
        let index = self.group.replica.last_index();
        let until_ms = now.mono_ms + JOIN_WAIT_MS;
        let lost = lost.iter().map(|(node, since)| (*node, *since + RELINK_MS));
        let mut nodes: BTreeMap<NodeId, u64> = nodes.into_iter().map(|it| (it, until_ms)).collect();
        nodes.extend(lost.filter(|(_, until)| *until > now.mono_ms));
        self.group.lead(Some(Awaiting { nodes, until_ms, index, own: None }));
        let term = self.group.replica.term();
        let heard = self.time.lead_in(term, now, self.queues.machine().time_ms());
        self.set_now(now);
        self.joined.clear();
        // Nobody led a group that has this replica alone.
        let is_alone = self.group.replica.log().is_alone();
        self.queues.lead(if is_alone { 0 } else { SUCCESSION_MS });
        self.queues.lead_locks(term, heard);
    }

    /// This node's sessions have joined; their numbered batches up to `last` come before anything is delivered.
    pub(crate) fn has_taken_over(&mut self, producer: ProducerId, last: u64) {
        if let Some(awaiting) = self.group.awaiting_mut() {
            awaiting.own = Some((producer, last));
        }
    }

    /// Another node leads the group, or no node does. Returns settles that this node has proposed and that may be
    /// in no log.
    pub(crate) fn follow(&mut self) -> Vec<Batch> {
        self.group.follow();
        self.joined.clear();
        self.returning_to.clear();
        self.settling.take()
    }

    /// Whether this is sessions that join while what their node said before is in the log and not applied. What
    /// they have settled by that is not in what they say they hold, and would be given to them again.
    pub(crate) fn joins_too_early(&self, from: NodeId, message: &Message) -> bool {
        let Message::Join { .. } = message else { return false };
        let is_under_way = |(producer, seq): (ProducerId, u64)| {
            self.queues.machine().last_numbered(producer) < seq
        };
        self.group.inbox.last_of(from).is_some_and(is_under_way)
            && !planted::is("join_before_settles")
    }

    /// Whether what came too early can be done now.
    pub(crate) fn may_lead_early(&self) -> bool {
        let first = self.group.early.first();
        let is_early = first.is_some_and(|(from, message)| self.joins_too_early(*from, message));
        first.is_some() && !is_early && self.group.can_log()
    }

    /// A node's sessions have joined.
    pub(crate) fn has_joined(&mut self, node: NodeId, epoch: u64) {
        self.joined.insert(node, epoch);
        let index = self.group.replica.last_index();
        if let Some(awaiting) = self.group.awaiting_mut()
            && awaiting.nodes.remove(&node).is_some()
        {
            awaiting.index = index;
        }
    }

    /// Nobody waits for long for a node that cannot be reached.
    pub(crate) fn is_out_of_reach(&mut self, now: Now, node: NodeId) {
        if let Some(until) = self.group.awaiting_mut().and_then(|it| it.nodes.get_mut(&node)) {
            *until = (*until).min(now.mono_ms + RELINK_MS);
        }
    }

    /// The node is there again: it joins now.
    pub(crate) fn is_in_reach(&mut self, node: NodeId) {
        if let Some(awaiting) = self.group.awaiting_mut()
            && let Some(until) = awaiting.nodes.get_mut(&node)
        {
            *until = awaiting.until_ms;
        }
    }

    /// Whether deliveries are to begin now.
    pub(crate) fn may_dispatch(&mut self, now_ms: u64) -> bool {
        if let Some(awaiting) = self.group.awaiting_mut() {
            awaiting.nodes.retain(|_, until| *until > now_ms);
        }
        let machine = self.queues.machine();
        let is_applied = |(producer, seq): (ProducerId, u64)| {
            machine.last_numbered(producer) >= seq || planted::is("own_settles_not_awaited")
        };
        let is_due = self.group.awaiting().is_some_and(|awaiting| {
            let has_come =
                self.group.applied() >= awaiting.index && awaiting.own.is_none_or(is_applied);
            (awaiting.nodes.is_empty() && has_come)
                || awaiting.until_ms <= now_ms
                || planted::is("dispatch_before_joins")
        });
        if is_due {
            self.group.end_gathering();
        }
        is_due
    }

    /// Keeps a request until it can be done. Gives it back if that is now.
    pub(crate) fn ask(
        &mut self,
        now: Now,
        session: SessionId,
        request: Request,
    ) -> Option<Request> {
        let (index, is_known) = match request {
            Request::Purge { queue, .. } | Request::Withhold { queue, .. } => {
                // What its consumers have settled there is not ready, and does not count.
                let proposed = self.group.replica.last_index();
                (self.ready_at(now, queue).max(proposed), self.queues.machine().is_dispatching())
            }
            Request::Get { queue, .. }
            | Request::Status { queue, .. }
            | Request::Describe { queue, .. }
            | Request::Peek { queue, .. }
            | Request::Admit { queue, .. }
            | Request::CloseQueue { queue, .. } => {
                (self.ready_at(now, queue), self.queues.machine().is_dispatching())
            }
            Request::Attach { queue, .. } => (self.served_at(queue), true),
            Request::Detach { consumer, .. } => match self.kept_until(consumer) {
                Some(index) => (index, false),
                None => return Some(request),
            },
            Request::Append { .. }
            | Request::Catalog { .. }
            | Request::Credit { .. }
            | Request::Settle { .. }
            | Request::Lock { .. }
            | Request::EndSession { .. } => return Some(request),
            Request::ChangeConsumer { queue, consumer, change, .. } => {
                for asked in &mut self.early_asked {
                    asked.request.change_attach(queue, consumer, change);
                }
                return Some(request);
            }
        };
        if is_known && self.group.applied() >= index {
            return Some(request);
        }
        self.early_asked.push(Asked { session, request, index });
        None
    }

    /// Which entry has to be applied before it is known what is ready in `queue`: what was confirmed, and what comes
    /// back to a queue that counts that.
    fn ready_at(&mut self, now: Now, queue: QueueId) -> u64 {
        if self.queues.is_returning(queue) {
            self.flush_settles(now, true);
        }
        let returned_at = self.returning_to.get(&queue).copied().unwrap_or_default();
        self.group.replica.committed().max(returned_at)
    }

    /// Which entry has to be applied before `queue` serves a new consumer. A queue that is not there may be under way:
    /// it waits for all that is proposed. A queue with priorities gives out what is highest, so it waits for what was
    /// confirmed: a majority has that, and this node's own disk may be behind.
    fn served_at(&self, queue: QueueId) -> u64 {
        let log = &self.group.replica;
        match self.queues.machine().settings(queue) {
            None => log.last_index(),
            Some(settings) if settings.has_priorities() => log.committed(),
            Some(_) => 0,
        }
    }

    /// A consumer that is kept ends after it has begun.
    fn kept_until(&self, consumer: ConsumerId) -> Option<u64> {
        let is_its = |asked: &&Asked| matches!(asked.request, Request::Attach { consumer: of, .. } if of == consumer);
        self.early_asked.iter().find(is_its).map(|asked| asked.index)
    }

    /// Keeps a question until what is on its way through the log is applied, or the next entry is.
    pub(crate) fn ask_later(&mut self, session: SessionId, request: Request) {
        let index = self.group.replica.last_index().max(self.group.applied() + 1);
        self.early_asked.push(Asked { session, request, index });
    }

    /// A question is answered: it is not asked any more.
    pub(crate) fn forget_asked(&mut self, session: SessionId, ticket: Ticket) {
        let is_it =
            |asked: &Asked| asked.session == session && asked.request.ticket() == Some(ticket);
        self.early_asked.retain(|asked| !is_it(asked));
        self.queues.forget_lock_question(session, ticket);
        self.queues.forget_get(session, ticket);
    }

    /// The questions that can be answered now.
    pub(crate) fn take_asked(&mut self) -> Vec<Asked> {
        if !self.queues.machine().is_dispatching() {
            return Vec::new();
        }
        let applied = self.group.applied();
        self.early_asked.extract_if(.., |asked| asked.index <= applied).collect()
    }

    /// When to look whether deliveries may begin, if they have not yet.
    pub(crate) fn dispatch_deadline_ms(&self) -> Option<u64> {
        let awaiting = self.group.awaiting()?;
        let last = awaiting.nodes.values().max().copied();
        Some(last.map_or(awaiting.until_ms, |last| last.min(awaiting.until_ms)))
    }

    /// If most of what the segments hold is dead, a checkpoint gives its space back.
    pub(crate) fn review(&mut self, held: &[SegmentExtent]) {
        let machine = self.queues.machine();
        let alive = |held: &SegmentExtent| {
            let live = machine.kept(held.queue)?;
            Some(live.within(held.first_seq..held.last_seq + 1).len())
        };
        let count: u64 = held.iter().map(|held| held.count).sum();
        let alive: u64 = held.iter().filter_map(alive).sum();
        if alive * 2 < count {
            self.group.want_checkpoint();
        }
    }

    /// What is to be written so that the log below is not needed, if that is due.
    pub(crate) fn due_checkpoint(&mut self) -> Option<Job> {
        self.group.begins_checkpoint().then(|| self.job())
    }

    /// The group as it is now, for a checkpoint or a snapshot.
    pub(crate) fn job(&self) -> Job {
        let machine = self.queues.machine();
        let bodies = self.queues.bodies();
        // A delivery that waits for its bytes needs them even if it is settled already.
        let needed = |queue| {
            let mut live = machine.kept(queue).map(Seqs::to_ranges).unwrap_or_default();
            live.insert_all(&bodies.waiting(queue));
            (queue, live)
        };
        let queues: BTreeSet<QueueId> = machine.stores().chain(bodies.all_waiting()).collect();
        let mut job =
            Job::new(self.group.id, self.group.applied(), &self.group.replica, &machine.snapshot());
        job.live = queues.into_iter().map(needed).collect();
        for (queue, parts) in bodies.in_entries_to(self.group.applied()) {
            if let Ok(at) = job.live.binary_search_by_key(&queue, |(queue, _)| *queue) {
                let live = job.live[at].1.clone();
                job.add(queue, &live, parts, self.group.replica.log());
            }
        }
        job
    }

    /// A snapshot at `index` took the place of everything.
    pub(crate) fn restore(
        &mut self,
        index: u64,
        term: u64,
        members: raft::eraftpb::ConfState,
        queues: Queues,
    ) {
        // A replica that waited for a snapshot did not lead.
        drop(self.follow());
        self.group.restore(index, term, members);
        self.digests.begin(index, queues.machine().chain());
        self.queues = queues;
    }

    /// At a tick: whether the majority has what this leader's own disk has not.
    pub(crate) fn note_slowness(&mut self) {
        let is_behind =
            self.group.serves() && self.group.replica.committed() > self.group.replica.persisted();
        if is_behind {
            self.slow_ticks += 1;
        } else if !self.group.serves() {
            self.slow_ticks = 0;
        } else {
            self.slow_ticks = self.slow_ticks.saturating_sub(2);
        }
    }

    /// Whether everything taken is confirmed and settles are in the log.
    pub(crate) fn is_idle(&self) -> bool {
        !self.group.inbox.is_waiting() && self.settle_deadline_ms().is_none()
    }
}

/// The entry of commands that belong to no numbered batch.
pub(crate) fn stamp_alone(time_ms: u64, commands: &[u8]) -> Bytes {
    let mut entry = Batch::new().stamp(time_ms);
    entry.extend_from_slice(commands);
    Bytes::from(entry)
}
