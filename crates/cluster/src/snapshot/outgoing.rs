//! The leader's node: sends snapshots one after the other, and says when one is given up. A core: it is handed the time
//! and what is heard, and says what is to be sent.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use machine::{GroupId, NodeId};
use wal::{Disk, Error};

use super::sender::{Answer, Sender, Source};
use super::{Refused, WINDOW_BYTES};
use crate::exchange::Input;
use crate::peer::message::Message;

/// Milliseconds that the sender waits for a word of the receiver before it gives the transfer up. While it can send, it
/// does not wait: on a slow network a chunk may take longer than this.
const SILENCE_MS: u64 = 20_000;
/// Milliseconds that the receiver may take to install what it has: segments are rewritten for it.
const INSTALLING_MS: u64 = 120_000;
/// Milliseconds after which is looked again whether the receiver can still be reached.
const GLANCE_MS: u64 = 200;

/// What whoever drives it does, in this order.
#[derive(Debug)]
pub enum Sending {
    /// For the node, over the connection between nodes.
    Say(NodeId, Message),
    /// For the node, over a connection of its own, after all that was carried before. If that breaks:
    /// [`Outgoing::broken`].
    Carry(NodeId, Message),
    /// The transfer is over: for the shard of the group.
    Tell(GroupId, Input),
}

/// Snapshots on their way out.
pub struct Outgoing<D: Disk> {
    /// For whom, and the number of the attempt. At most one for each group and node: a shard asks for the next when it
    /// has been told how the last one ended.
    waiting: VecDeque<(NodeId, Source<D>, u64)>,
    current: Option<Transferring<D>>,
    /// Bytes that may be on their way before the receiver has said that it took some.
    window_bytes: u64,
}

/// How far a transfer is.
///
/// ```text
///   Offered ──the receiver wants it──> Sending ──the last chunk is sent──> Installing
///      └─────────────┴── it breaks, or nothing is heard for long: given up ────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Offered,
    Sending,
    Installing,
}

struct Transferring<D: Disk> {
    to: NodeId,
    sender: Sender<D>,
    stage: Stage,
    /// The connection over which it was offered: what was said over one that broke is not answered any more.
    connection: u64,
    /// Bytes that the receiver has.
    taken: u64,
    /// The end: whether the receiver has installed it.
    done: Option<bool>,
    begun_ms: u64,
    /// Since when it waits for the receiver. `None`: it need not, or the receiver has just said something.
    waits_since_ms: Option<u64>,
}

impl<D: Disk> Default for Outgoing<D> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), current: None, window_bytes: WINDOW_BYTES }
    }
}

impl<D: Disk> Outgoing<D> {
    /// With so many bytes on their way, at most.
    #[must_use]
    pub fn with_window(self, window_bytes: u64) -> Self {
        Self { window_bytes, ..self }
    }

    /// `to` is to get this one, after those that were asked for before. `number` is to differ from those of earlier
    /// attempts, also of earlier starts.
    pub fn begin(&mut self, to: NodeId, source: Source<D>, number: u64) {
        self.waiting.push_back((to, source, number));
    }

    /// Something that a receiver says; of other attempts, and for others, it means nothing.
    pub fn hear(&mut self, from: NodeId, message: &Message) {
        let Some(current) = self.current.as_mut().filter(|current| current.to == from) else {
            return;
        };
        match message {
            Message::Snapshot { chunk, .. } => match current.sender.answer(chunk) {
                Answer::Wants => current.stage = Stage::Sending,
                Answer::Done { installed } => current.done = Some(installed),
                Answer::Stale => return,
            },
            Message::SnapshotTaken { group, index, bytes } => {
                let ours = current.sender.transfer();
                if (ours.group, ours.index) != (*group, *index) || *bytes <= current.taken {
                    return;
                }
                current.taken = *bytes;
            }
            _ => return,
        }
        current.waits_since_ms = None;
    }

    /// What was carried to `node` did not get through.
    pub fn broken(&mut self, node: NodeId) {
        if let Some(current) = self.current.as_mut().filter(|current| current.to == node) {
            current.done = current.done.or(Some(false));
        }
    }

