//! What a worker counts and says of itself: `/metrics` for Prometheus, `/ready`, and the JSON that `status` and `top`
//! show. The worker's task writes it; whoever watches reads it.

mod ask;
mod status;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub use ask::ask;
pub use status::{ErrorStatus, PipelineStatus, Status, TargetStatus};

use crate::outcome::Outcome;
use crate::settlement::Settlement;

/// Upper bounds of the runs' histogram, in seconds.
const RUN_BOUNDS: [f64; 16] = [
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
];
/// Why a source is away that has never been there.
const CONNECTING: &str = "it is connecting";
/// Different errors that are kept of one target.
const ERRORS_MAX: usize = 32;
/// A number of so many digits is taken for the name of something.
const NUMBER_DIGITS: usize = 6;
/// Text kept of each.
const ERROR_BYTES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PipelineLabel {
    pipeline: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    pipeline: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SettlementLabel {
    pipeline: String,
    settlement: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TargetLabel {
    target: String,
}

/// As [`Outcome::name`] has them.
pub const OUTCOMES: [&str; 6] = ["done", "retry", "throttle", "token_dead", "reject", "config"];
/// What becomes of jobs, as the proof counts them; `later` is a copy that waits at the source.
pub const SETTLEMENTS: [&str; 4] = ["done", "returned", "later", "dead"];

fn outcome_at(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Done { .. } => 0,
        Outcome::Retry { .. } => 1,
        Outcome::Throttle { .. } => 2,
        Outcome::TokenDead { .. } => 3,
        Outcome::Reject { .. } => 4,
        Outcome::Config { .. } => 5,
    }
}

fn settlement_at(settlement: &Settlement) -> usize {
    match settlement {
        Settlement::Done => 0,
        Settlement::Return => 1,
        Settlement::Later { .. } => 2,
        Settlement::Dead { .. } => 3,
    }
}

/// Everything that a worker counts. Cheap to clone: all clones are the same counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    begun: Instant,
    taken: Family<PipelineLabel, Counter>,
    jobs: Family<OutcomeLabel, Counter>,
    settled: Family<SettlementLabel, Counter>,
    lost: Family<PipelineLabel, Counter>,
    running: Family<PipelineLabel, Gauge>,
    in_hand: Family<PipelineLabel, Gauge>,
    oldest: Family<PipelineLabel, Gauge<f64, AtomicU64>>,
    source_up: Family<PipelineLabel, Gauge>,
    runs: Family<TargetLabel, Histogram, fn() -> Histogram>,
    breaker_open: Family<TargetLabel, Gauge>,
    target_stopped: Family<TargetLabel, Gauge>,
    throttles: Family<TargetLabel, Counter>,
    watchers_turned_away: Counter,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    pipelines: Vec<Pipeline>,
    targets: Vec<Target>,
    /// All of the worker was told to rest.
    is_paused: bool,
}

/// The counters of one pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline {
    name: String,
    source: String,
    target: String,
    taken: Counter,
    outcomes: [Counter; 6],
    settled: [Counter; 4],
    lost: Counter,
    running: Gauge,
    in_hand: Gauge,
    oldest: Gauge<f64, AtomicU64>,
    source_up: Gauge,
    state: Arc<Mutex<PipelineState>>,
}

#[derive(Debug, Default)]
struct PipelineState {
    /// Why the source is away or has ended.
    away: Option<String>,
    is_ended: bool,
    is_paused: bool,
    is_removed: bool,
    /// When the oldest job that is in hand was taken.
    oldest: Option<Instant>,
}

/// The counters of one target.
#[derive(Clone, Debug)]
pub struct Target {
    name: String,
    kind: String,
    outcomes: [Counter; 6],
    running: Gauge,
    runs: Histogram,
    breaker_open: Gauge,
    stopped: Gauge,
    throttles: Counter,
    state: Arc<Mutex<TargetState>>,
}

