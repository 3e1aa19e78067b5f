//! The book of one queue's messages between two brokers: which wait to be published, which wait for the target's confirm.
//!
//! ```text
//!             next()          sent()            take(run)
//!  waiting ──────────> taken ────────> sent ───────────────> taken ──> settled at the source, and forgotten
//!     ^                                  │                     │
//!     └────────── lost(): flagged ───────┴──── again() ────────┘   the target refused it, or gave it back
//! ```
//!
//! Both bounds hold over all states. A message counts once, however often it is published.

use std::collections::VecDeque;

use client::{PublishSeq, Run};

/// What a message costs in the book beside its bytes.
const ENTRY_BYTES: usize = 128;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) message: T,
    /// Which of the source's connections delivered it: after that one is lost it cannot be settled.
    pub(super) life: u32,
    /// It may be at the target already.
    pub(super) is_repeat: bool,
    bytes: usize,
    /// Its place in the order of arrival.
    number: u64,
}

/// All messages on their way, in the order of arrival.
#[derive(Debug)]
pub(super) struct Flight<T> {
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
    waiting: VecDeque<Entry<T>>,
    /// By publish sequence number, the first of which is `first_seq`. None: the target has answered for it.
    sent: VecDeque<Option<Entry<T>>>,
    first_seq: u64,
    sent_count: usize,
    arrived: u64,
}

