//! What must hold inside, at every moment: the watcher sees every write, every message and every
//! confirm, and knows nothing of how the nodes come to them.

mod holds;
mod times;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use cluster::peer::message::Message;
use cluster::{Compared, Comparison};
use machine::{GroupId, QueueId};
use raft::eraftpb::MessageType;
use wal::CommitBatch;

use super::marks::{Mark, Record, mark, record, voted};
use super::node::{self, Logs};
pub(super) use holds::Holds;
pub(super) use times::{Leader, Times};

/// What a shard says of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) group: GroupId,
    pub(super) term: u64,
    pub(super) is_leader: bool,
    pub(super) commit: u64,
    pub(super) applied: u64,
    /// Those of which a majority has all that is committed, a bit for each.
    pub(super) voters: u64,
    /// Of the machine, if it was asked for.
    pub(super) digest: Option<u64>,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, term, is_leader, commit, applied, voters, .. } = self;
        let leads = if *is_leader { " leads" } else { "" };
        let voters: Vec<u32> =
            (1..=u64::BITS).filter(|node| voters >> (node - 1) & 1 == 1).collect();
        write!(
            f,
            "[group {}{leads} of {voters:?} term {term} commit {commit} applied {applied}]",
            group.0
        )
    }
}

/// One node's log of one group.
#[derive(Debug, Default)]
struct Log {
    /// What was handed out to be written and is not known to be on the disk, in order.
    pending: VecDeque<Mark>,
    /// With that.
    appended: BTreeMap<u64, Rc<Record>>,
    synced: BTreeMap<u64, Rc<Record>>,
    /// Everything up to here is in a checkpoint on its disk.
    checkpoint: u64,
    /// The term and vote on its disk.
    voted: (u64, u64),
    commit: u64,
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    nodes: usize,
    logs: BTreeMap<(usize, u32), Log>,
    /// How many synced entries of each node hold a message of a group.
    holders: BTreeMap<(u32, String), BTreeMap<usize, u32>>,
    committed: BTreeMap<(u32, u64), Rc<Record>>,
    leaders: BTreeMap<(u32, u64), usize>,
    digests: BTreeMap<(u32, u64), (usize, u64)>,
    /// By group, the voters at the highest index that anybody has applied.
    voters: BTreeMap<u32, (u64, u64)>,
    /// Replicas that say that others differ.
    differing: BTreeSet<(usize, u32)>,
    /// The most that one replica compared itself with others in one life.
    comparisons: u64,
    places: BTreeMap<(QueueId, u64), String>,
    copies: BTreeMap<(QueueId, String), u64>,
    /// Messages that somebody may have sent on.
    retried: BTreeSet<String>,
    /// The node whose disk was damaged: what was on it may not be.
    damaged: Option<usize>,
    pub(super) holds: Holds,
    pub(super) times: Times,
    violations: Vec<String>,
}

/// Replicas of a data group, where there are so many nodes.
const REPLICAS: usize = 3;
/// Different violations that are kept: one bug shows in many places.
const VIOLATIONS_MAX: usize = 40;

impl Watch {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    pub(super) fn take_violations(&mut self) -> Vec<String> {
        let found = self.holds.take_violations().into_iter().chain(self.times.take_violations());
        found.for_each(|text| self.violated(text));
        std::mem::take(&mut self.violations)
    }

