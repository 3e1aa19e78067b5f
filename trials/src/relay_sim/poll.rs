//! The world of one seed in which the table is polled: workers, the table, a broker, and time. Batches are given back, end
//! with their time and lose their database; verdicts come late, in any order, or never.

mod broker;
mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use ::relay::poll::{Input, Output, Worker};
use ::relay::publisher::Rows as _;
use ::relay::{
    Config, Failed, Fault, Fields, Mapping, OnDead, Order, OutboxRow, Pipeline, Preset, Reason,
};
use client::{Chance, Verdict};
use service::Next;

use super::Below as _;
use broker::Broker;

const WORKERS: usize = 3;
const LANES: u64 = 4;
const BATCH: usize = 8;
/// For how long a confirm that came too late is remembered, as the shell has it.
const LATE_FOR: Duration = Duration::from_secs(60);

/// A row of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) key: u64,
    /// Returned by the broker until this many attempts have failed.
    pub(super) poison: u32,
    /// The broker drops the connection instead of answering.
    pub(super) is_dropped: bool,
    pub(super) attempts: u32,
    /// Refusals while others were taken.
    pub(super) refused: u32,
    locked_by: Option<usize>,
    locked_at: Option<Instant>,
    parked_until: Option<Instant>,
    /// Its last wait.
    wait: Duration,
    pub(super) is_done: bool,
    is_dead: bool,
    /// When the worker heard that the broker has taken it; none: not yet, or that is forgotten.
    heard: Option<Instant>,
}

/// What one worker has at hand: its transaction, and its connection to the broker.
struct Seat {
    core: Worker,
    locked: Vec<usize>,
    broker: Broker,
    is_connected: bool,
}

