//! Tokens that the partitions of a queue borrow from one of them, so that a rate counts for all of them together.
//!
//! The first partition's leader has the bucket, and is the *lender*. Every partition, that one too, asks it for what it
//! would give out now, and is given the tokens with a wait: they may be used when they have come. The lender takes them out
//! of its bucket at once, so it never lends a token twice, and who asks first is served first, without a line. A partition
//! with nothing to give out asks for nothing, so its share is never lost.
//!
//! A token is used at the latest `LATE_MS + VALID_MS` after it has come. The lender's bucket holds that much less than a
//! burst: in every window, all partitions together stay within the rate and one burst, if the burst is no shorter than that.

use super::bucket::Bucket;
use crate::settings::Rate;

/// An answer that takes longer than this is void, ms.
const LATE_MS: u64 = 50;
/// Tokens are void when they are not used for so long after they may be, ms.
const VALID_MS: u64 = 30;
/// Tokens are lent so long before they come at most, ms. Who would have to wait for longer asks again.
const AHEAD_MS: u64 = 100;
/// A question that is not answered is asked again after so long, ms.
const AGAIN_MS: u64 = 100;
/// Longest time until who is given nothing asks again, ms: the rate may be another one meanwhile.
const BACK_MS_MAX: u64 = 1_000;
/// What was lent is used up or void after so long, ms.
pub(crate) const LENT_MS: u64 = LATE_MS + AHEAD_MS + VALID_MS;

/// What a partition would give out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Of the partition's questions.
    pub number: u64,
    pub messages: u64,
    pub bytes: u64,
    /// False: somebody fetches single messages, and does not wait for a rate.
    pub may_wait: bool,
}

/// What it may give out. Nothing: it is to ask again after the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loan {
    pub messages: u64,
    pub bytes: u64,
    /// From when on, counted from when the answer comes, ms.
    pub wait_ms: u64,
}

impl Loan {
    fn is_none(&self) -> bool {
        (self.messages, self.bytes) == (0, 0)
    }
}

/// Whoever lends the tokens of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lender {
    messages: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Lender {
    pub(crate) fn new(messages: Option<Bucket>, bytes: Option<Bucket>) -> Self {
        Self { messages, bytes }
    }

    /// After a change of the rates: tokens stay, and what is new begins without.
    pub(crate) fn changed_to(&self, new: &Self, now_ms: u64) -> Self {
        let changed = |old: Option<Bucket>, new: Option<Bucket>| match (old, new) {
            (Some(old), Some(new)) => Some(old.changed_to(new.rate(), new.burst(), now_ms)),
            (_, new) => new,
        };
        Self {
            messages: changed(self.messages, new.messages),
            bytes: changed(self.bytes, new.bytes),
        }
    }

    /// Lends what is asked for, if it has come or comes soon.
    pub(crate) fn lend(&mut self, ask: &Ask, now_ms: u64) -> Loan {
        let mut asked = [(&mut self.messages, ask.messages), (&mut self.bytes, ask.bytes)];
        let mut wait_ms = 0;
        for (bucket, tokens) in &mut asked {
            let Some(bucket) = bucket else { continue };
            bucket.fill(now_ms);
            if !bucket.has(*tokens) {
                wait_ms = wait_ms.max(bucket.due_ms(*tokens).saturating_sub(now_ms).max(1));
            }
        }
        if wait_ms > 0 && !ask.may_wait {
            return Loan::default();
        }
        if wait_ms > AHEAD_MS {
            let wait_ms = (wait_ms - AHEAD_MS).min(BACK_MS_MAX);
            return Loan { wait_ms, ..Loan::default() };
        }
        let [messages, bytes] = asked.map(|(bucket, tokens)| match bucket {
            Some(bucket) => {
                if !planted::is("loan_uncharged") {
                    bucket.take(tokens);
                }
                tokens
            }
            None => 0,
        });
        Loan { messages, bytes, wait_ms }
    }
}

/// What a partition has borrowed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Borrower {
    /// Of its last question.
    number: u64,
    /// When it asked what is not answered yet.
    asked_ms: Option<u64>,
    /// A question that nobody has taken on its way yet.
    ask: Option<Ask>,
    /// What it may give out from `from_ms` on.
    lent: Option<Loan>,
    from_ms: u64,
    /// From when on what it has is void.
    until_ms: u64,
    /// When it was given nothing last.
    refused_ms: Option<u64>,
    now_ms: u64,
}

/// What has become of borrowed tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has what it had.
    Nothing,
    /// It has these, and no others.
    Has { messages: u64, bytes: u64 },
}

impl Borrower {
    /// What it has from `now_ms` on.
    pub(crate) fn begin(&mut self, now_ms: u64) -> Change {
        self.now_ms = now_ms;
        if now_ms >= self.until_ms {
            self.lent = None;
            return Change::Has { messages: 0, bytes: 0 };
        }
        match self.lent.filter(|_| now_ms >= self.from_ms) {
            Some(Loan { messages, bytes, .. }) => {
                self.lent = self.lent.filter(|_| planted::is("loan_used_twice"));
                Change::Has { messages, bytes }
            }
            None => Change::Nothing,
        }
    }

    /// It would give out so much, and has no tokens: until when it waits.
    pub(crate) fn want(&mut self, messages: u64, bytes: u64, may_wait: bool) -> u64 {
        if self.from_ms > self.now_ms {
            return self.from_ms;
        }
        let is_waiting =
            |asked_ms: &u64| self.now_ms < asked_ms + AGAIN_MS || planted::is("loan_asked_once");
        if let Some(asked_ms) = self.asked_ms.filter(is_waiting) {
            return asked_ms + AGAIN_MS;
        }
        self.number += 1;
        self.asked_ms = Some(self.now_ms);
        self.ask = Some(Ask { number: self.number, messages, bytes, may_wait });
        self.now_ms + AGAIN_MS
    }

