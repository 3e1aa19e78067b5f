//! What is between the stream and the target, in the order of the stream: the first that is not confirmed is where a
//! replay goes on.

use std::collections::VecDeque;

use client::{PublishSeq, Run};

/// Messages that were read and are not done with. `T` settles them at the stream.
#[derive(Debug)]
pub(super) struct Book<T> {
    all: VecDeque<Entry<T>>,
    /// Everything before is at the target, or was not wanted.
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    offset: u64,
    /// None: it is not copied, or confirmed.
    sent: Option<(PublishSeq, T)>,
}

impl<T> Book<T> {
    pub(super) fn new(next: u64) -> Self {
        Self { all: VecDeque::new(), next }
    }

    /// The first offset that is neither copied nor passed over.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the target owes a confirm.
    pub(super) fn has_sent(&self) -> bool {
        self.all.iter().any(|entry| entry.sent.is_some())
    }

    /// A message was published. Its offset is greater than those before.
    pub(super) fn sent(&mut self, offset: u64, seq: PublishSeq, settles: T) {
        self.all.push_back(Entry { offset, sent: Some((seq, settles)) });
    }

    /// A message is not copied.
    pub(super) fn passed(&mut self, offset: u64) {
        self.all.push_back(Entry { offset, sent: None });
        self.advance();
    }

    /// The target has confirmed these. What settles them.
    pub(super) fn confirmed(&mut self, run: Run) -> Vec<T> {
        let mut done = Vec::new();
        for entry in &mut self.all {
            let seq = entry.sent.as_ref().map(|(seq, _)| seq.0);
            match seq {
                Some(seq) if seq > run.last.0 => break,
                Some(seq) if seq >= run.first.0 => {
                    done.extend(entry.sent.take().map(|(_, settles)| settles));
                }
                Some(_) | None => {}
            }
        }
        self.advance();
        done
    }

    /// Where the message with this number lies in the stream.
    pub(super) fn offset_of(&self, seq: PublishSeq) -> Option<u64> {
        let is_it = |entry: &&Entry<T>| entry.sent.as_ref().is_some_and(|(other, _)| *other == seq);
        self.all.iter().find(is_it).map(|entry| entry.offset)
    }

    fn advance(&mut self) {
        while let Some(first) = self.all.pop_front_if(|first| first.sent.is_none()) {
            self.next = first.offset + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, last: u64) -> Run {
        Run { first: PublishSeq(first), last: PublishSeq(last) }
    }

    #[test]
    fn a_replay_stands_at_the_first_message_that_is_not_confirmed() {
        let mut book = Book::new(10);
        book.passed(10);
        assert_eq!(book.next(), 11, "what is passed over is done with");
        book.sent(11, PublishSeq(1), 'a');
        book.passed(12);
        book.sent(13, PublishSeq(2), 'b');
        book.sent(17, PublishSeq(3), 'c');
        assert_eq!(book.confirmed(run(2, 2)), ['b']);
        assert_eq!((book.next(), book.offset_of(PublishSeq(3))), (11, Some(17)));
        assert_eq!(book.confirmed(run(1, 1)), ['a']);
        assert_eq!(book.next(), 14);
        assert!(book.has_sent() && !book.is_empty());
        assert_eq!(book.confirmed(run(1, 3)), ['c']);
        assert!(book.next() == 18 && book.is_empty());
    }
}
