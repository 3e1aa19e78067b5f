//! The bytes of a segment.
//!
//! ```text
//! header (64)
//! records of queue 1 | records of queue 2 | ...     record: header (24), message or reference (16)
//! index of queue 1 | index of queue 2 | ...         entry: sequence number, offset (16)
//! footer: one row per queue (64)
//! trailer (64)
//! ```
//!
//! Each checksum begins with that of the segment (cluster, node, incarnation, group, number), and
//! those of records also cover the queue and the offset.
//!
//! A message that several queues have stands in the record of the first of them; the records of the
//! others refer to it: offset u64, bytes u32, checksum u32. It names its queue in eight bytes, at the
//! place that the record's header gives; whoever reads a reference puts the other queue's number there.
//! A segment with references is of version 2. All others are of version 1 still.

use crate::identity::Identity;
use crate::record::{Seed, u32_at, u64_at};

pub(crate) const HEADER_BYTES: usize = 64;
/// What stands before each message.
pub const RECORD_HEADER_BYTES: usize = 24;
pub(crate) const INDEX_ENTRY_BYTES: usize = 16;
pub(crate) const ROW_BYTES: usize = 64;
pub(crate) const TRAILER_BYTES: usize = 64;
pub(crate) const MAGIC: [u8; 4] = *b"MRSG";
pub(crate) const TRAILER_MAGIC: [u8; 4] = *b"MRSE";
pub(crate) const VERSION: u16 = 1;
pub(crate) const VERSION_WITH_REFERENCES: u16 = 2;
pub(crate) const REFERENCE_BYTES: usize = 16;
/// A queue's number in a message that queues share.
pub(crate) const QUEUE_BYTES: usize = 8;

/// Messages of one queue in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The queue.
    pub queue: u64,
    /// Lowest sequence number.
    pub first_seq: u64,
    /// Highest sequence number. Not all between need to be there.
    pub last_seq: u64,
    /// How many messages.
    pub count: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

impl Extent {
    pub(crate) const FIELDS: usize = 5;

    pub(crate) fn fields(&self) -> [u64; Self::FIELDS] {
        [self.queue, self.first_seq, self.last_seq, self.count, self.bytes]
    }

    pub(crate) fn from_fields(fields: [u64; Self::FIELDS]) -> Self {
        let [queue, first_seq, last_seq, count, bytes] = fields;
        Self { queue, first_seq, last_seq, count, bytes }
    }

    /// What its records take in the file.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.bytes + self.count * RECORD_HEADER_BYTES as u64
    }
}

/// A segment as its checkpoint knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMeta {
    /// Names the file; never used twice in a group.
    pub number: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Of the trailer, and so of this very segment.
    pub checksum: u32,
    /// One per queue, sorted by queue.
    pub extents: Vec<Extent>,
}

impl SegmentMeta {
    /// The extent of a queue, if it has messages here.
    pub fn extent(&self, queue: u64) -> Option<&Extent> {
        let at = self.extents.binary_search_by_key(&queue, |extent| extent.queue).ok()?;
        Some(&self.extents[at])
    }

    /// Messages in it, of all queues.
    pub fn count(&self) -> u64 {
        self.extents.iter().map(|extent| extent.count).sum()
    }
}

/// Beginning of all checksums of one segment.
pub(crate) fn seed(identity: &Identity, group: u32, number: u64) -> Seed {
    // The upper half keeps them apart from those of log files, the group from other groups'.
    Seed::of(identity, number ^ (u64::from(group) << 32) ^ 1 << 63)
}

pub(crate) fn header(seed: Seed, group: u32, number: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[0..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&VERSION.to_le_bytes());
    out[16..20].copy_from_slice(&group.to_le_bytes());
    out[24..32].copy_from_slice(&number.to_le_bytes());
    let checksum = seed.checksum(0, &out);
    out[8..12].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// What stands before each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) payload_checksum: u32,
    pub(crate) bytes: u32,
    pub(crate) contents: Contents,
    /// Where the queue's number stands in a message that is not this queue's alone.
    pub(crate) queue_at: u8,
    pub(crate) seq: u64,
}

/// What stands behind a record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// The message.
    Message,
    /// The message, to which records of other queues may refer.
    Shared,
    /// A [`Reference`].
    Reference,
}

impl Contents {
    fn number(self) -> u8 {
        match self {
            Contents::Message => 0,
            Contents::Shared => 1,
            Contents::Reference => 2,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        [Contents::Message, Contents::Shared, Contents::Reference].get(usize::from(number)).copied()
    }
}

/// Where a message stands in its segment, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) checksum: u32,
}

