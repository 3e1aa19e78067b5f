//! Which numbered batches were applied: each takes effect once, however often it comes.
//!
//! What a node's sessions append to a group travels in numbered batches. A numbered batch whose leader died
//! is sent again to the next one, so it may stand in the log twice, or behind a gap that its
//! predecessor will fill by coming again itself. This is the replicated memory that tells.

use std::collections::BTreeMap;

use crate::encoding::{Corrupt, Reader, put_u32, put_u64};
use crate::ids::{NodeId, ProducerId};

/// The last numbered batch of every node that ever sent one, and how many were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    last: BTreeMap<NodeId, Last>,
    repeated: u64,
    early: u64,
}

/// Numbered batches count from 1 in every boot; a node that sent none stands at 0 of boot 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Last {
    boot: u64,
    seq: u64,
}

impl Producers {
    /// Whether what the numbered batch holds is to be applied. Counts it either way.
    pub(crate) fn begin(&mut self, producer: ProducerId, seq: u64) -> bool {
        let last = self.last.get(&producer.node).copied().unwrap_or_default();
        if producer.boot < last.boot || (producer.boot == last.boot && seq <= last.seq) {
            self.repeated = self.repeated.wrapping_add(1);
            return false;
        }
        let before = if producer.boot == last.boot { last.seq } else { 0 };
        if before.checked_add(1) != Some(seq) {
            self.early = self.early.wrapping_add(1);
            return false;
        }
        self.last.insert(producer.node, Last { boot: producer.boot, seq });
        true
    }

    pub(crate) fn last(&self, producer: ProducerId) -> u64 {
        let last = self.last.get(&producer.node).filter(|last| last.boot == producer.boot);
        last.map_or(0, |last| last.seq)
    }

    /// Whether a later boot of its node has begun: nothing of this one is applied any more.
    pub(crate) fn is_over(&self, producer: ProducerId) -> bool {
        self.last.get(&producer.node).is_some_and(|last| last.boot > producer.boot)
    }

    /// The latest boot of a node that sent anything. 0: it never did.
    pub(crate) fn boot(&self, node: NodeId) -> u64 {
        self.last.get(&node).map_or(0, |last| last.boot)
    }

    /// Numbered batches that had been applied before, and numbered batches that came before one they follow.
    pub(crate) fn skipped(&self) -> (u64, u64) {
        (self.repeated, self.early)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.repeated);
        put_u64(out, self.early);
        put_u32(out, self.last.len() as u32);
        for (node, last) in &self.last {
            for value in [node.0, last.boot, last.seq] {
                put_u64(out, value);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut producers =
            Self { last: BTreeMap::new(), repeated: reader.u64()?, early: reader.u64()? };
        let mut before = None;
        for _ in 0..reader.u32()? {
            let node = NodeId(reader.u64()?);
            if before >= Some(node) {
                return Err(reader.corrupt());
            }
            before = Some(node);
            producers.last.insert(node, Last { boot: reader.u64()?, seq: reader.u64()? });
        }
        Ok(producers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_boot(boot: u64) -> ProducerId {
        ProducerId { node: NodeId(1), boot }
    }

    #[test]
    fn a_numbered_batch_is_applied_once_and_only_behind_its_predecessor() {
        let mut producers = Producers::default();
        assert!(!producers.begin(of_boot(1), 2), "its predecessor is missing");
        assert!(producers.begin(of_boot(1), 1));
        assert!(!producers.begin(of_boot(1), 1), "it was applied");
        assert!(!producers.begin(of_boot(1), 3), "its predecessor is missing");
        assert!(producers.begin(of_boot(1), 2));
        assert_eq!((producers.last(of_boot(1)), producers.skipped()), (2, (1, 2)));
    }

    #[test]
    fn a_later_boot_begins_at_one_and_ends_the_earlier() {
        let mut producers = Producers::default();
        assert!(producers.begin(of_boot(1), 1));
        assert!(!producers.begin(of_boot(4), 2), "the first of its boot is missing");
        assert!(producers.begin(of_boot(4), 1));
        assert!(!producers.begin(of_boot(1), 2), "its process is dead");
        assert!(!producers.begin(of_boot(3), 1), "its process is dead");
        assert_eq!(producers.last(of_boot(1)), 0);
        assert_eq!(
            [1, 3, 4, 5].map(|boot| producers.is_over(of_boot(boot))),
            [true, true, false, false]
        );
        assert_eq!((producers.last(of_boot(4)), producers.last(of_boot(5))), (1, 0));
    }

    #[test]
    fn no_number_of_a_numbered_batch_overflows() {
        let mut producers = Producers::default();
        assert!(!producers.begin(of_boot(0), 0));
        producers.last.insert(NodeId(1), Last { boot: u64::MAX, seq: u64::MAX });
        for seq in [0, 1, u64::MAX] {
            assert!(!producers.begin(of_boot(u64::MAX), seq));
        }
    }
}
