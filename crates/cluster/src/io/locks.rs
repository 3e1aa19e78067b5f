//! A question about locks, by a session of its own.

use std::time::Duration;

use machine::{GroupId, LockReply};
use tokio::time::timeout;

use super::handle::ClusterHandle;
use crate::locked::{LockSpec, NotLocked};
use crate::request::{Answer, Request, Ticket};

/// How long an answer may take besides what the question may wait: longer than an election.
const WAIT: Duration = Duration::from_secs(15);

pub(super) async fn ask(
    cluster: &ClusterHandle,
    group: GroupId,
    spec: LockSpec,
) -> Result<LockReply, NotLocked> {
    let time = WAIT + Duration::from_millis(u64::from(spec.wait_ms));
    timeout(time, ask_once(cluster, group, spec)).await.unwrap_or(Err(NotLocked::Late))
}

async fn ask_once(
    cluster: &ClusterHandle,
    group: GroupId,
    spec: LockSpec,
) -> Result<LockReply, NotLocked> {
    // Dropping the receiver ends the session, with what it has asked.
    let (session, mut receiver) = cluster.open_session();
    let ticket = Ticket(0);
    let mut requests = vec![Request::Lock { ticket, group, spec: Box::new(spec) }];
    if !cluster.submit(session, &mut requests).await {
        return Err(NotLocked::NoLeader);
    }
    let mut answers = Vec::new();
    while receiver.recv(&mut answers).await {
        for answer in answers.drain(..) {
            // All sessions hear of alarms, and that the node stops; nothing else was asked.
            if let Answer::AppendFailed { .. } = answer {
                return Err(NotLocked::NoLeader);
            }
            if let Answer::Locked { result, .. } = answer {
                return result.map(|reply| *reply);
            }
        }
    }
    Err(NotLocked::NoLeader)
}