    /// Whether an answer may come still.
    pub(crate) fn is_asking(&self) -> bool {
        self.asked_ms.is_some()
    }

    /// Whether it has just heard that there are no tokens.
    pub(crate) fn was_refused_now(&self) -> bool {
        self.refused_ms == Some(self.now_ms)
    }

    pub(crate) fn take_ask(&mut self) -> Option<Ask> {
        self.ask.take()
    }

    /// The answer to a question. An answer to another question, or one that comes late, is void.
    pub(crate) fn lent(&mut self, number: u64, loan: Loan, now_ms: u64) {
        let Some(asked_ms) = self.asked_ms.filter(|_| number == self.number) else { return };
        self.asked_ms = None;
        if now_ms > asked_ms + LATE_MS {
            return;
        }
        self.from_ms = now_ms + loan.wait_ms;
        self.until_ms = if loan.is_none() { self.from_ms } else { self.from_ms + VALID_MS };
        self.lent = Some(loan).filter(|loan| !loan.is_none());
        self.refused_ms = loan.is_none().then_some(now_ms);
    }
}

/// What the lender's bucket holds at most, of a burst.
pub(crate) fn shared_burst(rate: Rate, burst: u64) -> u64 {
    burst.saturating_sub(rate.in_ms(LATE_MS + VALID_MS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lender(count: u64, burst: u64) -> Lender {
        let rate = Rate::new(count, 1_000).unwrap();
        Lender::new(Some(Bucket::empty(rate, burst, 0)), None)
    }

    fn ask(messages: u64) -> Ask {
        Ask { number: 1, messages, bytes: 0, may_wait: true }
    }

    #[test]
    fn who_asks_first_is_served_first_and_no_token_is_lent_twice() {
        let mut lender = lender(1_000, 20);
        assert_eq!(lender.lend(&ask(10), 0), Loan { messages: 10, bytes: 0, wait_ms: 10 });
        assert_eq!(lender.lend(&ask(10), 0), Loan { messages: 10, bytes: 0, wait_ms: 20 });
        assert_eq!(lender.lend(&ask(10), 20), Loan { messages: 10, bytes: 0, wait_ms: 10 });
        // After a pause there is what fits: a burst, but for what may be out and not used.
        assert_eq!(shared_burst(Rate::new(1_000, 1_000).unwrap(), 100), 20);
        assert_eq!(lender.lend(&ask(20), 5_000), Loan { messages: 20, bytes: 0, wait_ms: 0 });
        let at_once = Ask { may_wait: false, ..ask(1) };
        assert_eq!(lender.lend(&at_once, 5_000), Loan::default(), "who fetches does not wait");
        assert_eq!(lender.lend(&ask(1), 5_000), Loan { messages: 1, bytes: 0, wait_ms: 1 });
    }

    #[test]
    fn who_would_have_to_wait_for_long_comes_back_and_takes_nothing() {
        let mut slow = lender(1, 1);
        assert_eq!(slow.lend(&ask(1), 0), Loan { messages: 0, bytes: 0, wait_ms: 900 });
        assert_eq!(slow.lend(&ask(1), 0), Loan { messages: 0, bytes: 0, wait_ms: 900 });
        assert_eq!(slow.lend(&ask(1), 900), Loan { messages: 1, bytes: 0, wait_ms: 100 });
        assert_eq!(slow.lend(&ask(1), 900), Loan { messages: 0, bytes: 0, wait_ms: 1_000 });
    }

    #[test]
    fn borrowed_tokens_count_from_when_they_have_come_and_not_for_long() {
        let mut borrower = Borrower::default();
        borrower.begin(1_000);
        assert_eq!(borrower.want(5, 0, true), 1_100);
        let asked = borrower.take_ask().unwrap();
        assert_eq!((asked.messages, borrower.take_ask()), (5, None));
        // Asked again, as nobody answers; the first answer is void then.
        borrower.begin(1_100);
        borrower.want(5, 0, true);
        let again = borrower.take_ask().unwrap();
        let loan = Loan { messages: 5, bytes: 0, wait_ms: 20 };
        borrower.lent(asked.number, loan, 1_101);
        assert!(borrower.is_asking());
        borrower.lent(again.number, loan, 1_110);
        assert!(!borrower.is_asking());
        borrower.begin(1_129);
        assert_eq!(borrower.want(5, 0, true), 1_130, "nothing is asked meanwhile");
        assert_eq!(borrower.begin(1_130), Change::Has { messages: 5, bytes: 0 });
        assert_eq!(borrower.begin(1_159), Change::Nothing);
        assert_eq!(borrower.begin(1_160), Change::Has { messages: 0, bytes: 0 });
    }

    #[test]
    fn an_answer_that_comes_late_is_void() {
        let mut borrower = Borrower::default();
        borrower.begin(0);
        borrower.want(1, 0, true);
        let Ask { number, .. } = borrower.take_ask().unwrap();
        borrower.lent(number, Loan { messages: 1, bytes: 0, wait_ms: 0 }, LATE_MS + 1);
        assert_eq!(borrower.begin(LATE_MS + 1), Change::Has { messages: 0, bytes: 0 });
        assert_eq!(borrower.want(1, 0, true), LATE_MS + 1 + AGAIN_MS, "it asks again at once");
    }
}
