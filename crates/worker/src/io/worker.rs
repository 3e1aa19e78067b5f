//! The shell of a pool: one task that tells it what happened and does what it says.
//!
//! ```text
//!   source tasks ──Took, Settled, Lost──> ┌────────┐ ──Room, Settle, Renew──> source tasks
//!   tasks of runs ──────Finished────────> │  pool  │ ──Start────────────────> tasks of runs
//!   stop, reload, deadlines ────────────> └────────┘ ──Notice───────────────> log, metrics
//! ```
//!
//! What arrives while a step is made is collected, and goes into the next step together: the busier the worker, the
//! fewer wake-ups a job costs. Everything here has one owner, the task of [`Worker::run_until`].

mod builder;
mod errands;
mod execute;
mod held;
mod plan;
mod sources;
mod tell;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::error::Error;
use crate::finish;
use crate::io::metrics::{self, Metrics};
use crate::io::source::{News, Order};
use crate::io::target::Target;
use crate::job::{Job, Receipt};
use crate::outcome::Outcome;
use crate::pool::{Effect, Input, PipelineId, Pool, Proof, RunId, Settings, TargetId};
use crate::settlement::Settled;

pub use builder::Builder;
pub use errands::Errands;
use execute::{Report, Start, execute};
use held::Held;
pub use plan::{Plan, PlanPipeline, PlanTarget};
use sources::{Event, Sources};

/// Reports of runs, or news of one source, that go into one step.
const STEP_MAX: usize = 1024;
/// How long sources have to flush and end once everything is settled.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// A worker that is set up, and does not run yet.
pub struct Worker {
    plan: Plan,
    metrics: Metrics,
    control: mpsc::Sender<Change>,
    changes: mpsc::Receiver<Change>,
}

/// Changes a worker while it runs.
#[derive(Clone)]
pub struct Control {
    control: mpsc::Sender<Change>,
}

/// What is changed.
enum Change {
    /// New settings and targets, as one change.
    Settings {
        settings: Settings,
        targets: Vec<PlanTarget>,
        answer: oneshot::Sender<Result<(), Vec<String>>>,
    },
    /// One pipeline rests, or goes on; none is named: all of the worker.
    Pause { pipeline: Option<String>, is_paused: bool, done: oneshot::Sender<()> },
}

impl Control {
    /// These settings and targets take the place of the worker's, as one change: pipelines and targets are the same
    /// ones in the same order, with other limits, rates, priorities, retries and credentials. Runs that have begun
    /// finish with the old ones. Targets that had stopped go on.
    ///
    /// # Errors
    /// The settings have problems, or differ in what cannot change while it runs: a sentence each. The old ones hold,
    /// all of them.
    pub async fn change(
        &self,
        settings: Settings,
        targets: Vec<PlanTarget>,
    ) -> Result<(), Vec<String>> {
        let (answer, answered) = oneshot::channel();
        // A worker that has ended has nothing to change.
        let _ = self.control.send(Change::Settings { settings, targets, answer }).await;
        answered.await.unwrap_or(Ok(()))
    }

    /// Nothing is fetched and nothing is started from now on, or again. Runs that have begun finish; what has not started
    /// stays in hand.
    pub async fn pause(&self, is_paused: bool) {
        self.order(None, is_paused).await;
    }

    /// The same of one pipeline. It rests while either it or all of the worker is paused. One that does not exist is
    /// paused in vain.
    pub async fn pause_pipeline(&self, name: &str, is_paused: bool) {
        self.order(Some(name.to_owned()), is_paused).await;
    }

    async fn order(&self, pipeline: Option<String>, is_paused: bool) {
        let (done, is_done) = oneshot::channel();
        // As above.
        let _ = self.control.send(Change::Pause { pipeline, is_paused, done }).await;
        let _ = is_done.await;
    }
}

impl Worker {
    /// A worker that does what the plan says.
    ///
    /// # Errors
    /// The plan is wrong: all of its problems, a line each.
    pub fn new(plan: Plan) -> Result<Self, Error> {
        match plan.problems().as_slice() {
            [] => {
                let (control, changes) = mpsc::channel(1);
                Ok(Self { plan, metrics: Metrics::default(), control, changes })
            }
            problems => Err(Error::setup(problems.join("\n"))),
        }
    }

    /// What it counts, for whoever serves it. The same counters before, while and after it runs.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// What changes it while it runs.
    pub fn control(&self) -> Control {
        Control { control: self.control.clone() }
    }