    /// How many milliseconds [`Outgoing::go_on`] may wait if nothing is heard. `None`: for ever.
    pub fn wait_ms(&self) -> Option<u64> {
        match &self.current {
            Some(current) if current.done.is_some() => Some(0),
            Some(current) if current.may_send(self.window_bytes) => Some(0),
            Some(_) => Some(GLANCE_MS),
            None if self.waiting.is_empty() => None,
            None => Some(0),
        }
    }

    /// One step: begins a transfer, sends a chunk, or ends one. `connection`: the number of the connection to a node
    /// now, another for each, if there is one.
    ///
    /// # Errors
    /// The checkpoint cannot be read: the node is to stop.
    pub fn go_on(
        &mut self,
        now_ms: u64,
        connection: impl Fn(NodeId) -> Option<u64>,
        sendings: &mut Vec<Sending>,
    ) -> Result<(), Error> {
        let Some(current) = &mut self.current else {
            let Some((to, source, number)) = self.waiting.pop_front() else { return Ok(()) };
            self.current = offer(now_ms, to, source, number, connection(to), sendings);
            return Ok(());
        };
        let may_send = current.may_send(self.window_bytes);
        let silent_ms = match current.stage {
            Stage::Offered | Stage::Sending => SILENCE_MS,
            Stage::Installing => INSTALLING_MS,
        };
        let since_ms =
            if may_send { now_ms } else { *current.waits_since_ms.get_or_insert(now_ms) };
        let is_lost = connection(current.to) != Some(current.connection);
        if is_lost || now_ms.saturating_sub(since_ms) > silent_ms {
            current.done = current.done.or(Some(false));
        }
        if let Some(done) = current.done {
            sendings.push(current.end(now_ms, done));
            self.current = None;
        } else if may_send {
            current.waits_since_ms = None;
            match current.sender.next_chunk()? {
                Some(chunk) => {
                    let group = current.sender.transfer().group;
                    sendings.push(Sending::Carry(current.to, Message::Snapshot { group, chunk }));
                }
                None => current.stage = Stage::Installing,
            }
        }
        Ok(())
    }
}

impl<D: Disk> Transferring<D> {
    fn may_send(&self, window_bytes: u64) -> bool {
        self.stage == Stage::Sending && self.sender.offset() < self.taken + window_bytes
    }

    /// The transfer is over.
    fn end(&self, now_ms: u64, done: bool) -> Sending {
        let (transfer, to, bytes) = (self.sender.transfer(), self.to, self.sender.offset());
        let (group, index, term) = (transfer.group, transfer.index, transfer.term);
        let ms = now_ms.saturating_sub(self.begun_ms);
        tracing::info!(
            node = to.0,
            group = group.0,
            index,
            bytes,
            ms,
            done,
            "snapshot transfer ended"
        );
        Sending::Tell(group, Input::SnapshotSent { group, to, index, term, done })
    }
}

/// Offers a snapshot to a node. `None`: it cannot be reached, or the checkpoint cannot be sent.
fn offer<D: Disk>(
    now_ms: u64,
    to: NodeId,
    source: Source<D>,
    number: u64,
    connection: Option<u64>,
    sendings: &mut Vec<Sending>,
) -> Option<Transferring<D>> {
    let (group, index, term) =
        (GroupId(source.checkpoint.group), source.checkpoint.index, source.checkpoint.term);
    let sender = connection.map(|connection| (Sender::new(source, number), connection));
    let (sender, connection) = match sender {
        Some((Ok(sender), connection)) => (sender, connection),
        other => {
            if let Some((Err(Refused(why)), _)) = other {
                tracing::error!(
                    group = group.0,
                    index,
                    "cannot send a snapshot to node {}: {why}. The replica there stays behind, and the group goes on with \
                     the other replicas; restart this node, with the newest version that a node of the cluster runs",
                    to.0
                );
            }
            sendings.push(Sending::Tell(
                group,
                Input::SnapshotSent { group, to, index, term, done: false },
            ));
            return None;
        }
    };
    sendings.push(Sending::Say(to, Message::Snapshot { group, chunk: sender.offer() }));
    Some(Transferring {
        to,
        sender,
        stage: Stage::Offered,
        connection,
        taken: 0,
        done: None,
        begun_ms: now_ms,
        waits_since_ms: Some(now_ms),
    })
}
