//! What the rates of a queue let out now: a bucket of messages, a bucket of bytes, or both.
//!
//! Leader-local. A message that goes to a client is charged, however often it went before. What waits for a token is
//! ready; the queue has one time at which it is looked at again, so a queue that waits costs nothing meanwhile.

use super::bucket::Bucket;
use super::loan::{Ask, Borrower, Change, Loan};
use crate::settings::{Rate, Rates};

/// A queue that waits gives out at once what comes in so long, ms: a rate of a million a second is not a million looks.
const PORTION_MS: u64 = 10;

/// What may go out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    messages: Option<Bucket>,
    bytes: Option<Bucket>,
    /// When the next message may go, where one that somebody has credit for waits for nothing but that.
    due_ms: Option<u64>,
    /// Of one of several partitions: its tokens are borrowed, and time brings none.
    borrower: Option<Borrower>,
}

/// The first message that waits, and how many could go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
}

impl Budget {
    /// `bucket` makes each of its buckets. `None`: no rate limits what goes out.
    pub(crate) fn new(
        rates: &Rates,
        mut bucket: impl FnMut(Which, Rate, u64) -> Bucket,
    ) -> Option<Self> {
        let messages = rates.dequeue.map(|rate| {
            let burst = rates.dequeue_burst.unwrap_or_else(|| rate.default_burst());
            bucket(Which::Messages, rate, burst)
        });
        let bytes =
            rates.dequeue_bytes.map(|rate| bucket(Which::Bytes, rate, rate.default_burst()));
        rates.limits_deliveries().then_some(Self { messages, bytes, due_ms: None, borrower: None })
    }

    /// The same, of a partition that borrows its tokens.
    pub(crate) fn borrowing(mut self, borrower: Borrower) -> Self {
        self.borrower = Some(borrower);
        self.set(0, 0);
        self
    }

    fn set(&mut self, messages: u64, bytes: u64) {
        self.messages.iter_mut().for_each(|bucket| bucket.set(messages));
        self.bytes.iter_mut().for_each(|bucket| bucket.set(bytes));
    }

    pub(crate) fn borrower(&self) -> Option<Borrower> {
        self.borrower
    }

    /// What is to be asked of whoever lends it tokens.
    pub(crate) fn take_ask(&mut self) -> Option<Ask> {
        self.borrower.as_mut()?.take_ask()
    }

    /// The answer.
    pub(crate) fn lent(&mut self, number: u64, loan: Loan, now_ms: u64) {
        if let Some(borrower) = &mut self.borrower {
            borrower.lent(number, loan, now_ms);
        }
    }

    /// Somebody fetches a message of so many bytes, for which there are no tokens. Whether they may come.
    pub(crate) fn fetch(&mut self, bytes: u64) -> bool {
        let Some(borrower) = self.borrower.as_mut().filter(|it| !it.was_refused_now()) else {
            return false;
        };
        self.due_ms = Some(borrower.want(1, bytes, false));
        borrower.is_asking()
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.borrower.as_ref().is_some_and(Borrower::is_asking)
    }

    pub(crate) fn bucket(&self, which: Which) -> Option<Bucket> {
        match which {
            Which::Messages => self.messages,
            Which::Bytes => self.bytes,
        }
    }

    /// Looks at the queue again from here on: it is not known that anything waits.
    pub(crate) fn begin(&mut self, now_ms: u64) {
        self.due_ms = None;
        if let Some(borrower) = &mut self.borrower {
            if let Change::Has { messages, bytes } = borrower.begin(now_ms) {
                self.set(messages, bytes);
            }
            return;
        }
        self.messages.iter_mut().chain(&mut self.bytes).for_each(|bucket| bucket.fill(now_ms));
    }

