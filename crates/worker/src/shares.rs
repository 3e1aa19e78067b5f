//! Shares: several processes use one target, and together no more than its rate.
//!
//! One process is the *granter* (it holds the exclusive consumer of [`queue`]); every process, the granter's too,
//! is a *holder*. A holder asks every [`ASK_EVERY`] and says how much it wishes; it gets a share, valid for the
//! lease. Three rules keep the sum of all shares that are in use at or below the rate, whatever is lost, late or
//! repeated, and whoever dies:
//!
//! 1. A holder counts the lease from before it asked. The granter counts it from when it answered, and 10 % longer:
//!    so no holder uses what the granter has forgotten, as long as their clocks run equally fast within 10 %.
//! 2. A holder is charged with the largest of its grants that have not run out, because it may not have heard of a
//!    smaller one yet.
//! 3. A new granter grants nothing for the time of one lease: what its predecessor granted has run out then.
//!
//! **Without a grant the rate is 0**: a process that cannot reach the broker starts nothing at this target. Half a
//! rate for everybody would be too much the moment one more process comes. A death of the granter so pauses the
//! target for the lease and the time to notice it, at most.
//!
//! Shares follow wishes: who wishes less than an equal part gets what it wishes, and the rest is parted among the
//! others. What nobody wishes is parted equally, so that an idle process can start at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::limits::SHARERS_MAX;

/// How often a holder asks.
pub const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a share is valid, if the settings do not say.
pub const LEASE: Duration = Duration::from_secs(3);
/// Asks that are out at a time, with the time when each was sent.
const ASKS_KEPT: usize = 16;

/// The queue (Redis: the hash) by which processes share the rate of a target.
pub fn queue(target: &str) -> String {
    format!("millrace.work.rate.{target}")
}

/// What a holder sends.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ask {
    /// Names the process: never used by two.
    pub worker: String,
    pub seq: u64,
    /// How much it could use, in runs per second.
    pub wish: f64,
}

/// What it gets.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Grant {
    /// The ask that it answers.
    pub seq: u64,
    /// Runs per second.
    pub rate: f64,
}

/// One process, as the granter knows it.
#[derive(Debug, Default)]
struct Sharer {
    wish: f64,
    /// What it may be using, each until when; newest last.
    grants: VecDeque<(f64, Instant)>,
    /// From when on it is forgotten.
    gone_at: Option<Instant>,
}

impl Sharer {
    fn charge(&self) -> f64 {
        if cfg!(bug_share_double_grant) {
            return self.grants.back().map_or(0.0, |(rate, _)| *rate);
        }
        self.grants.iter().fold(0.0, |most, (rate, _)| most.max(*rate))
    }
}

/// Parts a rate among those who ask. The rate, the lease and its own time are all it knows.
#[derive(Debug)]
pub struct Granter {
    rate: f64,
    lease: Duration,
    starts_at: Instant,
    sharers: BTreeMap<String, Sharer>,
}

/// The lease as the granter counts it.
fn counted(lease: Duration) -> Duration {
    lease + lease / 10
}

impl Granter {
    /// A granter that took over at `now`.
    pub fn new(rate: f64, lease: Duration, now: Instant) -> Self {
        assert!(rate >= 0.0 && rate.is_finite(), "a rate is a number of runs per second");
        let wait = if cfg!(bug_share_double_grant) { Duration::ZERO } else { counted(lease) };
        Self { rate, lease, starts_at: now + wait, sharers: BTreeMap::new() }
    }

