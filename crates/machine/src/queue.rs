//! All queues of one group: the replicated half, and what only the leader knows.
//!
//! Replicated (`apply`, in snapshots, equal on every replica): how many messages each queue has stored, and
//! which of them are not settled (open), by sequence number; settings; the books. Messages themselves
//! stay where the log or a segment has them: this machine never copies a body.
//!
//! Leader-local (everything else, begun by `lead`, lost with the leader): which open messages are
//! ready, who consumes with how much credit, who holds what, and what was settled but is not in the
//! log yet. A settled message leaves the leader's books at once and the replicated ones when its
//! `Settle` is applied.
//!
//! Sequence numbers count from 1 per level and are never used twice. A message keeps its number
//! wherever it goes, so a requeued one is back in its place by being ready again. A queue has one level,
//! or one for each priority: a store and its one reader. What is kept is asked of the store, what is
//! open of the reader.
//!
//! A message in its queue, at the leader:
//!
//! ```text
//!  enqueued ──────────────────────> ready ──delivered──> held ──acked──> settled ──entry applied──> gone
//!     └──x-delay──> delayed ──due──> │ ^                  │
//!                    │  ^            │ └─────requeued─────┤  back in its place
//!         cancelled: │  └────────────┼───delayed retry────┤
//!               gone v               └──> dead, pending <─┘  expired, over a limit; rejected, delivery limit
//!  dead, pending ──stored in all its targets──> gone   (no dead-letter exchange: gone at once, or in QUEUE.dead)
//! ```
//!
//! What is ready can be purged so that it comes back to its place if somebody asks for it in time (`withholding`).
//!
//! In a paused queue nothing goes from ready to held, and in one with a rate only what the rate lets out (`pace`). All
//! other arrows are as ever.
//!
//! Time is the entries': when a message expires or is due follows from the time of the entry that
//! brought it. The leader's clock decides when that has come, and what then becomes of a message is
//! logged.

mod assignment;
mod chain;
mod check;
pub(crate) mod consumers;
mod context;
mod dedup;
mod election;
mod end;
mod holder;
mod key_pace;
pub(crate) mod level;
mod machine;
mod open;
mod pace;
pub(crate) mod reader;
mod reconcile;
mod seqs;
mod served;
mod sieve;
mod standing;
mod store;
mod stream;
mod subscription;
mod timeline;
mod turns;
mod weight;
mod withholding;

use std::ops::Range;

pub use assignment::Assignment;
pub use consumers::AttachError;
pub use holder::{ConsumerSpec, StreamOffset};
pub use machine::{
    Attached, Front, HolderDescription, MessageDescription, MessageState, PeekFilter, Position,
    QueueDescription, QueueMachine, QueuePeek,
};
pub use pace::HeldBack;
pub use reconcile::{Balance, Counters};
pub use seqs::Seqs;
pub use sieve::Sifted;
pub use weight::{Capacity, ConsumerChange, Weight};
pub use withholding::Withheld;

use crate::command::Outcome;
use crate::encoding::{Corrupt, Reader, put_u64};
use crate::ids::{ConsumerId, QueueId};
use crate::locks::LockReply;
use crate::ranges::Ranges;
use crate::scheduler::loan::Ask;
use crate::settings::{Features, QueueSettings, Rates, Retention, Subscription, TokenHome};
use consumers::Consumers;
use context::Context;
use dedup::KeyWindow;
use level::Level;
use pace::{Pace, Tokens};
use reconcile::Moves;
use sieve::Sieve;
use subscription::Subscribers;
use timeline::Timeline;
use withholding::UnderWay;