impl<T> Flight<T> {
    /// A book of so many messages and bytes; it is full with the message that reaches either.
    pub(super) fn new(count_max: usize, bytes_max: usize) -> Self {
        Self {
            count_max,
            bytes_max,
            bytes: 0,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            first_seq: 1,
            sent_count: 0,
            arrived: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.count_max || self.bytes >= self.bytes_max
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.sent_count
    }

    /// How many wait for the target's answer.
    pub(super) fn sent_count(&self) -> usize {
        self.sent_count
    }

    /// Whether any message waits to be published.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the target owes an answer: for what was sent, or for what is to be sent again.
    pub(super) fn is_owed(&self) -> bool {
        self.sent_count > 0 || self.waiting.front().is_some_and(|entry| entry.is_repeat)
    }

    /// The source delivered a message of `bytes`.
    pub(super) fn arrive(&mut self, message: T, bytes: usize, life: u32, is_repeat: bool) {
        self.arrived += 1;
        let bytes = bytes + ENTRY_BYTES;
        self.bytes += bytes;
        let number = self.arrived;
        self.waiting.push_back(Entry { message, life, is_repeat, bytes, number });
    }

    /// Takes the oldest that waits to be published.
    pub(super) fn next(&mut self) -> Option<Entry<T>> {
        let entry = self.waiting.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// An entry that [`Flight::next`] gave was published as `seq`, the next number of its publisher.
    pub(super) fn sent(&mut self, seq: PublishSeq, entry: Entry<T>) {
        if self.sent.is_empty() {
            self.first_seq = seq.0;
        }
        let next = self.first_seq + self.sent.len() as u64;
        assert_eq!(seq.0, next, "a publisher numbers its messages without a gap");
        self.bytes += entry.bytes;
        self.sent_count += 1;
        self.sent.push_back(Some(entry));
    }

    /// Takes the messages that the target has answered for.
    pub(super) fn take(&mut self, run: Run) -> Vec<Entry<T>> {
        let mut taken = Vec::new();
        for seq in run.first.0..=run.last.0 {
            let slot = seq.checked_sub(self.first_seq).and_then(|at| usize::try_from(at).ok());
            let slot = slot.and_then(|at| self.sent.get_mut(at));
            let entry = slot.and_then(Option::take).expect("a message is answered for once");
            self.bytes -= entry.bytes;
            self.sent_count -= 1;
            taken.push(entry);
        }
        while self.sent.front().is_some_and(Option::is_none) {
            self.sent.pop_front();
            self.first_seq += 1;
        }
        taken
    }

    /// An entry that was taken is to be published, again or at all: it goes to its place in the order.
    pub(super) fn again(&mut self, entry: Entry<T>, is_repeat: bool) {
        let at = self.waiting.partition_point(|other| other.number < entry.number);
        self.bytes += entry.bytes;
        let is_repeat = is_repeat || entry.is_repeat;
        self.waiting.insert(at, Entry { is_repeat, ..entry });
    }

    /// The target's connection is gone: what it owes an answer for may have arrived, and is to be published again.
    pub(super) fn lost(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        self.sent_count = 0;
        // From the back: each goes before those that are there, which are younger most of the time.
        for entry in sent.into_iter().flatten().rev() {
            self.bytes -= entry.bytes;
            self.again(entry, true);
        }
    }

    /// The source's connection is gone, and `life` is the next one's: it delivers again whatever is not settled, so what
    /// waits is not published from here.
    pub(super) fn forget_before(&mut self, life: u32) {
        let bytes = &mut self.bytes;
        self.waiting.retain(|entry| {
            let stays = entry.life >= life;
            *bytes -= if stays { 0 } else { entry.bytes };
            stays
        });
    }

    /// Nothing more is to be published: what waits stays at the source.
    pub(super) fn forget_waiting(&mut self) {
        self.forget_before(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, last: u64) -> Run {
        Run { first: PublishSeq(first), last: PublishSeq(last) }
    }

    fn flight(count: u64) -> Flight<u64> {
        let mut flight = Flight::new(10, 10_000);
        (1..=count).for_each(|message| flight.arrive(message, 0, 0, false));
        flight
    }

    /// Publishes all that waits, from `seq` on.
    fn send(flight: &mut Flight<u64>, mut seq: u64) -> Vec<(u64, bool)> {
        let mut published = Vec::new();
        while let Some(entry) = flight.next() {
            published.push((entry.message, entry.is_repeat));
            flight.sent(PublishSeq(seq), entry);
            seq += 1;
        }
        published
    }

    fn messages(entries: &[Entry<u64>]) -> Vec<u64> {
        entries.iter().map(|entry| entry.message).collect()
    }

    #[test]
    fn messages_are_bounded_by_count_and_by_bytes_in_every_state() {
        let mut by_count = flight(10);
        assert!(by_count.is_full());
        send(&mut by_count, 1);
        assert!(by_count.is_full(), "published is not confirmed");
        by_count.take(run(1, 1));
        assert!(!by_count.is_full());
        let mut by_bytes = Flight::new(10, 1000);
        by_bytes.arrive(1, 1000, 0, false);
        assert!(by_bytes.is_full());
        send(&mut by_bytes, 1);
        assert!(by_bytes.is_full());
        by_bytes.lost();
        assert!(by_bytes.is_full());
        by_bytes.forget_waiting();
        assert!(by_bytes.is_empty() && !by_bytes.is_full());
        assert_eq!(by_bytes.bytes, 0);
    }

    #[test]
    fn answers_come_in_any_order_and_each_message_is_given_back_once() {
        let mut flight = flight(5);
        send(&mut flight, 1);
        assert_eq!(messages(&flight.take(run(2, 3))), [2, 3]);
        assert_eq!(messages(&flight.take(run(5, 5))), [5]);
        assert_eq!(flight.sent_count(), 2);
        assert_eq!(messages(&flight.take(run(1, 1))), [1]);
        assert_eq!(messages(&flight.take(run(4, 4))), [4]);
        assert!(flight.is_empty());
        assert_eq!(flight.bytes, 0);
    }

    #[test]
    fn what_the_lost_target_owes_is_published_again_first_in_its_order_and_flagged() {
        let mut flight = flight(4);
        send(&mut flight, 1);
        flight.take(run(2, 2));
        flight.arrive(5, 0, 0, false);
        flight.lost();
        assert!(flight.is_owed());
        // Another publisher counts from 1.
        let wanted = [(1, true), (3, true), (4, true), (5, false)];
        assert_eq!(send(&mut flight, 1), wanted);
        assert_eq!(messages(&flight.take(run(1, 4))), [1, 3, 4, 5]);
    }

    #[test]
    fn a_refused_message_goes_back_to_its_place() {
        let mut flight = flight(3);
        send(&mut flight, 1);
        flight.arrive(4, 0, 0, false);
        for entry in flight.take(run(3, 3)) {
            flight.again(entry, true);
        }
        for entry in flight.take(run(1, 1)) {
            flight.again(entry, false);
        }
        flight.take(run(2, 2));
        assert_eq!(send(&mut flight, 4), [(1, false), (3, true), (4, false)]);
    }

    #[test]
    fn what_a_lost_source_delivers_again_is_not_published_twice_from_here() {
        let mut flight = flight(2);
        send(&mut flight, 1);
        flight.arrive(3, 0, 0, false);
        flight.forget_before(1);
        flight.arrive(1, 0, 1, true);
        assert_eq!(send(&mut flight, 3), [(1, true)]);
        let taken = flight.take(run(1, 2));
        assert!(taken.iter().all(|entry| entry.life == 0), "they cannot be settled any more");
        assert_eq!(flight.len(), 1);
    }
}
