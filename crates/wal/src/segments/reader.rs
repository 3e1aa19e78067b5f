//! Reading a segment: the footer once, then one or two calls per read.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::identity::Identity;
use crate::layout::segment_path;
use crate::record::{Seed, u64_at};
use crate::segments::format::{
    self, Contents, Extent, HEADER_BYTES, INDEX_ENTRY_BYTES, QUEUE_BYTES, RECORD_HEADER_BYTES,
    ROW_BYTES, RecordHeader, Reference, Row, SegmentMeta, TRAILER_BYTES, Trailer,
};

/// An open segment. Cheap to clone; any thread may read.
pub struct Reader<D: Disk> {
    inner: Arc<Inner<D::File>>,
}

struct Inner<F> {
    file: F,
    path: String,
    seed: Seed,
    number: u64,
    bytes: u64,
    rows: Vec<Row>,
    has_references: bool,
}

/// A message of a queue.
pub(crate) struct Found {
    pub(crate) seq: u64,
    pub(crate) message: Bytes,
    /// Where it stands in the segment, and in it its queue's number, if other queues may have it too.
    pub(crate) shared: Option<(u64, u8)>,
}

impl<D: Disk> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: Disk> Reader<D> {
    pub(crate) fn open(
        disk: &D,
        identity: &Identity,
        group: u32,
        meta: &SegmentMeta,
    ) -> Result<Self, Error> {
        let path = segment_path(group, meta.number);
        let file = disk.open(&path, Access::Read).at("open", &path)?;
        let bytes = file.bytes().at("size", &path)?;
        if bytes != meta.bytes {
            let what = format!("it has {bytes} bytes, the checkpoint says {}", meta.bytes);
            return Err(Error::damaged(&path, 0, what));
        }
        let seed = format::seed(identity, group, meta.number);
        let (rows, has_references) = read_footer(&file, &path, seed, bytes, meta)?;
        let number = meta.number;
        let inner = Inner { file, path, seed, number, bytes, rows, has_references };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Number of the segment in its group.
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Whether queues have messages in common here. Then what lives of it may be more than its extents tell.
    pub(crate) fn has_references(&self) -> bool {
        self.inner.has_references
    }

    /// One per queue, sorted by queue.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.inner.rows.iter().map(|row| &row.extent)
    }

    /// Reads and checks every message.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        for row in &self.inner.rows {
            let Extent { queue, first_seq, last_seq, .. } = row.extent;
            let mut count = 0;
            let mut next = first_seq;
            loop {
                let found = self.read(queue, next, crate::limits::SEGMENT_BUFFER_BYTES as u64)?;
                count += found.len() as u64;
                match found.last() {
                    Some((last, _)) if *last < last_seq => next = last + 1,
                    Some(_) | None => break,
                }
            }
            if count != row.extent.count {
                return Err(self.inner.damaged(row.records_start));
            }
        }
        Ok(())
    }

    /// Queues of which something cannot be read: how many messages, and of how many. One by one, so
    /// what lies behind a damaged message counts as read if the position index leads there.
    pub(crate) fn unreadable(&self) -> Vec<(u64, u64, u64)> {
        let of_row = |row: &Row| {
            let Extent { queue, first_seq, last_seq, count, .. } = row.extent;
            let (mut found, mut next) = (0, first_seq);
            while next <= last_seq {
                match self.read(queue, next, 1) {
                    Ok(read) => match read.last() {
                        Some((last, _)) => {
                            found += read.len() as u64;
                            next = last + 1;
                        }
                        None => break,
                    },
                    Err(_) => next = self.behind_damage(row, next),
                }
            }
            (found < count).then(|| (queue, count - found, count))
        };
        self.inner.rows.iter().filter_map(of_row).collect()
    }

    /// Where reading may go on if message `seq` cannot be read: where the position index leads.
    fn behind_damage(&self, row: &Row, seq: u64) -> u64 {
        let index = self.inner.index(row).unwrap_or_default();
        let behind = index.iter().map(|(first, _)| *first).find(|first| *first > seq);
        behind.unwrap_or(u64::MAX)
    }

    /// Messages of `queue` from `from_seq` on, in order, until their contents reach `bytes_max`:
    /// at least one, if there is one. Those that are this queue's alone are parts of one buffer.
    pub fn read(
        &self,
        queue: u64,
        from_seq: u64,
        bytes_max: u64,
    ) -> Result<Vec<(u64, Bytes)>, Error> {
        let span = from_seq..u64::MAX;
        let (found, _) = self.read_spans(queue, std::slice::from_ref(&span), bytes_max)?;
        Ok(found)
    }

    /// Messages of `queue` with numbers in `spans`, one span after the other, until their contents
    /// reach `bytes_max`: at least one of a span that has one. And those contents' bytes.
    pub fn read_spans(
        &self,
        queue: u64,
        spans: &[Range<u64>],
        bytes_max: u64,
    ) -> Result<(Vec<(u64, Bytes)>, u64), Error> {
        let (found, bytes) = self.read_found(queue, spans, bytes_max)?;
        Ok((found.into_iter().map(|found| (found.seq, found.message)).collect(), bytes))
    }

    /// The same, with where each message stands.
    pub(crate) fn read_found(
        &self,
        queue: u64,
        spans: &[Range<u64>],
        bytes_max: u64,
    ) -> Result<(Vec<Found>, u64), Error> {
        let inner = &self.inner;
        let (mut found, mut bytes) = (Vec::new(), 0);
        let Ok(at) = inner.rows.binary_search_by_key(&queue, |row| row.extent.queue) else {
            return Ok((found, bytes));
        };
        let row = &inner.rows[at];
        let Extent { first_seq, last_seq, .. } = row.extent;
        let mut index = None;
        for span in spans.iter().filter(|span| span.start <= last_seq) {
            let left = bytes_max.saturating_sub(bytes);
            if left == 0 && !found.is_empty() {
                break;
            }
            let is_all = span.start <= first_seq && span.end > last_seq;
            let index = match &mut index {
                _ if is_all => &Vec::new(),
                Some(index) => index,
                None => index.insert(inner.index(row)?),
            };
            let (start, next) = locate(row, index, span.start);
            let behind = offset_behind(row, index, span.end.saturating_sub(1));
            // A stride, so that the wanted message begins inside, and what was asked for.
            let room = left.saturating_add(RECORD_HEADER_BYTES as u64 * (left / 64 + 1));
            let end = next.saturating_add(room).min(behind).max(next).min(row.records_end());
            let read = inner.records(row, (start, end), span.clone(), left)?;
            bytes += read.iter().map(|read| read.message.len() as u64).sum::<u64>();
            found.extend(read);
        }
        Ok((found, bytes))
    }
}

