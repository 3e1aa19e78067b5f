//! What is stored of a queue, or of one priority level of it: messages with numbers, one after the other.
//!
//! A store knows what came in. Who reads it, and how far, it does not know: one publish touches one store,
//! however many readers it has. The messages themselves lie in the log and in segments; where, the cluster
//! keeps by store.

use std::ops::Range;

use super::Effect;
use super::end::End;
use super::reconcile::CameIn;
use super::timeline::Timeline;
use crate::ids::QueueId;
use crate::limits::FOREIGN_COMMANDS_MAX;

/// Messages with sequence numbers of their own. Replicated.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) id: QueueId,
    /// The number that the next message gets.
    pub(crate) next_seq: u64,
    pub(crate) came_in: CameIn,
    /// Of a stream: when its messages came.
    pub(crate) timeline: Option<Box<Timeline>>,
    /// The run that the entry being applied adds.
    pub(crate) run: Option<Run>,
}

/// Messages of one store close to each other in an entry.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    count: u32,
    /// Of heads and bodies.
    message_bytes: u64,
    span: Range<usize>,
    /// Number in the entry of the last command in it.
    last: u32,
}

impl Store {
    pub(crate) fn new(id: QueueId) -> Self {
        Self { id, next_seq: 1, came_in: CameIn::default(), timeline: None, run: None }
    }

    pub(crate) fn end(&self) -> End {
        End(self.next_seq)
    }

    /// Nothing has come, and nothing is coming.
    pub(crate) fn is_new(&self) -> bool {
        self.next_seq == 1 && self.run.is_none()
    }

    /// The number of the last message of the run.
    pub(crate) fn last_of_run(&self) -> Option<u64> {
        let run = self.run.as_ref()?;
        Some(self.next_seq + u64::from(run.count) - 1)
    }

    /// Ends the run that is being gathered: its messages are stored now. Which those are.
    pub(crate) fn end_run(
        &mut self,
        time_ms: u64,
        effects: &mut Vec<Effect>,
    ) -> Option<Range<u64>> {
        let Run { count, message_bytes, span, .. } = self.run.take()?;
        let first_seq = self.next_seq;
        self.next_seq += u64::from(count);
        self.came_in.add_run(first_seq, u64::from(count), message_bytes);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(first_seq, message_bytes, time_ms);
        }
        effects.push(Effect::Enqueued { queue: self.id, first_seq, count, bytes: span });
        Some(first_seq..self.next_seq)
    }
}

impl Run {
    /// Begins with one message, of the command with this number.
    pub(crate) fn new(number: u32, message_bytes: u64, span: Range<usize>) -> Self {
        Self { count: 1, message_bytes, span, last: number }
    }

    /// Takes a message in, if its command is near enough.
    #[inline]
    pub(crate) fn take(&mut self, number: u32, message_bytes: u64, end: usize) -> bool {
        let is_near = number <= self.last + 1 + FOREIGN_COMMANDS_MAX;
        if is_near {
            self.count += 1;
            self.message_bytes += message_bytes;
            self.span.end = end;
            self.last = number;
        }
        is_near
    }
}
