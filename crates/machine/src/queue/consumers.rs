//! Who consumes from a queue, how much more each may hold, and whose turn it is.
//!
//! Leader-local. A holder is a consumer, or somebody who fetched single messages; it stays until it
//! is detached and holds nothing. Consumers with credit stand in a line per priority. In a queue with a
//! single active consumer one is served until it is gone, then the next in line; a partition with an assignment serves the
//! one that it is assigned to (`assignment`), and one of several partitions with a single active consumer together the one
//! that was elected (`election`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;

use super::assignment::{self, Assignment};
use super::election::Election;
use super::holder::{ConsumerSpec, Held, Holder, Place};
use super::weight::{ConsumerChange, Weight};
use crate::ids::{ConsumerId, SessionId};
use crate::limits::DRAIN_MS_MAX;
use crate::ranges::Ranges;

/// Why a consumer was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// No such queue, or it is being deleted.
    NoQueue,
    /// One of the two consumers wants to be the only one.
    ExclusiveUse,
    /// This replica does not lead its group.
    NotLeading,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Consumers {
    holders: BTreeMap<ConsumerId, Holder>,
    /// Attached consumers with credit that are not paused.
    line: BTreeMap<Place, ConsumerId>,
    places: u64,
    attached: u32,
    exclusive: Option<ConsumerId>,
    held_count: u64,
    /// One is served at a time.
    is_single: bool,
    /// Which, if that is decided.
    active: Option<ConsumerId>,
    /// Which of several partitions this is, where each serves the one that is assigned to it.
    assignment: Option<Assignment>,
    /// One is served at a time by all partitions together.
    election: Option<Election>,
    /// The one that is to be served, of an assignment or election; `None`: it is to be worked out.
    assigned: Option<ConsumerId>,
    /// Who was served last, and since when.
    served: Option<(ConsumerId, u64)>,
    /// Until when others may settle what they hold, if that is waited for.
    drains_until_ms: Option<u64>,
}

impl Consumers {
    pub(crate) fn new(is_single: bool, assignment: Option<Assignment>) -> Self {
        if is_single {
            let election = assignment.and_then(Election::of);
            return Self { is_single, election, ..Self::default() };
        }
        Self { is_single: assignment.is_some(), assignment, ..Self::default() }
    }

    /// There may be more partitions now.
    pub(crate) fn assign(&mut self, assignment: Option<Assignment>) {
        if self.assignment.is_some() && assignment.is_some() {
            (self.assignment, self.assigned) = (assignment, None);
        } else if self.is_single && self.election.is_none() {
            self.election = assignment.and_then(Election::of);
        }
    }

    /// Consumers came or went: who is served is to be worked out.
    fn changed(&mut self) {
        self.assigned = None;
        self.election.iter_mut().for_each(Election::changed);
    }

    /// Elects the single active consumer of all partitions, if that is to be done here. Gives who is to be told which
    /// generation.
    pub(crate) fn elect(&mut self, now_ms: u64) -> Vec<(ConsumerId, u64)> {
        let Some(election) = &mut self.election else { return Vec::new() };
        election.elect(&mut self.holders, self.active, now_ms)
    }

    pub(crate) fn attach(
        &mut self,
        consumer: ConsumerId,
        spec: ConsumerSpec,
    ) -> Result<(), AttachError> {
        let others = self.attached - u32::from(self.is_attached(consumer));
        let exclusive_other = self.exclusive.is_some_and(|holder| holder != consumer);
        if exclusive_other || (spec.exclusive && (others > 0 || self.is_single)) {
            return Err(AttachError::ExclusiveUse);
        }
        self.leave_line(consumer);
        let holder = self.holders.entry(consumer).or_default();
        if !holder.is_attached {
            self.attached += 1;
            self.places += 1;
            holder.arrival = self.places;
        }
        (holder.spec, holder.told) = (spec, spec.generation);
        holder.credit = 0;
        holder.is_attached = true;
        self.changed();
        self.exclusive = spec.exclusive.then_some(consumer);
        self.add_credit(consumer, spec.credit);
        Ok(())
    }

