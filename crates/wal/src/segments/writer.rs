//! Writing a segment, from its first message to its footer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::IoSlice;

use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Error};
use crate::identity::Identity;
use crate::layout::segment_path;
use crate::limits::{
    INDEX_STRIDE_BYTES, MESSAGE_BYTES_MAX, SEGMENT_BUFFER_BYTES, SEGMENT_SYNC_BYTES,
    SHARED_MESSAGES_MAX,
};
use crate::record::Seed;
use crate::segments::format::{
    self, Contents, Extent, HEADER_BYTES, QUEUE_BYTES, RECORD_HEADER_BYTES, REFERENCE_BYTES,
    RecordHeader, Reference, Row, SegmentMeta, TRAILER_BYTES, Trailer,
};

/// A segment that is being written. Dropped before `finish` succeeded, it takes its file along.
pub struct Writer<D: Disk> {
    disk: D,
    file: D::File,
    path: String,
    number: u64,
    seed: Seed,
    /// Not yet written; the last bytes of the segment so far.
    buffer: Vec<u8>,
    /// Bytes before the buffer.
    written: u64,
    /// Bytes that are durable.
    synced: u64,
    rows: Vec<Row>,
    /// Position index of all queues, one after the other.
    index: Vec<(u64, u64)>,
    /// Where the next entry of the position index is due.
    index_due: u64,
    /// Where messages stand that records of other queues may refer to.
    shared: BTreeMap<(u64, u64), Reference>,
    has_references: bool,
    is_finished: bool,
}

/// What several queues have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Tells the message from all others: two numbers of the caller's.
    pub origin: (u64, u64),
    /// Where in the message its queue's number stands: all that differs between the queues.
    pub queue_at: u8,
}

impl<D: Disk> Writer<D> {
    pub(crate) fn create(
        disk: &D,
        identity: Identity,
        group: u32,
        number: u64,
    ) -> Result<Self, Error> {
        let path = segment_path(group, number);
        let file = disk.create(&path).at("create", &path)?;
        let seed = format::seed(&identity, group, number);
        let mut buffer = Vec::new();
        buffer.extend_from_slice(&format::header(seed, group, number));
        Ok(Self {
            disk: disk.clone(),
            file,
            path,
            number,
            seed,
            buffer,
            written: 0,
            synced: 0,
            rows: Vec::new(),
            index: Vec::new(),
            index_due: 0,
            shared: BTreeMap::new(),
            has_references: false,
            is_finished: false,
        })
    }

    /// Adds a message. Queues go up, and sequence numbers within a queue.
    pub fn add(&mut self, queue: u64, seq: u64, message: &[u8]) -> Result<(), Error> {
        self.put(queue, seq, message, (Contents::Message, 0)).map(|_| ())
    }

    /// Adds a message that other queues have too: it is stored once for all that are in this segment.
    /// Messages of the same origin differ in the queue's number only.
    pub fn add_shared(
        &mut self,
        queue: u64,
        seq: u64,
        Sharing { origin, queue_at }: Sharing,
        message: &[u8],
    ) -> Result<(), Error> {
        if message.len() <= REFERENCE_BYTES {
            return self.add(queue, seq, &named(message, queue, queue_at));
        }
        if let Some(reference) = self.shared.get(&origin) {
            let reference = reference.encode();
            self.has_references = true;
            return self.put(queue, seq, &reference, (Contents::Reference, queue_at)).map(|_| ());
        }
        let named = named(message, queue, queue_at);
        let reference = self.put(queue, seq, &named, (Contents::Shared, queue_at))?;
        if self.shared.len() < SHARED_MESSAGES_MAX {
            self.shared.insert(origin, reference);
        }
        Ok(())
    }

