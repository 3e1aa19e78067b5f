//! Looks at messages of a queue, look after look, until there are as many as somebody wants or the time is over.

use std::time::Duration;

use machine::{GroupId, QueueId};
use tokio::time::{Instant, sleep, timeout_at};

use super::handle::{AnswerReceiver, ClusterHandle};
use crate::limits::PEEKED_BYTES;
use crate::peeked::{NotPeeked, PeekSpec, Peeked};
use crate::request::{Answer, Request, Ticket};

/// How long all looks together may take.
const WAIT: Duration = Duration::from_secs(2);

/// Before the next look where the leader was busy, or a checkpoint was moving what it looked at.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn peek(
    cluster: &ClusterHandle,
    place: (GroupId, QueueId),
    spec: PeekSpec,
) -> Result<Peeked, NotPeeked> {
    let mut peeked = Peeked { next: Some(spec.from), ..Peeked::default() };
    let mut problem = Some(NotPeeked::Late);
    let looks = looks(cluster, place, spec, &mut peeked, &mut problem);
    // What was seen in time is shown.
    let _ = timeout_at(Instant::now() + WAIT, looks).await;
    match problem {
        Some(why) if peeked.messages.is_empty() => Err(why),
        Some(_) | None => Ok(peeked),
    }
}

async fn looks(
    cluster: &ClusterHandle,
    (group, queue): (GroupId, QueueId),
    spec: PeekSpec,
    peeked: &mut Peeked,
    problem: &mut Option<NotPeeked>,
) {
    // Dropping the receiver ends the session, with what it has asked.
    let (session, mut receiver) = cluster.open_session();
    let mut bytes = 0;
    for ticket in (0..).map(Ticket) {
        let left = (spec.count as usize).saturating_sub(peeked.messages.len());
        let Some(from) = peeked.next.filter(|_| left > 0 && bytes < PEEKED_BYTES) else { return };
        let spec = Box::new(PeekSpec { from, count: left as u32, ..spec.clone() });
        let mut requests = vec![Request::Peek { ticket, group, queue, spec }];
        if !cluster.submit(session, &mut requests).await {
            return;
        }
        match answer(&mut receiver, ticket).await {
            Some(Ok(more)) => {
                let Peeked { messages, next, ends } = *more;
                if peeked.ends.is_empty() {
                    peeked.ends = ends;
                }
                let stands_still = messages.is_empty() && next == Some(from);
                bytes += messages.iter().map(|it| it.head.len() + it.body.len()).sum::<usize>();
                peeked.messages.extend(messages);
                peeked.next = next;
                *problem = None;
                if stands_still {
                    sleep(PAUSE).await;
                }
            }
            Some(Err(NotPeeked::Busy)) => {
                *problem = problem.map(|_| NotPeeked::Busy);
                sleep(PAUSE).await;
            }
            Some(Err(why)) => {
                *problem = Some(why);
                return;
            }
            None => return,
        }
    }
}

/// `None`: the node is stopping.
async fn answer(
    receiver: &mut AnswerReceiver,
    asked: Ticket,
) -> Option<Result<Box<Peeked>, NotPeeked>> {
    let mut answers = Vec::new();
    while receiver.recv(&mut answers).await {
        for answer in answers.drain(..) {
            // All sessions hear of alarms, and that the node stops; nothing else was asked.
            if let Answer::AppendFailed { .. } = answer {
                return Some(Err(NotPeeked::NoLeader));
            }
            if let Answer::Peeked { ticket, result } = answer
                && ticket == asked
            {
                return Some(result);
            }
        }
    }
    None
}
