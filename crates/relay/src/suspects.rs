//! Rows that may be what loses the broker's connection: one message can make a broker, or something on the way to it,
//! drop the connection without a word.
//!
//! An outage loses connections too, and charges nobody. What tells the two apart is who gets through: a row is guilty only
//! if the connection was lost again and again while it alone was under way, and between any two of those times others
//! were confirmed.

use std::collections::BTreeMap;

use crate::limits::SUSPECTS_MAX;

/// A row that was under way when so many connections were lost is published alone.
const LOSSES: u32 = 2;
/// So many losses alone make it guilty, if others were confirmed in between; if nobody was, others have their turn.
const LOSSES_ALONE: u32 = 3;

/// A row: its place, if that names it, and its id.
pub(crate) type Name = (u64, Vec<u8>);

/// What a loss alone means for the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is tried again.
    Again,
    /// It has been tried often enough: it waits, uncharged, for others to be tried.
    Rest,
    /// It is its own fault.
    Guilty,
}

#[derive(Debug, Default)]
struct Suspect {
    losses: u32,
    /// Losses alone between which others were confirmed.
    losses_alone: u32,
    /// Losses alone since, without any confirm in between.
    in_vain: u32,
    /// Confirms there were when it was last lost alone.
    confirms: u64,
}

/// What one worker, or one stream of the log, has seen. A row that somebody else published stays until there are too many.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    rows: BTreeMap<Name, Suspect>,
    confirms: u64,
}

impl Suspects {
    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// It must be published alone.
    pub(crate) fn is_suspect(&self, name: &Name) -> bool {
        let found = self.rows.get(name);
        found.is_some_and(|row| row.losses >= LOSSES || row.losses_alone > 0)
    }

    /// The connection was lost while it alone was under way.
    pub(crate) fn was_alone(&self, name: &Name) -> bool {
        self.rows.get(name).is_some_and(|row| row.losses_alone > 0)
    }

    /// The connection was lost while it was under way, among others.
    pub(crate) fn lost(&mut self, name: Name) {
        self.make_room();
        self.rows.entry(name).or_default().losses += 1;
    }

    /// The connection was lost while it alone was under way.
    pub(crate) fn lost_alone(&mut self, name: Name) -> Loss {
        self.make_room();
        let confirms = self.confirms;
        let row = self.rows.entry(name).or_default();
        if row.losses_alone > 0 && row.confirms == confirms {
            // Nobody has passed since: it may be the broker.
            row.in_vain = (row.in_vain + 1) % LOSSES_ALONE;
            return if row.in_vain == 0 { Loss::Rest } else { Loss::Again };
        }
        (row.confirms, row.in_vain) = (confirms, 0);
        row.losses_alone += 1;
        if row.losses_alone < LOSSES_ALONE {
            return Loss::Again;
        }
        // When it is tried again, the next time counts at once.
        row.losses_alone = LOSSES_ALONE - 1;
        Loss::Guilty
    }

    /// The broker has answered for it.
    pub(crate) fn answered(&mut self, name: impl FnOnce() -> Name, is_confirmed: bool) {
        self.confirms += u64::from(is_confirmed);
        if !self.rows.is_empty() {
            self.rows.remove(&name());
        }
    }

    fn make_room(&mut self) {
        if self.rows.len() >= SUSPECTS_MAX {
            self.rows.retain(|_, row| row.losses_alone > 0);
        }
        if self.rows.len() >= SUSPECTS_MAX {
            self.rows.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(place: u64) -> Name {
        (place, place.to_string().into_bytes())
    }

    #[test]
    fn a_row_is_guilty_only_if_others_pass_between_its_losses() {
        let mut suspects = Suspects::default();
        // Nobody else was tried.
        for loss in [Loss::Again, Loss::Again, Loss::Again, Loss::Rest, Loss::Again, Loss::Again] {
            assert_eq!(suspects.lost_alone(name(1)), loss);
        }
        for loss in [Loss::Again, Loss::Guilty, Loss::Guilty] {
            suspects.answered(|| name(2), true);
            assert_eq!(suspects.lost_alone(name(1)), loss);
        }
        suspects.answered(|| name(1), true);
        assert!(suspects.is_empty(), "the broker has taken it");
    }

    #[test]
    fn a_refusal_of_others_proves_nothing() {
        let mut suspects = Suspects::default();
        for _ in 0..10 {
            assert_ne!(suspects.lost_alone(name(1)), Loss::Guilty);
            suspects.answered(|| name(2), false);
        }
    }

    #[test]
    fn there_is_a_bound_on_how_many_are_remembered() {
        let mut suspects = Suspects::default();
        suspects.lost_alone(name(0));
        for place in 1..2 * SUSPECTS_MAX as u64 {
            suspects.lost(name(place));
            assert!(suspects.rows.len() <= SUSPECTS_MAX);
        }
        assert!(suspects.was_alone(&name(0)), "the likeliest stays");
    }
}
