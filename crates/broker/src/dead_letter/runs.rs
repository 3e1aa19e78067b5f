//! Runs of dead messages that the dead-letter worker works on, until their queue may let go of them.

use std::collections::BTreeMap;

use cluster::{Leaving, Request};
use machine::{ConsumerId, GroupId, Outcome, QueueId, Ranges, SessionId};

use super::outgoing::RunNumber;

/// Messages of one level that died of one reason.
#[derive(Debug)]
struct Run {
    group: GroupId,
    queue: QueueId,
    ranges: Ranges,
    /// Appends with messages of it that are not logged, and the dead-letter worker itself while it is at it.
    waits_for: u32,
}

/// All that are not settled, and what is to be settled next.
#[derive(Debug, Default)]
pub(super) struct Runs {
    open: BTreeMap<RunNumber, Run>,
    last: RunNumber,
    /// What the dead-letter worker has of each level: what a leader hands out again is not sent twice.
    taken: BTreeMap<QueueId, Ranges>,
    settled: BTreeMap<(GroupId, QueueId), Ranges>,
}

impl Runs {
    /// What of `leaving` the dead-letter worker has not got yet, which it has now.
    pub(super) fn take(&mut self, leaving: &Leaving) -> Ranges {
        let range = leaving.first_seq..leaving.first_seq + u64::from(leaving.count);
        let mut fresh = Ranges::from(range.clone());
        let taken = self.taken.entry(leaving.queue).or_default();
        if taken.intersects(range.clone()) {
            fresh.remove_all(taken);
        }
        taken.insert(range);
        fresh
    }

    /// A run begins: nothing of it is settled before `pass`.
    pub(super) fn begin(&mut self, group: GroupId, queue: QueueId, ranges: Ranges) -> RunNumber {
        self.last += 1;
        self.open.insert(self.last, Run { group, queue, ranges, waits_for: 1 });
        self.last
    }

    /// One append more has messages of the run.
    pub(super) fn wait(&mut self, run: RunNumber) {
        if let Some(run) = self.open.get_mut(&run) {
            run.waits_for += 1;
        }
    }

    /// One append less, or the dead-letter worker is through.
    pub(super) fn pass(&mut self, number: RunNumber) {
        let Some(run) = self.open.get_mut(&number) else { return };
        run.waits_for -= 1;
        if run.waits_for > 0 {
            return;
        }
        let Some(Run { group, queue, ranges, .. }) = self.open.remove(&number) else { return };
        if let Some(taken) = self.taken.get_mut(&queue) {
            taken.remove_all(&ranges);
            if taken.is_empty() {
                self.taken.remove(&queue);
            }
        }
        self.settled.entry((group, queue)).or_default().insert_all(&ranges);
    }

    /// Tells the sources what they may let go of.
    pub(super) fn flush(&mut self, session: SessionId, requests: &mut Vec<Request>) {
        for ((group, queue), ranges) in std::mem::take(&mut self.settled) {
            requests.push(Request::Settle {
                group,
                queue,
                consumer: ConsumerId { session, number: 0 },
                ranges,
                outcome: Outcome::DeadLettered,
                credit: 0,
            });
        }
    }
}
