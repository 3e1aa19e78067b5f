//! Consumers that come back with what they hold: to a new leader, or over a new connection.
//!
//! The node of a session knows best what its consumers hold, so its word replaces what the leader
//! knew of them. Nothing changes hands by that: what a consumer names and nobody else has is its own
//! again; what it does not name never reached it, and is ready.

use std::collections::BTreeMap;

use super::QueueMachine;
use crate::ids::{ConsumerId, QueueId, SessionId};
use crate::queue::holder::Held;
use crate::queue::{ConsumerSpec, Effect, Queue};
use crate::ranges::Ranges;

/// Somebody who consumes from a queue or holds messages of it, for another leader to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub queue: QueueId,
    pub consumer: ConsumerId,
    /// With the credit that is left.
    pub spec: ConsumerSpec,
    /// False: it takes no more and only holds what it fetched, or got before it was detached.
    pub is_attached: bool,
    /// Messages it was given and has not settled.
    pub held: Ranges,
}

impl Attached {
    /// Whether it has nothing yet: it asked to be attached, and heard no answer.
    fn is_asking(&self) -> bool {
        !self.is_attached && self.held.is_empty()
    }
}

/// What a queue had of the sessions that join again.
#[derive(Default)]
struct Before {
    held: Vec<Held>,
    was_attached: bool,
}

impl QueueMachine {
    /// Everybody who consumes or holds something here, by queue: leader only. Settles that wait for
    /// the log are not in it: take those first, or their messages go out again.
    pub fn attachments(&self) -> Vec<Attached> {
        let places = self.places.values();
        let queues = places.filter_map(|place| self.slots[*place].as_ref());
        let all = queues.flat_map(Queue::attachments);
        all.filter(|attached| attached.is_attached || !attached.held.is_empty()).collect()
    }

    /// The sessions that `is_joining` names (all of one node) are where `attachments` says, and
    /// nowhere else. Each takes what is open and ready of what it says it holds. What they held and
    /// do not name is ready again, flagged.
    ///
    /// An attachment that neither is attached nor holds anything has asked to be attached and heard no
    /// answer ([`Attached::is_asking`]). It stays attached if it was, without credit until it asks again.
    ///
    /// Whoever cannot be attached is told by `Effect::Cancelled`: its queue is gone, or somebody else
    /// consumes exclusively. An auto-delete queue that loses its last consumer by this is `Unused`.
    /// Others' consumers, and a machine that does not lead, are left alone.
    pub fn join(
        &mut self,
        is_joining: impl Fn(SessionId) -> bool,
        attachments: &[Attached],
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_leading {
            return;
        }
        let staying = self.staying(attachments);
        let mut touched = self.let_go(&is_joining);
        let joining = attachments.iter().chain(&staying).filter(|it| !it.is_asking());
        for attached in joining.filter(|it| is_joining(it.consumer.session)) {
            let found = self.queue_mut(attached.queue).filter(|queue| !queue.is_gone);
            let Some(queue) = found else {
                if attached.is_attached {
                    let Attached { queue, consumer, .. } = *attached;
                    effects.push(Effect::Cancelled { queue, consumer });
                }
                continue;
            };
            if queue.rejoin(attached, effects) {
                self.sessions.insert((attached.consumer.session, attached.queue.base()));
            }
            touched.entry(attached.queue.base()).or_default();
        }
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        for (id, before) in touched {
            let Some(queue) = self.queue_mut(id) else { continue };
            for (level, held) in before.held.iter().flat_map(Held::all) {
                if let Some(level) = queue.level_mut(level) {
                    let end = level.store.end();
                    level.reader.ready.flag_waiting(held, end);
                }
            }
            if before.was_attached {
                queue.touch(now_ms);
                queue.close_if_unused(is_dispatching, effects);
            }
            if is_dispatching {
                queue.trim();
                queue.serve(now_ms, effects);
            }
            self.look_after(id);
        }
    }

    /// Those who ask to be attached, and are already: they did not hear the answer.
    fn staying(&self, attachments: &[Attached]) -> Vec<Attached> {
        let is_here = |asking: &&Attached| {
            let place = self.places.get(&asking.queue.base());
            let queue = place.and_then(|place| self.slots[*place].as_ref());
            queue.is_some_and(|queue| queue.consumers.is_attached(asking.consumer))
        };
        let asking = attachments.iter().filter(|it| it.is_asking()).filter(is_here);
        let keep = |asking: &Attached| {
            let spec = ConsumerSpec { credit: 0, ..asking.spec };
            Attached { spec, is_attached: true, ..asking.clone() }
        };
        asking.map(keep).collect()
    }

    /// Forgets the sessions. What they held is ready, and not flagged yet.
    fn let_go(&mut self, is_joining: &impl Fn(SessionId) -> bool) -> BTreeMap<QueueId, Before> {
        let mut touched: BTreeMap<QueueId, Before> = BTreeMap::new();
        let joining: Vec<_> =
            self.sessions.extract_if(.., |(session, _)| is_joining(*session)).collect();
        for (session, id) in joining {
            let Some(queue) = self.queue_mut(id) else { continue };
            let (held, was_attached) = queue.consumers.end_session(session);
            // It is in what they say of their credit.
            queue.owed.retain(|(consumer, _)| consumer.session != session);
            for (level, held) in held.all() {
                if let Some(level) = queue.level_mut(level) {
                    level.reading().give_back(held, false);
                }
            }
            let before = touched.entry(id).or_default();
            before.held.push(held);
            before.was_attached |= was_attached;
        }
        touched
    }
}

impl Queue {
    fn attachments(&self) -> impl Iterator<Item = Attached> + '_ {
        self.consumers.holders().flat_map(move |(consumer, holder, is_attached)| {
            let owed = self.owed.iter().filter(|(by, _)| *by == consumer).map(|(_, credit)| credit);
            let credit = owed.fold(holder.credit, |sum, credit| sum.saturating_add(*credit));
            let spec = ConsumerSpec { credit, ..holder.spec };
            let levels = holder.held.all().filter(|(level, held)| *level == 0 || !held.is_empty());
            levels.map(move |(level, held)| Attached {
                queue: self.id.level(level),
                consumer,
                spec,
                // It consumes from the queue, not from a level of it.
                is_attached: is_attached && level == 0,
                held: held.clone(),
            })
        })
    }

    /// Says whether it is a holder now. A queue that is about to be deleted takes it too: it is
    /// cancelled with the queue, or stays where the deletion is refused.
    fn rejoin(&mut self, attached: &Attached, effects: &mut Vec<Effect>) -> bool {
        let Attached { queue, consumer, spec, is_attached, ref held } = *attached;
        let mut taken = Ranges::new();
        if let Some(level) = self.level_mut(queue.priority()) {
            let mut reading = level.reading();
            held.ranges().for_each(|range| reading.take_ready(range, &mut taken));
            if let Some(sieve) = &mut level.reader.sieve {
                sieve.hold(&taken);
            }
        }
        self.consumers.hold_all(consumer, queue.priority(), &taken);
        if is_attached && self.consumers.attach(consumer, spec).is_err() {
            effects.push(Effect::Cancelled { queue, consumer });
        }
        !self.consumers.forget_if_idle(consumer)
    }
}
