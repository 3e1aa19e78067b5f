//! One consumer with its own session.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::{Answer, Delivery, Request, Ticket};
use machine::{
    Arguments, AttachError, Attached, ConsumerId, ConsumerSpec, GroupId, Messages, Outcome,
    QueueId, Ranges,
};

use super::{Home, Kind, Outside, Plan, id_of};
use crate::history::What;
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::crc32;

/// Messages that a consumer may hold, at most.
const CREDIT_MAX: u64 = 40;
/// What it may hold besides while queues are drained.
const CREDIT_DRAINING: u32 = 60;
/// An attachment is answered within this time where all is well.
const ANSWERS: Micros = 5_000_000;
const ATTACH: Ticket = Ticket(1);
const DECLARE: Ticket = Ticket(2);
const GET: Ticket = Ticket(3);

pub(super) struct Consumer {
    plans: Rc<[Plan]>,
    name: String,
    pub(super) queue: usize,
    pub(super) home: Option<Home>,
    /// How often it came back.
    generation: u64,
    state: State,
    at: Option<(QueueId, GroupId)>,
    held: Vec<Held>,
    /// What its queue may give it without asking.
    credit: u32,
    /// It was given more credit, for the drain.
    is_hurried: bool,
    /// A question for a single message that is not answered.
    is_getting: bool,
}

/// What it was given.
struct Held {
    /// Of the consumer; 2: it was fetched.
    number: u64,
    level: QueueId,
    seq: u64,
    message: String,
}

/// How far it is with its queue. Without a connection it is `Idle`.
///
/// ```text
///          the queue is there
///   Idle ─────────────────────────────────────> Attaching ──> Attached
///    │ ^  └──it is not──> Declaring ──declared───^  │            │ cancelled
///    │ │                    │ refused               │ refused    │
///    │ └────────────────────┴───────────────────────┴────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Declaring,
    Attaching { since: Micros },
    Attached,
}

impl Consumer {
    pub(super) fn new(plans: &Rc<[Plan]>, queue: usize, nth: usize) -> Self {
        Self {
            name: format!("con-{}-{nth}", plans[queue].name),
            plans: Rc::clone(plans),
            queue,
            home: None,
            generation: 0,
            state: State::Idle,
            at: None,
            held: Vec::new(),
            credit: 0,
            is_hurried: false,
            is_getting: false,
        }
    }

    fn plan(&self) -> &Plan {
        &self.plans[self.queue]
    }

    fn ep(&self) -> String {
        format!("{}.{}", self.name, self.generation)
    }

    pub(super) fn act(&mut self, is_draining: bool, may_leave: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else { return self.connect(outside) };
        match self.state {
            State::Idle => self.attach(home, outside),
            State::Declaring | State::Attaching { .. } => {}
            State::Attached => self.settle(home, is_draining, outside),
        }
        let leaves = match self.state {
            State::Attached => outside.chance.within(0, 250) == 0,
            State::Idle | State::Declaring | State::Attaching { .. } => {
                outside.chance.within(0, 1_500) == 0
            }
        };
        if leaves && may_leave {
            outside.watch.holds.left(home.session);
            // Some say goodbye, some just go.
            if outside.chance.percent(60) {
                outside.ask(home, vec![Request::EndSession { ticket: Ticket(9) }]);
            } else {
                outside.leave(home);
            }
            self.end();
        }
    }

    fn connect(&mut self, outside: &mut Outside<'_>) {
        self.home = outside.connect();
        if self.home.is_none() {
            return;
        }
        self.generation += 1;
        let q = self.plan().name.to_owned();
        outside.diary.saw(&self.name, What::Open { q, ep: self.ep() });
    }

    fn attach(&mut self, home: Home, outside: &mut Outside<'_>) {
        let kind = self.plan().kind;
        let found = outside.queue(home, self.plan().name);
        let Some((queue, group)) = found.filter(|_| kind != Kind::Exclusive) else {
            if kind != Kind::Durable {
                self.declare(home, kind, outside);
            }
            return;
        };
        self.attach_to(home, queue, group, outside);
    }

