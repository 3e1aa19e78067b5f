//! The queues of one group on the node that leads it: the machine, the bytes of its messages, and
//! what the machine's effects mean for sessions.
//!
//! Replicated groups and the group of queues that live in this node's memory only use this alike;
//! they differ in where entries come from.

mod effects;
mod intake;
mod lock_questions;
mod sifting;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use machine::{
    Applied, Ask, AttachError, Attached, Balance, Batch, CloseError, Command, ConsumerChange,
    ConsumerId, ConsumerSpec, Corrupt, Effect, EntryReader, Front, GetReply, GroupId, HeldBack,
    HolderDescription, Loan, LockReply, Outcome, Position, PurgeId, QueueDescription, QueueId,
    QueueMachine, QueuePeek, QueueStatus, Ranges, SessionId, TokenHome, Withheld,
    limits::DESCRIBED_HOLDERS_MAX,
};

use crate::bodies::{Bodies, FetchPart, Got, Outgoing, Run, Withdrawn};
use crate::checkpoint::Stored;
use crate::limits::{SETTLE_WAIT_MS, SETTLES_GATHERED};
use crate::locked::{LockLine, LockSpec};
use crate::peeked::PeekSpec;
use crate::peer::message::Attachment;
use crate::request::{Answer, Held, Leaving, Request, Ticket};
use crate::tails::Tails;
use crate::withheld::WithholdStep;
use effects::readers;
use intake::{Asked, Intake};
use lock_questions::LockQuestions;
use sifting::{Fetching, Sifting};

/// What queues ask of their shard.
#[derive(Debug)]
pub(crate) enum GroupEffect {
    Answer(SessionId, Answer),
    /// For this node's dead-letter worker.
    Leaving(Leaving),
    Fetch {
        /// Whose messages they are.
        queue: QueueId,
        /// For whom they are read: the queue itself, or a subscription.
        reader: QueueId,
        parts: Vec<FetchPart>,
    },
    /// The last consumer of an auto-delete queue went away, or nobody has used a queue for long.
    Unused(QueueId),
    /// The leader of another partition is to lend tokens to this one.
    Borrow {
        queue: QueueId,
        of: TokenHome,
        ask: Ask,
    },
}

/// What a leader leaves behind when it leads no longer.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) consumers: Vec<Attachment>,
    pub(crate) asked: Vec<(SessionId, Request)>,
    pub(crate) detached: Vec<(SessionId, Ticket)>,
    pub(crate) settled: Vec<Batch>,
}

fn answered((session, answer): (SessionId, Answer)) -> GroupEffect {
    GroupEffect::Answer(session, answer)
}

fn attached(attachment: Attachment) -> Attached {
    let Attachment { queue, consumer, spec, is_attached, held } = attachment;
    Attached { queue, consumer, spec, is_attached, held }
}

fn attachment(attached: Attached) -> Attachment {
    let Attached { queue, consumer, spec, is_attached, held } = attached;
    Attachment { queue, consumer, spec, is_attached, held }
}

/// When a consumer's detach is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    Now,
    /// Its auto-delete queue has no consumer any more: once that is deleted.
    QueueIsOver,
    /// After messages that are settled already and wait for their bytes: that is seen to here.
    AfterDeliveries,
}

/// How an entry came to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Committed just now, on the leader.
    Committed,
    /// Found in the log at the start.
    Replayed,
    /// Of the group that has no log: its bytes stay in memory.
    Memory,
}

/// All queues of one group.
#[derive(Debug)]
pub(crate) struct Queues {
    group: GroupId,
    machine: QueueMachine,
    bodies: Bodies,
    /// Who reads streams: the machine does not know them.
    tails: Tails,
    effects: Vec<Effect>,
    touched: Vec<QueueId>,
    now_ms: u64,
    /// The group's time.
    time_ms: u64,
    /// Settles that the machine holds for the log, and since when.
    gathered: u64,
    gathered_since_ms: Option<u64>,
    /// Queues of which some of the gathered settles bring messages back.
    returning: BTreeSet<QueueId>,
    /// Who closed a queue that is not deleted yet: if the session ends before that, it is open again.
    closing: BTreeMap<QueueId, SessionId>,
    /// Publishers that wait for a queue's rate.
    intake: Intake,
    /// Detaches that are answered after the last deliveries of so many levels.
    detaching: BTreeMap<(SessionId, Ticket), usize>,
    /// Questions about locks, on the leader of a group that is replicated.
    lock_questions: LockQuestions,
    /// What the commands about locks of the entry that is applied came to.
    lock_replies: Vec<LockReply>,
    /// The filters of subscriptions, and who fetches from these.
    sifting: Sifting,
    /// Queues that came to be and went while they were led here.
    came: u64,
    went: u64,
}

