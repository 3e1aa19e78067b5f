//! The time of each group: it goes on from leader to leader, whatever their own clocks say.
//!
//! A leader whose process never heard what time it is in the group has nothing but its clock to go by (no node
//! that knew was there to tell it). Then the time may leap, and it is written down when it did. Or it stands still at
//! the last entry for as long as that one leads, and the next leader, which knows, goes on where it was.

use std::collections::{BTreeMap, BTreeSet};

use crate::sim::agenda::Micros;

/// Clocks that differ by less are the same to a group (`cluster::group_time`); some for rounding.
const SAME_MS: i64 = 1_005;
/// One leader's time is as steady as the monotonic clock, rounded down twice.
const STEADY_MS: i64 = 2;
/// What a new leader heard may have been on its way for long: then the time stands still for a while.
const LATE_MS: i64 = 15_000;

/// Who leads a group as the last one that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) struct Leader {
    pub(in crate::sim) node: usize,
    /// Which start of the node.
    pub(in crate::sim) life: u64,
    pub(in crate::sim) term: u64,
}

#[derive(Debug, Default)]
pub(in crate::sim) struct Times {
    /// How far a group's time is ahead of the simulator's, and by whose word.
    ahead: BTreeMap<u32, (Leader, i64)>,
    /// How far it was before it stood still.
    furthest: BTreeMap<u32, i64>,
    /// Starts of nodes that have heard a group's time.
    heard: BTreeSet<(u32, usize, u64)>,
    /// Leaders that were judged.
    pub(in crate::sim) judged: u64,
    violations: Vec<String>,
}

impl Times {
    pub(super) fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// A leader said to this start of `node` what time it is.
    pub(in crate::sim) fn heard(&mut self, group: u32, node: usize, life: u64, term: u64) {
        // Before a leap it was another time.
        if self.ahead.get(&group).is_none_or(|(leader, _)| leader.term <= term) {
            self.heard.insert((group, node, life));
        }
    }

    /// A group's leader goes by `time_ms` at `now`. True: the time has leapt, and nobody could know better.
    pub(in crate::sim) fn leads(
        &mut self,
        group: u32,
        leader: Leader,
        now: Micros,
        time_ms: u64,
    ) -> bool {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let ahead = signed(time_ms) - signed(now / 1000);
        let Leader { node, life, term } = leader;
        let before = self.ahead.get(&group).copied();
        if before.is_some_and(|(last, _)| last.term > term) {
            // It does not know yet that another leads.
            return false;
        }
        self.ahead.insert(group, (leader, ahead));
        let knows = !self.heard.insert((group, node, life));
        let furthest = self.furthest.entry(group).or_insert(ahead);
        let Some((last, before)) = before else { return false };
        let by_ms = ahead - before;
        if last == leader {
            if by_ms.abs() > STEADY_MS {
                self.violations.push(format!(
                    "the time of group {group} jumps by {by_ms} ms while node {} leads it",
                    node + 1
                ));
            }
            return false;
        }
        self.judged += 1;
        // Who knows goes on where the time was before it stood still. What came meanwhile is due sooner, as after a leap.
        let makes_up = by_ms > SAME_MS;
        let by_ms = if makes_up { ahead - *furthest } else { by_ms };
        if (-LATE_MS..=SAME_MS).contains(&by_ms) {
            *furthest = ahead.max(*furthest);
            return makes_up;
        }
        *furthest = ahead;
        if knows {
            self.violations.push(format!(
                "the time of group {group} jumps by {by_ms} ms when node {} leads it in term {term}",
                node + 1
            ));
            return false;
        }
        self.heard.retain(|(of, by, at)| *of != group || (*by, *at) == (node, life));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn leader(node: usize, term: u64) -> Leader {
        Leader { node, life: 1, term }
    }

    #[test]
    fn a_leader_that_was_told_the_time_goes_on_with_it() {
        let mut times = Times::default();
        times.leads(1, leader(0, 1), 0, HOUR);
        times.leads(1, leader(0, 1), 5_000_000, HOUR + 5_000);
        times.heard(1, 1, 1, 1);
        assert!(!times.leads(1, leader(1, 2), 6_000_000, HOUR + 5_900));
        assert!(times.take_violations().is_empty());
        assert!(!times.leads(1, leader(0, 3), 7_000_000, HOUR + 2 * HOUR));
        assert_eq!(times.take_violations().len(), 1);
    }

    #[test]
    fn after_a_leader_that_stood_still_the_next_goes_on_where_the_time_was() {
        let mut times = Times::default();
        times.leads(1, leader(0, 1), 0, HOUR);
        times.heard(1, 2, 1, 1);
        // Nobody told it, and its clock is wrong: it stands at the last entry, of two seconds before.
        assert!(!times.leads(1, leader(1, 2), 5_000_000, HOUR + 3_000));
        assert!(times.leads(1, leader(2, 3), 5_010_000, HOUR + 5_010), "as if it had leapt");
        assert!(times.take_violations().is_empty());
        // Where it never was, it may not go.
        times.leads(1, leader(1, 4), 5_020_000, HOUR + 3_000);
        times.leads(1, leader(2, 5), 5_030_000, HOUR + 7_000);
        assert_eq!(times.take_violations().len(), 1);
    }

    #[test]
    fn one_that_nobody_told_may_leap_and_the_others_have_to_hear_of_it() {
        let mut times = Times::default();
        times.leads(1, leader(0, 1), 0, HOUR);
        assert!(times.leads(1, leader(1, 2), 0, 2 * HOUR));
        assert!(times.leads(1, leader(0, 3), 0, 4 * HOUR), "it knew the time before the leap");
        times.heard(1, 2, 1, 3);
        assert!(!times.leads(1, leader(2, 4), 0, HOUR));
        assert_eq!(times.take_violations().len(), 1);
    }
}
