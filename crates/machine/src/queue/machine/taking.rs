//! A message that somebody takes from where it lies in its queue, to carry it elsewhere: leader only.
//!
//! Who carries messages is no client. So no mark has to say that the message went out, a pause does not stop it, and a
//! message that is given back as `Outcome::Undelivered` is as if nobody had taken it.

use super::{Position, QueueMachine};
use crate::ids::{ConsumerId, QueueId};
use crate::queue::{Effect, GetReply};
use crate::ranges::Ranges;

impl QueueMachine {
    /// Lets `consumer`, who need not be attached, hold the message at this place, if it is ready. As with
    /// [`QueueMachine::get`], the last effect has it.
    pub fn take(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        at: Position,
        effects: &mut Vec<Effect>,
    ) -> GetReply {
        let found = match self.ready_to_give(queue, effects) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        if found.settings.is_stream() {
            return GetReply::Empty;
        }
        let Position { priority, seq } = at;
        let mut taken = Ranges::new();
        let mut returns = None;
        // What a filter was not asked of may not be anybody's.
        let sieve = found.main.reader.sieve.as_ref().filter(|_| found.settings.has_filter());
        let may_have = sieve.is_none_or(|it| it.to() > seq);
        if let Some(level) = found.level_mut(priority).filter(|_| may_have) {
            level.reading().take_waiting(seq..seq.saturating_add(1), &mut taken);
            let attributes = level.reader.attributes.as_ref();
            returns = attributes.and_then(|it| it.returns.uniform(&(seq..seq + 1)).1);
        }
        if taken.is_empty() {
            self.look_after(queue);
            return GetReply::Empty;
        }
        found.consumers.hold(consumer, priority, seq);
        let ready = found.ready_len();
        effects.push(Effect::Deliver {
            queue: queue.base().level(priority),
            consumer,
            first_seq: seq,
            count: 1,
            redelivered: false,
            no_ack: false,
            returns: returns.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX)),
            waits: false,
        });
        self.sessions.insert((consumer.session, queue.base()));
        self.look_after(queue);
        GetReply::Delivered { ready }
    }
}