    /// Runs until `stop` becomes true, and then until everything in hand is finished or given back: no job of its
    /// sources is in memory when it returns. Gives the proof: taken = done + returned + dead + lost.
    ///
    /// # Errors
    /// No source is left that works.
    pub async fn run_until(self, stop: watch::Receiver<bool>) -> Result<Proof, Error> {
        let Self { plan, metrics, control, changes } = self;
        // Without a Control, no change ever comes.
        let _control = control;
        let mut plan = plan;
        let errands = std::mem::take(&mut plan.errands);
        let shared: Vec<usize> = errands.shares.iter().map(|(target, ..)| *target).collect();
        let errands = errands.begin(&stop);
        Shell::new(plan, metrics, changes).run(stop, errands, &shared).await
    }
}

/// One pipeline, as the shell has it.
struct Line {
    name: String,
    target: usize,
    orders: mpsc::UnboundedSender<Order>,
    meters: metrics::Pipeline,
    /// What is in hand: for the age of the oldest.
    held: Held,
    /// Messages whose end is followed by others (chains, batches).
    followed: HashMap<Receipt, Box<crate::job::Message>>,
    /// It was told to rest by itself.
    is_paused: bool,
    /// When the log last named a dead job, and how many there were since.
    dead_told: Option<Instant>,
    dead_untold: u64,
}

/// One target, as the shell has it.
struct Goal {
    name: String,
    target: Arc<dyn Target>,
    /// Jobs of one run that it takes; more than one: jobs have groups.
    run_jobs_max: usize,
    meters: metrics::Target,
}

/// A run that was started and has not been answered to the pool.
struct Running {
    pipeline: usize,
    target: usize,
    jobs: usize,
    begun: Instant,
    task: Option<AbortHandle>,
}

struct Shell {
    pool: Pool,
    lines: Vec<Line>,
    goals: Vec<Goal>,
    sources: Sources,
    running: HashMap<RunId, Running>,
    reports: mpsc::UnboundedReceiver<Report>,
    report: mpsc::UnboundedSender<Report>,
    changes: mpsc::Receiver<Change>,
    grace: Duration,
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    /// All of it was told to rest.
    is_paused: bool,
    /// How that is told.
    metrics: Metrics,
    is_stopped: bool,
    /// Why the last source that ended could not go on.
    broken: Option<Error>,
}

impl Shell {
    fn new(plan: Plan, metrics: Metrics, changes: mpsc::Receiver<Change>) -> Self {
        let Plan { settings, pipelines, targets, grace, errands: _ } = plan;
        // Bounded by the runs that the pool has started: each reports once.
        let (report, reports) = mpsc::unbounded_channel();
        let most = plan::run_jobs_max(&settings, &targets);
        let goals: Vec<Goal> = targets
            .into_iter()
            .zip(settings.targets.iter().zip(&most))
            .map(|(PlanTarget { target, kind }, (limits, run_jobs_max))| Goal {
                name: limits.name.clone(),
                run_jobs_max: *run_jobs_max,
                target,
                meters: metrics.target(&limits.name, &kind),
            })
            .collect();
        let mut sources = Sources::default();
        let mut lines = Vec::with_capacity(pipelines.len());
        for (at, (PlanPipeline { source }, set)) in
            pipelines.into_iter().zip(&settings.pipelines).enumerate()
        {
            let target = settings.target(&set.target).expect("the plan was judged");
            lines.push(Line {
                name: set.name.clone(),
                target,
                orders: sources.begin(at, source),
                meters: metrics.pipeline(&set.name, &set.source, &set.target),
                held: Held::default(),
                followed: HashMap::new(),
                is_paused: false,
                dead_told: None,
                dead_untold: 0,
            });
        }
        let pool = Pool::new(plan::held_to(settings, &most), chance());
        Self {
            pool,
            lines,
            goals,
            sources,
            running: HashMap::new(),
            reports,
            report,
            changes,
            grace,
            inputs: Vec::new(),
            effects: Vec::new(),
            is_paused: false,
            metrics,
            is_stopped: false,
            broken: None,
        }
    }