    /// Messages that may go, but for their bytes.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.map_or(u64::MAX, |bucket| bucket.tokens())
    }

    /// How many of the first messages may go, of which so many in a row have so many bytes each.
    pub(crate) fn of(&self, sizes: impl IntoIterator<Item = (u64, u64)>) -> u64 {
        let Some(bucket) = &self.bytes else { return self.messages() };
        let (mut left, mut count) = (bucket.tokens(), 0);
        for (messages, size) in sizes {
            let fit = left.checked_div(size).map_or(messages, |fit| fit.min(messages));
            if count == 0 && fit == 0 && messages > 0 {
                return u64::from(bucket.has(size)).min(self.messages());
            }
            count += fit;
            left -= fit * size;
            if fit < messages {
                break;
            }
        }
        count.min(self.messages())
    }

    pub(crate) fn counts_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// Messages with so many bytes together go to a client.
    pub(crate) fn charge(&mut self, messages: u64, bytes: u64) {
        if let Some(bucket) = &mut self.messages {
            bucket.take(messages);
        }
        if let Some(bucket) = &mut self.bytes {
            bucket.take(bytes);
        }
    }

    /// The first message waits for its tokens.
    pub(crate) fn wait(&mut self, Waiting { bytes, messages }: Waiting) {
        if let Some(borrower) = &mut self.borrower {
            let portion = |bucket: Option<Bucket>, wanted: u64| {
                bucket.map_or(0, |bucket| bucket.portion(PORTION_MS).min(wanted))
            };
            let wanted = portion(self.messages, messages);
            let of_bytes = self.bytes.map_or(0, |_| bytes);
            let of_bytes = of_bytes.max(portion(self.bytes, bytes.saturating_mul(messages)));
            self.due_ms = Some(borrower.want(wanted, of_bytes, true));
            return;
        }
        let messages = self.messages.filter(|bucket| !bucket.has(1));
        let messages = messages.map(|bucket| bucket.due_ms(bucket.portion(PORTION_MS)));
        let lacks_bytes = |bucket: &Bucket| !bucket.has(bytes);
        let bytes = self.bytes.filter(lacks_bytes).map(|bucket| {
            let portion = bytes.max(bucket.portion(PORTION_MS));
            bucket.due_ms(portion)
        });
        self.due_ms = messages.max(bytes);
    }

    /// When the next message may go that waits for that. `None`: none does.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }
}

/// One of its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Messages,
    Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(rates: &Rates) -> Budget {
        Budget::new(rates, |_, rate, burst| Bucket::full(rate, burst, 0)).unwrap()
    }

    fn per_second(count: u64) -> Option<Rate> {
        Rate::new(count, 1_000)
    }

    #[test]
    fn of_messages_and_bytes_what_is_shorter_counts() {
        let dequeue_burst = Some(5);
        let rates = Rates {
            dequeue: per_second(10),
            dequeue_burst,
            dequeue_bytes: per_second(1_000),
            ..Rates::default()
        };
        let budget = budget(&rates);
        // A burst of bytes is 100.
        assert_eq!(budget.of([(3, 30), (9, 1)]), 5);
        assert_eq!(budget.of([(9, 30)]), 3);
        assert_eq!(budget.of([(2, 0), (1, 101)]), 2);
        assert_eq!(budget.of([(1, 5_000), (1, 0)]), 1, "from a full bucket");
        assert_eq!(budget.of([]), 0);
    }

    #[test]
    fn who_waits_is_looked_at_when_a_portion_has_come() {
        let mut budget = budget(&Rates { dequeue: per_second(1_000), ..Rates::default() });
        let first = Waiting { bytes: 0, messages: 1 };
        budget.charge(budget.messages(), 0);
        budget.wait(first);
        assert_eq!(budget.due_ms(), Some(10));
        budget.begin(4);
        assert_eq!((budget.messages(), budget.due_ms()), (4, None), "who asks meanwhile gets them");
        let mut slow = self::budget(&Rates { dequeue: per_second(2), ..Rates::default() });
        slow.charge(1, 0);
        slow.wait(first);
        assert_eq!(slow.due_ms(), Some(500));
    }
}
