//! What is on its way to the client, and how much of that there may be.
//!
//! ```text
//!   the cluster's answers ──> held: as they came ──> encoded: Outputs::bytes ──> the socket
//!                       room? └────────────────────────^
//! ```
//!
//! Both parts count, for this connection and for all of the node together. A client that reads makes its own room:
//! it goes on however much others leave lying. Nothing is dropped, and nobody is closed for it.

use std::collections::VecDeque;

use cluster::Answer;

use crate::limits;

/// What one connection has on its way to its client.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Answers that come after what the socket has not taken, in order.
    held: VecDeque<Answer>,
    held_bytes: usize,
    /// Encoded bytes past which answers are held, and the client is not read.
    encoded_max: usize,
    /// Bytes that a consumer without a prefetch should have on their way now.
    window_bytes: u64,
    /// What the connection had on its way after the last step: the view counts it.
    told: u64,
}

impl Default for Outbound {
    fn default() -> Self {
        let (encoded_max, window_bytes) = (limits::OUTBOUND_BYTES_MAX, limits::WINDOW_BYTES);
        Self { held: VecDeque::new(), held_bytes: 0, encoded_max, window_bytes, told: 0 }
    }
}

impl Outbound {
    /// A step begins: all connections have `of_all` bytes on their way, and may have `of_all_max`; so many consumers
    /// have them.
    ///
    /// What consumers have asked for is on its way before it can be counted. So half of what there may be is shared
    /// out among them, as far as their smallest windows let it.
    pub(crate) fn begin_step(&mut self, of_all: u64, of_all_max: u64, consumers: u64) {
        let others = of_all.saturating_sub(self.told);
        let left = usize::try_from(of_all_max.saturating_sub(others)).unwrap_or(usize::MAX);
        self.encoded_max = left.clamp(limits::OUTBOUND_BYTES_FLOOR, limits::OUTBOUND_BYTES_MAX);
        let share = of_all_max / 2 / (consumers + 1);
        let window = share.min(self.encoded_max as u64 / 2);
        self.window_bytes = window.clamp(limits::WINDOW_BYTES_LOW, limits::WINDOW_BYTES);
    }

    /// A step is over that leaves so many bytes encoded.
    pub(crate) fn end_step(&mut self, encoded: usize) {
        self.told = self.bytes(encoded);
    }

    /// Bytes on their way, `encoded` of them encoded.
    pub(crate) fn bytes(&self, encoded: usize) -> u64 {
        (self.held_bytes + encoded) as u64
    }

    /// Whether more may be encoded.
    #[inline]
    pub(crate) fn has_room(&self, encoded: usize) -> bool {
        encoded < self.encoded_max
    }

    /// Whether an answer is to be held now. What was published is answered at once: that frees memory, and is
    /// little for the socket.
    #[inline]
    pub(crate) fn holds_back(&self, answer: &Answer, encoded: usize) -> bool {
        let has_room = self.held.is_empty() && self.has_room(encoded);
        !has_room && !matches!(answer, Answer::Appended { .. } | Answer::AppendFailed { .. })
    }

    pub(crate) fn hold(&mut self, answer: Answer) {
        self.held_bytes += bytes_of(&answer);
        self.held.push_back(answer);
    }

    /// The next answer that was held, if there is room for it.
    #[inline]
    pub(crate) fn next(&mut self, encoded: usize) -> Option<Answer> {
        if self.held.is_empty() || !self.has_room(encoded) {
            return None;
        }
        let answer = self.held.pop_front()?;
        self.held_bytes -= bytes_of(&answer);
        if self.held.is_empty() {
            // What a client that did not read needed is given back.
            self.held = VecDeque::new();
        }
        Some(answer)
    }

    /// Whether something waits for the socket to take what is before it.
    pub(crate) fn waits(&self, encoded: usize) -> bool {
        !self.held.is_empty() || !self.has_room(encoded)
    }

    /// Whether consumers may be given credit.
    pub(crate) fn may_grant(&self, encoded: usize) -> bool {
        self.held.is_empty() && encoded <= self.encoded_max.min(limits::OUTBOUND_BYTES_LOW)
    }

    /// Bytes that a consumer without a prefetch should have on their way now.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }
}

