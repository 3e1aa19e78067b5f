//! A queue on the node that leads it: what goes out, what is thrown away, what falls due.

use super::key_pace::KeyPace;
use super::level::Level;
use super::pace::Pace;
use super::turns::Turns;
use super::{Admitted, Effect, Queue, stream};
use crate::command::{Enqueue, Outcome};
use crate::ids::ConsumerId;
use crate::limits::ADMITTED_MS_MAX;
use crate::ranges::Ranges;
use crate::scheduler::dispatch::{dispatch, dispatch_below, dispatch_turns, dispatch_within};
use crate::scheduler::times::Times;
use crate::settings::{Overflow, Rate, Retention};

impl Queue {
    pub(super) fn lead(&mut self, now_ms: u64) {
        self.follow();
        self.unused_since_ms = now_ms;
        self.levels_mut().for_each(|level| level.reading().lead(now_ms));
    }

    pub(super) fn follow(&mut self) {
        self.consumers = super::consumers_of(self.features());
        self.levels_mut().for_each(|level| level.reader.follow());
        self.is_closing = false;
        self.has_lost = false;
        self.owed.clear();
        self.admitted = Admitted::default();
        self.timer = None;
        self.aged_ms = 0;
        self.subscribers.forget();
        self.pace = None;
        self.under_way = None;
    }

    /// All that may have come have: consumers are served, or the queue is over. Who led it before may give out messages
    /// up to `tokens_from_ms`: rates let nothing go before that.
    pub(super) fn begin(&mut self, now_ms: u64, tokens_from_ms: u64, effects: &mut Vec<Effect>) {
        self.pace = self
            .rates()
            .and_then(|rates| Pace::empty(&rates, self.tokens(), (now_ms, tokens_from_ms)));
        self.begin_key_pace(|rate| KeyPace::empty(rate, tokens_from_ms));
        if self.has_lost {
            self.close_if_unused(true, effects);
        }
        self.consumers.decide_active();
        self.serve(now_ms, effects);
        if planted::is("leader_forgets_pause") {
            dispatch(self.main.reading(), &mut self.consumers, now_ms, effects);
        }
        self.trim();
    }

    /// It came to be just now: nobody has given out anything of it.
    pub(super) fn begin_new(&mut self, now_ms: u64) {
        self.pace = self.rates().and_then(|rates| Pace::full(&rates, self.tokens(), now_ms));
        self.begin_key_pace(|rate| KeyPace::full(rate, now_ms));
    }

    fn begin_key_pace(&mut self, begin: impl Fn(Rate) -> KeyPace) {
        let rate = self.rates().and_then(|rates| rates.dequeue_per_key);
        if let Some(turns) = self.turns_mut() {
            turns.set_pace(rate.map(begin));
        }
    }

    /// Whether anything here has to do with time, limits or dead letters.
    pub(super) fn is_plain(&self) -> bool {
        self.settings.features.is_none() && self.main.reader.attributes.is_none()
    }

    /// Gives out what may be given out at `now_ms`.
    pub(super) fn serve(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        if self.is_plain() {
            return self.serve_plainly(effects);
        }
        if let Some(retention) = self.retention() {
            return self.retain(retention, now_ms);
        }
        let due_ms =
            self.levels_mut().filter_map(|level| level.reading().release_due(now_ms)).min();
        if let Some(due_ms) = due_ms {
            // Who waits gets what is due, also what may not wait after that; but nothing that had expired.
            self.dispatch(due_ms, now_ms, effects);
        }
        self.dispatch(now_ms.saturating_add(1), now_ms, effects);
    }

    fn retain(&mut self, retention: Retention, now_ms: u64) {
        let (subscribers, aged_ms) = (&mut self.subscribers, &mut self.aged_ms);
        stream::retain(&mut self.main, retention, subscribers, aged_ms, now_ms);
    }

    fn serve_plainly(&mut self, effects: &mut Vec<Effect>) {
        if !self.settings.is_paused {
            dispatch(self.main.reading(), &mut self.consumers, 0, effects);
        }
    }

