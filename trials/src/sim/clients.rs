//! Publishers and consumers of the simulated cluster: what brokers' sessions would ask of their
//! nodes. Each has a connection to some node, loses it with the node or by its own doing, and comes
//! back somewhere else.

mod administrator;
mod amqp_client;
mod byte_stream;
mod changer;
mod connection;
mod consumer;
mod control;
mod dead_letter;
mod examiner;
mod locks;
mod mover;
mod newer;
mod pauser;
mod peeker;
pub(super) mod plans;
mod publisher;
mod rated;
mod retrier;
mod streams;
mod sweeper;
mod visitor;
pub(super) mod waverer;

use std::collections::BTreeSet;
use std::rc::Rc;

use broker::QueueDeclaration;
use cluster::shard::Shard;
use cluster::{Answer, Request};
use machine::{
    Arguments, Attached, Catalog, CatalogCommand, GroupId, QueueId, SessionId, SessionOwner,
    Version,
};

use super::agenda::Micros;
use super::heads::{head_of, id_of};
use super::node::{Node, home};
use super::watch::Watch;
use super::{Diary, Size, VHOST, Versions};
use crate::history::What;
use crate::workload::Chance;
pub(super) use plans::{Kind, Plan, WIRE_SHARED};

use administrator::Administrator;
pub use amqp_client::AmqpCounts;
use amqp_client::{AmqpClient, Mood};
use broker::session::driver::Load;
use changer::Changer;
use connection::Clock;
use consumer::Consumer;
use control::Control;
use dead_letter::DeadLetterWorker;
use examiner::Examiner;
pub use locks::LockCounts;
use locks::Locks;
use mover::Mover;
use pauser::Pauser;
use peeker::Peeker;
use plans::{Changes, PUBLISHERS, ROVERS};
use publisher::Publisher;
use rated::Rated;
pub use rated::RatedCounts;
use retrier::Retrier;
pub use streams::StreamCounts;
use streams::Streams;
use sweeper::Sweeper;
use visitor::Visitor;
use waverer::Waverer;

/// Those who come and go with queues of their own.
const VISITORS: usize = 2;

/// Those who speak AMQP, where some do.
const AMQP_CLIENTS: usize = 3;

/// Somebody who has sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Publisher(usize),
    Consumer(usize),
    Visitor(usize),
    Sweeper(usize),
    Mover(usize),
    AmqpClient(usize),
    Control,
    Administrator,
    Examiner,
    Pauser,
    Retrier,
    Waverer,
    Streams,
    Locks,
    Rated,
}

/// What clients see of the world.
pub(super) struct Outside<'a> {
    pub(super) nodes: &'a mut [Node],
    pub(super) chance: &'a mut Chance,
    pub(super) diary: &'a mut Diary,
    pub(super) watch: &'a mut Watch,
    pub(super) now: Micros,
    /// Nodes that were asked something.
    pub(super) touched: BTreeSet<usize>,
}

