//! Deliveries of one channel that the client has not settled, as runs: tags in a row that stand for
//! messages in a row of one queue, held by one consumer. A `basic.ack` with `multiple` costs as much as
//! the runs it ends, not as the messages.

use std::collections::VecDeque;

use machine::{GroupId, QueueId};

/// Where messages come from, and in whose name they are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) group: GroupId,
    pub(crate) queue: QueueId,
    /// The session's number of the consumer (or of the channel's fetches).
    pub(crate) consumer: u64,
}

impl Source {
    /// A level of the same queue: what messages are held of.
    pub(crate) fn level(self, queue: QueueId) -> Self {
        Self { queue, ..self }
    }
}

/// Messages in a row behind delivery tags in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first_tag: u64,
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
    pub(crate) source: Source,
}

impl Run {
    fn end_tag(&self) -> u64 {
        self.first_tag + u64::from(self.count)
    }

    /// The first `count` messages; the run keeps the others.
    fn split_front(&mut self, count: u32) -> Self {
        assert!(count <= self.count, "a run has no more messages than it counts");
        let front = Self { count, ..*self };
        self.first_tag += u64::from(count);
        self.first_seq += u64::from(count);
        self.count -= count;
        front
    }
}

/// Unsettled deliveries of one channel, and its counter of delivery tags.
#[derive(Debug)]
pub(crate) struct Unacked {
    runs: VecDeque<Run>,
    count: u32,
    /// Of them those that no consumer holds.
    fetched: u32,
    /// In whose name `basic.get` holds messages.
    fetcher: Option<u64>,
    next_tag: u64,
}

impl Default for Unacked {
    fn default() -> Self {
        Self { runs: VecDeque::new(), count: 0, fetched: 0, fetcher: None, next_tag: 1 }
    }
}

impl Unacked {
    /// Messages out.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Messages out with consumers: those that `basic.get` took are not among them.
    pub(crate) fn consumed(&self) -> u32 {
        self.count - self.fetched
    }

    /// In whose name `basic.get` holds messages, drawn at the first.
    pub(crate) fn fetcher(&mut self, draw: impl FnOnce() -> u64) -> u64 {
        *self.fetcher.get_or_insert_with(draw)
    }

    fn is_fetched(&self, source: Source) -> bool {
        self.fetcher == Some(source.consumer)
    }

    fn leaves(&mut self, run: &Run) {
        assert!(run.count <= self.count, "what is settled was out");
        self.count -= run.count;
        if self.is_fetched(run.source) {
            assert!(run.count <= self.fetched, "what is settled of fetches was fetched");
            self.fetched -= run.count;
        }
        assert!(self.fetched <= self.count, "what was fetched is out");
    }