/// What follows from a command or call, in order, for whoever runs the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A run of messages came in.
    Enqueued {
        queue: QueueId,
        first_seq: u64,
        count: u32,
        /// Where they are in the entry: whole commands, with at most
        /// `limits::FOREIGN_COMMANDS_MAX` in a row that are not for this queue.
        bytes: Range<usize>,
    },
    /// Messages left a queue for good.
    Settled { queue: QueueId, ranges: Ranges },
    /// A queue came to be.
    Created { queue: QueueId },
    /// A queue and all its messages are gone.
    Dropped { queue: QueueId },
    /// Messages go to a consumer: leader only.
    Deliver {
        queue: QueueId,
        consumer: ConsumerId,
        first_seq: u64,
        count: u32,
        /// A client may have seen all of them before; otherwise none was ever seen.
        redelivered: bool,
        /// They are settled already.
        no_ack: bool,
        /// How often each of them came back before, in a queue that counts that.
        returns: u32,
        /// They leave when the log has heard that they do: as far as the last `Marked` says.
        waits: bool,
    },
    /// Deliveries that wait leave below `to`: leader only.
    Marked { queue: QueueId, to: u64 },
    /// Dead messages are to be stored elsewhere, then settled as `Outcome::DeadLettered`: leader only.
    Leave {
        queue: QueueId,
        first_seq: u64,
        count: u32,
        /// Why they are dead.
        reason: Outcome,
    },
    /// A consumer's queue is gone.
    Cancelled { queue: QueueId, consumer: ConsumerId },
    /// The last consumer of an auto-delete queue went; the queue takes no more of them.
    Unused { queue: QueueId },
    /// It has no tokens for what it would give out: `QueueMachine::lend` of the other is to be asked, and
    /// `QueueMachine::lent` told the answer. Leader only.
    Borrow { queue: QueueId, of: TokenHome, ask: Ask },
    /// It is, or is no more, the one active consumer of all partitions: its session is told the generation, or 0. Leader
    /// of the first partition only.
    Elected { queue: QueueId, consumer: ConsumerId, generation: u64 },
    /// What a command about a lock came to: one for each, in their order; leader only.
    Locked(LockReply),
}

/// What a fetch of a single message came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetReply {
    /// The last effect, an `Effect::Deliver`, has it; `ready` are left. Those before are for consumers.
    Delivered { ready: u64 },
    /// Nothing is ready.
    Empty,
    /// This replica leads, and does not know yet what others hold: ask again once
    /// `QueueMachine::is_dispatching`. Or the log has to hear first that the message goes out: ask again
    /// when what `take_settled` gives is applied.
    NotYet,
    /// No such queue, or this replica does not lead.
    NoQueue,
}

/// Why a queue may not be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseError {
    NoQueue,
    /// It has consumers.
    InUse,
    /// It has ready messages.
    NotEmpty,
}

/// A queue as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    pub ready: u64,
    /// Out with consumers.
    pub unsettled: u64,
    pub consumers: u32,
    /// Not due yet.
    pub delayed: u64,
    /// Dead, and not stored yet where they are to go.
    pub leaving: u64,
    pub counters: Counters,
    pub held_back: HeldBack,
}

/// One queue.
#[derive(Clone, Debug)]
struct Queue {
    id: QueueId,
    // Replicated.
    settings: QueueSettings,
    /// Which change of the catalog the settings are from. 0: they are as declared.
    revision: u64,
    /// Of priority 0: the only one of most queues.
    main: Level,
    /// Of priorities from 1 on.
    levels: Vec<Level>,
    /// Which keys came lately, where that counts.
    window: Option<Box<KeyWindow>>,
    /// It was deleted, and has only dead messages still, which are to be stored elsewhere.
    is_gone: bool,
    // Leader-local.
    consumers: Consumers,
    is_closing: bool,
    /// A consumer went before all that there may be had come.
    has_lost: bool,
    /// Since when it has no consumer and nobody asked for it, ms since 1970.
    unused_since_ms: u64,
    admitted: Admitted,
    /// Credit that comes back when what was returned with it is ready again.
    owed: Vec<(ConsumerId, u32)>,
    /// When it is looked at next: what the machine's timers say of it.
    timer: Option<u64>,
    /// When a stream looked last for messages that are too old, ms since 1970.
    aged_ms: u64,
    /// Who reads the stream as a subscription.
    subscribers: Subscribers,
    /// What its rates let out and in. None: it has none, or is led elsewhere.
    pace: Option<Box<Pace>>,
    /// A purge that can be undone, or its undoing, until whoever asked for it is told.
    under_way: Option<UnderWay>,
}

/// Room that is kept for messages that were admitted and have not come.
#[derive(Clone, Copy, Debug, Default)]
struct Admitted {
    count: u64,
    bytes: u64,
    until_ms: u64,
}

/// Those of a queue that nobody consumes from.
fn consumers_of(features: Option<&Features>) -> Consumers {
    let is_single = features.is_some_and(|features| features.single_active);
    Consumers::new(is_single, features.and_then(|features| features.assignment))
}

