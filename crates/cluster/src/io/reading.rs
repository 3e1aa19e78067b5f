//! The thread that reads log entries and segments.

use std::sync::{PoisonError, RwLock};

use machine::GroupId;
use wal::{Error, FileDisk, Reader, segments};

use super::failure::Failure;
use super::handle::{Counters, Node};
use super::store::{Read, Store};
use crate::exchange::{Fetch, Input};
use crate::reading::{FindSegment, OpenSegments, StoreReader};

/// Reads for deliveries and for replicas that are behind, until the shards are gone.
pub(crate) fn run(
    reader: &StoreReader<FileDisk>,
    segments: &SharedSegments,
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
                    let entries = match reader.entries(group, &entries) {
                        Ok(entries) => entries,
                        Err(error) => failure.report(&error),
                    };
                    node.shard_of(group).push(Input::EntriesRead { group, number, entries });
                    continue;
                }
            };
            Counters::add(&node.counters.fetches, 1);
            let runs = match reader.fetch(segments, &fetch) {
                Ok(runs) => runs,
                Err(error @ Error::Damaged { .. }) if node.peers.is_none() => {
                    // Without an answer the queue waits for it, and nobody else does.
                    answer_stopped(node, &fetch, &error);
                    continue;
                }
                Err(error) => fail_reading(reader.log(), &error, node, failure),
            };
            let Fetch { group, queue, .. } = fetch;
            node.shard_of(group).push(Input::Fetched { group, queue, runs });
        }
    }
}

/// No other node has the lost message, so its queue stops in front of it: later messages must not be delivered as if
/// nothing were missing.
fn answer_stopped(node: &Node, fetch: &Fetch, error: &Error) {
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
    failure.report(error)
}

/// The open segments, for the thread that opens them and the one that reads.
#[derive(Default)]
pub(crate) struct SharedSegments(RwLock<OpenSegments<FileDisk>>);

impl SharedSegments {
    pub(crate) fn add(&self, group: GroupId, number: u64, reader: segments::Reader<FileDisk>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).add(group, number, reader);
    }

    pub(crate) fn remove(&self, group: GroupId, number: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(group, number);
    }
}

impl FindSegment<FileDisk> for SharedSegments {
    fn find(&self, group: GroupId, number: u64) -> Option<segments::Reader<FileDisk>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).find(group, number)
    }
}