    pub(super) fn put(
        &mut self,
        queue: u64,
        seq: u64,
        payload: &[u8],
        (contents, queue_at): (Contents, u8),
    ) -> Result<Reference, Error> {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        assert!(bytes <= MESSAGE_BYTES_MAX, "messages are bounded long before they get here");
        let offset = self.bytes();
        self.note(queue, seq, u64::from(bytes), offset);
        let checksum = crc32c::crc32c(payload);
        let header = RecordHeader { payload_checksum: checksum, bytes, contents, queue_at, seq };
        self.buffer.extend_from_slice(&header.encode(self.seed, queue, offset));
        self.buffer.extend_from_slice(payload);
        if self.buffer.len() >= SEGMENT_BUFFER_BYTES {
            self.flush()?;
        }
        Ok(Reference { offset: offset + RECORD_HEADER_BYTES as u64, bytes, checksum })
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes index and footer and makes the contents durable. The segment counts once a
    /// checkpoint names it.
    pub fn finish(mut self) -> Result<SegmentMeta, Error> {
        self.close_index();
        let mut start = self.bytes();
        for row in &mut self.rows {
            row.index_start = start;
            start += u64::from(row.index_count) * format::INDEX_ENTRY_BYTES as u64;
        }
        let index: Vec<u8> = self.index.iter().flat_map(|entry| index_entry(*entry)).collect();
        self.buffer.extend_from_slice(&index);
        let footer_start = self.bytes();
        assert_eq!(start, footer_start, "the index has as many entries as its rows say");
        let footer: Vec<u8> = self.rows.iter().flat_map(Row::encode).collect();
        let trailer = Trailer {
            footer_checksum: crc32c::crc32c(&footer),
            footer_start,
            row_count: self.rows.len() as u64,
            file_bytes: footer_start + (footer.len() + TRAILER_BYTES) as u64,
            has_references: self.has_references,
        };
        let (encoded, checksum) = trailer.encode(self.seed);
        self.buffer.extend_from_slice(&footer);
        self.buffer.extend_from_slice(&encoded);
        self.flush()?;
        self.sync()?;
        assert_eq!(self.synced, trailer.file_bytes, "a segment is synced to its end");
        self.is_finished = true;
        let extents = self.rows.iter().map(|row| row.extent).collect();
        Ok(SegmentMeta { number: self.number, bytes: trailer.file_bytes, checksum, extents })
    }

    fn note(&mut self, queue: u64, seq: u64, bytes: u64, offset: u64) {
        match self.rows.last_mut() {
            Some(row) if row.extent.queue == queue => {
                assert!(row.extent.last_seq < seq, "messages of a queue are added in order");
                row.extent.last_seq = seq;
                row.extent.count += 1;
                row.extent.bytes += bytes;
                if offset >= self.index_due {
                    row.index_count += 1;
                    self.index.push((seq, offset));
                    self.index_due = offset + INDEX_STRIDE_BYTES;
                }
            }
            before => {
                assert!(
                    before.is_none_or(|row| row.extent.queue < queue),
                    "queues are added in order"
                );
                self.close_index();
                let extent = Extent { queue, first_seq: seq, last_seq: seq, count: 1, bytes };
                self.rows.push(Row {
                    extent,
                    records_start: offset,
                    index_start: 0,
                    index_count: 0,
                    index_checksum: 0,
                });
                self.index_due = offset + INDEX_STRIDE_BYTES;
            }
        }
    }

    /// Seals the position index of the last queue.
    fn close_index(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            let first = self.index.len() - row.index_count as usize;
            let bytes: Vec<u8> =
                self.index[first..].iter().flat_map(|entry| index_entry(*entry)).collect();
            row.index_checksum = self.seed.checksum(row.extent.queue, &bytes);
        }
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.file.sync_data().at("sync", &self.path)?;
        self.synced = self.written;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.write_at(self.written, &[IoSlice::new(&self.buffer)]).at("write", &self.path)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.written - self.synced >= SEGMENT_SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }
}

impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        if !self.is_finished {
            // If this fails too, the next checkpoint names the file as removed.
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// The message with the number of `queue` in its place.
fn named(message: &[u8], queue: u64, queue_at: u8) -> Cow<'_, [u8]> {
    let place = usize::from(queue_at)..usize::from(queue_at) + QUEUE_BYTES;
    assert!(place.end <= message.len(), "a message that is shared names its queue");
    if message[place.clone()] == queue.to_le_bytes() {
        return Cow::Borrowed(message);
    }
    let mut named = message.to_vec();
    named[place].copy_from_slice(&queue.to_le_bytes());
    Cow::Owned(named)
}

fn index_entry((seq, offset): (u64, u64)) -> [u8; format::INDEX_ENTRY_BYTES] {
    let mut out = [0; format::INDEX_ENTRY_BYTES];
    out[..8].copy_from_slice(&seq.to_le_bytes());
    out[8..].copy_from_slice(&offset.to_le_bytes());
    out
}

const _: () = assert!(HEADER_BYTES == 64, "records begin behind the header");
