//! The world of one seed: a source that adds rows and keeps what failed, the core, and time.

mod broker;
mod check;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use ::relay::publisher::{self, Publisher, RowSeq, Rows, Settled};
use ::relay::{Fault, Fields, OnDead, Pipeline, Reason};
use bytes::Bytes;
use client::{Backoff, Chance, Verdict};
use service::{Attempts, Jitter, Next};

use super::Below as _;
use broker::{Broker, End, row_of, seq};

/// What a row does to whoever publishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fine,
    /// No message can be made of it.
    Broken,
    /// No queue takes it, until the world is healed.
    Unroutable,
    /// The connection is lost at it, always.
    Deadly,
    /// The broker closes at it, always, and says so.
    Hated,
}

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Confirmed,
    Dead,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Option<u64>,
    pub(super) kind: Kind,
    pub(super) attempts: u32,
    pub(super) ended: Option<Ended>,
    /// Verdicts on it that were lost, and rows of its key before it whose verdicts were.
    pub(super) lost: u32,
    /// It was told that it was stored behind a row of its key that failed.
    pub(super) told: u32,
}

/// Rows among the failures of a key, in their order.
#[derive(Debug, Default)]
struct Parked {
    rows: VecDeque<usize>,
    due: Option<Instant>,
    /// On their way there.
    storing: u32,
    /// Of what is tried again, without an end yet.
    trying: usize,
}

pub(super) struct World {
    pub(super) options: publisher::Options,
    pub(super) rows: Vec<Row>,
    broker: Broker,
    chance: Chance,
    now: Instant,
    core: Publisher,
    table: Table,
    is_connected: bool,
    /// The next row that is added.
    next: usize,
    tries: u64,
    parked: BTreeMap<u64, Parked>,
    /// Rows without a key that failed, and when they are tried again.
    later: Vec<(usize, Instant)>,
    /// Keys that the publisher is told of as stored, some time after it told of them.
    storing: VecDeque<Bytes>,
    /// What breaks a promise while it runs.
    pub(super) broken: Option<String>,
    /// Rows in flight.
    in_flight: BTreeSet<RowSeq>,
    /// Rows whose failure the core has heard of and not told yet, because one before them has no answer.
    failing: BTreeSet<RowSeq>,
}

/// What the source tells of its rows.
struct Table {
    fields: Fields,
    broken: BTreeSet<usize>,
}

impl Rows for Table {
    fn read(&mut self, row: RowSeq) -> Result<&Fields, Fault> {
        match self.broken.contains(&row_of(row)) {
            true => Err(Fault { reason: Reason::Broken, text: "no message".into() }),
            false => Ok(&self.fields),
        }
    }

    fn name(&mut self, row: RowSeq) -> Vec<u8> {
        row_of(row).to_be_bytes().to_vec()
    }
}

