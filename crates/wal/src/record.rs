//! The bytes of a log file: file header, batch header, record headers.
//!
//! ```text
//! file    header block (4096) | batch | batch | ... | zeros, or what an earlier use left
//! batch   header (64) | record header (40) x count | payloads, one after the other | padding
//! ```
//!
//! A batch begins at a multiple of 512. Every checksum begins with that of the file (cluster,
//! node, incarnation, file number) and the position, so that a block of an earlier use of the
//! file, of another file or of another place never passes. The batch header's second checksum
//! covers all record headers, and each of those the checksum of its payload: a batch mixed from
//! two attempts at the same place does not pass either. All numbers are little-endian.

use crate::identity::Identity;
use crate::limits::{BATCH_RECORDS_MAX, DATA_START, FILE_BYTES_MAX, SECTOR_BYTES};

pub(crate) const BATCH_MAGIC: [u8; 4] = *b"MRWB";
pub(crate) const FILE_MAGIC: [u8; 4] = *b"MRWF";
pub(crate) const VERSION: u16 = 1;
pub(crate) const FILE_HEADER_BYTES: usize = 64;
pub(crate) const BATCH_HEADER_BYTES: usize = 64;
pub(crate) const RECORD_HEADER_BYTES: usize = 40;

/// Beginning of all checksums of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn of(identity: &Identity, number: u64) -> Self {
        let crc = crc32c::crc32c(&identity.cluster.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &identity.node.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &identity.incarnation.to_le_bytes());
        Self(crc32c::crc32c_append(crc, &number.to_le_bytes()))
    }

    /// Checksum of `bytes` at `offset` of the file.
    pub(crate) fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.0, &offset.to_le_bytes()), bytes)
    }
}

/// A place in the log: file, then offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

/// First multiple of the sector size that is not below `offset`.
pub(crate) fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(SECTOR_BYTES)
}

/// First block of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) identity: Identity,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0; FILE_HEADER_BYTES];
        out[0..4].copy_from_slice(&FILE_MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.identity.cluster.to_le_bytes());
        out[32..40].copy_from_slice(&self.identity.node.to_le_bytes());
        out[40..48].copy_from_slice(&self.identity.incarnation.to_le_bytes());
        out[48..56].copy_from_slice(&self.number.to_le_bytes());
        out[56..64].copy_from_slice(&self.bytes.to_le_bytes());
        let checksum = crc32c::crc32c(&out);
        out[8..12].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// `None`: not a header, or not an undamaged one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut header: [u8; FILE_HEADER_BYTES] = bytes.first_chunk().copied()?;
        let checksum = u32_at(&header, 8);
        header[8..12].fill(0);
        if header[0..4] != FILE_MAGIC || checksum != crc32c::crc32c(&header) {
            return None;
        }
        let identity = Identity {
            cluster: u128::from_le_bytes(*header[16..].first_chunk()?),
            node: u64_at(&header, 32),
            incarnation: u64_at(&header, 40),
        };
        (u16_at(&header, 4) == VERSION).then_some(Self {
            identity,
            number: u64_at(&header, 48),
            bytes: u64_at(&header, 56),
        })
    }
}

/// First bytes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Checksum of the record headers.
    pub(crate) records_checksum: u32,
    /// Header, record headers and payloads; without padding.
    pub(crate) bytes: u32,
    /// How many records.
    pub(crate) count: u32,
    /// Counts the batches of the whole log, from 1.
    pub(crate) sequence: u64,
    /// Everything before this position was synced when this batch was written.
    pub(crate) durable: Position,
    /// Groups of this batch, and of the one before: if one of the two becomes unreadable, it is
    /// known whose it was.
    pub(crate) groups: Groups,
    pub(crate) previous_groups: Groups,
}

/// A set of groups: one bit for each, by its number modulo 64. May hold more than were put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups(pub(crate) u64);

impl Groups {
    pub(crate) const ALL: Groups = Groups(u64::MAX);

    pub(crate) fn add(&mut self, group: u32) {
        self.0 |= 1 << (group % 64);
    }

    pub(crate) fn may_hold(self, group: u32) -> bool {
        self.0 & 1 << (group % 64) != 0
    }
}

