//! Poll workers between a database and a broker in memory, by chance from a seed: what was promised holds
//! whatever is lost, refused, frozen or killed.

#![allow(
    clippy::disallowed_methods,
    reason = "a test begins with a clock and lets its own time pass"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use client::Chance;
use relay::poll::{Input, Output, Worker};
use relay::{Config, Fault, Fields, Mapping, Order, OutboxRow, Preset, Reason};
use service::Next;

const WORKERS: usize = 3;
const LANES: u64 = 4;

/// A row of the table in memory.
#[derive(Clone, Debug)]
struct Row {
    key: u64,
    /// Refused by the broker until this many attempts have failed.
    poison: u32,
    /// The broker drops the connection instead of answering.
    is_dropped: bool,
    attempts: u32,
    locked_by: Option<usize>,
    parked_until: Option<Instant>,
    /// Its last wait.
    wait: Duration,
    is_done: bool,
    is_dead: bool,
}

/// What one worker has at hand: its transaction, and what is on the wire.
struct Seat {
    core: Worker,
    locked: Vec<usize>,
    /// Rows whose verdict is still to come, by their place in the batch.
    wire: VecDeque<(usize, usize)>,
    is_connected: bool,
}

struct World {
    config: Config,
    chance: Chance,
    now: Instant,
    rows: Vec<Row>,
    seats: Vec<Seat>,
    /// Rows in the order of their first delivery.
    delivered: Vec<usize>,
    seen: BTreeSet<usize>,
    /// Charged although only the broker was away.
    wrongly_charged: u32,
    is_calm: bool,
}

impl World {
    fn new(seed: u64, order: Order, order_window: u32) -> Self {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.key = Some("type".into());
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut config = Config::new("postgres://x", broker, mapping);
        (config.order, config.order_window, config.batch, config.window) =
            (order, order_window, 8, 5);
        config.attempts.max = 1000;
        config.attempts.backoff.longest = Duration::from_secs(2);
        let mut chance = Chance::new(seed);
        let now = Instant::now();
        let rows = (0..60)
            .map(|_| Row {
                key: chance.next_bits() % 7,
                poison: if chance.next_bits().is_multiple_of(9) {
                    1 + (chance.next_bits() % 3) as u32
                } else {
                    0
                },
                is_dropped: false,
                attempts: 0,
                locked_by: None,
                parked_until: None,
                wait: Duration::ZERO,
                is_done: false,
                is_dead: false,
            })
            .collect();
        let seat = |config: &Config| Seat {
            core: Worker::new(config, now),
            locked: Vec::new(),
            wire: VecDeque::new(),
            is_connected: false,
        };
        let seats = (0..WORKERS).map(|_| seat(&config)).collect();
        Self {
            config,
            chance,
            now,
            rows,
            seats,
            delivered: Vec::new(),
            seen: BTreeSet::new(),
            wrongly_charged: 0,
            is_calm: false,
        }
    }

    fn roll(&mut self, sides: u64) -> bool {
        self.chance.next_bits().is_multiple_of(sides)
    }

    fn step(&mut self, seat: usize, input: Input) {
        let mut out = Vec::new();
        self.seats[seat].core.step(self.now, input, &mut out);
        for output in out {
            self.perform(seat, output);
        }
    }

    fn perform(&mut self, seat: usize, output: Output) {
        match output {
            Output::Fetch => self.fetch(seat),
            Output::Publish(place) => {
                let row = self.seats[seat].locked[place];
                if self.seats[seat].is_connected {
                    self.seats[seat].wire.push_back((place, row));
                }
            }
            Output::Commit => self.commit(seat),
            Output::Rollback => {
                self.unlock(seat);
                self.step(seat, Input::Ended);
            }
            Output::Stopped => unreachable!("nobody stops it"),
        }
    }

