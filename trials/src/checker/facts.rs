//! A history, sorted by message: what the rules ask for.

use std::collections::{BTreeMap, BTreeSet};

use super::pauses::Pauses;
use super::retries::Retried;
use super::{Rules, SECOND};
use crate::history::{
    Books, DISCONNECT, History, Marks, MessageId, Names, Nanos, Stage, Traits, What, Why,
};

/// One message as its publisher saw it.
#[derive(Clone, Debug, Default)]
pub(super) struct Publish {
    /// When each attempt began, by its number.
    pub(super) attempts: BTreeMap<u32, Nanos>,
    /// Queues it is routed to.
    pub(super) queues: Vec<u32>,
    pub(super) checksum: Option<u32>,
    /// When each attempt was confirmed or refused: (attempt, time, confirmed).
    pub(super) outcomes: Vec<(u32, Nanos, bool)>,
    pub(super) is_unknown: bool,
    pub(super) was_returned: bool,
}

impl Publish {
    pub(super) fn is_confirmed(&self) -> bool {
        self.outcomes.iter().any(|(_, _, confirmed)| *confirmed)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) t: Nanos,
    pub(super) session: u32,
    pub(super) redelivered: bool,
    pub(super) checksum: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Requeued,
    Rejected,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settle {
    pub(super) t: Nanos,
    pub(super) session: u32,
    pub(super) outcome: Outcome,
}

/// What became of one message on one queue, in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    pub(super) deliveries: Vec<Delivery>,
    pub(super) settles: Vec<Settle>,
}

/// One end of a consumer on one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) queue: u32,
    pub(super) start: Nanos,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) single: bool,
    pub(super) dead: Option<u32>,
    /// It is where another queue's rejected messages go.
    pub(super) takes_dead: bool,
    /// The most that it reported after a drain.
    pub(super) left: Option<u64>,
    /// None: it is plain.
    pub(super) traits: Option<Traits>,
    /// In the order in which they were asked for.
    pub(super) purges: Vec<Purge>,
    pub(super) pauses: Pauses,
    /// Where any message in it may be sent on to, and since when.
    pub(super) retried_to: BTreeMap<u32, Nanos>,
    /// Between which times it got another leader, where that was looked at from outside.
    pub(super) elections: Vec<(Nanos, Nanos)>,
    pub(super) rescue: Option<Rescue>,
    pub(super) books: Option<Books>,
    /// Those that may have been in force for it, by their names.
    pub(super) policies: BTreeMap<String, Policy>,
}

/// A policy that may have been in force for a queue.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    /// When it was asked for.
    pub(super) asked: Nanos,
    /// When it was in force nowhere any more. None: that is not known.
    pub(super) over: Option<Nanos>,
    pub(super) traits: Traits,
    /// Where dead letters go, if the queue does not say so itself.
    pub(super) dead: Option<u32>,
}

impl Policy {
    fn new(asked: Nanos, traits: &Traits, dead: Option<u32>) -> Self {
        Self { asked, over: None, traits: traits.clone(), dead }
    }
}

/// A purge of a queue: what was ready at some moment between the two times is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purge {
    pub(super) asked: Nanos,
    /// When it was answered, and how many messages there were. None: nobody knows when it happened, if it did.
    pub(super) done: Option<(Nanos, u64)>,
}

/// What was settled and published at once.
#[derive(Clone, Debug)]
pub(super) struct Tx {
    /// The consumer session that had what it acknowledges.
    pub(super) session: u32,
    pub(super) acks: Vec<MessageId>,
    pub(super) pubs: Vec<MessageId>,
    /// In one group: all of it or nothing.
    pub(super) whole: bool,
    /// When it was answered. None: nobody knows whether it happened.
    pub(super) committed: Option<Nanos>,
}

/// What was confirmed from `since` until `done` may be lost from the end; all of it, if the queue is `empty`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rescue {
    pub(super) since: Nanos,
    pub(super) done: Nanos,
    pub(super) empty: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// A number of [`Facts::names`].
    pub(super) kind: u32,
    /// The only node that was harmed; 0: several, or nobody knows.
    pub(super) node: u32,
    pub(super) is_harm: bool,
    pub(super) t0: Nanos,
    pub(super) t1: Nanos,
}

