//! Finds the messages of one queue among commands.

use std::ops::Range;

use super::{ENQUEUE, Enqueue, RawCommands};
use crate::ids::QueueId;

/// The messages of one queue within bytes that hold commands, as `Effect::Enqueued` and segments
/// delimit them: what a delivery carries. Skips what is for other queues; ends at bytes that are not
/// commands.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    queue: QueueId,
    commands: RawCommands<'a>,
    /// Of the last message.
    span: Range<usize>,
    /// A message that is in the queue more than once.
    again: Option<(Enqueue<'a>, usize)>,
}

impl<'a> Messages<'a> {
    pub fn of(queue: QueueId, bytes: &'a [u8]) -> Self {
        Self { queue, commands: RawCommands::new(bytes), span: 0..0, again: None }
    }

    /// Where the bytes of the first `count` messages end, with what is for others in between.
    pub fn offset_after(mut self, count: usize) -> usize {
        self.by_ref().take(count).for_each(drop);
        self.commands.at
    }

    /// The bytes of each message's command.
    pub fn spans(mut self) -> impl Iterator<Item = Range<usize>> + 'a {
        std::iter::from_fn(move || {
            self.next()?;
            Some(self.span.clone())
        })
    }
}

/// Where the queue's number stands in what [`for_queue_alone`] makes.
pub const QUEUE_AT: u8 = 7;

/// How many queues a message went to. `command` is one that [`Messages::spans`] delimits.
pub fn queue_count(command: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([command[5], command[6]]))
}

/// Adds the command of a message to `into` as if it were for `queue` alone. `command` is one that
/// [`Messages::spans`] delimits.
pub fn for_queue_alone(queue: QueueId, command: &[u8], into: &mut Vec<u8>) {
    let rest = &command[7 + 8 * queue_count(command)..];
    let bytes = u32::try_from(2 + 8 + rest.len()).expect("it is not longer than it was");
    into.push(ENQUEUE);
    into.extend_from_slice(&bytes.to_le_bytes());
    into.extend_from_slice(&1_u16.to_le_bytes());
    into.extend_from_slice(&queue.0.to_le_bytes());
    into.extend_from_slice(rest);
}

impl<'a> Iterator for Messages<'a> {
    /// Head and body.
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((message, times)) = self.again.take() {
            if times > 1 {
                self.again = Some((message, times - 1));
            }
            return Some((message.head, message.body));
        }
        while let Ok(Some(raw)) = self.commands.next() {
            if raw.kind != ENQUEUE {
                continue;
            }
            let message = raw.enqueue().ok()?;
            let times = message.queues.iter().filter(|queue| *queue == self.queue).count();
            if times > 1 {
                self.again = Some((message, times - 1));
            }
            if times > 0 {
                self.span = raw.span;
                return Some((message.head, message.body));
            }
        }
        None
    }
}