pub(super) struct World {
    pub(super) config: Config,
    chance: Chance,
    now: Instant,
    pub(super) rows: Vec<Row>,
    seats: Vec<Seat>,
    /// Rows in the order the broker stored them.
    pub(super) stored: Vec<usize>,
    /// Keys whose queue takes nothing for now.
    stalled: BTreeSet<u64>,
    /// Rows whose confirm came too late for their batch, and when.
    late: BTreeMap<usize, Instant>,
    /// The first promise that is broken.
    pub(super) broken: Option<String>,
    is_calm: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let orders = [Order::None, Order::Key, Order::Key, Order::Strict];
        let order = orders[chance.below(4) as usize];
        let pipelines = [Pipeline::Wait, Pipeline::Repeat, Pipeline::Report];
        let pipeline = pipelines[chance.below(3) as usize];
        Self::with(seed, order, pipeline)
    }

    pub(super) fn with(seed: u64, order: Order, pipeline: Pipeline) -> Self {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.key = Some("type".into());
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut config = Config::new("postgres://x", broker, mapping);
        (config.order, config.pipeline) = (order, pipeline);
        (config.batch, config.window) = (BATCH as u32, 5);
        config.order_window = if pipeline == Pipeline::Wait { 1 } else { 4 };
        config.attempts.max = 1000;
        config.attempts.backoff.longest = Duration::from_secs(2);
        let mut chance = Chance::new(seed);
        let now = Instant::now();
        // Under a strict order all rows go to one queue: between queues no order can be seen.
        let keys = if order == Order::Strict { 1 } else { 7 };
        let row = |chance: &mut Chance| Row {
            key: chance.below(keys),
            poison: if chance.below(9) == 0 { 1 + chance.below(3) as u32 } else { 0 },
            ..Row::default()
        };
        let rows = (0..60).map(|_| row(&mut chance)).collect();
        let seat = || Seat {
            core: Worker::new(&config, seed, now),
            locked: Vec::new(),
            broker: Broker::default(),
            is_connected: false,
        };
        Self {
            seats: (0..WORKERS).map(|_| seat()).collect(),
            config,
            chance,
            now,
            rows,
            stored: Vec::new(),
            stalled: BTreeSet::new(),
            late: BTreeMap::new(),
            broken: None,
            is_calm: false,
        }
    }

    /// Runs to the end. How many rows there were, or which promise is broken.
    pub(super) fn run(&mut self) -> Result<usize, String> {
        for _ in 0..3000 {
            self.turn();
        }
        self.is_calm = true;
        self.stalled.clear();
        let waits = |world: &Self, row: usize| !world.rows[row].is_done && !world.is_hopeless(row);
        let mut turns = 0;
        while (0..self.rows.len()).any(|row| waits(self, row))
            && self.broken.is_none()
            && turns < 200_000
        {
            self.turn();
            turns += 1;
        }
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        check::check(self)?;
        Ok(self.rows.len())
    }

    /// Whether it can never arrive: it loses every connection, or waits behind one that does.
    pub(super) fn is_hopeless(&self, row: usize) -> bool {
        let order = self.order_of(row);
        let mut before = self.rows[..row].iter().enumerate();
        self.rows[row].is_dropped
            || order.is_some()
                && before.any(|(other, it)| it.is_dropped && self.order_of(other) == order)
    }

    /// Rows of the same keep their order.
    pub(super) fn order_of(&self, row: usize) -> Option<u64> {
        match self.config.order {
            Order::None => None,
            Order::Key => Some(self.rows[row].key),
            Order::Strict => Some(0),
        }
    }

    fn turn(&mut self) {
        let seat = self.chance.below(WORKERS as u64) as usize;
        self.now += Duration::from_millis(self.chance.below(40));
        if !self.seats[seat].is_connected {
            if self.is_calm || self.chance.below(3) == 0 {
                self.seats[seat].is_connected = true;
                self.seats[seat].broker.connect();
                self.seats[seat].core.publishing().0.connected();
                self.told(seat);
            }
            return;
        }
        if !self.is_calm && self.harm(seat) {
            return;
        }
        match self.chance.below(4) {
            0 => self.broker_takes(seat),
            1 => self.hear(seat),
            _ if self.seats[seat].broker.is_quiet() || !self.seats[seat].locked.is_empty() => {
                self.step(seat, Input::Time);
            }
            _ => {
                self.broker_takes(seat);
                self.hear(seat);
            }
        }
        let publisher = self.seats[seat].core.publishing().0;
        if publisher.cut(self.now).is_some() {
            self.resolve(seat);
            self.seats[seat].core.publishing().0.silent(self.now);
            self.told(seat);
        }
    }

    /// Whether something happened that ends the turn.
    fn harm(&mut self, seat: usize) -> bool {
        match self.chance.below(80) {
            0 => self.lose_broker(seat),
            1 => self.kill(seat),
            2 => self.lose_database(seat),
            3 => self.step(seat, Input::Nudge),
            4 => {
                // The broker is silent for longer than a batch may take.
                self.now += Duration::from_secs(6);
                return false;
            }
            5 | 6 => {
                let key = self.chance.below(7);
                self.stalled.insert(key);
                return false;
            }
            7 => {
                self.stalled.clear();
                return false;
            }
            _ => return false,
        }
        true
    }

    fn step(&mut self, seat: usize, input: Input) {
        let mut out = Vec::new();
        self.seats[seat].core.step(self.now, input, &mut out);
        self.perform(seat, out);
        self.publish(seat);
    }

    /// The worker's publisher is told something. Between batches, a shell says the time only when nothing is left to do.
    fn told(&mut self, seat: usize) {
        let mut out = Vec::new();
        self.seats[seat].core.step(self.now, Input::BrokerBlocked(false), &mut out);
        self.perform(seat, out);
        self.publish(seat);
    }

    fn perform(&mut self, seat: usize, out: Vec<Output>) {
        for (place, _) in self.seats[seat].core.take_late() {
            self.late.insert(place as usize, self.now);
        }
        for output in out {
            match output {
                Output::Fetch => self.fetch(seat),
                Output::Commit => self.commit(seat),
                Output::Rollback => {
                    self.unlock(seat);
                    self.step(seat, Input::Ended { is_parked: true });
                }
                Output::Stopped => unreachable!("nobody stops it"),
            }
        }
    }

    /// The shell publishes all that is offered.
    fn publish(&mut self, seat: usize) {
        loop {
            let Seat { core, broker, is_connected, .. } = &mut self.seats[seat];
            let (publisher, rows) = core.publishing();
            let Some(seq) = publisher.offer(self.now, rows) else { return };
            assert!(*is_connected, "nothing is offered without a connection");
            let fields = rows.read(seq).expect("every row can be read");
            let row = fields.text(0).and_then(|id| id.parse().ok()).expect("it has its number");
            let failed: Vec<usize> = rows.failed().iter().map(|failed| failed.row).collect();
            publisher.published(self.now, broker.publish(row));
            let failed = failed.into_iter().map(|place| self.seats[seat].locked[place]).collect();
            check::published(self, row, failed);
        }
    }

    /// Whether it was known that the broker has taken a row when it was fetched.
    pub(super) fn was_heard(&self, row: usize) -> bool {
        let Row { heard, locked_at, .. } = self.rows[row];
        heard.is_some_and(|at| Some(at) < locked_at && self.now - at < LATE_FOR / 2)
    }

    /// What `SELECT … FOR UPDATE SKIP LOCKED` finds, without what is parked.
    fn fetch(&mut self, seat: usize) {
        let is_waiting =
            |row: &Row| row.is_dead || row.parked_until.is_some_and(|until| until > self.now);
        let limit = 1 + self.chance.below(BATCH as u64) as usize;
        let all = 0..self.rows.len();
        let parked: BTreeSet<u64> = all
            .clone()
            .filter(|row| is_waiting(&self.rows[*row]))
            .filter_map(|row| self.order_of(row))
            .collect();
        let is_found = |row: &usize| {
            let order = self.order_of(*row);
            let Row { is_done, locked_by, .. } = &self.rows[*row];
            let is_mine = order.is_none_or(|key| key % LANES % WORKERS as u64 == seat as u64);
            let is_parked = match order {
                None => is_waiting(&self.rows[*row]),
                Some(key) => parked.contains(&key),
            };
            !is_done && locked_by.is_none() && is_mine && !is_parked
        };
        let found: Vec<usize> = all.filter(is_found).take(limit).collect();
        for row in &found {
            (self.rows[*row].locked_by, self.rows[*row].locked_at) = (Some(seat), Some(self.now));
        }
        let rows = found.iter().map(|&row| outbox_row(row, &self.rows[row])).collect();
        let late = &mut self.late;
        let mut is_late = |row: &usize| late.remove(row).is_some_and(|at| self.now - at < LATE_FOR);
        let confirmed = (0..found.len()).filter(|place| is_late(&found[*place])).collect();
        let is_full = found.len() == limit;
        self.seats[seat].locked = found;
        let took = Duration::from_millis(self.chance.below(3));
        // Else a queue that is missing would be no row's fault before anything is confirmed.
        let has_marked = true;
        self.step(seat, Input::Fetched { rows, is_full, took, confirmed, has_marked });
    }

    fn commit(&mut self, seat: usize) {
        let batch = self.seats[seat].core.batch();
        let (confirmed, failed) = (batch.confirmed().to_vec(), batch.failed().to_vec());
        if !self.is_calm && self.chance.below(20) == 0 {
            // The data of some row refuses it: what is confirmed need not be published again.
            for place in confirmed {
                self.late.insert(self.seats[seat].locked[place], self.now);
            }
            self.unlock(seat);
            return self.step(seat, Input::DatabaseLost);
        }
        for place in confirmed {
            let row = self.seats[seat].locked[place];
            check::marked(self, row);
            self.rows[row].is_done = true;
            self.rows[row].parked_until = None;
        }
        for Failed { row, fault, is_charged } in failed {
            self.fail(self.seats[seat].locked[row], &fault, is_charged);
        }
        self.unlock(seat);
        self.step(seat, Input::Ended { is_parked: true });
    }

    fn fail(&mut self, row: usize, fault: &Fault, is_charged: bool) {
        let chance = self.chance.next_bits();
        check::failed(self, row, fault, is_charged);
        let row = &mut self.rows[row];
        row.attempts += u32::from(is_charged);
        match fault.reason.next(&self.config.attempts, row.attempts.max(1), chance) {
            Next::Retry { after } => {
                // What is not charged waits longer each time, as `sql::Statements::fail` has it.
                row.wait = match fault.reason {
                    Reason::Unanswered => after.max(2 * row.wait).min(Duration::from_secs(60)),
                    _ => after,
                };
                row.parked_until = Some(self.now + row.wait);
            }
            Next::Dead => row.is_dead = self.config.on_dead == OnDead::Block,
        }
    }

    fn unlock(&mut self, seat: usize) {
        for row in std::mem::take(&mut self.seats[seat].locked) {
            self.rows[row].locked_by = None;
        }
    }

    fn broker_takes(&mut self, seat: usize) {
        let may_refuse = !self.is_calm;
        let Self { seats, rows, stored, stalled, chance, .. } = self;
        let broker = &mut seats[seat].broker;
        for _ in 0..1 + chance.below(3) {
            if broker.take(rows, stalled, may_refuse, stored, chance).is_err() {
                return self.lose_broker(seat);
            }
        }
    }

    fn hear(&mut self, seat: usize) {
        for _ in 0..1 + self.chance.below(3) {
            let heard = self.seats[seat].broker.answer(&mut self.chance);
            let Some((verdict, row)) = heard else { return };
            if matches!(verdict, Verdict::Confirmed(_)) {
                self.rows[row].heard = Some(self.now);
            }
            self.seats[seat].core.publishing().0.verdict(self.now, verdict);
            self.told(seat);
        }
    }

    /// The connection is gone: some of what was on the wire arrived, and nobody says so.
    fn resolve(&mut self, seat: usize) {
        let Self { seats, rows, stored, chance, .. } = self;
        seats[seat].broker.lose(rows, stored, chance);
        seats[seat].is_connected = false;
    }

    fn lose_broker(&mut self, seat: usize) {
        self.resolve(seat);
        let (publisher, rows) = self.seats[seat].core.publishing();
        publisher.lost(self.now, rows);
        self.told(seat);
    }

    fn lose_database(&mut self, seat: usize) {
        // What was confirmed in this batch is forgotten with it.
        for row in self.seats[seat].locked.clone() {
            self.rows[row].heard = None;
        }
        self.unlock(seat);
        self.step(seat, Input::DatabaseLost);
    }

    /// The process dies: its transaction is rolled back, a new one begins with nothing.
    fn kill(&mut self, seat: usize) {
        self.resolve(seat);
        self.unlock(seat);
        self.late.clear();
        self.rows.iter_mut().for_each(|row| row.heard = None);
        self.seats[seat].core = Worker::new(&self.config, self.chance.next_bits(), self.now);
    }
}

