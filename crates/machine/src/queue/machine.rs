//! The machine of a group: finds the queue, lets it act, and keeps the order of effects.

mod attachments;
mod describe;
mod leader;
mod peek;
mod sifting;
mod snapshot;
mod subscriptions;
mod taking;
mod timers;
mod withholding;

use std::collections::{BTreeMap, BTreeSet};

pub use attachments::Attached;
pub use describe::{Front, HolderDescription, QueueDescription};
pub use peek::{MessageDescription, MessageState, PeekFilter, Position, QueuePeek};

use super::chain::Chain;
use super::context::Context;
use super::level::Level;
use super::store::Run;
use super::{
    Balance, ConsumerSpec, Counters, Effect, Queue, QueueStatus, Seqs, StreamOffset, stream,
};
use crate::command::{Command, ENQUEUE, Enqueue, EntryReader, LOCK, RawCommand};
use crate::encoding::Corrupt;
use crate::ids::{Applied, ConsumerId, ProducerId, QueueId, SessionId};
use crate::limits::FOREIGN_COMMANDS_MAX;
use crate::locks::{Locks, Place};
use crate::producers::Producers;
use crate::settings::QueueSettings;
use crate::version::Version;

/// Queues found last, by the low bits of their ids.
const CACHE: usize = 16;
/// Their fencing tokens would be the same.
const TOO_MANY_LOCKS: Corrupt = Corrupt::new("an entry with too many commands about locks");
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
    /// Which numbered batches were applied.
    producers: Producers,
    /// Messages for queues that are gone.
    ignored: u64,
    /// The books of queues that are gone.
    retired: Counters,
    /// Names that somebody holds: they have nothing to do with queues.
    locks: Locks,
    /// Of what entries did, since the log says that it is kept.
    chain: Option<Chain>,
    // Not replicated.
    /// The newest version whose commands this program reads.
    reads: Version,
    slots: Vec<Option<Queue>>,
    free: Vec<usize>,
    cache: [(QueueId, usize); CACHE],
    /// Queues that the entry being applied changed.
    touched: Vec<usize>,
    is_leading: bool,
    /// Leading, and messages go out.
    is_dispatching: bool,
    /// Where a session consumes or holds something.
    sessions: BTreeSet<(SessionId, QueueId)>,
    /// Queues with settles that wait for the log.
    unlogged: BTreeSet<QueueId>,
    /// Subscriptions whose filter is to be asked of what they read next.
    unsifted: Vec<QueueId>,
    /// The leader's clock as it was told, ms since 1970.
    now_ms: u64,
    /// When queues that keep time are looked at next.
    timers: BTreeSet<(u64, QueueId)>,
    /// A client waits for what is on its way to the log.
    is_awaited: bool,
    /// Of the bytes of the entry that is applied next.
    checksum: u32,
    /// For so long from when messages go out the leader before may give out some, too, ms.
    succession_ms: u64,
}

impl Default for QueueMachine {
    fn default() -> Self {
        Self {
            applied_index: 0,
            time_ms: 0,
            places: BTreeMap::new(),
            producers: Producers::default(),
            ignored: 0,
            retired: Counters::default(),
            locks: Locks::default(),
            chain: None,
            checksum: 0,
            reads: Version::NEWEST,
            slots: Vec::new(),
            free: Vec::new(),
            cache: [NOWHERE; CACHE],
            touched: Vec::new(),
            is_leading: false,
            is_dispatching: false,
            sessions: BTreeSet::new(),
            unlogged: BTreeSet::new(),
            unsifted: Vec::new(),
            now_ms: 0,
            timers: BTreeSet::new(),
            is_awaited: false,
            succession_ms: 0,
        }
    }
}

/// What a committed entry does.
impl QueueMachine {
    pub fn new() -> Self {
        Self::default()
    }

    /// As a program has it that reads commands of versions up to `newest`.
    #[must_use]
    pub fn reading(self, newest: Version) -> Self {
        Self { reads: newest, ..self }
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
        self.now_ms = self.now_ms.max(self.time_ms);
        let first = effects.len();
        let result = self.apply_commands(entry, effects);
        self.end_runs(effects);
        self.add_to_chain(at.index, &effects[first..]);
        self.serve_touched(effects);
        result
    }

