//! The sources, the targets and the clock around one pool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use worker::pool::{Effect, Input, PipelineId, Pool, RunId, TargetId};
use worker::{Message, Outcome, Receipt, Scope, Settlement};

use super::check::Checker;
use super::settings::{Random, settings};
use super::source::{Source, Waiting, source};

/// More steps than any world takes that comes to its end.
const STEPS_MAX: usize = 100_000;

#[derive(Clone, Debug)]
enum Event {
    Take(usize),
    Finish(RunId, Vec<Outcome>),
    Settled(usize, Vec<Receipt>),
    Renewed(usize, Vec<Receipt>),
    LeaseOut(usize, Receipt),
    Disconnect(usize),
    Pause(usize, bool),
    Share(usize),
    Mend(usize),
    Mood(usize),
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    Failing,
    Throttling,
    Mixed,
    Wrong,
}

/// One world.
#[derive(Debug)]
pub(crate) struct World {
    seed: u64,
    random: Random,
    pool: Pool,
    checker: Checker,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    events_count: u64,
    sources: Vec<Source>,
    moods: Vec<Mood>,
    calm_at: Instant,
    is_stopping: bool,
    tells: bool,
}

impl World {
    pub(crate) fn new(seed: u64, tells: bool) -> Self {
        let mut random = Random::new(seed);
        let settings = settings(&mut random);
        let now = Instant::now();
        let sources = settings.pipelines.iter().map(|_| source(&mut random, now)).collect();
        let mut world = Self {
            seed,
            checker: Checker::new(&settings, now),
            moods: vec![Mood::Well; settings.targets.len()],
            pool: Pool::new(settings, seed),
            calm_at: now + Duration::from_secs(5 + random.below(60)),
            random,
            now,
            events: BTreeMap::new(),
            events_count: 0,
            sources,
            is_stopping: false,
            tells,
        };
        world.plan();
        world
    }

    /// What happens whatever the pool does.
    fn plan(&mut self) {
        for at in 0..self.sources.len() {
            self.after(Duration::from_secs(2), Event::Take(at));
            for _ in 0..self.random.below(3) {
                let event = self.random.one(&[0, 1, 2]);
                let most = self.calm_at - self.now;
                match event {
                    0 => self.after(most, Event::Disconnect(at)),
                    1 => self.after(most, Event::Pause(at, true)),
                    _ => {}
                }
            }
            self.at(self.calm_at, Event::Pause(at, false));
        }
        for at in 0..self.moods.len() {
            for _ in 0..self.random.below(5) {
                self.after(self.calm_at - self.now, Event::Mood(at));
                self.after(self.calm_at - self.now, Event::Share(at));
                self.after(self.calm_at - self.now, Event::Mend(at));
            }
            self.at(self.calm_at, Event::Mend(at));
            self.at(self.calm_at, Event::Share(at));
        }
        if self.random.percent(40) {
            self.after(self.calm_at - self.now + Duration::from_secs(5), Event::Stop);
        }
    }

    /// Lives until everything is done and stopped. The steps that it took.
    pub(crate) fn run(mut self) -> usize {
        self.step(Input::Tick);
        for step in 0..STEPS_MAX {
            if self.checker.is_stopped {
                return step;
            }
            if !self.is_stopping && self.is_all_done() {
                self.stop();
            }
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let due = self.pool.deadline();
            match (event, due) {
                (None, None) => self.fail("nothing will ever happen"),
                (Some(event), due) if due.is_none_or(|due| event <= due) => {
                    self.now = self.now.max(event);
                    let (_, event) = self.events.pop_first().unwrap();
                    self.happen(event);
                }
                (_, due) => {
                    self.now = due.unwrap() + self.lateness();
                    self.step(Input::Tick);
                }
            }
        }
        self.fail("a job starves")
    }

    /// Timers are late, and machines sleep.
    fn lateness(&mut self) -> Duration {
        match self.random.below(400) {
            0 => Duration::from_secs(self.random.below(100_000)),
            1..=5 => Duration::from_secs(self.random.below(30)),
            _ => self.random.time(Duration::from_millis(3)),
        }
    }

    fn fail(&self, why: &str) -> ! {
        panic!("seed {}: {why}: {}\n{:?}\n{:?}", self.seed, self.pool, self.events, self.sources)
    }

    fn is_all_done(&self) -> bool {
        self.sources.iter().all(|source| source.specs.iter().all(|spec| spec.is_over))
    }

    fn is_calm(&self) -> bool {
        self.now >= self.calm_at
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.events_count += 1;
        self.events.insert((at, self.events_count), event);
    }

    fn after(&mut self, most: Duration, event: Event) {
        let at = self.now + self.random.time(most);
        self.at(at, event);
    }