    /// Takes the consumer out of the line for good. Says whether it was attached.
    pub(crate) fn detach(&mut self, consumer: ConsumerId) -> bool {
        self.leave_line(consumer);
        let Some(holder) = self.holders.get_mut(&consumer) else { return false };
        let was_attached = std::mem::take(&mut holder.is_attached);
        if was_attached {
            self.attached -= 1;
            self.changed();
        }
        if self.exclusive == Some(consumer) {
            self.exclusive = None;
        }
        if self.active == Some(consumer) {
            self.active = None;
        }
        was_attached
    }

    pub(crate) fn add_credit(&mut self, consumer: ConsumerId, add: u32) {
        let Some(holder) = self.holders.get_mut(&consumer) else { return };
        if !holder.is_attached {
            return;
        }
        holder.credit = holder.credit.saturating_add(add);
        if holder.credit > 0 && holder.place.is_none() && !holder.spec.is_paused {
            self.places += 1;
            let place = (Reverse(holder.spec.priority), self.places);
            holder.place = Some(place);
            self.line.insert(place, consumer);
        }
    }

    /// What it holds stays with it, and so does its credit.
    pub(crate) fn change(&mut self, consumer: ConsumerId, change: ConsumerChange) {
        match change {
            ConsumerChange::Pause(is_paused) => self.pause(consumer, is_paused),
            ConsumerChange::Weigh(weight) => self.weigh(consumer, weight),
        }
    }

    /// Partitions may be assigned to others from now on.
    fn weigh(&mut self, consumer: ConsumerId, weight: Weight) {
        let holder = self.holders.get_mut(&consumer).filter(|holder| holder.is_attached);
        let Some(holder) = holder.filter(|holder| holder.spec.weight != weight) else { return };
        holder.spec.weight = weight;
        if self.assignment.is_some() {
            self.assigned = None;
        }
    }

    /// It is given nothing from now on, or goes on.
    fn pause(&mut self, consumer: ConsumerId, is_paused: bool) {
        let Some(holder) = self.holders.get_mut(&consumer).filter(|it| it.is_attached) else {
            return;
        };
        holder.spec.is_paused = is_paused;
        if is_paused {
            self.leave_line(consumer);
        } else {
            self.add_credit(consumer, 0);
        }
    }

    fn leave_line(&mut self, consumer: ConsumerId) {
        let Some(holder) = self.holders.get_mut(&consumer) else { return };
        if let Some(place) = holder.place.take() {
            self.line.remove(&place);
        }
    }

    /// A single message for somebody who need not be attached.
    pub(crate) fn hold(&mut self, consumer: ConsumerId, level: u8, seq: u64) {
        let holder = self.holders.entry(consumer).or_default();
        self.held_count += holder.held.of(level).insert(seq..seq + 1);
    }

    /// Messages that somebody, who need not be attached, says it has.
    pub(crate) fn hold_all(&mut self, consumer: ConsumerId, level: u8, seqs: &Ranges) {
        let holder = self.holders.entry(consumer).or_default();
        self.held_count += holder.held.of(level).insert_all(seqs);
    }

    /// What of `ranges` somebody holds.
    pub(crate) fn held_of(&self, level: u8, ranges: &Ranges) -> Ranges {
        let mut found = Ranges::new();
        for holder in self.holders.values() {
            for (_, held) in holder.held.all().filter(|(of, _)| *of == level) {
                found.insert_all(&held.intersect(ranges));
            }
        }
        found
    }

    /// Moves what the consumer really holds of `ranges` to `into`. None: it holds nothing here.
    pub(crate) fn release(
        &mut self,
        consumer: ConsumerId,
        level: u8,
        ranges: &Ranges,
        into: &mut Ranges,
    ) -> u64 {
        let Some(holder) = self.holders.get_mut(&consumer) else { return 0 };
        let held = holder.held.of(level);
        let count = ranges.ranges().map(|range| held.take(range, into)).sum();
        assert!(count <= self.held_count, "what one holds is part of what all hold");
        self.held_count -= count;
        count
    }

    /// Nobody holds these any more, whoever did.
    pub(crate) fn lose(&mut self, level: u8, ranges: &Ranges) {
        let mut lost = Ranges::new();
        for holder in self.holders.values_mut() {
            let held = holder.held.of(level);
            ranges.ranges().for_each(|range| self.held_count -= held.take(range, &mut lost));
        }
    }

    /// Forgets a holder that is neither attached nor holds anything. Says whether it did.
    pub(crate) fn forget_if_idle(&mut self, consumer: ConsumerId) -> bool {
        let is_idle = self
            .holders
            .get(&consumer)
            .is_some_and(|holder| !holder.is_attached && holder.held.is_empty());
        if is_idle {
            self.holders.remove(&consumer);
        }
        is_idle
    }