    /// The bytes of the entry that is applied next have this checksum, on every replica: it goes into the chain.
    pub fn expect_entry(&mut self, checksum: u32) {
        self.checksum = checksum;
    }

    fn add_to_chain(&mut self, index: u64, effects: &[Effect]) {
        let checksum = std::mem::take(&mut self.checksum);
        let Some(chain) = &mut self.chain else { return };
        chain.add(index, checksum, effects);
        if chain.is_review_due() {
            for place in self.places.values() {
                self.slots[*place].iter().for_each(|queue| chain.review(queue));
            }
        }
    }

    fn apply_commands(&mut self, entry: &[u8], effects: &mut Vec<Effect>) -> Result<(), Corrupt> {
        let mut commands = EntryReader::new(entry)?.raw();
        let (mut number, mut locked) = (0, 0u16);
        while let Some(raw) = commands.next()? {
            if raw.kind == ENQUEUE {
                self.enqueue(number, &raw, effects)?;
            } else if raw.kind == LOCK {
                self.lock(locked, raw.decode_up_to(self.reads)?, effects);
                locked = locked.checked_add(1).ok_or(TOO_MANY_LOCKS)?;
            } else if !self.apply_command(raw.decode_up_to(self.reads)?, effects)? {
                commands.skip_numbered()?;
                // No run may reach over what is skipped: its messages would be read as stored ones.
                number += FOREIGN_COMMANDS_MAX + 1;
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
        for id in message.queues.iter() {
            self.enqueue_one(id, number, raw, &message, effects);
        }
        Ok(())
    }

    #[inline]
    fn enqueue_one(
        &mut self,
        id: QueueId,
        number: u32,
        raw: &RawCommand<'_>,
        message: &Enqueue<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let place = self.place(id);
        let Some((place, queue)) =
            place.and_then(|place| Some((place, self.slots[place].as_mut()?)))
        else {
            self.ignored = self.ignored.wrapping_add(1);
            return;
        };
        let message_bytes = (message.head.len() + message.body.len()) as u64;
        let is_plain = queue.settings.features.is_none() && message.attributes.is_none();
        if (is_plain || queue.main.store.timeline.is_some())
            && id.priority() == 0
            && let Some(run) = &mut queue.main.store.run
            && run.take(number, message_bytes, raw.span.end)
        {
            return;
        }
        self.enqueue_slowly(place, (id, number), raw, message, effects);
    }

    /// A message that begins a run, or of which more is to be known than that it came.
    fn enqueue_slowly(
        &mut self,
        place: usize,
        (id, number): (QueueId, u32),
        raw: &RawCommand<'_>,
        message: &Enqueue<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let (time_ms, is_leading) = (self.time_ms, self.is_leading);
        let Some(queue) = &mut self.slots[place] else { return };
        if queue.level(id.priority()).is_none() || queue.is_gone || queue.subscription().is_some() {
            self.ignored = self.ignored.wrapping_add(1);
            return;
        }
        if queue.is_duplicate(message, time_ms) {
            // Its bytes name this queue, so no run may reach over it.
            queue.main.store.came_in.duplicates += 1;
            queue.end_runs(time_ms, is_leading, effects);
            if is_leading {
                queue.has_come(message.body.len());
            }
            return;
        }
        let features = queue.settings.features.as_deref();
        let cx = Context { features, time_ms, is_leading };
        let level = match usize::from(id.priority()).checked_sub(1) {
            None => &mut queue.main,
            Some(place) => &mut queue.levels[place],
        };
        let message_bytes = (message.head.len() + message.body.len()) as u64;
        let run = level.store.run.as_mut();
        let is_taken = run.is_some_and(|run| run.take(number, message_bytes, raw.span.end));
        if !is_taken {
            level.end_run(cx, effects);
            self.touched.push(place);
            level.store.run = Some(Run::new(number, message_bytes, raw.span.clone()));
        }
        if features.is_some_and(|features| features.stream.is_some()) {
            // It keeps what it is given, whatever a publisher asks.
            return;
        }
        if features.is_some() || !message.attributes.is_none() {
            level.note(&message.attributes, message.body.len(), cx);
            if is_leading {
                queue.has_come(message.body.len());
            }
        }
    }

    /// False: the numbered batch that begins here is not to be applied.
    fn apply_command(
        &mut self,
        command: Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Corrupt> {
        match command {
            Command::Enqueue(_) | Command::Lock(_) => unreachable!("these have ways of their own"),
            Command::Settle { queue, outcome, mut ranges } => {
                if planted::is("replica_settles_less")
                    && !self.is_leading
                    && ranges.len() > 1
                    && let Some(last) = ranges.last()
                {
                    ranges.remove(last..last + 1);
                }
                let at = (self.time_ms, self.is_leading);
                let place = self.place(queue);
                let has_subscribers = |place: usize| {
                    let found = self.slots[place].as_ref();
                    found.is_some_and(|found| !found.subscribers.places.is_empty())
                };
                let stream = place.filter(|place| has_subscribers(*place));
                if let Some(place) = stream {
                    self.look_at_subscribers(place);
                }
                if let Some(place) = place
                    && let Some(found) = &mut self.slots[place]
                {
                    found.apply_settle(queue.priority(), outcome, &ranges, at, effects);
                    if found.is_gone && !found.has_leaving() {
                        self.remove_queue(queue.base(), effects);
                    } else if !found.is_plain() {
                        // What came back, made room for what is to leave, or stood before what expires
                        // is seen to at the end.
                        self.touched.push(place);
                    }
                }
                if let Some(place) = stream {
                    self.tell_of_gaps(place, effects);
                }
            }
            Command::CreateQueue { queue, settings } => self.create(queue, settings, effects),
            Command::DropQueue { queue } => self.drop_queue(queue, effects),
            Command::Cancel { queues, key } => {
                let (time_ms, is_leading) = (self.time_ms, self.is_leading);
                let mut last = None;
                for id in queues.iter() {
                    // Levels of one queue stand together, and one is enough to name it.
                    if last.replace(id.base()) == Some(id.base()) {
                        continue;
                    }
                    if let Some(queue) = self.queue_mut(id) {
                        // What it names may have come by the same entry.
                        queue.end_runs(time_ms, is_leading, effects);
                        queue
                            .levels_mut()
                            .for_each(|level| level.reading().cancel(key, time_ms, effects));
                    }
                }
            }
            Command::MarkDelivered { queue, to } => {
                if let Some(place) = self.place(queue)
                    && let Some(found) = &mut self.slots[place]
                {
                    found.mark_delivered(queue.priority(), to, self.is_leading, effects);
                    // What waited for it goes out at the end.
                    self.touched.push(place);
                }
            }
            Command::KeepMarks { queue } => {
                if let Some(found) = self.queue_mut(queue) {
                    found.keep_marks();
                }
            }
            Command::SetSettings { queue, revision, settings } => {
                let at = (self.time_ms, self.is_leading);
                if let Some(place) = self.place(queue)
                    && let Some(found) = self.slots[place].as_mut().filter(|found| !found.is_gone)
                {
                    let before = found.subscription();
                    found.set_settings((settings, revision), at, effects);
                    if let Some(before) = before {
                        self.set_to(place, before);
                    }
                    // Limits and times that are new are seen to at the end, and who waits is given what is ready.
                    self.touched.push(place);
                }
            }
            Command::Withhold { queue, step, ranges } => {
                let at = (self.time_ms, self.is_leading);
                if let Some(place) = self.place(queue)
                    && let Some(found) = self.slots[place].as_mut().filter(|found| !found.is_gone)
                {
                    found.apply_withholding(queue.priority(), (step, &ranges), at, effects);
                    // What is back goes out at the end, or is too much.
                    self.touched.push(place);
                }
            }
            Command::KeepChain => {
                self.chain.get_or_insert_with(|| Chain::new(self.applied_index));
            }
            Command::Numbered { producer, seq } => return Ok(self.producers.begin(producer, seq)),
            Command::Catalog(_) => {
                return Err(Corrupt::new("a catalog command in a group of queues"));
            }
        }
        Ok(true)
    }

    /// The command about a lock that is number `nth` of its entry.
    fn lock(&mut self, nth: u16, command: Command<'_>, effects: &mut Vec<Effect>) {
        let Command::Lock(command) = command else { return };
        let place = Place { index: self.applied_index, nth, time_ms: self.time_ms };
        let reply = self.locks.apply(place, *command);
        if self.is_leading {
            effects.push(Effect::Locked(reply));
        }
    }

    fn create(&mut self, id: QueueId, settings: QueueSettings, effects: &mut Vec<Effect>) {
        let id = id.base();
        if self.places.contains_key(&id) {
            return;
        }
        let mut queue = Queue::new(id, settings);
        if let Some(subscription) = queue.subscription()
            && !self.subscribe(&mut queue, subscription)
        {
            return;
        }
        let place = self.insert(queue);
        self.link(place);
        if self.is_leading
            && let Some(queue) = &mut self.slots[place]
        {
            queue.lead(self.now_ms);
            if self.is_dispatching {
                queue.begin_new(self.now_ms);
            }
            self.touched.push(place);
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

    /// A queue that has dead messages on their way out stays for their sake alone.
    fn drop_queue(&mut self, id: QueueId, effects: &mut Vec<Effect>) {
        let id = id.base();
        let (time_ms, is_leading) = (self.time_ms, self.is_leading);
        let Some(place) = self.place(id) else { return };
        // Nobody reads what is not there.
        for subscription in self.subscribers_of(place) {
            self.drop_queue(subscription, effects);
            // Its dead letters are messages of the stream.
            self.remove_queue(subscription, effects);
        }
        let Some(queue) = self.slots[place].as_mut().filter(|queue| !queue.is_gone) else { return };
        queue.end_runs(time_ms, is_leading, effects);
        for (consumer, _, is_attached) in queue.consumers.holders() {
            self.sessions.remove(&(consumer.session, id));
            if is_attached {
                effects.push(Effect::Cancelled { queue: id, consumer });
            }
        }
        if queue.has_leaving() {
            queue.retain_dead_only(effects);
            self.look_after(id);
        } else {
            self.remove_queue(id, effects);
        }
    }

    fn remove_queue(&mut self, id: QueueId, effects: &mut Vec<Effect>) {
        let Some(place) = self.places.remove(&id) else { return };
        self.cache = [NOWHERE; CACHE];
        self.free.push(place);
        self.unlogged.remove(&id);
        let Some(queue) = self.slots[place].take() else { return };
        if let Some(due_ms) = queue.timer {
            self.timers.remove(&(due_ms, id));
        }
        let mut counters = queue.counters();
        counters.dropped += queue.kept_len() + std::mem::take(&mut counters.passed_over);
        self.retired.add(&counters);
        if let Some(subscription) = queue.subscription() {
            self.unlink(place, subscription);
            // Whatever its level is called now.
            effects.push(Effect::Dropped { queue: id });
            return;
        }
        effects.extend(queue.levels().map(|level| Effect::Dropped { queue: level.id() }));
    }

    /// Runs end with their entry.
    fn end_runs(&mut self, effects: &mut Vec<Effect>) {
        let (time_ms, is_leading) = (self.time_ms, self.is_leading);
        for place in &self.touched {
            if let Some(queue) = &mut self.slots[*place] {
                queue.end_runs(time_ms, is_leading, effects);
            }
        }
        self.reach_subscribers();
    }

    /// What is ready goes out.
    fn serve_touched(&mut self, effects: &mut Vec<Effect>) {
        let time_ms = self.time_ms;
        let mut touched = std::mem::take(&mut self.touched);
        if self.is_dispatching {
            for place in &touched {
                self.look_if_held(*place);
                if let Some(queue) = &mut self.slots[*place] {
                    queue.serve_entry(time_ms, self.now_ms, effects);
                    queue.look_ahead(self.now_ms);
                    self.is_awaited |= queue.is_held_up();
                    if queue.has_settles() {
                        self.unlogged.insert(queue.id);
                    }
                    if queue.wants_sifting() {
                        self.unsifted.push(queue.id);
                    }
                    let due_ms = queue.next_due();
                    if due_ms != queue.timer {
                        let id = queue.id;
                        self.set_timer(id, due_ms);
                    }
                }
            }
        }
        touched.clear();
        self.touched = touched;
    }
}

/// What can be asked.
impl QueueMachine {
    pub fn status(&self, queue: QueueId) -> Option<QueueStatus> {
        self.queue(queue).filter(|queue| !queue.is_gone).map(|queue| queue.status(self.now_ms))
    }

    /// Which messages a store keeps, wherever they are: of a queue, or of a level of it. Whoever looks after
    /// their bytes asks this.
    pub fn kept(&self, store: QueueId) -> Option<Seqs<'_>> {
        Some(self.queue(store)?.level(store.priority())?.kept())
    }

    /// Which messages wait for a consumer: leader only.
    pub fn ready(&self, queue: QueueId) -> Option<Seqs<'_>> {
        Some(self.queue(queue)?.level(queue.priority())?.waiting())
    }

    /// The number that the next message of the queue gets.
    pub fn next_seq(&self, queue: QueueId) -> Option<u64> {
        Some(self.queue(queue)?.level(queue.priority())?.store.next_seq)
    }

    /// Whether it is a stream.
    pub fn is_stream(&self, queue: QueueId) -> bool {
        self.queue(queue).is_some_and(|queue| queue.settings.is_stream())
    }

    /// The message of a stream at which somebody begins to read who asks for `offset`: the oldest that is kept, or a
    /// later one, which may have to come yet. None: there is no such stream.
    pub fn seq_at(&self, queue: QueueId, offset: StreamOffset) -> Option<u64> {
        stream::seq_at(&self.queue(queue).filter(|queue| !queue.is_gone)?.main, offset, self.now_ms)
    }

    pub fn settings(&self, queue: QueueId) -> Option<&QueueSettings> {
        self.queue(queue).map(|queue| &queue.settings)
    }

    /// Which change of the catalog the queue's settings are from. 0: they are as declared.
    pub fn revision(&self, queue: QueueId) -> Option<u64> {
        self.queue(queue).map(|queue| queue.revision)
    }

    /// Who consumes from the queue: leader only.
    pub fn consumers(&self, queue: QueueId) -> Vec<(ConsumerId, ConsumerSpec)> {
        let Some(queue) = self.queue(queue) else { return Vec::new() };
        let holders = queue.consumers.holders().filter(|(_, _, is_attached)| *is_attached);
        holders.map(|(id, holder, _)| (id, holder.spec)).collect()
    }

    /// All queues, by id, but for those that are there for their dead messages alone.
    pub fn queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        let is_there = |place: usize| self.slots[place].as_ref().is_some_and(|it| !it.is_gone);
        self.places.iter().filter(move |(_, place)| is_there(**place)).map(|(id, _)| *id)
    }

    /// All stores, by id: each level of each queue is one, but for subscriptions.
    pub fn stores(&self) -> impl Iterator<Item = QueueId> + '_ {
        let queues = self.places.values().filter_map(|place| self.slots[*place].as_ref());
        let queues = queues.filter(|queue| queue.subscription().is_none());
        let mut stores: Vec<_> = queues.flat_map(|it| it.levels().map(Level::id)).collect();
        stores.sort_unstable();
        stores.into_iter()
    }

    /// The last numbered batch of a producer that was applied; 0: none of that boot.
    pub fn last_numbered(&self, producer: ProducerId) -> u64 {
        self.producers.last(producer)
    }

    /// Whether the process that this is the producer of is known to be dead: its numbered batches are skipped.
    pub fn is_over(&self, producer: ProducerId) -> bool {
        self.producers.is_over(producer)
    }

    /// Numbered batches skipped because they had been applied before, and because one before them was missing.
    pub fn skipped_batches(&self) -> (u64, u64) {
        self.producers.skipped()
    }

    /// Messages that came for queues that are gone.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The books of the queues that are gone, summed.
    pub fn retired(&self) -> &Counters {
        &self.retired
    }

    /// The locks of the group.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The books of one queue.
    pub fn balance(&self, queue: QueueId) -> Option<Balance> {
        self.queue(queue).map(Queue::balance)
    }

    /// The checksum of what entries did, up to the last one that was applied: equal on all replicas at equal index.
    /// None: none is kept yet.
    pub fn chain(&self) -> Option<u64> {
        self.chain.as_ref().map(Chain::value)
    }

    /// The time of the last entry applied, ms since 1970: no later one is applied at an earlier time.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The last entry applied.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    #[inline]
    fn place(&mut self, id: QueueId) -> Option<usize> {
        let id = id.base();
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
        self.slots[*self.places.get(&id.base())?].as_ref()
    }
}
