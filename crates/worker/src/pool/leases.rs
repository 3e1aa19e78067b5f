//! Leases: made longer when half of them is over, for as long as the job waits or runs.
//!
//! No job has a timer of its own. The jobs of a pipeline are looked at together when the first of them is due, and
//! those that are due soon are renewed with it; so they are looked at a few times per lease, however many there are.

use std::time::{Duration, Instant};

use super::held::State;
use super::{PipelineId, Pool};
use crate::job::Receipt;

/// The leases of a pipeline are not looked at more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Pool {
    /// Renews what is due, and drops what waits and has expired.
    pub(super) fn look_at_leases(&mut self, at: usize, now: Instant) {
        if self.pipelines[at].look_at_leases_at.is_none_or(|due| due > now) {
            return;
        }
        let pipeline = &mut self.pipelines[at];
        let mut next: Option<Instant> = None;
        for (receipt, id) in &pipeline.receipts {
            let held = self.held.at_mut(*id);
            let Some(until) = held.lease_until else { continue };
            let is_waiting = match held.state {
                State::Waiting => true,
                State::Running => false,
                State::RunningLost | State::Settling(_) | State::Leaving => continue,
            };
            if until <= now {
                if is_waiting && cfg!(not(bug_pool_expired_starts)) {
                    held.state = State::Leaving;
                    pipeline.dropped.push(*id);
                }
                continue;
            }
            let left = until - now;
            if held.renew_at.is_some_and(|due| due <= now + left / 4) {
                pipeline.renew.push(*receipt);
                // Asked again when half of the rest is over, should no answer come.
                held.renew_at = (left / 2 >= LOOK_EVERY).then(|| now + left / 2);
            }
            let due = held.renew_at.unwrap_or(until);
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        pipeline.look_at_leases_at = next.map(|due| due.max(now + LOOK_EVERY));
        for id in self.take_out_dropped(at, now) {
            self.forget_lost(id);
        }
    }

    /// Leases were made longer.
    pub(super) fn renewed(
        &mut self,
        pipeline: PipelineId,
        leases: Vec<(Receipt, Instant)>,
        now: Instant,
    ) {
        let pipeline = &mut self.pipelines[usize::from(pipeline.0)];
        for (receipt, until) in leases {
            let Some(id) = pipeline.receipts.get(&receipt) else { continue };
            let held = self.held.at_mut(*id);
            if matches!(held.state, State::Waiting | State::Running) {
                held.lease_until = Some(until);
                held.renew_at = Some(now + until.saturating_duration_since(now) / 2);
                let due = held.renew_at;
                pipeline.look_at_leases_by(due);
            }
        }
    }
}
