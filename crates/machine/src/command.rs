//! What a group's log entries hold: commands, one behind the other, under a head with version and time.
//!
//! ```text
//! entry    version u8 = 1, seven zero bytes, leader's time u64 ms, commands
//! command  kind u8, bytes that follow u32, what the kind says
//! 1        queue count u16, queue ids u64 each, attribute mask u8, attributes, head length u32, head,
//!          body
//! 2        queue u64, outcome u8, ranges
//! 3        queue u64, settings
//! 4        queue u64
//! 5        a catalog command
//! 6        node u64, boot u64, number u64: opens a numbered batch, which ends where the next one begins
//! 7        queue count u16, queue ids u64 each, key u128
//! 8        queue u64, sequence number u64
//! 9        queue u64
//! 10       queue u64, revision u64, settings
//! 16       a command about a lock
//! 24       queue u64, what becomes of what was purged, ranges
//! 32       nothing
//! ```
//!
//! Little-endian. Segments keep enqueue commands exactly as they stand here, so this is also a format
//! on disk: `tests/golden` holds bytes of every version. The attribute mask announces the attributes
//! that follow it: 1 time to live u64 ms, 2 delay u64 ms, 4 key u128. Most messages have none.

mod attributes;
mod batch;
mod messages;
mod withholding;

use std::ops::Range;

pub use attributes::Attributes;
pub use batch::Batch;
pub use messages::{Messages, QUEUE_AT, for_queue_alone, queue_count};
pub use withholding::{PurgeId, Withholding};

use crate::catalog::CatalogCommand;
use crate::encoding::{Corrupt, Reader};
use crate::ids::{NodeId, ProducerId, QueueId};
use crate::limits::SEQ_MAX;
use crate::locks::LockCommand;
use crate::ranges::Ranges;
use crate::settings::QueueSettings;
use crate::version::Version;

/// Bytes before the first command of an entry.
pub const ENTRY_HEAD_BYTES: usize = 16;
/// Bytes of the command that opens a numbered batch.
pub const NUMBERED_HEAD_BYTES: usize = 5 + 3 * 8;
const ENTRY_VERSION: u8 = 1;
const UNKNOWN_KIND: Corrupt = Corrupt::newer("a command of an unknown kind");

pub(crate) const ENQUEUE: u8 = 1;
pub(crate) const SETTLE: u8 = 2;
pub(crate) const CREATE_QUEUE: u8 = 3;
pub(crate) const DROP_QUEUE: u8 = 4;
pub(crate) const CATALOG: u8 = 5;
pub(crate) const FROM: u8 = 6;
pub(crate) const CANCEL: u8 = 7;
pub(crate) const MARK_DELIVERED: u8 = 8;
pub(crate) const KEEP_MARKS: u8 = 9;
pub(crate) const SET_SETTINGS: u8 = 10;
pub(crate) const LOCK: u8 = 16;
pub(crate) const WITHHOLD: u8 = 24;
pub(crate) const KEEP_CHAIN: u8 = 32;

/// The version since which there are commands of this kind. `None`: this program knows no such kind.
fn since(kind: u8) -> Option<Version> {
    Some(match kind {
        ENQUEUE | SETTLE | CREATE_QUEUE | DROP_QUEUE | FROM | CANCEL | MARK_DELIVERED => {
            Version::FIRST
        }
        // Each command of the catalog has its own: see `CatalogCommand::since`.
        CATALOG => Version::FIRST,
        KEEP_MARKS => Version::KEPT_MARKS,
        SET_SETTINGS => Version::CHANGED_SETTINGS,
        LOCK => Version::LOCKS,
        WITHHOLD => Version::UNDO,
        KEEP_CHAIN => Version::CHAINED,
        _ => return None,
    })
}