impl Queue {
    fn new(id: QueueId, settings: QueueSettings) -> Self {
        let features = settings.features.as_deref();
        let max_priority = features.map_or(0, |features| features.max_priority);
        let has_window = features.is_some_and(|features| features.dedup.is_some());
        let mut main = Level::new(id);
        main.store.timeline = settings.is_stream().then(Box::default);
        main.reader.sieve = Sieve::of(features);
        Self {
            id,
            main,
            levels: (1..=max_priority).map(|priority| Level::new(id.level(priority))).collect(),
            window: has_window.then(Box::default),
            is_gone: false,
            consumers: consumers_of(features),
            settings,
            revision: 0,
            is_closing: false,
            has_lost: false,
            unused_since_ms: 0,
            owed: Vec::new(),
            admitted: Admitted::default(),
            timer: None,
            aged_ms: 0,
            pace: None,
            under_way: None,
            subscribers: Subscribers::default(),
        }
    }

    fn subscription(&self) -> Option<Subscription> {
        self.settings.subscription()
    }

    /// It begins at `seq` of a stream that ends at `end`.
    fn subscribe(&mut self, seq: u64, end: u64) {
        self.main.store.next_seq = end;
        self.main.reading().begin_at(seq);
    }

    /// It goes on at `seq`. What it gave out before is with whoever has it, and nobody's business any more.
    fn set_to(&mut self, seq: u64, is_leading: bool) {
        self.main.reading().set_to(seq, is_leading);
        let id = self.id.level(self.main.id().priority().wrapping_add(1));
        let Level { store, reader } = &mut self.main;
        (store.id, reader.id) = (id, id);
        for (consumer, credit) in self.owed.drain(..) {
            self.consumers.add_credit(consumer, credit);
        }
    }

    /// The oldest message that it holds in its stream.
    fn holds_from(&self) -> u64 {
        match self.subscription() {
            Some(subscription) if subscription.skips => u64::MAX,
            Some(_) | None => self.main.kept().first().unwrap_or(self.main.store.next_seq),
        }
    }

    fn features(&self) -> Option<&Features> {
        self.settings.features.as_deref()
    }

    fn rates(&self) -> Option<Rates> {
        self.features().map(|features| features.rates)
    }

    /// Whose tokens it gives out.
    fn tokens(&self) -> Tokens {
        match self.features().and_then(|features| features.tokens_of) {
            None => Tokens::Own,
            Some(home) if home.queue == self.id.base() => Tokens::Lends,
            Some(_) => Tokens::Borrows,
        }
    }

    /// Of a stream: what of it is kept.
    fn retention(&self) -> Option<Retention> {
        self.features().and_then(|features| features.stream)
    }

    /// The level with this number. Of a subscription the number says how often it was set to another place: what was
    /// given out before that is of no level any more.
    fn level(&self, number: u8) -> Option<&Level> {
        if number == self.main.id().priority() {
            return Some(&self.main);
        }
        self.levels.get(usize::from(number).wrapping_sub(1))
    }

    #[inline]
    fn level_mut(&mut self, number: u8) -> Option<&mut Level> {
        let is_any = planted::is("seek_old_answers") && self.subscription().is_some();
        if number == self.main.id().priority() || is_any {
            return Some(&mut self.main);
        }
        self.levels.get_mut(usize::from(number).wrapping_sub(1))
    }

    /// From the highest priority down.
    fn levels(&self) -> impl Iterator<Item = &Level> {
        self.levels.iter().rev().chain([&self.main])
    }

    fn levels_mut(&mut self) -> impl Iterator<Item = &mut Level> {
        self.levels.iter_mut().rev().chain([&mut self.main])
    }

    /// Ends the runs that are being gathered: their messages are in the queue now.
    fn end_runs(&mut self, time_ms: u64, is_leading: bool, effects: &mut Vec<Effect>) {
        let cx = Context { features: self.settings.features.as_deref(), time_ms, is_leading };
        for level in self.levels.iter_mut() {
            level.end_run(cx, effects);
        }
        self.main.end_run(cx, effects);
    }

    /// No message has come yet.
    fn is_new(&self) -> bool {
        self.levels().all(|level| level.store.is_new())
    }