impl Reference {
    pub(crate) fn encode(&self) -> [u8; REFERENCE_BYTES] {
        let mut out = [0; REFERENCE_BYTES];
        out[0..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// `None`: of another length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REFERENCE_BYTES] = bytes.try_into().ok()?;
        let (offset, length) = (u64_at(bytes, 0), u32_at(bytes, 8));
        Some(Self { offset, bytes: length, checksum: u32_at(bytes, 12) })
    }
}

impl RecordHeader {
    pub(crate) fn encode(&self, seed: Seed, queue: u64, offset: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.payload_checksum.to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[12] = self.contents.number();
        out[13] = self.queue_at;
        out[16..24].copy_from_slice(&self.seq.to_le_bytes());
        let checksum = record_checksum(seed, queue, offset, &out);
        out[0..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// `None`: damaged, or not the record of this queue at this offset.
    pub(crate) fn decode(seed: Seed, queue: u64, offset: u64, bytes: &[u8]) -> Option<Self> {
        let mut header: [u8; RECORD_HEADER_BYTES] = bytes.first_chunk().copied()?;
        let checksum = u32_at(&header, 0);
        header[0..4].fill(0);
        if checksum != record_checksum(seed, queue, offset, &header) {
            return None;
        }
        Some(Self {
            payload_checksum: u32_at(&header, 4),
            bytes: u32_at(&header, 8),
            contents: Contents::from_number(header[12])?,
            queue_at: header[13],
            seq: u64_at(&header, 16),
        })
    }
}

fn record_checksum(seed: Seed, queue: u64, offset: u64, header: &[u8]) -> u32 {
    crc32c::crc32c_append(seed.checksum(offset, &queue.to_le_bytes()), header)
}

/// A queue in the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) extent: Extent,
    pub(crate) records_start: u64,
    pub(crate) index_start: u64,
    pub(crate) index_count: u32,
    pub(crate) index_checksum: u32,
}

impl Row {
    pub(crate) fn encode(&self) -> [u8; ROW_BYTES] {
        let mut out = [0; ROW_BYTES];
        for (at, field) in self.extent.fields().into_iter().enumerate() {
            out[at * 8..at * 8 + 8].copy_from_slice(&field.to_le_bytes());
        }
        out[40..48].copy_from_slice(&self.records_start.to_le_bytes());
        out[48..56].copy_from_slice(&self.index_start.to_le_bytes());
        out[56..60].copy_from_slice(&self.index_count.to_le_bytes());
        out[60..64].copy_from_slice(&self.index_checksum.to_le_bytes());
        out
    }

    /// From bytes whose checksum was found good.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut fields = [0; Extent::FIELDS];
        for (at, field) in fields.iter_mut().enumerate() {
            *field = u64_at(bytes, at * 8);
        }
        Self {
            extent: Extent::from_fields(fields),
            records_start: u64_at(bytes, 40),
            index_start: u64_at(bytes, 48),
            index_count: u32_at(bytes, 56),
            index_checksum: u32_at(bytes, 60),
        }
    }

    pub(crate) fn records_end(&self) -> u64 {
        self.records_start + self.extent.record_bytes()
    }
}

/// End of the file: where the footer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) footer_checksum: u32,
    pub(crate) footer_start: u64,
    pub(crate) row_count: u64,
    pub(crate) file_bytes: u64,
    pub(crate) has_references: bool,
}

impl Trailer {
    /// The bytes, and the checksum that names this very segment.
    pub(crate) fn encode(&self, seed: Seed) -> ([u8; TRAILER_BYTES], u32) {
        let mut out = [0; TRAILER_BYTES];
        out[0..4].copy_from_slice(&TRAILER_MAGIC);
        let version = if self.has_references { VERSION_WITH_REFERENCES } else { VERSION };
        out[4..6].copy_from_slice(&version.to_le_bytes());
        out[12..16].copy_from_slice(&self.footer_checksum.to_le_bytes());
        out[16..24].copy_from_slice(&self.footer_start.to_le_bytes());
        out[24..32].copy_from_slice(&self.row_count.to_le_bytes());
        out[32..40].copy_from_slice(&self.file_bytes.to_le_bytes());
        let checksum = seed.checksum(self.file_bytes, &out);
        out[8..12].copy_from_slice(&checksum.to_le_bytes());
        (out, checksum)
    }

    /// `None`: damaged, or another segment's.
    pub(crate) fn decode(seed: Seed, file_bytes: u64, bytes: &[u8]) -> Option<(Self, u32)> {
        let mut trailer: [u8; TRAILER_BYTES] = bytes.first_chunk().copied()?;
        let checksum = u32_at(&trailer, 8);
        trailer[8..12].fill(0);
        if trailer[0..4] != TRAILER_MAGIC || checksum != seed.checksum(file_bytes, &trailer) {
            return None;
        }
        let version = u16::from_le_bytes([trailer[4], trailer[5]]);
        let decoded = Self {
            footer_checksum: u32_at(&trailer, 12),
            footer_start: u64_at(&trailer, 16),
            row_count: u64_at(&trailer, 24),
            file_bytes: u64_at(&trailer, 32),
            has_references: version == VERSION_WITH_REFERENCES,
        };
        let rows = decoded.row_count.checked_mul(ROW_BYTES as u64)?;
        let end = decoded.footer_start.checked_add(rows)?.checked_add(TRAILER_BYTES as u64)?;
        let is_known = matches!(version, VERSION | VERSION_WITH_REFERENCES);
        let is_sound = end == file_bytes && is_known;
        is_sound.then_some((decoded, checksum))
    }
}
