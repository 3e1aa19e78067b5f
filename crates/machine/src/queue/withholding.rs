//! A purge that can be undone, at the queue's leader, and what the log says of it on every replica.
//!
//! The leader takes what is ready away and tells the log. Until the log has it, whoever asked is to ask again, and other
//! purges of the queue wait. A leader that is deposed meanwhile forgets all of it: the messages are ready with the next.

use super::context::Context;
use super::{Effect, Queue};
use crate::command::{PurgeId, Withholding};
use crate::ranges::Ranges;

/// What a purge that can be undone, or its undoing, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// So many messages, which can be brought back until then, ms since 1970; or which are back.
    Done { count: u64, until_ms: u64 },
    /// Ask again once what `QueueMachine::take_settled` gives is applied.
    NotYet,
    /// There is no such queue, or it has no messages of its own.
    NoQueue,
}

/// A purge or its undoing on its way to the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    by: PurgeId,
    count: u64,
    until_ms: u64,
    /// Messages of which the log has to hear still.
    left: u64,
}

impl Queue {
    /// Whether messages of it can be withheld: those of a stream are for others, too.
    pub(super) fn can_withhold(&self) -> bool {
        !self.is_gone && !self.settings.is_stream() && self.subscription().is_none()
    }

    /// How many messages are withheld, by which purge, and until when, ms since 1970.
    pub(super) fn withheld(&self) -> Option<(u64, PurgeId, u64)> {
        let levels = self.levels().filter_map(|level| level.reader.attributes.as_ref());
        let levels = levels.map(|attributes| &attributes.withheld);
        levels.fold(None, |all, level| {
            let Some((by, until_ms)) = level.purge() else { return all };
            let count = all.map_or(0, |(count, _, _)| count) + level.all().len();
            Some((count, by, until_ms))
        })
    }

    /// Takes away what is ready. What an earlier purge has withheld is gone for good by that. A purge that finds
    /// nothing changes nothing.
    pub(super) fn withhold(&mut self, by: PurgeId, until_ms: u64) -> Withheld {
        if let Some(known) = self.under_way(by) {
            return known;
        }
        if let Some((count, _, until_ms)) = self.withheld().filter(|(_, of, _)| *of == by) {
            // It was asked before: of another leader, which may have logged a part of it.
            return Withheld::Done { count, until_ms };
        }
        if self.ready_len() == 0 {
            return Withheld::Done { count: 0, until_ms };
        }
        self.forget_withheld();
        let mut count = 0;
        for level in self.levels_mut() {
            let all = level.reading().take_all_to_withhold();
            let step = Withholding::Begin { by, until_ms };
            level.reader.gathered.of_withheld(step).insert_all(&all);
            count += all.len();
        }
        self.under_way = Some(UnderWay { by, count, until_ms, left: count });
        Withheld::NotYet
    }

    /// Brings back what the last purge has withheld.
    pub(super) fn bring_back(&mut self, by: PurgeId) -> Withheld {
        if let Some(known) = self.under_way(by) {
            return known;
        }
        let count = self.levels_mut().map(|level| level.reading().restore_withheld()).sum();
        if count == 0 {
            return Withheld::Done { count, until_ms: 0 };
        }
        self.under_way = Some(UnderWay { by, count, until_ms: 0, left: count });
        Withheld::NotYet
    }

    /// The answer while something is on its way to the log, and once to whoever asked for it.
    fn under_way(&mut self, by: PurgeId) -> Option<Withheld> {
        let UnderWay { by: of, count, until_ms, left } = self.under_way?;
        if left > 0 {
            return Some(Withheld::NotYet);
        }
        self.under_way = None;
        (of == by).then_some(Withheld::Done { count, until_ms })
    }

    /// What is withheld is gone for good.
    pub(super) fn forget_withheld(&mut self) {
        self.levels_mut().for_each(|level| {
            level.reading().forget_withheld();
        });
    }

    /// The same, if its time is over.
    pub(super) fn forget_withheld_by(&mut self, now_ms: u64) {
        for level in self.levels_mut() {
            let attributes = level.reader.attributes.as_ref();
            let due_ms = attributes.and_then(|it| it.withheld.next_due());
            if due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
                level.reading().forget_withheld();
            }
        }
    }

    /// A step from the log.
    pub(super) fn apply_withholding(
        &mut self,
        level: u8,
        (step, ranges): (Withholding, &Ranges),
        (time_ms, is_leading): (u64, bool),
        effects: &mut Vec<Effect>,
    ) {
        if self.settings.is_stream() || self.subscription().is_some() {
            return;
        }
        let features = self.settings.features.as_deref();
        let cx = Context { features, time_ms, is_leading };
        let found = match usize::from(level).checked_sub(1) {
            None => Some(&mut self.main),
            Some(place) => self.levels.get_mut(place),
        };
        let Some(found) = found else { return };
        found.end_run(cx, effects);
        found.reading().withhold(step, ranges, is_leading, effects);
        if !is_leading || step == Withholding::Forget {
            return;
        }
        if let Some(under_way) = &mut self.under_way {
            under_way.left = under_way.left.saturating_sub(ranges.len());
        }
        if step == Withholding::Restore {
            self.line_up_again();
        }
    }

    /// Messages are back in front of others of their keys: all are asked again, first those that are out. Those are held,
    /// or on their way back through the log; or they came back, and wait for their time.
    fn line_up_again(&mut self) {
        let mut out = self.main.kept().to_ranges();
        out.remove_all(&self.main.reading().waiting().to_ranges());
        let reader = &mut self.main.reader;
        let Some(sieve) = &mut reader.sieve else { return };
        if let Some(attributes) = &reader.attributes {
            attributes.withheld.exclude(&mut out);
            attributes.leaving.exclude(&mut out);
            let waiting = attributes.delayed.not_due();
            let new = waiting.ranges().flat_map(|range| attributes.returns.parts(range));
            for (part, _) in new.filter(|(_, returns)| returns.is_none()) {
                out.remove_all(&Ranges::from(part));
            }
        }
        sieve.begin_again();
        sieve.hold(&out);
    }
}
