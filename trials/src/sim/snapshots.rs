//! What sends snapshots on a node: one after the other, a chunk at a time, and when to give up.

use std::collections::VecDeque;

use cluster::peer::message::Message;
use cluster::shard::Input;
use cluster::snapshot::{Answer, Sender, Source};
use machine::{GroupId, NodeId};
use wal::Error;
use wal::sim::SimDisk;

use super::agenda::Micros;

/// A receiver that says nothing for so long is given up.
const SILENCE: Micros = 20_000_000;
/// Bytes on their way that the receiver has not acknowledged.
const WINDOW_BYTES: u64 = 64 << 10;

#[derive(Default)]
pub(super) struct Desk {
    waiting: VecDeque<(NodeId, Source<SimDisk>)>,
    current: Option<Sending>,
    attempts: u64,
    pub(super) sent: u64,
}

struct Sending {
    to: NodeId,
    sender: Sender<SimDisk>,
    is_offered: bool,
    is_wanted: bool,
    is_sent: bool,
    taken: u64,
    done: Option<bool>,
    heard: Micros,
}

/// What the desk wants done.
pub(super) enum Errand {
    /// Over the connection for data.
    Say(NodeId, Message),
    /// Over the one for bulk.
    Carry(NodeId, Message),
    Tell(GroupId, Input),
}

impl Desk {
    pub(super) fn begin(&mut self, to: NodeId, source: Source<SimDisk>) {
        self.waiting.push_back((to, source));
    }

    /// Something that a receiver says.
    pub(super) fn hear(&mut self, from: NodeId, message: Message, now: Micros) {
        let Some(current) = self.current.as_mut().filter(|current| current.to == from) else {
            return;
        };
        match message {
            Message::Snapshot { chunk, .. } => match current.sender.answer(&chunk) {
                Answer::Wants => current.is_wanted = true,
                Answer::Done { installed } => current.done = Some(installed),
                Answer::Stale => return,
            },
            Message::SnapshotTaken { group, index, bytes } => {
                let ours = current.sender.transfer();
                if (ours.group, ours.index) == (group, index) {
                    current.taken = current.taken.max(bytes);
                }
            }
            _ => return,
        }
        current.heard = now;
    }

    /// The connection with `node` is gone, or a new one: whatever was on its way is lost.
    pub(super) fn broken(&mut self, node: NodeId) {
        if let Some(current) = self.current.as_mut().filter(|current| current.to == node) {
            current.done = current.done.or(Some(false));
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }

    /// One step on. What waited for a node that cannot be reached any more is given up at once, as the process does.
    pub(super) fn go_on(
        &mut self,
        now: Micros,
        is_up: impl Fn(NodeId) -> bool,
        errands: &mut Vec<Errand>,
    ) -> Result<(), Error> {
        if self.current.is_none() {
            let Some((to, source)) = self.waiting.pop_front() else { return Ok(()) };
            self.attempts += 1;
            // Attempts of different starts differ, too.
            let attempt = (now << 16) + self.attempts;
            let (index, term) = (source.checkpoint.index, source.checkpoint.term);
            let group = GroupId(source.checkpoint.group);
            let sender = if is_up(to) { Sender::new(source, attempt).ok() } else { None };
            let Some(sender) = sender else {
                let sent = Input::SnapshotSent { group, to, index, term, done: false };
                errands.push(Errand::Tell(group, sent));
                return Ok(());
            };
            self.current = Some(Sending {
                to,
                sender,
                is_offered: false,
                is_wanted: false,
                is_sent: false,
                taken: 0,
                done: None,
                heard: now,
            });
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let transfer = current.sender.transfer();
        let (group, to) = (transfer.group, current.to);
        if now - current.heard > SILENCE {
            current.done = Some(false);
        }
        if let Some(done) = current.done {
            self.sent += u64::from(done);
            let (index, term) = (transfer.index, transfer.term);
            let sent = Input::SnapshotSent { group, to, index, term, done };
            errands.push(Errand::Tell(group, sent));
            self.current = None;
            return Ok(());
        }
        if !current.is_offered {
            current.is_offered = true;
            let chunk = current.sender.offer();
            errands.push(Errand::Say(to, Message::Snapshot { group, chunk }));
        }
        let has_room = current.sender.offset() < current.taken + WINDOW_BYTES;
        if current.is_wanted && !current.is_sent && has_room {
            match current.sender.next_chunk()? {
                Some(chunk) => errands.push(Errand::Carry(to, Message::Snapshot { group, chunk })),
                None => current.is_sent = true,
            }
        }
        Ok(())
    }
}