#[derive(Debug, Default)]
struct TargetState {
    stopped: Option<String>,
    breaker: Option<String>,
    throttle: Option<(Instant, String)>,
    errors: BTreeMap<String, u64>,
}

/// A panic while it was held leaves numbers that are still numbers.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Metrics {
    fn default() -> Self {
        let runs: fn() -> Histogram = || Histogram::new(RUN_BOUNDS);
        Self {
            inner: Arc::new(Inner {
                begun: Instant::now(),
                taken: Family::default(),
                jobs: Family::default(),
                settled: Family::default(),
                lost: Family::default(),
                running: Family::default(),
                in_hand: Family::default(),
                oldest: Family::default(),
                source_up: Family::default(),
                runs: Family::new_with_constructor(runs),
                breaker_open: Family::default(),
                target_stopped: Family::default(),
                throttles: Family::default(),
                watchers_turned_away: Counter::default(),
                lists: Mutex::default(),
            }),
        }
    }
}

impl Metrics {
    /// A pipeline that is new, or is back.
    pub fn pipeline(&self, name: &str, source: &str, target: &str) -> Pipeline {
        let inner = &*self.inner;
        let label = PipelineLabel { pipeline: name.to_owned() };
        let one = Pipeline {
            name: name.to_owned(),
            source: source.to_owned(),
            target: target.to_owned(),
            taken: inner.taken.get_or_create_owned(&label),
            outcomes: OUTCOMES.map(|outcome| {
                let label = OutcomeLabel { pipeline: name.to_owned(), outcome };
                inner.jobs.get_or_create_owned(&label)
            }),
            settled: SETTLEMENTS.map(|settlement| {
                let label = SettlementLabel { pipeline: name.to_owned(), settlement };
                inner.settled.get_or_create_owned(&label)
            }),
            lost: inner.lost.get_or_create_owned(&label),
            running: inner.running.get_or_create_owned(&label),
            in_hand: inner.in_hand.get_or_create_owned(&label),
            oldest: inner.oldest.get_or_create_owned(&label),
            source_up: inner.source_up.get_or_create_owned(&label),
            state: Arc::default(),
        };
        one.away(Some(CONNECTING.to_owned()));
        lock(&inner.lists).pipelines.push(one.clone());
        one
    }

    /// A target that is new.
    pub fn target(&self, name: &str, kind: &str) -> Target {
        let inner = &*self.inner;
        let label = TargetLabel { target: name.to_owned() };
        let one = Target {
            name: name.to_owned(),
            kind: kind.to_owned(),
            outcomes: Default::default(),
            running: Gauge::default(),
            runs: inner.runs.get_or_create_owned(&label),
            breaker_open: inner.breaker_open.get_or_create_owned(&label),
            stopped: inner.target_stopped.get_or_create_owned(&label),
            throttles: inner.throttles.get_or_create_owned(&label),
            state: Arc::default(),
        };
        lock(&inner.lists).targets.push(one.clone());
        one
    }