impl BatchHeader {
    pub(crate) fn encode(&self, seed: Seed, offset: u64) -> [u8; BATCH_HEADER_BYTES] {
        let mut out = [0; BATCH_HEADER_BYTES];
        out[0..4].copy_from_slice(&BATCH_MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.records_checksum.to_le_bytes());
        out[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        out[20..24].copy_from_slice(&self.count.to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.durable.file.to_le_bytes());
        out[40..48].copy_from_slice(&self.durable.offset.to_le_bytes());
        out[48..56].copy_from_slice(&self.groups.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.previous_groups.0.to_le_bytes());
        let checksum = seed.checksum(offset, &out);
        out[8..12].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// `None`: no batch of this file begins here.
    pub(crate) fn decode(seed: Seed, offset: u64, bytes: &[u8]) -> Option<Self> {
        if bytes.get(0..4) != Some(&BATCH_MAGIC) {
            return None;
        }
        let mut header: [u8; BATCH_HEADER_BYTES] = bytes.first_chunk().copied()?;
        let checksum = u32_at(&header, 8);
        header[8..12].fill(0);
        if checksum != seed.checksum(offset, &header) || u16_at(&header, 4) != VERSION {
            return None;
        }
        let decoded = Self {
            records_checksum: u32_at(&header, 12),
            bytes: u32_at(&header, 16),
            count: u32_at(&header, 20),
            sequence: u64_at(&header, 24),
            durable: Position { file: u64_at(&header, 32), offset: u64_at(&header, 40) },
            groups: Groups(u64_at(&header, 48)),
            previous_groups: Groups(u64_at(&header, 56)),
        };
        decoded.is_plausible().then_some(decoded)
    }

    fn is_plausible(&self) -> bool {
        let table_bytes = self.count as u64 * RECORD_HEADER_BYTES as u64;
        self.count as usize <= BATCH_RECORDS_MAX
            && u64::from(self.bytes) <= FILE_BYTES_MAX - DATA_START
            && u64::from(self.bytes) >= BATCH_HEADER_BYTES as u64 + table_bytes
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An entry of a group's log; the payload is its data.
    Entry = 1,
    /// A group's hard state; the payload replaces all earlier ones.
    HardState = 2,
    /// Entries of the group from `index` on are no more.
    Truncate = 3,
    /// Where the group stands: `index` and `term` of its last entry; the payload is a `GroupStatus`.
    GroupStatus = 4,
    /// Everything of the group but its hard state was quarantined; the payload is a `LostState`.
    Reset = 5,
    /// What was quarantined is made up for.
    Rejoined = 6,
}

/// What this node knew of a group, promised others to know, and knows no more. Until that is made
/// up for it must not help anybody to a majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostState {
    /// Entries that others may have counted on. It may vote again once its log holds everything
    /// that was committed when it came back.
    pub log: bool,
    /// Terms and votes: moreover it may vote in no term in which it may have voted before.
    pub vote: bool,
}

impl LostState {
    /// Whether anything was forgotten.
    pub fn any(self) -> bool {
        self.log || self.vote
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self { log: self.log || other.log, vote: self.vote || other.vote }
    }

    pub(crate) fn encode(self) -> u8 {
        u8::from(self.log) | u8::from(self.vote) << 1
    }

    /// What cannot be read may be anything.
    pub(crate) fn decode(bytes: Option<&[u8]>) -> Self {
        match bytes {
            Some(&[flags]) if flags < 4 => Self { log: flags & 1 != 0, vote: flags & 2 != 0 },
            Some(_) | None => Self { log: true, vote: true },
        }
    }
}

impl Kind {
    fn decode(kind: u8) -> Option<Self> {
        match kind {
            1 => Some(Kind::Entry),
            2 => Some(Kind::HardState),
            3 => Some(Kind::Truncate),
            4 => Some(Kind::GroupStatus),
            5 => Some(Kind::Reset),
            6 => Some(Kind::Rejoined),
            _ => None,
        }
    }
}

/// One row of a batch's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) payload_checksum: u32,
    /// Bytes of the payload.
    pub(crate) bytes: u32,
    pub(crate) group: u32,
    /// Where the payload lies, from the beginning of the batch.
    pub(crate) start: u32,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) kind: Kind,
}

impl RecordHeader {
    pub(crate) fn encode(&self, seed: Seed, offset: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.payload_checksum.to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.group.to_le_bytes());
        out[16..24].copy_from_slice(&self.index.to_le_bytes());
        out[24..32].copy_from_slice(&self.term.to_le_bytes());
        out[32..36].copy_from_slice(&self.start.to_le_bytes());
        out[36] = self.kind as u8;
        let checksum = seed.checksum(offset, &out);
        out[0..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// `None`: damaged.
    pub(crate) fn decode(seed: Seed, offset: u64, bytes: &[u8]) -> Option<Self> {
        let mut header: [u8; RECORD_HEADER_BYTES] = bytes.first_chunk().copied()?;
        let checksum = u32_at(&header, 0);
        header[0..4].fill(0);
        if checksum != seed.checksum(offset, &header) {
            return None;
        }
        Some(Self {
            payload_checksum: u32_at(&header, 4),
            bytes: u32_at(&header, 8),
            group: u32_at(&header, 12),
            index: u64_at(&header, 16),
            term: u64_at(&header, 24),
            start: u32_at(&header, 32),
            kind: Kind::decode(header[36])?,
        })
    }
}

/// Payload of a `Kind::GroupStatus` record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupStatus<'a> {
    /// Index and term of the group's newest checkpoint: entries up to it may be gone from the
    /// log, so the checkpoint must be there.
    pub(crate) truncated: (u64, u64),
    pub(crate) hard_state: Option<&'a [u8]>,
    /// A start found damage, and the group was not rebuilt since.
    pub(crate) is_damaged: bool,
    pub(crate) lost_state: LostState,
}

impl<'a> GroupStatus<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(17 + self.hard_state.map_or(0, <[u8]>::len));
        out.extend_from_slice(&self.truncated.0.to_le_bytes());
        out.extend_from_slice(&self.truncated.1.to_le_bytes());
        let flags = u8::from(self.hard_state.is_some()) | u8::from(self.is_damaged) << 1;
        out.push(flags | self.lost_state.encode() << 2);
        out.extend_from_slice(self.hard_state.unwrap_or_default());
        out
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (index, rest) = bytes.split_first_chunk()?;
        let (term, rest) = rest.split_first_chunk()?;
        let truncated = (u64::from_le_bytes(*index), u64::from_le_bytes(*term));
        let (flags, rest) = rest.split_first()?;
        let hard_state = (flags & 1 != 0).then_some(rest);
        let is_sound = *flags < 16 && (hard_state.is_some() || rest.is_empty());
        let lost_state = LostState::decode(Some(&[flags >> 2]));
        is_sound.then_some(Self { truncated, hard_state, is_damaged: flags & 2 != 0, lost_state })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("inside a fixed header"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside a fixed header"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside a fixed header"))
}
