//! Queues with rates, and those who publish to them and consume from them: the same requests as a session's, in other
//! queues than those of the load. What goes is judged as it comes (`meter`); these queues are never drained.

mod meter;

use cluster::{Answer, Request, Ticket};
use machine::{
    Arguments, Attributes, Batch, CatalogReply, ConsumerId, ConsumerSpec, GroupId, Outcome,
    QueueId, Ranges, SessionId, Value, Version,
};

use super::{Home, Outside, head_of};
use crate::history::What;
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::Chance;
use meter::Meter;

/// A queue of the run.
struct Plan {
    name: &'static str,
    /// Its argument, and the rate that it says.
    rate: (&'static str, &'static str),
    per_ms: (u64, u64),
    burst: u64,
    /// Whether it lets in at its rate, and lets out without one.
    lets_in: bool,
    /// So many of a hundred messages are given back.
    given_back: u64,
}

/// A burst that is large against the rate shows leaders that begin with one; a small one shows all else.
const PLANS: [Plan; 3] = [
    Plan {
        name: "slow",
        rate: ("x-dequeue-rate", "40/s"),
        per_ms: (40, 1_000),
        burst: 150,
        lets_in: false,
        given_back: 20,
    },
    Plan {
        name: "strict",
        rate: ("x-dequeue-rate", "6000/m"),
        per_ms: (6_000, 60_000),
        burst: 5,
        lets_in: false,
        given_back: 60,
    },
    Plan {
        name: "let-in",
        rate: ("x-enqueue-rate", "50/s"),
        per_ms: (50, 1_000),
        // A tenth of a second's.
        burst: 5,
        lets_in: true,
        given_back: 0,
    },
];

const CONSUMERS: usize = 3;
const PUBLISHERS: usize = 2;
/// Messages that a consumer may hold.
const PREFETCH: u32 = 8;
/// Messages that should be there, so that there is always work.
const BACKLOG: u64 = 400;
/// Messages that are published at once.
const BATCH: u64 = 20;
/// Who hears nothing for so long may try it elsewhere.
const TIMEOUT: Micros = 10_000_000;

const DECLARE: Ticket = Ticket(1);
const ATTACH: Ticket = Ticket(2);

/// What they may do now.
#[derive(Clone, Copy)]
pub(super) struct Mood {
    pub(super) is_draining: bool,
    /// Nobody leaves of his own will.
    pub(super) is_steady: bool,
}

pub(super) struct Rated {
    chance: Chance,
    meters: Vec<Meter>,
    /// Messages that were confirmed, less those that were acknowledged: there are at least so many.
    backlog: [u64; PLANS.len()],
    keeper: Option<Home>,
    asked: Option<Micros>,
    clients: Vec<Client>,
    is_draining: bool,
    /// All queues are declared: before the version that knows rates nobody can.
    are_there: bool,
}

/// What was done how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct RatedCounts {
    /// Messages that went through a rate.
    pub went: u64,
    pub published: u64,
}

impl std::ops::AddAssign for RatedCounts {
    fn add_assign(&mut self, other: Self) {
        self.went += other.went;
        self.published += other.published;
    }
}

/// Somebody with a connection.
struct Client {
    queue: usize,
    nth: usize,
    home: Option<Home>,
    role: Role,
    ticket: u64,
}

enum Role {
    Consumer {
        is_attached: bool,
        held: Vec<u64>,
        /// Since when an attach or a get waits for its answer.
        asked: Option<Micros>,
    },
    /// One question at a time: so many messages are to be let in, or were sent.
    Publisher { asked: Option<(Micros, u64, bool)>, published: u64 },
}

impl Rated {
    pub(super) fn new(seed: u64) -> Self {
        let mut clients = Vec::new();
        for (queue, plan) in PLANS.iter().enumerate() {
            let client = |nth, role| Client { queue, nth, home: None, role, ticket: 10 };
            clients.extend((0..CONSUMERS).map(|nth| client(nth, Role::consumer())));
            let publishers = if plan.lets_in { PUBLISHERS } else { 1 };
            clients.extend((0..publishers).map(|nth| client(nth, Role::publisher())));
        }
        Self {
            chance: Chance::named(seed, "rated"),
            meters: PLANS.iter().map(meter).collect(),
            backlog: [0; PLANS.len()],
            keeper: None,
            asked: None,
            clients,
            is_draining: false,
            are_there: false,
        }
    }

    /// Those who have turns.
    pub(super) fn actors(&self) -> usize {
        1 + self.clients.len()
    }

    /// One of them has its turn.
    pub(super) fn act(&mut self, number: usize, mood: Mood, outside: &mut Outside<'_>) {
        self.is_draining = mood.is_draining;
        let Some(nth) = number.checked_sub(1) else {
            if mood.is_draining {
                self.meters.iter_mut().for_each(|meter| meter.look(outside.now));
            }
            self.keep(outside);
            return self.tell(outside.diary);
        };
        // Once enough was seen all come to rest.
        let rests = mood.is_draining && self.meters.iter().all(|meter| meter.is_fed);
        let Self { chance, clients, backlog, .. } = self;
        clients[nth].act(rests, mood, backlog, chance, outside);
        self.tell(outside.diary);
    }

