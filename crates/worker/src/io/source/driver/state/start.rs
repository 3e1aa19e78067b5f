//! Which calls may start now.

use std::time::Instant;

use super::{Driver, EXPIRE_EVERY, Life, Phase};
use crate::io::source::driver::{Batch, Entry, Queue};
use crate::source::ledger::has_run_out;

impl<Q: Queue> Driver<Q> {
    /// Starts every call that may start.
    pub(super) async fn advance(&mut self, now: Instant) {
        if self.expire_at <= now {
            self.expire_at = now + EXPIRE_EVERY;
            let over = self.ledger.expire(now);
            self.lost(over).await;
        }
        match self.phase {
            Phase::Shut { open_at } if open_at <= now => {
                self.phase = Phase::Opening;
                self.calls.open();
            }
            Phase::Shut { .. } | Phase::Opening => {}
            Phase::Open => {
                self.start_settling(now);
                self.start_renewing(now);
                self.start_upkeep(now);
                self.start_fetching();
            }
        }
    }

    fn start_settling(&mut self, now: Instant) {
        if !self.held_back.is_empty() && (self.held_back_until <= now || self.is_closing()) {
            self.due.append(&mut self.held_back);
            self.due_since.get_or_insert(now);
        }
        for settler in 0..self.settlers.len() {
            if self.settlers[settler].is_busy {
                continue;
            }
            let Some(mut batch) = self.batch(settler, now) else { continue };
            for entry in &mut batch.works {
                entry.is_over |= has_run_out(entry.work.lease_until, now);
            }
            self.settlers[settler].is_busy = true;
            self.calls.settle(settler, batch);
        }
    }

    /// What this settler has to carry out now.
    fn batch(&mut self, settler: usize, now: Instant) -> Option<Batch<Q::Handle>> {
        if let Some(batch) = self.settlers[settler].unanswered.take() {
            return Some(batch);
        }
        let since = self.due_since?;
        let is_full = self.due.len() >= self.pace.settle_max;
        if !is_full && now < since + self.pace.settle_after && !self.is_closing() {
            return None;
        }
        let count = self.due.len().min(self.pace.settle_max);
        let works = self.due.drain(..count).map(|work| Entry { work, is_over: false }).collect();
        if self.due.is_empty() {
            self.due_since = None;
        }
        self.settlers[settler].number += 1;
        Some(Batch { number: self.settlers[settler].number, works })
    }

    fn start_renewing(&mut self, now: Instant) {
        if self.is_renewing || self.to_renew.is_empty() {
            return;
        }
        let receipts = std::mem::take(&mut self.to_renew);
        let jobs = self.ledger.renew(&receipts, now);
        if !jobs.is_empty() {
            self.is_renewing = true;
            self.calls.renew(jobs);
        }
    }

    fn start_upkeep(&mut self, now: Instant) {
        if self.is_upkeeping || self.upkeep_at > now || self.is_closing() {
            return;
        }
        self.is_upkeeping = true;
        self.calls.upkeep();
    }

    fn start_fetching(&mut self) {
        if self.life != Life::Running {
            return;
        }
        let mut waiting = Vec::new();
        while self.room > 0
            && let Some(fetcher) = self.fetchers.pop()
        {
            if self.pace.is_synchronous && self.open_jobs.values().any(|of| *of == fetcher) {
                waiting.push(fetcher);
                continue;
            }
            // Several fetchers share what little room there is.
            let share = self.room.div_ceil(self.fetchers.len() + 1);
            let granted = share.min(self.pace.fetch_max);
            self.room -= granted;
            self.fetching += 1;
            self.calls.fetch(fetcher, granted);
        }
        self.fetchers.append(&mut waiting);
    }
}