impl fmt::Display for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { order, pipeline, .. } = &self.config;
        writeln!(out, "poll, order {order:?}, pipeline {pipeline:?}, stored {:?}", self.stored)?;
        for (number, row) in self.rows.iter().enumerate() {
            writeln!(out, "row {number}: {row:?}")?;
        }
        Ok(())
    }
}

fn outbox_row(index: usize, row: &Row) -> OutboxRow {
    let (id, key) = (index.to_string(), row.key.to_string());
    let columns = [Some(id.as_bytes()), Some(&b"{}"[..]), Some(key.as_bytes()), None];
    OutboxRow { place: index as u64, fields: columns.into_iter().collect::<Fields>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polled_rows_arrive_in_the_order_that_was_promised_and_outages_charge_nobody() {
        for order in [Order::None, Order::Key, Order::Strict] {
            for pipeline in [Pipeline::Wait, Pipeline::Repeat, Pipeline::Report] {
                for seed in 0..100 {
                    let mut world = World::with(seed, order, pipeline);
                    if let Err(broken) = world.run() {
                        panic!("seed {seed}: {broken}\n{world}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_lose_every_connection_stop_no_others_and_only_they_are_charged() {
        for order in [Order::None, Order::Key] {
            let mut charged = 0;
            for seed in 0..100 {
                let mut world = World::with(seed, order, Pipeline::Wait);
                // Two at the head, one among the rest.
                for row in [0, 1, 30] {
                    world.rows[row].is_dropped = true;
                }
                if let Err(broken) = world.run() {
                    panic!("{order:?}, seed {seed}: {broken}\n{world}");
                }
                let is_found = |row: &&Row| row.is_dropped && row.attempts > 0;
                charged += world.rows.iter().filter(is_found).count();
            }
            assert!(charged > 20, "{order:?}: {charged} were found");
        }
    }
}
