//! The world of one seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use client::{Chance, PublishSeq, Run, Verdict};

use super::super::*;
use super::Told;
use crate::config::{OnDead, Pipeline};
use crate::fields::Fields;
use crate::mapping::{Mapping, Preset};
use crate::pgoutput::encode_row;
use crate::slot::{History, Recorded, Server, resume};

/// What a run is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) order: Order,
    pub(super) pipeline: Pipeline,
    pub(super) order_window: u32,
    pub(super) on_dead: OnDead,
    /// The order that is checked.
    pub(super) checks: Order,
    /// A planted fault: what was read is written down, not what is done.
    pub(super) confirms_early: bool,
    /// A planted fault: what is written down is trusted wherever it comes from.
    pub(super) trusts_any_record: bool,
    /// A planted fault: what is written down is never read.
    pub(super) trusts_no_record: bool,
    /// A planted fault: rows of a transaction under way count as done up to the last that came.
    pub(super) skips_too_far: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: Order::None,
            pipeline: Pipeline::Wait,
            order_window: 1,
            on_dead: OnDead::Block,
            checks: Order::None,
            confirms_early: false,
            trusts_any_record: false,
            trusts_no_record: false,
            skips_too_far: false,
        }
    }
}

/// A transaction: its commit is written just before `end`.
#[derive(Clone, Debug)]
struct Transaction {
    end: Lsn,
    rows: Vec<Committed>,
}

impl Transaction {
    fn commit(&self) -> Lsn {
        Lsn(self.end.0 - 1)
    }
}

/// A committed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Committed {
    id: u64,
    lsn: Lsn,
    key: u64,
    /// No message can be made of it.
    is_broken: bool,
    /// The broker closes the connection when it sees it.
    is_hated: bool,
    /// Returned until the world is healed.
    is_unroutable: bool,
    /// The connection is lost without a word when it is published, until the world is healed.
    is_deadly: bool,
}

/// A row among the failures.
#[derive(Clone, Debug)]
struct Kept {
    failure: Failure,
    next_at: Option<Instant>,
    is_dead: bool,
}

pub(super) struct World {
    options: Options,
    config: Config,
    chance: Chance,
    now: Instant,
    transactions: Vec<Transaction>,
    /// What the server remembers of the slot.
    confirmed: Lsn,
    /// What the relay has written down.
    recorded: Recorded,
    server: Server,
    /// What this server's own log says was done: nothing of it may come again.
    done: Reached,
    failures: BTreeMap<String, Kept>,
    stream: Stream,
    /// Inputs on their way from the server to the relay.
    arriving: VecDeque<Input>,
    read_to: Lsn,
    orders: VecDeque<Output>,
    /// On the wire to the broker.
    wire: VecDeque<(PublishSeq, String)>,
    verdicts: VecDeque<Verdict>,
    next_seq: u64,
    is_connected: bool,
    delivered: Vec<String>,
    /// Rows that came again although they were written down as done.
    repeated: Vec<String>,
    is_healed: bool,
}

impl World {
    pub(super) fn new(options: Options, seed: u64) -> Self {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.key = Some("type".into());
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut config = Config::new("postgres://x", broker, mapping);
        config.order = options.order;
        config.on_dead = options.on_dead;
        (config.pipeline, config.order_window) = (options.pipeline, options.order_window);
        config.window = 8;
        config.attempts.max = 1000;
        let mut chance = Chance::new(seed);
        let now = Instant::now();
        let transactions = transactions(&mut chance);
        let stream = Stream::new(&config, &config.mapping.table, Start::default(), now);
        let mut world = Self {
            options,
            config,
            chance,
            now,
            transactions,
            confirmed: Lsn(0),
            recorded: Recorded::default(),
            server: Server {
                history: History { system: "7001".into(), timeline: 1 },
                flushed: Lsn(u64::MAX),
            },
            done: Reached::default(),
            failures: BTreeMap::new(),
            stream,
            arriving: VecDeque::new(),
            read_to: Lsn(0),
            orders: VecDeque::new(),
            wire: VecDeque::new(),
            verdicts: VecDeque::new(),
            next_seq: 1,
            is_connected: false,
            delivered: Vec::new(),
            repeated: Vec::new(),
            is_healed: false,
        };
        world.start_relay();
        world
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.chance.next_bits() % limit
    }

    fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.stream.step(self.now, input, &mut out);
        self.orders.extend(out);
    }

    fn tell(&mut self, told: Told) {
        let mut out = Vec::new();
        self.stream.tell(self.now, told, &mut out);
        self.orders.extend(out);
    }

    /// One thing happens.
    pub(super) fn turn(&mut self) {
        let harm = if self.is_healed { 0 } else { 9 };
        match self.below(100 + harm) {
            0..30 => self.arrive(),
            30..55 => self.publish(),
            55..75 => self.broker(),
            75..88 => self.database(),
            88..94 => self.feedback(),
            94..100 => {
                self.now += Duration::from_millis(self.chance.next_bits() % 700);
                self.connect();
                self.step(Input::Time);
            }
            100..103 => self.lose_broker(),
            103..105 => self.start_relay(),
            // The server crashed and remembers an older place.
            105..108 => {
                let back = self.below(120);
                self.confirmed = Lsn(self.confirmed.0.saturating_sub(back));
                self.start_relay();
            }
            _ => self.fail_over(),
        }
    }

    /// Another server takes over, or the log has lost its end: what is written down is of changes that it never saw.
    fn fail_over(&mut self) {
        let back = self.below(60);
        self.confirmed = Lsn(self.confirmed.0.saturating_sub(back));
        let last = self.transactions.last().map_or(Lsn(0), |last| last.end);
        let ahead = Lsn(last.0 - self.below(20));
        self.recorded.confirmed = Some(ahead);
        match self.below(2) {
            0 => self.server.history.timeline += 1,
            _ => self.server.flushed = Lsn(ahead.0 - 1),
        }
        self.done = Reached::default();
        self.start_relay();
        self.server.flushed = Lsn(u64::MAX);
    }

    /// A relay dies, if there was one, and another begins with what the database knows.
    fn start_relay(&mut self) {
        let blocks = self.options.on_dead == OnDead::Block;
        let mut reached = resume(&self.recorded, self.confirmed, &self.server);
        if self.options.trusts_any_record {
            reached.confirmed = reached.confirmed.max(self.recorded.confirmed.unwrap_or_default());
        }
        if self.options.trusts_no_record {
            reached = Reached { confirmed: self.confirmed, ..Reached::default() };
        }
        self.write_down(reached);
        let start = Start {
            reached,
            parked: self.keys(blocks).into_iter().collect(),
            position: self
                .failures
                .values()
                .filter_map(|kept| kept.failure.position)
                .max()
                .unwrap_or(0)
                + 1,
            seed: self.chance.next_bits(),
        };
        let some = self.below(self.wire.len() as u64 + 1);
        // What was on the wire may still arrive.
        let wire: Vec<_> = self.wire.drain(..).collect();
        for (_, id) in wire.into_iter().take(some as usize) {
            if self.is_fatal(&id) {
                break;
            }
            if !self.is_refused(&id) {
                self.deliver(id);
            }
        }
        self.verdicts.clear();
        self.orders.clear();
        self.is_connected = false;
        self.stream = Stream::new(&self.config, &self.config.mapping.table, start, self.now);
        self.arriving.clear();
        // As PostgreSQL does it: by the place where a commit begins, and from the slot's place on at least.
        let from = reached.confirmed.max(self.confirmed);
        for transaction in self.transactions.iter().filter(|one| one.commit() >= from) {
            let (commit, end) = (transaction.commit(), transaction.end);
            self.arriving.push_back(Input::Begin { commit, at: None });
            for row in &transaction.rows {
                self.arriving.push_back(Input::Change { lsn: row.lsn, data: encode(row) });
            }
            self.arriving.push_back(Input::Commit { end, at: None });
            self.arriving.push_back(Input::KeepAlive { wal_end: end });
        }
        self.connect();
    }

    fn connect(&mut self) {
        if !self.is_connected {
            self.is_connected = true;
            self.next_seq = 1;
            self.tell(Told::BrokerReady);
        }
    }

    fn arrive(&mut self) {
        for _ in 0..1 + self.below(6) {
            if !self.stream.wants_input() {
                return;
            }
            let Some(input) = self.arriving.pop_front() else { return };
            if let Input::Commit { end, .. } = &input {
                self.read_to = *end;
            }
            self.step(input);
        }
    }

    fn publish(&mut self) {
        let mut fields = Fields::default();
        for _ in 0..1 + self.below(8) {
            let mut out = Vec::new();
            let is_offered =
                self.is_connected && self.stream.offer(self.now, &mut fields, &mut out);
            self.orders.extend(out);
            if !is_offered {
                return;
            }
            let id = fields.text(0).expect("a row has its id").to_owned();
            if self.row(&id).is_broken {
                let text = "no message can be made of it".into();
                self.tell(Told::Unfit(Fault { reason: Reason::Broken, text }));
                continue;
            }
            let seq = PublishSeq(self.next_seq);
            self.next_seq += 1;
            self.wire.push_back((seq, id));
            self.tell(Told::Published(seq));
        }
    }

    fn row(&self, id: &str) -> Committed {
        let rows = self.transactions.iter().flat_map(|one| &one.rows);
        *rows.clone().find(|row| name(row) == id).expect("only committed rows are published")
    }

    fn is_refused(&self, id: &str) -> bool {
        self.row(id).is_unroutable && !self.is_healed
    }

    /// The broker takes some messages, and some of its verdicts arrive.
    fn broker(&mut self) {
        for _ in 0..self.below(6) {
            let Some((seq, id)) = self.wire.pop_front() else { break };
            if self.row(&id).is_hated {
                (self.is_connected, self.wire) = (false, VecDeque::new());
                let all: Vec<Verdict> = self.verdicts.drain(..).collect();
                let some = self.below(all.len() as u64 + 1) as usize;
                for verdict in all.into_iter().take(some) {
                    self.tell(Told::Verdict(verdict));
                }
                let text = "PRECONDITION_FAILED".into();
                return self.tell(Told::BrokerRefused { code: 406, text });
            }
            if self.is_fatal(&id) {
                self.wire.push_front((seq, id));
                return self.lose_broker_to(Told::BrokerLost);
            }
            let run = Run { first: seq, last: seq };
            if self.is_refused(&id) {
                let verdict = Verdict::Returned { seq, code: 312, text: "NO_ROUTE".into() };
                self.verdicts.push_back(verdict);
            } else if !self.is_healed && self.below(20) == 0 {
                self.verdicts.push_back(Verdict::Refused(run));
            } else {
                self.deliver(id);
                self.verdicts.push_back(Verdict::Confirmed(run));
            }
        }
        // Confirms of some servers come in any order.
        if self.verdicts.len() > 1 && self.below(3) == 0 {
            self.verdicts.rotate_left(1);
        }
        for _ in 0..self.below(5) {
            let Some(verdict) = self.verdicts.pop_front() else { return };
            self.tell(Told::Verdict(verdict));
        }
    }

    fn deliver(&mut self, id: String) {
        let is_again = self.delivered.contains(&id) && !self.failures.contains_key(&id);
        if is_again && self.was_done(&id) {
            self.repeated.push(id.clone());
        }
        self.delivered.push(id);
    }

    /// Whether the relay has written down that a row is done.
    fn was_done(&self, id: &str) -> bool {
        let done = self.done;
        self.transactions.iter().any(|one| {
            let is_part_done = |row: &Committed| {
                done.partial.is_some_and(|part| part.commit == one.commit() && row.lsn < part.below)
            };
            let is_done = |row: &Committed| one.end <= done.confirmed || is_part_done(row);
            one.rows.iter().any(|row| name(row) == id && is_done(row))
        })
    }

    /// Nothing comes through behind it on one connection.
    fn is_fatal(&self, id: &str) -> bool {
        let row = self.row(id);
        row.is_hated || row.is_deadly && !self.is_healed
    }

    fn lose_broker(&mut self) {
        let told = match self.below(3) {
            0 => Told::BrokerSilent,
            _ => Told::BrokerLost,
        };
        if self.is_connected {
            self.lose_broker_to(told);
        }
    }

    fn lose_broker_to(&mut self, told: Told) {
        self.is_connected = false;
        let some = self.below(self.wire.len() as u64 + 1);
        let wire: Vec<_> = self.wire.drain(..).collect();
        for (_, id) in wire.into_iter().take(some as usize) {
            if self.is_fatal(&id) {
                break;
            }
            if !self.is_refused(&id) {
                self.deliver(id);
            }
        }
        self.verdicts.clear();
        self.tell(told);
    }

    fn feedback(&mut self) {
        let mut reached = self.stream.reached();
        if self.options.confirms_early {
            reached.confirmed = self.read_to.max(reached.confirmed);
        }
        if self.options.skips_too_far
            && let Some(partial) = &mut reached.partial
        {
            partial.below = partial.commit;
        }
        self.write_down(reached);
        // What a relay writes down that is not so cannot be held against it twice.
        if !self.options.confirms_early && !self.options.skips_too_far {
            self.done = reached;
        }
        // The server may be told later, or never.
        if self.is_healed || self.below(2) == 0 {
            self.confirmed = self.confirmed.max(reached.confirmed);
        }
    }

    fn write_down(&mut self, reached: Reached) {
        self.recorded = Recorded {
            confirmed: Some(reached.confirmed),
            partial: reached.partial,
            history: Some(self.server.history.clone()),
            ..Recorded::default()
        };
    }

    /// The database does some orders, in order.
    fn database(&mut self) {
        let mut inputs = Vec::new();
        for _ in 0..1 + self.below(8) {
            match self.orders.pop_front() {
                None => break,
                Some(Output::Store(failure)) => {
                    self.store(failure);
                    inputs.push(Input::Stored(1));
                }
                Some(Output::Retry(failure)) => {
                    let key = failure.key.clone();
                    self.store(failure);
                    inputs.extend(key.and_then(|key| self.look_at_key(&key)));
                }
                Some(Output::Remove { row_id, key }) => {
                    self.failures.remove(&row_id);
                    inputs.extend(key.and_then(|key| self.look_at_key(&key)));
                }
                Some(Output::FetchDue) => inputs.push(self.due()),
                Some(Output::Sweep) => {
                    let blocks = self.options.on_dead == OnDead::Block;
                    let keys = self.keys(blocks);
                    keys.iter().for_each(|key| drop(self.look_at_key(key)));
                    inputs.push(Input::Swept(keys));
                }
                Some(Output::GiveUp(error)) => panic!("{error}"),
            }
        }
        inputs.into_iter().for_each(|input| self.step(input));
    }

    fn store(&mut self, failure: Failure) {
        let is_there = self.failures.contains_key(&failure.row_id);
        if is_there && failure.position.is_some() {
            return;
        }
        let next_at = match failure.next {
            NextAttempt::After(after) => Some(self.now + after),
            NextAttempt::Behind | NextAttempt::Never => None,
        };
        let is_dead = failure.next == NextAttempt::Never;
        match self.failures.get_mut(&failure.row_id) {
            Some(kept) => {
                (kept.next_at, kept.is_dead) = (next_at, is_dead);
                kept.failure.attempts = failure.attempts;
            }
            None if failure.position.is_some() => {
                self.failures.insert(failure.row_id.clone(), Kept { failure, next_at, is_dead });
            }
            // A charge for what is not there any more changes nothing.
            None => (),
        }
    }

    fn keys(&self, dead_blocks: bool) -> BTreeSet<String> {
        let blocking = self.failures.values().filter(|kept| !kept.is_dead || dead_blocks);
        blocking.filter_map(|kept| kept.failure.key.clone()).collect()
    }

    /// Wakes the first row of a key; says if there is none.
    fn look_at_key(&mut self, key: &str) -> Option<Input> {
        let dead_blocks = self.options.on_dead == OnDead::Block;
        let of_key = |kept: &&mut Kept| {
            kept.failure.key.as_deref() == Some(key) && (!kept.is_dead || dead_blocks)
        };
        let rows = self.failures.values_mut().filter(of_key);
        let Some(head) = rows.min_by_key(|kept| kept.failure.position) else {
            return Some(Input::Free(vec![key.to_owned()]));
        };
        if head.next_at.is_none() && !head.is_dead {
            head.next_at = Some(self.now);
        }
        None
    }

    fn due(&self) -> Input {
        let mut rows: Vec<&Kept> = Vec::new();
        for kept in self.failures.values() {
            let is_due = kept.next_at.is_some_and(|at| at <= self.now) && !kept.is_dead;
            let waits_for_due = kept.next_at.is_none()
                && !kept.is_dead
                && self.failures.values().any(|head| {
                    head.failure.key == kept.failure.key
                        && head.failure.key.is_some()
                        && head.failure.position < kept.failure.position
                        && head.next_at.is_some_and(|at| at <= self.now)
                });
            if is_due || waits_for_due {
                rows.push(kept);
            }
        }
        rows.sort_by_key(|kept| kept.failure.position);
        rows.truncate(20);
        let due = |kept: &&Kept| Due {
            row_id: kept.failure.row_id.clone(),
            key: kept.failure.key.clone(),
            attempts: kept.failure.attempts,
            age: Duration::ZERO,
            stored_row: kept.failure.stored_row.clone(),
        };
        Input::Due { rows: rows.iter().map(due).collect(), is_full: false }
    }

    /// From now on nothing dies, and everything but broken rows is taken.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        for _ in 0..20_000 {
            self.turn();
            if self.is_done() {
                return;
            }
            // Time passes faster than backoff grows.
            self.now += Duration::from_millis(500);
        }
    }

    fn is_done(&mut self) -> bool {
        self.feedback();
        let last = self.transactions.last().map_or(Lsn(0), |last| last.end);
        let waits = self.failures.values().any(|kept| {
            let is_behind =
                self.options.on_dead == OnDead::Block && self.is_behind_dead(Some(kept));
            !kept.is_dead && !is_behind
        });
        self.confirmed == last && self.stream.is_done() && self.orders.is_empty() && !waits
    }

    fn is_behind_dead(&self, kept: Option<&Kept>) -> bool {
        let key = kept.and_then(|kept| kept.failure.key.as_ref());
        let is_dead = |other: &Kept| other.is_dead && other.failure.key.as_ref() == key;
        key.is_some() && self.failures.values().any(is_dead)
    }

    /// The promises.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if !self.is_done() {
            return Err(format!("it does not end: {}; {:?}", self.stream, self.failures));
        }
        if let Some(id) = self.repeated.first() {
            return Err(format!("{id} came again, though it was written down as done"));
        }
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, id) in self.delivered.iter().enumerate() {
            first.entry(id).or_insert(place);
        }
        let rows: Vec<Committed> =
            self.transactions.iter().flat_map(|one| one.rows.iter().copied()).collect();
        let group = |row: &Committed| match self.options.checks.max_of(self.options.order) {
            Order::None => None,
            Order::Key => Some(row.key),
            Order::Strict => Some(0),
        };
        let mut blocked = BTreeSet::new();
        let mut last: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for row in &rows {
            let at = first.get(name(row).as_str());
            let kept = self.failures.get(&name(row));
            let is_blocked = group(row).is_some_and(|group| blocked.contains(&group));
            // With a window of several, a later row may have been buried before this one failed.
            let is_behind = self.options.order_window > 1 && self.is_behind_dead(kept);
            if row.is_broken || row.is_hated {
                if at.is_some() || !kept.is_some_and(|kept| kept.is_dead || is_blocked || is_behind)
                {
                    return Err(format!("row {} was never delivered nor buried", row.id));
                }
                if self.options.on_dead == OnDead::Block {
                    blocked.extend(group(row));
                }
                continue;
            }
            let Some(&at) = at else {
                if kept.is_some() && (is_blocked || is_behind) {
                    continue;
                }
                return Err(format!("row {} was never delivered", row.id));
            };
            if self.options.order_window > 1 {
                continue;
            }
            if is_blocked {
                return Err(format!("row {} passed a dead row of its key", row.id));
            }
            if let Some(group) = group(row)
                && let Some((before, id)) = last.insert(group, (at, row.id))
                && before > at
            {
                return Err(format!("row {} came before {id}, of the same key", row.id));
            }
        }
        Ok(())
    }
}