/// Where to begin reading for message `seq`, and a position at or behind its record.
fn locate(row: &Row, index: &[(u64, u64)], seq: u64) -> (u64, u64) {
    if seq <= row.extent.first_seq {
        return (row.records_start, row.records_start);
    }
    let behind = index.partition_point(|(first, _)| *first <= seq);
    let start = behind.checked_sub(1).map_or(row.records_start, |before| index[before].1);
    (start, offset_behind(row, index, seq))
}

/// A position behind the record of message `seq`.
fn offset_behind(row: &Row, index: &[(u64, u64)], seq: u64) -> u64 {
    let behind = index.partition_point(|(first, _)| *first <= seq);
    index.get(behind).map_or(row.records_end(), |(_, offset)| *offset)
}

impl<F: DiskFile> Inner<F> {
    /// The position index of a queue: numbers and offsets.
    fn index(&self, row: &Row) -> Result<Vec<(u64, u64)>, Error> {
        if row.index_count == 0 {
            return Ok(Vec::new());
        }
        let mut index = vec![0; row.index_count as usize * INDEX_ENTRY_BYTES];
        self.fill(row.index_start, &mut index)?;
        if self.seed.checksum(row.extent.queue, &index) != row.index_checksum {
            let what = "the position index's checksum is wrong";
            return Err(Error::damaged(&self.path, row.index_start, what));
        }
        let (entries, _) = index.as_chunks::<INDEX_ENTRY_BYTES>();
        Ok(entries.iter().map(|entry| (u64_at(entry, 0), u64_at(entry, 8))).collect())
    }

