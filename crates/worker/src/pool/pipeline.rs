//! One pipeline as the pool sees it: its jobs, and how many more it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use client::Backoff;

use super::held::{End, HeldId};
use super::keys::{Keys, Limits};
use super::ready::Ready;
use super::settings::{Order, PipelineSettings};
use crate::job::Receipt;
use crate::limits::KEYS_MAX;
use crate::settlement::Settled;

/// What has become of the jobs that were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    pub taken: u64,
    /// Executed with success.
    pub done: u64,
    /// Gone back to the source as they came, or after a throttle: no attempt charged.
    pub returned: u64,
    /// Gone back to the source for another attempt.
    pub retried: u64,
    /// Set aside with their reason.
    pub dead: u64,
    /// Somebody else gets them: the lease or the connection was lost.
    pub lost: u64,
}

impl Proof {
    /// Those whose end is known.
    pub fn ended(&self) -> u64 {
        self.done + self.returned + self.retried + self.dead + self.lost
    }

    /// True if every job that was taken has an end.
    pub fn holds(&self) -> bool {
        self.taken == self.ended()
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            done: self.done + other.done,
            returned: self.returned + other.returned,
            retried: self.retried + other.retried,
            dead: self.dead + other.dead,
            lost: self.lost + other.lost,
        }
    }

    pub(super) fn count(&mut self, end: End) {
        match end {
            End::Done => self.done += 1,
            End::Returned => self.returned += 1,
            End::Retried => self.retried += 1,
            End::Dead => self.dead += 1,
        }
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, done, returned, retried, dead, lost } = self;
        write!(
            out,
            "taken {taken} = done {done} + returned {returned} + retried {retried} + dead {dead} + lost {lost}"
        )?;
        match taken - self.ended() {
            0 => Ok(()),
            left => write!(out, " + in hand {left}"),
        }
    }
}

/// A pipeline's state.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) settings: PipelineSettings,
    pub(super) target: usize,
    pub(super) backoff: Backoff,
    /// Every job in hand is in exactly one of `ready`, a key of `keys`, `parked`, a run, or the source's hands.
    pub(super) ready: Ready,
    pub(super) keys: Keys,
    /// Jobs without a key that are throttled alone, and until when.
    pub(super) parked: BTreeSet<(Instant, HeldId)>,
    /// Where the jobs in hand are, but for those that run and are lost.
    pub(super) receipts: BTreeMap<Receipt, HeldId>,
    /// Room that the source has, and has not used.
    pub(super) granted: usize,
    /// Jobs that wait, run (the lost ones as well), and run although they are lost.
    pub(super) waiting: usize,
    pub(super) running: usize,
    pub(super) running_lost: usize,
    pub(super) runs: usize,
    pub(super) is_paused: bool,
    /// Stride scheduling: the pipeline with the lowest pass starts next.
    pub(super) pass: u64,
    pub(super) look_at_leases_at: Option<Instant>,
    /// Jobs that leave unstarted, and are to be taken out of the queues.
    pub(super) dropped: Vec<HeldId>,
    pub(super) proof: Proof,
    /// Of the bodies lately, for how much room the bytes allow.
    mean_bytes: usize,
    /// What the source is told at the end of the step.
    pub(super) settled: Vec<Settled>,
    pub(super) renew: Vec<Receipt>,
}

impl Pipeline {
    pub(super) fn new(
        settings: PipelineSettings,
        target: usize,
        run_jobs_max: usize,
        linger: Duration,
    ) -> Self {
        let backoff = Backoff { first: settings.backoff.0, longest: settings.backoff_max.0 };
        Self {
            ready: Ready::new(run_jobs_max, linger),
            keys: Keys::new(Limits::of(&settings)),
            settings,
            target,
            backoff,
            parked: BTreeSet::new(),
            receipts: BTreeMap::new(),
            granted: 0,
            waiting: 0,
            running: 0,
            running_lost: 0,
            runs: 0,
            is_paused: false,
            pass: 0,
            look_at_leases_at: None,
            dropped: Vec::new(),
            proof: Proof::default(),
            mean_bytes: 0,
            settled: Vec::new(),
            renew: Vec::new(),
        }
    }

    /// Jobs in hand: waiting, running, or not yet settled.
    pub(super) fn held(&self) -> usize {
        self.receipts.len() + self.running_lost
    }

    /// True if a run may start as far as this pipeline is concerned.
    pub(super) fn has_work(&self) -> bool {
        !self.is_paused && self.runs < self.settings.concurrency && !self.ready.is_empty()
    }

    /// True if this job must not be overtaken by others of its key.
    pub(super) fn orders(&self, key: Option<u64>) -> bool {
        key.is_some() && self.settings.order == Order::Key
    }

    /// The leases have to be looked at by then.
    pub(super) fn look_at_leases_by(&mut self, at: Option<Instant>) {
        self.look_at_leases_at = self.look_at_leases_at.into_iter().chain(at).min();
    }

    /// Counts a body, for how much room the bytes allow.
    pub(super) fn weigh(&mut self, bytes: usize) {
        // A moving mean over about 16 jobs, and never below the truth by much after a large one.
        self.mean_bytes = (self.mean_bytes * 15 + bytes).div_ceil(16);
    }

    /// Bytes that the room given out may bring.
    pub(super) fn expected_bytes(&self) -> usize {
        self.granted.saturating_mul(self.mean_bytes)
    }

    /// How many jobs more the source may take. `bytes_left`: of those that nobody holds, and no room given out
    /// will bring. A source without room gets room for one job even if there are none of these: others may not
    /// use theirs for long.
    pub(super) fn room(&self, takes: Option<usize>, bytes_left: usize) -> usize {
        let buffer = self.settings.buffer_jobs();
        let held = if cfg!(bug_pool_room_unbounded) { self.waiting } else { self.held() };
        let keys_left = KEYS_MAX.saturating_sub(self.keys.count());
        let free = buffer.saturating_sub(held).min(keys_left).saturating_sub(self.granted);
        let fitting = bytes_left / self.mean_bytes.max(1);
        let free = free.min(fitting.max(usize::from(self.granted == 0)));
        match takes {
            Some(most) => free.min(most.saturating_sub(self.waiting + self.granted)),
            // Room by the handful, so that the source can take many jobs at once.
            None if self.granted > 0 && free * 4 < buffer => 0,
            None => free,
        }
    }
}
