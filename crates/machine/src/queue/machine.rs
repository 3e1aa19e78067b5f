//! The machine of a group: finds the queue, lets it act, and keeps the order of effects.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AttachError, CloseError, ConsumerSpec, Counters, Effect, GetReply, Queue, QueueStatus, Run,
};
use crate::command::{Batch, Command, ENQUEUE, EntryReader, Outcome, RawCommand};
use crate::encoding::{Corrupt, Reader, digest, put_u32, put_u64};
use crate::ids::{Applied, ConsumerId, QueueId, SessionId};
use crate::limits::{FOREIGN_COMMANDS_MAX, SETTLED_RANGES_PER_BATCH_MAX};
use crate::ranges::Ranges;
use crate::settings::QueueSettings;

const SNAPSHOT_VERSION: u8 = 1;
/// Queues found last, by the low bits of their ids.
const CACHE: usize = 16;
const NOWHERE: (QueueId, usize) = (QueueId(u64::MAX), usize::MAX);

/// All queues of one group. The same code serves replicated groups and the queues in memory of one
/// node, whose entries are applied without a log.
#[derive(Clone, Debug)]
pub struct QueueMachine {
    // Replicated.
    applied_index: u64,
    time_ms: u64,
    /// Where in `slots` a queue is.
    places: BTreeMap<QueueId, usize>,
    /// Messages for queues that are gone.
    ignored: u64,
    /// The books of queues that are gone.
    retired: Counters,
    // Not replicated.
    slots: Vec<Option<Queue>>,
    free: Vec<usize>,
    cache: [(QueueId, usize); CACHE],
    /// Queues that the entry being applied changed.
    touched: Vec<usize>,
    is_leading: bool,
    /// Where a session consumes or holds something.
    sessions: BTreeSet<(SessionId, QueueId)>,
    /// Queues with settles that wait for the log.
    unlogged: BTreeSet<QueueId>,
}

impl Default for QueueMachine {
    fn default() -> Self {
        Self {
            applied_index: 0,
            time_ms: 0,
            places: BTreeMap::new(),
            ignored: 0,
            retired: Counters::default(),
            slots: Vec::new(),
            free: Vec::new(),
            cache: [NOWHERE; CACHE],
            touched: Vec::new(),
            is_leading: false,
            sessions: BTreeSet::new(),
            unlogged: BTreeSet::new(),
        }
    }
}