    /// What `SELECT … FOR UPDATE SKIP LOCKED` finds, without what is parked.
    fn fetch(&mut self, seat: usize) {
        let order = self.config.order;
        let lane = |row: &Row| if order == Order::Strict { 0 } else { row.key % LANES };
        let parked: BTreeSet<u64> = self
            .rows
            .iter()
            .filter(|row| row.is_dead || row.parked_until.is_some_and(|until| until > self.now))
            .map(|row| if order == Order::Strict { 0 } else { row.key })
            .collect();
        let mut found = Vec::new();
        for (index, row) in self.rows.iter_mut().enumerate() {
            let key = if order == Order::Strict { 0 } else { row.key };
            let is_mine = order == Order::None || lane(row) % WORKERS as u64 == seat as u64;
            let is_parked = match order {
                Order::None => row.parked_until.is_some_and(|until| until > self.now),
                Order::Key | Order::Strict => parked.contains(&key),
            };
            if !row.is_done && row.locked_by.is_none() && is_mine && !is_parked && found.len() < 8 {
                row.locked_by = Some(seat);
                found.push(index);
            }
        }
        let rows = found.iter().map(|&index| outbox_row(index, &self.rows[index])).collect();
        self.seats[seat].locked = found;
        let is_full = self.seats[seat].locked.len() == 8;
        let took = Duration::from_millis(self.chance.next_bits() % 3);
        self.step(seat, Input::Fetched { rows, is_full, took });
    }

    fn commit(&mut self, seat: usize) {
        let batch = self.seats[seat].core.batch();
        let confirmed: Vec<usize> = batch.confirmed().collect();
        let faults = batch.faults().to_vec();
        for place in confirmed {
            let row = self.seats[seat].locked[place];
            assert!(self.seen.contains(&row), "row {row} was marked, but never arrived");
            self.rows[row].is_done = true;
            self.rows[row].parked_until = None;
        }
        for (place, fault) in faults {
            let chance = self.chance.next_bits();
            let row = &mut self.rows[self.seats[seat].locked[place]];
            if fault.reason != Reason::Unanswered {
                row.attempts += 1;
                if row.attempts > row.poison && !row.is_dropped {
                    self.wrongly_charged += 1;
                }
            }
            match fault.reason.next(&self.config.attempts, row.attempts.max(1), chance) {
                Next::Retry { after } => {
                    // What is not charged waits longer each time, as `sql::Statements::fail` has it.
                    row.wait = match fault.reason {
                        Reason::Unanswered => after.max(2 * row.wait).min(Duration::from_secs(60)),
                        _ => after,
                    };
                    row.parked_until = Some(self.now + row.wait);
                }
                Next::Dead => row.is_dead = true,
            }
        }
        self.unlock(seat);
        self.step(seat, Input::Ended);
    }

    fn unlock(&mut self, seat: usize) {
        for row in std::mem::take(&mut self.seats[seat].locked) {
            self.rows[row].locked_by = None;
        }
    }

    /// The broker takes the next message of the wire, or returns it.
    fn answer(&mut self, seat: usize) {
        // Confirms may come in any order, deliveries not.
        let Some((place, row)) = self.seats[seat].wire.pop_front() else { return };
        if self.rows[row].is_dropped {
            return self.lose_broker(seat);
        }
        let verdict = if self.rows[row].attempts < self.rows[row].poison {
            Err(Fault { reason: Reason::Unroutable, text: "returned".into() })
        } else {
            if self.seen.insert(row) {
                self.delivered.push(row);
            }
            Ok(())
        };
        // A message of an earlier transaction says nothing about this one.
        if self.seats[seat].locked.get(place) == Some(&row) {
            self.step(seat, Input::Verdict { row: place, verdict });
        }
    }

    fn lose_broker(&mut self, seat: usize) {
        // Some of what was on the wire arrived, and nobody says so.
        let arrived = self.chance.next_bits() as usize % (self.seats[seat].wire.len() + 1);
        for (_, row) in std::mem::take(&mut self.seats[seat].wire).into_iter().take(arrived) {
            let Row { attempts, poison, is_dropped, .. } = self.rows[row];
            if attempts >= poison && !is_dropped && self.seen.insert(row) {
                self.delivered.push(row);
            }
        }
        self.seats[seat].is_connected = false;
        self.step(seat, Input::BrokerLost);
    }

    /// The process dies: its transaction is rolled back, a new one begins with nothing.
    fn kill(&mut self, seat: usize) {
        self.lose_broker(seat);
        self.unlock(seat);
        self.seats[seat].core = Worker::new(&self.config, self.now);
    }

