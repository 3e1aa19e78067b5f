//! Questions of operators about this node and its cluster's queues, and of anybody about locks.

use std::collections::BTreeMap;
use std::time::Duration;

use machine::{GroupId, LockReply, QueueId};
use tokio::time::{Instant, timeout_at};

use super::handle::ClusterHandle;
use super::locks;
use super::peeks;
use super::tallies::Tally;
use crate::described::{DescribedQueue, NotDescribed, Resources};
use crate::limits::DESCRIBED_QUEUES_MAX;
use crate::locked::{LockLine, LockSpec, NotLocked};
use crate::peeked::{NotPeeked, PeekSpec, Peeked};
use crate::request::{Answer, Request, Ticket};
use crate::shard::{LedQueue, StreamPlace, WantedLine, WantedPlace};

/// How long leaders may take to describe queues.
const WAIT: Duration = Duration::from_secs(2);

impl ClusterHandle {
    /// What the leader of each of these queues knows of it, in their order; at most [`DESCRIBED_QUEUES_MAX`]. They are
    /// asked together, by a session of their own, and have two seconds.
    ///
    /// # Panics
    /// There are more.
    pub async fn describe(
        &self,
        queues: &[(GroupId, QueueId)],
    ) -> Vec<Result<Box<DescribedQueue>, NotDescribed>> {
        assert!(queues.len() <= DESCRIBED_QUEUES_MAX, "so many queues are described at once");
        let deadline = Instant::now() + WAIT;
        let mut found = BTreeMap::new();
        // What is not answered in time, or by a node that stops, is not described.
        let _ = timeout_at(deadline, self.ask_all(queues, &mut found)).await;
        let nth = (0..queues.len() as u64).map(Ticket);
        nth.map(|ticket| found.remove(&ticket).unwrap_or(Err(NotDescribed::Late))).collect()
    }

    async fn ask_all(
        &self,
        queues: &[(GroupId, QueueId)],
        found: &mut BTreeMap<Ticket, Result<Box<DescribedQueue>, NotDescribed>>,
    ) {
        // Dropping the receiver ends the session, with what it has asked.
        let (session, mut receiver) = self.open_session();
        let tickets = (0..).map(Ticket).zip(queues);
        let mut requests: Vec<Request> = tickets
            .map(|(ticket, (group, queue))| Request::Describe {
                ticket,
                group: *group,
                queue: *queue,
            })
            .collect();
        let mut answers = Vec::new();
        if !self.submit(session, &mut requests).await {
            return;
        }
        while found.len() < queues.len() && receiver.recv(&mut answers).await {
            for answer in answers.drain(..) {
                // All sessions hear of alarms, and that the node stops; nothing else was asked.
                if let Answer::AppendFailed { ticket } = answer {
                    found.insert(ticket, Err(NotDescribed::NoLeader));
                } else if let Answer::Described { ticket, result } = answer {
                    found.insert(ticket, result);
                }
            }
        }
    }

    /// How this node's groups stand, and the queues that it leads, some at a time: each queue of the cluster is led by
    /// one node. `None`: a shard was not through in time. Blocks for as long as the shards take.
    pub fn tally(&self, each: impl FnMut(&[LedQueue])) -> Option<Tally> {
        self.node.tallies.walk(&self.node.shards, each)
    }

    /// Where in those of these streams that this node leads somebody would begin to read. `None`: a shard was not through
    /// in time. Blocks for as long as the shards take.
    pub fn stream_places(&self, wanted: Vec<WantedPlace>) -> Option<Vec<StreamPlace>> {
        self.node.tallies.places(&self.node.shards, wanted.into())
    }

    /// Who waits for a lock. `None`: this node does not lead its group, or a shard was not through in time. Blocks for as
    /// long as the shards take.
    pub fn lock_line(&self, wanted: WantedLine) -> Option<LockLine> {
        self.node.tallies.lock_line(&self.node.shards, wanted)
    }

    /// Messages of a queue as they are, from `spec.from` on: nothing is changed by it, not even which of them count as
    /// redelivered. It gives what could be seen within two seconds and a MiB, and says where to go on.
    ///
    /// # Errors
    /// None could be seen: why.
    pub async fn peek(
        &self,
        queue: (GroupId, QueueId),
        spec: PeekSpec,
    ) -> Result<Peeked, NotPeeked> {
        peeks::peek(self, queue, spec).await
    }

    /// Asks the leader of a group about locks. A new leader is asked again, so a change of leader takes time and is no
    /// error. To drop this is to give up: who waits for a lock waits no more.
    ///
    /// # Errors
    /// There is no answer: why.
    pub async fn ask_lock(&self, group: GroupId, spec: LockSpec) -> Result<LockReply, NotLocked> {
        locks::ask(self, group, spec).await
    }

    /// What this node has and may use.
    pub fn resources(&self) -> Resources {
        self.node.resources()
    }
}
