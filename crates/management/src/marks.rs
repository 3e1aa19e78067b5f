//! What happened in the time that the history shows: groups that got another leader, nodes that started, and deployments
//! that somebody has told of. A chart draws them as marks.
//!
//! Leaders and starts are in the memory of each node that has seen them: each replica of a group sees its leaders, and
//! each node sees the starts of all. What is asked for is merged over the nodes, so a mark is lost only with the last
//! node that has seen it. Deployments are in the audit trail, which every node has and which survives restarts.

mod merged;

use std::collections::{BTreeMap, BTreeSet};

use cluster::PeerStatus;
use cluster::shard::GroupReport;
use machine::NodeId;
use serde::{Deserialize, Serialize};

pub(crate) use merged::{Merged, shown};

use crate::history::SPAN_S_MAX;
use crate::limits::{MARK_TEXT_BYTES_MAX, MARKS_MAX};
use crate::reply::Problem;

/// The event of the audit trail that a deployment is, and what says in its details which one it was.
pub(crate) const MARKED: &str = "mark.created";
pub(crate) const TEXT: &str = "text";

/// Which mark it is: the same on every node that has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Key {
    /// A group has one leader in a term.
    Leader { group: u32, term: u64 },
    /// A node numbers its starts by the time: milliseconds since 1970.
    Start { node: u64, boot: u64 },
}

/// A mark as nodes tell it each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Since 1970, by the clock of who has seen it.
    pub(crate) at_ms: u64,
    pub(crate) key: Key,
    /// Of a leader: who led before, and who does now. Of a start: the node.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What this node has seen: at most [`MARKS_MAX`] marks, of the time that history goes back.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The oldest first.
    marks: BTreeSet<Mark>,
    known: BTreeMap<Key, u64>,
}

impl Mark {
    pub(crate) fn start(node: NodeId, boot: u64) -> Self {
        Self { at_ms: boot, key: Key::Start { node: node.0, boot }, from: node.0, to: node.0 }
    }
}

impl Marks {
    /// Takes what the groups and the other nodes say now, and that this node has started.
    pub(crate) fn look(
        &mut self,
        now_ms: u64,
        own: Mark,
        groups: &[GroupReport],
        peers: &[PeerStatus],
    ) {
        let oldest_ms = now_ms.saturating_sub(SPAN_S_MAX * 1000);
        while let Some(oldest) = self.marks.first().copied().filter(|it| it.at_ms < oldest_ms) {
            self.forget(oldest);
        }
        let leaders = groups.iter().flat_map(|report| {
            let of = |change: &cluster::LeaderChange| Mark {
                at_ms: change.at_ms,
                key: Key::Leader { group: report.group.0, term: change.term },
                from: change.from.0,
                to: change.to.0,
            };
            report.leader_changes.iter().map(of)
        });
        let starts = peers.iter().map(|peer| Mark::start(peer.node, peer.boot));
        for mark in leaders.chain(starts).chain([own]).filter(|it| it.at_ms >= oldest_ms) {
            if self.known.contains_key(&mark.key) {
                continue;
            }
            self.known.insert(mark.key, mark.at_ms);
            self.marks.insert(mark);
            if self.marks.len() > MARKS_MAX
                && let Some(oldest) = self.marks.first().copied()
            {
                self.forget(oldest);
            }
        }
        assert_eq!(self.marks.len(), self.known.len(), "each mark is known once");
        assert!(self.marks.len() <= MARKS_MAX, "so many marks are kept");
    }

    fn forget(&mut self, mark: Mark) {
        self.marks.remove(&mark);
        self.known.remove(&mark.key);
    }

    /// The marks of a time, the oldest first.
    pub(crate) fn between(&self, from_ms: u64, to_ms: u64) -> Vec<Mark> {
        let is_in = |mark: &&Mark| (from_ms..=to_ms).contains(&mark.at_ms);
        self.marks.iter().filter(is_in).copied().collect()
    }
}

/// What somebody says of a deployment, if it can be a mark.
pub(crate) fn checked_text(text: &str) -> Result<&str, Problem> {
    let text = text.trim();
    let is_fine = (1..=MARK_TEXT_BYTES_MAX).contains(&text.len());
    match is_fine && !text.chars().any(char::is_control) {
        true => Ok(text),
        false => Err(Problem::bad(format!(
            "text should say on one line what happened, in 1 to {MARK_TEXT_BYTES_MAX} bytes"
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use machine::Version;

    use super::*;
    use crate::problems::tests::group;

    const DAY_MS: u64 = 86_400_000;

    fn changed(number: u32, changes: &[(u64, u64, u64, u64)]) -> GroupReport {
        let change = |(term, from, to, at_ms): &(u64, u64, u64, u64)| cluster::LeaderChange {
            term: *term,
            from: NodeId(*from),
            to: NodeId(*to),
            at_ms: *at_ms,
        };
        let leader_changes = changes.iter().map(change).collect();
        GroupReport { leader_changes, ..group(number, Some(1), &[]) }
    }

    fn peer(node: u64, boot: u64) -> PeerStatus {
        PeerStatus {
            node: NodeId(node),
            address: String::new(),
            boot,
            is_up: true,
            speaks: Some(Version::NEWEST),
            trouble: None,
            queued_bytes: 0,
        }
    }

    #[test]
    fn each_change_and_each_start_is_one_mark_for_two_days() {
        let mut marks = Marks::default();
        let now = 10 * DAY_MS;
        let own = Mark::start(NodeId(1), now - 9_000);
        let groups = [changed(3, &[(7, 1, 2, now - 5_000)])];
        for _ in 0..2 {
            marks.look(now, own, &groups, &[peer(2, now - 7_000), peer(3, 0)]);
        }
        let leader =
            Mark { at_ms: now - 5_000, key: Key::Leader { group: 3, term: 7 }, from: 1, to: 2 };
        let seen = [own, Mark::start(NodeId(2), now - 7_000), leader];
        assert_eq!(marks.between(0, now), seen);
        assert_eq!(marks.between(now - 6_000, now), [leader]);
        let again = [peer(2, now + 50)];
        marks.look(now + 100, own, &groups, &again);
        assert_eq!(marks.between(now, now + 100), [Mark::start(NodeId(2), now + 50)]);
        marks.look(now + 2 * DAY_MS - 6_000, own, &groups, &again);
        assert_eq!(marks.between(0, u64::MAX)[0], leader, "the starts before it are too old");
        assert_eq!(marks.between(0, u64::MAX).len(), 2);
    }

    #[test]
    fn so_many_marks_are_kept_and_they_are_the_newest() {
        let mut marks = Marks::default();
        let now = 10 * DAY_MS;
        let own = Mark::start(NodeId(1), now);
        let all: Vec<GroupReport> = (0..=MARKS_MAX as u32)
            .map(|at| changed(at, &[(1, 1, 2, now - 1 - u64::from(at))]))
            .collect();
        for _ in 0..2 {
            marks.look(now, own, &all, &[]);
            let kept = marks.between(0, now);
            assert_eq!(kept.len(), MARKS_MAX);
            assert_eq!(kept[0].at_ms, now + 1 - MARKS_MAX as u64);
        }
    }

    #[test]
    fn a_deployment_is_said_on_one_short_line() {
        assert_eq!(checked_text(" orders 1.4.2 "), Ok("orders 1.4.2"));
        let long = "x".repeat(MARK_TEXT_BYTES_MAX + 1);
        for wrong in ["", "  ", "two\nlines", &long] {
            assert!(checked_text(wrong).is_err(), "{wrong:?}");
        }
    }
}
