//! Messages of one queue that follow each other and lie apart in one entry, put together.
//!
//! Where an entry holds messages of many queues, or of many levels of one, a queue's own are a small part of it, in
//! many short runs. Each of these would be a buffer and a delivery of its own, with the others' messages in between.

use bytes::Bytes;
use machine::{Messages, QueueId};

use super::Run;

/// What an entry has brought for a queue so far.
#[derive(Debug)]
pub(super) struct Gathering {
    first_seq: u64,
    count: u32,
    /// Commands with a message for the queue, one behind the other.
    commands: Vec<u8>,
}

impl Gathering {
    /// Begins with a run.
    pub(super) fn new(queue: QueueId, first_seq: u64, count: u32, run: &[u8]) -> Self {
        let mut gathering = Self { first_seq, count: 0, commands: Vec::with_capacity(run.len()) };
        gathering.add(queue, count, run);
        gathering
    }

    /// Whether a run that begins with `first_seq` goes on where this ends.
    pub(super) fn goes_on_at(&self, first_seq: u64) -> bool {
        self.first_seq + u64::from(self.count) == first_seq
    }

    /// Takes in the next run, without what lies in it for others.
    pub(super) fn add(&mut self, queue: QueueId, count: u32, run: &[u8]) {
        let mut last = 0..0;
        for span in Messages::of(queue, run).spans() {
            // A message that is in the queue more than once is one command.
            if span != last {
                self.commands.extend_from_slice(&run[span.clone()]);
                last = span;
            }
        }
        self.count += count;
    }

    /// All of it, and the size of its buffer.
    pub(super) fn into_run(self) -> (Run, usize) {
        let Self { first_seq, count, commands } = self;
        let pinned = commands.capacity();
        (Run { first_seq, count, bytes: Bytes::from(commands) }, pinned)
    }
}
