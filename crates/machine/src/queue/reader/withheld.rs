//! Messages that were purged and can be brought back for a while.
//!
//! They are open, so their bytes are kept; they are not ready, so nobody is given them, no limit counts them, and they do
//! not expire. Which they are, and until when, is replicated. What the leader has not decided about yet is not: what it
//! has, is on its way to the log.

use super::Reading;
use crate::command::{PurgeId, Withholding};
use crate::encoding::{Corrupt, Reader, put_u64};
use crate::ids::SessionId;
use crate::queue::Effect;
use crate::ranges::Ranges;

/// The withheld messages of a level: of one purge.
#[derive(Clone, Debug, Default)]
pub(crate) struct WithheldMessages {
    // Replicated.
    all: Ranges,
    /// The last purge that withheld some, and until when, ms since 1970.
    purge: Option<(PurgeId, u64)>,
    // Leader-local.
    undecided: Ranges,
}

impl WithheldMessages {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn all(&self) -> &Ranges {
        &self.all
    }

    /// By which purge, and until when, ms since 1970. None: nothing is withheld.
    pub(crate) fn purge(&self) -> Option<(PurgeId, u64)> {
        self.purge.filter(|_| !self.all.is_empty())
    }

    /// What the leader may decide about.
    pub(crate) fn undecided(&self) -> &Ranges {
        &self.undecided
    }

    /// The leader decides about all that it may: the log is to hear it.
    pub(crate) fn decide(&mut self) -> Ranges {
        std::mem::take(&mut self.undecided)
    }

    /// When the time of what is undecided is over, ms since 1970: leader only.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.purge.filter(|_| !self.undecided.is_empty()).map(|(_, until_ms)| until_ms)
    }

    fn insert(&mut self, purge: (PurgeId, u64), ranges: &Ranges, is_leading: bool) {
        self.purge = Some(purge);
        self.all.insert_all(ranges);
        if is_leading {
            self.undecided.insert_all(ranges);
        }
    }

    /// Takes out what of `ranges` is withheld.
    fn take(&mut self, ranges: &Ranges) -> Ranges {
        let taken = self.all.intersect(ranges);
        self.forget(&taken);
        taken
    }

    /// They are settled.
    pub(crate) fn forget(&mut self, gone: &Ranges) {
        if !self.all.is_empty() {
            self.all.remove_all(gone);
            self.undecided.remove_all(gone);
        }
    }

    /// Takes out of `ranges` what is withheld.
    pub(crate) fn exclude(&self, ranges: &mut Ranges) {
        if !self.all.is_empty() {
            ranges.remove_all(&self.all);
        }
    }

    pub(crate) fn lead(&mut self) {
        self.undecided = self.all.clone();
    }

    pub(crate) fn follow(&mut self) {
        self.undecided = Ranges::new();
    }

    /// The purge, then the messages. Only where some are withheld.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (PurgeId { session, number }, until_ms) =
            self.purge.expect("a purge has withheld what is withheld");
        [session.0, number, until_ms].into_iter().for_each(|it| put_u64(out, it));
        self.all.encode(out);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let by = PurgeId { session: SessionId(reader.u64()?), number: reader.u64()? };
        let purge = Some((by, reader.u64()?));
        let all = Ranges::read(reader)?;
        if all.is_empty() {
            return Err(reader.corrupt());
        }
        Ok(Self { all, purge, undecided: Ranges::new() })
    }
}

impl Reading<'_> {
    /// Takes all that is ready away, as it is: whether a client has seen it stays known.
    pub(crate) fn take_all_to_withhold(&mut self) -> Ranges {
        let all = self.waiting().to_ranges();
        self.unready(&all);
        self.reader.free_keys(&all);
        all
    }

    fn unready(&mut self, ranges: &Ranges) {
        let mut taken = Ranges::new();
        ranges.ranges().for_each(|range| self.take_waiting(range, &mut taken));
    }

    /// The leader lets go of what is withheld, for good: the log will hear it. How much that is.
    pub(crate) fn forget_withheld(&mut self) -> u64 {
        self.decide_withheld(Withholding::Forget)
    }

    /// The leader brings back what is withheld: the log will hear it. How much that is.
    pub(crate) fn restore_withheld(&mut self) -> u64 {
        self.decide_withheld(Withholding::Restore)
    }

    fn decide_withheld(&mut self, step: Withholding) -> u64 {
        let Some(attributes) = &mut self.reader.attributes else { return 0 };
        let decided = attributes.withheld.decide();
        if !decided.is_empty() {
            self.reader.gathered.of_withheld(step).insert_all(&decided);
        }
        decided.len()
    }

    /// A step from the log.
    pub(crate) fn withhold(
        &mut self,
        step: Withholding,
        ranges: &Ranges,
        is_leading: bool,
        effects: &mut Vec<Effect>,
    ) {
        let purge = match step {
            Withholding::Begin { by, until_ms } => (by, until_ms),
            Withholding::Restore => return self.restore(ranges, is_leading),
            Withholding::Forget => return self.forget(ranges, effects),
        };
        let found = self.alive_of(ranges);
        if found.is_empty() {
            return;
        }
        self.unready(&found);
        let attributes = self.reader.attributes_mut();
        // What was purged was due.
        attributes.delayed.forget_all(&found);
        attributes.withheld.insert(purge, &found, is_leading);
    }

    fn restore(&mut self, ranges: &Ranges, is_leading: bool) {
        let Some(attributes) = &mut self.reader.attributes else { return };
        let back = attributes.withheld.take(ranges);
        if is_leading {
            self.give_back(&back, false);
        }
        self.be_plain(&back);
    }

    fn forget(&mut self, ranges: &Ranges, effects: &mut Vec<Effect>) {
        let Some(attributes) = &mut self.reader.attributes else { return };
        let gone = attributes.withheld.take(ranges);
        if gone.is_empty() {
            return;
        }
        self.reader.open.remove_all(&gone, self.end);
        self.reader.books.purged += gone.len();
        self.gone(gone.clone(), effects);
        self.be_plain(&gone);
    }

    /// A level of which nothing but withheld messages was known is as plain as before, once they are not.
    fn be_plain(&mut self, were_withheld: &Ranges) {
        let is_over = self.reader.attributes.as_ref().is_some_and(|it| it.is_empty());
        if is_over && !were_withheld.is_empty() {
            self.reader.attributes = None;
        }
    }
}