impl Queues {
    pub(crate) fn new(group: GroupId, machine: QueueMachine) -> Self {
        let mut bodies = Bodies::default();
        machine.subscriptions().for_each(|(queue, stream)| bodies.subscribed(queue, stream));
        let sifting = Sifting::new(&machine);
        Self {
            group,
            machine,
            bodies,
            tails: Tails::default(),
            effects: Vec::new(),
            touched: Vec::new(),
            now_ms: 0,
            time_ms: 0,
            gathered: 0,
            gathered_since_ms: None,
            returning: BTreeSet::new(),
            closing: BTreeMap::new(),
            intake: Intake::default(),
            detaching: BTreeMap::new(),
            lock_questions: LockQuestions::default(),
            lock_replies: Vec::new(),
            sifting,
            came: 0,
            went: 0,
        }
    }

    pub(crate) fn machine(&self) -> &QueueMachine {
        &self.machine
    }

    /// Queues that came to be and went while this node led them, since its start.
    pub(crate) fn came_and_went(&self) -> (u64, u64) {
        (self.came, self.went)
    }

    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// A segment of the checkpoint that the machine was restored from holds these messages.
    pub(crate) fn stored(&mut self, queue: QueueId, first_seq: u64, last_seq: u64, segment: u64) {
        let live = self.machine.kept(queue);
        if live.is_some_and(|live| live.intersects(first_seq..last_seq + 1)) {
            self.bodies.stored(queue, first_seq, last_seq, segment);
        }
    }

    /// Sets the node's time (`now_ms`, for settles that wait for the log) and the group's time (`time_ms`, for
    /// deadlines).
    pub(crate) fn set_now(&mut self, now_ms: u64, time_ms: u64) {
        self.now_ms = now_ms;
        self.time_ms = time_ms;
        self.machine.set_now(time_ms);
        self.lock_questions.set_now(now_ms, time_ms);
    }

    /// A session asks about a lock.
    pub(crate) fn ask_lock(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        spec: LockSpec,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        let mut answers = Vec::new();
        self.lock_questions.ask(session, ticket, spec, self.machine.locks(), &mut answers);
        group_effects.extend(answers.into_iter().map(answered));
    }

    /// This node leads the group in `term`, and has the time from the leader of `heard`.
    pub(crate) fn lead_locks(&mut self, term: u64, heard: Option<u64>) {
        self.lock_questions.lead(term, heard);
    }

    /// Gives those their turn who wait for locks, and makes entries of what is asked: `propose` gives the index of each.
    pub(crate) fn flush_locks(
        &mut self,
        propose: impl FnMut(Batch) -> Option<u64>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        let (locks, mut answers) = (self.machine.locks(), Vec::new());
        self.lock_questions.look(locks, &mut answers);
        self.lock_questions.flush(locks, propose);
        group_effects.extend(answers.into_iter().map(answered));
    }

    /// Who waits for a lock.
    pub(crate) fn lock_line(&self, vhost: &str, name: &str, most: usize) -> LockLine {
        self.lock_questions.waiting(vhost, name, most)
    }

    /// When somebody's turn comes, in the node's time.
    pub(crate) fn lock_deadline_ms(&self) -> Option<u64> {
        self.lock_questions.deadline_ms(self.machine.locks())
    }

    /// A question about a lock is answered: it is not asked any more.
    pub(crate) fn forget_lock_question(&mut self, session: SessionId, ticket: Ticket) {
        self.lock_questions.forget(session, ticket);
    }

    /// The same of who fetches from a subscription whose filter is being asked.
    pub(crate) fn forget_get(&mut self, session: SessionId, ticket: Ticket) {
        self.sifting.forget(session, ticket);
    }

