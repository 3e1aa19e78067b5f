//! A replicated group of queues: its consensus, its queues, and who waits for what.

use machine::{Applied, EntryReader, GroupId};
use raft::eraftpb::Entry;

use crate::checkpoint::{Job, Stored};
use crate::proposals::{Fates, Proposals, Waiter};
use crate::queues::{Origin, Queues, Wish};
use crate::replica::Replica;
use crate::shard::{Now, Output, SegmentExtent, refuse, tell};

/// One data group on this node.
pub struct QueueGroup {
    pub(crate) group: GroupId,
    pub(crate) replica: Replica,
    pub(crate) queues: Queues,
    pub(crate) proposals: Proposals,
    applied: u64,
    checkpoint: Progress,
    /// Whether an entry of this node's own term is applied: everything before it is, too.
    leads: bool,
}

impl QueueGroup {
    /// The group as recovered up to `applied`.
    pub(crate) fn new(replica: Replica, queues: Queues, group: GroupId, applied: u64) -> Self {
        let proposals = Proposals::default();
        let checkpoint = Progress::default();
        Self { group, replica, queues, proposals, applied, checkpoint, leads: false }
    }

    /// Whether the group takes consumers.
    pub(crate) fn is_serving(&self) -> bool {
        self.leads && !self.proposals.is_waiting()
    }

    pub(crate) fn settle_deadline_ms(&self) -> Option<u64> {
        self.queues.settle_deadline_ms()
    }

    /// Proposes what was gathered. Settles ride along with whatever else there is, or go alone when
    /// they have waited long enough, or `at_once`.
    pub(crate) fn flush(&mut self, now: Now, at_once: bool) -> Vec<Waiter> {
        let due = self.queues.settle_deadline_ms();
        // What is taken must get into the log: nobody would gather it again.
        if self.replica.is_leader()
            && due.is_some_and(|at| self.proposals.is_gathering() || at_once || at <= now.mono_ms)
        {
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
        let Fates { committed, lost } = self.proposals.committed(entry.index, entry.term);
        refuse(lost, outputs);
        if !entry.data.is_empty() {
            self.apply(&entry, wishes);
        }
        for waiter in committed {
            if let Waiter::Appended { settles, .. } = &waiter {
                self.queues.settled_by_entry(settles, wishes);
            }
            // Wishes come after: a confirm waits for the commit and for nothing else.
            tell(waiter, outputs);
        }
        self.replica.applied(entry.index);
    }

    fn apply(&mut self, entry: &Entry, wishes: &mut Vec<Wish>) {
        let reader = EntryReader::new(&entry.data).expect("an entry of our own making");
        let at = Applied { index: entry.index, time_ms: reader.time_ms() };
        let applied = self.queues.apply(at, &entry.data, Origin::Committed, wishes);
        assert!(applied.is_ok(), "an entry of group {:?} cannot be applied", self.group);
    }

    /// The log below is not needed for long: a checkpoint is due as soon as there is something for it.
    pub(crate) fn want_checkpoint(&mut self) {
        self.checkpoint.is_wanted = true;
    }

    /// If most of what the segments hold is dead, a checkpoint gives its space back.
    pub(crate) fn review(&mut self, held: &[SegmentExtent]) {
        let machine = self.queues.machine();
        let alive = |held: &SegmentExtent| {
            let live = machine.live(held.queue)?;
            Some(live.within(held.first_seq..held.last_seq + 1).len())
        };
        let count: u64 = held.iter().map(|held| held.count).sum();
        let alive: u64 = held.iter().filter_map(alive).sum();
        if alive * 2 < count {
            self.want_checkpoint();
        }
    }

    /// What is to be written so that the log below is not needed, if that is due.
    pub(crate) fn due_checkpoint(&mut self) -> Option<Job> {
        let (compacted, _) = self.replica.log().compacted();
        if !self.checkpoint.begin(self.applied > compacted) {
            return None;
        }
        let machine = self.queues.machine();
        let bodies = self.queues.bodies();
        // A delivery that waits for its bytes needs them even if it is settled already.
        let needed = |queue| {
            let mut live = machine.live(queue)?.clone();
            live.insert_all(&bodies.waiting(queue));
            Some(live)
        };
        let mut job = Job::new(self.group, self.applied, &self.replica, &machine.snapshot());
        job.live = machine.queues().filter_map(|queue| Some((queue, needed(queue)?))).collect();
        for (queue, parts) in bodies.in_entries_to(self.applied) {
            if let Ok(at) = job.live.binary_search_by_key(&queue, |(queue, _)| *queue) {
                let live = job.live[at].1.clone();
                job.add(queue, &live, parts, self.replica.log());
            }
        }
        Some(job)
    }

    /// The checkpoint at `index` is synced, and `stored` says which segments hold what.
    pub(crate) fn checkpointed(&mut self, index: u64, stored: &[Stored]) {
        self.checkpoint.end();
        self.queues.checkpointed(index, stored);
        self.replica.compact(index);
    }

    /// There was no room for the checkpoint: the log stays as it is until another is wanted.
    pub(crate) fn checkpoint_failed(&mut self) {
        self.checkpoint.end();
    }
}

/// Whether a checkpoint is wanted or under way. One that is wanted comes, if not now then later:
/// who wants it asks once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) is_wanted: bool,
    is_under_way: bool,
}

impl Progress {
    /// Whether one is to be begun now, `is_useful` telling whether it would hold anything new.
    pub(crate) fn begin(&mut self, is_useful: bool) -> bool {
        let begins = self.is_wanted && !self.is_under_way && is_useful;
        if begins {
            *self = Self { is_wanted: false, is_under_way: true };
        }
        begins
    }

    pub(crate) fn end(&mut self) {
        self.is_under_way = false;
    }
}
