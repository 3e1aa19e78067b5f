//! Three nodes under chance: links break, nodes start again, and in the end everybody was answered,
//! nothing confirmed is lost, and nothing came twice without saying so. Some queues have priorities,
//! limits, lifetimes or dead letters, some messages delays.

use std::collections::{BTreeMap, BTreeSet};

use crate::cores::Cluster;
use cluster::shard::Shard;
use cluster::{Answer, Delivery, Leaving, Request, Ticket};
use machine::{
    Arguments, Attributes, Batch, CatalogCommand, CatalogReply, ConsumerId, ConsumerSpec, GroupId,
    Messages, NodeId, Outcome, QueueId, Ranges, SessionId, SessionOwner, Value,
};

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut hash = self.0;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (hash ^ (hash >> 31)) % end
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize].clone())
    }
}

type Place = (QueueId, GroupId);

struct World {
    cluster: Cluster,
    chance: Chance,
    sessions: BTreeMap<NodeId, SessionId>,
    session_count: u64,
    tickets: u64,
    pending: BTreeMap<(SessionId, Ticket), (u64, String)>,
    published: BTreeMap<(SessionId, Ticket), u64>,
    confirmed: BTreeSet<u64>,
    seen: BTreeSet<u64>,
    durable: Vec<Place>,
    others: Vec<Place>,
    consumers: Vec<(ConsumerId, Place)>,
    bodies: u64,
    names: u64,
    /// Bodies for queues that stay.
    lasting: BTreeSet<u64>,
    /// When a body may be delivered at the earliest, where that is not at once.
    due: BTreeMap<u64, u64>,
    /// Dead-letter workers store all that they are given.
    is_calm: bool,
    /// What the run went through.
    left: u64,
    delayed: u64,
    returned: u64,
}

/// Queues that stay, by their place among them.
const PRIORITY: usize = 1;
const LIMIT: usize = 2;
const LIFETIME: usize = 3;
const LENGTH: usize = 4;