    /// What is out, oldest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
    }

    /// The tag of the next delivery.
    pub(crate) fn next_tag(&self) -> u64 {
        self.next_tag
    }

    /// Tags for `count` deliveries that need no ack. Gives the first.
    pub(crate) fn pass(&mut self, count: u32) -> u64 {
        let tag = self.next_tag;
        self.next_tag += u64::from(count);
        tag
    }

    /// Tags for `count` deliveries in a row. Gives the first.
    pub(crate) fn add(&mut self, source: Source, first_seq: u64, count: u32) -> u64 {
        assert!(count > 0, "a delivery tag stands for a message");
        let tag = self.pass(count);
        let is_newest = self.runs.back().is_none_or(|last| last.end_tag() <= tag);
        assert!(is_newest, "delivery tags go up");
        self.count += count;
        if self.is_fetched(source) {
            self.fetched += count;
        }
        if let Some(last) = self.runs.back_mut()
            && last.source == source
            && last.end_tag() == tag
            && last.first_seq + u64::from(last.count) == first_seq
        {
            last.count += count;
        } else {
            self.runs.push_back(Run { first_tag: tag, first_seq, count, source });
        }
        tag
    }

    /// Takes one delivery. None: the tag is not out.
    pub(crate) fn take(&mut self, tag: u64) -> Option<Run> {
        let place = self.place(tag)?;
        self.leaves(&Run { count: 1, ..self.runs[place] });
        let run = &mut self.runs[place];
        let offset = u32::try_from(tag - run.first_tag).expect("a run's count is a u32");
        if run.count == 1 {
            return match place {
                0 => self.runs.pop_front(),
                _ => self.runs.remove(place),
            };
        }
        if offset == 0 {
            return Some(run.split_front(1));
        }
        let before = run.split_front(offset);
        let taken = run.split_front(1);
        if run.count == 0 {
            *run = before;
        } else {
            self.runs.insert(place, before);
        }
        Some(taken)
    }

    /// Takes everything up to and with `tag`. `false`: the tag is not out, and nothing is taken.
    pub(crate) fn take_through(&mut self, tag: u64, mut taken: impl FnMut(Run)) -> bool {
        let Some(place) = self.place(tag) else { return false };
        for _ in 0..place {
            let run = self.runs.pop_front().expect("they are before the run of the tag");
            self.leaves(&run);
            taken(run);
        }
        let run = self.runs.front_mut().expect("the run of the tag was found");
        let mut count = u32::try_from(tag - run.first_tag).expect("a run's count is a u32") + 1;
        if run.count > count && planted::is("multiple_takes_next") {
            count += 1;
        }
        let front = run.split_front(count);
        if run.count == 0 {
            self.runs.pop_front();
        }
        self.leaves(&front);
        taken(front);
        true
    }

    /// Takes everything, oldest first.
    pub(crate) fn take_all(&mut self, mut taken: impl FnMut(Run)) {
        self.count = 0;
        self.fetched = 0;
        self.runs.drain(..).for_each(&mut taken);
    }

    /// Puts a run back whose settling was rolled back.
    pub(crate) fn give_back(&mut self, run: Run) {
        assert!(run.end_tag() <= self.next_tag, "what is put back was out");
        let place = self.runs.partition_point(|other| other.first_tag < run.first_tag);
        let before = place.checked_sub(1).map(|before| self.runs[before]);
        let is_behind = before.is_none_or(|before| before.end_tag() <= run.first_tag);
        assert!(is_behind, "what is put back is not out: before it");
        let is_ahead = self.runs.get(place).is_none_or(|after| run.end_tag() <= after.first_tag);
        assert!(is_ahead, "what is put back is not out: behind it");
        self.count += run.count;
        if self.is_fetched(run.source) {
            self.fetched += run.count;
        }
        self.runs.insert(place, run);
    }

    fn place(&self, tag: u64) -> Option<usize> {
        // Acks mostly come in the order of the deliveries.
        if let Some(first) = self.runs.front()
            && (first.first_tag..first.end_tag()).contains(&tag)
        {
            return Some(0);
        }
        let place = self.runs.partition_point(|run| run.end_tag() <= tag);
        self.runs.get(place).filter(|run| run.first_tag <= tag).map(|_| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Source = Source { group: GroupId(1), queue: QueueId(7), consumer: 1 };
    const B: Source = Source { group: GroupId(1), queue: QueueId(8), consumer: 2 };

    fn run(first_tag: u64, first_seq: u64, count: u32, source: Source) -> Run {
        Run { first_tag, first_seq, count, source }
    }

    #[test]
    fn messages_in_a_row_are_one_run_and_a_multiple_ack_takes_it_whole() {
        let mut unacked = Unacked::default();
        assert_eq!(unacked.add(A, 10, 60), 1);
        assert_eq!(unacked.add(A, 70, 40), 61);
        assert_eq!(unacked.runs.len(), 1);
        let mut taken = Vec::new();
        assert!(unacked.take_through(100, |run| taken.push(run)));
        assert_eq!(taken, [run(1, 10, 100, A)]);
        assert_eq!(unacked.count(), 0);
    }

    #[test]
    fn an_ack_inside_a_run_leaves_both_of_its_ends() {
        let mut unacked = Unacked::default();
        unacked.add(A, 10, 3);
        assert_eq!(unacked.take(2), Some(run(2, 11, 1, A)));
        assert_eq!(unacked.take(2), None);
        assert_eq!(unacked.take(3), Some(run(3, 12, 1, A)));
        assert_eq!(unacked.take(1), Some(run(1, 10, 1, A)));
        assert_eq!(unacked.count(), 0);
        assert!(unacked.runs.is_empty());
    }

    #[test]
    fn a_multiple_ack_of_a_tag_that_is_not_out_takes_nothing() {
        let mut unacked = Unacked::default();
        unacked.add(A, 10, 3);
        unacked.take(2);
        assert!(!unacked.take_through(2, |_| panic!("taken")));
        assert!(!unacked.take_through(4, |_| panic!("taken")));
        assert!(!unacked.take_through(0, |_| panic!("taken")));
        assert_eq!(unacked.count(), 2);
    }

    #[test]
    fn tags_of_deliveries_without_ack_are_not_out() {
        let mut unacked = Unacked::default();
        assert_eq!(unacked.pass(5), 1);
        assert_eq!(unacked.add(A, 10, 1), 6);
        assert_eq!(unacked.pass(1), 7);
        assert_eq!(unacked.add(A, 11, 1), 8);
        assert_eq!(unacked.take(5), None);
        assert_eq!(unacked.take(7), None);
        assert_eq!(unacked.take(8), Some(run(8, 11, 1, A)));
    }

    #[test]
    fn what_was_fetched_is_out_but_no_consumers() {
        let mut unacked = Unacked::default();
        assert_eq!(unacked.fetcher(|| B.consumer), B.consumer);
        unacked.add(A, 10, 3);
        unacked.add(B, 5, 4);
        assert_eq!((unacked.count(), unacked.consumed()), (7, 3));
        let fetched = unacked.take(4).unwrap();
        unacked.take(1).unwrap();
        assert_eq!((unacked.count(), unacked.consumed()), (5, 2));
        unacked.give_back(fetched);
        assert_eq!((unacked.count(), unacked.consumed()), (6, 2));
        assert!(unacked.take_through(5, |_| {}));
        assert_eq!((unacked.count(), unacked.consumed()), (2, 0));
        unacked.take_all(|_| {});
        assert_eq!((unacked.count(), unacked.consumed()), (0, 0));
    }

    #[test]
    fn what_was_rolled_back_is_out_again_in_its_place() {
        let mut unacked = Unacked::default();
        unacked.add(A, 10, 2);
        unacked.add(B, 5, 2);
        let first = unacked.take(1).unwrap();
        let third = unacked.take(3).unwrap();
        unacked.give_back(third);
        unacked.give_back(first);
        let mut taken = Vec::new();
        unacked.take_all(|run| taken.push(run.first_tag));
        assert_eq!(taken, [1, 2, 3, 4]);
        assert_eq!(unacked.count(), 0);
    }
}