    fn dispatch(&mut self, before_ms: u64, now_ms: u64, effects: &mut Vec<Effect>) {
        // In a paused queue nobody is given anything; time goes on.
        let mut is_held_up = self.settings.is_paused;
        let mut budget = self.pace.as_mut().and_then(|pace| pace.out.as_mut());
        if let Some(budget) = &mut budget {
            budget.begin(now_ms);
        }
        for level in self.levels.iter_mut().rev().chain([&mut self.main]) {
            // A message that waits for the log is not overtaken by those of lower priority.
            if !is_held_up {
                let (reading, consumers) = (level.reading(), &mut self.consumers);
                let below = reading.sifted_to();
                match (&mut budget, below) {
                    (budget, Some(_)) if reading.has_turns() => {
                        let budget = budget.as_deref_mut();
                        let times = Times { now_ms, before_ms };
                        dispatch_turns(budget, reading, consumers, times, effects);
                    }
                    (None, None) => dispatch(reading, consumers, before_ms, effects),
                    (None, Some(below)) => {
                        dispatch_below(below, reading, consumers, before_ms, effects);
                    }
                    (Some(budget), below) => {
                        let within = (&mut **budget, below.unwrap_or(u64::MAX));
                        dispatch_within(within, reading, consumers, before_ms, effects);
                    }
                }
                // Nor is one that waits for a token.
                let waits = budget.as_ref().is_some_and(|budget| budget.due_ms().is_some());
                is_held_up = waits || level.reading().is_held_up();
            }
            level.reading().expire(before_ms);
            level.reader.hand_out(effects);
        }
        self.consumers.watch_drain(now_ms);
        self.elect(now_ms, effects);
        self.borrow(effects);
    }

    /// Says who is the active consumer of all partitions now.
    fn elect(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        let queue = self.id.base();
        let told = self.consumers.elect(now_ms);
        effects.extend(told.into_iter().map(|(consumer, generation)| Effect::Elected {
            queue,
            consumer,
            generation,
        }));
    }

    /// Says what it would borrow.
    pub(super) fn borrow(&mut self, effects: &mut Vec<Effect>) {
        let Some(ask) = self.pace.as_mut().and_then(|pace| pace.out.as_mut()?.take_ask()) else {
            return;
        };
        if let Some(of) = self.features().and_then(|features| features.tokens_of) {
            effects.push(Effect::Borrow { queue: self.id.base(), of, ask });
        }
    }

    /// After an entry of `time_ms`: who waits gets what came, also what may not wait at all.
    pub(super) fn serve_entry(&mut self, time_ms: u64, now_ms: u64, effects: &mut Vec<Effect>) {
        if self.is_plain() {
            return self.serve_plainly(effects);
        }
        if let Some(retention) = self.retention() {
            return self.retain(retention, time_ms);
        }
        self.dispatch(time_ms, now_ms, effects);
        // What may not wait and nobody took has expired; it does not take up room.
        self.levels_mut().for_each(|level| level.reading().expire(time_ms.saturating_add(1)));
        self.trim();
    }

    /// What is too much at the front is thrown away.
    pub(super) fn trim(&mut self) {
        let Some(features) = self.settings.features.as_deref() else { return };
        if features.overflow != Overflow::DropHead {
            return;
        }
        let (max_length, max_bytes) = (features.max_length, features.max_length_bytes);
        if let Some(max) = max_length {
            let mut excess = self.ready_len().saturating_sub(max);
            for level in self.levels_mut() {
                while excess > 0 {
                    match level.reading().drop_front(excess, Outcome::Overflowed) {
                        0 => break,
                        dropped => excess -= dropped,
                    }
                }
            }
        }
        if let Some(max) = max_bytes {
            let mut bytes = self.ready_bytes();
            for level in self.levels_mut() {
                while bytes > max {
                    let before = level.reader.ready_bytes();
                    if level.reading().drop_front(1, Outcome::Overflowed) == 0 {
                        break;
                    }
                    bytes -= before - level.reader.ready_bytes();
                }
            }
        }
    }

    /// A consumer's outcome for what it holds of `ranges` in a level.
    pub(super) fn settle(
        &mut self,
        level: u8,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
    ) {
        if outcome == Outcome::DeadLettered {
            // Whoever says so: it is stored elsewhere.
            let is_main = self.is_of_any_level(outcome);
            let level = if is_main { Some(&mut self.main) } else { self.level_mut(level) };
            if let Some(level) = level
                && let Some(attributes) = &level.reader.attributes
            {
                let stored = attributes.leaving.within(ranges);
                level.reader.gathered.of(outcome).insert_all(&stored);
            }
            return;
        }
        let mut released = Ranges::new();
        self.consumers.release(consumer, level, ranges, &mut released);
        self.let_go(level, &released, outcome);
    }

    /// What becomes of messages that nobody holds any more.
    pub(super) fn let_go(&mut self, level: u8, released: &Ranges, outcome: Outcome) {
        let counts = self.features().is_some_and(|features| features.counts_returns);
        let Some(level) = self.level_mut(level).filter(|_| !released.is_empty()) else { return };
        let is_counted = counts && matches!(outcome, Outcome::Requeue | Outcome::Returned);
        if outcome.is_final() {
            level.reader.settle_held(released, outcome);
        } else if is_counted {
            level.reader.gathered.of(outcome).insert_all(released);
        } else {
            level.reading().give_back(released, outcome != Outcome::Undelivered);
        }
    }