fn arguments(nth: usize) -> Vec<(&'static str, Value)> {
    let text = |text: &str| Value::LongStr(text.as_bytes().to_vec());
    let dead_letters = ("x-dead-letter-exchange", text("dead"));
    match nth {
        PRIORITY => vec![("x-max-priority", Value::I32(3))],
        LIMIT => vec![("x-queue-type", text("quorum")), ("x-delivery-limit", Value::I32(3))],
        LIFETIME => vec![("x-message-ttl", Value::I32(400)), dead_letters],
        LENGTH => vec![("x-max-length", Value::I32(5)), dead_letters],
        _ => Vec::new(),
    }
}

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            cluster: Cluster::new(3, 2),
            chance: Chance(seed),
            sessions: BTreeMap::new(),
            session_count: 0,
            tickets: 100,
            pending: BTreeMap::new(),
            published: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            seen: BTreeSet::new(),
            durable: Vec::new(),
            others: Vec::new(),
            consumers: Vec::new(),
            bodies: 0,
            names: 0,
            lasting: BTreeSet::new(),
            due: BTreeMap::new(),
            is_calm: false,
            left: 0,
            delayed: 0,
            returned: 0,
        };
        world.cluster.open_dead_letter_workers();
        NODES.iter().for_each(|node| world.open(*node));
        for nth in 0..7 {
            let by = world.sessions[&NODES[nth % 3]];
            let name = format!("lasting {nth}");
            let place = world.cluster.declare_with(by, &name, (true, false), &arguments(nth));
            world.durable.push(place);
        }
        world
    }

    fn open(&mut self, node: NodeId) {
        self.session_count += 1;
        let session = SessionId(Shard::first_session(node).0 + self.session_count);
        self.sessions.insert(node, session);
    }

    fn ticket(&mut self, session: SessionId, what: String) -> Ticket {
        self.tickets += 1;
        self.pending.insert((session, Ticket(self.tickets)), (self.cluster.ms, what));
        Ticket(self.tickets)
    }

    fn act(&mut self) {
        let node = self.chance.pick(&NODES).unwrap();
        let session = self.sessions[&node];
        let mut all = self.durable.clone();
        all.extend(&self.others);
        let (queue, group) = self.chance.pick(&all).unwrap();
        match self.chance.below(1000) {
            0..400 => {
                self.bodies += 1;
                let ticket = self.ticket(session, format!("append to {queue:?} of {group:?}"));
                let nth = self.durable.iter().position(|it| *it == (queue, group));
                let level = match nth {
                    Some(PRIORITY) => queue.level(self.chance.below(4) as u8),
                    _ => queue,
                };
                let mut attributes = Attributes::default();
                if self.chance.below(10) == 0 {
                    let delay = 1 + self.chance.below(600);
                    attributes.delay_ms = Some(delay);
                    self.due.insert(self.bodies, self.cluster.ms + delay);
                    self.delayed += 1;
                }
                let mut batch = Batch::new();
                batch.enqueue_with(&[level], &attributes, &[], &self.bodies.to_le_bytes());
                if self.durable.contains(&(queue, group)) {
                    self.lasting.insert(self.bodies);
                }
                self.published.insert((session, ticket), self.bodies);
                let settles = Vec::new();
                self.cluster.ask(session, Request::Append { group, ticket, batch, settles });
            }
            400..520 => {
                let ticket = self.ticket(session, format!("get of {queue:?} of {group:?}"));
                let consumer = ConsumerId { session, number: 0 };
                let request =
                    Request::Get { ticket, group, queue, consumer, no_ack: false, at: None };
                self.cluster.ask(session, request);
            }
            520..600 => {
                let number = self.tickets;
                let ticket = self.ticket(session, format!("attach to {queue:?} of {group:?}"));
                let consumer = ConsumerId { session, number };
                let spec = ConsumerSpec { credit: 3, ..ConsumerSpec::default() };
                self.consumers.push((consumer, (queue, group)));
                let request = Request::Attach { ticket, group, queue, consumer, spec };
                self.cluster.ask(session, request);
            }
            600..670 => {
                let Some(found) = self.chance.pick(&self.consumers) else { return };
                self.consumers.retain(|it| *it != found);
                let (consumer, (queue, group)) = found;
                let session = consumer.session;
                let ticket = self.ticket(session, format!("detach from {queue:?} of {group:?}"));
                self.cluster.ask(
                    session,
                    Request::Detach { ticket, group, queue, consumer, takes_back: true },
                );
            }
            670..700 => {
                let ticket = self.ticket(session, format!("status of {queue:?} of {group:?}"));
                self.cluster.ask(session, Request::Status { ticket, group, queue });
            }
            700..740 => {
                self.names += 1;
                let ticket = self.ticket(session, "declare".to_owned());
                let (durable, auto_delete, exclusive) = match self.chance.below(3) {
                    0 => (true, true, false),
                    1 => (false, false, false),
                    _ => (false, false, true),
                };
                let command = CatalogCommand::DeclareQueue {
                    vhost: "/".to_owned(),
                    name: format!("queue {}", self.names),
                    durable,
                    auto_delete,
                    exclusive,
                    server_named: false,
                    arguments: Arguments::new(),
                    by: SessionOwner { node, session },
                };
                self.cluster.ask(session, Request::Catalog { ticket, command });
            }
            740..770 => self.goodbye(node),
            770..800 => {
                let other = self.chance.pick(&NODES).unwrap();
                if node != other && self.cluster.is_up(node, other) {
                    self.cluster.cut(node, other);
                }
            }
            800..850 => {
                let other = self.chance.pick(&NODES).unwrap();
                if node != other && !self.cluster.is_up(node, other) {
                    self.cluster.heal(node, other);
                }
            }
            850..855 => {
                self.cluster.restart(node);
                self.cluster.open_dead_letter_worker(node);
                self.pending.retain(|(by, _), _| Shard::node_of(*by) != Some(node));
                self.consumers.retain(|(by, _)| Shard::node_of(by.session) != Some(node));
                self.open(node);
            }
            870..890 => {
                let other = self.chance.pick(&NODES).unwrap();
                if node != other && self.cluster.is_up(node, other) {
                    let ms = self.cluster.ms;
                    self.cluster.silent.entry((node, other)).or_insert(ms);
                }
            }
            890..930 => {
                self.cluster.silent.pop_first();
            }
            855..870 if !self.cluster.stalled.remove(&node) => {
                self.cluster.stalled.insert(node);
            }
            _ => {}
        }
    }

    fn goodbye(&mut self, node: NodeId) {
        let session = self.sessions[&node];
        // As a session does: it asks nothing more, and nobody reads its answers but the last.
        self.pending.retain(|(by, _), _| *by != session);
        self.consumers.retain(|(by, _)| by.session != session);
        let ticket = self.ticket(session, format!("goodbye of {session:?}"));
        self.cluster.end_session(session, ticket);
        self.open(node);
    }

    fn got(&mut self, delivery: &Delivery, is_got: bool) {
        let messages = Messages::of(delivery.store, &delivery.bytes);
        for (_, body) in messages {
            let body = u64::from_le_bytes(body.try_into().unwrap());
            let is_new = self.seen.insert(body);
            let due = self.due.get(&body).copied().unwrap_or(0);
            // Time may stand still for a while when another leads, and is not the same everywhere.
            assert!(self.cluster.ms + 20 >= due, "{body} is due at {due} and comes early");
            assert!(is_new || delivery.redelivered, "{body} came again unflagged: {delivery:?}");
        }
        if is_got || self.chance.below(10) < 7 {
            let Delivery { group, queue, consumer, first_seq, count, .. } = *delivery;
            let ranges = Ranges::from(first_seq..first_seq + u64::from(count));
            let is_limited = self.durable[LIMIT].0 == queue;
            let outcome = match self.chance.below(10) {
                0 | 1 if is_limited && !self.is_calm => Outcome::Requeue,
                2 if !self.is_calm && !is_limited && self.durable[LENGTH].0 == queue => {
                    Outcome::Rejected
                }
                _ => Outcome::Done,
            };
            self.returned += u64::from(delivery.returns);
            let credit = if is_got { 0 } else { count };
            let request = Request::Settle { group, queue, consumer, ranges, outcome, credit };
            self.cluster.ask(consumer.session, request);
        }
    }

    /// A dead-letter worker is given dead messages. What it stores is out of the queue; now and then it is slow.
    fn leaving(&mut self, dead_letter_worker: SessionId, leaving: &Leaving) {
        let Leaving { group, queue, first_seq, count, .. } = *leaving;
        for (_, body) in Messages::of(queue, &leaving.bytes) {
            self.seen.insert(u64::from_le_bytes(body.try_into().unwrap()));
            self.left += 1;
        }
        if self.is_calm || self.chance.below(10) < 7 {
            let consumer = ConsumerId { session: dead_letter_worker, number: 0 };
            let ranges = Ranges::from(first_seq..first_seq + u64::from(count));
            let (outcome, credit) = (Outcome::DeadLettered, 0);
            let request = Request::Settle { group, queue, consumer, ranges, outcome, credit };
            self.cluster.ask(dead_letter_worker, request);
        }
    }

    fn hear(&mut self) {
        for nth in 0..3 {
            for (session, answer) in std::mem::take(&mut self.cluster.cores[nth].answers) {
                let is_open = self.sessions.values().any(|open| *open == session);
                let ticket = match &answer {
                    Answer::Leaving(leaving) => {
                        self.leaving(session, leaving);
                        continue;
                    }
                    Answer::Delivered(delivery) => {
                        if is_open {
                            self.got(delivery, false);
                        }
                        continue;
                    }
                    Answer::Appended { ticket }
                    | Answer::AppendFailed { ticket }
                    | Answer::Catalog { ticket, .. }
                    | Answer::Attached { ticket, .. }
                    | Answer::Detached { ticket }
                    | Answer::Got { ticket, .. }
                    | Answer::Purged { ticket, .. }
                    | Answer::Status { ticket, .. }
                    | Answer::Described { ticket, .. }
                    | Answer::Closed { ticket, .. }
                    | Answer::SessionEnded { ticket } => *ticket,
                    _ => continue,
                };
                let asked = self.pending.remove(&(session, ticket));
                assert!(asked.is_some() || !is_open, "answered twice: {session:?} {answer:?}");
                match answer {
                    Answer::Appended { ticket } => {
                        self.confirmed.insert(self.published[&(session, ticket)]);
                    }
                    Answer::Catalog {
                        reply: CatalogReply::QueueDeclared { queue, group, .. },
                        ..
                    } if is_open => self.others.push((queue, group)),
                    Answer::Got { delivery: Some(delivery), .. } if is_open => {
                        self.got(&delivery, true);
                    }
                    _ => {}
                }
            }
        }
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.cluster.stalled.clear();
        self.cluster.silent.clear();
        // What a dead-letter worker was slow with is given to it again.
        self.cluster.open_dead_letter_workers();
        for a in NODES {
            for b in NODES.into_iter().filter(|b| *b > a) {
                if !self.cluster.is_up(a, b) {
                    self.cluster.heal(a, b);
                }
            }
        }
        for _ in 0..4500 {
            self.cluster.ms += 9;
            self.cluster.run(1);
            self.hear();
        }
        let hanging: Vec<_> = self.pending.iter().collect();
        assert!(hanging.is_empty(), "never answered: {hanging:#?}");
    }

    fn drain(&mut self) {
        NODES.into_iter().for_each(|node| self.goodbye(node));
        self.calm();
        let by = self.sessions[&NodeId(1)];
        for (queue, group) in self.durable.clone() {
            loop {
                let before = self.seen.len();
                let ticket = self.ticket(by, "drain".to_owned());
                let consumer = ConsumerId { session: by, number: 0 };
                let no_ack = false;
                self.cluster
                    .ask(by, Request::Get { ticket, group, queue, consumer, no_ack, at: None });
                let mut is_empty = false;
                for _ in 0..50 {
                    self.cluster.run(1);
                    let answers = &self.cluster.cores[0].answers;
                    is_empty |= answers
                        .iter()
                        .any(|(_, it)| matches!(it, Answer::Got { delivery: None, .. }));
                    self.hear();
                    if !self.pending.contains_key(&(by, ticket)) {
                        break;
                    }
                }
                assert!(!self.pending.contains_key(&(by, ticket)), "a get hangs in the calm");
                if is_empty {
                    break;
                }
                assert!(self.seen.len() >= before);
            }
        }
        let lost: Vec<_> = self
            .confirmed
            .iter()
            .filter(|body| self.lasting.contains(body) && !self.seen.contains(body))
            .collect();
        assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
        assert!(self.confirmed.len() > 50, "the test does not test much");
        for (queue, group) in self.durable.clone() {
            let ticket = self.ticket(by, "last status".to_owned());
            self.cluster.ask(by, Request::Status { ticket, group, queue });
            self.cluster.run(50);
            let answers = std::mem::take(&mut self.cluster.cores[0].answers);
            let status = answers.into_iter().find_map(|(_, answer)| match answer {
                Answer::Status { ticket: of, status } if of == ticket => status,
                _ => None,
            });
            let status = status.expect("its leader answers");
            let left = (status.ready, status.unsettled, status.delayed, status.leaving);
            assert_eq!(left, (0, 0, 0, 0), "{queue:?} is drained: {status:?}");
            let it = status.counters;
            let out = it.settled + it.purged + it.dropped + it.dead_lettered;
            assert_eq!((it.enqueued, it.purged, it.dropped), (out, 0, 0), "{queue:?}");
        }
        self.agree();
        for core in &self.cluster.cores {
            let catalog = core.shards[0].catalog().unwrap();
            let owned = catalog.queues().filter(|it| it.exclusive.is_some());
            let left: Vec<_> = owned.map(|it| it.id).collect();
            assert!(left.is_empty(), "their sessions are over: {left:?}");
        }
    }
}

