//! One node from one seed, on one thread: the real shards on the real log, on a disk that forgets.
//!
//! Chance picks what moves next: a client, a shard, the log's writer, a fetch, a checkpoint, or the
//! power. Time moves with every step. What clients see is a history like any other, and the same
//! checker judges it. The same seed gives the same history, line for line; a test runs each twice.
//! Several nodes and the network between them are to come; clients and checker stay.

mod clients;
mod node;
mod store;

use machine::SessionId;
use wal::sim::{Fault, SimDisk};

use crate::checker::{Report, Rules, check};
use crate::history::{Event, History, Nanos, What};
use crate::workload::Chance;
use clients::Clients;
use node::Node;

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Steps with load and crashes.
    pub steps: u64,
}

impl Default for Length {
    fn default() -> Self {
        Self { steps: 4_000 }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    pub seed: u64,
    /// The history as it would stand in a file.
    pub events: Vec<Event>,
    pub report: Report,
    /// Crashes, and those of them in which the disk forgot.
    pub crashes: u64,
    pub power_cuts: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
}

/// Longest time that one step takes, in milliseconds.
const STEP_MS: u64 = 20;
/// A crash in so many steps.
const CRASH_STEPS: u64 = 350;
/// How many crashes of a hundred wait for calm, and for how many steps at most.
const CALM_PERCENT: u64 = 30;
const CALM_STEPS: u64 = 6_000;
/// Steps until everything must be drained.
const DRAIN_STEPS: u64 = 60_000;
/// What was settled this long before a crash must stay settled.
const HORIZON: Nanos = 3_000_000_000;

/// Runs one seed.
pub fn run(seed: u64, length: Length) -> Outcome {
    let mut world = World::new(seed);
    world.load(length.steps);
    world.heal(length.steps / 2);
    world.drain();
    // Long after the last settle: nothing may come back.
    world.clock.ms += 2 * HORIZON / 1_000_000;
    world.settle_down(400);
    world.crash(Crash::PowerCut);
    world.drain();
    let World { clock, crashes, power_cuts, checkpoints, .. } = world;
    let rules = Rules {
        confirmed_min: 50,
        faults_min: 1,
        settle_horizon: HORIZON,
        stuck_after: Nanos::MAX / 2,
        ..Rules::default()
    };
    let report = check(&History::of(clock.events.clone()), &rules);
    Outcome { seed, events: clock.events, report, crashes, power_cuts, checkpoints }
}

/// Time, and what was seen when.
#[derive(Debug, Default)]
struct Clock {
    ms: u64,
    events: Vec<Event>,
}

impl Clock {
    /// Every event has a time of its own.
    fn nanos(&self) -> Nanos {
        self.ms * 1_000_000 + self.events.len() as Nanos
    }

    fn saw(&mut self, p: &str, what: What) {
        let t = self.nanos();
        self.events.push(Event { t, p: p.to_owned(), what });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// The process dies; what it wrote stays.
    Kill,
    /// The power goes: unsynced sectors and names are lost or torn.
    PowerCut,
}

struct World {
    chance: Chance,
    clock: Clock,
    disk: SimDisk,
    node: Node,
    clients: Clients,
    crashes: u64,
    power_cuts: u64,
    checkpoints: u64,
    /// The node does not start any more: there is nothing left to do.
    is_over: bool,
}

/// What the disk was told to do before long.
const FAULTS: [Fault; 3] = [Fault::PowerOff, Fault::PowerOff, Fault::Broken];

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let disk = SimDisk::new(chance.number());
        let shards = chance.within(1, 3) as usize;
        let mut clock = Clock::default();
        let node = Node::start(&disk, shards, clock.ms).expect("a new disk starts");
        let clients = Clients::new(&mut clock);
        let mut world = Self {
            chance,
            clock,
            disk,
            node,
            clients,
            crashes: 0,
            power_cuts: 0,
            checkpoints: 0,
            is_over: false,
        };
        world.clients.connect(&mut world.clock);
        world
    }

    /// Load, with crashes.
    fn load(&mut self, steps: u64) {
        self.clock.saw("world", What::Load { on: true });
        for step in 0..steps {
            let due = step == steps / 2 || self.chance.within(0, CRASH_STEPS) == 0;
            if due {
                self.trouble();
            }
            self.clients.publish(&mut self.chance, &mut self.clock);
            self.step();
        }
    }

    /// A crash now, or a disk that fails soon.
    fn trouble(&mut self) {
        if self.chance.percent(CALM_PERCENT) {
            self.calm();
        }
        match self.chance.within(0, 4) {
            0 => self.crash(Crash::Kill),
            1 => self.crash(Crash::PowerCut),
            _ => {
                let fault = FAULTS[self.chance.within(0, FAULTS.len() as u64) as usize];
                self.disk.fail_at(self.chance.within(1, 25), fault);
            }
        }
    }

