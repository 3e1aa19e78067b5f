//! Those who publish to queues with rates, and those who consume from them.

use std::collections::BTreeMap;

use cluster::{Answer, Request, Ticket};
use machine::{Attributes, Batch, ConsumerId, ConsumerSpec, GroupId, Outcome, QueueId, Ranges};

use super::meter::Meter;
use super::plan::PLANS;
use super::single::Told;
use super::{Mood, TIMEOUT};
use crate::history::What;
use crate::sim::agenda::Micros;
use crate::sim::clients::{Home, Outside, head_of};
use crate::workload::Chance;

/// Messages that should be there, so that there is always work.
const BACKLOG: u64 = 400;
/// Messages that are published at once.
const BATCH: u64 = 20;
const ATTACH: Ticket = Ticket(2);

/// A queue or one of its partitions, as it is asked.
type At = (QueueId, GroupId);

/// Somebody with a connection.
pub(super) struct Client {
    pub(super) queue: usize,
    nth: usize,
    pub(super) home: Option<Home>,
    role: Role,
    ticket: u64,
}

enum Role {
    Consumer {
        /// So many partitions serve it.
        attached: usize,
        held: Vec<(At, u64)>,
        /// Where one consumer is active: whether it is this one.
        told: Told,
        /// Since when an attach or a get waits for its answer.
        asked: Option<Micros>,
    },
    /// One question at a time: so many messages are to be let in, or were sent.
    Publisher { asked: Option<(Micros, u64, bool)>, published: u64 },
}

impl Client {
    pub(super) fn consumer(queue: usize, nth: usize) -> Self {
        let role =
            Role::Consumer { attached: 0, held: Vec::new(), told: Told::default(), asked: None };
        Self { queue, nth, home: None, role, ticket: 10 }
    }

    pub(super) fn publisher(queue: usize, nth: usize) -> Self {
        let role = Role::Publisher { asked: None, published: 0 };
        Self { queue, nth, home: None, role, ticket: 10 }
    }

    pub(super) fn published(&self) -> u64 {
        match &self.role {
            Role::Publisher { published, .. } => *published,
            Role::Consumer { .. } => 0,
        }
    }

    pub(super) fn act(
        &mut self,
        rests: bool,
        mood: Mood,
        backlog: &[u64; PLANS.len()],
        chance: &mut Chance,
        outside: &mut Outside<'_>,
    ) {
        let Some(home) = self.home else {
            if !rests {
                self.home = outside.connect();
            }
            return;
        };
        let may_leave = !mood.is_steady && chance.within(0, 400) == 0;
        if rests || may_leave || self.is_late(outside.now) {
            outside.leave(home);
            return self.end();
        }
        let plan = &PLANS[self.queue];
        match &mut self.role {
            Role::Publisher { asked: None, .. } => {
                // Some partitions have more to do than others.
                let partition = chance.within(0, plan.partitions() as u64 + 2) as usize;
                let partition = partition.min(plan.partitions() - 1);
                let Some(at) = outside.partition(home, plan.store(), partition) else { return };
                if plan.lets_in {
                    let count = chance.within(1, plan.burst + 1);
                    self.ask_first(home, at, count, outside);
                } else if backlog[self.queue] < BACKLOG {
                    self.publish(home, at, BATCH, outside);
                }
            }
            Role::Publisher { .. } => {}
            Role::Consumer { attached, asked, .. } if *attached < plan.partitions() => {
                let next = *attached;
                if asked.is_none()
                    && let Some(at) = outside.partition(home, plan.name, next)
                {
                    self.attach(home, at, outside);
                }
            }
            Role::Consumer { told, .. } if told.next().is_some() => self.tell(home, outside),
            Role::Consumer { .. } => self.consume(home, chance, outside),
        }
    }

