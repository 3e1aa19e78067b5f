//! The thread that reads log entries and segments.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use machine::{GroupId, QueueId};
use raft::eraftpb::Entry;
use wal::{EntryAt, Error, FileDisk, Reader, segments};

use super::failure::Failure;
use super::handle::{Counters, Node};
use super::store::{Fetch, Read, Store};
use crate::bodies::{Run, Source, cut_out, pick};
use crate::entry;
use crate::limits::FETCH_BYTES;
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
            let fetch = match read {
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
            let runs = match read_fetch(reader, segments, &fetch) {
                Ok(runs) => runs,
                Err(error @ Error::Damaged { .. }) if node.peers.is_none() => {
                    // Without an answer the queue waits for it, and nobody else does.
                    tell_stopped(node, &fetch, &error);
                    continue;
                }
                Err(error) => fail_reading(reader, &error, node, failure),
            };
            let Fetch { group, queue, .. } = fetch;
            node.shard_of(group).push(Input::Fetched { group, queue, runs });
        }
    }
}

/// Nobody has what this node has lost, so the queue stops before it: what comes behind it must not be
/// delivered as if nothing were missing.
fn tell_stopped(node: &Node, fetch: &Fetch, error: &Error) {
    let catalog = node.catalog.read().unwrap_or_else(PoisonError::into_inner);
    let queue = catalog.queue_by_id(fetch.queue).map(|queue| (&queue.vhost, &queue.name));
    let (vhost, name) = queue.map_or(("", "(deleted)"), |(vhost, name)| (vhost, name));
    tracing::error!(
        vhost,
        queue = name,
        "a message on disk is damaged: {error}. This queue has stopped; the other queues go on. Stop the node and \
         run `millrace doctor --deep`, which says what is lost; then restore a backup, or delete the queue"
    );
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

/// What is wanted, until that is enough: at least some of what is wanted first.
fn read_fetch(
    reader: &Reader<FileDisk>,
    segments: &Segments,
    fetch: &Fetch,
) -> Result<Vec<Run>, Error> {
    let Fetch { group, queue, parts, .. } = fetch;
    let (mut runs, mut bytes) = (Vec::new(), 0);
    let mut seen = Vec::new();
    for located in parts {
        if bytes >= FETCH_BYTES {
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
                read_segment(segments, *group, *queue, segment, &wanted, FETCH_BYTES - bytes)
            }
            Source::Entry { .. } | Source::Memory(_) => read_entry(reader, *queue, located),
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

fn read_entry(
    reader: &Reader<FileDisk>,
    queue: QueueId,
    Located { part, place }: &Located,
) -> Result<Vec<Run>, Error> {
    let bytes = match &part.source {
        Source::Memory(bytes) => bytes.clone(),
        Source::Entry { range, .. } => {
            let entry = reader.read((*place).ok_or(Error::Gone)?)?;
            cut_out(&entry, range.start as usize..range.end as usize).0
        }
        Source::Segment { .. } => return Err(Error::Gone),
    };
    let run = Run { first_seq: part.first_seq, count: part.count as u32, bytes };
    Ok(pick(queue, run, &part.wanted, true))
}

fn read_segment(
    segments: &Segments,
    group: GroupId,
    queue: QueueId,
    segment: u64,
    wanted: &[Range<u64>],
    bytes_max: u64,
) -> Result<Vec<Run>, Error> {
    let segment = segments.find(group, segment).ok_or(Error::Gone)?;
    let (found, _) = segment.read_spans(queue.0, wanted, bytes_max)?;
    Ok(join(found.into_iter()))
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