    fn violated(&mut self, text: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(text);
        }
    }

    /// The disk of `node` has forgotten something.
    pub(super) fn damaged(&mut self, node: usize) {
        self.damaged = Some(node);
    }

    /// Groups that had a leader in more terms than one.
    pub(super) fn elections(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// A shard of `node` wants `batch` written.
    pub(super) fn appended(&mut self, node: usize, batch: &CommitBatch) -> Vec<(u32, Mark)> {
        let marks: Vec<(u32, Mark)> =
            batch.items().iter().map(|(group, item)| (*group, mark(item))).collect();
        for (group, mark) in &marks {
            let log = self.logs.entry((node, *group)).or_default();
            log.pending.push_back(mark.clone());
            match mark {
                Mark::Entry { index, record } => {
                    log.appended.split_off(index);
                    log.appended.insert(*index, Rc::clone(record));
                }
                Mark::Truncated { from } => drop(log.appended.split_off(from)),
                Mark::Voted { .. } => {}
            }
        }
        marks
    }

    /// That is on the disk of `node` now.
    pub(super) fn synced(&mut self, node: usize, marks: Vec<(u32, Mark)>) {
        for (group, mark) in marks {
            self.logs.entry((node, group)).or_default().pending.pop_front();
            match mark {
                Mark::Entry { index, record } => {
                    self.cut(node, group, index);
                    self.hold(node, group, index, record);
                }
                Mark::Truncated { from } => self.cut(node, group, from),
                Mark::Voted { term, vote } => {
                    self.logs.entry((node, group)).or_default().voted = (term, vote);
                }
            }
        }
    }

    fn hold(&mut self, node: usize, group: u32, index: u64, record: Rc<Record>) {
        for id in &record.ids {
            let holders = self.holders.entry((group, id.clone())).or_default();
            *holders.entry(node).or_default() += 1;
        }
        self.logs.entry((node, group)).or_default().synced.insert(index, record);
    }

    fn cut(&mut self, node: usize, group: u32, from: u64) {
        let gone = self.logs.entry((node, group)).or_default().synced.split_off(&from);
        for id in gone.values().flat_map(|record| &record.ids) {
            let Some(holders) = self.holders.get_mut(&(group, id.clone())) else { continue };
            if let Some(count) = holders.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    holders.remove(&node);
                }
            }
        }
    }

    /// The log of `node` was read after a start: what was synced must be there.
    pub(super) fn recovered(&mut self, node: usize, logs: &Logs) {
        let is_damaged = self.damaged == Some(node);
        let groups: Vec<u32> =
            self.logs.keys().filter(|(of, _)| *of == node).map(|(_, group)| *group).collect();
        for group in groups {
            let empty = node::Log::default();
            let node::Log { checkpoint, entries, hard_state } = logs.get(&group).unwrap_or(&empty);
            let found: BTreeMap<u64, Rc<Record>> =
                entries.iter().map(|(at, term, data)| (*at, record(*term, data))).collect();
            let log = self.logs.entry((node, group)).or_default();
            if *checkpoint > log.commit.max(log.checkpoint) {
                // The power went when a snapshot was on the disk, and before anybody heard of it.
                self.installed(node, group, *checkpoint);
            }
            let log = self.logs.entry((node, group)).or_default();
            log.checkpoint = *checkpoint;
            log.commit = 0;
            let pending = std::mem::take(&mut log.pending);
            let lost = log.synced.range(checkpoint + 1..).find(|(index, record)| {
                let now = found.get(index);
                // What was being written when the power went may have taken its place, or some of it.
                now != Some(record) && !pending.iter().any(|mark| mark.explains(**index, now))
            });
            let lost = lost.map(|(index, record)| (*index, record.term)).filter(|_| !is_damaged);
            let voted = hard_state.as_ref().map_or((0, 0), |state| voted(state));
            let may_be =
                |mark: &Mark| matches!(mark, Mark::Voted { term, vote } if (*term, *vote) == voted);
            let before = std::mem::replace(&mut log.voted, voted);
            let is_known = before == voted || is_damaged || pending.iter().any(may_be);
            let forgot = (!is_known).then_some((before, voted));
            log.appended.split_off(&(checkpoint + 1));
            log.appended.extend(found.iter().map(|(at, record)| (*at, Rc::clone(record))));
            if let Some(((term, vote), (is, now))) = forgot {
                self.violated(format!(
                    "node {}: in term {term} of group {group} it had voted for {vote}; after the start \
                     it is in term {is} and voted for {now}",
                    node + 1
                ));
            }
            if let Some((index, term)) = lost {
                let is = found.get(&index).map(|record| record.term);
                self.violated(format!(
                    "node {}: entry {index} of term {term} of group {group} was synced; after the \
                     start there is {is:?}",
                    node + 1
                ));
            }
            self.cut(node, group, checkpoint + 1);
            for (index, record) in found {
                self.hold(node, group, index, record);
            }
        }
    }

    /// A snapshot up to `index` is on the disk of `node`: as good as the entries.
    pub(super) fn installed(&mut self, node: usize, group: u32, index: u64) {
        self.cut(node, group, 0);
        let committed: Vec<(u64, Rc<Record>)> = self
            .committed
            .range((group, 0)..=(group, index))
            .map(|((_, at), record)| (*at, Rc::clone(record)))
            .collect();
        for (at, record) in committed {
            self.hold(node, group, at, record);
        }
        let log = self.logs.entry((node, group)).or_default();
        log.checkpoint = index;
        log.appended = log.synced.clone();
    }

    /// A publisher hears that its message is safe in `group`: it must be on a majority's disks.
    pub(super) fn confirmed(&mut self, group: GroupId, id: &str) {
        if let Some(on) = self.is_on_few(group, id) {
            self.violated(format!("{id} was confirmed, and synced in group {} on {on:?}", group.0));
        }
    }

    /// Somebody sends a dead letter on.
    pub(super) fn retried(&mut self, id: &str) {
        self.retried.insert(id.to_owned());
    }

    /// A dead letter is let go of where it lay, for this copy of it is where it was sent: on a majority's disks.
    pub(super) fn sent_on(&mut self, group: GroupId, copy: &str) {
        if let Some(on) = self.is_on_few(group, copy) {
            let group = group.0;
            self.violated(format!(
                "{copy} let go of first: it is synced in group {group} on {on:?}"
            ));
        }
    }

    /// The nodes on whose disks a message of `group` is, if they are not most of those that count.
    fn is_on_few(&self, group: GroupId, id: &str) -> Option<Vec<usize>> {
        if group.is_local() {
            return None;
        }
        let holders = self.holders.get(&(group.0, id.to_owned()));
        // What was removed does not count, whatever it has.
        let voters = self.voters.get(&group.0).map(|(_, voters)| *voters);
        let of = voters.map_or(self.nodes.min(REPLICAS), |voters| voters.count_ones() as usize);
        let votes = |node: &usize| voters.is_none_or(|voters| voters >> node & 1 == 1);
        // It may have been on the damaged disk when that counted.
        let damaged = self.damaged.filter(|node| holders.is_none_or(|it| !it.contains_key(node)));
        let damaged = damaged.filter(votes);
        let held = holders.map_or(0, |it| it.keys().filter(|node| votes(node)).count());
        let count = held + usize::from(damaged.is_some());
        let on = || holders.into_iter().flat_map(BTreeMap::keys).map(|node| node + 1).collect();
        (count * 2 <= of).then(on)
    }

    /// What `node` says must not be more than what its disk knows. What it says late in a term that its disk has left is
    /// as if it had been long under way: the disk shows what came of it, and no leader of a later term needed it. So a
    /// replica that stood still, and took an entry and then another leader's in its place, writes only the second and
    /// acknowledges both.
    pub(super) fn said(&mut self, node: usize, to: u64, message: &Message) {
        let Message::Raft { group, message } = message else { return };
        let empty = Log::default();
        let log = self.logs.get(&(node, group.0)).unwrap_or(&empty);
        let is_false = match message.get_msg_type() {
            MessageType::MsgAppendResponse if !message.reject => {
                let last = log.synced.last_key_value().map_or(0, |(index, _)| *index);
                message.term >= log.voted.0 && message.index > last.max(log.checkpoint)
            }
            MessageType::MsgRequestVoteResponse if !message.reject => {
                let (term, vote) = log.voted;
                term < message.term || (term == message.term && vote != to)
            }
            _ => false,
        };
        if is_false {
            let (kind, term, index) = (message.get_msg_type(), message.term, message.index);
            let (node, group) = (node + 1, group.0);
            self.violated(format!(
                "node {node}: {kind:?} (group {group}, term {term}, index {index}) before the sync"
            ));
        }
    }

    /// How `node` stands with a group. True if it has just become its leader.
    pub(super) fn stands(&mut self, node: usize, status: &Status) -> bool {
        let Status { group, term, is_leader, commit, applied, voters, digest } = *status;
        let known = self.voters.entry(group.0).or_default();
        if applied >= known.0 && voters != 0 {
            *known = (applied, voters);
        }
        let mut is_new = false;
        if is_leader {
            let leader = *self.leaders.entry((group.0, term)).or_insert_with(|| {
                is_new = true;
                node
            });
            if leader != node {
                self.violated(format!(
                    "nodes {} and {} both lead group {} in term {term}",
                    leader + 1,
                    node + 1,
                    group.0
                ));
            }
        }
        self.commits(node, group.0, commit);
        if let Some(digest) = digest {
            let (other, expected) =
                *self.digests.entry((group.0, applied)).or_insert((node, digest));
            if expected != digest {
                self.violated(format!(
                    "nodes {} and {} differ in group {} at {applied}",
                    other + 1,
                    node + 1,
                    group.0
                ));
            }
        }
        is_new
    }

    /// What a replica found when it compared itself with others: replicas that do the same never differ.
    pub(super) fn compared(&mut self, node: usize, group: GroupId, compared: &Compared) {
        self.comparisons = self.comparisons.max(compared.count);
        let Some(found) = compared.with.iter().find(|found| found.differs()) else { return };
        let Comparison { node: other, index, ours, theirs } = *found;
        if self.differing.insert((node, group.0)) {
            let (node, group) = (node + 1, group.0);
            self.violated(format!(
                "node {node} says that its replica of group {group} has the digest {ours:016x} at {index}, and node \
                 {}'s {theirs:016x}",
                other.0
            ));
        }
    }

    /// The most that one replica compared itself with others in one life.
    pub(super) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    fn commits(&mut self, node: usize, group: u32, commit: u64) {
        let log = self.logs.entry((node, group)).or_default();
        if commit <= log.commit {
            return;
        }
        let mut differs = None;
        for (index, record) in log.appended.range(log.commit + 1..=commit) {
            let first = self.committed.entry((group, *index)).or_insert_with(|| Rc::clone(record));
            if first != record {
                differs = Some((*index, first.term, record.term));
            }
        }
        log.commit = commit;
        if let Some((index, one, other)) = differs {
            self.violated(format!(
                "group {group}: entry {index} is committed with term {one}, on node {} with {other}",
                node + 1
            ));
        }
    }

    /// A message was delivered from its place in the queue: it has one, for good.
    /// Dead letters may come into their queue more than once, and so may what is sent on.
    pub(super) fn delivered(&mut self, queue: QueueId, seq: u64, id: &str, takes_dead: bool) {
        let place = self.places.entry((queue, seq)).or_insert_with(|| id.to_owned());
        if place != id {
            let text = format!("queue {} has {place} and {id} at {seq}", queue.0);
            self.violated(text);
        }
        if takes_dead || self.retried.contains(id) {
            return;
        }
        let copy = *self.copies.entry((queue, id.to_owned())).or_insert(seq);
        if copy != seq {
            self.violated(format!("{id} is in queue {} twice: {copy} and {seq}", queue.0));
        }
    }
}

#[cfg(test)]
mod tests;
