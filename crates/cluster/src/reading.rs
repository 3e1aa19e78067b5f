//! Reads of a node's log and segments: messages for deliveries, and entries for replicas that are behind.
//!
//! A read may find that a checkpoint has moved what was asked for. It then gives what it has so far, and the shard
//! asks again, of the new places.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use machine::{GroupId, QueueId};
use raft::eraftpb::Entry;
use wal::segments::{self, SegmentMeta};
use wal::{Checkpoint, Disk, EntryAt, Error, Reader};

use crate::bodies::{Run, Source, cut_out, pick};
use crate::entry;
use crate::exchange::{Fetch, Located, Peek};
use crate::limits::{FETCH_BYTES, READ_ENTRIES_BYTES};
use crate::peeked::Peeked;
use crate::peeking::PeekReader;
use crate::snapshot;

/// Reads a node's log and the segments that are open, within bounds.
pub struct StoreReader<D: Disk> {
    log: Reader<D>,
    /// Bytes of messages after which one fetch reads no more.
    fetch_bytes: u64,
    /// Bytes of entries after which one read reads no more.
    entries_bytes: usize,
}

impl<D: Disk> StoreReader<D> {
    pub fn new(log: Reader<D>) -> Self {
        Self { log, fetch_bytes: FETCH_BYTES, entries_bytes: READ_ENTRIES_BYTES }
    }

    /// With smaller bounds of one fetch and one read of entries, in bytes.
    #[must_use]
    pub fn with_bounds(self, fetch_bytes: u64, entries_bytes: usize) -> Self {
        Self { fetch_bytes, entries_bytes, ..self }
    }

    /// The log alone.
    pub fn log(&self) -> &Reader<D> {
        &self.log
    }

