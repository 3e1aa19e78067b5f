//! What the cluster said to a method of the classes queue and exchange, and what comes next.

use amqp::Method;
use cluster::Answer;
use machine::CatalogReply;

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
            | Pending::CloseQueue { .. }
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
            (Pending::Status { queue, is_stream, no_wait }, Answer::Status { status, .. }) => {
                // As in RabbitMQ, it is not told who reads a stream.
                let consumers = |count| if is_stream { 0 } else { count };
                let counts =
                    status.map_or((0, 0), |status| (status.ready, consumers(status.consumers)));
                queues::tell_declared(caller, &queue, counts, no_wait);
            }
            (Pending::Purge { no_wait }, Answer::Purged { count, .. }) => {
                queues::tell_purged(caller, count, no_wait);
            }
            (
                Pending::CloseQueue { queue, id, is_stream, no_wait },
                Answer::Closed { result, .. },
            ) => {
                return queues::closed(caller, queue, (id, is_stream), no_wait, result);
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
