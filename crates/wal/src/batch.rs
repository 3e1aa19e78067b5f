//! What is committed together: items of all groups, and their bytes in the log.

use std::io::IoSlice;

use bytes::Bytes;

use crate::limits::SECTOR_BYTES;
use crate::place::Place;
use crate::record::{
    self, BATCH_HEADER_BYTES, BatchHeader, Groups, Kind, LostState, Position, RECORD_HEADER_BYTES,
    RecordHeader, Seed,
};

/// One thing to be made durable for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The group's log grows. An entry at an index that is there already replaces it and
    /// everything above it.
    Entry {
        /// One above the last, or at most that.
        index: u64,
        /// The leader's term.
        term: u64,
        /// Not copied on its way to the disk.
        data: Bytes,
    },
    /// Replaces the group's hard state: vote, term, commit.
    HardState(Bytes),
    /// Entries from this index on are no more.
    TruncateFrom(u64),
    /// The group begins anew, with nothing but its hard state: its files were quarantined.
    Reset(LostState),
    /// What the group forgot is made up for.
    Rejoined,
}

/// Items that become durable together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitBatch {
    items: Vec<(u32, Item)>,
    payload_bytes: u64,
}

impl CommitBatch {
    /// Without items.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an item; the order of the items of one group is kept.
    pub fn add(&mut self, group: u32, item: Item) {
        self.payload_bytes += match &item {
            Item::Entry { data, .. } | Item::HardState(data) => data.len() as u64,
            Item::Reset(_) => 1,
            Item::TruncateFrom(_) | Item::Rejoined => 0,
        };
        self.items.push((group, item));
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many items.
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// What it takes in the log, without the header it shares.
    pub fn bytes(&self) -> u64 {
        self.payload_bytes + (self.items.len() * RECORD_HEADER_BYTES) as u64
    }

    /// In the order in which they were added.
    pub fn items(&self) -> &[(u32, Item)] {
        &self.items
    }
}

/// Proof that a commit is on disk. Only the log can make one.
#[derive(Debug, PartialEq, Eq)]
pub struct Synced {
    sequence: u64,
    places: Vec<Place>,
}

impl Synced {
    pub(crate) fn new(sequence: u64, places: Vec<Place>) -> Self {
        Self { sequence, places }
    }

    /// Where the entries lie, in the order in which they were added.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Takes the places out.
    pub fn into_places(self) -> Vec<Place> {
        self.places
    }

    /// Number of the last write it covers; grows with every write of this log.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// A write in the making: records with their payloads.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    headers: Vec<RecordHeader>,
    payloads: Vec<Bytes>,
    payload_bytes: u64,
    /// Batch header and record headers, as they go to the disk.
    head: Vec<u8>,
}

static PADDING: [u8; SECTOR_BYTES as usize] = [0; SECTOR_BYTES as usize];

impl Draft {
    pub(crate) fn clear(&mut self) {
        self.headers.clear();
        self.payloads.clear();
        self.payload_bytes = 0;
    }

    pub(crate) fn add(&mut self, group: u32, kind: Kind, index: u64, term: u64, payload: Bytes) {
        self.headers.push(RecordHeader {
            payload_checksum: crc32c::crc32c(&payload),
            bytes: u32::try_from(payload.len()).expect("a batch fits a file of 32 bits"),
            group,
            start: 0,
            index,
            term,
            kind,
        });
        self.payload_bytes += payload.len() as u64;
        if !payload.is_empty() {
            self.payloads.push(payload);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.headers.len()
    }

    /// Header, record headers and payloads; without padding.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_batch(self.headers.len(), self.payload_bytes)
    }

    /// Fixes the batch to its position `at`; adds the places of the entries. `durable` is where
    /// the batch before it ended: all before that is synced. Says whose records it holds.
    pub(crate) fn seal(
        &mut self,
        seed: Seed,
        (at, durable): (Position, Position),
        (sequence, previous_groups): (u64, Groups),
        places: &mut Vec<Place>,
    ) -> Groups {
        let table_bytes = self.headers.len() * RECORD_HEADER_BYTES;
        let mut start = BATCH_HEADER_BYTES + table_bytes;
        let mut groups = Groups::default();
        self.head.clear();
        self.head.resize(BATCH_HEADER_BYTES, 0);
        for header in &mut self.headers {
            header.start = u32::try_from(start).expect("a batch fits a file of 32 bits");
            start += header.bytes as usize;
            groups.add(header.group);
            let offset = at.offset + self.head.len() as u64;
            self.head.extend_from_slice(&header.encode(seed, offset));
            if header.kind == Kind::Entry {
                places.push(Place::new(at, header));
            }
        }
        assert_eq!(start as u64, self.bytes(), "a batch has the size for which there was room");
        let header = BatchHeader {
            records_checksum: crc32c::crc32c(&self.head[BATCH_HEADER_BYTES..]),
            bytes: u32::try_from(start).expect("a batch fits a file of 32 bits"),
            count: u32::try_from(self.headers.len()).expect("bounded by BATCH_RECORDS_MAX"),
            sequence,
            durable,
            groups,
            previous_groups,
        };
        self.head[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode(seed, at.offset));
        groups
    }

    /// The sealed batch with its padding, as parts of one write.
    pub(crate) fn parts(&self) -> Vec<IoSlice<'_>> {
        let mut parts = Vec::with_capacity(self.payloads.len() + 2);
        parts.push(IoSlice::new(&self.head));
        parts.extend(self.payloads.iter().map(|payload| IoSlice::new(payload)));
        let padding = record::aligned(self.bytes()) - self.bytes();
        parts.push(IoSlice::new(&PADDING[..padding as usize]));
        parts
    }
}

/// Bytes of a batch of `count` records, without padding.
pub(crate) fn size_of_batch(count: usize, payload_bytes: u64) -> u64 {
    (BATCH_HEADER_BYTES + count * RECORD_HEADER_BYTES) as u64 + payload_bytes
}
