//! What waits for the connection to one node. Bounded: when it is full, the connection goes.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::peer::message::Message;

/// Bytes that may wait.
pub(super) const OUTBOX_BYTES_MAX: usize = 64 << 20;

/// Bytes from which messages of Raft are dropped: it sends again what was not received.
const OUTBOX_BYTES_RAFT: usize = 48 << 20;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    filled: Notify,
    /// Something was taken, or everything forgotten.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    has_overflowed: bool,
    /// They overtake the others.
    urgent: Vec<Message>,
    waiting: VecDeque<Message>,
    /// Of both.
    bytes: usize,
}

/// More waited than may.
#[derive(Debug)]
pub(super) struct Overflow;

impl Outbox {
    /// From here on messages are kept: there is a new connection.
    pub(super) fn open(&self) {
        *self.lock() = State { is_open: true, ..State::default() };
    }

    /// Forgets everything, and takes nothing any more.
    pub(super) fn close(&self) {
        *self.lock() = State::default();
        self.emptied.notify_waiters();
    }

    /// Returns when fewer than `bytes` wait.
    pub(super) async fn room(&self, bytes: usize) {
        loop {
            let mut emptied = pin!(self.emptied.notified());
            // From here on nothing is missed.
            emptied.as_mut().enable();
            if self.bytes() < bytes {
                return;
            }
            emptied.await;
        }
    }

    /// Adds messages, in order. Returns how many were dropped: all of them without a connection, and
    /// those of Raft when much waits.
    pub(super) fn push(&self, messages: Vec<Message>) -> usize {
        let mut dropped = 0;
        let mut state = self.lock();
        for message in messages {
            let bytes = message.weight();
            let is_raft = matches!(message, Message::Raft { .. });
            let is_over = |bytes_max| state.bytes > 0 && state.bytes + bytes > bytes_max;
            let is_full = !is_raft && is_over(OUTBOX_BYTES_MAX);
            if !state.is_open
                || state.has_overflowed
                || is_full
                || is_raft && is_over(OUTBOX_BYTES_RAFT)
            {
                state.has_overflowed |= is_full;
                dropped += 1;
            } else {
                state.bytes += bytes;
                match message.is_urgent() {
                    true => state.urgent.push(message),
                    false => state.waiting.push_back(message),
                }
            }
        }
        drop(state);
        self.filled.notify_one();
        dropped
    }

    /// Moves what is urgent and about `bytes_max` of the rest to `into`. `Ok(false)`: nothing waits.
    pub(super) fn take(&self, into: &mut Vec<Message>, bytes_max: usize) -> Result<bool, Overflow> {
        let mut state = self.lock();
        if state.has_overflowed {
            return Err(Overflow);
        }
        let mut taken: usize = state.urgent.iter().map(Message::weight).sum();
        into.append(&mut state.urgent);
        while taken < bytes_max {
            let Some(message) = state.waiting.pop_front() else { break };
            taken += message.weight();
            into.push(message);
        }
        state.bytes -= taken;
        drop(state);
        if taken > 0 {
            self.emptied.notify_waiters();
        }
        Ok(!into.is_empty())
    }

    /// Returns when something was added.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use machine::GroupId;
    use raft::eraftpb::{self, MessageType};

    use super::*;

    fn numbered(seq: u64, bytes: usize) -> Message {
        let commands = Bytes::from(vec![0; bytes]);
        Message::Snapshot { group: GroupId(seq as u32), chunk: commands }
    }

    fn raft(msg_type: MessageType) -> Message {
        let message = eraftpb::Message { msg_type, ..eraftpb::Message::default() };
        Message::Raft { group: GroupId(9), message }
    }

    fn take(outbox: &Outbox) -> Vec<u32> {
        let mut messages = Vec::new();
        outbox.take(&mut messages, 1000).expect("it has not overflowed");
        messages.iter().map(|message| message.group().0).collect()
    }

    #[test]
    fn messages_come_in_order_and_what_is_urgent_before_them() {
        let outbox = Outbox::default();
        outbox.open();
        outbox.push(vec![numbered(1, 950), numbered(2, 950), numbered(3, 950)]);
        outbox.push(vec![raft(MessageType::MsgHeartbeat)]);
        assert_eq!(take(&outbox), [9, 1]);
        assert_eq!(take(&outbox), [2]);
        assert_eq!(take(&outbox), [3]);
        assert_eq!(take(&outbox), []);
        assert_eq!(outbox.bytes(), 0);
    }

    #[test]
    fn without_a_connection_nothing_is_kept() {
        let outbox = Outbox::default();
        assert_eq!(outbox.push(vec![numbered(1, 1)]), 1);
        outbox.open();
        assert_eq!(outbox.push(vec![numbered(1, 1)]), 0);
        outbox.close();
        outbox.open();
        assert_eq!(take(&outbox), []);
    }

    #[test]
    fn when_much_waits_raft_is_dropped_and_for_more_the_connection_goes() {
        let outbox = Outbox::default();
        outbox.open();
        assert_eq!(outbox.push(vec![numbered(1, OUTBOX_BYTES_RAFT)]), 0);
        assert_eq!(outbox.push(vec![raft(MessageType::MsgAppend)]), 1);
        assert_eq!(outbox.push(vec![numbered(2, 1)]), 0, "it still waits");
        assert_eq!(outbox.push(vec![numbered(3, OUTBOX_BYTES_MAX)]), 1);
        assert!(outbox.take(&mut Vec::new(), 1).is_err());
        outbox.open();
        assert_eq!(outbox.push(vec![numbered(4, OUTBOX_BYTES_MAX)]), 0, "one alone may be large");
        assert_eq!(take(&outbox), [4]);
    }
}