    /// What keeps the worker from working right now; none: it is ready.
    pub fn problem(&self) -> Option<String> {
        let lists = lock(&self.inner.lists);
        let pipelines = lists.pipelines.iter().filter_map(|one| {
            let state = lock(&one.state);
            let away = state.away.as_ref().filter(|_| !state.is_removed)?;
            let what = if state.is_ended { "has ended" } else { "is away" };
            Some(format!("pipeline {}: its source {} {what}: {away}", one.name, one.source))
        });
        let targets = lists.targets.iter().filter_map(|one| {
            let state = lock(&one.state);
            let stopped = state.stopped.as_ref()?;
            Some(format!("target {} has stopped: {stopped}", one.name))
        });
        let all: Vec<String> = pipelines.chain(targets).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// All of the worker rests, or goes on.
    pub fn paused(&self, is_paused: bool) {
        lock(&self.inner.lists).is_paused = is_paused;
    }

    /// Somebody asked for this, and there was no room.
    pub fn turned_away(&self) {
        self.inner.watchers_turned_away.inc();
    }

    /// Everything, as Prometheus reads it.
    pub fn text(&self) -> String {
        self.age();
        let inner = &*self.inner;
        let mut all = Registry::with_prefix("millrace_work");
        all.register("taken", "Jobs taken from their source", inner.taken.clone());
        all.register("jobs", "Attempts that ended, by their outcome", inner.jobs.clone());
        all.register("settled", "Jobs that left this process", inner.settled.clone());
        all.register("lost", "Jobs whose lease or connection was lost", inner.lost.clone());
        all.register("running", "Jobs that are being executed", inner.running.clone());
        all.register("in_hand", "Jobs held, started or not", inner.in_hand.clone());
        let oldest = inner.oldest.clone();
        all.register_with_unit("oldest", "Age of the oldest job in hand", Unit::Seconds, oldest);
        all.register("source_up", "1 while the source is there", inner.source_up.clone());
        all.register_with_unit("run", "Time of a run", Unit::Seconds, inner.runs.clone());
        let open = inner.breaker_open.clone();
        all.register("breaker_open", "1 while nothing is started at the target", open);
        let stopped = inner.target_stopped.clone();
        all.register("target_stopped", "1 while the target's settings are wrong", stopped);
        let throttles = inner.throttles.clone();
        all.register("throttles", "Times the target asked for less", throttles);
        let away = inner.watchers_turned_away.clone();
        all.register(
            "watchers_turned_away",
            "Connections to the port of metrics without room",
            away,
        );
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &all);
        text
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        self.age();
        let problem = self.problem();
        let lists = lock(&self.inner.lists);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.inner.begun.elapsed().as_secs_f64(),
            is_ready: problem.is_none(),
            problem,
            is_paused: lists.is_paused,
            paused_by: None,
            paused_at: None,
            pipelines: lists.pipelines.iter().filter_map(Pipeline::status).collect(),
            targets: lists.targets.iter().map(Target::status).collect(),
        }
    }

    fn age(&self) {
        for one in &lock(&self.inner.lists).pipelines {
            let age = lock(&one.state).oldest.map_or(Duration::ZERO, |at| at.elapsed());
            one.oldest.set(age.as_secs_f64());
        }
    }
}

impl Pipeline {
    pub fn took(&self, jobs: usize) {
        self.taken.inc_by(jobs as u64);
        self.in_hand.inc_by(jobs as i64);
    }

    pub fn started(&self, jobs: usize) {
        self.running.inc_by(jobs as i64);
    }

    pub fn ended(&self, outcomes: &[Outcome]) {
        self.running.dec_by(outcomes.len() as i64);
        outcomes.iter().for_each(|outcome| {
            self.outcomes[outcome_at(outcome)].inc();
        });
    }

    pub fn settled(&self, settlement: &Settlement) {
        self.settled[settlement_at(settlement)].inc();
        self.in_hand.dec();
    }

    pub fn lost(&self, jobs: usize) {
        self.lost.inc_by(jobs as u64);
        self.in_hand.dec_by(jobs as i64);
    }

    pub fn oldest(&self, taken: Option<Instant>) {
        lock(&self.state).oldest = taken;
    }

    pub fn away(&self, why: Option<String>) {
        self.source_up.set(i64::from(why.is_none()));
        lock(&self.state).away = why;
    }

    pub fn source_ended(&self, why: &str) {
        self.source_up.set(0);
        let mut state = lock(&self.state);
        (state.away, state.is_ended) = (Some(why.to_owned()), true);
    }

    pub fn paused(&self, is_paused: bool) {
        lock(&self.state).is_paused = is_paused;
    }

    pub fn removed(&self) {
        self.source_up.set(0);
        lock(&self.state).is_removed = true;
    }