    /// Removes everybody of a session. Returns what they held, and whether one was attached.
    pub(crate) fn end_session(&mut self, session: SessionId) -> (Held, bool) {
        let first = ConsumerId { session, number: 0 };
        let last = ConsumerId { session, number: u64::MAX };
        let all: Vec<ConsumerId> = self.holders.range(first..=last).map(|(id, _)| *id).collect();
        let mut held = Held::default();
        let mut was_attached = false;
        for consumer in all {
            was_attached |= self.detach(consumer);
            if let Some(holder) = self.holders.remove(&consumer) {
                held.insert_all(&holder.held);
            }
        }
        assert!(held.len() <= self.held_count, "what a session holds is part of what all hold");
        self.held_count -= held.len();
        (held, was_attached)
    }

    /// Who comes first to a queue with a single active consumer is the one, whoever comes later.
    pub(crate) fn decide_active(&mut self) {
        if self.is_single {
            self.active();
        }
    }

    /// The one to serve of a queue with a single active consumer: who is, or else who holds messages, or
    /// has the highest priority, or came first.
    fn active(&mut self) -> Option<ConsumerId> {
        if self.is_handed_over() {
            return self.hand_over();
        }
        if self.active.is_none() {
            let attached = self.holders.iter().filter(|(_, holder)| holder.is_attached);
            let first = attached.min_by_key(|(_, holder)| holder.precedence());
            self.active = first.map(|(consumer, _)| *consumer);
        }
        self.active
    }

    /// Whether who is served is told from outside, and waits for what others hold.
    fn is_handed_over(&self) -> bool {
        self.assignment.is_some() || self.election.is_some()
    }

    /// The one that a partition is assigned to, or that was elected, once nobody else holds anything. Until then nobody is
    /// served: what comes first is settled first.
    fn hand_over(&mut self) -> Option<ConsumerId> {
        if self.assigned.is_none() {
            self.assigned = self.work_out();
        }
        let wanted = self.assigned?;
        if self.active != Some(wanted) {
            let is_held = self.others_than(wanted).any(|(_, holder)| !holder.held.is_empty());
            if is_held && !planted::is("partition_not_drained") {
                return None;
            }
            self.active = Some(wanted);
        }
        self.active
    }

    fn work_out(&self) -> Option<ConsumerId> {
        if let Some(election) = &self.election {
            return election.served(&self.holders);
        }
        let attached = self.holders.iter().filter(|(_, holder)| holder.is_attached);
        let attached = attached.map(|(consumer, holder)| (*consumer, holder.spec.weight));
        assignment::assigned(self.assignment?, attached)
    }

    /// Those whose messages are waited for. One that is detached keeps what it holds where one is elected, as in any
    /// queue with a single active consumer.
    fn others_than(&self, wanted: ConsumerId) -> impl Iterator<Item = (&ConsumerId, &Holder)> {
        let is_elected = self.election.is_some();
        self.holders
            .iter()
            .filter(move |(id, holder)| **id != wanted && (holder.is_attached || !is_elected))
    }

    /// After consumers were served: who it is now, and whether one waits for what others hold.
    pub(crate) fn watch_drain(&mut self, now_ms: u64) {
        if self.is_handed_over() && self.active != self.served.map(|(served, _)| served) {
            self.served = self.active.map(|active| (active, now_ms));
        }
        let is_held = |wanted| self.others_than(wanted).any(|(_, holder)| !holder.held.is_empty());
        let waits = self.is_handed_over()
            && self.held_count > 0
            && self.assigned != self.active
            && self.assigned.is_some_and(is_held);
        self.drains_until_ms = match (waits, self.drains_until_ms) {
            (true, None) => Some(now_ms.saturating_add(DRAIN_MS_MAX)),
            (true, until_ms) => until_ms,
            (false, _) => None,
        };
    }

    /// When what others hold is taken back.
    pub(crate) fn drains_until_ms(&self) -> Option<u64> {
        self.drains_until_ms
    }

