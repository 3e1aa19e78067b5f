//! Jobs come, and leave before they were started.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::held::{End, Held, HeldId, State};
use super::keys::Next;
use super::ready::Unit;
use super::verdict::cut;
use super::{Effect, Notice, PipelineId, Pool};
use crate::job::{Job, Message, Receipt};
use crate::limits::{ATTEMPTS_MAX, DELAY_MAX, DELIVERIES_MAX};
use crate::settlement::{Cause, Publish, Settled, Settlement};

impl Pool {
    /// A source has taken jobs.
    pub(super) fn took(
        &mut self,
        pipeline: PipelineId,
        jobs: Vec<Job>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let at = usize::from(pipeline.0);
        let one = &mut self.pipelines[at];
        one.granted = one.granted.saturating_sub(jobs.len());
        self.is_stopped_told = false;
        for job in jobs {
            let id = self.hold(pipeline, job, now);
            let held = self.held.at(id);
            let attempts_max = self.attempts_max(id);
            if held.message.attempt > attempts_max.max(DELIVERIES_MAX) {
                let attempt = held.message.attempt;
                let why = format!(
                    "it came out of its queue for attempt {attempt}, {attempts_max} are allowed, and no attempt has \
                     ended: it may kill its worker"
                );
                self.bury(id, why, effects);
            } else if self.is_refused(at, id, now) {
                self.send_back(id, Duration::ZERO, now);
            } else {
                self.queue(id, now);
            }
        }
    }

    /// Puts a job among those in hand. It waits, in no queue yet.
    fn hold(&mut self, pipeline: PipelineId, job: Job, now: Instant) -> HeldId {
        let Job { receipt, message, key, group, lease_until, published_ms: _ } = job;
        let bytes = message.body.len();
        let renew_at = lease_until.map(|until| now + until.saturating_duration_since(now) / 2);
        let id = self.held.insert(Held {
            pipeline,
            receipt,
            state: State::Waiting,
            message,
            bytes,
            key,
            group,
            taken_at: now,
            lease_until,
            renew_at,
            is_charged: false,
            is_rest: false,
            publishes: Vec::new(),
        });
        self.bytes_held += bytes;
        let one = &mut self.pipelines[usize::from(pipeline.0)];
        one.weigh(bytes);
        one.proof.taken += 1;
        one.waiting += 1;
        one.look_at_leases_by(renew_at);
        let before = one.receipts.insert(receipt, id);
        assert!(before.is_none(), "a source uses no receipt twice");
        id
    }

    /// Attempts that a job may have.
    pub(super) fn attempts_max(&self, id: HeldId) -> u32 {
        let held = self.held.at(id);
        let own = held.message.extras.as_ref().and_then(|extras| extras.attempts_max);
        let settings = &self.pipelines[usize::from(held.pipeline.0)].settings;
        own.unwrap_or(settings.attempts_max).clamp(1, ATTEMPTS_MAX)
    }

    /// True if a job that has not started should wait at its source.
    pub(super) fn is_refused(&self, at: usize, id: HeldId, now: Instant) -> bool {
        let pipeline = &self.pipelines[at];
        let target = &self.targets[pipeline.target];
        let is_ordered = pipeline.orders(self.held.at(id).key);
        (self.stop.is_some() && cfg!(not(bug_pool_starts_after_stop)))
            || target.stopped.is_some()
            || target.long_throttle(is_ordered, now).is_some()
    }

    /// Puts a waiting job behind the others.
    fn queue(&mut self, id: HeldId, now: Instant) {
        let held = self.held.at(id);
        let at = usize::from(held.pipeline.0);
        let (key, group) = (held.key, held.group);
        let pipeline = &mut self.pipelines[at];
        match key.filter(|key| pipeline.keys.holds(*key)) {
            Some(key) => {
                let next = pipeline.keys.push(key, id, now);
                self.heed(at, key, next, now);
            }
            None => pipeline.ready.push(Unit::Job(id), group, now),
        }
    }

    /// Does what the keys say.
    pub(super) fn heed(&mut self, at: usize, key: u64, next: Next, now: Instant) {
        match next {
            Next::Ready(first) => {
                let group = self.held.at(first).group;
                self.pipelines[at].ready.push(Unit::Key(key), group, now);
            }
            Next::Wait => {}
        }
    }

    /// A job that waits, and is in no queue any more, goes back to its source uncharged.
    ///
    /// An ordered job that has failed here goes back as it came, too: a copy would go behind its key's other jobs.
    /// Only where a copy must be, it waits `at_least` so long.
    pub(super) fn send_back(&mut self, id: HeldId, at_least: Duration, now: Instant) {
        let held = self.held.at(id);
        let pipeline = &self.pipelines[usize::from(held.pipeline.0)];
        let target = &self.targets[pipeline.target];
        let is_ordered = pipeline.orders(held.key);
        let attempt = held.message.attempt;
        let rest = held.is_rest.then(|| held.message.body.clone());
        let throttle = target.long_throttle(is_ordered, now).filter(|_| self.stop.is_none());
        let settlement = match throttle {
            Some(left) => Settlement::Later {
                after: left.max(at_least).min(DELAY_MAX),
                attempt,
                why: "the target takes nothing until then".into(),
                rest,
            },
            None if rest.is_some() => {
                Settlement::Later { after: at_least, attempt, why: "stopping".into(), rest }
            }
            None => Settlement::Return,
        };
        self.settle(id, settlement, Vec::new(), End::Returned);
    }

