//! Whether the replicas of a group have done the same: one replica's part.
//!
//! ```text
//!  leader ──Digest (index, chain), every two seconds while there is something new──> each follower
//!  follower: applies up to that index, compares, and answers with its own ──Digest──> leader: compares, too
//! ```
//!
//! The chain is the machine's (`machine::QueueMachine::chain`): it stays different once it was. So a question that is
//! lost, or that a replica cannot answer because it is too far ahead, does no harm: the next one finds the same.
//! Both sides know of a difference, so that whichever leads next knows it, too.

use std::collections::{BTreeMap, VecDeque};

use machine::NodeId;

use crate::limits::{CHAINS_KEPT, DIGEST_MS};

/// Two replicas' chains at the same entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The other replica's.
    pub node: NodeId,
    pub index: u64,
    pub ours: u64,
    pub theirs: u64,
}

impl Comparison {
    pub fn differs(&self) -> bool {
        self.ours != self.theirs
    }
}

/// How a replica compares with the others of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// The last entry that is in the chain, and the chain. None: none is kept yet.
    pub last: Option<(u64, u64)>,
    /// The last comparison with each node: a leader's with all, a follower's with its leader.
    pub with: Vec<Comparison>,
    /// Comparisons since the node started, and those of them that showed a difference.
    pub count: u64,
    pub differed: u64,
}

/// What is said of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As before.
    Known,
    /// They differ, and did not before.
    Differs(Comparison),
    /// They differed before, and are the same now.
    Mended(Comparison),
}

/// An index and the chain there.
pub(crate) type Digest = (u64, u64);

/// What a replica knows of its own chain and of others'.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// The newest of this replica, by index.
    recent: VecDeque<Digest>,
    /// What this leader said last, and when, in `Now::mono_ms`.
    said: Option<(Digest, u64)>,
    /// What a leader asked about an entry that is not applied here yet.
    asked: Option<(NodeId, Digest)>,
    with: BTreeMap<NodeId, Comparison>,
    count: u64,
    differed: u64,
}

impl Digests {
    /// This replica begins here: after a start, or with a snapshot.
    pub(crate) fn begin(&mut self, index: u64, chain: Option<u64>) {
        self.recent.clear();
        self.recent.extend(chain.map(|chain| (index, chain)));
        self.said = None;
        self.asked = None;
        // What it was before is over.
        self.with.clear();
    }

    /// An entry is applied.
    pub(crate) fn note(&mut self, index: u64, chain: u64) {
        if self.recent.len() == CHAINS_KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((index, chain));
    }

    /// What a leader is to say now. While somebody differs it says so without traffic, too: that may be mended.
    pub(crate) fn say(&mut self, now_ms: u64) -> Option<Digest> {
        let last = *self.recent.back()?;
        let is_due = match self.said {
            None => true,
            Some((said, at_ms)) => now_ms >= at_ms + DIGEST_MS && (said != last || self.differs()),
        };
        if !is_due {
            return None;
        }
        self.said = Some((last, now_ms));
        Some(last)
    }

    /// A leader asks about an entry. One question waits at a time: a later one would never be reached either.
    pub(crate) fn hear(&mut self, leader: NodeId, asked: Digest) {
        if self.asked.is_none_or(|(of, _)| of != leader) {
            self.asked = Some((leader, asked));
        }
    }

    /// What is to be answered to whom, now that so much is applied, and what came of the comparison.
    pub(crate) fn answer(&mut self) -> Option<(NodeId, Digest, Verdict)> {
        let (leader, (index, theirs)) = self.asked?;
        if self.recent.back().is_none_or(|(last, _)| *last < index) {
            return None;
        }
        self.asked = None;
        let ours = self.at(index)?;
        // Who led before is nobody to compare with any more.
        self.with.retain(|node, _| *node == leader);
        let verdict = self.compare(Comparison { node: leader, index, ours, theirs });
        Some((leader, (index, ours), verdict))
    }

    /// A follower has answered.
    pub(crate) fn heard(&mut self, follower: NodeId, (index, theirs): Digest) -> Verdict {
        match self.at(index) {
            Some(ours) => self.compare(Comparison { node: follower, index, ours, theirs }),
            None => Verdict::Known,
        }
    }

    /// Nobody else has a replica.
    pub(crate) fn keep(&mut self, is_member: impl Fn(NodeId) -> bool) {
        self.with.retain(|node, _| is_member(*node));
    }

    /// Whether a replica differs from this one, as far as is known.
    pub(crate) fn differs(&self) -> bool {
        self.with.values().any(Comparison::differs)
    }

    pub(crate) fn compared(&self) -> Compared {
        Compared {
            last: self.recent.back().copied(),
            with: self.with.values().copied().collect(),
            count: self.count,
            differed: self.differed,
        }
    }

    /// This replica's chain at an entry. None: it is not in there, or too long ago.
    fn at(&self, index: u64) -> Option<u64> {
        let place = self.recent.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.recent.get(place).map(|(_, chain)| *chain)
    }

