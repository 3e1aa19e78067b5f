//! What the rates of a queue let out and in, on the node that leads it.
//!
//! Leader-local: no replica knows how many tokens a leader had. So a new leader begins without any, and takes no new
//! ones before the leader before it has certainly stopped: together they never give out more than the rate and one
//! burst.

use crate::scheduler::bucket::Bucket;
use crate::scheduler::budget::{Budget, Which};
use crate::scheduler::loan::{Ask, LENT_MS, Lender, Loan, shared_burst};
use crate::settings::{Rate, Rates};

/// The buckets of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Of what goes out.
    pub(crate) out: Option<Budget>,
    /// Of what publishers bring.
    intake: Option<Bucket>,
    /// The tokens of all partitions, on the leader of the first.
    lender: Option<Lender>,
}

/// Whose tokens a queue gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    Own,
    /// It is one of several partitions, which borrow theirs from it, as it does itself.
    Lends,
    /// From another partition.
    Borrows,
}

/// What holds a queue's messages back: nothing, where it has no rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Ready messages that wait, though a consumer has room for the first of them.
    pub messages: u64,
    /// How long the first of these waits still, ms.
    pub wait_ms: u64,
    /// Published messages that their publishers' nodes keep until they may come in.
    pub publishes: u64,
}

impl Pace {
    /// Of a queue that nobody led before, whose buckets are full.
    pub(crate) fn full(rates: &Rates, tokens: Tokens, now_ms: u64) -> Option<Box<Self>> {
        Self::with(rates, tokens, |_, rate, burst| Bucket::full(rate, burst, now_ms))
    }

    /// Of a queue that somebody else led. The first tokens come after `from_ms`.
    pub(crate) fn empty(
        rates: &Rates,
        tokens: Tokens,
        (now_ms, from_ms): (u64, u64),
    ) -> Option<Box<Self>> {
        let forgets = tokens == Tokens::Lends && planted::is("lender_has_tokens");
        if forgets || planted::is("leader_has_tokens") {
            return Self::full(rates, tokens, from_ms);
        }
        // What another leader has lent may be used until this time.
        let lends = tokens == Tokens::Lends && from_ms > now_ms;
        let from_ms = if lends { from_ms.saturating_add(LENT_MS) } else { from_ms };
        Self::with(rates, tokens, |_, rate, burst| Bucket::empty(rate, burst, from_ms))
    }

    /// After a change of the rates: tokens stay, and what is new begins without.
    pub(crate) fn changed(
        before: Option<&Self>,
        rates: &Rates,
        tokens: Tokens,
        now_ms: u64,
    ) -> Option<Box<Self>> {
        let mut new = Self::with(rates, tokens, |which, rate, burst| {
            let bucket = before.and_then(|before| match which {
                Some(which) => before.out.as_ref().and_then(|out| out.bucket(which)),
                None => before.intake,
            });
            match bucket {
                Some(bucket) => bucket.changed_to(rate, burst, now_ms),
                None => Bucket::empty(rate, burst, now_ms),
            }
        })?;
        if let (Some(before), Some(lender)) = (before.and_then(|it| it.lender), &mut new.lender) {
            *lender = before.changed_to(lender, now_ms);
        }
        // What it asked before is answered still.
        let borrower = before.and_then(|before| before.out.as_ref()?.borrower());
        if let (Some(borrower), true) = (borrower, tokens != Tokens::Own) {
            new.out = new.out.map(|out| out.borrowing(borrower));
        }
        Some(new)
    }

    fn with(
        rates: &Rates,
        tokens: Tokens,
        bucket: impl Fn(Option<Which>, Rate, u64) -> Bucket,
    ) -> Option<Box<Self>> {
        let is_shared = tokens != Tokens::Own;
        let of = |rate, burst| if is_shared { shared_burst(rate, burst) } else { burst };
        let out =
            Budget::new(rates, |which, rate, burst| bucket(Some(which), rate, of(rate, burst)));
        let lends = tokens == Tokens::Lends;
        let lender = out.as_ref().filter(|_| lends).map(|out| {
            let again = |which| out.bucket(which);
            Lender::new(again(Which::Messages), again(Which::Bytes))
        });
        let out = out.map(|out| if is_shared { out.borrowing(Default::default()) } else { out });
        let intake = rates.enqueue.map(|rate| bucket(None, rate, rate.default_burst()));
        (out.is_some() || intake.is_some()).then(|| Box::new(Self { out, intake, lender }))
    }

    /// Another partition asks for tokens, or this one. None: it has none to lend.
    pub(crate) fn lend(&mut self, ask: &Ask, now_ms: u64) -> Option<Loan> {
        self.lender.as_mut().map(|lender| lender.lend(ask, now_ms))
    }

    /// Lets so many messages in. `Err`: not before this time, ms since 1970.
    pub(crate) fn let_in(&mut self, count: u64, now_ms: u64) -> Result<(), u64> {
        let Some(intake) = &mut self.intake else { return Ok(()) };
        intake.fill(now_ms);
        if !intake.has(count) {
            return Err(intake.due_ms(count));
        }
        if !planted::is("intake_uncharged") {
            intake.take(count);
        }
        Ok(())
    }

    /// When a message may go that waits for nothing but that.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.out.as_ref()?.due_ms()
    }
}
