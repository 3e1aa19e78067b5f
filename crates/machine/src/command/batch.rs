//! Writes commands: what sessions, shards and leaders make entries of.

use super::{
    Attributes, CANCEL, CATALOG, CREATE_QUEUE, DROP_QUEUE, ENQUEUE, ENTRY_HEAD_BYTES,
    ENTRY_VERSION, FROM, KEEP_CHAIN, KEEP_MARKS, LOCK, MARK_DELIVERED, Outcome, SET_SETTINGS,
    SETTLE, WITHHOLD, Withholding,
};
use crate::catalog::CatalogCommand;
use crate::encoding::{length, put_u32, put_u64};
use crate::ids::{ProducerId, QueueId};
use crate::limits::QUEUES_PER_ENQUEUE_MAX;
use crate::locks::LockCommand;
use crate::ranges::Ranges;
use crate::settings::QueueSettings;

/// Commands for one group on their way into one log entry.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Empty, or room for the head and then commands.
    bytes: Vec<u8>,
    commands: usize,
    is_numbered: bool,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// A message for queues of this group. The parts of the head are joined; head and body are the
    /// broker's and mean nothing here. Together they must stay below 4 GiB.
    pub fn enqueue(&mut self, queues: &[QueueId], head: &[&[u8]], body: &[u8]) {
        self.enqueue_with(queues, &Attributes::default(), head, body);
    }

    /// The same with attributes.
    #[inline]
    pub fn enqueue_with(
        &mut self,
        queues: &[QueueId],
        attributes: &Attributes,
        head: &[&[u8]],
        body: &[u8],
    ) {
        for queues in queues.chunks(QUEUES_PER_ENQUEUE_MAX) {
            let head_bytes: usize = head.iter().map(|part| part.len()).sum();
            let bytes = 2 + 8 * queues.len() + attributes.bytes() + 4 + head_bytes + body.len();
            let out = self.start(ENQUEUE, 5 + bytes);
            put_u32(out, length(bytes));
            out.extend_from_slice(&(queues.len() as u16).to_le_bytes());
            for queue in queues {
                put_u64(out, queue.0);
            }
            attributes.encode(out);
            put_u32(out, head_bytes as u32);
            for part in head {
                out.extend_from_slice(part);
            }
            out.extend_from_slice(body);
        }
    }

    /// Delayed messages of these queues that came with `key` go, unless they are due.
    pub fn cancel_delayed(&mut self, queues: &[QueueId], key: u128) {
        for queues in queues.chunks(QUEUES_PER_ENQUEUE_MAX) {
            self.with(CANCEL, |out| {
                out.extend_from_slice(&(queues.len() as u16).to_le_bytes());
                queues.iter().for_each(|queue| put_u64(out, queue.0));
                out.extend_from_slice(&key.to_le_bytes());
            });
        }
    }

    /// What became of messages. What goes back to its place changes nothing replicated but in queues
    /// that count returns.
    pub fn settle(&mut self, queue: QueueId, outcome: Outcome, ranges: &Ranges) {
        self.with(SETTLE, |out| {
            put_u64(out, queue.0);
            out.push(outcome.number());
            ranges.encode(out);
        });
    }

    /// What becomes of messages that are purged, or were, and can be brought back. From `Version::UNDO` on.
    pub fn withhold(&mut self, queue: QueueId, step: Withholding, ranges: &Ranges) {
        self.with(WITHHOLD, |out| {
            put_u64(out, queue.0);
            step.encode(out);
            ranges.encode(out);
        });
    }

    /// Creating a queue that exists changes nothing.
    pub fn create_queue(&mut self, queue: QueueId, settings: &QueueSettings) {
        self.with(CREATE_QUEUE, |out| {
            put_u64(out, queue.0);
            settings.encode(out);
        });
    }

    /// Messages of the level below `to` may have been given to clients, the others were not. With 1
    /// behind `create_queue`: this is to be kept for the queue, and messages wait for it.
    pub fn mark_delivered(&mut self, queue: QueueId, to: u64) {
        self.with(MARK_DELIVERED, |out| {
            put_u64(out, queue.0);
            put_u64(out, to);
        });
    }

    /// Behind `create_queue`, from `Version::KEPT_MARKS` on: which messages may have been given to clients is
    /// to be kept for the queue, and deliveries wait for it.
    pub fn keep_marks(&mut self, queue: QueueId) {
        self.with(KEEP_MARKS, |out| put_u64(out, queue.0));
    }

    /// Settings of a queue that is there, from `Version::CHANGED_SETTINGS` on. A queue that is not there stays so.
    pub fn set_settings(&mut self, queue: QueueId, revision: u64, settings: &QueueSettings) {
        self.with(SET_SETTINGS, |out| {
            put_u64(out, queue.0);
            put_u64(out, revision);
            settings.encode(out);
        });
    }

    /// From `Version::CHAINED` on: a checksum of what entries do is kept from here on.
    pub fn keep_chain(&mut self) {
        self.with(KEEP_CHAIN, |_| {});
    }

    pub fn drop_queue(&mut self, queue: QueueId) {
        self.with(DROP_QUEUE, |out| put_u64(out, queue.0));
    }

    /// Something is done to a lock, from `Version::LOCKS` on. Only in entries that hold nothing else.
    pub fn lock(&mut self, command: &LockCommand) {
        self.with(LOCK, |out| command.encode(out));
    }

    pub fn catalog(&mut self, command: &CatalogCommand) {
        self.with(CATALOG, |out| command.encode(out));
    }

    /// Opens a numbered batch: everything behind it belongs to it, up to the next one. What belongs to none
    /// must stand before the first.
    ///
    /// Numbered batches of one producer are numbered from 1. A machine applies the one that follows the last
    /// it applied, and the first of a greater boot; it skips every other, so a numbered batch may be sent
    /// again and again, to one leader or several.
    pub fn begin_numbered(&mut self, producer: ProducerId, seq: u64) {
        self.with(FROM, |out| {
            for value in [producer.node.0, producer.boot, seq] {
                put_u64(out, value);
            }
        });
        self.is_numbered = true;
    }

    /// A whole numbered batch: what `into_commands` gave on its producer, and `check_commands` allows. Counts
    /// as two commands, whatever it holds.
    pub fn append_numbered(&mut self, producer: ProducerId, seq: u64, commands: &[u8]) {
        self.begin_numbered(producer, seq);
        self.bytes.extend_from_slice(commands);
        self.commands += 1;
    }

    /// Appends all commands of another batch, which must begin with a numbered batch if this one has any.
    pub fn join(&mut self, other: Self) {
        if self.bytes.is_empty() {
            *self = other;
            return;
        }
        let more = other.bytes.get(ENTRY_HEAD_BYTES..).unwrap_or_default();
        assert!(
            !self.is_numbered || more.first().is_none_or(|kind| *kind == FROM),
            "commands of no numbered batch would become part of the last one"
        );
        self.bytes.extend_from_slice(more);
        self.commands += other.commands;
        self.is_numbered |= other.is_numbered;
    }

    /// Puts the commands of another batch, which has no numbered batches, into the numbered batch that is open.
    pub fn fill(&mut self, other: Self) {
        assert!(self.is_numbered && !other.is_numbered, "a numbered batch is filled with commands");
        self.bytes.extend_from_slice(other.bytes.get(ENTRY_HEAD_BYTES..).unwrap_or_default());
        self.commands += other.commands;
    }

    /// The commands alone, without the head of an entry.
    pub fn into_commands(mut self) -> Vec<u8> {
        self.bytes.drain(..ENTRY_HEAD_BYTES.min(self.bytes.len()));
        self.bytes
    }

    /// The entry: these commands under version and the leader's time.
    pub fn stamp(mut self, time_ms: u64) -> Vec<u8> {
        self.reserve_head(ENTRY_HEAD_BYTES);
        self.bytes[0] = ENTRY_VERSION;
        self.bytes[8..ENTRY_HEAD_BYTES].copy_from_slice(&time_ms.to_le_bytes());
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// How long the entry would be now.
    pub fn bytes(&self) -> usize {
        self.bytes.len().max(ENTRY_HEAD_BYTES)
    }

    pub fn commands(&self) -> usize {
        self.commands
    }

    fn with(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let out = self.start(kind, 64);
        let at = out.len();
        put_u32(out, 0);
        write(out);
        let bytes = length(out.len() - at - 4);
        out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    }

    fn start(&mut self, kind: u8, bytes: usize) -> &mut Vec<u8> {
        self.reserve_head(bytes);
        self.bytes.reserve(bytes);
        self.bytes.push(kind);
        self.commands += 1;
        &mut self.bytes
    }

    fn reserve_head(&mut self, more: usize) {
        if self.bytes.is_empty() {
            self.bytes.reserve(ENTRY_HEAD_BYTES + more);
            self.bytes.resize(ENTRY_HEAD_BYTES, 0);
        }
    }
}
