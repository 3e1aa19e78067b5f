//! Which jobs a source has given out, and what names each of them at the broker.
//!
//! A handle is used for one thing at a time: while a lease is being made longer, a settlement waits, because
//! brokers (MNS) give a new handle with the new lease. A lease that has run out is lost: its handle is never
//! used again, because somebody else may have the job by now.
//!
//! ```text
//!            take             renew                renewed
//!   broker ────────> held ───────────> renewing ────────────> held
//!                     │ settle            │ settle: waits for the answer
//!                     v                   v
//!                    work <───────────────┘     (its lease has run out: lost)
//! ```

use std::collections::BTreeMap;
use std::time::Instant;

use crate::job::Receipt;
use crate::settlement::{Publish, Settled, Settlement};

/// The jobs in hand of one source.
#[derive(Debug)]
pub struct Ledger<H> {
    last: u64,
    held: BTreeMap<Receipt, Held<H>>,
}

#[derive(Debug)]
struct Held<H> {
    handle: H,
    lease_until: Option<Instant>,
    /// Which fetcher took it.
    fetcher: usize,
    is_renewing: bool,
    waiting: Option<Settled>,
}

/// A settlement, with what names its job at the broker.
#[derive(Clone, Debug)]
pub struct Work<H> {
    pub receipt: Receipt,
    pub handle: H,
    pub lease_until: Option<Instant>,
    pub settlement: Settlement,
    pub publishes: Vec<Publish>,
    /// How many of `publishes` are safe at the broker already, by an earlier try.
    pub published: usize,
    /// What `Later`, `Dead` or `Return` does beside letting go is safe at the broker already, by an earlier try.
    pub is_copied: bool,
    /// Which fetcher took it.
    pub fetcher: usize,
}

impl<H> Work<H> {
    /// A settlement of a job that was never given out.
    pub fn of(handle: H, settled: Settled) -> Self {
        let held =
            Held { handle, lease_until: None, fetcher: 0, is_renewing: false, waiting: None };
        work(held, settled)
    }
}

/// What follows when a job is to be settled.
#[derive(Debug)]
pub enum Step<H> {
    /// Carry it out.
    Work(Work<H>),
    /// Its lease is being made longer: the answer brings it back.
    Waits,
    /// It is not in hand any more.
    Lost,
}

impl<H> Default for Ledger<H> {
    fn default() -> Self {
        Self { last: 0, held: BTreeMap::new() }
    }
}

impl<H: Clone> Ledger<H> {
    /// A job was taken.
    pub fn take(&mut self, handle: H, lease_until: Option<Instant>, fetcher: usize) -> Receipt {
        self.last += 1;
        let receipt = Receipt(self.last);
        let held = Held { handle, lease_until, fetcher, is_renewing: false, waiting: None };
        self.held.insert(receipt, held);
        receipt
    }

    /// A job is to be settled: it is not in hand any more after this, but for one that waits.
    pub fn settle(&mut self, settled: Settled, now: Instant) -> Step<H> {
        let Some(held) = self.held.get_mut(&settled.receipt) else { return Step::Lost };
        if held.is_renewing {
            held.waiting = Some(settled);
            return Step::Waits;
        }
        let held = self.held.remove(&settled.receipt).expect("it was there a line ago");
        if has_run_out(held.lease_until, now) {
            return Step::Lost;
        }
        Step::Work(work(held, settled))
    }

    /// Those whose leases can be made longer now, with their handles.
    pub fn renew(&mut self, receipts: &[Receipt], now: Instant) -> Vec<(Receipt, H)> {
        let mut found = Vec::new();
        for receipt in receipts {
            let Some(held) = self.held.get_mut(receipt) else { continue };
            if held.is_renewing || has_run_out(held.lease_until, now) {
                continue;
            }
            held.is_renewing = true;
            found.push((*receipt, held.handle.clone()));
        }
        found
    }

    /// A lease was made longer. Gives back the settlement that waited for it.
    pub fn renewed(&mut self, receipt: Receipt, handle: H, until: Instant) -> Option<Work<H>> {
        let held = self.held.get_mut(&receipt)?;
        held.is_renewing = false;
        held.handle = handle;
        held.lease_until = Some(until);
        self.resume(receipt)
    }