trait Stricter {
    fn max_of(self, other: Order) -> Order;
}

impl Stricter for Order {
    fn max_of(self, other: Order) -> Order {
        if self == Order::None { other } else { self }
    }
}

fn name(row: &Committed) -> String {
    format!("row-{}", row.id)
}

fn encode(row: &Committed) -> Bytes {
    let (id, key) = (name(row), format!("key-{}", row.key));
    encode_row([Some(id.as_bytes()), Some(b"{}"), Some(key.as_bytes()), None])
}

/// Up to 25 transactions of up to 6 rows.
fn transactions(chance: &mut Chance) -> Vec<Transaction> {
    let mut below = |limit: u64| chance.next_bits() % limit;
    let mut end = 0;
    let mut id = 0;
    let mut all = Vec::new();
    for _ in 0..5 + below(20) {
        let mut lsn = end;
        end += 10 + below(30);
        let mut rows = Vec::new();
        for _ in 0..below(7) {
            id += 1;
            // Some are written at one place.
            lsn += below(2);
            let (is_broken, is_hated) = (below(30) == 0, below(40) == 0);
            let (key, is_unroutable, is_deadly) = (below(4), below(12) == 0, below(30) == 0);
            let lsn = Lsn(lsn + 1);
            let row = Committed { id, lsn, key, is_broken, is_hated, is_unroutable, is_deadly };
            rows.push(row);
        }
        all.push(Transaction { end: Lsn(end), rows });
    }
    all
}