impl World {
    /// Replicas of a group at the same entry are the same.
    fn agree(&mut self) {
        self.cluster.run(500);
        let mut digests: BTreeMap<(GroupId, u64), u64> = BTreeMap::new();
        for core in &self.cluster.cores {
            for report in core.shards.iter().flat_map(|shard| shard.report_groups(true)) {
                let known = digests.entry((report.group, report.applied)).or_insert(report.digest);
                assert_eq!(*known, report.digest, "replicas of {:?} differ", report.group);
            }
        }
    }
}

fn run(seed: u64) -> (u64, u64, u64) {
    let mut world = World::new(seed);
    for _ in 0..600 {
        world.act();
        let ms = 1 + world.chance.below(20);
        world.cluster.run(ms);
        world.hear();
    }
    world.calm();
    world.drain();
    (world.left, world.delayed, world.returned)
}

#[test]
fn everybody_is_answered_and_nothing_is_lost_or_comes_twice_unflagged() {
    let seeds = match std::env::var("SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").unwrap();
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => 0..8,
    };
    let mut seen = (0, 0, 0);
    for seed in seeds {
        eprintln!("seed {seed}");
        let (left, delayed, returned) = run(seed);
        seen = (seen.0 + left, seen.1 + delayed, seen.2 + returned);
    }
    assert!(seen.0 > 20 && seen.1 > 20 && seen.2 > 5, "the test does not test much: {seen:?}");
}
