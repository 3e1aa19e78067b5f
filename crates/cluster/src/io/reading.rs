//! The thread that reads log entries and segments.

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock};

use machine::{GroupId, QueueId};
use wal::{Error, FileDisk, Reader, segments};

use super::failure::Failure;
use super::handle::{Counters, Node};
use super::store::{Read, Store};
use crate::exchange::{Fetch, Input, Peek};
use crate::peeked::NotPeeked;
use crate::reading::{FindSegment, OpenSegments, StoreReader};

/// Reads for deliveries and for replicas that are behind, until the shards are gone; and for those who look at messages,
/// one after the other, when nothing else waits.
pub(crate) fn run(
    reader: &StoreReader<FileDisk>,
    segments: &SharedSegments,
    node: &Node,
    store: &Store,
    failure: &Failure,
) {
    let (mut reads, mut peeks) = (Vec::new(), VecDeque::new());
    loop {
        if peeks.is_empty() {
            store.reads().take(&mut reads, None, true);
        } else {
            store.reads().take_more(&mut reads);
        }
        if reads.is_empty() && peeks.is_empty() {
            return;
        }
        for read in reads.drain(..) {
            let fetch = match read {
                Read::Fetch(fetch) => fetch,
                Read::Peek(peek) => {
                    peeks.push_back(peek);
                    continue;
                }
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
            let Fetch { group, queue, reader, .. } = fetch;
            node.shard_of(group).push(Input::Fetched { group, queue, reader, runs });
        }
        if let Some(peek) = peeks.pop_front() {
            look(reader, segments, node, &peek);
        }
    }
}

/// What cannot be read is said to whoever looks, and in the log. What else is to be done about it is seen to when the
/// message is to be delivered.
fn look(reader: &StoreReader<FileDisk>, segments: &SharedSegments, node: &Node, peek: &Peek) {
    let Peek { group, session, ticket, .. } = *peek;
    let result = reader.peek(segments, peek).map(Box::new).map_err(|error| {
        let (vhost, name) = names(node, peek.found.level);
        tracing::error!(
            vhost,
            queue = name,
            "cannot show messages of this queue to an operator, because the disk does not give them: {error}. The node \
             goes on; a delivery of these messages will fail. Stop the node and run `millrace doctor --deep`, which \
             says what is lost"
        );
        NotPeeked::Unreadable
    });
    node.shard_of(group).push(Input::Peeked { group, session, ticket, result });
}

/// Vhost and name of a queue, for the log.
fn names(node: &Node, queue: QueueId) -> (String, String) {
    let catalog = node.catalog.read().unwrap_or_else(PoisonError::into_inner);
    match catalog.queue_by_id(queue.base()) {
        Some(queue) => (queue.vhost.to_string(), queue.name.to_string()),
        None => (String::new(), "(deleted)".to_owned()),
    }
}

/// No other node has the lost message, so its queue stops in front of it: later messages must not be delivered as if
/// nothing were missing.
fn answer_stopped(node: &Node, fetch: &Fetch, error: &Error) {
    let (vhost, name) = names(node, fetch.queue);
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
