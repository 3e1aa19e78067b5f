//! Purges of queues that can be undone, asked by a session of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use machine::{GroupId, QueueId};
use tokio::time::timeout;

use super::handle::ClusterHandle;
use crate::request::{Answer, Request, Ticket};
use crate::withheld::{NotWithheld, WithheldCount, WithholdStep};

/// How long an answer may take: longer than an election.
const WAIT: Duration = Duration::from_secs(15);

impl ClusterHandle {
    /// Purges what is ready in a queue with these partitions so that it can be undone, or undoes that: of each on its own.
    /// A new leader is asked again, and does nothing twice.
    ///
    /// # Errors
    /// The first partition that did not do it, as far as is known. The others may have.
    pub async fn withhold(
        &self,
        partitions: &[(GroupId, QueueId)],
        step: WithholdStep,
    ) -> Result<WithheldCount, NotWithheld> {
        let asked = timeout(WAIT, ask(self, partitions, step)).await;
        asked.unwrap_or(Err(NotWithheld::Late))
    }
}

async fn ask(
    cluster: &ClusterHandle,
    partitions: &[(GroupId, QueueId)],
    step: WithholdStep,
) -> Result<WithheldCount, NotWithheld> {
    // Dropping the receiver ends the session, with what it has asked.
    let (session, mut receiver) = cluster.open_session();
    let request = |(ticket, place): (Ticket, &(GroupId, QueueId))| {
        let (group, queue) = *place;
        Request::Withhold { ticket, group, queue, step }
    };
    let mut requests = (0..).map(Ticket).zip(partitions).map(request).collect();
    if !cluster.submit(session, &mut requests).await {
        return Err(NotWithheld::NoLeader);
    }
    let (mut told, mut answers) = (BTreeMap::new(), Vec::new());
    while told.len() < partitions.len() && receiver.recv(&mut answers).await {
        for answer in answers.drain(..) {
            // All sessions hear of alarms, and that the node stops; nothing else was asked.
            if let Answer::AppendFailed { ticket } = answer {
                told.insert(ticket, Err(NotWithheld::NoLeader));
            } else if let Answer::Withheld { ticket, result } = answer {
                told.insert(ticket, result);
            }
        }
    }
    if told.len() < partitions.len() {
        return Err(NotWithheld::NoLeader);
    }
    told.into_values().try_fold(WithheldCount::default(), |all, one| {
        let WithheldCount { count, until_ms } = one?;
        Ok(WithheldCount { count: all.count + count, until_ms: all.until_ms.max(until_ms) })
    })
}