    fn attach_to(&mut self, home: Home, queue: QueueId, group: GroupId, outside: &mut Outside<'_>) {
        let credit = outside.chance.within(1, CREDIT_MAX + 1) as u32;
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        self.credit = credit;
        let consumer = self.id(home);
        self.state = State::Attaching { since: outside.now };
        self.at = Some((queue, group));
        let attach = Request::Attach { ticket: ATTACH, group, queue, consumer, spec };
        outside.ask(home, vec![attach]);
    }

    fn declare(&mut self, home: Home, kind: Kind, outside: &mut Outside<'_>) {
        let flags = [false, false, kind == Kind::Exclusive];
        let command = outside.declaration(home, self.plan().name, flags, Arguments::new());
        self.state = State::Declaring;
        outside.ask(home, vec![Request::Catalog { ticket: DECLARE, command }]);
    }

    fn id(&self, home: Home) -> ConsumerId {
        ConsumerId { session: home.session, number: 1 }
    }

    /// Perhaps settles some of what it holds.
    fn settle(&mut self, home: Home, is_draining: bool, outside: &mut Outside<'_>) {
        let Some((queue, group)) = self.at else { return };
        let plan = self.plan().clone();
        let single = plan.consumers <= 1;
        // Some settle one by one, others many at once; some put much back.
        let alone = outside.chance.percent(50);
        let mut settled: BTreeMap<(u64, QueueId, Outcome), Ranges> = BTreeMap::new();
        let (ep, name) = (self.ep(), self.name.clone());
        let mut outcome = draw(&plan, is_draining, outside);
        self.held.retain(|Held { number, level, seq, message }| {
            if !is_draining && outside.chance.percent(if alone { 60 } else { 30 }) {
                return true;
            }
            if alone {
                outcome = draw(&plan, is_draining, outside);
            }
            let (q, m, ep) = (plan.name.to_owned(), message.clone(), ep.clone());
            let what = match outcome {
                Outcome::Requeue => What::Nack { q, m, ep },
                Outcome::Rejected => What::Reject { q, m, ep },
                _ => What::Ack { q, m, ep },
            };
            outside.diary.saw(&name, what);
            outside.watch.holds.let_go((*level, *seq), home.session, outcome.is_final());
            settled.entry((*number, *level, outcome)).or_default().insert(*seq..seq + 1);
            false
        });
        let mut requests = Vec::new();
        for ((number, level, outcome), ranges) in settled {
            let consumer = ConsumerId { session: home.session, number };
            // What was fetched was no consumer's credit.
            let credit = u32::try_from(ranges.len()).expect("credit is small");
            let credit = if number == 1 { credit } else { 0 };
            self.credit += credit;
            let queue = level;
            requests.push(Request::Settle { group, queue, consumer, ranges, outcome, credit });
        }
        // Where there are many consumers, some also fetch single messages.
        if !single && !is_draining && !self.is_getting && outside.chance.percent(5) {
            self.is_getting = true;
            let consumer = ConsumerId { session: home.session, number: 2 };
            requests.push(Request::Get {
                ticket: GET,
                group,
                queue,
                consumer,
                no_ack: false,
                at: None,
            });
        }
        if is_draining && !self.is_hurried {
            self.is_hurried = true;
            self.credit += CREDIT_DRAINING;
            let (consumer, add) = (self.id(home), CREDIT_DRAINING);
            requests.push(Request::Credit { group, queue, consumer, add });
        }
        if !requests.is_empty() {
            outside.ask(home, requests);
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        let Some(home) = self.home else { return };
        let is_durable = self.plan().kind == Kind::Durable;
        match answer {
            Answer::Attached { result: Ok(()), .. } => self.state = State::Attached,
            // The declaration's group knows the queue a moment later, or it is gone with its node.
            Answer::Attached { result: Err(AttachError::NoQueue), .. } => self.state = State::Idle,
            Answer::Attached { result: Err(error), .. } => {
                self.complain_of(format!("cannot consume: {error:?}"), outside.diary);
                self.state = State::Idle;
            }
            Answer::Catalog { .. } => match outside.queue(home, self.plan().name) {
                Some((queue, group)) => self.attach_to(home, queue, group, outside),
                None => self.state = State::Idle,
            },
            Answer::Delivered(delivery) => self.delivered(&delivery, outside),
            Answer::Got { delivery, .. } => {
                self.is_getting = false;
                delivery.iter().for_each(|delivery| self.delivered(delivery, outside));
            }
            Answer::Cancelled { .. } if is_durable => {
                self.complain_of("was cancelled".to_owned(), outside.diary);
            }
            Answer::Cancelled { .. } => {
                self.state = State::Idle;
                self.held.clear();
            }
            Answer::AppendFailed { .. } => {
                self.is_getting = false;
                if self.state == State::Declaring || matches!(self.state, State::Attaching { .. }) {
                    self.state = State::Idle;
                }
            }
            other => self.complain_of(format!("was told {other:?}"), outside.diary),
        }
    }

    fn delivered(&mut self, delivery: &Delivery, outside: &mut Outside<'_>) {
        let messages: Vec<_> = Messages::of(delivery.store, &delivery.bytes).collect();
        let is_right = messages.len() == delivery.count as usize
            && self.at.is_some_and(|(queue, _)| queue == delivery.queue.base());
        if !is_right {
            self.complain_of(format!("{delivery:?} is not what it says"), outside.diary);
        }
        let name = self.plan().name;
        let takes_dead = self.plans.iter().any(|plan| plan.dead() == Some(name));
        for (seq, (head, body)) in (delivery.first_seq..).zip(messages) {
            let m = id_of(head);
            outside.watch.delivered(delivery.queue, seq, &m, takes_dead);
            if self.plan().kind == Kind::Durable {
                let session = delivery.consumer.session;
                outside.watch.holds.given((delivery.queue, seq), session, &m);
            }
            let what = What::Dlv {
                q: self.plan().name.to_owned(),
                m: m.clone(),
                tag: seq,
                red: delivery.redelivered,
                h: crc32(body),
                ep: self.ep(),
            };
            outside.diary.saw(&self.name, what);
            let (number, level) = (delivery.consumer.number, delivery.queue);
            if number == 1 {
                let left = self.credit.checked_sub(1);
                if left.is_none() {
                    self.complain_of(format!("had no credit for {m}"), outside.diary);
                }
                self.credit = left.unwrap_or_default();
            }
            self.held.push(Held { number, level, seq, message: m });
        }
    }

    /// What is wrong in what leaders know of it.
    pub(super) fn differs(&self, known: &[Attached]) -> Option<String> {
        let home = self.home.filter(|_| self.plan().kind == Kind::Durable)?;
        let (id, (queue, _)) = (self.id(home), self.at.filter(|_| self.state == State::Attached)?);
        let name = &self.name;
        let Some(found) = known.iter().find(|it| it.consumer == id && it.queue == queue) else {
            return Some(format!("{name} consumes, and no leader knows of it"));
        };
        let credit = found.spec.credit;
        if !found.is_attached || credit != self.credit {
            let attached = found.is_attached;
            let ours = self.credit;
            return Some(format!(
                "{name} has credit {ours}, its leader knows of {credit} (attached: {attached})"
            ));
        }
        let theirs = known.iter().filter(|it| it.consumer.session == home.session);
        let theirs: u64 = theirs.map(|it| it.held.len()).sum();
        let ours = self.held.len() as u64;
        (theirs != ours).then(|| format!("{name} holds {ours}, its leader knows of {theirs}"))
    }

    fn complain_of(&self, text: String, diary: &mut Diary) {
        diary.saw(&self.name, What::Protocol { text: format!("{} {text}", self.name) });
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end();
        }
    }

    fn end(&mut self) {
        self.home = None;
        self.state = State::Idle;
        self.at = None;
        self.held.clear();
        self.is_getting = false;
        self.is_hurried = false;
    }

    /// At the end: an answer that never came.
    pub(super) fn complain(&self, now: Micros, diary: &mut Diary) {
        if let State::Attaching { since } = self.state
            && now - since > ANSWERS
        {
            let home = self.home;
            self.complain_of(format!("attaches since {} ms at {home:?}", since / 1000), diary);
        }
    }
}

fn draw(plan: &Plan, is_draining: bool, outside: &mut Outside<'_>) -> Outcome {
    let draw = outside.chance.within(0, 100);
    if is_draining || draw >= plan.back_percent + plan.reject_percent {
        Outcome::Done
    } else if draw < plan.back_percent {
        Outcome::Requeue
    } else {
        Outcome::Rejected
    }
}