    /// Nobody knows whether a lease was made longer: the old end holds. Gives back the settlement that waited.
    pub fn not_renewed(&mut self, receipt: Receipt) -> Option<Work<H>> {
        self.held.get_mut(&receipt)?.is_renewing = false;
        self.resume(receipt)
    }

    fn resume(&mut self, receipt: Receipt) -> Option<Work<H>> {
        let settled = self.held.get_mut(&receipt)?.waiting.take()?;
        let held = self.held.remove(&receipt)?;
        Some(work(held, settled))
    }

    /// Somebody else has this job. Whether it was in hand.
    pub fn lose(&mut self, receipt: Receipt) -> bool {
        self.held.remove(&receipt).is_some()
    }

    /// Takes out those whose leases have run out.
    pub fn expire(&mut self, now: Instant) -> Vec<Receipt> {
        let is_over = |held: &Held<H>| has_run_out(held.lease_until, now);
        let over: Vec<Receipt> = self
            .held
            .iter()
            .filter(|(_, held)| is_over(held))
            .map(|(receipt, _)| *receipt)
            .collect();
        for receipt in &over {
            self.held.remove(receipt);
        }
        over
    }

    /// Takes out all.
    pub fn clear(&mut self) -> Vec<Receipt> {
        std::mem::take(&mut self.held).into_keys().collect()
    }

    /// How many are in hand.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Whether one of this fetcher's jobs is in hand.
    pub fn has_of(&self, fetcher: usize) -> bool {
        self.held.values().any(|held| held.fetcher == fetcher)
    }
}

fn work<H>(held: Held<H>, settled: Settled) -> Work<H> {
    Work {
        receipt: settled.receipt,
        handle: held.handle,
        lease_until: held.lease_until,
        settlement: settled.settlement,
        publishes: settled.publishes,
        published: 0,
        is_copied: false,
        fetcher: held.fetcher,
    }
}

/// Whether a lease is over.
pub fn has_run_out(lease_until: Option<Instant>, now: Instant) -> bool {
    lease_until.is_some_and(|until| until <= now)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn done(receipt: Receipt) -> Settled {
        Settled { receipt, settlement: Settlement::Done, publishes: Vec::new() }
    }

    #[allow(clippy::disallowed_methods, reason = "some moment to count from")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_lease_that_has_run_out_is_never_settled() {
        let (now, second) = (now(), Duration::from_secs(1));
        let mut ledger = Ledger::default();
        let late = ledger.take("a", Some(now + second), 0);
        let held = ledger.take("b", None, 0);
        assert!(matches!(ledger.settle(done(late), now + second), Step::Lost));
        assert!(matches!(ledger.settle(done(held), now + second), Step::Work(_)));
        assert!(matches!(ledger.settle(done(held), now), Step::Lost), "it is settled once");
        let third = ledger.take("c", Some(now + second), 0);
        assert_eq!(ledger.expire(now + second), [third]);
        assert_eq!(ledger.count(), 0);
    }

    #[test]
    fn a_settlement_waits_for_the_handle_that_a_renewal_brings() {
        let (now, second) = (now(), Duration::from_secs(1));
        let mut ledger = Ledger::default();
        let receipt = ledger.take("old", Some(now + second), 0);
        assert_eq!(ledger.renew(&[receipt], now), [(receipt, "old")]);
        assert!(ledger.renew(&[receipt], now).is_empty(), "one renewal at a time");
        assert!(matches!(ledger.settle(done(receipt), now), Step::Waits));
        let work = ledger.renewed(receipt, "new", now + 2 * second).expect("it waited");
        assert_eq!(work.handle, "new");
        assert_eq!(work.lease_until, Some(now + 2 * second));
    }

    #[test]
    fn receipts_are_never_used_twice() {
        let now = now();
        let mut ledger = Ledger::default();
        let first = ledger.take("a", None, 0);
        assert!(matches!(ledger.settle(done(first), now), Step::Work(_)));
        assert_ne!(ledger.take("a", None, 0), first);
    }
}