impl Outside<'_> {
    /// A session on a node that serves, chosen by chance.
    fn connect(&mut self) -> Option<Home> {
        let serving: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.is_reachable(*node)).collect();
        let node = *serving.get(self.chance.within(0, serving.len() as u64) as usize)?;
        self.connect_to(node)
    }

    fn connect_to(&mut self, node: usize) -> Option<Home> {
        let session = self.nodes[node].open_session()?;
        Some(Home { node, life: self.nodes[node].lives, session })
    }

    fn is_reachable(&self, node: usize) -> bool {
        self.nodes[node].is_serving() && !self.nodes[node].is_paused
    }

    fn ask(&mut self, home: Home, requests: Vec<Request>) {
        if let Some(life) = &mut self.nodes[home.node].life {
            life.submit(home.session, requests);
            self.touched.insert(home.node);
        }
    }

    /// The connection is gone without a goodbye.
    fn leave(&mut self, home: Home) {
        if let Some(life) = &mut self.nodes[home.node].life {
            life.population.borrow_mut().leave(home.session);
            life.abandon(home.session);
            self.touched.insert(home.node);
        }
    }

    /// The queue as the node of `home` routes to it.
    fn queue(&self, home: Home, name: &str) -> Option<(QueueId, GroupId)> {
        let life = self.nodes[home.node].life.as_ref()?;
        life.catalog.queue(VHOST, name).map(|queue| (queue.id, queue.group))
    }

    /// One of its partitions, in the same way.
    fn partition(&self, home: Home, name: &str, index: usize) -> Option<(QueueId, GroupId)> {
        let life = self.nodes[home.node].life.as_ref()?;
        let partition = life.catalog.queue(VHOST, name)?.partitions().nth(index)?;
        Some((partition.queue, partition.group))
    }

    /// Whether a queue wants to be asked before it is sent anything, as the node of `home` routes.
    fn is_guarded(&self, home: Home, name: &str) -> bool {
        let life = self.nodes[home.node].life.as_ref();
        let queue = life.and_then(|life| life.catalog.queue(VHOST, name));
        queue.is_some_and(|queue| queue.target().is_guarded)
    }

    /// What a session makes of a declaration: a transient queue unless it is `durable`.
    fn declaration(
        &self,
        home: Home,
        name: &str,
        [durable, auto_delete, exclusive]: [bool; 3],
        arguments: Arguments,
    ) -> CatalogCommand {
        let node = &self.nodes[home.node];
        let declaration = QueueDeclaration {
            vhost: VHOST.to_owned(),
            name: name.to_owned(),
            durable,
            auto_delete,
            exclusive,
            server_named: false,
            arguments,
            by: SessionOwner { node: node.id, session: home.session },
        };
        match &node.life {
            Some(life) => declaration.into_command_for(&life.catalog),
            None => declaration.into_command(Version::FIRST),
        }
    }

    /// Whether the node of a connection belongs to the cluster, as far as it knows.
    fn is_member(&self, home: Home) -> bool {
        let node = &self.nodes[home.node];
        node.life.as_ref().is_some_and(|life| life.catalog.node(node.id).is_some())
    }

    fn queue_name(&self, home: Home, queue: QueueId) -> Option<String> {
        let life = self.nodes[home.node].life.as_ref()?;
        life.catalog.queue_by_id(queue).map(|queue| queue.name.clone())
    }
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    node: usize,
    life: u64,
    session: SessionId,
}

pub(super) struct Clients {
    plans: Rc<[Plan]>,
    /// One of each node.
    dead_letter_workers: Vec<DeadLetterWorker>,
    publishers: Vec<Publisher>,
    consumers: Vec<Consumer>,
    visitors: Vec<Visitor>,
    sweepers: Vec<Sweeper>,
    movers: Vec<Mover>,
    amqp_clients: Vec<AmqpClient>,
    control: Control,
    /// None: policies and rights stay as they were at first.
    administrator: Option<Administrator>,
    examiner: Examiner,
    /// None: no queue is paused, and no dead letter is sent on.
    pauser: Option<Pauser>,
    retrier: Option<Retrier>,
    /// None: no purge is undone.
    waverer: Option<Waverer>,
    /// None: there are no streams.
    streams: Option<Streams>,
    /// None: nobody wants a lock.
    locks: Option<Locks>,
    /// None: no queue has a rate.
    rated: Option<Rated>,
    /// Nobody leaves of his own will.
    is_steady: bool,
    /// Nothing comes in, and consumers settle all they get.
    is_draining: bool,
}