    fn compare(&mut self, comparison: Comparison) -> Verdict {
        let before = self.with.insert(comparison.node, comparison);
        let was_different = before.is_some_and(|before| before.differs());
        self.count += 1;
        self.differed += u64::from(comparison.differs());
        match (was_different, comparison.differs()) {
            (false, true) => Verdict::Differs(comparison),
            (true, false) => Verdict::Mended(comparison),
            (false, false) | (true, true) => Verdict::Known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: NodeId = NodeId(1);
    const FOLLOWER: NodeId = NodeId(2);

    /// A replica that applied entries up to `last`, which left 100 times their index.
    fn replica(last: u64) -> Digests {
        let mut digests = Digests::default();
        digests.begin(0, None);
        (1..=last).for_each(|index| digests.note(index, index * 100));
        digests
    }

    #[test]
    fn a_leader_says_what_is_new_and_not_too_often() {
        let mut leader = replica(5);
        assert_eq!(leader.say(1_000), Some((5, 500)));
        leader.note(6, 600);
        assert_eq!(leader.say(1_000 + DIGEST_MS - 1), None, "too early");
        assert_eq!(leader.say(1_000 + DIGEST_MS), Some((6, 600)));
        assert_eq!(leader.say(1_000 + 9 * DIGEST_MS), None, "nothing is new");
        assert_eq!(replica(0).say(1_000), None, "no chain is kept");
    }

    #[test]
    fn a_follower_that_is_behind_answers_when_it_is_there() {
        let mut follower = replica(3);
        follower.hear(LEADER, (5, 500));
        assert_eq!(follower.answer(), None);
        // A question that comes meanwhile does not take the place of the one that it is about to reach.
        follower.hear(LEADER, (9, 900));
        follower.note(4, 400);
        assert_eq!(follower.answer(), None);
        follower.note(5, 500);
        follower.note(6, 600);
        assert_eq!(follower.answer(), Some((LEADER, (5, 500), Verdict::Known)));
        assert_eq!(follower.answer(), None, "once");
        assert_eq!((follower.compared().count, follower.compared().differed), (1, 0));
    }

    #[test]
    fn both_sides_know_of_a_difference_and_say_so_once() {
        let (mut leader, mut follower) = (replica(5), replica(4));
        follower.note(5, 7);
        let said = leader.say(1_000).expect("there is something new");
        follower.hear(LEADER, said);
        let found = Comparison { node: LEADER, index: 5, ours: 7, theirs: 500 };
        let (to, answer, verdict) = follower.answer().expect("it is there");
        assert_eq!((to, answer, verdict), (LEADER, (5, 7), Verdict::Differs(found)));
        let found = Comparison { node: FOLLOWER, index: 5, ours: 500, theirs: 7 };
        assert_eq!(leader.heard(FOLLOWER, answer), Verdict::Differs(found));
        assert!(leader.differs() && follower.differs());

        // Without traffic it is looked at again, and not said again.
        let said = leader.say(1_000 + DIGEST_MS).expect("it may be mended");
        follower.hear(LEADER, said);
        let (_, answer, verdict) = follower.answer().expect("it is there");
        assert_eq!((verdict, leader.heard(FOLLOWER, answer)), (Verdict::Known, Verdict::Known));
        assert_eq!((leader.compared().count, leader.compared().differed), (2, 2));
    }

    #[test]
    fn a_replica_that_is_built_anew_is_like_the_others_again() {
        let mut leader = replica(5);
        leader.heard(FOLLOWER, (5, 7));
        assert!(leader.differs());
        let mut follower = Digests::default();
        follower.begin(5, Some(500));
        follower.hear(LEADER, leader.say(1_000).expect("it may be mended"));
        let (_, answer, verdict) = follower.answer().expect("it is there");
        assert_eq!(verdict, Verdict::Known);
        let mended = Comparison { node: FOLLOWER, index: 5, ours: 500, theirs: 500 };
        assert_eq!(leader.heard(FOLLOWER, answer), Verdict::Mended(mended));
        assert!(!leader.differs());
    }

    #[test]
    fn what_cannot_be_compared_is_no_difference() {
        let mut leader = replica(CHAINS_KEPT as u64 + 9);
        assert_eq!(leader.heard(FOLLOWER, (9, 1)), Verdict::Known, "too long ago");
        let mut follower = replica(CHAINS_KEPT as u64 + 9);
        follower.hear(LEADER, (9, 1));
        assert_eq!(follower.answer(), None);
        follower.hear(LEADER, (10, 1_000));
        assert_eq!(follower.answer(), Some((LEADER, (10, 1_000), Verdict::Known)));
        assert!(!leader.differs() && !follower.differs());
    }

    #[test]
    fn a_member_that_left_and_a_leader_of_before_are_forgotten() {
        let mut leader = replica(5);
        leader.heard(FOLLOWER, (5, 7));
        leader.keep(|node| node != FOLLOWER);
        assert!(!leader.differs());

        let mut follower = replica(5);
        follower.hear(LEADER, (5, 7));
        assert!(follower.answer().is_some() && follower.differs());
        follower.hear(NodeId(3), (5, 500));
        assert!(follower.answer().is_some());
        assert!(!follower.differs(), "the new leader is like it");
    }
}
