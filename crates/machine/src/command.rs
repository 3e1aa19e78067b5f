//! What a group's log entries hold: commands, one behind the other, under a head with version and time.
//!
//! ```text
//! entry    version u8 = 1, seven zero bytes, leader's time u64 ms, commands
//! command  kind u8, bytes that follow u32, what the kind says
//! 1        queue count u16, queue ids u64 each, attribute mask u8, head length u32, head, body
//! 2        queue u64, outcome u8, ranges
//! 3        queue u64, settings
//! 4        queue u64
//! 5        a catalog command
//! ```
//!
//! Little-endian. Segments keep enqueue commands exactly as they stand here, so this is also a format
//! on disk: `tests/golden` holds bytes of every version. The attribute mask announces optional
//! attributes of a message (priority, expiry); version 1 knows none, so the mask is 0.

use std::ops::Range;

use crate::catalog::CatalogCommand;
use crate::encoding::{Corrupt, Reader, length, put_u32, put_u64};
use crate::ids::QueueId;
use crate::limits::QUEUES_PER_ENQUEUE_MAX;
use crate::ranges::Ranges;
use crate::settings::QueueSettings;

/// Bytes before the first command of an entry.
pub const ENTRY_HEAD_BYTES: usize = 16;
const ENTRY_VERSION: u8 = 1;

pub(crate) const ENQUEUE: u8 = 1;
pub(crate) const SETTLE: u8 = 2;
pub(crate) const CREATE_QUEUE: u8 = 3;
pub(crate) const DROP_QUEUE: u8 = 4;
pub(crate) const CATALOG: u8 = 5;

/// What became of messages that were out with a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Handled: gone.
    Done,
    /// Refused for good: gone (dead-lettered, once queues can).
    Rejected,
    /// Thrown away unseen: gone.
    Purged,
    /// Back to its place, flagged as redelivered.
    Requeue,
    /// Never reached the client: back to its place, not flagged.
    Undelivered,
}

impl Outcome {
    fn number(self) -> u8 {
        match self {
            Self::Done => 1,
            Self::Rejected => 2,
            Self::Purged => 3,
            Self::Requeue => 4,
            Self::Undelivered => 5,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Done,
            2 => Self::Rejected,
            3 => Self::Purged,
            4 => Self::Requeue,
            5 => Self::Undelivered,
            _ => return None,
        })
    }

    /// Whether the messages leave the queue.
    pub fn is_final(self) -> bool {
        match self {
            Self::Done | Self::Rejected | Self::Purged => true,
            Self::Requeue | Self::Undelivered => false,
        }
    }
}