    fn turn(&mut self) {
        let seat = (self.chance.next_bits() % WORKERS as u64) as usize;
        self.now += Duration::from_millis(self.chance.next_bits() % 40);
        if !self.seats[seat].is_connected {
            if self.is_calm || self.roll(3) {
                self.seats[seat].is_connected = true;
                self.step(seat, Input::BrokerReady);
            }
            return;
        }
        if !self.is_calm {
            match self.chance.next_bits() % 60 {
                0 => return self.lose_broker(seat),
                1 => return self.kill(seat),
                2 => {
                    self.unlock(seat);
                    self.step(seat, Input::DatabaseLost);
                    return;
                }
                // The broker is silent for longer than a batch may take.
                3 => self.now += Duration::from_secs(6),
                4 => return self.step(seat, Input::Nudge),
                _ => (),
            }
        }
        if self.roll(2) {
            self.answer(seat);
        } else if self.seats[seat].wire.is_empty() || !self.seats[seat].locked.is_empty() {
            self.step(seat, Input::Time);
        }
    }

    /// Whether it can never arrive: it loses every connection, or waits behind one that does.
    fn is_hopeless(&self, index: usize) -> bool {
        let earlier = &self.rows[..=index];
        match self.config.order {
            Order::None => self.rows[index].is_dropped,
            Order::Key => {
                earlier.iter().any(|row| row.is_dropped && row.key == self.rows[index].key)
            }
            Order::Strict => earlier.iter().any(|row| row.is_dropped),
        }
    }

    /// Runs to the end; every broken promise, in words.
    fn problems(&mut self) -> Vec<String> {
        for _ in 0..3000 {
            self.turn();
        }
        self.is_calm = true;
        let mut turns = 0;
        let waits = |world: &Self, index: usize| {
            let row = &world.rows[index];
            !row.is_done && !row.is_dead && !world.is_hopeless(index)
        };
        while (0..self.rows.len()).any(|index| waits(self, index)) && turns < 200_000 {
            self.turn();
            turns += 1;
        }
        let mut problems = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if self.is_hopeless(index) {
                continue;
            }
            if !row.is_done || !self.seen.contains(&index) {
                problems.push(format!("row {index} was committed and never arrived: {row:?}"));
            }
        }
        if self.wrongly_charged > 0 {
            problems.push(format!("{} attempts were charged for an outage", self.wrongly_charged));
        }
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for &row in &self.delivered {
            let key = match self.config.order {
                Order::None => continue,
                Order::Key => self.rows[row].key,
                Order::Strict => 0,
            };
            if last.insert(key, row).is_some_and(|before| before > row) {
                problems.push(format!("row {row} of key {key} was overtaken"));
            }
        }
        problems
    }
}

fn outbox_row(index: usize, row: &Row) -> OutboxRow {
    let (id, key) = (index.to_string(), row.key.to_string());
    let columns = [Some(id.as_bytes()), Some(&b"{}"[..]), Some(key.as_bytes()), None];
    OutboxRow { place: index as u64, fields: columns.into_iter().collect::<Fields>() }
}

#[test]
fn every_row_arrives_in_the_order_that_was_promised_and_outages_charge_nobody() {
    for order in [Order::None, Order::Key, Order::Strict] {
        for seed in 0..300 {
            let problems = World::new(seed, order, 1).problems();
            assert!(problems.is_empty(), "{order:?}, seed {seed}: {problems:#?}");
        }
    }
}

#[test]
fn rows_that_lose_every_connection_stop_no_others_and_only_they_are_charged() {
    for order in [Order::None, Order::Key] {
        let mut charged = 0;
        for seed in 0..100 {
            let mut world = World::new(seed, order, 1);
            // Two at the head, one among the rest.
            for index in [0, 1, 30] {
                world.rows[index].is_dropped = true;
            }
            let problems = world.problems();
            assert!(problems.is_empty(), "{order:?}, seed {seed}: {problems:#?}");
            charged += world.rows.iter().filter(|row| row.is_dropped && row.attempts > 0).count();
        }
        assert!(charged > 20, "{order:?}: {charged} were found");
    }
}

#[test]
fn the_check_of_order_finds_what_a_wider_window_lets_pass() {
    let found = (0..50).filter(|&seed| {
        let problems = World::new(seed, Order::Key, 4).problems();
        problems.iter().any(|problem| problem.contains("overtaken"))
    });
    assert!(
        found.count() > 10,
        "a failed message is overtaken under a window of 4, and nobody saw it"
    );
}