/// What an answer holds until it is encoded.
fn bytes_of(answer: &Answer) -> usize {
    match answer {
        Answer::Delivered(delivery) | Answer::Got { delivery: Some(delivery), .. } => {
            delivery.bytes.len()
        }
        Answer::Got { delivery: None, .. }
        | Answer::Appended { .. }
        | Answer::AppendFailed { .. }
        | Answer::Cancelled { .. }
        | Answer::Elected { .. }
        | Answer::Alarms(_)
        | Answer::Admitted { .. }
        | Answer::Leaving(_)
        | Answer::Stopping
        | Answer::Catalog { .. }
        | Answer::Attached { .. }
        | Answer::Detached { .. }
        | Answer::Purged { .. }
        | Answer::Withheld { .. }
        | Answer::Status { .. }
        | Answer::Described { .. }
        | Answer::Peeked { .. }
        | Answer::Locked { .. }
        | Answer::Closed { .. }
        | Answer::SessionEnded { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use cluster::{Delivery, Ticket};
    use machine::{ConsumerId, GroupId, QueueId, SessionId};

    use super::*;

    const OF_ALL_MAX: u64 = 32 << 20;

    fn delivery(bytes: usize) -> Answer {
        Answer::Delivered(Delivery {
            group: GroupId(1),
            queue: QueueId(7),
            store: QueueId(7),
            consumer: ConsumerId { session: SessionId(1), number: 1 },
            first_seq: 1,
            count: 1,
            redelivered: false,
            returns: 0,
            bytes: Bytes::from(vec![0; bytes]),
        })
    }

    #[test]
    fn a_connection_may_have_more_the_less_others_have_and_never_less_than_its_floor() {
        let mut outbound = Outbound::default();
        let mut max = |of_all| {
            outbound.begin_step(of_all, OF_ALL_MAX, 0);
            outbound.encoded_max
        };
        assert_eq!(max(0), limits::OUTBOUND_BYTES_MAX);
        assert_eq!(max(OF_ALL_MAX - (1 << 20)), 1 << 20);
        assert_eq!(max(OF_ALL_MAX), limits::OUTBOUND_BYTES_FLOOR);
        assert_eq!(max(10 * OF_ALL_MAX), limits::OUTBOUND_BYTES_FLOOR);
    }

    #[test]
    fn what_a_connection_has_itself_does_not_count_twice() {
        let mut outbound = Outbound::default();
        outbound.end_step(5 << 20);
        outbound.begin_step(5 << 20, 8 << 20, 0);
        assert_eq!(outbound.encoded_max, limits::OUTBOUND_BYTES_MAX);
    }

    #[test]
    fn the_windows_of_many_consumers_are_smaller() {
        let mut outbound = Outbound::default();
        let mut window = |consumers| {
            outbound.begin_step(0, OF_ALL_MAX, consumers);
            outbound.window_bytes()
        };
        assert_eq!(window(0), limits::WINDOW_BYTES);
        assert_eq!(window(15), 1 << 20);
        assert_eq!(window(1_000_000), limits::WINDOW_BYTES_LOW);
    }

    #[test]
    fn answers_wait_in_order_for_room_and_count_meanwhile() {
        let mut outbound = Outbound::default();
        outbound.begin_step(OF_ALL_MAX, OF_ALL_MAX, 0);
        assert!(!outbound.holds_back(&delivery(1), 0));
        let full = limits::OUTBOUND_BYTES_FLOOR;
        assert!(outbound.holds_back(&delivery(1), full));
        outbound.hold(delivery(1000));
        outbound.hold(delivery(10));
        assert_eq!(outbound.bytes(full), full as u64 + 1010);
        assert!(outbound.next(full).is_none());
        assert!(outbound.holds_back(&delivery(1), 0), "not before those that wait");
        assert!(!outbound.may_grant(0), "what was asked for has not come yet");
        for bytes in [1000, 10] {
            assert!(outbound.waits(0));
            let next = outbound.next(0);
            assert!(matches!(next, Some(Answer::Delivered(next)) if next.bytes.len() == bytes));
        }
        assert!(!outbound.waits(0));
        assert_eq!(outbound.bytes(0), 0);
    }

    #[test]
    fn what_was_published_is_answered_whatever_waits() {
        let mut outbound = Outbound::default();
        outbound.hold(delivery(10));
        let confirmed = Answer::Appended { ticket: Ticket(1) };
        assert!(!outbound.holds_back(&confirmed, limits::OUTBOUND_BYTES_MAX));
    }
}