    /// Declares what is not there.
    fn keep(&mut self, outside: &mut Outside<'_>) {
        let Some(home) = self.keeper else {
            self.keeper = outside.connect();
            self.asked = None;
            return;
        };
        if let Some(asked) = self.asked {
            if outside.now - asked > TIMEOUT {
                outside.leave(home);
                self.keeper = None;
            }
            return;
        }
        let agreed = outside.nodes[home.node].life.as_ref().map(|life| life.catalog.agreed());
        if agreed.is_none_or(|agreed| agreed < Version::RATES) {
            return;
        }
        let absent = PLANS.iter().find(|plan| outside.queue(home, plan.name).is_none());
        self.are_there |= absent.is_none();
        if let Some(plan) = absent {
            let flags = [true, false, false];
            let command = outside.declaration(home, plan.name, flags, arguments(plan));
            self.asked = Some(outside.now);
            outside.ask(home, vec![Request::Catalog { ticket: DECLARE, command }]);
        }
    }

    pub(super) fn answered(
        &mut self,
        session: SessionId,
        life: u64,
        answer: Answer,
        outside: &mut Outside<'_>,
    ) {
        if is_of(self.keeper, session, life) {
            self.asked = None;
            let is_right = match &answer {
                Answer::Catalog { ticket, reply } => {
                    *ticket == DECLARE && matches!(reply, CatalogReply::QueueDeclared { .. })
                }
                Answer::AppendFailed { ticket } => *ticket == DECLARE,
                _ => false,
            };
            if !is_right {
                let text = format!("who declares queues with rates was told {answer:?}");
                outside.diary.saw("rated", What::Protocol { text });
            }
            return;
        }
        let Self { clients, meters, backlog, .. } = self;
        if let Some(client) = clients.iter_mut().find(|it| is_of(it.home, session, life)) {
            client.answered(answer, &mut meters[client.queue], backlog, outside);
        }
        self.tell(outside.diary);
    }

    pub(super) fn is_session(&self, session: SessionId, life: u64) -> bool {
        let mut all = self.clients.iter().map(|client| client.home).chain([self.keeper]);
        all.any(|home| is_of(home, session, life))
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        let is_there = |home: Option<Home>| home.is_some_and(|home| home.node == node);
        if is_there(self.keeper) {
            self.keeper = None;
        }
        self.clients.iter_mut().filter(|it| is_there(it.home)).for_each(Client::end);
    }

    /// From here on nobody fails: there is to be as much as the rates allow.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        self.meters.iter_mut().for_each(Meter::begin);
    }

    /// Whether enough was seen, and all rest.
    pub(super) fn is_drained(&self) -> bool {
        let is_fed = self.meters.iter().all(|meter| meter.is_fed);
        !self.are_there || (is_fed && self.clients.iter().all(|client| client.home.is_none()))
    }

    /// Writes down what was left.
    pub(super) fn drained(&mut self, diary: &mut Diary) {
        let meters = self.meters.iter().filter(|_| self.are_there);
        for text in meters.filter_map(Meter::complaint) {
            diary.saw("rated", What::Protocol { text });
        }
        self.tell(diary);
    }

    fn tell(&mut self, diary: &mut Diary) {
        for text in self.meters.iter_mut().filter_map(Meter::take_violation) {
            diary.saw("rated", What::Protocol { text });
        }
    }

    pub(super) fn counts(&self) -> RatedCounts {
        let published = |client: &Client| match &client.role {
            Role::Publisher { published, .. } => *published,
            Role::Consumer { .. } => 0,
        };
        RatedCounts {
            went: self.meters.iter().map(|meter| meter.went).sum(),
            published: self.clients.iter().map(published).sum(),
        }
    }
}

/// What leaders have sent and nobody has is at most what all may hold, of two leaders in a row; or a question of each
/// publisher to either.
fn meter(plan: &Plan) -> Meter {
    let all_hold = CONSUMERS as u64 * u64::from(PREFETCH);
    let on_its_way = if plan.lets_in { PUBLISHERS as u64 * plan.burst } else { all_hold };
    Meter::new(plan.name, plan.per_ms, plan.burst + 2 * on_its_way)
}

fn arguments(plan: &Plan) -> Arguments {
    let (name, rate) = plan.rate;
    let arguments = Arguments::new().with(name, Value::LongStr(rate.as_bytes().to_vec()));
    if plan.lets_in {
        return arguments;
    }
    arguments.with("x-dequeue-burst", Value::I64(plan.burst as i64))
}

fn is_of(home: Option<Home>, session: SessionId, life: u64) -> bool {
    home.is_some_and(|home| home.session == session && home.life == life)
}

impl Role {
    fn consumer() -> Self {
        Self::Consumer { is_attached: false, held: Vec::new(), asked: None }
    }

    fn publisher() -> Self {
        Self::Publisher { asked: None, published: 0 }
    }
}