/// Everything the rules ask for.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) names: Names,
    pub(super) publishes: BTreeMap<MessageId, Publish>,
    pub(super) taken: BTreeMap<(u32, MessageId), Taken>,
    /// First deliveries in the order they came, per queue: for Q6.
    pub(super) sequence: BTreeMap<u32, Vec<(MessageId, Delivery)>>,
    pub(super) sessions: BTreeMap<u32, Session>,
    pub(super) queues: BTreeMap<u32, Queue>,
    /// Sorted by their start.
    pub(super) faults: Vec<Fault>,
    /// When connections to which nodes broke off.
    pub(super) broke: Vec<(Nanos, u32)>,
    /// Those that the nemesis did.
    pub(super) harm_count: u64,
    pub(super) sectors: u64,
    /// Times in which nothing that began may be confirmed.
    pub(super) silences: Vec<(Nanos, Nanos)>,
    pub(super) closed: BTreeMap<u32, Nanos>,
    /// By queue: one that nobody leads is silent while others are served.
    pub(super) confirms: BTreeMap<u32, Vec<Nanos>>,
    /// Times in which publishers tried.
    pub(super) load: Vec<(Nanos, Nanos)>,
    pub(super) healed: Option<Nanos>,
    /// When somebody first sent something to a queue after the heal.
    pub(super) tried_after_heal: BTreeMap<u32, Nanos>,
    pub(super) confirmed_after_heal: BTreeMap<u32, Nanos>,
    pub(super) delivered_after_heal: BTreeMap<u32, Nanos>,
    pub(super) marks: BTreeMap<MessageId, Marks>,
    /// When and why messages died, per queue.
    pub(super) deaths: BTreeMap<(u32, MessageId), Vec<(Nanos, Why)>>,
    /// Dead letters that were sent on, by where they lay.
    pub(super) retried: BTreeMap<(u32, MessageId), Retried>,
    /// The same, wherever they lay: they may be in a queue again, and more than once.
    pub(super) came_again: BTreeSet<MessageId>,
    /// A clock was set while the broker looked at it: nobody knows what time it is there.
    pub(super) has_clock_faults: bool,
    /// Clocks were set, and it is known when that may have changed the broker's time.
    pub(super) has_set_clocks: bool,
    /// By their names.
    pub(super) txs: BTreeMap<String, Tx>,
    /// What is acknowledged in transactions that have no answer (so far), by who had it.
    undecided: BTreeSet<(u32, MessageId)>,
    leaps: Vec<Nanos>,
    /// When some group got a leader, where histories tell.
    pub(super) leaders: Vec<Nanos>,
    pub(super) protocol: Vec<String>,
    pub(super) cut_short: Vec<String>,
    pub(super) last: Nanos,
}

impl Facts {
    pub(super) fn gather(history: &History) -> Self {
        let mut facts = Self { cut_short: history.cut_short().to_vec(), ..Self::default() };
        for event in history.events() {
            facts.last = event.t;
            facts.note(event.t, &event.what);
        }
        if let Some(open) = facts.load.last_mut().filter(|(_, end)| *end == Nanos::MAX) {
            open.1 = facts.last;
        }
        facts.faults.sort_by_key(|fault| fault.t0);
        facts
    }

