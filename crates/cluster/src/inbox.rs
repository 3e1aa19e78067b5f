//! What a group's leader took into its log, of which producer, and whether that is committed.

use std::collections::{BTreeMap, VecDeque};

use machine::{NodeId, ProducerId};

use crate::request::Held;

/// The numbered batches that the leader of one group proposed in its term.
///
/// It belongs to a leader: on a follower it is empty. Leadership that is lost clears it, and every producer
/// sends again what it knows nothing of, so nothing here has to survive.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Per node, the boot and the number of the last numbered batch that was proposed. The numbers of one boot have
    /// no gap, and a boot never gives way to an older one. A numbered batch that is lost on its way leaves a gap: those
    /// behind it are ignored until it is sent again.
    taken: BTreeMap<NodeId, (u64, u64)>,
    /// Per node, the boot and the number of the last numbered batch that was confirmed. It is never above `taken`, and
    /// may be above what the machine has applied. A confirm that is lost is said again when the numbered batch comes
    /// again.
    confirmed: BTreeMap<NodeId, (u64, u64)>,
    /// The numbered batches that were proposed and not confirmed. Their indexes ascend. They leave from the front, so
    /// confirms go out in the order of the log.
    proposed: VecDeque<(u64, Taken)>,
}

/// A numbered batch in the log.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) producer: ProducerId,
    pub(crate) seq: u64,
    pub(crate) needs_apply: bool,
    pub(crate) settles: Vec<Held>,
}

/// What to do with a numbered batch that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Propose,
    /// It was confirmed or applied before: tell its producer.
    Applied,
    /// It is in the log, or another must come first: its producer hears of it, or sends again.
    Ignore,
}

impl Inbox {
    /// `applied`: the last number of that producer that the machine has applied.
    pub(crate) fn judge(&self, producer: ProducerId, seq: u64, applied: u64) -> Verdict {
        let last = match self.taken.get(&producer.node) {
            Some(&(boot, _)) if boot > producer.boot => return Verdict::Ignore,
            Some(&(boot, last)) if boot == producer.boot => last.max(applied),
            Some(_) | None => applied,
        };
        let confirmed =
            self.confirmed.get(&producer.node).filter(|(boot, _)| *boot == producer.boot);
        if seq <= applied || confirmed.is_some_and(|(_, last)| seq <= *last) {
            Verdict::Applied
        } else if seq == last + 1 {
            Verdict::Propose
        } else {
            Verdict::Ignore
        }
    }

    /// The last numbered batch of `node` that was proposed.
    pub(crate) fn last_of(&self, node: NodeId) -> Option<(ProducerId, u64)> {
        self.taken.get(&node).map(|&(boot, seq)| (ProducerId { node, boot }, seq))
    }

    /// A numbered batch was proposed at `index`.
    pub(crate) fn proposed(&mut self, index: u64, taken: Taken) {
        let before = self.proposed.back().map_or(0, |(at, _)| *at);
        assert!(before < index, "a numbered batch was proposed below an earlier one");
        let last = self.taken.insert(taken.producer.node, (taken.producer.boot, taken.seq));
        if let Some((boot, seq)) = last {
            assert!(
                boot <= taken.producer.boot,
                "a numbered batch of an earlier life of its node was proposed"
            );
            let is_next = boot < taken.producer.boot || seq + 1 == taken.seq;
            assert!(
                is_next,
                "a numbered batch was proposed that does not follow the last one of its producer"
            );
        }
        self.proposed.push_back((index, taken));
    }

    /// What consumers let go of now that the entry at `index` is applied.
    pub(crate) fn take_settles(&mut self, index: u64) -> Vec<Held> {
        let found = self.proposed.binary_search_by_key(&index, |(at, _)| *at);
        match found {
            Ok(nth) => std::mem::take(&mut self.proposed[nth].1.settles),
            Err(_) => Vec::new(),
        }
    }

    /// What may be confirmed: committed, and applied where that is needed. In order.
    pub(crate) fn confirm(&mut self, committed: u64, applied: u64) -> Option<(ProducerId, u64)> {
        let (index, taken) = self.proposed.front()?;
        if *index > committed || (taken.needs_apply && *index > applied) {
            return None;
        }
        let (_, taken) = self.proposed.pop_front()?;
        let confirmed = (taken.producer.boot, taken.seq);
        let last = self.confirmed.insert(taken.producer.node, confirmed);
        assert!(last < Some(confirmed), "a numbered batch was confirmed before an earlier one");
        Some((taken.producer, taken.seq))
    }

    /// Whether something proposed is not confirmed yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.proposed.is_empty()
    }

    /// Leadership is lost: producers send again.
    pub(crate) fn clear(&mut self) {
        self.taken.clear();
        self.confirmed.clear();
        self.proposed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(boot: u64, seq: u64) -> Taken {
        let producer = ProducerId { node: NodeId(2), boot };
        Taken { producer, seq, needs_apply: false, settles: Vec::new() }
    }

    #[test]
    fn a_numbered_batch_that_comes_again_after_its_confirm_is_confirmed_again_though_not_applied() {
        let mut inbox = Inbox::default();
        let producer = ProducerId { node: NodeId(2), boot: 1 };
        assert_eq!(inbox.judge(producer, 1, 0), Verdict::Propose);
        inbox.proposed(10, numbered(1, 1));
        assert_eq!(inbox.judge(producer, 1, 0), Verdict::Ignore, "it is under way");
        assert_eq!(inbox.confirm(10, 9), Some((producer, 1)));
        // The link broke, and the confirm with it.
        assert_eq!(inbox.judge(producer, 1, 0), Verdict::Applied);
        assert_eq!(inbox.judge(producer, 2, 0), Verdict::Propose);
        let later = ProducerId { node: NodeId(2), boot: 2 };
        assert_eq!(inbox.judge(later, 1, 0), Verdict::Propose);
    }
}