    /// Marks are kept from here on, and deliveries wait for them. It comes before any message does.
    fn keep_marks(&mut self) {
        if self.is_new() {
            self.levels_mut().for_each(|level| level.reader.delivered.track_deliveries());
        }
    }

    /// A mark from the log. Before any message comes, it says that marks are kept, and messages wait for them.
    fn mark_delivered(&mut self, level: u8, to: u64, is_leading: bool, effects: &mut Vec<Effect>) {
        let has_room = |features: &Features| {
            features.max_length.is_none() && features.max_length_bytes.is_none()
        };
        if self.is_new() && self.features().is_none_or(has_room) {
            self.levels_mut().for_each(|level| level.reader.delivered.track());
        }
        // A mark says the same of a subscription, however often that was set to another place since it was asked for.
        let level = if self.settings.subscription().is_some() {
            &mut self.main
        } else {
            let Some(level) = self.level_mut(level) else { return };
            level
        };
        level.reader.mark_delivered(to);
        if is_leading && level.reader.delivered.holds_deliveries() {
            let to = level.reader.delivered.marked_to();
            effects.push(Effect::Marked { queue: level.id(), to });
        }
    }

    /// The queue behaves as `new` says from here on, as far as that can change. Every node says so of every change
    /// of the catalog: what a later change has said already stays.
    fn set_settings(
        &mut self,
        (new, revision): (QueueSettings, u64),
        (time_ms, is_leading): (u64, bool),
        effects: &mut Vec<Effect>,
    ) {
        if revision <= self.revision {
            return;
        }
        let is_less = self.settings.features.is_some() && new.features.is_none();
        if is_less && !is_leading && planted::is("deleted_policy_stays") {
            self.revision = revision;
            return;
        }
        // What came before it in its entry came under the settings of before.
        self.end_runs(time_ms, is_leading, effects);
        self.settings = self.settings.changed_to(new);
        self.revision = revision;
        let assignment = self.features().and_then(|features| features.assignment);
        self.consumers.assign(assignment);
        if is_leading {
            self.pace = self
                .rates()
                .and_then(|it| Pace::changed(self.pace.as_deref(), &it, self.tokens(), time_ms));
            let per_key = self.rates().and_then(|rates| rates.dequeue_per_key);
            if let Some(turns) = self.turns_mut() {
                turns.change_rate(per_key, time_ms);
            }
        }
        self.touch(time_ms);
    }

    /// Asks the log for marks ahead of what consumers have credit for, and of what a client waits for.
    fn look_ahead(&mut self, now_ms: u64) {
        let consumers = &mut self.consumers;
        let has_consumers = consumers.attached() > 0;
        for level in self.levels.iter_mut().chain([&mut self.main]) {
            let front = level.front();
            let credit = || consumers.free_credit().saturating_add(consumers.held_count());
            level.reader.delivered.look_ahead(front, has_consumers, credit, now_ms);
        }
    }

    /// Whether something waits for its mark, which is not on its way to the log yet.
    fn is_held_up(&self) -> bool {
        let mut delivered = self.levels().map(|level| &level.reader.delivered);
        delivered.any(|delivered| delivered.is_awaited() && delivered.has_wanted())
    }

    /// A settle from the log.
    fn apply_settle(
        &mut self,
        level: u8,
        outcome: Outcome,
        ranges: &Ranges,
        (time_ms, is_leading): (u64, bool),
        effects: &mut Vec<Effect>,
    ) {
        if self.settings.is_stream() {
            let features = self.settings.features.as_deref();
            let cx = Context { features, time_ms, is_leading };
            // What a subscription holds now may be more than the leader knew.
            let mut ranges = ranges.clone();
            ranges.remove(self.subscribers.hold..u64::MAX);
            return stream::apply_trim(&mut self.main, outcome, &ranges, cx, effects);
        }
        let taken = match outcome {
            Outcome::Requeue | Outcome::Returned if is_leading => self.taken_of(level, ranges),
            Outcome::Done
            | Outcome::Rejected
            | Outcome::Purged
            | Outcome::Requeue
            | Outcome::Undelivered
            | Outcome::Expired
            | Outcome::Overflowed
            | Outcome::Exhausted
            | Outcome::DeadLettered
            | Outcome::PassedOver
            | Outcome::Returned => Ranges::new(),
        };
        let number = level;
        let is_main = level == self.main.id().priority() || self.is_of_any_level(outcome);
        let features = self.settings.features.as_deref();
        let cx = Context { features, time_ms, is_leading };
        let level = if is_main {
            Some(&mut self.main)
        } else {
            self.levels.get_mut(usize::from(level).wrapping_sub(1))
        };
        let Some(level) = level else { return };
        level.end_run(cx, effects);
        match outcome {
            Outcome::Undelivered => {}
            Outcome::Requeue | Outcome::Returned => {
                level.reading().come_back(outcome, ranges, &taken, cx);
                for (consumer, credit) in self.owed.drain(..) {
                    self.consumers.add_credit(consumer, credit);
                }
            }
            Outcome::Done
            | Outcome::Rejected
            | Outcome::Purged
            | Outcome::Expired
            | Outcome::Overflowed
            | Outcome::Exhausted
            | Outcome::DeadLettered
            | Outcome::PassedOver => level.reading().settle(outcome, ranges, cx, effects),
        }
        if is_leading {
            self.let_go_of_dead(number, ranges);
        }
    }