    fn step(&mut self, input: Input) {
        if self.tells {
            eprintln!("{:?} {input:?}", self.now);
        }
        self.checker.input(self.now, &input);
        let mut effects = Vec::new();
        self.pool.step(self.now, input, &mut effects);
        if self.tells {
            effects.iter().for_each(|effect| eprintln!("    {effect:?}"));
            eprintln!("    {}", self.pool);
        }
        let is_due_later = self.pool.deadline().is_none_or(|due| due > self.now);
        assert!(is_due_later, "a deadline has passed: {}", self.pool);
        self.checker.effects(self.now, &effects);
        for status in self.pool.pipelines() {
            self.checker.compare(usize::from(status.id.0), status.proof, self.now);
        }
        effects.into_iter().for_each(|effect| self.obey(effect));
    }

    fn obey(&mut self, effect: Effect) {
        match effect {
            Effect::Start { run, target, jobs, deadline, .. } => {
                let outcomes = self.outcomes(usize::from(target.0), &jobs);
                // One in fifty hangs until it is cancelled.
                if !self.random.percent(2) {
                    self.after(deadline - self.now, Event::Finish(run, outcomes));
                }
            }
            Effect::Cancel { run } => {
                let jobs = self.cancelled(run);
                self.after(Duration::from_millis(100), Event::Finish(run, jobs));
            }
            Effect::Settle { pipeline, settled } => {
                let at = usize::from(pipeline.0);
                for one in &settled {
                    self.carry_out(at, one.receipt, &one.settlement);
                }
                let receipts = settled.iter().map(|one| one.receipt).collect();
                self.after(Duration::from_millis(300), Event::Settled(at, receipts));
            }
            Effect::Room { pipeline, jobs } => self.sources[usize::from(pipeline.0)].room += jobs,
            Effect::Renew { pipeline, receipts } => {
                let at = usize::from(pipeline.0);
                if !self.random.percent(20) {
                    self.after(Duration::from_millis(500), Event::Renewed(at, receipts));
                }
            }
            Effect::Notice(_) | Effect::Stopped => {}
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Take(at) => self.take(at),
            Event::Finish(run, mut outcomes) => {
                if self.checker.is_running(run) {
                    if self.is_calm() {
                        // Nobody mends it any more.
                        outcomes.retain(|outcome| !matches!(outcome, Outcome::Config { .. }));
                        outcomes.resize(self.checker.jobs_of(run), Outcome::done());
                    }
                    self.step(Input::Finished { run, outcomes });
                }
            }
            Event::Settled(at, receipts) => {
                let receipts: Vec<Receipt> =
                    receipts.into_iter().filter(|one| self.checker.holds(at, *one)).collect();
                self.sources[at].settle(&receipts);
                self.step(Input::Settled { pipeline: PipelineId(at as u16), receipts });
            }
            Event::Renewed(at, receipts) => self.renew(at, receipts),
            Event::LeaseOut(at, receipt) => self.lease_out(at, receipt),
            Event::Disconnect(at) => self.disconnect(at),
            Event::Pause(at, is_paused) => {
                if is_paused {
                    self.after(Duration::from_secs(10), Event::Pause(at, false));
                }
                self.step(Input::Paused { pipeline: PipelineId(at as u16), is_paused });
            }
            Event::Share(at) => {
                let rate = (!self.is_calm() && self.random.percent(70))
                    .then(|| self.random.below(500).saturating_sub(50) as f64 / 5.0);
                self.step(Input::Share { target: TargetId(at as u16), rate });
            }
            Event::Mend(at) => self.step(Input::Mended { target: TargetId(at as u16) }),
            Event::Mood(at) => {
                let moods = [Mood::Well, Mood::Failing, Mood::Throttling, Mood::Mixed, Mood::Wrong];
                self.moods[at] = self.random.one(&moods);
            }
            Event::Stop => self.stop(),
        }
    }

    fn stop(&mut self) {
        if !self.is_stopping {
            self.is_stopping = true;
            let deadline = self.now + self.random.time(Duration::from_secs(20));
            self.step(Input::Stop { deadline });
        }
    }

    fn take(&mut self, at: usize) {
        let now = self.now;
        let source = &mut self.sources[at];
        let most = source.room.min(1 + self.random.below(20) as usize);
        let mut jobs = Vec::new();
        let mut later = VecDeque::new();
        while let Some(waiting) = source.queue.pop_front() {
            if waiting.due > now || jobs.len() >= most {
                later.push_back(waiting);
            } else {
                jobs.push(source.give_out(waiting, now));
            }
        }
        source.queue = later;
        source.room -= jobs.len();
        for job in &jobs {
            if let Some(until) = job.lease_until {
                self.at(until, Event::LeaseOut(at, job.receipt));
            }
        }
        // A source that was told to stop may still have something on its way.
        if !self.is_stopping && !self.is_all_done() {
            let next = self.sources[at]
                .queue
                .iter()
                .map(|one| one.due)
                .min()
                .unwrap_or(now + Duration::from_secs(10));
            let busy = if self.sources[at].room == 0 { 200 } else { 1 };
            let at_least = next.max(now) + Duration::from_millis(busy);
            let next = at_least + self.random.time(Duration::from_millis(500));
            self.at(next, Event::Take(at));
        }
        if !jobs.is_empty() {
            self.step(Input::Took { pipeline: PipelineId(at as u16), jobs });
        }
    }