    /// The queue was asked for.
    pub(super) fn touch(&mut self, now_ms: u64) {
        self.unused_since_ms = self.unused_since_ms.max(now_ms);
    }

    /// Which of messages with so many bytes there is no room for. For the others it is kept.
    pub(super) fn admit(&mut self, sizes: &[u32], now_ms: u64) -> Vec<u32> {
        let Some(features) = self.features().filter(|it| it.overflow != Overflow::DropHead) else {
            return Vec::new();
        };
        let max_length = features.max_length.unwrap_or(u64::MAX);
        let max_bytes = features.max_length_bytes.unwrap_or(u64::MAX);
        if self.admitted.until_ms <= now_ms {
            self.admitted = Admitted::default();
        }
        // Who has credit takes what comes before it counts, those first that were admitted already.
        let free = if self.settings.is_paused { 0 } else { self.consumers.free_credit() };
        let budget = self.pace.as_ref().and_then(|pace| pace.out.as_ref());
        let free = budget.map_or(free, |budget| free.min(budget.messages()));
        let taken = free.min(self.admitted.count);
        let mut free = free - taken;
        let length_admitted = self.admitted.count - taken;
        let bytes_admitted = if length_admitted == 0 { 0 } else { self.admitted.bytes };
        let mut length = self.ready_len() + length_admitted;
        let mut bytes = self.ready_bytes().saturating_add(bytes_admitted);
        let mut refused = Vec::new();
        for (place, size) in (0..).zip(sizes) {
            let size = u64::from(*size);
            if length + 1 > max_length || bytes.saturating_add(size) > max_bytes {
                refused.push(place);
                continue;
            }
            if free > 0 {
                free -= 1;
            } else {
                length += 1;
                bytes += size;
            }
            self.admitted.count += 1;
            self.admitted.bytes += size;
            self.admitted.until_ms = now_ms + ADMITTED_MS_MAX;
        }
        refused
    }

    /// Whether a message's key came lately.
    #[inline]
    pub(super) fn is_duplicate(&mut self, message: &Enqueue<'_>, time_ms: u64) -> bool {
        let Some(window) = &mut self.window else { return false };
        let dedup = self.settings.features.as_ref().and_then(|features| features.dedup);
        match (message.attributes.key, dedup) {
            (Some(key), Some(bounds)) => window.is_known(key, time_ms, &bounds),
            _ => false,
        }
    }

    /// A message came for which room was kept.
    pub(super) fn has_come(&mut self, body_bytes: usize) {
        self.admitted.count = self.admitted.count.saturating_sub(1);
        self.admitted.bytes = self.admitted.bytes.saturating_sub(body_bytes as u64);
    }

    /// What is due at `now_ms` is done.
    pub(super) fn tick(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        if self.consumers.drains_until_ms().is_some_and(|until_ms| until_ms <= now_ms) {
            for (consumer, level, held) in self.consumers.held_by_others() {
                self.settle(level, consumer, &held, Outcome::Returned);
                self.consumers.forget_if_idle(consumer);
            }
        }
        self.forget_withheld_by(now_ms);
        self.serve(now_ms, effects);
        self.trim();
        if self.unused_until_ms().is_some_and(|until_ms| until_ms <= now_ms) {
            self.close(effects);
        }
    }

    fn unused_until_ms(&self) -> Option<u64> {
        let expires_ms = self.features()?.expires_ms?;
        (self.consumers.attached() == 0 && !self.is_closing && !self.is_gone)
            .then(|| self.unused_since_ms.saturating_add(expires_ms))
    }

    /// When something falls due next.
    pub(super) fn next_due(&self) -> Option<u64> {
        if self.is_plain() {
            return None;
        }
        if let Some(retention) = self.retention() {
            let too_old = stream::next_too_old(&self.main, retention, self.aged_ms);
            return [too_old, self.subscribers.look_at_ms()].into_iter().flatten().min();
        }
        let levels = self.levels().filter_map(Level::next_due).min();
        let rate = self.pace.as_ref().and_then(|pace| pace.due_ms());
        let key_rate = self.turns().and_then(Turns::due_ms);
        let drain = self.consumers.drains_until_ms();
        [levels, self.unused_until_ms(), rate, key_rate, drain].into_iter().flatten().min()
    }
}