/// What became of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Handled: gone.
    Done,
    /// Refused for good by a consumer: dead.
    Rejected,
    /// Thrown away unseen: gone.
    Purged,
    /// Given back by a client: back to its place, flagged as redelivered.
    Requeue,
    /// Never reached the client: back to its place, not flagged.
    Undelivered,
    /// Its time to live is over: dead.
    Expired,
    /// There was no room for it: dead.
    Overflowed,
    /// It came back more often than its queue allows: dead.
    Exhausted,
    /// A dead one is stored where it was to go: gone.
    DeadLettered,
    /// Its consumer, channel or connection ended: like `Requeue`.
    Returned,
    /// Its subscription's filter does not match it: gone, and nobody was given it.
    PassedOver,
}

impl Outcome {
    /// The reasons to be dead.
    pub const DEAD: [Self; 4] = [Self::Rejected, Self::Expired, Self::Overflowed, Self::Exhausted];

    /// As it is written: in logs, snapshots and between nodes.
    pub fn number(self) -> u8 {
        match self {
            Self::Done => 1,
            Self::Rejected => 2,
            Self::Purged => 3,
            Self::Requeue => 4,
            Self::Undelivered => 5,
            Self::Expired => 6,
            Self::Overflowed => 7,
            Self::Exhausted => 8,
            Self::DeadLettered => 9,
            Self::Returned => 10,
            Self::PassedOver => 11,
        }
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Done,
            2 => Self::Rejected,
            3 => Self::Purged,
            4 => Self::Requeue,
            5 => Self::Undelivered,
            6 => Self::Expired,
            7 => Self::Overflowed,
            8 => Self::Exhausted,
            9 => Self::DeadLettered,
            10 => Self::Returned,
            11 => Self::PassedOver,
            _ => return None,
        })
    }

    /// Whether consumers see the messages no more.
    pub fn is_final(self) -> bool {
        match self {
            Self::Done | Self::Purged | Self::DeadLettered | Self::PassedOver => true,
            Self::Rejected | Self::Expired | Self::Overflowed | Self::Exhausted => true,
            Self::Requeue | Self::Returned | Self::Undelivered => false,
        }
    }

    /// Whether the messages are dead letters, if their queue has a use for those.
    pub fn is_dead(self) -> bool {
        Self::DEAD.contains(&self)
    }
}

/// One command of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Enqueue(Enqueue<'a>),
    Settle {
        queue: QueueId,
        outcome: Outcome,
        ranges: Ranges,
    },
    CreateQueue {
        queue: QueueId,
        settings: QueueSettings,
    },
    DropQueue {
        queue: QueueId,
    },
    Catalog(Box<CatalogCommand>),
    /// Delayed messages that came with this key go, if they are not due.
    Cancel {
        queues: QueueIds<'a>,
        key: u128,
    },
    /// Messages of this level below `to` may have been given to clients, the others were not. In the
    /// numbered batch that creates a queue it says that this is kept from here on, and that messages wait for it.
    MarkDelivered {
        queue: QueueId,
        to: u64,
    },
    /// In the numbered batch that creates a queue: marks are kept from here on, whatever its limits and times to
    /// live, and deliveries wait for them. Since `Version::KEPT_MARKS`.
    KeepMarks {
        queue: QueueId,
    },
    /// The queue behaves so from here on, as far as that can change (`settings::change`), unless a later change of
    /// the catalog has said otherwise. Since `Version::CHANGED_SETTINGS`.
    SetSettings {
        queue: QueueId,
        /// Which change of the catalog this is: the catalog's version.
        revision: u64,
        settings: QueueSettings,
    },
    /// Something is done to a lock. Only a leader makes these, in entries of their own: never in a numbered batch.
    /// Since `Version::LOCKS`.
    Lock(Box<LockCommand>),
    /// A purge that can be undone, its undoing, or its end. Only a leader makes these. Since `Version::UNDO`.
    Withhold {
        queue: QueueId,
        step: Withholding,
        ranges: Ranges,
    },
    /// The group's leader wants a checksum kept of what entries do, from this one on. It changes nothing where one is
    /// kept. Since `Version::CHAINED`.
    KeepChain,
    /// Opens a numbered batch: what follows, up to the next of these, is applied together or not at all.
    Numbered {
        producer: ProducerId,
        seq: u64,
    },
}