impl Clients {
    /// `uses_newer`: nodes are upgraded to `Version::TRIAL`.
    pub(super) fn new(
        seed: u64,
        nodes: usize,
        uses_newer: bool,
        size: &Size,
        diary: &mut Diary,
    ) -> Self {
        let (is_aimed, plans) = (size.is_aimed, plans::draw(seed, size));
        for plan in plans.iter().filter(|plan| plan.kind == Kind::Durable) {
            let single = plan.consumers <= 1 && plan.is_plain();
            let (q, dead) = (plan.name.to_owned(), plan.dead().map(str::to_owned));
            diary.saw("world", What::Queue { q: q.clone(), single, dead });
            if let Some(special) = &plan.special {
                let traits = special.traits.clone();
                diary.saw("world", What::Traits { q, traits });
            }
        }
        let mut consumers = Vec::new();
        for (queue, plan) in plans.iter().enumerate().filter(|(_, plan)| !plan.is_over_amqp) {
            // The backlog's consumer rests until the drain.
            for nth in 0..plan.consumers.max(1) {
                consumers.push(Consumer::new(&plans, queue, nth));
            }
        }
        let Changes { purged, moved } = Changes::of(&plans);
        let regular = 0..PUBLISHERS.len() + ROVERS;
        let regular = regular.map(|number| Publisher::new(&plans, number));
        let more = purged.iter().map(|queue| Publisher::to(&plans, *queue));
        Self {
            publishers: regular.chain(more).collect(),
            sweepers: purged.iter().map(|queue| Sweeper::new(&plans, *queue, is_aimed)).collect(),
            movers: moved
                .iter()
                .map(|(from, to)| Mover::new(&plans, *from, to, is_aimed))
                .collect(),
            dead_letter_workers: (0..nodes).map(|_| DeadLetterWorker::default()).collect(),
            consumers,
            visitors: (0..VISITORS).map(Visitor::new).collect(),
            amqp_clients: amqp_clients(&plans),
            control: Control::new(
                &plans,
                uses_newer,
                // The administrator changes queues, too.
                (size.has_sessions && !size.has_policies).then(|| Changer::new(seed)),
                Peeker::new(seed).filter(|_| size.versions != Versions::First),
            ),
            administrator: size.has_policies.then(|| Administrator::new(seed, &plans)),
            examiner: Examiner::new(Clock::new()),
            pauser: size.has_operations.then(|| Pauser::new(seed, &plans)),
            retrier: size.has_operations.then(|| Retrier::new(seed)),
            waverer: size.has_undo.then(|| Waverer::new(seed, &plans)),
            streams: size.has_streams.then(|| Streams::new(seed)),
            locks: size.has_locks.then(|| Locks::new(seed)),
            rated: size.has_rates.then(|| Rated::new(seed)),
            is_steady: false,
            is_draining: false,
            plans,
        }
    }

    /// The dead-letter worker of `node` does what is due.
    pub(super) fn dead_letter_worker_acts(&mut self, node: usize, outside: &mut Outside<'_>) {
        if outside.is_reachable(node) {
            self.dead_letter_workers[node].act(
                dead_letter::home(node, outside),
                &self.plans,
                outside,
            );
        }
    }

    /// Those who publish as long as there is load.
    pub(super) fn publisher_names(&self) -> Vec<String> {
        let amqp_clients = self.amqp_clients.iter().map(|client| &client.name);
        self.publishers
            .iter()
            .map(|publisher| &publisher.name)
            .chain(amqp_clients)
            .cloned()
            .collect()
    }

    pub(super) fn publishers(&self) -> usize {
        self.publishers.len()
    }

    pub(super) fn consumers(&self) -> usize {
        self.consumers.len()
    }