    fn note(&mut self, t: Nanos, what: &What) {
        match what {
            What::Pub { k, m, n, q, h, returned } => {
                let id = self.names.message(m);
                self.note_publish(t, id, *k, *n, *returned);
                let publish = self.publishes.entry(id).or_default();
                if *k == Stage::Inv {
                    publish.queues = q.iter().map(|queue| self.names.number(queue)).collect();
                    publish.checksum = *h;
                    if self.healed.is_some() {
                        for queue in &publish.queues {
                            self.tried_after_heal.entry(*queue).or_insert(t);
                        }
                    }
                }
            }
            What::Closed { ch } => {
                let channel = self.names.number(ch);
                self.closed.insert(channel, t);
            }
            What::Open { q, ep } => {
                let (queue, session) = (self.names.number(q), self.names.number(ep));
                self.sessions.insert(session, Session { queue, start: t });
            }
            What::Dlv { q, m, tag: _, red, h, ep } => {
                let (queue, id) = (self.names.number(q), self.names.message(m));
                let session = self.names.number(ep);
                let delivery = Delivery { t, session, redelivered: *red, checksum: *h };
                self.taken.entry((queue, id)).or_default().deliveries.push(delivery);
                self.sequence.entry(queue).or_default().push((id, delivery));
                if self.healed.is_some() {
                    self.delivered_after_heal.entry(queue).or_insert(t);
                }
            }
            What::Ack { q, m, ep } => self.note_settle(t, q, m, ep, Outcome::Done),
            What::Nack { q, m, ep } => self.note_settle(t, q, m, ep, Outcome::Requeued),
            What::Reject { q, m, ep } => self.note_settle(t, q, m, ep, Outcome::Rejected),
            What::Fault { kind, node, t0, t1, sectors } => {
                let number = self.names.number(kind);
                let (node, is_harm, t0, t1) = (*node, kind != DISCONNECT, *t0, *t1);
                self.faults.push(Fault { kind: number, node, is_harm, t0, t1 });
                self.sectors += sectors;
                self.has_clock_faults |= kind.contains("clock");
                if kind != DISCONNECT {
                    self.harm_count += 1;
                }
            }
            What::Rescued { q, since, empty } => {
                let queue = self.names.number(q);
                let rescue = Rescue { since: *since, done: t, empty: *empty };
                self.queues.entry(queue).or_default().rescue = Some(rescue);
            }
            What::Broke { node } => self.broke.push((t, *node)),
            What::Silent { t0, t1 } => self.silences.push((*t0, *t1)),
            What::Queue { q, single, dead } => {
                let dead = dead.as_ref().map(|dead| self.names.number(dead));
                if let Some(dead) = dead {
                    self.queues.entry(dead).or_default().takes_dead = true;
                }
                let number = self.names.number(q);
                let queue = self.queues.entry(number).or_default();
                queue.single = *single;
                queue.dead = dead;
            }
            What::Traits { q, traits } => {
                let queue = self.names.number(q);
                self.queues.entry(queue).or_default().traits = Some(traits.clone());
            }
            What::Marks { m, marks } => {
                let id = self.names.message(m);
                self.marks.insert(id, marks.clone());
            }
            What::Died { q, m, why } => {
                let (queue, id) = (self.names.number(q), self.names.message(m));
                self.deaths.entry((queue, id)).or_default().push((t, *why));
            }
            What::Purge { k, q, n } => {
                let queue = self.names.number(q);
                note_purge(&mut self.queues.entry(queue).or_default().purges, t, *k, *n);
            }
            What::Tx { k: Stage::Inv, x, ep, acks, pubs, whole } => {
                let session = self.names.number(ep);
                let mut ids = |texts: &[String]| -> Vec<MessageId> {
                    texts.iter().map(|text| self.names.message(text)).collect()
                };
                let (acks, pubs) = (ids(acks), ids(pubs));
                self.undecided.extend(acks.iter().map(|id| (session, *id)));
                let tx = Tx { session, acks, pubs, whole: *whole, committed: None };
                self.txs.insert(x.clone(), tx);
            }
            What::Tx { k, x, .. } => {
                if let Some(tx) = self.txs.get_mut(x).filter(|_| *k == Stage::Ok) {
                    tx.committed = Some(t);
                    for id in &tx.acks {
                        self.undecided.remove(&(tx.session, *id));
                    }
                }
            }
            What::Policy { k, x, q, traits, dead } => {
                let queues = q.iter().map(|queue| self.names.number(queue)).collect();
                let dead = dead.as_ref().map(|dead| self.names.number(dead));
                self.note_policy(t, *k, x, queues, Policy::new(t, traits, dead));
            }
            What::Pause { k, q, on } => {
                let queue = self.names.number(q);
                self.queues.entry(queue).or_default().pauses.note(t, *k, *on);
            }
            What::Retry { k, q, m, to } => self.note_retry(t, *k, q, m.as_deref(), to),
            What::Books { q, books } => {
                let queue = self.names.number(q);
                self.queues.entry(queue).or_default().books = Some(*books);
            }
            What::Clock { .. } => self.has_set_clocks = true,
            What::Leads { .. } => self.leaders.push(t),
            What::Election { q, t0, t1 } => {
                for queue in q {
                    let queue = self.names.number(queue);
                    // One that takes no part is nobody's to judge.
                    if let Some(found) = self.queues.get_mut(&queue) {
                        found.elections.push((*t0, *t1));
                    }
                }
            }
            What::Leap { .. } => self.leaps.push(t),
            What::Load { on: true } => self.load.push((t, Nanos::MAX)),
            What::Load { on: false } => {
                if let Some(open) = self.load.last_mut().filter(|(_, end)| *end == Nanos::MAX) {
                    open.1 = t;
                }
            }
            What::Heal => self.healed = Some(t),
            What::Drained { q, node: _, left } => {
                let queue = self.names.number(q);
                let before = &mut self.queues.entry(queue).or_default().left;
                *before = Some(before.unwrap_or(0).max(*left));
            }
            What::Protocol { text } => self.protocol.push(text.clone()),
            What::End => {}
        }
    }

