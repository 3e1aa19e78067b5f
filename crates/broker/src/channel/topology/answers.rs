//! What the cluster said to a method of the classes queue and exchange, and what comes next.

use amqp::Method;
use cluster::Answer;
use machine::{CatalogReply, Partition};

use super::exchanges::exchange_declared;
use super::history::Replay;
use super::{Next, Pending, Topology, queues, tell};
use crate::channel::caller::Caller;
use crate::connection::names::Chance;
use crate::errors::{Failure, not_done};
use crate::refusals;

impl Topology {
    /// The next step of what `pending` began.
    pub(crate) fn answered(
        &mut self,
        caller: &mut Caller<'_, '_>,
        chance: &mut Chance,
        pending: Pending,
        answer: Answer,
    ) -> Next {
        let pending = match pending {
            Pending::Replay { replay, reply } => {
                return history_came(caller, chance, replay, reply, answer);
            }
            Pending::Change { .. }
            | Pending::Bind { .. }
            | Pending::DeclareExchange { .. }
            | Pending::DeclareQueue { .. }
            | Pending::Status { .. }
            | Pending::Purge { .. }
            | Pending::Emptiness(_)
            | Pending::CloseQueue(_)
            | Pending::DeleteQueue { .. } => pending,
        };
        if let Some(refusal) = refusal(&answer) {
            return Err(refusal);
        }
        match (pending, answer) {
            (Pending::Change { reply }, Answer::Catalog { .. } | Answer::Status { .. }) => {
                tell(caller, reply);
            }
            (Pending::Bind { replay, reply }, Answer::Catalog { .. }) => {
                replay.ask(caller);
                return Ok(Some(Pending::Replay { replay, reply }));
            }
            (
                Pending::DeclareExchange { declaration, reply },
                Answer::Catalog { reply: answer, .. },
            ) => return exchange_declared(caller, &declaration, reply, &answer),
            (Pending::DeclareQueue { declaration, no_wait }, Answer::Catalog { reply, .. }) => {
                return self.queue_declared(caller, &declaration, no_wait, &reply);
            }
            (
                Pending::Status { queue, is_stream, no_wait, mut counts, mut left },
                Answer::Status { status, .. },
            ) => {
                // Who consumes from one of several partitions consumes from all.
                if let Some(status) = status {
                    counts = (counts.0 + status.ready, counts.1.max(status.consumers));
                }
                if let Some(Partition { queue: id, group, .. }) = left.pop() {
                    queues::ask_status_of(caller, group, id);
                    return Ok(Some(Pending::Status { queue, is_stream, no_wait, counts, left }));
                }
                if is_stream {
                    // As in RabbitMQ, it is not told who reads a stream.
                    counts.1 = 0;
                }
                queues::tell_declared(caller, &queue, counts, no_wait);
            }
            (Pending::Purge { no_wait, count: before, mut left }, Answer::Purged { count, .. }) => {
                let count = before + count;
                if let Some(Partition { queue, group, .. }) = left.pop() {
                    queues::ask_to_purge(caller, group, queue);
                    return Ok(Some(Pending::Purge { no_wait, count, left }));
                }
                queues::tell_purged(caller, count, no_wait);
            }
            (Pending::Emptiness(deletion), Answer::Status { status, .. }) => {
                let ready = status.map_or(0, |status| status.ready);
                return queues::emptiness_told(caller, deletion, ready);
            }
            (Pending::CloseQueue(deletion), Answer::Closed { result, .. }) => {
                return queues::closed(caller, deletion, result);
            }
            (Pending::DeleteQueue { count, no_wait }, Answer::Catalog { .. }) => {
                queues::tell_deleted(caller, count, no_wait);
            }
            (_, answer) => return Err(unexpected_answer(&answer)),
        }
        Ok(None)
    }
}

/// A message of the history has come, or there is no more.
fn history_came(
    caller: &mut Caller<'_, '_>,
    chance: &mut Chance,
    mut replay: Box<Replay>,
    reply: Option<Method<'static>>,
    answer: Answer,
) -> Next {
    let Answer::Got { delivery, ready, .. } = answer else {
        return Err(not_done("the copy of the history"));
    };
    if replay.wants_more(delivery, ready) {
        replay.ask(caller);
        return Ok(Some(Pending::Replay { replay, reply }));
    }
    replay.copy(caller, chance);
    caller.wait_for_appends();
    Ok(Some(Pending::Change { reply }))
}

/// What the catalog refused.
fn refusal(answer: &Answer) -> Option<Failure> {
    let Answer::Catalog { reply: CatalogReply::Refused(refusal), .. } = answer else { return None };
    Some(refusals::failure(refusal))
}

/// The failure that an answer means which is not one to what was asked.
pub(crate) fn unexpected_answer(answer: &Answer) -> Failure {
    refusal(answer).unwrap_or_else(|| not_done("the change"))
}
