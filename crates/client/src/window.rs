//! The window of unconfirmed messages of one publishing channel.
//!
//! Publish sequence numbers count from 1, as AMQP's confirm mode does; `basic.ack` and `basic.nack`
//! name them, one by one or all up to a number. One bit a message is kept for those that are
//! confirmed out of order, so a confirm costs no search and no allocation.

use std::fmt;

use crate::limits::WINDOW_MAX;

/// Number of a message on its channel, from 1, in the order of publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublishSeq(pub u64);

impl fmt::Display for PublishSeq {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A run of messages, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: PublishSeq,
    pub last: PublishSeq,
}

impl Run {
    /// How many messages it holds: at least one.
    pub fn count(self) -> u64 {
        self.last.0 - self.first.0 + 1
    }
}

/// The server settled a number that was never published, or that it had settled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSeq(pub u64);

/// Which published messages the server has not answered yet.
#[derive(Clone, Debug)]
pub struct Window {
    /// Lowest number that is not settled.
    first: u64,
    /// The number the next message gets.
    next: u64,
    limit: u64,
    /// How many of `first..next` are settled out of order.
    settled_early: u64,
    /// One bit for each number in `first..next`, at its number modulo the size: settled early.
    bits: Vec<u64>,
}

impl Window {
    /// An empty window of at most `limit` messages, 1 to [`WINDOW_MAX`].
    pub fn new(limit: u32) -> Self {
        let limit = limit.clamp(1, WINDOW_MAX);
        let words = (limit as usize).div_ceil(64).next_power_of_two();
        Self { first: 1, next: 1, limit: u64::from(limit), settled_early: 0, bits: vec![0; words] }
    }

    /// How many messages may be published now. Counts the stretch from the oldest unsettled
    /// message: one that is never answered stops the publisher instead of being forgotten.
    pub fn room(&self) -> u64 {
        self.limit - (self.next - self.first)
    }

    /// Nothing may be published before something is settled.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Every published message is settled.
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// How many messages are not settled.
    pub fn unsettled(&self) -> u64 {
        self.next - self.first - self.settled_early
    }

    /// The oldest unsettled number, or the next one if all are settled.
    pub fn first(&self) -> PublishSeq {
        PublishSeq(self.first)
    }

    /// The number the next message will get.
    pub fn next(&self) -> PublishSeq {
        PublishSeq(self.next)
    }

    /// Takes numbers for `count` messages and gives the first. Panics if there is no room.
    pub fn issue(&mut self, count: u64) -> PublishSeq {
        assert!(count <= self.room(), "more was published than the window has room for");
        let first = self.next;
        self.next += count;
        PublishSeq(first)
    }

    /// Whether `seq` was published and is not settled.
    pub fn is_unsettled(&self, seq: PublishSeq) -> bool {
        (self.first..self.next).contains(&seq.0) && !self.bit(seq.0)
    }

    /// The server answered for `tag` (`multiple`: for all up to it; 0 means all published). Calls
    /// `settled` with each run of messages that this answers for, in order.
    ///
    /// # Errors
    /// The number was never published, or was answered before.
    pub fn settle(
        &mut self,
        tag: u64,
        multiple: bool,
        settled: impl FnMut(Run),
    ) -> Result<(), UnknownSeq> {
        match multiple {
            true => self.settle_up_to(tag, settled)?,
            false => self.settle_one(tag, settled)?,
        }
        assert!(self.first <= self.next, "only what was published is settled");
        let open = self.next - self.first;
        assert!(self.settled_early <= open, "what is settled early is in the window");
        assert!(!self.bit(self.first), "the window begins with what is not settled");
        Ok(())
    }

    fn settle_one(&mut self, tag: u64, mut settled: impl FnMut(Run)) -> Result<(), UnknownSeq> {
        if !self.is_unsettled(PublishSeq(tag)) {
            return Err(UnknownSeq(tag));
        }
        settled(Run { first: PublishSeq(tag), last: PublishSeq(tag) });
        if tag == self.first {
            self.first += 1;
            self.pass_settled();
        } else {
            self.flip(tag);
            self.settled_early += 1;
        }
        Ok(())
    }

    fn settle_up_to(&mut self, tag: u64, mut settled: impl FnMut(Run)) -> Result<(), UnknownSeq> {
        let last = if tag == 0 { self.next - 1 } else { tag };
        if last >= self.next {
            return Err(UnknownSeq(tag));
        }
        while self.first <= last {
            let start = self.first;
            if self.settled_early == 0 {
                self.first = last + 1;
            } else {
                while self.first <= last && !self.bit(self.first) {
                    self.first += 1;
                }
            }
            let (first, end) = (PublishSeq(start), PublishSeq(self.first - 1));
            settled(Run { first, last: end });
            self.pass_settled();
        }
        Ok(())
    }