    /// Tells the next partition that it is elected, or is not any more.
    fn tell(&mut self, home: Home, outside: &mut Outside<'_>) {
        let (consumer, plan) = (self.id(home), &PLANS[self.queue]);
        let Role::Consumer { told, .. } = &mut self.role else { return };
        let at = told.next().and_then(|next| outside.partition(home, plan.name, next));
        let Some((queue, group)) = at else { return };
        self.ticket += 1;
        told.ask(self.ticket);
        let spec = ConsumerSpec { generation: told.generation, ..ConsumerSpec::default() };
        let ticket = Ticket(self.ticket);
        outside.ask(home, vec![Request::Attach { ticket, group, queue, consumer, spec }]);
    }

    /// All partitions know that it is elected.
    fn give_credit(&self, home: Home, outside: &mut Outside<'_>) {
        let (consumer, plan) = (self.id(home), &PLANS[self.queue]);
        let all = (0..plan.partitions()).filter_map(|it| outside.partition(home, plan.name, it));
        let add = plan.prefetch;
        let give = |(queue, group)| Request::Credit { group, queue, consumer, add };
        let requests = all.map(give).collect();
        outside.ask(home, requests);
    }

    /// Settles what it has, and fetches a message if it is one who does.
    fn consume(&mut self, home: Home, chance: &mut Chance, outside: &mut Outside<'_>) {
        let (plan, consumer) = (&PLANS[self.queue], self.id(home));
        let Role::Consumer { asked, held, told, .. } = &mut self.role else { return };
        let mut settled: BTreeMap<(bool, At), Ranges> = BTreeMap::new();
        for (at, seq) in held.drain(..) {
            let is_back = chance.percent(plan.given_back);
            settled.entry((is_back, at)).or_default().insert(seq..seq + 1);
        }
        let mut requests = Vec::new();
        for ((is_back, (queue, group)), ranges) in settled {
            let outcome = if is_back { Outcome::Requeue } else { Outcome::Done };
            // What was fetched brings no credit, and is settled alone.
            let has_none = self.nth == 0 || (plan.is_single && !told.is_active());
            let credit = if has_none { 0 } else { ranges.len() as u32 };
            requests.push(Request::Settle { group, queue, consumer, ranges, outcome, credit });
        }
        let partition = match plan.partitions() {
            1 => 0,
            several => chance.within(0, several as u64) as usize,
        };
        if self.nth == 0
            && asked.is_none()
            && let Some((queue, group)) = outside.partition(home, plan.name, partition)
        {
            self.ticket += 1;
            *asked = Some(outside.now);
            let (ticket, no_ack, at) = (Ticket(self.ticket), false, None);
            requests.push(Request::Get { ticket, group, queue, consumer, no_ack, at });
        }
        if !requests.is_empty() {
            outside.ask(home, requests);
        }
    }

    fn is_late(&self, now: Micros) -> bool {
        let asked = match &self.role {
            Role::Consumer { asked, .. } => *asked,
            Role::Publisher { asked, .. } => asked.map(|(since, ..)| since),
        };
        asked.is_some_and(|since| now - since > TIMEOUT)
    }

    fn id(&self, home: Home) -> ConsumerId {
        ConsumerId { session: home.session, number: 1 }
    }

    /// The first consumer of a queue fetches messages one by one, and is no consumer.
    fn attach(&mut self, home: Home, (queue, group): At, outside: &mut Outside<'_>) {
        let (consumer, plan) = (self.id(home), &PLANS[self.queue]);
        let is_fetching = self.nth == 0;
        let Role::Consumer { attached, asked, .. } = &mut self.role else { return };
        if is_fetching {
            *attached = plan.partitions();
            return;
        }
        *asked = Some(outside.now);
        let credit = if plan.is_single { 0 } else { plan.prefetch };
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        let ticket = ATTACH;
        outside.ask(home, vec![Request::Attach { ticket, group, queue, consumer, spec }]);
    }

    fn ask_first(&mut self, home: Home, (queue, group): At, count: u64, outside: &mut Outside<'_>) {
        self.ticket += 1;
        let Role::Publisher { asked, .. } = &mut self.role else { return };
        *asked = Some((outside.now, count, false));
        let (ticket, sizes) = (Ticket(self.ticket), vec![20; count as usize]);
        outside.ask(home, vec![Request::Admit { ticket, group, queue, sizes }]);
    }

