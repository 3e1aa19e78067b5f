//! The keys of one pipeline that limit something: order, jobs at once, rate, a throttle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use super::bucket::{Bucket, usual_burst};
use super::held::HeldId;
use super::settings::{Order, PipelineSettings};

/// What each key of a pipeline is limited to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Jobs at once.
    pub(super) concurrency: usize,
    /// Jobs per second, and at once after a pause.
    rate: Option<(f64, u32)>,
    /// Every key is in the table, not just those that were throttled.
    pub(super) is_every_key_limited: bool,
}

impl Limits {
    pub(super) fn of(settings: &PipelineSettings) -> Self {
        let is_ordered = settings.order == Order::Key;
        let concurrency = match settings.key_concurrency {
            _ if is_ordered => 1,
            0 => usize::MAX,
            set => set,
        };
        let rate = settings
            .key_rate
            .map(|rate| (rate, settings.key_burst.unwrap_or_else(|| usual_burst(rate))));
        let is_every_key_limited = concurrency != usize::MAX || rate.is_some();
        Self { concurrency, rate, is_every_key_limited }
    }
}

/// One key.
#[derive(Debug, Default)]
pub(super) struct Key {
    waiting: VecDeque<HeldId>,
    running: usize,
    bucket: Option<Bucket>,
    /// Throttled, or its first job waits for its next attempt.
    blocked_until: Option<Instant>,
    /// Its place in the alarms.
    alarm: Option<Instant>,
    /// It is among the ready ones, once.
    is_ready: bool,
}

/// What is to be done with a key after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Its first job may start: put it among the ready ones.
    Ready(HeldId),
    /// Nothing now.
    Wait,
}

/// The keys of one pipeline. A key is here while it has a job in hand, is blocked, or remembers a rate.
#[derive(Debug)]
pub(super) struct Keys {
    limits: Limits,
    keys: BTreeMap<u64, Key>,
    /// When to look at a key again.
    alarms: BTreeSet<(Instant, u64)>,
}