    /// What all but the one hold that is to be served, by level.
    pub(crate) fn held_by_others(&self) -> Vec<(ConsumerId, u8, Ranges)> {
        let others = self.assigned.into_iter().flat_map(|wanted| self.others_than(wanted));
        let all = others.flat_map(|(consumer, holder)| {
            holder.held.all().map(|(level, held)| (*consumer, level, held.clone()))
        });
        all.filter(|(_, _, held)| !held.is_empty()).collect()
    }

    /// Whether another consumer is to be served as soon as nobody holds anything.
    pub(crate) fn hands_over(&self) -> bool {
        self.is_handed_over() && (self.assigned.is_none() || self.assigned != self.active)
    }

    /// The consumer to serve next.
    pub(crate) fn next_turn(&mut self) -> Option<Turn<'_>> {
        let (place, consumer, is_alone) = if self.is_single {
            let active = self.active()?;
            (self.holders.get(&active)?.place?, active, true)
        } else {
            let mut line = self.line.iter();
            let (&place, &consumer) = line.next()?;
            (place, consumer, line.next().is_none_or(|((other, _), _)| *other != place.0))
        };
        let entry = match self.holders.entry(consumer) {
            std::collections::btree_map::Entry::Occupied(entry) => entry,
            std::collections::btree_map::Entry::Vacant(_) => {
                unreachable!("who stands in line is a holder: both change together")
            }
        };
        Some(Turn {
            entry,
            place,
            is_alone,
            line: &mut self.line,
            places: &mut self.places,
            held_count: &mut self.held_count,
        })
    }

    pub(crate) fn has_session(&self, session: SessionId) -> bool {
        let first = ConsumerId { session, number: 0 };
        let last = ConsumerId { session, number: u64::MAX };
        self.holders.range(first..=last).next().is_some()
    }

    /// How many messages consumers would take if they came now.
    pub(crate) fn free_credit(&mut self) -> u64 {
        let credit = |holder: &Holder| u64::from(holder.credit);
        if self.is_single {
            let active = self.active().and_then(|active| self.holders.get(&active));
            let goes_on = |holder: &&Holder| holder.is_attached && !holder.spec.is_paused;
            return active.filter(goes_on).map_or(0, credit);
        }
        let in_line = self.line.values().filter_map(|consumer| self.holders.get(consumer));
        in_line.map(credit).sum()
    }

    /// How many stand in line.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    pub(crate) fn attached(&self) -> u32 {
        self.attached
    }

    pub(crate) fn is_attached(&self, consumer: ConsumerId) -> bool {
        self.holders.get(&consumer).is_some_and(|holder| holder.is_attached)
    }

    /// Whether it is the one to be served, where that is one at a time and decided.
    pub(crate) fn is_active(&self, consumer: ConsumerId) -> bool {
        self.active == Some(consumer)
    }

    /// Since when the one is served, where that is told from outside.
    pub(crate) fn active_since_ms(&self) -> Option<u64> {
        let (served, since_ms) = self.served?;
        self.is_active(served).then_some(since_ms)
    }

    /// How many are attached or hold something.
    pub(crate) fn holder_count(&self) -> usize {
        self.holders.len()
    }

    /// Messages that somebody holds.
    pub(crate) fn held_count(&self) -> u64 {
        self.held_count
    }

    /// Everybody, and whether attached.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (ConsumerId, &Holder, bool)> {
        self.holders.iter().map(|(id, holder)| (*id, holder, holder.is_attached))
    }
}

/// A consumer being served; `end` puts it back in line while it has credit.
pub(crate) struct Turn<'a> {
    entry: OccupiedEntry<'a, ConsumerId, Holder>,
    place: Place,
    is_alone: bool,
    line: &'a mut BTreeMap<Place, ConsumerId>,
    places: &'a mut u64,
    held_count: &'a mut u64,
}

impl Turn<'_> {
    pub(crate) fn consumer(&self) -> ConsumerId {
        *self.entry.key()
    }

    /// Nobody else of its standing has credit.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    pub(crate) fn holder(&mut self) -> &mut Holder {
        self.entry.get_mut()
    }

    pub(crate) fn end(mut self, held: u64) {
        *self.held_count += held;
        let consumer = self.consumer();
        let holder = self.entry.get_mut();
        if holder.credit > 0 && self.is_alone {
            return;
        }
        self.line.remove(&self.place);
        holder.place = None;
        if holder.credit > 0 {
            *self.places += 1;
            let place = (self.place.0, *self.places);
            holder.place = Some(place);
            self.line.insert(place, consumer);
        }
    }
}