    /// Answers an ask.
    pub fn ask(&mut self, ask: &Ask, now: Instant) -> Grant {
        let refused = Grant { seq: ask.seq, rate: 0.0 };
        self.forget(now);
        if self.sharers.len() >= SHARERS_MAX && !self.sharers.contains_key(&ask.worker) {
            return refused;
        }
        let until = now + counted(self.lease);
        let sharer = self.sharers.entry(ask.worker.clone()).or_default();
        sharer.wish = if ask.wish.is_finite() { ask.wish.max(0.0) } else { self.rate };
        sharer.gone_at = Some(until);
        if now < self.starts_at {
            return refused;
        }
        let others: f64 = self
            .sharers
            .iter()
            .filter(|(worker, _)| **worker != ask.worker)
            .map(|(_, sharer)| sharer.charge())
            .sum();
        let free = (self.rate - others).max(0.0);
        let rate = self.part(&ask.worker).min(free);
        let sharer = self.sharers.get_mut(&ask.worker).expect("it was just put in");
        sharer.grants.push_back((rate, until));
        let sum: f64 = self.sharers.values().map(Sharer::charge).sum();
        assert!(
            sum <= self.rate * (1.0 + 1e-9) || cfg!(bug_share_double_grant),
            "no more than the rate is granted"
        );
        Grant { seq: ask.seq, rate }
    }

    /// How many processes share.
    pub fn count(&self) -> usize {
        self.sharers.len()
    }

    fn forget(&mut self, now: Instant) {
        for sharer in self.sharers.values_mut() {
            sharer.grants.retain(|(_, until)| *until > now);
        }
        self.sharers.retain(|_, sharer| sharer.gone_at.is_some_and(|at| at > now));
    }

    /// The part of one process by everybody's wishes: what it wishes if that is less than an equal part of what
    /// is left, else that equal part; and an equal part of what nobody wishes.
    fn part(&self, of: &str) -> f64 {
        let mut wishes: Vec<(f64, &str)> =
            self.sharers.iter().map(|(worker, sharer)| (sharer.wish, worker.as_str())).collect();
        wishes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut left, mut count, mut part) = (self.rate, wishes.len() as f64, 0.0);
        let all = count;
        for (wish, worker) in wishes {
            let given = wish.min(left / count);
            if worker == of {
                part = given;
            }
            left -= given;
            count -= 1.0;
        }
        part + left.max(0.0) / all
    }
}

/// A process that uses shares.
#[derive(Debug)]
pub struct Holder {
    worker: String,
    lease: Duration,
    /// It never uses more, whatever is granted.
    rate_max: f64,
    seq: u64,
    asked: VecDeque<(u64, Instant)>,
    current: Option<Share>,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    seq: u64,
    rate: f64,
    until: Instant,
}

impl Holder {
    /// A holder with a name that no other has.
    pub fn new(worker: String, rate_max: f64, lease: Duration) -> Self {
        Self { worker, lease, rate_max, seq: 0, asked: VecDeque::new(), current: None }
    }

    /// The next ask. Call it before the ask is sent: the lease counts from here.
    pub fn ask(&mut self, wish: f64, now: Instant) -> Ask {
        self.seq += 1;
        self.asked.push_back((self.seq, now));
        if self.asked.len() > ASKS_KEPT {
            self.asked.pop_front();
        }
        Ask { worker: self.worker.clone(), seq: self.seq, wish }
    }

    /// An answer came. One that is late, repeated or older than another changes nothing.
    pub fn granted(&mut self, grant: Grant, now: Instant) {
        let asked = self.asked.iter().find(|(seq, _)| *seq == grant.seq);
        let Some(until) = asked.map(|(_, at)| *at + self.lease) else { return };
        let is_newer = self.current.is_none_or(|current| current.seq < grant.seq);
        if is_newer && until > now && grant.rate.is_finite() {
            let rate = grant.rate.clamp(0.0, self.rate_max);
            self.current = Some(Share { seq: grant.seq, rate, until });
        }
    }

    /// The rate that may be used now: 0 without a share.
    pub fn rate(&self, now: Instant) -> f64 {
        self.current.filter(|share| share.until > now).map_or(0.0, |share| share.rate)
    }

    /// When the share runs out, if no other comes.
    pub fn runs_out(&self) -> Option<Instant> {
        self.current.map(|share| share.until)
    }
}

#[cfg(test)]
mod tests;