    async fn run(
        mut self,
        mut stop: watch::Receiver<bool>,
        mut errands: errands::Running,
        shared: &[usize],
    ) -> Result<Proof, Error> {
        let mut is_stopping = false;
        // Nothing of a shared rate is used before a share is granted.
        shared.iter().for_each(|target| self.share(*target, 0.0));
        self.inputs.push(Input::Tick);
        while !self.is_stopped {
            self.step();
            if self.is_stopped {
                break;
            }
            let deadline = self.pool.deadline();
            let mut reports = Vec::new();
            tokio::select! {
                event = self.sources.next() => match event {
                    Event::News(at, news) => self.news(at, news),
                    Event::Ended(at, ended) => self.source_ended(at, ended),
                },
                _ = self.reports.recv_many(&mut reports, STEP_MAX) => (),
                Some(change) = self.changes.recv() => self.change(change),
                (target, rate) = errands.share(), if !is_stopping => self.share(target, rate),
                () = asked(&mut stop), if !is_stopping => {
                    is_stopping = true;
                    self.stop(self.grace);
                }
                () = until(deadline) => self.inputs.push(Input::Tick),
            }
            for report in reports {
                self.reported(report);
            }
            if self.broken.is_some() && self.sources.count() == 0 && !is_stopping {
                is_stopping = true;
                self.stop(Duration::ZERO);
            }
        }
        let proof = self.pool.proof();
        let closed = async {
            // Without a stop from outside, errands go on: they end with the process.
            if *stop.borrow() {
                errands.end().await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_MAX, closed).await;
        self.close().await;
        match self.broken {
            Some(error) if self.lines.len() == self.sources.broken() => Err(error),
            Some(_) | None => Ok(proof),
        }
    }

    /// Tells the pool everything that has come, and does what it says.
    fn step(&mut self) {
        // What is carried out may end runs: those are for a further step.
        while !self.inputs.is_empty() {
            let now = Instant::now();
            self.pool.step_all(now, self.inputs.drain(..), &mut self.effects);
            let mut starts = Vec::new();
            let mut effects = std::mem::take(&mut self.effects);
            for effect in effects.drain(..) {
                self.carry_out(effect, now, &mut starts);
            }
            self.effects = effects;
            execute(starts, &self.report);
        }
    }

    fn carry_out(&mut self, effect: Effect, now: Instant, starts: &mut Vec<Start>) {
        match effect {
            Effect::Start { run, pipeline, target, jobs, deadline } => {
                let (line, goal) = (at(pipeline), usize::from(target.0));
                self.lines[line].meters.started(jobs.len());
                self.goals[goal].meters.started();
                let count = jobs.len();
                let running =
                    Running { pipeline: line, target: goal, jobs: count, begun: now, task: None };
                self.running.insert(run, running);
                // What cannot be followed as its publisher wants is refused before it is executed.
                if let Some(why) = jobs.iter().find_map(|job| finish::check(job).err()) {
                    self.finished(run, vec![Outcome::reject(why); count], Duration::ZERO);
                    return;
                }
                let target = Arc::clone(&self.goals[goal].target);
                starts.push(Start { run, target, jobs, deadline });
            }
            Effect::Cancel { run } => self.cancel(run, now),
            Effect::Settle { pipeline, settled } => self.settle(at(pipeline), settled),
            Effect::Room { pipeline, jobs } => self.order(pipeline, Order::Room { jobs }),
            Effect::Renew { pipeline, receipts } => self.order(pipeline, Order::Renew(receipts)),
            Effect::Notice(notice) => self.tell(notice),
            Effect::Stopped => self.is_stopped = true,
        }
    }

    /// The source may have ended: then the pool is told so, and this is in vain.
    fn order(&self, pipeline: PipelineId, order: Order) {
        let _ = self.lines[at(pipeline)].orders.send(order);
    }

    fn settle(&mut self, line: usize, mut settled: Vec<Settled>) {
        let line = &mut self.lines[line];
        for one in &mut settled {
            line.meters.settled(&one.settlement);
            line.held.settled(one.receipt);
            if !line.followed.is_empty()
                && let Some(message) = line.followed.remove(&one.receipt)
            {
                one.publishes.extend(finish::finish(&message, &one.settlement));
            }
        }
        line.meters.oldest(line.held.oldest());
        let _ = line.orders.send(Order::Settle(settled));
    }

    fn cancel(&mut self, run: RunId, now: Instant) {
        let Some(running) = self.running.get(&run) else { return };
        if let Some(task) = &running.task {
            task.abort();
        }
        let why = format!("no answer within {:.1} s", (now - running.begun).as_secs_f64());
        let outcomes = vec![Outcome::retry(why); running.jobs];
        self.finished(run, outcomes, now - running.begun);
    }

    fn reported(&mut self, report: Report) {
        for ended in report.ended {
            self.finished(ended.run, ended.outcomes, ended.took);
        }
        for (run, task) in report.waiting {
            match self.running.get_mut(&run) {
                Some(running) => running.task = Some(task),
                // Its time was over before it had a task.
                None => task.abort(),
            }
        }
    }

    fn finished(&mut self, run: RunId, outcomes: Vec<Outcome>, took: Duration) {
        // A run that was cancelled has been answered.
        let Some(running) = self.running.remove(&run) else { return };
        self.lines[running.pipeline].meters.ended(&outcomes);
        self.goals[running.target].meters.ended(&outcomes, took);
        self.inputs.push(Input::Finished { run, outcomes });
    }

    fn news(&mut self, line: usize, news: Vec<News>) {
        let pipeline = PipelineId(line as u16);
        for one in news {
            let input = match one {
                News::Took(jobs) => self.took(line, jobs),
                News::Settled(receipts) => Input::Settled { pipeline, receipts },
                News::Renewed(leases) => Input::Renewed { pipeline, leases },
                News::Lost(receipts) => {
                    self.lost(line, &receipts);
                    Input::Lost { pipeline, receipts }
                }
                News::Away { why } => {
                    self.away(line, why);
                    continue;
                }
                News::Back => {
                    self.back(line);
                    continue;
                }
            };
            self.inputs.push(input);
        }
    }

    fn took(&mut self, at: usize, mut jobs: Vec<Job>) -> Input {
        let line = &mut self.lines[at];
        let goal = &self.goals[line.target];
        line.meters.took(jobs.len());
        line.held.took(jobs.iter().map(|job| job.receipt), Instant::now());
        for job in &mut jobs {
            if goal.run_jobs_max > 1 {
                job.group = goal.target.group(&job.message);
            }
            if finish::is_followed(&job.message) {
                line.followed.insert(job.receipt, Box::new(job.message.clone()));
            }
        }
        Input::Took { pipeline: PipelineId(at as u16), jobs }
    }

    fn lost(&mut self, line: usize, receipts: &[Receipt]) {
        let line = &mut self.lines[line];
        let mut count = 0;
        for receipt in receipts {
            count += usize::from(line.held.settled(*receipt));
            line.followed.remove(receipt);
        }
        line.meters.lost(count);
        line.meters.oldest(line.held.oldest());
    }

    /// The sources take nothing more: what goes back would come again.
    fn stop(&mut self, grace: Duration) {
        for line in &self.lines {
            let _ = line.orders.send(Order::Drain);
        }
        self.inputs.push(Input::Stop { deadline: Instant::now() + grace });
    }

    fn share(&mut self, target: usize, rate: f64) {
        self.inputs.push(Input::Share { target: TargetId(target as u16), rate: Some(rate) });
    }

    fn pause(&mut self, pipeline: Option<&str>, is_paused: bool) {
        match pipeline {
            None => self.is_paused = is_paused,
            Some(name) => {
                let named = self.lines.iter_mut().filter(|line| line.name == name);
                named.for_each(|line| line.is_paused = is_paused);
            }
        }
        self.metrics.paused(self.is_paused);
        for (at, line) in self.lines.iter().enumerate() {
            let is_paused = self.is_paused || line.is_paused;
            self.inputs.push(Input::Paused { pipeline: PipelineId(at as u16), is_paused });
            line.meters.paused(is_paused);
        }
        // What was said is done before anybody is told so.
        self.step();
        self.tell_paused(pipeline, is_paused);
    }

    /// All of it holds, or nothing of it.
    fn change(&mut self, change: Change) {
        let (settings, targets, answer) = match change {
            Change::Settings { settings, targets, answer } => (settings, targets, answer),
            Change::Pause { pipeline, is_paused, done } => {
                self.pause(pipeline.as_deref(), is_paused);
                let _ = done.send(());
                return;
            }
        };
        let most = plan::run_jobs_max(&settings, &targets);
        let settings = plan::held_to(settings, &most);
        let changed = self.pool.change(Instant::now(), &settings, &mut self.effects);
        if changed.is_ok() {
            for (at, (goal, new)) in self.goals.iter_mut().zip(targets).enumerate() {
                goal.target = new.target;
                goal.run_jobs_max = most[at];
                goal.meters.stopped(None);
                self.inputs.push(Input::Mended { target: TargetId(at as u16) });
            }
        }
        // Who asked may be gone.
        let _ = answer.send(changed);
    }

    /// A source cannot go on, or was closed: what it gave is somebody else's now.
    fn source_ended(&mut self, line: usize, ended: Result<(), Error>) {
        let receipts = self.lines[line].held.receipts();
        self.lost(line, &receipts);
        self.inputs.push(Input::Lost { pipeline: PipelineId(line as u16), receipts });
        let error = match ended {
            Ok(()) => Error::setup("the source ended by itself"),
            Err(error) => error,
        };
        self.tell_ended(line, &error);
        self.broken = Some(error);
    }

    /// Everything is settled: the sources flush, and end.
    async fn close(&mut self) {
        for line in &self.lines {
            let _ = line.orders.send(Order::Close);
        }
        let closed = async {
            while self.sources.count() > 0 {
                // A source that waits for room to tell something would never end.
                self.sources.next().await;
            }
        };
        if tokio::time::timeout(CLOSE_MAX, closed).await.is_err() {
            tracing::warn!(
                "sources did not disconnect within {CLOSE_MAX:?}; ending without them: \
                 acknowledgements that they have not sent are lost, and those jobs come again"
            );
        }
    }
}

/// Spreads the retries of several workers.
fn chance() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn at(pipeline: PipelineId) -> usize {
    usize::from(pipeline.0)
}

/// Returns once it is true; without a sender it never will be.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_asked| *is_asked).await.is_err() {
        std::future::pending().await
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