/// Commands for one group on their way into one log entry.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Empty, or room for the head and then commands.
    bytes: Vec<u8>,
    commands: usize,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// A message for queues of this group. The parts of the head are joined; head and body are the
    /// broker's and mean nothing here. Together they must stay below 4 GiB.
    pub fn enqueue(&mut self, queues: &[QueueId], head: &[&[u8]], body: &[u8]) {
        for queues in queues.chunks(QUEUES_PER_ENQUEUE_MAX) {
            let head_bytes: usize = head.iter().map(|part| part.len()).sum();
            let bytes = 2 + 8 * queues.len() + 1 + 4 + head_bytes + body.len();
            let out = self.start(ENQUEUE, 5 + bytes);
            put_u32(out, length(bytes));
            out.extend_from_slice(&(queues.len() as u16).to_le_bytes());
            for queue in queues {
                put_u64(out, queue.0);
            }
            out.push(0);
            put_u32(out, head_bytes as u32);
            for part in head {
                out.extend_from_slice(part);
            }
            out.extend_from_slice(body);
        }
    }

    /// Messages that were out with a consumer. `Requeue` and `Undelivered` may stand in a
    /// transaction; the log keeps them and nothing replicated comes of them yet.
    pub fn settle(&mut self, queue: QueueId, outcome: Outcome, ranges: &Ranges) {
        self.with(SETTLE, |out| {
            put_u64(out, queue.0);
            out.push(outcome.number());
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

    pub fn drop_queue(&mut self, queue: QueueId) {
        self.with(DROP_QUEUE, |out| put_u64(out, queue.0));
    }

    pub fn catalog(&mut self, command: &CatalogCommand) {
        self.with(CATALOG, |out| command.encode(out));
    }

    /// Appends all commands of another batch.
    pub fn join(&mut self, other: Self) {
        if self.bytes.is_empty() {
            *self = other;
            return;
        }
        self.bytes.extend_from_slice(other.bytes.get(ENTRY_HEAD_BYTES..).unwrap_or_default());
        self.commands += other.commands;
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

/// One command of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Enqueue(Enqueue<'a>),
    Settle { queue: QueueId, outcome: Outcome, ranges: Ranges },
    CreateQueue { queue: QueueId, settings: QueueSettings },
    DropQueue { queue: QueueId },
    Catalog(Box<CatalogCommand>),
}

/// A message and the queues of this group that get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueue<'a> {
    pub queues: QueueIds<'a>,
    pub head: &'a [u8],
    pub body: &'a [u8],
}

impl<'a> Enqueue<'a> {
    /// What follows kind and length.
    #[inline]
    fn decode(payload: &'a [u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload, "an enqueue command");
        let queue_count = usize::from(reader.u16()?);
        let queues = QueueIds(reader.take(queue_count * 8)?);
        let attributes = reader.u8()?;
        if attributes != 0 {
            return Err(Corrupt { what: "message attributes of a newer version" });
        }
        let head = reader.blob()?;
        Ok(Self { queues, head, body: reader.rest() })
    }
}

/// Queue ids where they lie in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueIds<'a>(&'a [u8]);

impl<'a> QueueIds<'a> {
    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = QueueId> + 'a {
        self.0.chunks_exact(8).map(|id| {
            QueueId(u64::from_le_bytes(id.try_into().expect("a chunk of eight is eight long")))
        })
    }

    pub fn len(self) -> usize {
        self.0.len() / 8
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// The commands of one entry, in order, each with the bytes it takes in the entry. Ends after the
/// first error.
#[derive(Clone, Debug)]
pub struct EntryReader<'a> {
    time_ms: u64,
    commands: RawCommands<'a>,
}

impl<'a> EntryReader<'a> {
    pub fn new(entry: &'a [u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(entry, "the head of an entry");
        let version = reader.u8()?;
        if version != ENTRY_VERSION {
            return Err(Corrupt { what: "an entry of another version" });
        }
        if reader.take(7)? != [0; 7] {
            return Err(reader.corrupt());
        }
        let time_ms = reader.u64()?;
        Ok(Self { time_ms, commands: RawCommands { bytes: entry, at: ENTRY_HEAD_BYTES } })
    }

    /// The leader's clock when it proposed the entry.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    pub(crate) fn raw(self) -> RawCommands<'a> {
        self.commands
    }
}

impl<'a> Iterator for EntryReader<'a> {
    type Item = Result<(Range<usize>, Command<'a>), Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.commands.next() {
            Ok(None) => None,
            Ok(Some(raw)) => Some(raw.decode().map(|command| (raw.span, command))),
            Err(corrupt) => Some(Err(corrupt)),
        }
        .inspect(|item| {
            if item.is_err() {
                self.commands.at = self.commands.bytes.len();
            }
        })
    }
}

/// Commands before their content is looked at.
#[derive(Clone, Debug)]
pub(crate) struct RawCommands<'a> {
    bytes: &'a [u8],
    at: usize,
}

pub(crate) struct RawCommand<'a> {
    pub(crate) span: Range<usize>,
    pub(crate) kind: u8,
    pub(crate) payload: &'a [u8],
}

impl<'a> RawCommands<'a> {
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<RawCommand<'a>>, Corrupt> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(rest, "the frame of a command");
        let kind = reader.u8()?;
        let payload = reader.blob()?;
        let start = self.at;
        self.at += 5 + payload.len();
        Ok(Some(RawCommand { span: start..self.at, kind, payload }))
    }
}

impl<'a> RawCommand<'a> {
    #[inline]
    pub(crate) fn enqueue(&self) -> Result<Enqueue<'a>, Corrupt> {
        Enqueue::decode(self.payload)
    }

    pub(crate) fn decode(&self) -> Result<Command<'a>, Corrupt> {
        let mut reader = Reader::new(self.payload, "a command");
        let command = match self.kind {
            ENQUEUE => return self.enqueue().map(Command::Enqueue),
            SETTLE => {
                let queue = QueueId(reader.u64()?);
                let outcome = Outcome::from_number(reader.u8()?).ok_or(reader.corrupt())?;
                Command::Settle { queue, outcome, ranges: Ranges::read(&mut reader)? }
            }
            CREATE_QUEUE => {
                let queue = QueueId(reader.u64()?);
                Command::CreateQueue { queue, settings: QueueSettings::read(&mut reader)? }
            }
            DROP_QUEUE => Command::DropQueue { queue: QueueId(reader.u64()?) },
            CATALOG => Command::Catalog(Box::new(CatalogCommand::read(&mut reader)?)),
            _ => return Err(Corrupt { what: "a command of an unknown kind" }),
        };
        reader.end()?;
        Ok(command)
    }
}

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
        Self { queue, commands: RawCommands { bytes, at: 0 }, span: 0..0, again: None }
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