    /// The messages of `fetch` up to the bound: at least some of those that are wanted first, unless a checkpoint has
    /// moved them.
    pub fn fetch(&self, segments: &impl FindSegment<D>, fetch: &Fetch) -> Result<Vec<Run>, Error> {
        let Fetch { group, queue, reader: _, parts } = fetch;
        let (mut runs, mut bytes) = (Vec::new(), 0);
        let mut seen = Vec::new();
        for located in parts {
            if bytes >= self.fetch_bytes {
                break;
            }
            let read = match located.part.source {
                Source::Segment { segment } if seen.contains(&segment) => continue,
                Source::Segment { segment } => {
                    seen.push(segment);
                    // Everything that is wanted of it, so that its index is looked at once.
                    let of_it = |it: &&Located| it.part.is_of(segment);
                    let wanted = parts.iter().filter(of_it).flat_map(|it| it.part.wanted.ranges());
                    let wanted: Vec<Range<u64>> = wanted.collect();
                    let bytes_left = self.fetch_bytes - bytes;
                    match segments.find(*group, segment) {
                        None => Err(Error::Gone),
                        Some(open) => read_segment(&open, *queue, &wanted, bytes_left),
                    }
                }
                Source::Entry { .. } | Source::Memory(_) => self.entry(*queue, located),
            };
            match read {
                Ok(read) => {
                    bytes += read.iter().map(|run| run.bytes.len() as u64).sum::<u64>();
                    runs.extend(read);
                }
                // Moved to a segment meanwhile: the shard asks again, and by then knows where.
                Err(Error::Gone) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(runs)
    }

    /// The first of `wanted`: as many as a message between nodes should carry, and none from the first on that a
    /// checkpoint has moved to a segment.
    ///
    /// # Errors
    /// `Error::Refused` for an entry that a newer program wrote.
    pub fn entries(&self, group: GroupId, wanted: &[EntryAt]) -> Result<Vec<Entry>, Error> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for at in wanted {
            bytes += at.place.bytes as usize;
            if bytes > self.entries_bytes && !entries.is_empty() {
                break;
            }
            let data = match self.log.read(at.place) {
                Err(Error::Gone) => break,
                other => other?,
            };
            entries.push(entry::from_disk(at, data).ok_or_else(|| Error::Refused {
                path: format!("group {}", group.0),
                why: format!(
                    "a newer version wrote entry {}: start this node with that version",
                    at.index
                ),
            })?);
        }
        Ok(entries)
    }

    /// Messages that somebody looks at, up to the bound: none from the first on that a checkpoint has moved.
    ///
    /// # Errors
    /// The disk does not give them.
    pub fn peek(&self, segments: &impl FindSegment<D>, peek: &Peek) -> Result<Peeked, Error> {
        let find = |segment| segments.find(peek.group, segment);
        PeekReader::new(&self.log, find, peek, self.fetch_bytes).read()
    }

    fn entry(&self, queue: QueueId, Located { part, place }: &Located) -> Result<Vec<Run>, Error> {
        let bytes = match &part.source {
            Source::Memory(bytes) => bytes.clone(),
            Source::Entry { range, .. } => {
                let entry = self.log.read((*place).ok_or(Error::Gone)?)?;
                cut_out(&entry, range.start as usize..range.end as usize).0
            }
            Source::Segment { .. } => return Err(Error::Gone),
        };
        let run = Run { first_seq: part.first_seq, count: part.count as u32, bytes };
        Ok(pick(queue, run, &part.wanted, true))
    }
}

fn read_segment<D: Disk>(
    segment: &segments::Reader<D>,
    queue: QueueId,
    wanted: &[Range<u64>],
    bytes_max: u64,
) -> Result<Vec<Run>, Error> {
    let (found, _) = segment.read_spans(queue.0, wanted, bytes_max)?;
    Ok(join(found))
}

/// Messages that follow each other without a gap become one run.
fn join(messages: Vec<(u64, Bytes)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open: Option<(u64, u32, BytesMut)> = None;
    let close = |(first_seq, count, bytes): (u64, u32, BytesMut)| Run {
        first_seq,
        count,
        bytes: bytes.freeze(),
    };
    for (seq, message) in messages {
        match &mut open {
            Some((first, count, bytes)) if *first + u64::from(*count) == seq => {
                *count += 1;
                bytes.extend_from_slice(&message);
            }
            _ => {
                runs.extend(open.take().map(close));
                open = Some((seq, 1, BytesMut::from(&message[..])));
            }
        }
    }
    runs.extend(open.map(close));
    runs
}

/// Finds an open segment of a group by its number.
pub trait FindSegment<D: Disk> {
    fn find(&self, group: GroupId, number: u64) -> Option<segments::Reader<D>>;

    /// A checkpoint with its segments, to be sent to a replica. `None`: one of them is not open.
    fn of_checkpoint(&self, checkpoint: &Checkpoint) -> Option<snapshot::Source<D>> {
        let open = |meta: &SegmentMeta| self.find(GroupId(checkpoint.group), meta.number);
        let segments = checkpoint.segments.iter().map(open).collect::<Option<_>>()?;
        Some(snapshot::Source { checkpoint: checkpoint.clone(), segments })
    }
}

/// The open segments of all groups: housekeeping says which.
pub struct OpenSegments<D: Disk> {
    readers: BTreeMap<(GroupId, u64), segments::Reader<D>>,
}

impl<D: Disk> Default for OpenSegments<D> {
    fn default() -> Self {
        Self { readers: BTreeMap::new() }
    }
}

impl<D: Disk> OpenSegments<D> {
    pub fn add(&mut self, group: GroupId, number: u64, reader: segments::Reader<D>) {
        self.readers.insert((group, number), reader);
    }

    pub fn remove(&mut self, group: GroupId, number: u64) {
        self.readers.remove(&(group, number));
    }
}

impl<D: Disk> FindSegment<D> for OpenSegments<D> {
    fn find(&self, group: GroupId, number: u64) -> Option<segments::Reader<D>> {
        self.readers.get(&(group, number)).cloned()
    }
}
