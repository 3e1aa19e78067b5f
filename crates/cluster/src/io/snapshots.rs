//! The thread that sends snapshots: it hands the core what comes, and sends what the core says. Decides nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wal::{FileDisk, Reader};

use super::failure::Failure;
use super::handle::Node;
use super::peers::Bulk;
use super::reading::fail_reading;
use super::store::{Snapshots, Store};
use crate::snapshot::{Outgoing, Sending};

/// Sends until the shards are gone.
pub(crate) fn run(reader: &Reader<FileDisk>, node: &Node, store: &Store, failure: &Failure) {
    let (mut outgoing, started) = (Outgoing::default(), Instant::now());
    let (mut arrived, mut sendings) = (Vec::new(), Vec::new());
    // The connection of the current transfer, from its first chunk on.
    let mut bulk = None;
    loop {
        let timeout = outgoing.wait_ms().map(Duration::from_millis);
        store.snapshots().take(&mut arrived, timeout, true);
        if store.snapshots().is_closed() {
            return;
        }
        let now_ms = started.elapsed().as_millis() as u64;
        for snapshots in arrived.drain(..) {
            match snapshots {
                Snapshots::Begin { to, source } => {
                    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    outgoing.begin(to, source, wall.as_nanos() as u64);
                }
                Snapshots::Heard { from, message } => outgoing.hear(from, &message),
            }
        }
        let connection = |to| node.peers.as_ref().and_then(|peers| peers.connection(to));
        if let Err(error) = outgoing.go_on(now_ms, connection, &mut sendings) {
            fail_reading(reader, &error, node, failure);
        }
        for sending in sendings.drain(..) {
            match sending {
                Sending::Say(to, message) => {
                    if let Some(peers) = &node.peers {
                        peers.send(to, vec![message]);
                    }
                }
                Sending::Carry(to, message) => {
                    let open = || node.peers.as_ref().and_then(|peers| peers.open_bulk(to));
                    bulk = bulk.or_else(open);
                    if bulk.as_ref().is_none_or(|bulk: &Bulk| bulk.send(message).is_err()) {
                        outgoing.broken(to);
                    }
                }
                Sending::Tell(group, input) => {
                    bulk = None;
                    node.shard_of(group).push(input);
                }
            }
        }
    }
}
