//! The thread that reads log entries and segments.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use machine::{GroupId, QueueId};
use raft::eraftpb::Entry;
use wal::{EntryAt, Error, FileDisk, Reader, segments};

use super::handle::{Counters, Node};
use super::start::Failure;
use super::store::{Fetch, Read, Store};
use crate::bodies::{Run, Source, cut_out, pick};
use crate::entry;
use crate::shard::{Input, Located};

/// Bytes of entries after which one read for a replica that is behind reads no more: one message.
const ENTRIES_BYTES: usize = 1 << 20;

/// Reads for deliveries and for replicas that are behind, until the shards are gone.
pub(crate) fn run(
    reader: &Reader<FileDisk>,
    segments: &Segments,
    node: &Node,
    store: &Store,
    failure: &Failure,
) {
    let mut reads = Vec::new();
    loop {
        store.reads().take(&mut reads, None, true);
        if reads.is_empty() {
            return;
        }
        for read in reads.drain(..) {
            let Fetch { group, queue, from_seq, parts } = match read {
                Read::Fetch(fetch) => fetch,
                Read::Entries { group, number, entries } => {
                    let entries = match read_entries(reader, group, &entries) {
                        Ok(entries) => entries,
                        Err(error) => failure.tell(&error),
                    };
                    node.shard_of(group).push(Input::EntriesRead { group, number, entries });
                    continue;
                }
            };
            Counters::add(&node.counters.fetches, 1);
            let mut runs = Vec::new();
            for located in parts {
                match read_part(reader, segments, group, queue, from_seq, &located) {
                    Ok(mut read) => runs.append(&mut read),
                    // Moved to a segment meanwhile: the shard asks again, and by then knows where.
                    Err(Error::Gone) => break,
                    Err(error) => fail_reading(reader, &error, node, failure),
                }
            }
            node.shard_of(group).push(Input::Fetched { group, queue, runs });
        }
    }
}

/// What is damaged in a segment is found again at the next start, and given back by the other nodes.
pub(crate) fn fail_reading(
    reader: &Reader<FileDisk>,
    error: &Error,
    node: &Node,
    failure: &Failure,
) -> ! {
    if node.peers.is_some() {
        // If this fails too, the first failure is still the one to tell of.
        let _ = reader.suspect(error);
    }
    failure.tell(error)
}

/// From the first on, until that is enough for a message or one was moved to a segment meanwhile.
fn read_entries(
    reader: &Reader<FileDisk>,
    group: GroupId,
    wanted: &[EntryAt],
) -> Result<Vec<Entry>, Error> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for at in wanted {
        bytes += at.place.bytes as usize;
        if bytes > ENTRIES_BYTES && !entries.is_empty() {
            break;
        }
        let data = match reader.read(at.place) {
            Err(Error::Gone) => break,
            other => other?,
        };
        entries.push(entry::from_disk(at, data).ok_or_else(|| Error::Refused {
            path: format!("group {}", group.0),
            why: format!("a newer program wrote its entry {}; use that one", at.index),
        })?);
    }
    Ok(entries)
}

fn read_part(
    reader: &Reader<FileDisk>,
    segments: &Segments,
    group: GroupId,
    queue: QueueId,
    from_seq: u64,
    located: &Located,
) -> Result<Vec<Run>, Error> {
    let Located { part, place } = located;
    let run = |bytes: Bytes| Run { first_seq: part.first_seq, count: part.count as u32, bytes };
    match &part.source {
        Source::Memory(bytes) => Ok(vec![run(bytes.clone())]),
        Source::Entry { range, .. } => {
            let entry = reader.read((*place).ok_or(Error::Gone)?)?;
            let bytes = cut_out(&entry, range.start as usize..range.end as usize).0;
            Ok(pick(queue, run(bytes), &part.wanted, true))
        }
        Source::Segment { segment } => {
            let from = from_seq.max(part.first_seq);
            let bytes_max = crate::limits::FETCH_BYTES;
            let segment = segments.find(group, *segment).ok_or(Error::Gone)?;
            let found = segment.read(queue.0, from, bytes_max)?;
            let end = part.first_seq + part.count;
            Ok(join(found.into_iter().filter(|(seq, _)| *seq < end)))
        }
    }
}

/// Messages that follow each other without a gap become one run.
fn join(messages: impl Iterator<Item = (u64, Bytes)>) -> Vec<Run> {
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

type Segment = Arc<segments::Reader<FileDisk>>;

/// The open segments of all groups.
#[derive(Default)]
pub(crate) struct Segments {
    readers: RwLock<BTreeMap<(GroupId, u64), Segment>>,
}

impl Segments {
    pub(crate) fn add(&self, group: GroupId, number: u64, reader: segments::Reader<FileDisk>) {
        let mut readers = self.readers.write().unwrap_or_else(PoisonError::into_inner);
        readers.insert((group, number), Arc::new(reader));
    }

    pub(crate) fn remove(&self, group: GroupId, number: u64) {
        let mut readers = self.readers.write().unwrap_or_else(PoisonError::into_inner);
        readers.remove(&(group, number));
    }

    pub(crate) fn find(&self, group: GroupId, number: u64) -> Option<Segment> {
        let readers = self.readers.read().unwrap_or_else(PoisonError::into_inner);
        readers.get(&(group, number)).cloned()
    }
}
