//! One target as the pool sees it: whether another run may start.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::breaker::{Breaker, Sign, Turn};
use super::bucket::{Bucket, usual_burst};
use super::settings::TargetSettings;
use crate::limits::{HOLD_MAX, HOLD_ORDERED_MAX};
use crate::outcome::Outcome;

/// How many attempts ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub done: u64,
    pub retry: u64,
    pub throttle: u64,
    pub token_dead: u64,
    pub reject: u64,
    pub config: u64,
}

impl Outcomes {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Done { .. } => self.done += 1,
            Outcome::Retry { .. } => self.retry += 1,
            Outcome::Throttle { .. } => self.throttle += 1,
            Outcome::TokenDead { .. } => self.token_dead += 1,
            Outcome::Reject { .. } => self.reject += 1,
            Outcome::Config { .. } => self.config += 1,
        }
    }
}

/// A target's state.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) settings: TargetSettings,
    /// Its pipelines, those of the highest priority first.
    pub(super) pipelines: Vec<usize>,
    /// Where the shares of each priority stand: the pass of the pipeline that started last.
    pub(super) passes: BTreeMap<u8, u64>,
    pub(super) running: usize,
    bucket: Option<Bucket>,
    /// What this process may use of the rate; none: all that is set.
    share: Option<f64>,
    pub(super) breaker: Breaker,
    throttled_until: Option<Instant>,
    /// Why it has stopped, until it is mended.
    pub(super) stopped: Option<String>,
    /// When something that waits may start.
    pub(super) wake_at: Option<Instant>,
    pub(super) outcomes: Outcomes,
}

impl Target {
    pub(super) fn new(settings: TargetSettings, pipelines: Vec<usize>) -> Self {
        Self {
            settings,
            pipelines,
            passes: BTreeMap::new(),
            running: 0,
            bucket: None,
            share: None,
            breaker: Breaker::NEW,
            throttled_until: None,
            stopped: None,
            wake_at: None,
            outcomes: Outcomes::default(),
        }
    }

    /// When another run may start; none: time alone does not help. The rate's token is still to be taken.
    pub(super) fn may_start_at(&mut self, now: Instant) -> Option<Instant> {
        if self.stopped.is_some() || self.running >= self.settings.concurrency {
            return None;
        }
        let healthy = self.breaker.opens_way_at(now)?;
        let allowed = match &mut self.bucket {
            Some(bucket) => bucket.ready_at(now)?,
            None => now,
        };
        Some(healthy.max(allowed).max(self.throttled_until.unwrap_or(now)))
    }

    /// A run starts. True if it is the one that tries whether the target is well again.
    pub(super) fn start(&mut self, now: Instant) -> bool {
        if let Some(bucket) = &mut self.bucket {
            let has_token = bucket.take(now);
            assert!(has_token, "a run starts only when the target's rate allows one");
        }
        self.running += 1;
        self.breaker.start()
    }

    /// A run is over.
    pub(super) fn finish(&mut self, sign: Sign, was_trying: bool, now: Instant) -> Turn {
        assert!(self.running > 0, "a run that ends was counted when it started");
        self.running -= 1;
        self.breaker.end(&self.settings.breaker, sign, was_trying, now)
    }

    /// Nothing starts until then. True if that is news.
    pub(super) fn throttle(&mut self, until: Instant, now: Instant) -> bool {
        let was_throttled = self.throttled_until.is_some_and(|until| until > now);
        self.throttled_until = self.throttled_until.max(Some(until));
        !was_throttled && until > now
    }

    /// How long it is throttled, where that is too long to wait here.
    pub(super) fn long_throttle(&self, is_ordered: bool, now: Instant) -> Option<Duration> {
        let left = self.throttled_until?.saturating_duration_since(now);
        let most = if is_ordered { HOLD_ORDERED_MAX } else { HOLD_MAX };
        (left > most).then_some(left)
    }

    /// Jobs that it makes sense to take while nothing waits; none: no limit.
    pub(super) fn takes(&self, now: Instant) -> Option<usize> {
        if self.stopped.is_some() || self.long_throttle(false, now).is_some() {
            return Some(0);
        }
        match self.breaker {
            Breaker::Closed { .. } => None,
            Breaker::Open { until } => Some(usize::from(until <= now)),
            Breaker::HalfOpen { is_trying } => Some(usize::from(!is_trying)),
        }
    }

    /// When `takes` changes by itself.
    pub(super) fn takes_again_at(&self, now: Instant) -> Option<Instant> {
        let open = match self.breaker {
            Breaker::Open { until } => Some(until),
            Breaker::Closed { .. } | Breaker::HalfOpen { .. } => None,
        };
        // A throttle counts until it is short enough to wait for.
        let throttled = self.throttled_until.and_then(|until| until.checked_sub(HOLD_MAX));
        [open, throttled].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// May use this much of the rate from now on; none: all that is set.
    pub(super) fn share(&mut self, share: Option<f64>, now: Instant) {
        self.share = share;
        self.share_again(now);
    }

    /// Uses the rate that follows from the settings and the share.
    ///
    /// The burst shrinks with the rate, but not below 2 where it was 2: with 1, every late timer would cost
    /// a part of the rate.
    pub(super) fn share_again(&mut self, now: Instant) {
        let set = self.settings.rate;
        let Some(rate) = self.share.into_iter().chain(set).min_by(f64::total_cmp) else {
            self.bucket = None;
            return;
        };
        let burst = match set {
            // Without a share nothing starts, not even what was saved up.
            _ if rate <= 0.0 => 0,
            Some(all) => {
                let burst = self.settings.burst.unwrap_or_else(|| usual_burst(all));
                // Not above the set one, whatever a float makes of it.
                ((f64::from(burst) * rate / all).ceil() as u32).clamp(burst.min(2), burst)
            }
            None => usual_burst(rate),
        };
        match &mut self.bucket {
            Some(bucket) => bucket.change(rate, burst, now),
            None => self.bucket = Some(Bucket::full(rate, burst, now)),
        }
    }

    /// Runs per second that it may start; none: no limit.
    pub(super) fn rate(&self) -> Option<f64> {
        self.bucket.as_ref().map(Bucket::rate)
    }

    pub(super) fn throttled_until(&self) -> Option<Instant> {
        self.throttled_until
    }
}