    fn note_publish(&mut self, t: Nanos, id: MessageId, stage: Stage, n: u32, returned: bool) {
        let publish = self.publishes.entry(id).or_default();
        match stage {
            Stage::Inv => {
                publish.attempts.insert(n, t);
            }
            Stage::Ok => {
                publish.outcomes.push((n, t, true));
                publish.was_returned |= returned;
                for queue in &publish.queues {
                    self.confirms.entry(*queue).or_default().push(t);
                }
                if self.healed.is_some() {
                    for queue in &publish.queues {
                        self.confirmed_after_heal.entry(*queue).or_insert(t);
                    }
                }
            }
            Stage::Fail => publish.outcomes.push((n, t, false)),
            Stage::Info => publish.is_unknown = true,
        }
    }

    fn note_settle(&mut self, t: Nanos, queue: &str, m: &str, ep: &str, outcome: Outcome) {
        let (queue, id) = (self.names.number(queue), self.names.message(m));
        let session = self.names.number(ep);
        self.taken.entry((queue, id)).or_default().settles.push(Settle { t, session, outcome });
    }

    /// Whether nobody knows if it took effect: its transaction was never answered.
    pub(super) fn is_undecided(&self, id: MessageId, settle: &Settle) -> bool {
        self.undecided.contains(&(settle.session, id))
    }

    /// Whether a fault has any part in `from..=to`.
    pub(super) fn harmed_within(&self, from: Nanos, to: Nanos) -> bool {
        self.faults.iter().take_while(|fault| fault.t0 <= to).any(|fault| fault.t1 >= from)
    }

    /// Whether the queue may have got another leader in `from..=to`, as was seen from outside.
    pub(super) fn elected_within(&self, queue: u32, from: Nanos, to: Nanos) -> bool {
        let elections = self.queues.get(&queue).map_or(&[][..], |queue| &queue.elections);
        elections.iter().any(|(t0, t1)| *t0 <= to && *t1 >= from)
    }

    /// What the nemesis did that has any part in `from..=to`.
    pub(super) fn harms_within(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = &Fault> {
        let begun = self.faults.iter().take_while(move |fault| fault.t0 <= to);
        begun.filter(move |fault| fault.t1 >= from && fault.is_harm)
    }

    /// Whether as much time went by for the broker from `from` to `to` as for us, but for the slack.
    pub(super) fn is_time_known(&self, from: Nanos, to: Nanos) -> bool {
        let leapt = self.has_set_clocks && self.leaps.iter().any(|leap| (from..=to).contains(leap));
        !self.has_clock_faults && !leapt
    }

    /// What times of the broker may differ by. A new leader goes by its own clock if that is nearly right.
    pub(super) fn clock_slack(&self, rules: &Rules) -> Nanos {
        rules.clock_slack + if self.has_set_clocks { 2 * SECOND } else { 0 }
    }

    /// What arguments ask of `queue`, if it is not plain.
    pub(super) fn traits(&self, queue: u32) -> Option<&Traits> {
        self.queues.get(&queue)?.traits.as_ref()
    }

    /// Somebody got the message, from `queue` or from where its rejected messages go.
    pub(super) fn is_delivered(&self, queue: u32, id: MessageId) -> bool {
        let seen = |queue| self.taken.get(&(queue, id)).is_some_and(|t| !t.deliveries.is_empty());
        self.closure(queue, id).into_iter().any(seen)
    }

    /// `queue` and where its rejected messages go, and theirs; and where policies may have sent this one.
    pub(super) fn closure(&self, queue: u32, id: MessageId) -> BTreeSet<u32> {
        let mut closure = BTreeSet::new();
        let mut next = vec![queue];
        while let Some(queue) = next.pop() {
            if closure.insert(queue) {
                next.extend(self.queues.get(&queue).and_then(|queue| queue.dead));
                next.extend(self.policies(queue, id).filter_map(|policy| policy.dead));
                next.extend(self.sent_on(queue, id));
            }
        }
        closure
    }
}

/// A purge goes a stage further; of one queue they come one after the other.
fn note_purge(purges: &mut Vec<Purge>, t: Nanos, stage: Stage, count: u64) {
    match (stage, purges.last_mut()) {
        (Stage::Inv, _) => purges.push(Purge { asked: t, done: None }),
        (Stage::Ok, Some(purge)) => purge.done = Some((t, count)),
        (Stage::Ok | Stage::Fail | Stage::Info, _) => {}
    }
}