    fn records(
        &self,
        row: &Row,
        (start, end): (u64, u64),
        span: Range<u64>,
        bytes_max: u64,
    ) -> Result<Vec<Found>, Error> {
        let queue = row.extent.queue;
        let mut buffer = self.read(start, end)?;
        let mut base = start;
        let mut offset = start;
        let mut messages = Vec::new();
        let mut bytes = 0;
        while offset < row.records_end() && (messages.is_empty() || bytes < bytes_max) {
            let in_buffer = (offset - base) as usize;
            let left = buffer.len() - in_buffer;
            if left < RECORD_HEADER_BYTES {
                if !messages.is_empty() {
                    break;
                }
                (base, buffer) = (offset, self.read(offset, row.records_end().min(offset + 4096))?);
                continue;
            }
            let header = RecordHeader::decode(self.seed, queue, offset, &buffer[in_buffer..])
                .ok_or_else(|| self.damaged(offset))?;
            let record_bytes = RECORD_HEADER_BYTES as u64 + u64::from(header.bytes);
            if header.seq >= span.end {
                break;
            }
            if header.seq < span.start {
                offset += record_bytes;
                if offset > base + buffer.len() as u64 {
                    (base, buffer) =
                        (offset, self.read(offset, row.records_end().min(offset + 4096))?);
                }
                continue;
            }
            if (left as u64) < record_bytes {
                if !messages.is_empty() {
                    break;
                }
                (base, buffer) = (offset, self.read(offset, offset + record_bytes)?);
                if (buffer.len() as u64) < record_bytes {
                    return Err(self.damaged(offset));
                }
                continue;
            }
            let from = in_buffer + RECORD_HEADER_BYTES;
            let message = buffer.slice(from..from + header.bytes as usize);
            if crc32c::crc32c(&message) != header.payload_checksum {
                return Err(self.damaged(offset));
            }
            let home = offset + RECORD_HEADER_BYTES as u64;
            let (message, shared) = match header.contents {
                Contents::Message => (message, None),
                Contents::Shared if message.len() < usize::from(header.queue_at) + QUEUE_BYTES => {
                    return Err(self.damaged(offset));
                }
                Contents::Shared => (message, Some((home, header.queue_at))),
                Contents::Reference => {
                    let reference = Reference::decode(&message);
                    let reference = reference.ok_or_else(|| self.damaged(offset))?;
                    let message = self.resolve(reference, queue, header.queue_at)?;
                    (message, Some((reference.offset, header.queue_at)))
                }
            };
            bytes += message.len() as u64;
            messages.push(Found { seq: header.seq, message, shared });
            offset += record_bytes;
        }
        Ok(messages)
    }

    /// The message in another queue's record, as `queue` has it.
    fn resolve(&self, reference: Reference, queue: u64, queue_at: u8) -> Result<Bytes, Error> {
        let Reference { offset, bytes, checksum } = reference;
        let end = offset.checked_add(u64::from(bytes));
        let place = usize::from(queue_at)..usize::from(queue_at) + QUEUE_BYTES;
        if end.is_none_or(|end| end > self.bytes) || place.end > bytes as usize {
            return Err(self.damaged(offset));
        }
        let mut message = BytesMut::zeroed(bytes as usize);
        self.fill(offset, &mut message)?;
        if crc32c::crc32c(&message) != checksum {
            return Err(self.damaged(offset));
        }
        message[place].copy_from_slice(&queue.to_le_bytes());
        Ok(message.freeze())
    }

    fn damaged(&self, offset: u64) -> Error {
        Error::damaged(&self.path, offset, "the record's checksum is wrong")
    }

    fn read(&self, start: u64, end: u64) -> Result<Bytes, Error> {
        let mut buffer = BytesMut::zeroed((end - start) as usize);
        self.fill(start, &mut buffer)?;
        Ok(buffer.freeze())
    }

    fn fill(&self, start: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let count = self.file.read_at(start, buffer).at("read", &self.path)?;
        if count < buffer.len() {
            return Err(Error::damaged(&self.path, start + count as u64, "the file ends here"));
        }
        Ok(())
    }
}

/// Reads footer and trailer, which must be of that very segment; also says whether it has references.
pub(crate) fn read_footer<F: DiskFile>(
    file: &F,
    path: &str,
    seed: Seed,
    bytes: u64,
    meta: &SegmentMeta,
) -> Result<(Vec<Row>, bool), Error> {
    let damaged = |offset: u64, what: &str| Error::damaged(path, offset, what);
    if bytes < (HEADER_BYTES + TRAILER_BYTES) as u64 {
        return Err(damaged(0, "it is too short"));
    }
    let trailer_start = bytes - TRAILER_BYTES as u64;
    let mut trailer = [0; TRAILER_BYTES];
    file.read_at(trailer_start, &mut trailer).at("read", path)?;
    let (trailer, checksum) = Trailer::decode(seed, bytes, &trailer)
        .ok_or_else(|| damaged(trailer_start, "the trailer's checksum is wrong"))?;
    if meta.checksum != checksum {
        return Err(damaged(trailer_start, "it is not the segment that the checkpoint means"));
    }
    let mut footer = vec![0; trailer.row_count as usize * ROW_BYTES];
    file.read_at(trailer.footer_start, &mut footer).at("read", path)?;
    if crc32c::crc32c(&footer) != trailer.footer_checksum {
        return Err(damaged(trailer.footer_start, "the footer's checksum is wrong"));
    }
    let (rows, _) = footer.as_chunks::<ROW_BYTES>();
    Ok((rows.iter().map(|row| Row::decode(row)).collect(), trailer.has_references))
}