    pub(super) fn publisher_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        // As a broker does while the alarm is on: it reads no publish.
        let home = self.publishers[number].home;
        let is_blocked = home.is_some_and(|home| outside.nodes[home.node].is_short());
        let (may_publish, may_leave) = (!self.is_draining && !is_blocked, !self.is_steady);
        self.publishers[number].act(may_publish, may_leave, outside);
    }

    pub(super) fn consumer_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        let plan = &self.plans[self.consumers[number].queue];
        if plan.consumers > 0 || self.is_draining {
            self.consumers[number].act(self.is_draining, !self.is_steady, outside);
        }
    }

    pub(super) fn visitors(&self) -> usize {
        self.visitors.len()
    }

    pub(super) fn visitor_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        self.visitors[number].act(!self.is_draining, outside);
    }

    pub(super) fn sweepers(&self) -> usize {
        self.sweepers.len()
    }

    pub(super) fn sweeper_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        // What a purge takes after the heal would not be seen to be delivered.
        self.sweepers[number].act(!self.is_steady && !self.is_draining, outside);
    }

    /// Where those are who purge and who move messages in transactions.
    pub(super) fn homes_of_changers(&self) -> Vec<usize> {
        let sweepers = self.sweepers.iter().filter_map(|sweeper| sweeper.home);
        let movers = self.movers.iter().filter_map(|mover| mover.home);
        sweepers.chain(movers).map(|home| home.node).collect()
    }

    pub(super) fn movers(&self) -> usize {
        self.movers.len()
    }

    pub(super) fn mover_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        self.movers[number].act(!self.is_draining, !self.is_steady, outside);
    }

    pub(super) fn amqp_clients(&self) -> usize {
        self.amqp_clients.len()
    }

    pub(super) fn amqp_client_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        let mood = Mood {
            may_publish: !self.is_draining,
            is_steady: self.is_steady,
            is_draining: self.is_draining,
        };
        let at = |client: &AmqpClient| client.home().map(|home| home.node);
        let here = at(&self.amqp_clients[number]);
        let mut others = Load::default();
        for (other, client) in self.amqp_clients.iter().enumerate() {
            if other != number && at(client) == here {
                others += client.load();
            }
        }
        self.amqp_clients[number].turn(mood, others, outside);
    }

    /// Who of those that speak AMQP is to have a turn when, as far as that is news.
    pub(super) fn amqp_client_turns(
        &mut self,
        nodes: &[Node],
        now: Micros,
    ) -> Vec<(usize, Micros)> {
        let turns = self.amqp_clients.iter_mut().map(|client| client.plan(nodes, now));
        turns.enumerate().filter_map(|(number, at)| Some((number, at?))).collect()
    }

    /// A node is gone, and with it the AMQP sessions on it.
    pub(super) fn amqp_clients_disconnected(&mut self, node: usize, outside: &mut Outside<'_>) {
        for client in &mut self.amqp_clients {
            client.disconnected(node, outside);
        }
        self.examiner.disconnected(node, outside);
    }

    /// What AMQP clients did how often, all together.
    pub(super) fn amqp_counts(&self) -> AmqpCounts {
        let mut all = AmqpCounts::default();
        self.amqp_clients.iter().for_each(|client| all += client.counts);
        all
    }

    pub(super) fn control_acts(&mut self, outside: &mut Outside<'_>) {
        self.control.act(self.is_draining && self.is_quiet(), outside);
    }

    pub(super) fn administrator_acts(&mut self, outside: &mut Outside<'_>) {
        if let Some(administrator) = &mut self.administrator {
            administrator.act(self.is_steady, outside);
        }
    }

    /// Changes of policies, rights and limits that were made, and what sessions were tried for.
    pub(super) fn administered(&self) -> (u64, u64) {
        (self.administrator.as_ref().map_or(0, |it| it.done), self.examiner.tried)
    }

    /// What is otherwise in a node's catalog than the administrator wants it in the end.
    pub(super) fn differs_from_goal(&self, catalog: &Catalog) -> Option<String> {
        self.administrator.as_ref()?.differs(catalog)
    }

    /// Whether the administrator waits for nothing.
    pub(super) fn is_administered(&self) -> bool {
        self.administrator.as_ref().is_none_or(Administrator::is_idle)
    }

    /// Every node is as the administrator wants it.
    pub(super) fn administration_is_settled(&mut self, diary: &mut Diary) {
        if let Some(administrator) = &mut self.administrator {
            administrator.settled(diary);
        }
    }

    /// Sessions are tried on these nodes.
    pub(super) fn examine(&mut self, nodes: &[usize]) {
        if let Some(administrator) = &self.administrator {
            self.examiner.begin(administrator.rights(), nodes.iter().copied());
        }
    }

    pub(super) fn is_examined(&self) -> bool {
        self.examiner.is_done()
    }

    pub(super) fn examiner_acts(&mut self, outside: &mut Outside<'_>) {
        self.examiner.turn(outside);
    }

    pub(super) fn pauser_acts(&mut self, outside: &mut Outside<'_>) {
        if let Some(pauser) = &mut self.pauser {
            pauser.drains(self.is_draining, outside);
            pauser.act(!self.is_steady, outside);
        }
    }

    pub(super) fn retrier_acts(&mut self, outside: &mut Outside<'_>) {
        if let Some(retrier) = &mut self.retrier {
            retrier.act(!self.is_draining, !self.is_steady, outside);
        }
    }

    pub(super) fn waverer_acts(&mut self, outside: &mut Outside<'_>) {
        if let Some(waverer) = &mut self.waverer {
            waverer.act(!self.is_steady, outside);
        }
    }

    /// Messages that were purged, and came back.
    pub(super) fn brought_back(&self) -> u64 {
        self.waverer.as_ref().map_or(0, |waverer| waverer.brought_back)
    }

    /// Pauses that began or ended, and dead letters that were sent on.
    pub(super) fn operations(&self) -> (u64, u64) {
        let pauses = self.pauser.as_ref().map_or(0, |pauser| pauser.done);
        (pauses, self.retrier.as_ref().map_or(0, |retrier| retrier.sent))
    }

    /// Those who have to do with streams.
    pub(super) fn stream_actors(&self) -> usize {
        self.streams.as_ref().map_or(0, Streams::actors)
    }

    pub(super) fn stream_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        let mood = streams::Mood { is_draining: self.is_draining, is_steady: self.is_steady };
        if let Some(streams) = &mut self.streams {
            streams.act(number, mood, outside);
        }
    }

    /// Those who have to do with queues that have rates.
    pub(super) fn rated_actors(&self) -> usize {
        self.rated.as_ref().map_or(0, Rated::actors)
    }

    pub(super) fn rated_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        let mood = rated::Mood { is_draining: self.is_draining, is_steady: self.is_steady };
        if let Some(rated) = &mut self.rated {
            rated.act(number, mood, outside);
        }
    }

    pub(super) fn rated_counts(&self) -> RatedCounts {
        self.rated.as_ref().map(Rated::counts).unwrap_or_default()
    }

    pub(super) fn stream_counts(&self) -> StreamCounts {
        self.streams.as_ref().map(Streams::counts).unwrap_or_default()
    }

    /// Those who want locks.
    pub(super) fn lock_actors(&self) -> usize {
        self.locks.as_ref().map_or(0, Locks::actors)
    }

    pub(super) fn lock_acts(&mut self, number: usize, outside: &mut Outside<'_>) {
        if let Some(locks) = &mut self.locks {
            locks.act(number, self.is_steady, self.is_draining, outside);
        }
    }

    pub(super) fn lock_counts(&self) -> LockCounts {
        self.locks.as_ref().map(Locks::counts).unwrap_or_default()
    }

    /// When the examiner is to have its next turn, as far as that is news.
    pub(super) fn examiner_turn(&mut self, nodes: &[Node], now: Micros) -> Option<Micros> {
        self.examiner.plan(nodes, now)
    }

    /// Whether it is a queue of the load that stays.
    pub(super) fn is_of_load(&self, name: &str) -> bool {
        self.plans.iter().any(|plan| plan.name == name && plan.kind == Kind::Durable)
    }

    /// How many sessions of AMQP clients are open on a node, if all is quiet.
    pub(super) fn sessions_of(&self, node: usize) -> usize {
        self.amqp_clients.iter().filter(|client| client.is_in(node)).count()
    }

    /// Whether what is new was used, where there is something new.
    pub(super) fn has_used_newer(&self) -> bool {
        self.control.has_used_newer()
    }

    /// Nothing that was asked may still add to a queue, or take from it.
    fn is_quiet(&self) -> bool {
        self.publishers.iter().all(Publisher::is_quiet)
            && self.sweepers.iter().all(Sweeper::is_quiet)
            && self.movers.iter().all(Mover::is_quiet)
            && self.retrier.as_ref().is_none_or(Retrier::is_quiet)
            && self.waverer.as_ref().is_none_or(Waverer::is_quiet)
            && self.amqp_clients.iter().all(AmqpClient::is_quiet)
    }

    pub(super) fn answered(
        &mut self,
        session: SessionId,
        life: u64,
        answer: Answer,
        outside: &mut Outside<'_>,
    ) {
        let node = home(session);
        if session == Shard::dead_letter_worker(outside.nodes[node].id)
            && life == outside.nodes[node].lives
        {
            let home = dead_letter::home(node, outside);
            return self.dead_letter_workers[node].answered(answer, home, &self.plans, outside);
        }
        match self.who(session, life) {
            Some(Who::Publisher(number)) => self.publishers[number].answered(answer, outside),
            Some(Who::Consumer(number)) => self.consumers[number].answered(answer, outside),
            Some(Who::Sweeper(number)) => self.sweepers[number].answered(answer, outside),
            Some(Who::Mover(number)) => self.movers[number].answered(answer, outside),
            Some(Who::Visitor(number)) => self.visitors[number].answered(answer, outside),
            Some(Who::AmqpClient(number)) => self.amqp_clients[number].answered(answer, outside),
            Some(Who::Control) => self.control.answered(answer, outside),
            Some(Who::Administrator) => {
                if let Some(administrator) = &mut self.administrator {
                    administrator.answered(answer, outside.diary);
                }
            }
            Some(Who::Examiner) => self.examiner.answered(session, life, answer, outside),
            Some(Who::Pauser) => {
                if let Some(pauser) = &mut self.pauser {
                    pauser.answered(answer, outside);
                }
            }
            Some(Who::Waverer) => {
                if let Some(waverer) = &mut self.waverer {
                    waverer.answered(answer, outside);
                }
            }
            Some(Who::Retrier) => {
                if let Some(retrier) = &mut self.retrier {
                    retrier.answered(answer, outside);
                }
            }
            Some(Who::Streams) => {
                if let Some(streams) = &mut self.streams {
                    streams.answered(session, life, answer, outside);
                }
            }
            Some(Who::Locks) => {
                if let Some(locks) = &mut self.locks {
                    locks.answered(session, life, answer, outside);
                }
            }
            Some(Who::Rated) => {
                if let Some(rated) = &mut self.rated {
                    rated.answered(session, life, answer, outside);
                }
            }
            // An older session's answers are on a connection that nobody reads.
            None => {}
        }
    }

    fn who(&self, session: SessionId, life: u64) -> Option<Who> {
        let is_home = |home: Option<Home>| {
            home.is_some_and(|home| home.session == session && home.life == life)
        };
        if is_home(self.control.home) {
            return Some(Who::Control);
        }
        if self.administrator.as_ref().is_some_and(|it| is_home(it.home)) {
            return Some(Who::Administrator);
        }
        if self.pauser.as_ref().is_some_and(|it| is_home(it.home)) {
            return Some(Who::Pauser);
        }
        if self.waverer.as_ref().is_some_and(|it| is_home(it.home)) {
            return Some(Who::Waverer);
        }
        if self.retrier.as_ref().is_some_and(|it| is_home(it.home)) {
            return Some(Who::Retrier);
        }
        if self.examiner.is_session(session, life) {
            return Some(Who::Examiner);
        }
        if self.streams.as_ref().is_some_and(|it| it.is_session(session, life)) {
            return Some(Who::Streams);
        }
        if self.locks.as_ref().is_some_and(|it| it.is_session(session, life)) {
            return Some(Who::Locks);
        }
        if self.rated.as_ref().is_some_and(|it| it.is_session(session, life)) {
            return Some(Who::Rated);
        }
        let publisher = self.publishers.iter().position(|publisher| is_home(publisher.home));
        let consumer = || self.consumers.iter().position(|consumer| is_home(consumer.home));
        let visitor = || self.visitors.iter().position(|visitor| is_home(visitor.home));
        let sweeper = || self.sweepers.iter().position(|sweeper| is_home(sweeper.home));
        let mover = || self.movers.iter().position(|mover| is_home(mover.home));
        let client =
            || self.amqp_clients.iter().position(|client| client.is_session(session, life));
        let publisher = publisher.map(Who::Publisher);
        publisher
            .or_else(|| consumer().map(Who::Consumer))
            .or_else(|| visitor().map(Who::Visitor))
            .or_else(|| sweeper().map(Who::Sweeper))
            .or_else(|| mover().map(Who::Mover))
            .or_else(|| client().map(Who::AmqpClient))
    }

    /// A node is gone, and with it the sessions on it.
    pub(super) fn disconnected(&mut self, node: usize, now: Micros, diary: &mut Diary) {
        for publisher in &mut self.publishers {
            publisher.disconnected(node, diary);
        }
        for consumer in &mut self.consumers {
            consumer.disconnected(node);
        }
        for visitor in &mut self.visitors {
            visitor.disconnected(node);
        }
        for sweeper in &mut self.sweepers {
            sweeper.disconnected(node, diary);
        }
        for mover in &mut self.movers {
            mover.disconnected(node, diary);
        }
        self.control.disconnected(node);
        self.administrator.iter_mut().for_each(|administrator| administrator.disconnected(node));
        self.pauser.iter_mut().for_each(|pauser| pauser.disconnected(node, diary));
        self.retrier.iter_mut().for_each(|retrier| retrier.disconnected(node));
        self.waverer.iter_mut().for_each(|waverer| waverer.disconnected(node, now));
        self.streams.iter_mut().for_each(|streams| streams.disconnected(node));
        self.locks.iter_mut().for_each(|locks| locks.disconnected(node));
        self.rated.iter_mut().for_each(|rated| rated.disconnected(node));
        self.dead_letter_workers[node].end();
    }

    /// From now on no session ends by its client's will.
    pub(super) fn stay(&mut self) {
        self.is_steady = true;
    }

    /// From now on nothing comes in, and every queue has a consumer that settles all it gets.
    pub(super) fn drain(&mut self) {
        self.is_steady = true;
        self.is_draining = true;
        self.control.forget();
        self.streams.iter_mut().for_each(Streams::drain);
        self.rated.iter_mut().for_each(Rated::drain);
    }

    /// Whether every queue reports nothing, asked after the last answer to a publisher.
    pub(super) fn is_drained(&self) -> bool {
        let go_on = self.pauser.as_ref().is_none_or(Pauser::is_quiet);
        let is_read = self.streams.as_ref().is_none_or(Streams::is_drained);
        let is_answered = self.locks.as_ref().is_none_or(Locks::is_quiet);
        let is_fed = self.rated.as_ref().is_none_or(Rated::is_drained);
        self.control.is_drained() && self.is_quiet() && go_on && is_read && is_answered && is_fed
    }

    /// What is wrong in what leaders know of consumers and of what they hold.
    pub(super) fn differs(&self, known: &[Attached], nodes: &[Node]) -> Option<String> {
        let is_nobodys = |it: &&Attached| {
            let session = it.consumer.session;
            self.who(session, nodes[home(session)].lives).is_none()
        };
        let ghost = known.iter().find(is_nobodys);
        let ghost =
            ghost.map(|it| format!("nobody is {:?}, which has {}", it.consumer, it.queue.0));
        let consumer = || self.consumers.iter().find_map(|consumer| consumer.differs(known));
        let client = || self.amqp_clients.iter().find_map(|client| client.differs(known, nodes));
        let streams = || self.streams.as_ref().and_then(Streams::differs);
        ghost.or_else(consumer).or_else(client).or_else(streams)
    }

    /// Writes down what was left.
    pub(super) fn drained(&mut self, now: Micros, diary: &mut Diary) {
        for publisher in self.publishers.iter().filter(|publisher| !publisher.is_quiet()) {
            publisher.complain(diary);
        }
        for consumer in &self.consumers {
            consumer.complain(now, diary);
        }
        for visitor in &self.visitors {
            visitor.stalled(now, diary);
        }
        for client in &self.amqp_clients {
            client.stalled(now, diary);
        }
        self.administrator.iter().for_each(|administrator| administrator.complain(diary));
        self.pauser.iter().for_each(|pauser| pauser.complain(diary));
        self.waverer.iter().for_each(|waverer| waverer.complain(diary));
        self.streams.iter_mut().for_each(|streams| streams.drained(diary));
        self.locks.iter().for_each(|locks| locks.complain(diary));
        self.rated.iter_mut().for_each(|rated| rated.drained(diary));
        self.control.drained(diary);
    }

    /// Visits that came to their end.
    pub(super) fn visits(&self) -> u64 {
        self.visitors.iter().map(|visitor| visitor.finished).sum()
    }

    /// Purges and transactions that were answered.
    pub(super) fn changes(&self) -> (u64, u64) {
        let purges = self.sweepers.iter().map(|sweeper| sweeper.finished).sum();
        (purges, self.movers.iter().map(|mover| mover.finished).sum())
    }

    /// Messages that an operator looked at.
    pub(super) fn looks(&self) -> u64 {
        self.control.looks()
    }

    /// Whether a publisher on `node` has waited too long: its question was asked before `before`.
    pub(super) fn waits_since(&self, at: (usize, GroupId), before: Micros) -> Option<String> {
        self.publishers.iter().find_map(|publisher| publisher.waits_since(at, before))
    }
}

/// One takes messages alone, the others share a queue.
fn amqp_clients(plans: &Rc<[Plan]>) -> Vec<AmqpClient> {
    let clock = Clock::new();
    let queues = plans.iter().enumerate().filter(|(_, plan)| plan.is_over_amqp).map(|(at, _)| at);
    let queues: Vec<usize> = queues.collect();
    let [sole, shared] = queues[..] else { return Vec::new() };
    let queue = |number| if number == 0 { sole } else { shared };
    (0..AMQP_CLIENTS).map(|number| AmqpClient::new(plans, number, queue(number), clock)).collect()
}