    fn status(&self) -> Option<PipelineStatus> {
        let state = lock(&self.state);
        let counts = |list: &[Counter], names: &[&'static str]| {
            names.iter().zip(list).map(|(name, count)| ((*name).to_owned(), count.get())).collect()
        };
        (!state.is_removed).then(|| PipelineStatus {
            name: self.name.clone(),
            source: self.source.clone(),
            target: self.target.clone(),
            taken: self.taken.get(),
            outcomes: counts(&self.outcomes, &OUTCOMES),
            settled: counts(&self.settled, &SETTLEMENTS),
            lost: self.lost.get(),
            running: self.running.get(),
            in_hand: self.in_hand.get(),
            oldest_s: self.oldest.get(),
            away: state.away.clone(),
            is_paused: state.is_paused,
            paused_by: None,
            paused_at: None,
        })
    }
}

impl Target {
    pub fn started(&self) {
        self.running.inc();
    }

    pub fn ended(&self, outcomes: &[Outcome], took: Duration) {
        self.running.dec();
        self.runs.observe(took.as_secs_f64());
        for outcome in outcomes {
            self.outcomes[outcome_at(outcome)].inc();
            if let Some(why) = why(outcome) {
                self.note(why);
            }
        }
    }

    /// Counts an error under its words. Long numbers are taken out: they name jobs and phones, of which there are many.
    fn note(&self, why: &str) {
        let mut text = String::with_capacity(why.len().min(ERROR_BYTES_MAX));
        let mut digits = 0;
        for c in why.chars().take(ERROR_BYTES_MAX) {
            digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
            text.push(c);
            if digits == NUMBER_DIGITS {
                text.truncate(text.len() - NUMBER_DIGITS);
                text.push('#');
            } else if digits > NUMBER_DIGITS {
                text.pop();
            }
        }
        let errors = &mut lock(&self.state).errors;
        if errors.len() >= ERRORS_MAX && !errors.contains_key(&text) {
            let rarest = errors.iter().min_by_key(|(_, count)| **count);
            if let Some(rarest) = rarest.map(|(text, _)| text.clone()) {
                errors.remove(&rarest);
            }
        }
        *errors.entry(text).or_default() += 1;
    }

    pub fn breaker(&self, open: Option<String>) {
        self.breaker_open.set(i64::from(open.is_some()));
        lock(&self.state).breaker = open;
    }

    pub fn throttled(&self, until: Duration, why: &str) {
        self.throttles.inc();
        lock(&self.state).throttle = Some((Instant::now() + until, why.to_owned()));
    }

    pub fn stopped(&self, why: Option<String>) {
        self.stopped.set(i64::from(why.is_some()));
        lock(&self.state).stopped = why;
    }

    fn status(&self) -> TargetStatus {
        let state = lock(&self.state);
        let mut errors: Vec<ErrorStatus> = state
            .errors
            .iter()
            .map(|(why, count)| ErrorStatus { why: why.clone(), count: *count })
            .collect();
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        let counts = OUTCOMES.iter().zip(&self.outcomes);
        TargetStatus {
            name: self.name.clone(),
            kind: self.kind.clone(),
            outcomes: counts.map(|(name, count)| ((*name).to_owned(), count.get())).collect(),
            running: self.running.get(),
            breaker: state.breaker.clone(),
            throttle: state.throttle.as_ref().and_then(|(until, why)| {
                let left = until.checked_duration_since(Instant::now())?;
                Some(format!("for {:.0} s: {why}", left.as_secs_f64()))
            }),
            stopped: state.stopped.clone(),
            errors,
        }
    }
}

fn why(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Done { .. } => None,
        Outcome::Retry { why, .. }
        | Outcome::Throttle { why, .. }
        | Outcome::TokenDead { why, .. }
        | Outcome::Reject { why }
        | Outcome::Config { why } => Some(why),
    }
}

#[cfg(test)]
mod tests;