    /// Whether an outcome says the same of a subscription's messages however often that was set to another place since: a
    /// dead letter stays one.
    fn is_of_any_level(&self, outcome: Outcome) -> bool {
        let is_any = outcome == Outcome::DeadLettered || planted::is("seek_old_answers");
        is_any && self.subscription().is_some()
    }

    /// What dies by an entry may be held: an earlier leader was told of it, and this one gave it out since.
    fn let_go_of_dead(&mut self, level: u8, ranges: &Ranges) {
        let attributes = self.level(level).and_then(|level| level.reader.attributes.as_ref());
        let Some(attributes) = attributes.filter(|it| !it.leaving.is_empty()) else { return };
        let dead = attributes.leaving.within(ranges);
        if !dead.is_empty() {
            self.consumers.lose(level, &dead);
        }
    }

    /// What of `ranges` somebody holds, or settled again: an earlier leader may have been told that it comes
    /// back, and could not log it.
    fn taken_of(&self, level: u8, ranges: &Ranges) -> Ranges {
        let mut taken = self.consumers.held_of(level, ranges);
        if let Some(level) = self.level(level) {
            level.reader.gathered.add_within(ranges, &mut taken);
        }
        taken
    }

    /// After a consumer went: an auto-delete queue is over with its last one. Which that was is not known
    /// before all have joined, so until then it is only noted.
    fn close_if_unused(&mut self, have_all_joined: bool, effects: &mut Vec<Effect>) {
        self.has_lost = !have_all_joined;
        if self.has_lost {
            return;
        }
        if self.settings.is_auto_delete && self.consumers.attached() == 0 && !self.is_gone {
            self.close(effects);
        }
    }

    fn close(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_closing {
            self.is_closing = true;
            effects.push(Effect::Unused { queue: self.id });
        }
    }

    /// Whether dead messages are to be stored elsewhere still.
    fn has_leaving(&self) -> bool {
        let mut attributes = self.levels().filter_map(|level| level.reader.attributes.as_ref());
        attributes.any(|attributes| !attributes.leaving.is_empty())
    }

    /// It was deleted: nothing is left but its dead messages.
    fn retain_dead_only(&mut self, effects: &mut Vec<Effect>) {
        self.is_gone = true;
        self.window = None;
        self.consumers = Consumers::new(false, None);
        self.owed.clear();
        self.levels_mut().for_each(|level| level.reading().retain_dead_only(effects));
    }

    fn ready_len(&self) -> u64 {
        self.levels().map(|level| level.waiting().len()).sum()
    }

    fn ready_bytes(&self) -> u64 {
        self.levels().fold(0, |sum, level| sum.saturating_add(level.reader.ready_bytes()))
    }

    /// Bytes of what is ready, if they are counted; of a stream, of what it keeps.
    fn counted_bytes(&self) -> Option<u64> {
        match &self.main.store.timeline {
            Some(timeline) => Some(timeline.kept_bytes()),
            None => {
                let is_counted = self.features().is_some_and(|it| it.max_length_bytes.is_some());
                is_counted.then(|| self.ready_bytes())
            }
        }
    }

    fn front(&self) -> Front {
        let has_one_order = self.levels.is_empty() && !self.settings.is_stream();
        let first = || self.main.waiting().first_range().map(|range| range.start);
        let first_ready = if has_one_order { first() } else { None };
        Front { first_ready, next: self.main.store.end().0, ready_bytes: self.counted_bytes() }
    }

