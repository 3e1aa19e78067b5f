//! Queues with rates, and those who publish to them and consume from them: the same requests as a session's, in other
//! queues than those of the load. What goes is judged as it comes (`meter`); these queues are never drained.

mod client;
mod meter;
mod plan;
mod single;

use cluster::{Answer, Request, Ticket};
use machine::{CatalogReply, SessionId, Version};

use super::{Home, Outside};
use crate::history::What;
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::Chance;
use client::Client;
use meter::Meter;
use plan::{CONSUMERS, PLANS, PUBLISHERS, Plan};
use single::Served;

/// Who hears nothing for so long may try it elsewhere.
const TIMEOUT: Micros = 10_000_000;

const DECLARE: Ticket = Ticket(1);

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
    served: Served,
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

impl Rated {
    pub(super) fn new(seed: u64) -> Self {
        let mut clients = Vec::new();
        for (queue, plan) in PLANS.iter().enumerate() {
            clients.extend((0..CONSUMERS).map(|nth| Client::consumer(queue, nth)));
            let publishers = if plan.lets_in { PUBLISHERS } else { 1 };
            clients.extend((0..publishers).map(|nth| Client::publisher(queue, nth)));
        }
        Self {
            chance: Chance::named(seed, "rated"),
            meters: PLANS.iter().map(Plan::meter).collect(),
            backlog: [0; PLANS.len()],
            keeper: None,
            asked: None,
            clients,
            served: Served::default(),
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
                self.served.look(outside.now);
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
        let mut all = PLANS.iter().flat_map(Plan::declared);
        let absent = all.find(|(name, _)| outside.queue(home, name).is_none());
        self.are_there |= absent.is_none();
        if let Some((name, arguments)) = absent {
            let command = outside.declaration(home, name, [true, false, false], arguments);
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
        self.judge(session, life, &answer, outside);
        let Self { clients, meters, backlog, .. } = self;
        if let Some(client) = clients.iter_mut().find(|it| is_of(it.home, session, life)) {
            client.answered(answer, &mut meters[client.queue], backlog, outside);
        }
        self.tell(outside.diary);
    }

    /// S1.
    fn judge(&mut self, session: SessionId, life: u64, answer: &Answer, outside: &mut Outside<'_>) {
        let Answer::Delivered(_) = answer else { return };
        let client = self.clients.iter().find(|it| is_of(it.home, session, life));
        let Some(queue) = client.map(|client| client.queue) else { return };
        let clients = &self.clients;
        let is_there =
            |it| clients.iter().any(|client| client.home.is_some_and(|home| home.session == it));
        if let Some(text) = self.served.comes(queue, session, is_there, outside.now) {
            outside.diary.saw("rated", What::Protocol { text });
        }
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
        self.served.begin();
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
        RatedCounts {
            went: self.meters.iter().map(|meter| meter.went).sum(),
            published: self.clients.iter().map(Client::published).sum(),
        }
    }
}

fn is_of(home: Option<Home>, session: SessionId, life: u64) -> bool {
    home.is_some_and(|home| home.session == session && home.life == life)
}
