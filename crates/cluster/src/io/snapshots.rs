//! The thread that sends snapshots, one after the other. Decides nothing but when to give up.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use machine::NodeId;
use wal::{FileDisk, Reader};

use super::failure::Failure;
use super::handle::Node;
use super::reading::fail_reading;
use super::store::{Sending, Store};
use crate::peer::message::Message;
use crate::shard::Input;
use crate::snapshot::{Answer, Sender, Source, WINDOW_BYTES};

/// A receiver that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether the receiver can still be reached.
const GLANCE: Duration = Duration::from_millis(200);
/// Installing may take longer: segments are rewritten for it.
const INSTALLING: Duration = Duration::from_secs(120);

/// Sends until the shards are gone.
pub(crate) fn run(reader: &Reader<FileDisk>, node: &Node, store: &Store, failure: &Failure) {
    let (waiting, arrived) = (VecDeque::new(), Vec::new());
    let mut desk = Desk { reader, node, store, failure, waiting, arrived };
    loop {
        if desk.waiting.is_empty() {
            let none: Option<&mut Sender<FileDisk>> = None;
            desk.listen(NodeId(0), none, &mut Progress::default(), None);
        }
        if store.sendings().is_closed() {
            return;
        }
        if let Some((to, source)) = desk.waiting.pop_front() {
            desk.send(to, source);
        }
    }
}

struct Desk<'a> {
    reader: &'a Reader<FileDisk>,
    node: &'a Node,
    store: &'a Store,
    failure: &'a Failure,
    waiting: VecDeque<(NodeId, Source<FileDisk>)>,
    arrived: Vec<Sending>,
}

/// How far the receiver of one snapshot is.
#[derive(Default)]
struct Progress {
    /// The one over which the snapshot was offered.
    connection: Option<u64>,
    wants: bool,
    taken: u64,
    done: Option<bool>,
}

impl Desk<'_> {
    fn send(&mut self, to: NodeId, source: Source<FileDisk>) {
        let (group, index, term) =
            (source.checkpoint.group, source.checkpoint.index, source.checkpoint.term);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = Instant::now();
        let done = match Sender::new(source, since.as_nanos() as u64) {
            Ok(mut sender) => {
                let done = self.transfer(to, &mut sender);
                let (bytes, ms) = (sender.offset(), started.elapsed().as_millis() as u64);
                tracing::info!(
                    node = to.0,
                    group,
                    index,
                    bytes,
                    ms,
                    done,
                    "snapshot transfer ended"
                );
                done
            }
            Err(refused) => {
                tracing::error!(
                    group,
                    index,
                    "cannot send a checkpoint to a replica that needs it: {refused}"
                );
                false
            }
        };
        let group = machine::GroupId(group);
        self.node.shard_of(group).push(Input::SnapshotSent { group, to, index, term, done });
    }

    /// True: the receiver has installed it.
    fn transfer(&mut self, to: NodeId, sender: &mut Sender<FileDisk>) -> bool {
        let Some(peers) = &self.node.peers else { return false };
        let group = sender.transfer().group;
        let message = |chunk: Bytes| Message::Snapshot { group, chunk };
        let connection = peers.connection(to);
        let mut progress = Progress { connection, ..Progress::default() };
        peers.send(to, vec![message(sender.offer())]);
        let is_wanted = |progress: &Progress| progress.wants;
        if !self.wait(to, sender, &mut progress, SILENCE, is_wanted) {
            return false;
        }
        let Some(bulk) = peers.open_bulk(to) else { return false };
        loop {
            let chunk = match sender.next_chunk() {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => fail_reading(self.reader, &error, self.node, self.failure),
            };
            if bulk.send(message(chunk)).is_err() {
                return false;
            }
            // Every chunk is acknowledged, so a receiver that is there moves the window.
            while sender.offset() >= progress.taken + WINDOW_BYTES {
                let before = progress.taken;
                let has_moved = |progress: &Progress| progress.taken > before;
                if !self.wait(to, sender, &mut progress, SILENCE, has_moved) {
                    return false;
                }
            }
        }
        self.wait(to, sender, &mut progress, INSTALLING, |_| false);
        progress.done == Some(true)
    }

    /// Waits until `is_enough`. False: it will not come to that.
    fn wait(
        &mut self,
        to: NodeId,
        sender: &mut Sender<FileDisk>,
        progress: &mut Progress,
        patience: Duration,
        is_enough: impl Fn(&Progress) -> bool,
    ) -> bool {
        let started = Instant::now();
        while progress.done.is_none() && !self.store.sendings().is_closed() {
            if is_enough(progress) {
                return true;
            }
            let left = patience.saturating_sub(started.elapsed());
            let connection = self.node.peers.as_ref().and_then(|peers| peers.connection(to));
            // What was said over a connection that broke is not answered any more.
            if left.is_zero() || connection.is_none() || connection != progress.connection {
                return false;
            }
            self.listen(to, Some(sender), progress, Some(left.min(GLANCE)));
        }
        false
    }

    /// Takes what came for the snapshot that is being sent to `to`, and puts others behind it.
    fn listen(
        &mut self,
        to: NodeId,
        mut sender: Option<&mut Sender<FileDisk>>,
        progress: &mut Progress,
        patience: Option<Duration>,
    ) {
        self.store.sendings().take(&mut self.arrived, patience, true);
        for sending in self.arrived.drain(..) {
            match sending {
                Sending::Begin { to, source } => self.waiting.push_back((to, source)),
                Sending::Answer { from, chunk } if from == to => {
                    match sender.as_deref_mut().map(|sender| sender.answer(&chunk)) {
                        Some(Answer::Wants) => progress.wants = true,
                        Some(Answer::Done { installed }) => progress.done = Some(installed),
                        Some(Answer::Stale) | None => {}
                    }
                }
                Sending::Taken { from, group, index, bytes } if from == to => {
                    let ours = sender.as_deref_mut().map(|sender| sender.transfer());
                    if ours.is_some_and(|ours| ours.group == group && ours.index == index) {
                        progress.taken = progress.taken.max(bytes);
                    }
                }
                Sending::Answer { .. } | Sending::Taken { .. } => {}
            }
        }
    }
}