    /// Moves over numbers that were settled before their turn.
    fn pass_settled(&mut self) {
        while self.settled_early > 0 && self.bit(self.first) {
            self.flip(self.first);
            self.settled_early -= 1;
            self.first += 1;
        }
    }

    fn bit(&self, seq: u64) -> bool {
        let (word, mask) = self.place(seq);
        self.bits[word] & mask != 0
    }

    fn flip(&mut self, seq: u64) {
        let (word, mask) = self.place(seq);
        self.bits[word] ^= mask;
    }

    fn place(&self, seq: u64) -> (usize, u64) {
        let index = seq as usize & (self.bits.len() * 64 - 1);
        (index / 64, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(window: &mut Window, tag: u64, multiple: bool) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        window
            .settle(tag, multiple, |run| runs.push((run.first.0, run.last.0)))
            .expect("the server names what was published");
        runs
    }

    #[test]
    fn a_publisher_waits_exactly_when_the_window_is_full() {
        let mut window = Window::new(3);
        assert_eq!(window.issue(2), PublishSeq(1));
        assert_eq!(window.room(), 1);
        assert_eq!(window.issue(1), PublishSeq(3));
        assert!(window.is_full());
        settle(&mut window, 1, false);
        assert_eq!(window.room(), 1);
    }

    #[test]
    fn a_multiple_confirm_settles_everything_up_to_its_number_once() {
        let mut window = Window::new(100);
        window.issue(10);
        assert_eq!(settle(&mut window, 4, true), [(1, 4)]);
        assert_eq!(settle(&mut window, 9, true), [(5, 9)]);
        assert_eq!(settle(&mut window, 9, true), []);
        assert_eq!(window.unsettled(), 1);
    }

    #[test]
    fn a_multiple_confirm_steps_over_what_was_confirmed_out_of_order() {
        let mut window = Window::new(100);
        window.issue(10);
        settle(&mut window, 3, false);
        settle(&mut window, 4, false);
        settle(&mut window, 8, false);
        assert_eq!(window.unsettled(), 7);
        assert_eq!(settle(&mut window, 9, true), [(1, 2), (5, 7), (9, 9)]);
        assert_eq!(settle(&mut window, 10, false), [(10, 10)]);
        assert!(window.is_empty());
    }

    #[test]
    fn a_confirm_of_the_oldest_frees_those_behind_it_that_were_confirmed_before() {
        let mut window = Window::new(4);
        window.issue(4);
        settle(&mut window, 2, false);
        settle(&mut window, 3, false);
        assert_eq!(window.room(), 0);
        settle(&mut window, 1, false);
        assert_eq!(window.room(), 3);
        assert_eq!(window.first(), PublishSeq(4));
    }

    #[test]
    fn a_multiple_confirm_of_zero_settles_all_that_was_published() {
        let mut window = Window::new(10);
        window.issue(7);
        assert_eq!(settle(&mut window, 0, true), [(1, 7)]);
        assert!(window.is_empty());
    }

    #[test]
    fn a_number_that_was_never_published_or_is_settled_already_is_an_error() {
        let mut window = Window::new(10);
        window.issue(2);
        assert_eq!(window.settle(3, false, |_| ()), Err(UnknownSeq(3)));
        assert_eq!(window.settle(3, true, |_| ()), Err(UnknownSeq(3)));
        assert_eq!(window.settle(0, false, |_| ()), Err(UnknownSeq(0)));
        settle(&mut window, 2, false);
        assert_eq!(window.settle(2, false, |_| ()), Err(UnknownSeq(2)));
        settle(&mut window, 1, false);
        assert_eq!(window.settle(1, false, |_| ()), Err(UnknownSeq(1)));
    }

    #[test]
    fn any_order_of_confirms_settles_every_message_exactly_once() {
        let mut chance = crate::Chance::new(42);
        let mut window = Window::new(200);
        let mut open = std::collections::BTreeSet::new();
        let mut total = 0;
        for _ in 0..20_000 {
            let count = chance.next_bits() % (window.room() + 1);
            let first = window.issue(count).0;
            open.extend(first..first + count);
            total += count;
            let Some(&tag) = open.iter().nth((chance.next_bits() % 200) as usize) else { continue };
            let multiple = chance.next_bits().is_multiple_of(3);
            let mut told = Vec::new();
            window
                .settle(tag, multiple, |run| told.extend(run.first.0..=run.last.0))
                .expect("an open number");
            let expected: Vec<u64> =
                if multiple { open.range(..=tag).copied().collect() } else { vec![tag] };
            assert_eq!(told, expected);
            told.iter().for_each(|seq| assert!(open.remove(seq)));
            assert_eq!(window.unsettled(), open.len() as u64);
        }
        assert!(total > 10_000);
    }
}
