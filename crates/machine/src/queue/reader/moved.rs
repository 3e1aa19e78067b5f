//! A reader that is moved: it begins inside its store, is set to another place, or loses what retention removed.
//!
//! Only the reader of a subscription is. All of it is replicated, but for what the leader has ready and gathered.

use super::attributes::MessageAttributes;
use super::gathered::Gathered;
use super::ready::Ready;
use super::{Effect, Reading};
use crate::command::Outcome;
use crate::queue::open::OpenEnded;
use crate::ranges::Ranges;

impl Reading<'_> {
    /// It begins at `seq`: what is before that is none of its business.
    pub(crate) fn begin_at(&mut self, seq: u64) {
        assert!(seq > 0 && seq <= self.end.0, "a subscription begins in its stream");
        self.reader.open = OpenEnded::from(seq);
        self.reader.books.moves.passed = seq - 1;
        self.reader.delivered.track_deliveries_from(seq);
    }

    /// It goes on at `seq`, whatever it has settled. What is dead and on its way elsewhere stays that, wherever it lies.
    pub(crate) fn set_to(&mut self, seq: u64, is_leading: bool) {
        let before = self.open().to_ranges();
        let dead = self.reader.attributes.as_ref().and_then(|it| it.leaving.union());
        let dead = dead.unwrap_or_default();
        let mut open = dead.clone();
        open.insert(seq..self.end.0);
        let kept = open.intersect(&before).len();
        let moves = &mut self.reader.books.moves;
        moves.replayed += open.len() - kept;
        moves.passed += before.len() - kept;
        self.reader.open = OpenEnded::of(open, self.end);
        // How often it came back counts for what it was, not for what it is now.
        let leaving = self.reader.attributes.take().map(|it| it.leaving).unwrap_or_default();
        if !leaving.is_empty() {
            let attributes = MessageAttributes { leaving, ..MessageAttributes::default() };
            self.reader.attributes = Some(Box::new(attributes));
        }
        let stored = std::mem::take(self.reader.gathered.of(Outcome::DeadLettered));
        self.reader.gathered = Gathered::default();
        *self.reader.gathered.of(Outcome::DeadLettered) = stored;
        if let Some(sieve) = &mut self.reader.sieve {
            sieve.begin_again();
        }
        if is_leading {
            let flagged = self.reader.delivered.flagged_below(self.end.0);
            self.reader.ready = Ready::lead(&self.reader.open, flagged);
            self.reader.ready.remove_from_waiting(&dead, self.end);
        }
    }

    /// Retention has removed what is below `seq`: what of it was open is a gap.
    pub(crate) fn lose_below(&mut self, seq: u64, effects: &mut Vec<Effect>) {
        let mut lost = Ranges::new();
        self.reader.open.take(0..seq, self.end, &mut lost);
        if lost.is_empty() {
            return;
        }
        if let Some(attributes) = &mut self.reader.attributes {
            attributes.leaving.take(&lost);
        }
        self.reader.books.moves.gaps += lost.len();
        self.gone(lost, effects);
    }
}