    fn carry_out(&mut self, at: usize, receipt: Receipt, settlement: &Settlement) {
        let now = self.now;
        let source = &mut self.sources[at];
        let Some(waiting) = source.out.get(&receipt).cloned() else { return };
        match settlement {
            Settlement::Done | Settlement::Dead { .. } => source.specs[waiting.id].is_over = true,
            Settlement::Return => {
                source.out.remove(&receipt);
                source.queue.push_front(Waiting { due: now, ..waiting });
            }
            Settlement::Later { after, attempt, rest, .. } => {
                source.out.remove(&receipt);
                let body = rest.clone().unwrap_or(waiting.body);
                let due = now + *after;
                source.queue.push_back(Waiting { attempt: *attempt, body, due, ..waiting });
            }
        }
    }

    fn renew(&mut self, at: usize, receipts: Vec<Receipt>) {
        let now = self.now;
        let mut leases = Vec::new();
        for receipt in receipts {
            let source = &mut self.sources[at];
            let Some(until) = source.leases.get_mut(&receipt).filter(|until| **until > now) else {
                continue;
            };
            *until = now + source.lease.unwrap();
            leases.push((receipt, *until));
        }
        for (receipt, until) in &leases {
            self.at(*until, Event::LeaseOut(at, *receipt));
        }
        self.step(Input::Renewed { pipeline: PipelineId(at as u16), leases });
    }

    /// A lease has run out, unless it was made longer: somebody else, or we again, gets the job.
    fn lease_out(&mut self, at: usize, receipt: Receipt) {
        let now = self.now;
        let source = &mut self.sources[at];
        if source.leases.get(&receipt).is_none_or(|until| *until > now) {
            return;
        }
        source.leases.remove(&receipt);
        let waiting = source.out.remove(&receipt);
        if let Some(waiting) = waiting.filter(|waiting| !source.specs[waiting.id].is_over) {
            let attempt = waiting.attempt + u32::from(self.random.percent(50));
            source.queue.push_front(Waiting { attempt, due: now, ..waiting });
        }
        let receipts = vec![receipt];
        self.step(Input::Lost { pipeline: PipelineId(at as u16), receipts });
    }

    /// The connection breaks: all that is out comes out again.
    fn disconnect(&mut self, at: usize) {
        let now = self.now;
        let source = &mut self.sources[at];
        let out = std::mem::take(&mut source.out);
        let mut receipts: BTreeSet<Receipt> = out.keys().copied().collect();
        receipts.extend(std::mem::take(&mut source.leases).into_keys());
        for waiting in out.into_values().rev() {
            if !source.specs[waiting.id].is_over || self.random.percent(5) {
                source.queue.push_front(Waiting { due: now, ..waiting });
            }
        }
        let receipts = receipts.into_iter().collect();
        self.step(Input::Lost { pipeline: PipelineId(at as u16), receipts });
    }

    fn cancelled(&mut self, run: RunId) -> Vec<Outcome> {
        let count = self.checker.jobs_of(run);
        (0..count).map(|_| Outcome::retry("out of time")).collect()
    }

    fn outcomes(&mut self, target: usize, jobs: &[Message]) -> Vec<Outcome> {
        jobs.iter().map(|job| self.outcome(target, job)).collect()
    }

    fn outcome(&mut self, target: usize, job: &Message) -> Outcome {
        let mood = if self.is_calm() { Mood::Well } else { self.moods[target] };
        let chance = self.random.below(100);
        match (mood, chance) {
            (Mood::Failing, 0..80) | (Mood::Mixed, 0..20) | (Mood::Well, 0..3) => self.retry(job),
            (Mood::Throttling, 0..60) | (Mood::Mixed, 20..40) => Outcome::Throttle {
                scope: self.random.one(&[Scope::Key, Scope::Target]),
                until: self.random.one(&[
                    Duration::ZERO,
                    Duration::from_millis(300),
                    Duration::from_secs(3),
                    Duration::from_secs(40),
                    Duration::from_secs(3600),
                ]),
                why: "slow down".into(),
            },
            (Mood::Mixed, 40..45) => {
                Outcome::TokenDead { why: "gone".into(), publishes: Vec::new() }
            }
            (Mood::Mixed, 45..50) => Outcome::reject("never"),
            (Mood::Wrong, 0..10) => Outcome::Config { why: "who are you".into() },
            _ => Outcome::done(),
        }
    }

    fn retry(&mut self, job: &Message) -> Outcome {
        let after = self.random.percent(30).then(|| self.random.time(Duration::from_secs(2000)));
        let rest = (self.random.percent(20) && job.body.len() > 1)
            .then(|| job.body.slice(..job.body.len() / 2));
        Outcome::Retry { after, why: "no".into(), rest, publishes: Vec::new() }
    }
}
