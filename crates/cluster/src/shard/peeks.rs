//! Somebody looks at messages of a queue that is led here, and takes none: they are read beside deliveries, so many looks
//! at a time.

use machine::{GroupId, QueueId, QueuePeek, SessionId};

use super::Shard;
use crate::exchange::{Output, Peek};
use crate::limits::PEEKS_AT_ONCE;
use crate::peeked::{NotPeeked, PeekSpec, Peeked};
use crate::request::{Answer, Ticket};

impl Shard {
    pub(super) fn peek(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        (group, queue): (GroupId, QueueId),
        spec: PeekSpec,
        outputs: &mut Vec<Output>,
    ) {
        let found = match self.queues(group).map(|queues| queues.peek(queue, &spec)) {
            None | Some(None) => Err(NotPeeked::NoQueue),
            Some(Some(_)) if self.peeks >= PEEKS_AT_ONCE => Err(NotPeeked::Busy),
            Some(Some(found)) => Ok(found),
        };
        match found {
            Ok((found, parts)) if !found.messages.is_empty() => {
                self.peeks += 1;
                let parts = self.located(group, parts);
                let peek = Peek { group, session, ticket, spec, found, parts };
                outputs.push(Output::Peek(Box::new(peek)));
            }
            found => {
                let empty = |QueuePeek { next, ends, .. }: QueuePeek| {
                    Box::new(Peeked { messages: Vec::new(), next, ends })
                };
                let result = found.map(|(found, _)| empty(found));
                self.answer(group, session, Answer::Peeked { ticket, result }, outputs);
            }
        }
    }

    /// The answer is for whoever asked, whoever leads now: it says how the queue was a moment ago.
    pub(super) fn peeked(
        &mut self,
        group: GroupId,
        session: SessionId,
        ticket: Ticket,
        result: Result<Box<Peeked>, NotPeeked>,
        outputs: &mut Vec<Output>,
    ) {
        self.peeks = self.peeks.checked_sub(1).expect("each look is read once");
        self.answer(group, session, Answer::Peeked { ticket, result }, outputs);
    }
}
