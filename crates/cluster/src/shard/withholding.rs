//! Purges that can be undone, of queues that are led here. Each is an entry of the leader's own: if the lead is lost before
//! that is committed, the next leader is asked again, and has all messages ready unless it has the entry.

use machine::{GroupId, PurgeId, QueueId, SessionId, Version, Withheld};

use super::Shard;
use crate::exchange::{Now, Output};
use crate::request::{Answer, Request, Ticket};
use crate::withheld::{NotWithheld, WithheldCount, WithholdStep};

impl Shard {
    pub(super) fn withhold(
        &mut self,
        now: Now,
        (session, ticket): (SessionId, Ticket),
        (group, queue): (GroupId, QueueId),
        step: WithholdStep,
        outputs: &mut Vec<Output>,
    ) {
        let is_refusing = self.out.get(&group).is_some_and(|out| out.is_refusing);
        if is_refusing {
            // Before anything is taken out of the queue.
            return self.answer(group, session, Answer::AppendFailed { ticket }, outputs);
        }
        let since = Version::UNDO;
        let result = if self.members.agreed < since {
            Err(NotWithheld::NotYet { since })
        } else {
            let by = PurgeId { session, number: ticket.0 };
            match self.withhold_now(now, (group, queue), by, step, outputs) {
                Withheld::Done { count, until_ms } => Ok(WithheldCount { count, until_ms }),
                Withheld::NoQueue => Err(NotWithheld::NoQueue),
                Withheld::NotYet => {
                    if let Some(found) = self.groups.get_mut(&group) {
                        found.ask_later(session, Request::Withhold { ticket, group, queue, step });
                    }
                    return;
                }
            }
        };
        self.answer(group, session, Answer::Withheld { ticket, result }, outputs);
    }

    fn withhold_now(
        &mut self,
        now: Now,
        (group, queue): (GroupId, QueueId),
        by: PurgeId,
        step: WithholdStep,
        outputs: &mut Vec<Output>,
    ) -> Withheld {
        let mut group_effects = Vec::new();
        let mut ask = |shard: &mut Self| {
            let queues = shard.queues(group);
            queues.map_or(Withheld::NoQueue, |it| it.withhold(queue, by, step, &mut group_effects))
        };
        let mut reply = ask(self);
        if reply == Withheld::NotYet && self.is_local_here(group) {
            // There is no log to wait for.
            self.settle_local(now, outputs);
            reply = ask(self);
        }
        self.group_effects.append(&mut group_effects);
        self.grant(group, outputs);
        reply
    }
}