    /// All that wait go back, the oldest first.
    pub(super) fn send_all_back(
        &mut self,
        at: usize,
        is_wanted: impl Fn(&Held) -> bool,
        now: Instant,
    ) {
        let ids: Vec<HeldId> = self.pipelines[at]
            .receipts
            .values()
            .filter(|id| {
                let held = self.held.at(**id);
                held.state == State::Waiting && is_wanted(held)
            })
            .copied()
            .collect();
        for id in ids {
            // First out of the queues, then settled.
            self.held.at_mut(id).state = State::Leaving;
            self.pipelines[at].dropped.push(id);
        }
        let left = self.take_out_dropped(at, now);
        for id in left {
            self.send_back(id, Duration::ZERO, now);
        }
    }

    /// A job is dead.
    pub(super) fn bury(&mut self, id: HeldId, why: String, effects: &mut Vec<Effect>) {
        let held = self.held.at(id);
        let notice = Notice::JobDead {
            pipeline: held.pipeline,
            id: held.message.id.clone(),
            why: cut(why.clone()),
        };
        effects.push(Effect::Notice(notice));
        let settlement = Settlement::Dead { cause: Cause::Exhausted, why: cut(why) };
        self.settle(id, settlement, Vec::new(), End::Dead);
    }

    /// The source is to carry this out, at the end of the step. The job's content is let go.
    pub(super) fn settle(
        &mut self,
        id: HeldId,
        settlement: Settlement,
        mut publishes: Vec<Publish>,
        end: End,
    ) {
        let held = self.held.at_mut(id);
        let pipeline = &mut self.pipelines[usize::from(held.pipeline.0)];
        match held.state {
            State::Waiting | State::Leaving => pipeline.waiting -= 1,
            State::Running => pipeline.running -= 1,
            State::RunningLost | State::Settling(_) => unreachable!("it has an end already"),
        }
        if !held.publishes.is_empty() {
            publishes.splice(0..0, held.publishes.drain(..));
        }
        // It goes back with what it was charged here, although not for its last attempt.
        let is_charged = held.is_charged && matches!(settlement, Settlement::Later { .. });
        held.state = State::Settling(if is_charged { End::Retried } else { end });
        held.message = Message::default();
        held.renew_at = None;
        self.bytes_held -= std::mem::take(&mut held.bytes);
        pipeline.settled.push(Settled { receipt: held.receipt, settlement, publishes });
    }

    /// The source has carried out settlements.
    pub(super) fn settled(&mut self, pipeline: PipelineId, receipts: Vec<Receipt>) {
        let pipeline = &mut self.pipelines[usize::from(pipeline.0)];
        for receipt in receipts {
            let Some(id) = pipeline.receipts.get(&receipt).copied() else { continue };
            match self.held.at(id).state {
                State::Settling(end) => {
                    pipeline.receipts.remove(&receipt);
                    pipeline.proof.count(end);
                    self.held.remove(id);
                }
                State::Waiting | State::Running | State::RunningLost | State::Leaving => {}
            }
        }
    }

    /// The source has lost jobs.
    pub(super) fn lost(&mut self, pipeline: PipelineId, receipts: Vec<Receipt>, now: Instant) {
        let at = usize::from(pipeline.0);
        for receipt in receipts {
            let pipeline = &mut self.pipelines[at];
            let Some(id) = pipeline.receipts.get(&receipt).copied() else { continue };
            let held = self.held.at_mut(id);
            match held.state {
                State::Waiting => {
                    held.state = State::Leaving;
                    pipeline.dropped.push(id);
                }
                State::Running => {
                    held.state = State::RunningLost;
                    pipeline.receipts.remove(&receipt);
                    pipeline.running_lost += 1;
                    pipeline.proof.lost += 1;
                }
                State::Settling(_) => self.forget_lost(id),
                State::RunningLost | State::Leaving => {}
            }
        }
        for id in self.take_out_dropped(at, now) {
            self.forget_lost(id);
        }
    }

    /// A job in no queue, that does not run, is lost.
    pub(super) fn forget_lost(&mut self, id: HeldId) {
        let held = self.held.remove(id);
        let pipeline = &mut self.pipelines[usize::from(held.pipeline.0)];
        pipeline.receipts.remove(&held.receipt);
        pipeline.proof.lost += 1;
        self.bytes_held -= held.bytes;
        match held.state {
            State::Waiting | State::Leaving => pipeline.waiting -= 1,
            State::Running | State::RunningLost => unreachable!("what runs has its place"),
            State::Settling(_) => {}
        }
    }

    /// Takes the jobs that are leaving out of all queues of a pipeline, in one go.
    pub(super) fn take_out_dropped(&mut self, at: usize, now: Instant) -> Vec<HeldId> {
        let pipeline = &mut self.pipelines[at];
        let dropped = std::mem::take(&mut pipeline.dropped);
        if dropped.is_empty() {
            return dropped;
        }
        let held = &self.held;
        let is_leaving = |id: HeldId| held.at(id).state == State::Leaving;
        let keys: BTreeSet<u64> = dropped.iter().filter_map(|id| held.at(*id).key).collect();
        pipeline.parked.retain(|(_, id)| !is_leaving(*id));
        pipeline.ready.retain(|unit| match unit {
            Unit::Job(id) => !is_leaving(id),
            // The first job of the key may be another now, of another group.
            Unit::Key(key) => !keys.contains(&key),
        });
        let mut ready = Vec::new();
        pipeline.keys.retain(&keys, now, |id| !is_leaving(id), |key, id| ready.push((key, id)));
        for (key, id) in ready {
            self.heed(at, key, Next::Ready(id), now);
        }
        dropped
    }
}