/// Whether a program that reads versions up to `newest` can apply commands that came from another node,
/// without the head of an entry: those of a catalog, or those of queues. Numbered batches do not hold numbered batches.
pub fn check_commands(bytes: &[u8], is_catalog: bool, newest: Version) -> Result<(), Corrupt> {
    let mut commands = RawCommands::new(bytes);
    while let Some(raw) = commands.next()? {
        let may_be = match raw.kind {
            ENQUEUE | SETTLE | CREATE_QUEUE | DROP_QUEUE | CANCEL | MARK_DELIVERED | KEEP_MARKS
            | SET_SETTINGS | WITHHOLD | KEEP_CHAIN => !is_catalog,
            CATALOG => is_catalog,
            FROM | LOCK => false,
            _ => return Err(UNKNOWN_KIND),
        };
        if !may_be {
            return Err(Corrupt::new("a command of the wrong kind in a numbered batch"));
        }
        raw.decode_up_to(newest)?;
    }
    Ok(())
}

/// A message and the queues of this group that get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueue<'a> {
    pub queues: QueueIds<'a>,
    pub attributes: Attributes,
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
        let attributes = match reader.u8()? {
            0 => Attributes::default(),
            mask => Attributes::read(mask, &mut reader)?,
        };
        let head = reader.blob()?;
        Ok(Self { queues, attributes, head, body: reader.rest() })
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
            return Err(Corrupt::newer("an entry of another version"));
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
    /// Without the head of an entry.
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

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

    /// Goes on at the next numbered batch, or at the end.
    pub(crate) fn skip_numbered(&mut self) -> Result<(), Corrupt> {
        let mut here = self.at;
        while let Some(raw) = self.next()? {
            if raw.kind == FROM {
                self.at = here;
                break;
            }
            here = self.at;
        }
        Ok(())
    }
}

impl<'a> RawCommand<'a> {
    #[inline]
    pub(crate) fn enqueue(&self) -> Result<Enqueue<'a>, Corrupt> {
        Enqueue::decode(self.payload)
    }

    /// As a program reads it that reads versions up to `newest`.
    pub(crate) fn decode_up_to(&self, newest: Version) -> Result<Command<'a>, Corrupt> {
        if since(self.kind).is_none_or(|since| since > newest) {
            return Err(UNKNOWN_KIND);
        }
        let command = self.decode()?;
        match &command {
            Command::Catalog(command) if command.since() > newest => Err(UNKNOWN_KIND),
            Command::SetSettings { settings, .. } | Command::CreateQueue { settings, .. }
                if settings.since() > newest =>
            {
                Err(UNKNOWN_KIND)
            }
            _ => Ok(command),
        }
    }

    fn decode(&self) -> Result<Command<'a>, Corrupt> {
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
            CANCEL => {
                let queue_count = usize::from(reader.u16()?);
                let queues = QueueIds(reader.take(queue_count * 8)?);
                Command::Cancel { queues, key: reader.u128()? }
            }
            MARK_DELIVERED => {
                let queue = QueueId(reader.u64()?);
                let to = reader.u64()?;
                if to > SEQ_MAX {
                    return Err(reader.corrupt());
                }
                Command::MarkDelivered { queue, to }
            }
            KEEP_MARKS => Command::KeepMarks { queue: QueueId(reader.u64()?) },
            SET_SETTINGS => {
                let queue = QueueId(reader.u64()?);
                let (revision, settings) = (reader.u64()?, QueueSettings::read(&mut reader)?);
                Command::SetSettings { queue, revision, settings }
            }
            LOCK => Command::Lock(Box::new(LockCommand::read(&mut reader)?)),
            WITHHOLD => {
                let queue = QueueId(reader.u64()?);
                let step = Withholding::read(&mut reader)?;
                Command::Withhold { queue, step, ranges: Ranges::read(&mut reader)? }
            }
            KEEP_CHAIN => Command::KeepChain,
            FROM => {
                let producer = ProducerId { node: NodeId(reader.u64()?), boot: reader.u64()? };
                Command::Numbered { producer, seq: reader.u64()? }
            }
            _ => return Err(UNKNOWN_KIND),
        };
        reader.end()?;
        Ok(command)
    }
}