    /// Nothing comes in, everything is settled: a queue that has stalled is found out before the
    /// crash that would free it.
    fn calm(&mut self) {
        self.clients.calm();
        for _ in 0..CALM_STEPS {
            self.step();
            if self.clients.is_drained() {
                break;
            }
        }
        self.clients.calmed(&mut self.clock);
    }

    /// No more harm, and no session ends: a queue that stalls now stays so, and is found out.
    fn heal(&mut self, steps: u64) {
        self.disk.heal();
        self.clients.stay();
        self.clock.saw("world", What::Heal);
        for _ in 0..steps {
            self.clients.publish(&mut self.chance, &mut self.clock);
            self.step();
        }
        self.clock.saw("world", What::Load { on: false });
    }

    fn settle_down(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// Consumes until every queue is empty, and asks what is left.
    fn drain(&mut self) {
        self.clients.drain(&mut self.clock);
        for _ in 0..DRAIN_STEPS {
            self.step();
            if self.clients.is_drained() {
                break;
            }
        }
        self.clients.drained(&mut self.clock);
    }

    /// One thing happens.
    fn step(&mut self) {
        if self.is_over {
            return;
        }
        self.clock.ms += self.chance.within(0, STEP_MS + 1);
        let Self { chance, clock, node, clients, .. } = self;
        clients.settle(chance, clock);
        for (session, requests) in clients.take_requests() {
            node.submit(session, requests);
        }
        let done = node.step(chance, clock.ms);
        self.checkpoints += u64::from(matches!(done, Ok(true)));
        match done {
            Ok(_) => {
                let answers: Vec<_> = self.node.take_answers().collect();
                for (session, answer) in answers {
                    self.clients.answered(session, answer, &mut self.clock);
                }
            }
            // A node stops at the first failure of its disk; the process is then gone.
            Err(_) => {
                let cut = self.chance.percent(70);
                self.crash(if cut { Crash::PowerCut } else { Crash::Kill });
            }
        }
    }

    /// The node is gone and comes back, perhaps after more than one attempt.
    fn crash(&mut self, crash: Crash) {
        if self.is_over {
            return;
        }
        let t0 = self.clock.nanos();
        self.clients.disconnected(&mut self.clock);
        let mut crash = crash;
        loop {
            self.crashes += 1;
            match crash {
                Crash::Kill => self.disk.kill(),
                Crash::PowerCut => {
                    self.power_cuts += 1;
                    self.disk.power_cut(self.chance.number());
                }
            }
            if self.chance.percent(25) {
                self.disk.fail_at(self.chance.within(1, 40), Fault::PowerOff);
            }
            self.clock.ms += self.chance.within(0, 500);
            match Node::start(&self.disk, self.node.shards(), self.clock.ms) {
                Ok(node) => {
                    self.node = node;
                    break;
                }
                // The power went again, in the middle of the recovery.
                Err(wal::Error::Disk { .. }) => crash = Crash::PowerCut,
                Err(error) => {
                    let text = format!("the node does not start: {error}");
                    self.clock.saw("world", What::Protocol { text });
                    self.is_over = true;
                    return;
                }
            }
        }
        let t1 = self.clock.nanos();
        let kind = format!("{crash:?}");
        self.clock.saw("world", What::Fault { kind, node: 1, t0, t1, sectors: 0 });
        self.clients.connect(&mut self.clock);
    }
}

/// The sessions of the clients, by number.
fn session(number: u64) -> SessionId {
    SessionId(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::Verdict;

    /// Seeds that every test run takes.
    const SEEDS: u64 = 20;
    const LENGTH: Length = Length { steps: 2_000 };

    #[test]
    fn what_is_confirmed_survives_crashes_and_power_cuts() {
        let (mut crashes, mut cuts, mut checkpoints) = (0, 0, 0);
        for seed in 1..=SEEDS {
            let outcome = run(seed, LENGTH);
            assert_eq!(outcome.report.verdict(), Verdict::Valid, "seed {seed}: {}", outcome.report);
            crashes += outcome.crashes;
            cuts += outcome.power_cuts;
            checkpoints += outcome.checkpoints;
        }
        assert!(crashes > SEEDS && cuts > SEEDS, "{crashes} crashes, {cuts} power cuts");
        assert!(checkpoints > SEEDS, "{checkpoints} checkpoints");
    }

    #[test]
    fn the_same_seed_gives_the_same_history() {
        for seed in 1..=SEEDS / 4 {
            let (one, two) = (run(seed, LENGTH), run(seed, LENGTH));
            assert_eq!(one.events, two.events, "seed {seed}");
        }
    }
}