    /// When something falls due, by the group's time. Not before it is known who holds what.
    pub(crate) fn time_deadline_ms(&self) -> Option<u64> {
        let deadlines = [self.machine.deadline(), self.intake.deadline_ms()];
        deadlines.into_iter().flatten().min().filter(|_| self.machine.is_dispatching())
    }

    /// Does what is due.
    pub(crate) fn keep_time(&mut self, group_effects: &mut Vec<GroupEffect>) {
        if self.time_deadline_ms().is_none_or(|due| due > self.time_ms) {
            return;
        }
        self.let_in_due(group_effects);
        self.sifting.look_again();
        let had_settles = self.machine.has_settles();
        self.machine.tick(self.time_ms, &mut self.effects);
        self.perform(0, None, group_effects);
        if !had_settles && self.machine.has_settles() {
            self.hurry();
        }
    }

    /// A new dead-letter worker is attached: it gets all dead messages, also those that the one before it got.
    pub(crate) fn leave_again(&mut self, group_effects: &mut Vec<GroupEffect>) {
        self.bodies.take_leaves(&mut self.touched);
        self.machine.leave_again(&mut self.effects);
        self.perform(0, None, group_effects);
    }

    /// How a queue is; who asks has a use for it.
    pub(crate) fn status(&mut self, queue: QueueId) -> Option<QueueStatus> {
        self.machine.touch(queue);
        self.machine.status(queue).map(|status| self.with_readers(queue, status))
    }

    fn with_readers(&self, queue: QueueId, status: QueueStatus) -> QueueStatus {
        let readers = u32::try_from(self.tails.count(queue)).unwrap_or(u32::MAX);
        let publishes = self.intake.publishes(queue);
        let held_back = HeldBack { publishes, ..status.held_back };
        QueueStatus { consumers: status.consumers.saturating_add(readers), held_back, ..status }
    }