impl Client {
    fn act(
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
        let Some((queue, group)) = outside.queue(home, PLANS[self.queue].name) else { return };
        let consumer = self.consumer(home);
        match &mut self.role {
            Role::Publisher { asked: None, .. } => {
                let plan = &PLANS[self.queue];
                if plan.lets_in {
                    let count = chance.within(1, plan.burst + 1);
                    self.ask_first(home, (queue, group), count, outside);
                } else if backlog[self.queue] < BACKLOG {
                    self.publish(home, (queue, group), BATCH, outside);
                }
            }
            Role::Publisher { .. } => {}
            Role::Consumer { is_attached: false, asked: None, .. } => {
                self.attach(home, (queue, group), outside);
            }
            Role::Consumer { asked, held, .. } => {
                let mut requests = Vec::new();
                let (mut back, mut done) = (Ranges::new(), Ranges::new());
                for seq in held.drain(..) {
                    let is_back = chance.percent(PLANS[self.queue].given_back);
                    let ranges = if is_back { &mut back } else { &mut done };
                    ranges.insert(seq..seq + 1);
                }
                for (ranges, outcome) in [(done, Outcome::Done), (back, Outcome::Requeue)] {
                    if !ranges.is_empty() {
                        // What was fetched brings no credit, and is settled alone.
                        let is_fetched = self.nth == 0;
                        let credit = if is_fetched { 0 } else { ranges.len() as u32 };
                        requests.push(Request::Settle {
                            group,
                            queue,
                            consumer,
                            ranges,
                            outcome,
                            credit,
                        });
                    }
                }
                if self.nth == 0 && asked.is_none() {
                    self.ticket += 1;
                    *asked = Some(outside.now);
                    let (ticket, no_ack, at) = (Ticket(self.ticket), false, None);
                    requests.push(Request::Get { ticket, group, queue, consumer, no_ack, at });
                }
                if !requests.is_empty() {
                    outside.ask(home, requests);
                }
            }
        }
    }

    fn is_late(&self, now: Micros) -> bool {
        let asked = match &self.role {
            Role::Consumer { asked, .. } => *asked,
            Role::Publisher { asked, .. } => asked.map(|(since, ..)| since),
        };
        asked.is_some_and(|since| now - since > TIMEOUT)
    }

    fn consumer(&self, home: Home) -> ConsumerId {
        ConsumerId { session: home.session, number: 1 }
    }

    /// The first consumer of a queue fetches messages one by one, and is no consumer.
    fn attach(
        &mut self,
        home: Home,
        (queue, group): (QueueId, GroupId),
        outside: &mut Outside<'_>,
    ) {
        let consumer = self.consumer(home);
        let is_fetching = self.nth == 0;
        let Role::Consumer { is_attached, asked, .. } = &mut self.role else { return };
        if is_fetching {
            *is_attached = true;
            return;
        }
        *asked = Some(outside.now);
        let spec = ConsumerSpec { credit: PREFETCH, ..ConsumerSpec::default() };
        let ticket = ATTACH;
        outside.ask(home, vec![Request::Attach { ticket, group, queue, consumer, spec }]);
    }

    fn ask_first(
        &mut self,
        home: Home,
        (queue, group): (QueueId, GroupId),
        count: u64,
        outside: &mut Outside<'_>,
    ) {
        self.ticket += 1;
        let Role::Publisher { asked, .. } = &mut self.role else { return };
        *asked = Some((outside.now, count, false));
        let (ticket, sizes) = (Ticket(self.ticket), vec![20; count as usize]);
        outside.ask(home, vec![Request::Admit { ticket, group, queue, sizes }]);
    }

    fn publish(
        &mut self,
        home: Home,
        (queue, group): (QueueId, GroupId),
        count: u64,
        outside: &mut Outside<'_>,
    ) {
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

    fn answered(
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
            (Role::Consumer { asked, is_attached, .. }, Answer::Attached { result, .. }) => {
                (*asked, *is_attached) = (None, result.is_ok());
            }
            (Role::Consumer { held, .. }, Answer::Delivered(delivery)) => {
                let count = u64::from(delivery.count);
                held.extend(delivery.first_seq..delivery.first_seq + count);
                if !plan.lets_in {
                    meter.arrive(count, outside.now);
                }
                backlog[self.queue] = backlog[self.queue].saturating_sub(count);
            }
            (Role::Consumer { held, asked, .. }, Answer::Got { delivery, .. }) => {
                *asked = None;
                if let Some(delivery) = delivery {
                    held.push(delivery.first_seq);
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
            (Role::Consumer { asked, .. }, Answer::AppendFailed { .. }) => *asked = None,
            (_, other) => {
                let text = format!("{} of {}: told {other:?}", self.nth, plan.name);
                outside.diary.saw("rated", What::Protocol { text });
            }
        }
        if admitted > 0
            && let Some(place) = outside.queue(home, plan.name)
        {
            self.publish(home, place, admitted, outside);
        }
    }

    fn end(&mut self) {
        self.home = None;
        match &mut self.role {
            Role::Consumer { is_attached, held, asked } => {
                *is_attached = false;
                held.clear();
                *asked = None;
            }
            Role::Publisher { asked, .. } => *asked = None,
        }
    }
}