impl Keys {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, keys: BTreeMap::new(), alarms: BTreeSet::new() }
    }

    /// Other limits from now on: what follows for each key.
    pub(super) fn change(&mut self, limits: Limits, now: Instant) -> Vec<(u64, Next)> {
        self.limits = limits;
        for key in self.keys.values_mut() {
            match (&mut key.bucket, limits.rate) {
                (Some(bucket), Some((rate, burst))) => bucket.change(rate, burst, now),
                (bucket, None) => *bucket = None,
                (None, Some(_)) => {}
            }
        }
        let keys: Vec<u64> = self.keys.keys().copied().collect();
        keys.into_iter().map(|key| (key, self.look(key, now))).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// True if a job of this key has to queue here.
    pub(super) fn holds(&self, key: u64) -> bool {
        self.limits.is_every_key_limited || (!self.keys.is_empty() && self.keys.contains_key(&key))
    }

    /// A job comes, behind the others of its key.
    pub(super) fn push(&mut self, key: u64, job: HeldId, now: Instant) -> Next {
        self.keys.entry(key).or_default().waiting.push_back(job);
        self.look(key, now)
    }

    /// A job that ran waits again, before the others of its key, and no job of it starts until then.
    pub(super) fn again(&mut self, key: u64, job: HeldId, until: Instant, now: Instant) -> Next {
        let found = self.keys.entry(key).or_default();
        found.running = found.running.saturating_sub(1);
        if cfg!(bug_pool_key_overtaken) {
            found.waiting.push_back(job);
        } else {
            found.waiting.push_front(job);
        }
        found.blocked_until = found.blocked_until.max(Some(until));
        self.look(key, now)
    }

    /// The key's turn has come: the job that may start, if it `fits` the run. Look at the key afterwards.
    pub(super) fn pop(
        &mut self,
        key: u64,
        now: Instant,
        fits: impl Fn(HeldId) -> bool,
    ) -> Option<HeldId> {
        let found = self.keys.get_mut(&key)?;
        found.is_ready = false;
        let first = *found.waiting.front()?;
        let is_free = found.running < self.limits.concurrency
            && found.free_at(&self.limits, now)? <= now
            && fits(first);
        if !is_free {
            return None;
        }
        found.waiting.pop_front()
    }

    /// A job of the key starts.
    pub(super) fn start(&mut self, key: u64, now: Instant) {
        if let Some(found) = self.keys.get_mut(&key) {
            found.running += 1;
            if let Some(bucket) = &mut found.bucket {
                let has_token = bucket.take(now);
                assert!(has_token, "a key starts a job only when its rate allows one");
            }
        }
    }

    /// A job of the key does not run any more.
    pub(super) fn finish(&mut self, key: u64, now: Instant) -> Next {
        if let Some(found) = self.keys.get_mut(&key) {
            // It may have started before its key was throttled, and so before the key was here.
            found.running = found.running.saturating_sub(1);
        }
        self.look(key, now)
    }

    /// Nothing of the key starts until then.
    pub(super) fn block(&mut self, key: u64, until: Instant, now: Instant) -> Next {
        let found = self.keys.entry(key).or_default();
        found.blocked_until = found.blocked_until.max(Some(until));
        self.look(key, now)
    }

    /// Looks at a key again, after a change or a pause.
    pub(super) fn look(&mut self, key: u64, now: Instant) -> Next {
        let Some(found) = self.keys.get_mut(&key) else { return Next::Wait };
        if let Some((rate, burst)) = self.limits.rate {
            found.bucket.get_or_insert_with(|| Bucket::full(rate, burst, now));
        }
        let at = match found.waiting.front().copied() {
            Some(_) if found.is_ready || found.running >= self.limits.concurrency => None,
            Some(first) => match found.free_at(&self.limits, now) {
                Some(at) if at <= now => {
                    found.is_ready = true;
                    return Next::Ready(first);
                }
                later => later,
            },
            None if found.running > 0 || found.is_ready => None,
            None => match found.idle_at(now) {
                Some(at) if at <= now => {
                    self.forget(key);
                    return Next::Wait;
                }
                later => later,
            },
        };
        if let Some(at) = at {
            self.set_alarm(key, at);
        }
        Next::Wait
    }

    /// The first key to be looked at again, if its time has come.
    pub(super) fn next_alarm(&mut self, now: Instant) -> Option<u64> {
        let (at, key) = *self.alarms.first().filter(|(at, _)| *at <= now)?;
        self.alarms.remove(&(at, key));
        self.keys.get_mut(&key).expect("an alarm is about a key that is here").alarm = None;
        Some(key)
    }

    pub(super) fn alarm_at(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Forgets the waiting jobs of these keys that `keep` does not want.
    pub(super) fn retain(
        &mut self,
        keys: &BTreeSet<u64>,
        now: Instant,
        keep: impl Fn(HeldId) -> bool,
        mut ready: impl FnMut(u64, HeldId),
    ) {
        for key in keys {
            if let Some(found) = self.keys.get_mut(key) {
                found.waiting.retain(|job| keep(*job));
                found.is_ready = false;
                if let Next::Ready(first) = self.look(*key, now) {
                    ready(*key, first);
                }
            }
        }
    }

    fn set_alarm(&mut self, key: u64, at: Instant) {
        let found = self.keys.get_mut(&key).expect("the key was just looked at");
        if found.alarm == Some(at) {
            return;
        }
        if let Some(old) = found.alarm.replace(at) {
            self.alarms.remove(&(old, key));
        }
        self.alarms.insert((at, key));
    }

    fn forget(&mut self, key: u64) {
        let found = self.keys.remove(&key).expect("the key was just looked at");
        if let Some(at) = found.alarm {
            self.alarms.remove(&(at, key));
        }
    }
}

impl Key {
    /// When the next job may start, as far as time matters; none: not by waiting.
    fn free_at(&mut self, limits: &Limits, now: Instant) -> Option<Instant> {
        let unblocked = self.blocked_until.unwrap_or(now);
        match (&mut self.bucket, limits.rate) {
            (Some(bucket), Some(_)) => Some(bucket.ready_at(now)?.max(unblocked)),
            (Some(_) | None, _) => Some(unblocked),
        }
    }

    /// When the key can be forgotten, if no job comes.
    fn idle_at(&mut self, now: Instant) -> Option<Instant> {
        let unblocked = self.blocked_until.unwrap_or(now);
        match &mut self.bucket {
            Some(bucket) => Some(bucket.full_at(now)?.max(unblocked)),
            None => Some(unblocked),
        }
    }
}