    fn publish(&mut self, home: Home, (queue, group): At, count: u64, outside: &mut Outside<'_>) {
        self.ticket += 1;
        let Role::Publisher { asked, published } = &mut self.role else { return };
        *asked = Some((outside.now, count, true));
        let (mut batch, name) = (Batch::new(), PLANS[self.queue].name);
        for _ in 0..count {
            let id = format!("{name}-{}.{}:{published}", self.nth, home.session.0);
            *published += 1;
            let head = head_of(name, &id);
            batch.enqueue_with(&[queue], &Attributes::default(), &[&head], id.as_bytes());
        }
        let (ticket, settles) = (Ticket(self.ticket), Vec::new());
        outside.ask(home, vec![Request::Append { group, ticket, batch, settles }]);
    }

    pub(super) fn answered(
        &mut self,
        answer: Answer,
        meter: &mut Meter,
        backlog: &mut [u64; PLANS.len()],
        outside: &mut Outside<'_>,
    ) {
        let Some(home) = self.home else { return };
        let plan = &PLANS[self.queue];
        let mut admitted = 0;
        match (&mut self.role, answer) {
            (
                Role::Consumer { asked, attached, .. },
                Answer::Attached { ticket: ATTACH, result, .. },
            ) => {
                *asked = None;
                *attached += usize::from(result.is_ok());
            }
            (Role::Consumer { told, .. }, Answer::Attached { ticket, result, .. }) => {
                if told.answered(ticket.0, result.is_ok()) {
                    self.give_credit(home, outside);
                }
            }
            (Role::Consumer { told, .. }, Answer::Elected { generation, .. }) => {
                told.elected(generation, plan.partitions());
            }
            (Role::Consumer { held, .. }, Answer::Delivered(delivery)) => {
                let count = u64::from(delivery.count);
                let at = (delivery.queue, delivery.group);
                let seqs = delivery.first_seq..delivery.first_seq + count;
                held.extend(seqs.map(|seq| (at, seq)));
                if !plan.lets_in {
                    meter.arrive(count, outside.now);
                }
                backlog[self.queue] = backlog[self.queue].saturating_sub(count);
            }
            (Role::Consumer { held, asked, .. }, Answer::Got { delivery, .. }) => {
                *asked = None;
                if let Some(delivery) = delivery {
                    held.push(((delivery.queue, delivery.group), delivery.first_seq));
                    if !plan.lets_in {
                        meter.arrive(1, outside.now);
                    }
                }
            }
            (Role::Publisher { asked, .. }, Answer::Admitted { refused, .. }) => {
                let Some((_, count, false)) = asked.take() else { return };
                admitted = count - refused.len() as u64;
                meter.arrive(admitted, outside.now);
            }
            (Role::Publisher { asked, .. }, Answer::Appended { .. }) => {
                if let Some((_, count, true)) = asked.take() {
                    backlog[self.queue] += count;
                }
            }
            (Role::Publisher { asked, .. }, Answer::AppendFailed { .. }) => *asked = None,
            (Role::Consumer { asked, told, .. }, Answer::AppendFailed { ticket }) => {
                *asked = None;
                told.answered(ticket.0, false);
            }
            (_, other) => {
                let text = format!("{} of {}: told {other:?}", self.nth, plan.name);
                outside.diary.saw("rated", What::Protocol { text });
            }
        }
        if admitted > 0
            && let Some(place) = outside.queue(home, plan.store())
        {
            self.publish(home, place, admitted, outside);
        }
    }

    pub(super) fn end(&mut self) {
        self.home = None;
        match &mut self.role {
            Role::Consumer { attached, held, told, asked } => {
                *attached = 0;
                *told = Told::default();
                held.clear();
                *asked = None;
            }
            Role::Publisher { asked, .. } => *asked = None,
        }
    }
}