    /// How the queues behind this one stand, with their books and fronts, by id.
    pub(crate) fn statuses(
        &self,
        behind: Option<QueueId>,
    ) -> impl Iterator<Item = (QueueId, QueueStatus, Balance, Front)> + '_ {
        let all = self.machine.statuses(behind);
        all.map(|(queue, status, balance, front)| {
            (queue, self.with_readers(queue, status), balance, front)
        })
    }

    /// What is known here of a queue.
    pub(crate) fn describe(&self, queue: QueueId) -> Option<QueueDescription> {
        let mut described = self.machine.describe(queue)?;
        described.status = self.with_readers(queue, described.status);
        described.holder_count += self.tails.count(queue) as u64;
        let left = DESCRIBED_HOLDERS_MAX.saturating_sub(described.holders.len());
        let readers = self.tails.of(queue).take(left);
        described.holders.extend(readers.map(|(consumer, spec, credit)| HolderDescription {
            consumer,
            spec,
            credit,
            held: 0,
            is_attached: true,
            is_active: false,
        }));
        Some(described)
    }

    /// Messages that somebody looks at, and where they lie: nothing is changed by it.
    pub(crate) fn peek(
        &self,
        queue: QueueId,
        spec: &PeekSpec,
    ) -> Option<(QueuePeek, Vec<FetchPart>)> {
        // Of those that are looked through some are not shown.
        let count = if spec.contains.is_empty() { spec.count as usize } else { usize::MAX };
        let found = self.machine.peek(queue, spec.from, spec.filter, count)?;
        let seqs = found.messages.iter().map(|message| message.position.seq);
        let parts = self.bodies.places(found.level, &seqs.map(|seq| seq..seq + 1).collect());
        Some((found, parts))
    }

    /// Everything that lives may have been delivered by an earlier leader. Nothing is delivered before
    /// [`Queues::start_dispatch`]. For so long after that the leader before may deliver, too.
    pub(crate) fn lead(&mut self, succession_ms: u64) {
        self.machine.lead();
        self.machine.succeed(succession_ms);
    }

    /// Consumers may be served.
    pub(crate) fn start_dispatch(&mut self, group_effects: &mut Vec<GroupEffect>) {
        self.machine.start_dispatch(&mut self.effects);
        self.perform(0, None, group_effects);
    }

    /// These sessions have `attachments` in the group, and nothing else.
    pub(crate) fn join(
        &mut self,
        is_of_node: impl Fn(SessionId) -> bool,
        attachments: Vec<Attachment>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        self.lock_questions.end_sessions(&is_of_node);
        let live = |store| self.machine.kept(store);
        let unmarked = self.bodies.end_sessions(&is_of_node, live, &mut self.touched);
        let (readers, others): (Vec<_>, Vec<_>) =
            attachments.into_iter().partition(|it| it.spec.start.is_some());
        self.rejoin_streams(&is_of_node, readers, group_effects);
        let attached: Vec<Attached> = others.into_iter().map(attached).collect();
        self.machine.join(&is_of_node, &attached, &mut self.effects);
        self.take_back(&unmarked);
        // Who is not answered asks again.
        self.intake.end_sessions(&is_of_node);
        self.sifting.end_sessions(&is_of_node);
        self.detaching.retain(|(session, _), _| !is_of_node(*session));
        for (queue, _) in self.closing.extract_if(.., |_, by| is_of_node(*by)) {
            self.machine.reopen_queue(queue);
        }
        self.perform(0, None, group_effects);
        self.hurry();
    }

    /// These sessions read streams where they say, and nowhere else. Who asked to read one and heard no answer asks again.
    fn rejoin_streams(
        &mut self,
        is_of_node: impl Fn(SessionId) -> bool,
        readers: Vec<Attachment>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        self.tails.end_sessions(is_of_node);
        if planted::is("stream_reader_not_rejoined") {
            return;
        }
        for Attachment { queue, consumer, spec, .. } in
            readers.into_iter().filter(|it| it.is_attached)
        {
            if self.tails.attach(&self.machine, queue, consumer, spec).is_err() {
                let answer = Answer::Cancelled { queue, consumer };
                group_effects.push(GroupEffect::Answer(consumer.session, answer));
            }
        }
    }

    /// This node leads no longer. What the sessions that `is_ours` have here, what they asked that is
    /// not answered, whose detach is to be answered now, and settles that did not get into the log.
    pub(crate) fn follow(&mut self, is_ours: impl Fn(SessionId) -> bool) -> Left {
        let asked = self.lock_questions.follow(self.group, &is_ours);
        let mut left = Left { asked, ..Left::default() };
        let mut batch = Batch::new();
        while self.machine.take_settled(&mut batch) {
            let entry = std::mem::take(&mut batch).stamp(0);
            left.settled.push(outcomes_of_sessions(&entry, |_| true));
        }
        self.gathered = 0;
        self.gathered_since_ms = None;
        self.returning.clear();
        let mut consumers: BTreeMap<(QueueId, ConsumerId), Attachment> = self
            .machine
            .attachments()
            .into_iter()
            .filter(|attached| is_ours(attached.consumer.session))
            .map(|attached| ((attached.queue, attached.consumer), attachment(attached)))
            .collect();
        // What waits for its bytes was never sent.
        for (queue, outgoing) in self.bodies.take_waiting(|queue| self.machine.kept(queue)) {
            let Outgoing { consumer, first_seq, count, no_ack, got, detached, .. } = outgoing;
            if !is_ours(consumer.session) {
                continue;
            }
            if let Some(found) = consumers.get_mut(&(queue, consumer)) {
                found.held.remove(first_seq..first_seq + u64::from(count));
            }
            let queue = queue.base();
            if let Some(found) = consumers.get_mut(&(queue, consumer))
                && got.is_none()
            {
                found.spec.credit = found.spec.credit.saturating_add(count);
            }
            if let Some(Got { ticket, at, .. }) = got {
                let group = self.group;
                let request = Request::Get { ticket, group, queue, consumer, no_ack, at };
                left.asked.push((consumer.session, request));
            }
            left.detached.extend(detached.into_iter().map(|ticket| (consumer.session, ticket)));
        }
        left.consumers = consumers
            .into_values()
            .filter(|found| found.is_attached || !found.held.is_empty())
            .chain(self.tails.take(&is_ours))
            .collect();
        let group = self.group;
        let waiting = self.intake.take().filter(|(_, asked)| is_ours(asked.session));
        left.asked.extend(waiting.map(|(queue, Asked { session, ticket, sizes })| {
            (session, Request::Admit { ticket, group, queue, sizes })
        }));
        left.asked.extend(self.sifting.follow(group, is_ours));
        left.detached.sort_unstable();
        left.detached.dedup();
        self.closing.clear();
        self.detaching.clear();
        self.machine.follow();
        left
    }

    /// The bytes of the entry that is applied next have this checksum.
    pub(crate) fn expect_entry(&mut self, checksum: u32) {
        self.machine.expect_entry(checksum);
    }

    /// Applies an entry.
    pub(crate) fn apply(
        &mut self,
        at: Applied,
        entry: &Bytes,
        origin: Origin,
        group_effects: &mut Vec<GroupEffect>,
    ) -> Result<(), Corrupt> {
        self.machine.apply(at, entry, &mut self.effects)?;
        self.perform(at.index, Some((entry, origin)), group_effects);
        let (locks, mut answers) = (self.machine.locks(), Vec::new());
        self.lock_questions.applied(at.index, &mut self.lock_replies, locks, &mut answers);
        group_effects.extend(answers.into_iter().map(answered));
        Ok(())
    }

    pub(crate) fn attach(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        spec: ConsumerSpec,
        ticket: Ticket,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        let (result, at) = if self.machine.is_stream(queue) {
            let at = self.tails.attach(&self.machine, queue, consumer, spec);
            (at.map(|_| ()), at.ok())
        } else {
            (self.machine.attach(queue, consumer, spec, &mut self.effects), None)
        };
        let answer = Answer::Attached { ticket, result, at };
        group_effects.push(GroupEffect::Answer(consumer.session, answer));
        self.perform(0, None, group_effects);
        // What it is given is marked in the log first: the mark is there before the next message is.
        self.hurry();
    }

    /// Stops a consumer. Says when `ticket` is to be answered. What it was given and not sent goes back if
    /// `takes_back`, or if the queue ends with it.
    pub(crate) fn detach(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ticket: Ticket,
        takes_back: bool,
        group_effects: &mut Vec<GroupEffect>,
    ) -> Detached {
        self.tails.detach(queue, consumer);
        self.machine.detach(queue, consumer, &mut self.effects);
        let count = self.effects.len();
        self.effects.retain(|effect| !matches!(effect, Effect::Unused { .. }));
        let is_over = self.effects.len() < count;
        let asked = Some(ticket).filter(|_| !is_over);
        let mut levels_left = 0;
        for level in self.levels(queue) {
            let live = self.machine.kept(self.machine.store_of(level));
            let what =
                if takes_back || is_over { Withdrawn::Unsettled } else { Withdrawn::Nothing };
            let (withdrawn, is_answered_later) =
                self.bodies.withdraw(level, consumer, what, asked, live);
            levels_left += usize::from(is_answered_later);
            let outcome = Outcome::Undelivered;
            self.machine.settle(level, consumer, &withdrawn, outcome, &mut self.effects);
            self.touched.push(level);
        }
        if levels_left > 1 && !is_over {
            self.detaching.insert((consumer.session, ticket), levels_left);
        }
        self.perform(0, None, group_effects);
        if is_over {
            self.hurry();
        }
        match (is_over, levels_left) {
            (true, _) => Detached::QueueIsOver,
            (false, 0) => Detached::Now,
            (false, _) => Detached::AfterDeliveries,
        }
    }

    fn levels(&self, queue: QueueId) -> Vec<QueueId> {
        if self.machine.store_of(queue) != queue {
            // What was given out before it was set to another place may be on its way still.
            let mut levels = Vec::new();
            self.bodies.levels_of(queue, &mut levels);
            levels.extend(self.machine.levels_of(queue));
            levels.sort_unstable();
            levels.dedup();
            return levels;
        }
        let features = self.machine.settings(queue).and_then(|it| it.features.as_deref());
        let highest = features.map_or(0, |features| features.max_priority);
        (0..=highest).map(|priority| queue.level(priority)).collect()
    }

    pub(crate) fn credit(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        add: u32,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        self.tails.credit(queue, consumer, add);
        self.machine.credit(queue, consumer, add, &mut self.effects);
        self.perform(0, None, group_effects);
    }

    pub(crate) fn change_consumer(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        change: ConsumerChange,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        self.tails.change(queue, consumer, change);
        self.machine.change_consumer(queue, consumer, change, &mut self.effects);
        self.perform(0, None, group_effects);
    }

    /// The outcome of messages that `consumer` holds.
    pub(crate) fn settle(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
        credit: u32,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        if self.machine.is_stream(queue) {
            // Who reads it holds nothing: what it is done with is credit.
            self.tails.credit(queue, consumer, credit);
            return self.perform(0, None, group_effects);
        }
        let what = (outcome, credit);
        self.machine.settle_for_credit(queue, consumer, ranges, what, &mut self.effects);
        if outcome.is_final() {
            self.gather(ranges.len());
        }
        self.perform(0, None, group_effects);
        if !outcome.is_final() && self.counts_returns(queue) {
            // Nobody gets it before that is logged.
            self.returning.insert(queue.base());
            self.hurry();
        }
    }

    /// Whether messages come back to the queue with settles that are gathered.
    pub(crate) fn is_returning(&self, queue: QueueId) -> bool {
        self.returning.contains(&queue.base())
    }

    /// The queues of which that was so before the settles were taken for the log: if some are left, it still is.
    pub(crate) fn take_returning(&mut self) -> BTreeSet<QueueId> {
        match self.gathered_since_ms {
            None => std::mem::take(&mut self.returning),
            Some(_) => self.returning.clone(),
        }
    }

    fn counts_returns(&self, queue: QueueId) -> bool {
        let features = self.machine.settings(queue).and_then(|it| it.features.as_deref());
        features.is_some_and(|features| features.counts_returns)
    }

    /// Consumers let go of what a committed transaction settles; before it is applied.
    pub(crate) fn settled_by_entry(
        &mut self,
        settles: &[Held],
        group_effects: &mut Vec<GroupEffect>,
    ) {
        for held in settles {
            self.tails.credit(held.queue, held.consumer, held.credit);
            self.machine.settle_committed(
                held.queue,
                held.consumer,
                &held.ranges,
                held.outcome,
                &mut self.effects,
            );
            if held.credit > 0 {
                let queue = held.queue.base();
                self.machine.credit(queue, held.consumer, held.credit, &mut self.effects);
            }
        }
        self.perform(0, None, group_effects);
    }

    /// False: it is to be asked again when the log has what is gathered, or deliveries have begun.
    pub(crate) fn get(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        (no_ack, at): (bool, Option<Position>),
        ticket: Ticket,
        group_effects: &mut Vec<GroupEffect>,
    ) -> bool {
        let is_answered = self.get_now(queue, consumer, (no_ack, at), ticket, group_effects);
        let is_asking = self.machine.is_sifting(queue) || self.machine.is_borrowing(queue);
        let waits = !is_answered && at.is_none() && is_asking;
        if waits {
            self.sifting.wait(Fetching { queue, consumer, no_ack, ticket });
        }
        self.perform(0, None, group_effects);
        is_answered || waits
    }

    /// The same without what follows from it. False: it is not answered.
    fn get_now(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        (no_ack, at): (bool, Option<Position>),
        ticket: Ticket,
        group_effects: &mut Vec<GroupEffect>,
    ) -> bool {
        let session = consumer.session;
        let reply = match at {
            None => self.machine.get(queue, consumer, no_ack, &mut self.effects),
            Some(at) => self.machine.take(queue, consumer, at, &mut self.effects),
        };
        match reply {
            GetReply::NotYet => return false,
            GetReply::Empty | GetReply::NoQueue => {
                let answer = Answer::Got { ticket, delivery: None, ready: 0 };
                group_effects.push(GroupEffect::Answer(session, answer));
            }
            GetReply::Delivered { ready } => {
                // Consumers may have been served before it, and theirs is no answer to who fetches.
                let fetched = self.effects.pop();
                let got = Some(Got { ticket, ready, at });
                let found = fetched.as_ref().and_then(|effect| Outgoing::of(effect, got));
                self.send_out(found.expect("the last effect of a get is what it fetched"));
            }
        }
        true
    }

    /// What is settled as it leaves has to get into the log.
    fn send_out(&mut self, (queue, outgoing): (QueueId, Outgoing)) {
        if outgoing.no_ack {
            self.gather(u64::from(outgoing.count));
        }
        self.bodies.deliver(queue, outgoing);
        self.touched.push(queue);
    }

    /// Forgets every ready message of `queue`; the count is told once that is logged.
    pub(crate) fn purge(&mut self, queue: QueueId) -> u64 {
        let count = self.machine.purge(queue).unwrap_or(0);
        self.gather(count);
        count
    }

    /// Takes a step of a purge that can be undone; what the log hears of it is gathered.
    pub(crate) fn withhold(
        &mut self,
        queue: QueueId,
        by: PurgeId,
        step: WithholdStep,
        group_effects: &mut Vec<GroupEffect>,
    ) -> Withheld {
        let reply = match step {
            WithholdStep::Purge { undo_ms } => self.machine.withhold(queue, by, u64::from(undo_ms)),
            WithholdStep::Undo => self.machine.bring_back(queue, by),
        };
        self.perform(0, None, group_effects);
        reply
    }

    /// A session asks which of messages with so many bytes there is no room for; for the others it is kept. It is
    /// answered when the queue's rate lets them in.
    pub(crate) fn admit(
        &mut self,
        (session, ticket): (SessionId, Ticket),
        queue: QueueId,
        sizes: Vec<u32>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        let asked = Asked { session, ticket, sizes };
        if self.intake.has_line(queue) {
            return self.intake.wait(queue, asked, self.time_ms);
        }
        match self.machine.let_in(queue, asked.sizes.len()) {
            Ok(()) => self.let_in(queue, &asked, group_effects),
            Err(due_ms) => {
                self.intake.wait(queue, asked, self.time_ms);
                self.intake.put_off(queue, self.time_ms, due_ms);
            }
        }
    }

    /// Lends tokens of a queue to one of its partitions.
    pub(crate) fn lend(&mut self, queue: QueueId, ask: &Ask) -> Option<Loan> {
        self.machine.lend(queue, ask)
    }

    /// A queue was lent tokens.
    pub(crate) fn lent(
        &mut self,
        queue: QueueId,
        (number, loan): (u64, Loan),
        group_effects: &mut Vec<GroupEffect>,
    ) {
        self.machine.lent(queue, number, loan, &mut self.effects);
        self.sifting.look_again();
        self.perform(0, None, group_effects);
    }

    /// Those who have waited for a queue's rate long enough are answered.
    fn let_in_due(&mut self, group_effects: &mut Vec<GroupEffect>) {
        while let Some((queue, count)) = self.intake.due(self.time_ms) {
            if let Err(due_ms) = self.machine.let_in(queue, count) {
                self.intake.put_off(queue, self.time_ms, due_ms);
            } else if let Some(asked) = self.intake.take_first(queue) {
                self.let_in(queue, &asked, group_effects);
            }
        }
    }

    fn let_in(&mut self, queue: QueueId, asked: &Asked, group_effects: &mut Vec<GroupEffect>) {
        let Asked { session, ticket, ref sizes } = *asked;
        let refused = self.machine.admit(queue, sizes);
        group_effects.push(GroupEffect::Answer(session, Answer::Admitted { ticket, refused }));
    }

    /// Takes no more consumers, if that is allowed; `session` is about to delete the queue.
    pub(crate) fn close_queue(
        &mut self,
        session: SessionId,
        queue: QueueId,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, CloseError> {
        let count = self.machine.close_queue(queue, if_unused, if_empty)?;
        self.closing.insert(queue, session);
        // What was rejected is dead before the queue is dropped.
        self.hurry();
        Ok(count)
    }

    pub(crate) fn end_session(&mut self, session: SessionId, group_effects: &mut Vec<GroupEffect>) {
        let live = |queue| self.machine.kept(queue);
        let is_over = |other| other == session;
        self.lock_questions.end_sessions(is_over);
        let unmarked = self.bodies.end_sessions(is_over, live, &mut self.touched);
        self.tails.end_sessions(is_over);
        self.intake.end_sessions(is_over);
        self.sifting.end_sessions(is_over);
        self.machine.end_session(session, &mut self.effects);
        self.take_back(&unmarked);
        self.detaching.retain(|(by, _), _| *by != session);
        for (queue, _) in self.closing.extract_if(.., |_, by| *by == session) {
            self.machine.reopen_queue(queue);
        }
        self.perform(0, None, group_effects);
        self.hurry();
    }

    /// A checkpoint at `index` is synced, and `stored` says which segments hold what.
    pub(crate) fn checkpointed(&mut self, index: u64, stored: &[Stored]) {
        self.bodies.checkpointed(index, stored, |queue| self.machine.kept(queue));
    }

    pub(crate) fn fetched(
        &mut self,
        (queue, reader): (QueueId, QueueId),
        runs: Vec<Run>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        if queue == reader && self.machine.is_stream(queue) {
            self.tails.fetched(queue, &runs);
        } else {
            self.bodies.fetched(reader, runs, readers(&self.machine, reader));
            self.touched.push(reader);
        }
        self.perform(0, None, group_effects);
    }

    /// Whether settles were gathered, and until when they may wait.
    pub(crate) fn settle_deadline_ms(&self) -> Option<u64> {
        let since = self.gathered_since_ms?;
        let full = self.gathered >= SETTLES_GATHERED;
        Some(if full { since } else { since + SETTLE_WAIT_MS })
    }

    /// Moves the gathered settles into `batch`.
    pub(crate) fn take_settled(&mut self, batch: &mut Batch) {
        self.gathered = 0;
        self.gathered_since_ms = None;
        if self.machine.take_settled(batch) {
            self.note_gathered();
        }
    }

    /// What must be true between steps. For tests: it looks at everything.
    pub(crate) fn check(&self) {
        let known = |queue: QueueId| {
            let is_there = self.machine.settings(queue).is_some();
            is_there.then(|| readers(&self.machine, queue))
        };
        self.bodies.check(known);
        self.tails.check();
        self.lock_questions.check();
        let waits = self.machine.settled_waiting() > 0;
        assert!(!waits || self.gathered_since_ms.is_some(), "settles wait, and nobody knows");
    }

    /// Panics if the bytes of a message that lives lie nowhere. For tests.
    pub(crate) fn check_places(&self) {
        for level in self.machine.stores() {
            let live = self.machine.kept(level).expect("a level of the machine");
            self.bodies.check_places(level, live);
        }
    }

    fn take_back(&mut self, unmarked: &[(QueueId, Ranges)]) {
        for (queue, ranges) in unmarked {
            self.machine.take_back(*queue, ranges, &mut self.effects);
        }
    }

    fn gather(&mut self, count: u64) {
        self.gathered += count;
        self.gathered_since_ms.get_or_insert(self.now_ms);
    }

    /// Machines settle of their own, too: what expires, and what there is no room for.
    fn note_gathered(&mut self) {
        if self.gathered_since_ms.is_none() && self.machine.has_settles() {
            self.gathered = self.machine.settled_waiting();
            self.gathered_since_ms = Some(self.now_ms);
        }
    }

    /// What is gathered is to be logged at once.
    fn hurry(&mut self) {
        if self.machine.has_settles() {
            self.gathered_since_ms = Some(self.now_ms.saturating_sub(SETTLE_WAIT_MS));
        }
    }
}

/// An attach that names a group this node does not lead or have.
pub(crate) const NO_QUEUE: AttachError = AttachError::NoQueue;

/// The settles in `entry` that came from sessions and that `counts` accepts: they go to the next leader when this
/// entry may be in no log. Settles that this leader made by itself (messages that expired, overflowed or do not match a
/// filter) are left out, because the next leader decides them again.
pub(crate) fn outcomes_of_sessions(entry: &[u8], counts: impl Fn(Outcome) -> bool) -> Batch {
    let mut left = Batch::new();
    for command in EntryReader::new(entry).into_iter().flatten().flatten() {
        if let (_, Command::Settle { queue, outcome, ranges }) = command
            && !matches!(outcome, Outcome::Expired | Outcome::Overflowed | Outcome::PassedOver)
            && counts(outcome)
        {
            left.settle(queue, outcome, &ranges);
        }
    }
    left
}
