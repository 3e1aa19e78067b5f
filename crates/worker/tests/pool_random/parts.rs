//! What is known of one pipeline and of one target, from the outside.

use std::collections::BTreeMap;
use std::time::Instant;

use worker::pool::{Order, PipelineSettings, Proof, RunId, TargetSettings};
use worker::{Message, Outcome, Receipt, Scope};

use crate::rates::{Level, usual_burst};
use crate::rules::{Held, State};

#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) settings: PipelineSettings,
    pub(crate) target: usize,
    pub(crate) held: BTreeMap<Receipt, Held>,
    pub(crate) granted: usize,
    pub(crate) runs: usize,
    pub(crate) is_paused: bool,
    pub(crate) keys: BTreeMap<u64, Level>,
    pub(crate) blocked: BTreeMap<u64, Instant>,
    pub(crate) proof: Proof,
}

impl Pipeline {
    pub(crate) fn is_ordered(&self, key: Option<u64>) -> bool {
        key.is_some() && self.settings.order == Order::Key
    }
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) settings: TargetSettings,
    pub(crate) runs: usize,
    pub(crate) level: Option<Level>,
    pub(crate) throttled_until: Option<Instant>,
    pub(crate) is_stopped: bool,
    pub(crate) failures: u32,
    pub(crate) open_until: Option<Instant>,
    pub(crate) trying: Option<RunId>,
}

impl Pipeline {
    pub(crate) fn lose(&mut self, receipt: Receipt) {
        let Some(held) = self.held.get_mut(&receipt) else { return };
        if held.is_lost {
            return;
        }
        self.proof.lost += 1;
        if held.state == State::Running {
            held.is_lost = true;
        } else {
            self.held.remove(&receipt);
        }
    }

    pub(crate) fn started(&mut self, now: Instant, receipt: Receipt, job: &Message) {
        if matches!(self.held[&receipt].state, State::Ended(_)) {
            self.waits_again(now, receipt);
        }
        let held = &self.held[&receipt];
        assert_eq!(held.state, State::Waiting, "{receipt:?} starts");
        assert!(!held.is_lost, "{receipt:?} is lost and starts");
        assert!(held.lease_until.is_none_or(|until| until > now), "a job starts after its lease");
        assert_eq!(job.attempt, held.attempt, "the attempt that the job is told");
        assert!(held.not_before.is_none_or(|at| at <= now), "a job starts before its time");
        if let Some(rest) = &held.rest {
            assert_eq!(&job.body, rest, "what is done is done again");
        }
        if let Some(key) = held.key {
            assert!(self.blocked.get(&key).is_none_or(|until| *until <= now), "a throttled key");
            self.key_started(now, receipt, key);
        }
        self.held.get_mut(&receipt).unwrap().state = State::Running;
    }

    pub(crate) fn key_started(&mut self, now: Instant, receipt: Receipt, key: u64) {
        let same = |held: &Held| held.key == Some(key);
        let running =
            self.held.values().filter(|held| same(held) && held.state == State::Running).count();
        if self.settings.order == Order::Key {
            let is_earlier = |held: &Held| {
                same(held)
                    && !matches!(held.state, State::Settled(_))
                    && held
                        .lease_until
                        .is_none_or(|until| until > now || held.state == State::Running)
            };
            let earlier = self.held.range(..receipt).find(|(_, held)| is_earlier(held));
            assert!(earlier.is_none(), "{receipt:?} overtakes {earlier:?}");
            assert_eq!(running, 0, "two jobs of an ordered key run");
        }
        let most = self.settings.key_concurrency;
        assert!(most == 0 || running < most, "more jobs of a key than its concurrency");
        if let Some(rate) = self.settings.key_rate {
            let burst = self.settings.key_burst.map_or_else(|| usual_burst(rate), f64::from);
            let level = self.keys.entry(key).or_insert_with(|| Level::new(rate, burst, now));
            assert!(level.take(now), "a key is above its rate: {level:?}");
        }
    }

    /// A job that ran was not settled: it waits in the pool.
    pub(crate) fn waits_again(&mut self, now: Instant, receipt: Receipt) {
        let is_ordered = self.is_ordered(self.held[&receipt].key);
        let held = self.held.get_mut(&receipt).unwrap();
        let State::Ended(outcome) = std::mem::replace(&mut held.state, State::Waiting) else {
            panic!("it has ended")
        };
        match outcome {
            Outcome::Retry { after, rest, .. } if is_ordered => {
                held.attempt += 1;
                held.not_before = after.map(|after| now + after);
                if let Some(rest) = rest {
                    held.bytes = rest.len();
                    held.rest = Some(rest);
                }
            }
            Outcome::Throttle { scope: Scope::Target, .. } => {}
            Outcome::Throttle { scope: Scope::Key, until, .. } => {
                held.not_before = Some(now + until)
            }
            other => panic!("{receipt:?} has ended with {other:?}, and is not settled"),
        }
    }
}

impl Target {
    pub(crate) fn started(&mut self, now: Instant, id: RunId) {
        assert!(!self.is_stopped, "a run starts at a target that has stopped");
        assert!(self.throttled_until.is_none_or(|until| until <= now), "a throttled target");
        self.runs += 1;
        assert!(self.runs <= self.settings.concurrency, "more runs than the target's concurrency");
        if let Some(level) = &mut self.level {
            assert!(level.take(now), "a target is above its rate: {level:?}");
        }
        if let Some(until) = self.open_until {
            assert!(until <= now, "a run starts while the breaker is open");
            assert!(self.trying.is_none(), "two runs try");
            self.trying = Some(id);
        }
    }

    pub(crate) fn share(&mut self, share: Option<f64>, now: Instant) {
        let set = self.settings.rate;
        let Some(rate) = share.into_iter().chain(set).min_by(f64::total_cmp) else {
            self.level = None;
            return;
        };
        let burst = match set {
            _ if rate <= 0.0 => 0.0,
            Some(all) => {
                let burst = self.settings.burst.map_or_else(|| usual_burst(all), f64::from);
                (burst * rate / all).ceil().clamp(burst.min(2.0), burst)
            }
            None => usual_burst(rate),
        };
        let level = self.level.get_or_insert_with(|| Level::new(rate, burst, now));
        level.change(rate, burst, now);
    }
}