/// What a committed entry does.
impl QueueMachine {
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one committed entry: on every replica, in order of the log.
    ///
    /// Effects come in this order: what the commands did; on the leader then deliveries.
    /// `Err` means that no version up to this one wrote such an entry. What stood before the damage
    /// is applied, the same on every replica; the caller must stop serving the group.
    pub fn apply(
        &mut self,
        at: Applied,
        entry: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Corrupt> {
        self.applied_index = self.applied_index.max(at.index);
        // A new leader's clock may be behind the old one's: time stands still, it never goes back.
        self.time_ms = self.time_ms.max(at.time_ms);
        let result = self.apply_commands(entry, effects);
        self.end_entry(effects);
        result
    }

    fn apply_commands(&mut self, entry: &[u8], effects: &mut Vec<Effect>) -> Result<(), Corrupt> {
        let mut commands = EntryReader::new(entry)?.raw();
        let mut number = 0;
        while let Some(raw) = commands.next()? {
            if raw.kind == ENQUEUE {
                self.enqueue(number, &raw, effects)?;
            } else {
                self.apply_command(raw.decode()?, effects)?;
            }
            number += 1;
        }
        Ok(())
    }

    fn enqueue(
        &mut self,
        number: u32,
        raw: &RawCommand<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Corrupt> {
        let message = raw.enqueue()?;
        let message_bytes = (message.head.len() + message.body.len()) as u64;
        for id in message.queues.iter() {
            let Some(place) = self.place(id) else {
                self.ignored = self.ignored.wrapping_add(1);
                continue;
            };
            let Some(queue) = &mut self.slots[place] else { continue };
            match &mut queue.run {
                Some(run) if number <= run.last + 1 + FOREIGN_COMMANDS_MAX => {
                    run.count += 1;
                    run.message_bytes += message_bytes;
                    run.span.end = raw.span.end;
                    run.last = number;
                }
                Some(_) | None => {
                    queue.end_run(self.is_leading, effects);
                    self.touched.push(place);
                    queue.run =
                        Some(Run { count: 1, message_bytes, span: raw.span.clone(), last: number });
                }
            }
        }
        Ok(())
    }

    fn apply_command(
        &mut self,
        command: Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Corrupt> {
        match command {
            Command::Enqueue(_) => unreachable!("enqueues take the short way"),
            Command::Settle { queue, outcome, ranges } => {
                let is_leading = self.is_leading;
                if outcome.is_final()
                    && let Some(queue) = self.queue_mut(queue)
                {
                    queue.end_run(is_leading, effects);
                    queue.apply_settle(outcome, &ranges, effects);
                }
            }
            Command::CreateQueue { queue, settings } => self.create(queue, settings, effects),
            Command::DropQueue { queue } => self.drop_queue(queue, effects),
            Command::Catalog(_) => {
                return Err(Corrupt { what: "a catalog command in a group of queues" });
            }
        }
        Ok(())
    }

    fn create(&mut self, id: QueueId, settings: QueueSettings, effects: &mut Vec<Effect>) {
        if self.places.contains_key(&id) {
            return;
        }
        let place = self.insert(Queue::new(id, settings));
        if self.is_leading
            && let Some(queue) = &mut self.slots[place]
        {
            queue.lead();
        }
        effects.push(Effect::Created { queue: id });
    }

    fn insert(&mut self, queue: Queue) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.places.insert(queue.id, place);
        self.slots[place] = Some(queue);
        place
    }

    fn drop_queue(&mut self, id: QueueId, effects: &mut Vec<Effect>) {
        let Some(place) = self.places.remove(&id) else { return };
        self.cache = [NOWHERE; CACHE];
        self.free.push(place);
        self.unlogged.remove(&id);
        let Some(mut queue) = self.slots[place].take() else { return };
        queue.end_run(self.is_leading, effects);
        queue.counters.dropped += queue.live.len();
        self.retired.add(&queue.counters);
        for (consumer, _, is_attached) in queue.consumers.holders() {
            self.sessions.remove(&(consumer.session, id));
            if is_attached {
                effects.push(Effect::Cancelled { queue: id, consumer });
            }
        }
        effects.push(Effect::Dropped { queue: id });
    }

    /// Runs end with their entry; then what is ready goes out.
    fn end_entry(&mut self, effects: &mut Vec<Effect>) {
        for place in &self.touched {
            if let Some(queue) = &mut self.slots[*place] {
                queue.end_run(self.is_leading, effects);
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        if self.is_leading {
            for place in &touched {
                if let Some(queue) = &mut self.slots[*place] {
                    queue.dispatch(effects);
                    if !queue.gathered.is_empty() {
                        self.unlogged.insert(queue.id);
                    }
                }
            }
        }
        touched.clear();
        self.touched = touched;
    }

    /// When something falls due that an entry must tell, milliseconds since 1970: nothing yet, no
    /// queue keeps time.
    pub fn deadline(&self) -> Option<u64> {
        None
    }
}

/// What the leader does between entries.
impl QueueMachine {
    /// This replica leads now, and has applied every entry of earlier leaders: everything live is
    /// ready, flagged as redelivered, because nobody knows who saw it.
    pub fn lead(&mut self) {
        self.is_leading = true;
        self.sessions.clear();
        self.unlogged.clear();
        self.slots.iter_mut().flatten().for_each(Queue::lead);
    }

    /// This replica leads no longer: consumers, and settles that are not in the log, are forgotten.
    pub fn follow(&mut self) {
        self.is_leading = false;
        self.sessions.clear();
        self.unlogged.clear();
        self.slots.iter_mut().flatten().for_each(Queue::follow);
    }

    pub fn is_leading(&self) -> bool {
        self.is_leading
    }

    /// Lets somebody consume. Attaching again replaces spec and credit. Deliveries may follow at once.
    pub fn attach(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        spec: ConsumerSpec,
        effects: &mut Vec<Effect>,
    ) -> Result<(), AttachError> {
        if !self.is_leading {
            return Err(AttachError::NotLeading);
        }
        let found = self.queue_mut(queue).filter(|queue| !queue.is_closing);
        let found = found.ok_or(AttachError::NoQueue)?;
        found.consumers.attach(consumer, spec)?;
        found.dispatch(effects);
        self.sessions.insert((consumer.session, queue));
        self.note_unlogged(queue);
        Ok(())
    }

    /// No more deliveries. What the consumer holds stays with it until it is settled or its session ends.
    pub fn detach(&mut self, queue: QueueId, consumer: ConsumerId, effects: &mut Vec<Effect>) {
        let Some(found) = self.queue_mut(queue) else { return };
        if found.consumers.detach(consumer) {
            found.close_if_unused(effects);
        }
        self.forget_if_idle(queue, consumer);
    }

    /// The consumer may hold `add` more.
    pub fn credit(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        add: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.queue_mut(queue) else { return };
        found.consumers.add_credit(consumer, add);
        found.dispatch(effects);
        self.note_unlogged(queue);
    }

    /// Fetches the first ready message for somebody who need not be attached.
    pub fn get(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        no_ack: bool,
        effects: &mut Vec<Effect>,
    ) -> GetReply {
        if !self.is_leading {
            return GetReply::NoQueue;
        }
        let Some(found) = self.queue_mut(queue) else { return GetReply::NoQueue };
        let Some((run, redelivered)) = found.ready.pop(1) else { return GetReply::Empty };
        let first_seq = run.start;
        if no_ack {
            found.ready.forget_range(run.clone());
            found.gathered.insert(Outcome::Done, run);
        } else {
            found.consumers.hold(consumer, first_seq);
        }
        let ready = found.ready.len();
        effects.push(Effect::Deliver { queue, consumer, first_seq, count: 1, redelivered, no_ack });
        if no_ack {
            self.unlogged.insert(queue);
        } else {
            self.sessions.insert((consumer.session, queue));
        }
        GetReply::Delivered { ready }
    }

    /// A consumer's outcome. Only what it holds of `ranges` counts. Final outcomes leave its hands
    /// now and are gathered for the log; the others go back to their place and out again. Credit is
    /// not given back here.
    pub fn settle(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.queue_mut(queue) else { return };
        found.settle(consumer, ranges, outcome);
        if !outcome.is_final() {
            found.dispatch(effects);
        }
        self.note_unlogged(queue);
        self.forget_if_idle(queue, consumer);
    }

    /// The same for an outcome that a committed entry brought (a transaction): call it after `apply`.
    /// Nothing is gathered.
    pub fn settle_committed(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        if !outcome.is_final() {
            self.settle(queue, consumer, ranges, outcome, effects);
            return;
        }
        let Some(found) = self.queue_mut(queue) else { return };
        found.consumers.release(consumer, ranges, &mut Ranges::new());
        self.forget_if_idle(queue, consumer);
    }

    /// Moves settles gathered since the last time into a batch, as ranges; false: there were none.
    /// At most `limits::SETTLED_RANGES_PER_BATCH_MAX` ranges at a time, so call it until it is false
    /// where all must go.
    pub fn take_settled(&mut self, batch: &mut Batch) -> bool {
        let mut left = SETTLED_RANGES_PER_BATCH_MAX;
        let mut taken = false;
        while left > 0
            && let Some(id) = self.unlogged.first().copied()
        {
            let Some(queue) = self.queue_mut(id) else {
                self.unlogged.pop_first();
                continue;
            };
            let count = queue.gathered.drain(id, left, batch);
            if queue.gathered.is_empty() {
                self.unlogged.pop_first();
            }
            taken |= count > 0;
            left -= count;
        }
        taken
    }

    /// Messages settled but not yet taken for the log.
    pub fn settled_waiting(&self) -> u64 {
        self.unlogged
            .iter()
            .filter_map(|id| self.queue(*id))
            .map(|queue| queue.gathered.len())
            .sum()
    }

    /// A session is over: its consumers are gone, and what they held is back in place, flagged.
    pub fn end_session(&mut self, session: SessionId, effects: &mut Vec<Effect>) {
        let first = (session, QueueId(0));
        let last = (session, QueueId(u64::MAX));
        let queues: Vec<QueueId> = self.sessions.range(first..=last).map(|(_, id)| *id).collect();
        for id in queues {
            self.sessions.remove(&(session, id));
            let Some(queue) = self.queue_mut(id) else { continue };
            let (held, was_attached) = queue.consumers.end_session(session);
            queue.give_back(&held, true);
            if was_attached {
                queue.close_if_unused(effects);
            }
            queue.dispatch(effects);
            self.note_unlogged(id);
        }
    }

    /// Throws away what is ready; what is out stays out. The count, or None without the queue.
    pub fn purge(&mut self, queue: QueueId) -> Option<u64> {
        let found = self.queue_mut(queue)?;
        let all = found.ready.take_all();
        found.gathered.of(Outcome::Purged).insert_all(&all);
        self.note_unlogged(queue);
        Some(all.len())
    }

    /// Asks whether a queue may be deleted, and if so lets nobody attach any more. The ready count.
    pub fn close_queue(
        &mut self,
        queue: QueueId,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, CloseError> {
        let queue = self.queue_mut(queue).ok_or(CloseError::NoQueue)?;
        if if_unused && queue.consumers.attached() > 0 {
            return Err(CloseError::InUse);
        }
        if if_empty && !queue.ready.is_empty() {
            return Err(CloseError::NotEmpty);
        }
        queue.is_closing = true;
        Ok(queue.ready.len())
    }

    /// The deletion was refused after all.
    pub fn reopen_queue(&mut self, queue: QueueId) {
        if let Some(queue) = self.queue_mut(queue) {
            queue.is_closing = false;
        }
    }
}

/// What can be asked.
impl QueueMachine {
    pub fn status(&self, queue: QueueId) -> Option<QueueStatus> {
        self.queue(queue).map(Queue::status)
    }

    /// Which messages are in the queue, wherever they are.
    pub fn live(&self, queue: QueueId) -> Option<&Ranges> {
        self.queue(queue).map(|queue| &queue.live)
    }

    /// Which messages wait for a consumer: leader only.
    pub fn ready(&self, queue: QueueId) -> Option<&Ranges> {
        self.queue(queue).map(|queue| queue.ready.waiting())
    }

    /// The number that the next message of the queue gets.
    pub fn next_seq(&self, queue: QueueId) -> Option<u64> {
        self.queue(queue).map(|queue| queue.next_seq)
    }

    pub fn settings(&self, queue: QueueId) -> Option<&QueueSettings> {
        self.queue(queue).map(|queue| &queue.settings)
    }

    /// Who consumes from the queue: leader only.
    pub fn consumers(&self, queue: QueueId) -> Vec<(ConsumerId, ConsumerSpec)> {
        let Some(queue) = self.queue(queue) else { return Vec::new() };
        let holders = queue.consumers.holders().filter(|(_, _, is_attached)| *is_attached);
        holders.map(|(id, holder, _)| (id, holder.spec)).collect()
    }

    /// All queues, by id.
    pub fn queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.places.keys().copied()
    }

    /// Messages that came for queues that are gone.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The books of the queues that are gone, summed.
    pub fn retired(&self) -> &Counters {
        &self.retired
    }

    /// The last entry applied.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// The replicated half, versioned.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = vec![SNAPSHOT_VERSION];
        put_u64(&mut out, self.applied_index);
        put_u64(&mut out, self.time_ms);
        put_u64(&mut out, self.ignored);
        self.retired.encode(&mut out);
        put_u32(&mut out, self.places.len() as u32);
        for place in self.places.values() {
            if let Some(queue) = &self.slots[*place] {
                queue.encode(&mut out);
            }
        }
        out
    }

    /// A replica that has applied what the snapshot's had, and follows. Total on any bytes.
    pub fn restore(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "a snapshot of queues");
        if reader.u8()? != SNAPSHOT_VERSION {
            return Err(Corrupt { what: "a snapshot of queues of another version" });
        }
        let mut machine = Self {
            applied_index: reader.u64()?,
            time_ms: reader.u64()?,
            ignored: reader.u64()?,
            ..Self::default()
        };
        machine.retired = Counters::read(&mut reader)?;
        let mut before = None;
        for _ in 0..reader.u32()? {
            let queue = Queue::read(&mut reader)?;
            if before >= Some(queue.id) {
                return Err(reader.corrupt());
            }
            before = Some(queue.id);
            machine.insert(queue);
        }
        reader.end()?;
        Ok(machine)
    }

    /// One number for the replicated half: equal on all replicas at equal index.
    pub fn digest(&self) -> u64 {
        digest(&self.snapshot())
    }

    #[inline]
    fn place(&mut self, id: QueueId) -> Option<usize> {
        let cached = &mut self.cache[id.0 as usize % CACHE];
        if cached.0 == id && id != NOWHERE.0 {
            return Some(cached.1);
        }
        let place = self.places.get(&id).copied()?;
        *cached = (id, place);
        Some(place)
    }

    fn queue_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        let place = self.place(id)?;
        self.slots[place].as_mut()
    }

    fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.slots[*self.places.get(&id)?].as_ref()
    }

    fn note_unlogged(&mut self, id: QueueId) {
        if self.queue_mut(id).is_some_and(|queue| !queue.gathered.is_empty()) {
            self.unlogged.insert(id);
        }
    }

    fn forget_if_idle(&mut self, id: QueueId, consumer: ConsumerId) {
        let Some(queue) = self.queue_mut(id) else { return };
        if queue.consumers.forget_if_idle(consumer)
            && !queue.consumers.has_session(consumer.session)
        {
            self.sessions.remove(&(consumer.session, id));
        }
    }
}