    fn kept_len(&self) -> u64 {
        self.levels().map(|level| level.kept().len()).sum()
    }

    fn has_settles(&self) -> bool {
        self.levels().any(|level| level.reader.has_wanted())
    }

    /// The books of all levels.
    fn counters(&self) -> Counters {
        let mut all = self.main.counters();
        self.levels.iter().for_each(|level| all.add(&level.counters()));
        all
    }

    fn balance(&self) -> Balance {
        Balance::of(&self.counters(), self.kept_len(), self.settings.is_stream())
    }

    fn status(&self, now_ms: u64) -> QueueStatus {
        let attributes = || self.levels().filter_map(|level| level.reader.attributes.as_ref());
        QueueStatus {
            ready: self.ready_len(),
            unsettled: self.consumers.held_count(),
            consumers: self.consumers.attached(),
            delayed: attributes().map(|attributes| attributes.delayed.waiting()).sum(),
            leaving: attributes().map(|attributes| attributes.leaving.len()).sum(),
            counters: self.counters(),
            held_back: self.held_back(now_ms),
        }
    }

    /// What rates hold back at `now_ms`, but for what is not published yet.
    fn held_back(&self, now_ms: u64) -> HeldBack {
        let due_ms = self.pace.as_ref().and_then(|pace| pace.due_ms());
        let Some(due_ms) = due_ms else { return HeldBack::default() };
        let wait_ms = due_ms.saturating_sub(now_ms);
        HeldBack { messages: self.ready_len(), wait_ms, publishes: 0 }
    }

    /// Whether a snapshot has to say of it that deliveries wait for marks.
    fn holds_deliveries(&self) -> bool {
        self.levels().any(|level| level.reader.delivered.holds_deliveries())
    }

    /// As a snapshot of this version has it.
    fn encode(&self, out: &mut Vec<u8>, version: u8) {
        put_u64(out, self.id.0);
        self.settings.encode(out);
        if version >= 6 {
            put_u64(out, self.revision);
        }
        out.push(u8::from(self.is_gone));
        if let Some(window) = &self.window {
            window.encode(out);
        }
        if self.settings.subscription().is_some() {
            out.push(self.main.id().priority());
            self.main.reader.books.moves.encode(out, self.settings.has_filter());
        }
        self.main.encode(out, version);
        if let Some(timeline) = &self.main.store.timeline {
            timeline.encode(out);
        }
        self.levels.iter().for_each(|level| level.encode(out, version));
    }

    /// As a snapshot of this version has it: 3 knows features, 4 what was delivered, 5 that deliveries
    /// wait for that, 6 changed settings, 7 streams.
    fn read(reader: &mut Reader<'_>, version: u8) -> Result<Self, Corrupt> {
        let id = QueueId(reader.u64()?);
        if id != id.base() {
            return Err(Corrupt::new("the number of a queue"));
        }
        let mut queue = Self::new(id, QueueSettings::read(reader)?);
        queue.settings.is_paused &= !planted::is("pause_not_restored");
        if version >= 6 {
            queue.revision = reader.u64()?;
        }
        if version >= 3 && reader.bool()? {
            queue.is_gone = true;
            queue.window = None;
        }
        if let Some(window) = &mut queue.window {
            **window = KeyWindow::read(reader)?;
        }
        let is_stream = queue.settings.is_stream();
        let (main_id, moves) = match queue.settings.subscription() {
            Some(_) => (id.level(reader.u8()?), Moves::read(reader, queue.settings.has_filter())?),
            None => (id, Moves::default()),
        };
        queue.main = Level::read(main_id, reader, version, moves)?;
        queue.main.reader.sieve = Sieve::of(queue.settings.features.as_deref());
        if is_stream {
            let end = queue.main.store.next_seq;
            let timeline = Timeline::read(reader, end)?;
            let is_kept = !planted::is("timeline_not_restored");
            let timeline = if is_kept { timeline } else { Timeline::default() };
            queue.main.store.timeline = Some(Box::new(timeline));
        }
        for level in &mut queue.levels {
            *level = Level::read(level.id(), reader, version, Moves::default())?;
        }
        Ok(queue)
    }
}
