//! A replicated group of queues: its consensus, its queues, and who waits for what.

use machine::{Applied, EntryReader, GroupId};
use raft::eraftpb::Entry;

use crate::checkpoint::{Job, Stored};
use crate::proposals::{Proposals, Waiter};
use crate::queues::{Origin, Queues, Wish};
use crate::replica::Replica;
use crate::shard::{Now, Output, tell};

/// One data group on this node.
pub struct QueueGroup {
    pub(crate) group: GroupId,
    pub(crate) replica: Replica,
    pub(crate) queues: Queues,
    pub(crate) proposals: Proposals,
    applied: u64,
    checkpointing: bool,
    /// Whether an entry of this node's own term is applied: everything before it is, too.
    leads: bool,
}

impl QueueGroup {
    /// The group as recovered up to `applied`.
    pub(crate) fn new(replica: Replica, queues: Queues, group: GroupId, applied: u64) -> Self {
        let proposals = Proposals::default();
        Self { group, replica, queues, proposals, applied, checkpointing: false, leads: false }
    }

    /// Whether the group takes consumers.
    pub(crate) fn is_serving(&self) -> bool {
        self.leads && !self.proposals.is_waiting()
    }

    pub(crate) fn settle_deadline_ms(&self) -> Option<u64> {
        self.queues.settle_deadline_ms()
    }

    /// Proposes what was gathered. Settles ride along with whatever else there is, or go alone when
    /// they have waited long enough.
    pub(crate) fn flush(&mut self, now: Now) -> Vec<Waiter> {
        let due = self.queues.settle_deadline_ms();
        if due.is_some_and(|at| self.proposals.is_gathering() || at <= now.mono_ms) {
            self.queues.take_settled(self.proposals.batch_mut());
        }
        self.proposals.propose(&mut self.replica, now.wall_ms)
    }

    /// Applies a committed entry and tells who waited for it.
    pub(crate) fn commit(
        &mut self,
        entry: Entry,
        wishes: &mut Vec<Wish>,
        outputs: &mut Vec<Output>,
    ) {
        self.applied = entry.index;
        if !self.leads && self.replica.is_leader() && entry.term == self.replica.term() {
            self.leads = true;
            self.queues.lead();
        }
        if !entry.data.is_empty() {
            let waiters = self.proposals.committed(entry.index);
            self.apply(&entry, wishes);
            for waiter in waiters {
                if let Waiter::Appended { settles, .. } = &waiter {
                    self.queues.settled_by_entry(settles, wishes);
                }
                // Wishes come after: a confirm waits for the commit and for nothing else.
                tell(waiter, outputs);
            }
        }
        self.replica.applied(entry.index);
    }

    fn apply(&mut self, entry: &Entry, wishes: &mut Vec<Wish>) {
        let reader = EntryReader::new(&entry.data).expect("an entry of our own making");
        let at = Applied { index: entry.index, time_ms: reader.time_ms() };
        let applied = self.queues.apply(at, &entry.data, Origin::Committed, wishes);
        assert!(applied.is_ok(), "an entry of group {:?} cannot be applied", self.group);
    }

    /// What is to be written so that the log below is not needed; `None` while one is under way.
    pub(crate) fn checkpoint(&mut self) -> Option<Job> {
        let (compacted, _) = self.replica.log().compacted();
        if self.checkpointing || self.applied <= compacted {
            return None;
        }
        self.checkpointing = true;
        let machine = self.queues.machine();
        let mut job = Job::new(self.group, self.applied, &self.replica, &machine.snapshot());
        for (queue, parts) in self.queues.bodies().in_entries_to(self.applied) {
            if let Some(live) = machine.live(queue) {
                job.add(queue, live, parts, self.replica.log());
            }
        }
        job.live = machine
            .queues()
            .filter_map(|queue| Some((queue, machine.live(queue)?.clone())))
            .collect();
        Some(job)
    }

    /// The checkpoint at `index` is synced, and `stored` says which segments hold what.
    pub(crate) fn checkpointed(&mut self, index: u64, stored: &[Stored]) {
        self.checkpointing = false;
        self.queues.bodies_mut().checkpointed(index, stored);
        self.replica.compact(index);
    }
}