fn name(key: u64, is_retry: bool) -> Bytes {
    let prefix = if is_retry { "retry" } else { "key" };
    format!("{prefix} {key}").into()
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let backoff =
            Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(200) };
        let options = publisher::Options {
            window: 1 + chance.below(12) as usize,
            pipeline: [Pipeline::Wait, Pipeline::Repeat, Pipeline::Report]
                [chance.below(3) as usize],
            order_window: 1 + chance.below(6) as usize,
            attempts: Attempts { max: 6, backoff, jitter: Jitter::Half },
            on_dead: [OnDead::Block, OnDead::Skip][chance.below(2) as usize],
            silence: Duration::from_secs(2),
            silence_max: Duration::from_secs(8),
            seed,
        };
        let keys = chance.below(5);
        let is_tame = chance.below(3) == 0;
        let rows: Vec<Row> = (0..20 + chance.below(40))
            .map(|_| Row {
                key: (keys > 0).then(|| chance.below(keys)),
                kind: match chance.below(40) {
                    0 => Kind::Broken,
                    1 | 2 => Kind::Unroutable,
                    3 if !is_tame => Kind::Deadly,
                    4 if !is_tame => Kind::Hated,
                    _ => Kind::Fine,
                },
                attempts: 0,
                ended: None,
                lost: 0,
                told: 0,
            })
            .collect();
        let is_broken = |row: &usize| rows[*row].kind == Kind::Broken;
        let table = Table {
            fields: Fields::default(),
            broken: (0..rows.len()).filter(is_broken).collect(),
        };
        let now = Instant::now();
        let broker = Broker::new(rows.len());
        Self {
            core: Publisher::new(&options, now),
            options,
            rows,
            broker,
            chance,
            now,
            table,
            is_connected: false,
            next: 0,
            tries: 0,
            parked: BTreeMap::new(),
            later: Vec::new(),
            storing: VecDeque::new(),
            broken: None,
            in_flight: BTreeSet::new(),
            failing: BTreeSet::new(),
        }
    }

    /// Runs to the end. How many rows there were, or which promise is broken.
    pub(super) fn run(&mut self) -> Result<usize, String> {
        for _ in 0..600 {
            self.turn();
        }
        self.fall_ill(false);
        self.broker.is_healed = true;
        let mut turns = 0;
        while !self.is_over() && self.broken.is_none() && turns < 60_000 {
            self.turn();
            self.now += Duration::from_millis(5);
            turns += 1;
        }
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        check::check(self)?;
        Ok(self.rows.len())
    }

    /// Whether a row waits behind a dead one of its key for ever.
    pub(super) fn is_blocked(&self, row: usize) -> bool {
        let Some(parked) = self.rows[row].key.and_then(|key| self.parked.get(&key)) else {
            return false;
        };
        let first = parked.rows.front().is_some_and(|first| self.rows[*first].ended.is_some());
        first && parked.rows.contains(&row)
    }

    /// Whether it may never end: the connection is lost at it and nothing passes that would tell it from an outage, or
    /// it is behind such a row of its key.
    fn may_stay(&self, row: usize) -> bool {
        let key = self.rows[row].key;
        let is_deadly = |other: &Row| other.kind == Kind::Deadly && other.ended.is_none();
        let mut before = self.rows[..row].iter().filter(|other| key.is_some() && other.key == key);
        is_deadly(&self.rows[row]) || before.any(is_deadly)
    }

    /// Whether nothing more has to come of a row.
    pub(super) fn is_done(&self, row: usize) -> bool {
        self.rows[row].ended.is_some() || self.is_blocked(row) || self.may_stay(row)
    }

    fn is_over(&self) -> bool {
        let stays = (0..self.rows.len()).any(|row| self.may_stay(row));
        let all = self.next == self.rows.len() && (0..self.rows.len()).all(|row| self.is_done(row));
        let is_quiet = self.core.is_idle(self.now) && self.broker.is_quiet();
        all && (stays || is_quiet && self.storing.is_empty())
    }

    /// The broker begins to refuse everything, or is well again: what was under way before has its end before.
    fn fall_ill(&mut self, is_ill: bool) {
        if is_ill == self.broker.is_ill {
            return;
        }
        while !self.broker.is_quiet() && self.is_connected {
            self.broker_takes();
            self.hear(usize::MAX);
        }
        // Else what is published at the same moment as something was confirmed would be its own fault.
        self.now += Duration::from_millis(1);
        self.broker.is_ill = is_ill;
    }

    /// Verdicts arrive.
    fn hear(&mut self, count: usize) {
        for _ in 0..count {
            let Some(verdict) = self.broker.answer(&mut self.chance) else { break };
            if let Verdict::Returned { seq, .. } = &verdict
                && let Some(row) = self.core.row_of(*seq)
                && self.holds_when_it_fails(row)
            {
                self.failing.insert(row);
            }
            self.core.verdict(self.now, verdict);
            self.settle();
        }
    }

    fn turn(&mut self) {
        let harm = if self.broker.is_healed { 0 } else { 6 };
        match self.chance.below(60 + harm) {
            0..8 => self.add(),
            8..24 => self.publish(),
            24..36 => self.broker_takes(),
            36..48 => {
                let count = 1 + self.chance.below(4) as usize;
                self.hear(count);
            }
            48..52 => self.store(),
            52..56 => self.retry(),
            56..60 => {
                self.now += Duration::from_millis(self.chance.below(120));
                self.connect();
                if self.core.cut(self.now).is_some() {
                    self.lose(None);
                }
            }
            60..62 => self.lose(Some(End::Lost)),
            62 => self.lose(None),
            63 => self.lose(Some(End::Closed { code: 320 })),
            _ => {
                let is_ill = match self.broker.is_ill {
                    true => self.chance.below(4) > 0,
                    false => self.chance.below(3) == 0,
                };
                self.fall_ill(is_ill);
            }
        }
    }

    fn connect(&mut self) {
        if !self.is_connected {
            self.is_connected = true;
            self.broker.connect();
            self.core.connected();
        }
    }

    fn add(&mut self) {
        for _ in 0..1 + self.chance.below(8) {
            let Some(row) = self.rows.get(self.next) else { return };
            let key = row.key.map(|key| name(key, false));
            let seq = seq(self.next, false, 0);
            self.core.add(publisher::Row { seq, key, attempts: 0, bytes: 1 });
            self.next += 1;
            self.settle();
        }
    }

    fn publish(&mut self) {
        for _ in 0..1 + self.chance.below(10) {
            let offered = self.core.offer(self.now, &mut self.table);
            self.settle();
            let Some(seq) = offered else { return };
            if !self.is_connected {
                self.broken = Some("R6: a row is offered without a connection".into());
            }
            if self.chance.below(30) == 0 {
                self.core.take_back();
                continue;
            }
            if let Err(fault) = self.table.read(seq).map(drop) {
                if self.options.on_dead == OnDead::Block {
                    self.failing.insert(seq);
                }
                self.core.unfit(fault);
                self.settle();
                continue;
            }
            check::published(self, seq);
            self.in_flight.insert(seq);
            let message = self.broker.publish(row_of(seq));
            self.core.published(self.now, message);
        }
    }

    /// Whether later rows of its key wait when it fails: it is not dead then, or blocks its key.
    fn holds_when_it_fails(&self, seq: RowSeq) -> bool {
        let attempts = self.rows[row_of(seq)].attempts + 1;
        self.options.on_dead == OnDead::Block || attempts < self.options.attempts.max
    }

    /// A row of the key before this one whose failure the core has heard of.
    pub(super) fn failing_before(&self, key: u64, seq: RowSeq) -> Option<usize> {
        let is_retry = |seq: &RowSeq| seq.0 >> 63 == 1;
        let mut of_key = self.failing.iter().filter(|it| self.rows[row_of(**it)].key == Some(key));
        let before = of_key.find(|it| **it < seq && is_retry(it) == is_retry(&seq));
        before.map(|seq| row_of(*seq))
    }

    /// Rows of the key in flight, and whether an earlier row of it is among the failures.
    pub(super) fn in_flight_of(&self, key: u64) -> usize {
        self.in_flight.iter().filter(|seq| self.rows[row_of(**seq)].key == Some(key)).count()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The first row of the key among the failures.
    pub(super) fn first_parked(&self, key: u64) -> Option<usize> {
        self.parked.get(&key)?.rows.front().copied()
    }

    fn broker_takes(&mut self) {
        for _ in 0..1 + self.chance.below(6) {
            if let Err(end) = self.broker.take(&self.rows, &mut self.chance) {
                // Verdicts that are on their way may still arrive, or not.
                let count = self.chance.below(5) as usize;
                self.hear(count);
                return self.lose(Some(end));
            }
        }
    }

    /// The connection ends; none: the core has cut it.
    fn lose(&mut self, end: Option<End>) {
        if !self.is_connected {
            return;
        }
        self.is_connected = false;
        self.broker.lose(&self.rows, &mut self.chance);
        for seq in std::mem::take(&mut self.in_flight) {
            let row = row_of(seq);
            self.rows[row].lost += 1;
            // What is behind it may be published again, to restore the order.
            for behind in row + 1..self.rows.len() {
                if self.rows[behind].key == self.rows[row].key && self.rows[row].key.is_some() {
                    self.rows[behind].lost += 1;
                }
            }
        }
        match end {
            Some(End::Lost) => self.core.lost(self.now, &mut self.table),
            Some(End::Closed { code }) => self.core.closed(self.now, code, "closed"),
            None => self.core.silent(self.now),
        }
        self.settle();
        if self.chance.below(2) == 0 {
            self.connect();
        }
    }

    /// The source takes what is settled.
    fn settle(&mut self) {
        while let Some(settled) = self.core.next_settled() {
            match settled {
                Settled::Confirmed { row, overtook } => self.confirmed(row, overtook),
                Settled::Failed { row, fault, is_charged, next, holds } => {
                    self.failing.remove(&row);
                    check::failed(self, row_of(row), &fault, is_charged);
                    self.failed(row, is_charged, next, holds);
                }
                Settled::Withheld { row, was_stored } => {
                    self.failing.remove(&row);
                    self.withheld(row, was_stored);
                }
                Settled::Late { .. } => self.broken = Some("R1: nothing was released".into()),
            }
        }
        // A message has its answer, or its connection is gone.
        let core = &self.core;
        let in_flight: BTreeSet<RowSeq> = core.rows_in_flight().collect();
        self.in_flight = in_flight;
    }

    fn confirmed(&mut self, seq: RowSeq, overtook: bool) {
        let row = row_of(seq);
        check::confirmed(self, row);
        self.rows[row].ended = Some(Ended::Confirmed);
        self.rows[row].told += u32::from(overtook);
        self.tried(seq, true);
    }

    fn failed(&mut self, seq: RowSeq, is_charged: bool, next: Next, holds: bool) {
        let row = row_of(seq);
        self.rows[row].attempts += u32::from(is_charged);
        let due = match next {
            Next::Retry { after } => Some(self.now + after),
            Next::Dead => {
                self.rows[row].ended = Some(Ended::Dead);
                None
            }
        };
        let Some(key) = self.rows[row].key else {
            self.later.extend(due.map(|at| (row, at)));
            return;
        };
        let is_retry = seq.0 >> 63 == 1;
        let parked = self.parked.entry(key).or_default();
        if !is_retry && holds {
            parked.rows.push_back(row);
            parked.storing += 1;
            self.storing.push_back(name(key, false));
        } else if !is_retry && due.is_some() {
            self.broken = Some(format!("R3: row {row} failed and does not hold its key"));
        } else if is_retry && holds {
            self.core.stored(&name(key, true));
        }
        if is_retry || parked.rows.front() == Some(&row) {
            parked.due = due;
        }
        // A dead row blocks its key, or leaves.
        self.tried(seq, due.is_none() && !holds);
    }

    fn withheld(&mut self, seq: RowSeq, was_stored: bool) {
        let row = row_of(seq);
        self.rows[row].told += u32::from(was_stored);
        let Some(key) = self.rows[row].key else {
            self.broken = Some(format!("R1: row {row} is withheld and has no key"));
            return;
        };
        if seq.0 >> 63 == 1 {
            self.core.stored(&name(key, true));
            return self.tried(seq, false);
        }
        let parked = self.parked.entry(key).or_default();
        parked.rows.push_back(row);
        parked.storing += 1;
        self.storing.push_back(name(key, false));
    }

    /// A row that was tried again has its end; it leaves the failures or stays.
    fn tried(&mut self, seq: RowSeq, leaves: bool) {
        let row = row_of(seq);
        let Some(key) = self.rows[row].key.filter(|_| seq.0 >> 63 == 1) else { return };
        let Some(parked) = self.parked.get_mut(&key) else { return };
        parked.trying -= 1;
        if leaves {
            parked.rows.retain(|other| *other != row);
            parked.due = Some(self.now);
        }
    }

    /// What was to be stored among the failures is.
    fn store(&mut self) {
        for _ in 0..1 + self.chance.below(6) {
            let Some(key) = self.storing.pop_front() else { break };
            self.core.stored(&key);
            let number = key.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
            let number = String::from_utf8_lossy(number).parse().unwrap_or_default();
            if let Some(parked) = self.parked.get_mut(&number) {
                parked.storing -= 1;
            }
        }
    }

    /// What failed is tried again when its time has come, and a key without failures goes on.
    fn retry(&mut self) {
        let now = self.now;
        let is_due = |(_, at): &mut (usize, Instant)| *at <= now;
        for (row, _) in self.later.extract_if(.., is_due).collect::<Vec<_>>() {
            self.tries += 1;
            let (seq, attempts) = (seq(row, true, self.tries), self.rows[row].attempts);
            self.core.add(publisher::Row { seq, key: None, attempts, bytes: 1 });
        }
        for key in self.parked.keys().copied().collect::<Vec<_>>() {
            let parked = self.parked.get_mut(&key).expect("it is one of them");
            if parked.trying > 0 {
                continue;
            }
            self.core.free(&name(key, true));
            if parked.rows.is_empty() && parked.storing == 0 {
                self.core.free(&name(key, false));
                continue;
            }
            let is_dead = parked.rows.front().is_some_and(|row| self.rows[*row].ended.is_some());
            if is_dead || parked.due.is_none_or(|due| due > now) {
                continue;
            }
            let some = 1 + self.chance.below(4) as usize;
            let rows: Vec<usize> = parked.rows.iter().copied().take(some).collect();
            parked.trying = rows.len();
            for row in rows {
                self.tries += 1;
                let (seq, attempts) = (seq(row, true, self.tries), self.rows[row].attempts);
                let key = Some(name(key, true));
                self.core.add(publisher::Row { seq, key, attempts, bytes: 1 });
            }
        }
        self.settle();
    }
}

impl fmt::Display for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:?}", self.options)?;
        writeln!(out, "core: {}, connected {}", self.core, self.is_connected)?;
        for (number, row) in self.rows.iter().enumerate() {
            let Row { key, kind, attempts, ended, lost, told } = row;
            let stored = self.broker.stored.iter().filter(|stored| **stored == number).count();
            writeln!(
                out,
                "row {number}: key {key:?} {kind:?} attempts {attempts} {ended:?} lost {lost} told {told} stored {stored}"
            )?;
        }
        writeln!(out, "stored {:?}\nparked {:?}", self.broker.stored, self.parked)
    }
}
