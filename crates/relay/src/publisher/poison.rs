//! Rows at which the connection to the broker is lost: one message can make a broker, or something on the way to it, drop
//! the connection without a word.
//!
//! An outage loses connections too, and is nobody's fault. After some lost connections, rows are published one by one. A
//! row that is in flight alone when the connection is lost is marked. It is to blame only if that happened again and
//! again, and others were confirmed in between.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::limits::MARKED_ROWS_MAX;

/// After so many lost connections rows are published one by one.
const LOSSES: u32 = 2;
/// A row that was alone at so many lost connections makes way for others.
const LOSSES_ALONE: u32 = 3;
/// A mark is kept for so long after the last loss, or for twice the longest wait between attempts if that is more. The row
/// may be gone: somebody has deleted it, or another worker publishes it.
const MARKED_FOR: Duration = Duration::from_secs(3600);

/// What the loss means for the row that was alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It is tried again.
    Again,
    /// It waits, and no attempt is counted: nobody knows whether others would pass.
    Unknown,
    /// Others have passed: it is its own fault.
    Own,
}

#[derive(Debug)]
struct Mark {
    losses: u32,
    /// Confirms when it was first alone, or last judged.
    confirms: u64,
    /// When it was last alone at a loss.
    at: Instant,
}

/// What one publisher has seen.
#[derive(Debug)]
pub(super) struct Poison {
    /// Connections that were lost before all that was in flight at the last of them had an answer.
    losses: u32,
    /// Answers until then.
    owed: usize,
    confirms: u64,
    marked: BTreeMap<Vec<u8>, Mark>,
    keep: Duration,
    /// When the oldest mark is forgotten. Without marks: of no meaning.
    forget_at: Instant,
}

impl Poison {
    /// For rows that are tried again after `retry_max` at most.
    pub(super) fn new(retry_max: Duration, now: Instant) -> Self {
        Self {
            losses: 0,
            owed: 0,
            confirms: 0,
            marked: BTreeMap::new(),
            keep: MARKED_FOR.max(retry_max.saturating_mul(2)),
            forget_at: now,
        }
    }

    /// Whether some row is marked. Forgets marks that are too old.
    pub(super) fn has_marks(&mut self, now: Instant) -> bool {
        if !self.marked.is_empty() && now >= self.forget_at {
            let keep = self.keep;
            self.marked.retain(|_, mark| now - mark.at < keep);
            let oldest = self.marked.values().map(|mark| mark.at).min();
            self.forget_at = oldest.unwrap_or(now) + keep;
        }
        !self.marked.is_empty()
    }

    pub(super) fn is_marked(&self, name: &[u8]) -> bool {
        self.marked.contains_key(name)
    }

    /// Rows are published one by one.
    pub(super) fn is_isolating(&self) -> bool {
        self.losses >= LOSSES && !planted::is("relay_poison_never_alone")
    }

    /// The connection was lost with so many in flight.
    pub(super) fn lost(&mut self, in_flight: usize) {
        if in_flight > 0 {
            self.losses += 1;
            self.owed = self.owed.max(in_flight);
        }
    }

    /// One of so many in flight made the broker close: it said so.
    pub(super) fn closed(&mut self, in_flight: usize) {
        self.losses = LOSSES;
        self.owed = self.owed.max(in_flight);
    }

    /// A row has its answer.
    pub(super) fn answered(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        if self.owed == 0 {
            self.losses = 0;
        }
    }

    /// So many were confirmed.
    pub(super) fn confirmed(&mut self, count: usize) {
        self.confirms += count as u64;
    }

    /// The row that was in flight alone has an answer.
    pub(super) fn forget(&mut self, alone: Option<Vec<u8>>) {
        if let Some(name) = alone {
            self.marked.remove(&name);
        }
    }

    /// The connection was lost while this one alone was in flight.
    pub(super) fn lost_alone(&mut self, name: Vec<u8>, now: Instant) -> Loss {
        if !self.has_marks(now) {
            self.forget_at = now + self.keep;
        }
        if self.marked.len() >= MARKED_ROWS_MAX {
            self.marked.clear();
        }
        let confirms = self.confirms;
        let mark = self.marked.entry(name).or_insert(Mark { losses: 0, confirms, at: now });
        mark.at = now;
        mark.losses += 1;
        if mark.losses < LOSSES_ALONE {
            return Loss::Again;
        }
        // The next time counts at once.
        mark.losses = LOSSES_ALONE - 1;
        let have_passed = std::mem::replace(&mut mark.confirms, confirms) < confirms;
        if have_passed { Loss::Own } else { Loss::Unknown }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test has a clock")]
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn poison() -> (Poison, Instant) {
        let now = Instant::now();
        (Poison::new(Duration::from_secs(600), now), now)
    }

    #[test]
    fn a_mark_is_forgotten_an_hour_after_the_last_loss() {
        let (mut poison, now) = poison();
        poison.lost_alone(b"1".to_vec(), now);
        poison.lost_alone(b"2".to_vec(), now + HOUR / 2);
        poison.lost_alone(b"1".to_vec(), now + HOUR / 2);
        assert!(poison.has_marks(now + HOUR));
        assert!(poison.is_marked(b"1") && poison.is_marked(b"2"));
        poison.lost_alone(b"2".to_vec(), now + HOUR);
        assert!(poison.has_marks(now + 3 * HOUR / 2));
        assert!(!poison.is_marked(b"1") && poison.is_marked(b"2"));
        assert!(!poison.has_marks(now + 2 * HOUR));
    }

    #[test]
    fn a_mark_is_kept_until_its_row_was_tried_again() {
        let now = Instant::now();
        let mut poison = Poison::new(24 * HOUR, now);
        poison.lost_alone(b"1".to_vec(), now);
        assert!(poison.has_marks(now + 47 * HOUR));
    }

    #[test]
    fn a_row_is_to_blame_only_if_others_pass_between_its_losses() {
        let (mut poison, now) = poison();
        for loss in [Loss::Again, Loss::Again, Loss::Unknown, Loss::Unknown] {
            assert_eq!(poison.lost_alone(b"1".to_vec(), now), loss);
        }
        for _ in 0..2 {
            poison.confirmed(1);
            assert_eq!(poison.lost_alone(b"1".to_vec(), now), Loss::Own);
        }
        poison.forget(Some(b"1".to_vec()));
        assert!(!poison.has_marks(now), "the broker has taken it");
    }

    #[test]
    fn rows_go_one_by_one_until_all_that_was_in_flight_has_an_answer() {
        let (mut poison, _) = poison();
        poison.lost(3);
        assert!(!poison.is_isolating(), "once may be anything");
        poison.answered();
        poison.lost(2);
        for _ in 0..2 {
            assert!(poison.is_isolating());
            poison.answered();
        }
        assert!(!poison.is_isolating());
        poison.closed(1);
        assert!(poison.is_isolating(), "the broker has said that it was one of them");
    }

    #[test]
    fn there_is_a_bound_on_how_many_are_remembered() {
        let (mut poison, now) = poison();
        for name in 0..2 * MARKED_ROWS_MAX as u64 {
            poison.lost_alone(name.to_be_bytes().to_vec(), now);
            assert!(poison.marked.len() <= MARKED_ROWS_MAX);
        }
    }
}
