//! One trial of three nodes from start to verdict.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::broker::Kind;
use super::cluster::{Cluster, Plan as ClusterPlan};
use super::elections::Elections;
use super::faults::{Fault, World, damage};
use super::flaky_disk::mounted::MountedDisk;
use super::net::NODES;
use super::operations::Operations;
use super::table::Outcome;
use super::trial::{Options, small_files};
use super::{Failure, clocks, net};
use crate::checker::{Rules, check};
use crate::history::{History, Nanos, What};
use crate::workload::io::{Load, Recorder, Target, Writing, now, pika};
use crate::workload::{Chance, Plan};

/// Fewer confirmed messages show nothing.
pub const CONFIRMED_MIN: u64 = 10_000;
/// How long the load may go on to come to as many.
const ENOUGH: Duration = Duration::from_secs(120);
/// A cluster is whole again by then.
const READY: Duration = Duration::from_secs(90);
/// Load after the last harm.
const HEALED: Duration = Duration::from_secs(8);
const DRAIN: Duration = Duration::from_secs(180);
/// What was settled this long before a harm must stay settled.
const HORIZON: Duration = Duration::from_secs(5);
const STOPS: Duration = Duration::from_secs(60);
/// Percent of rounds after which the cluster is let become whole before the next.
const TIMEOUT_PERCENT: u64 = 60;

/// A run of some faults, one after the other, over and over.
#[derive(Clone)]
pub struct Schedule {
    pub name: String,
    pub faults: Vec<&'static Fault>,
    /// How often each of them strikes.
    pub rounds: u32,
}

/// Runs one trial to its verdict. A run that passes leaves no files behind.
pub fn run(options: &Options, schedule: &Schedule) -> Result<Outcome, Failure> {
    let dir = options.dir.join(format!("{}-{}", schedule.name, options.seed));
    if dir.exists() {
        return Err(Failure::Trial(format!("{} exists already: remove it first", dir.display())));
    }
    std::fs::create_dir_all(&dir)?;
    let outcome = run_in(options, schedule, &dir);
    match &outcome {
        Ok(outcome) if options.keep || !outcome.passed() => {}
        // What cannot be removed is litter, not an outcome.
        Ok(_) | Err(Failure::Skipped(_)) => drop(std::fs::remove_dir_all(&dir)),
        Err(_) => {}
    }
    outcome
}

fn run_in(options: &Options, schedule: &Schedule, dir: &Path) -> Result<Outcome, Failure> {
    let mut trial = Trial::new(options, schedule, dir)?;
    let mut broken = Vec::new();
    match trial.rounds(options, schedule) {
        Ok(()) => {}
        Err(Failure::Broken(what)) => broken.push(what),
        Err(other) => return Err(other),
    }
    let notes = std::mem::take(&mut trial.notes);
    let histories = trial.end()?;
    let mut history = History::default();
    for path in histories {
        let file = std::fs::File::open(&path)?;
        history.add(&path.display().to_string(), std::io::BufReader::new(file))?;
    }
    let report = check(
        &history,
        &Rules {
            confirmed_min: CONFIRMED_MIN,
            settle_horizon: HORIZON.as_nanos() as Nanos,
            settle_logged: HORIZON.as_nanos() as Nanos,
            // What a dead node held comes back when it has been away for a while: behind what was given
            // to others meanwhile, and flagged.
            order_of_flagged: false,
            ..Rules::default()
        },
    );
    let (trial, dir, restarts) = (schedule.name.clone(), dir.to_owned(), Vec::new());
    Ok(Outcome { trial, seed: options.seed, report, broken, notes, restarts, dir })
}

struct Trial {
    dir: PathBuf,
    notes: Vec<String>,
    cluster: Cluster,
    /// After the cluster: its processes must be gone before their disks.
    disks: Vec<MountedDisk>,
    clocks: Vec<PathBuf>,
    chance: Chance,
    runtime: Runtime,
    recorder: Recorder,
    writing: Writing,
    load: Option<Load>,
    lane: Option<pika::Lane>,
    operations: Option<Operations>,
    elections: Option<Elections>,
    histories: Vec<PathBuf>,
    /// The node whose files were damaged.
    damaged: Option<u32>,
    /// Every node was there when the last strike was over.
    is_whole: bool,
}

impl Trial {
    fn new(options: &Options, schedule: &Schedule, dir: &Path) -> Result<Self, Failure> {
        let has = |needed: fn(&Fault) -> bool| schedule.faults.iter().any(|fault| needed(fault));
        let mut environment = Vec::new();
        let disks = if has(|fault| fault.needs.disks) {
            // The alarm long before would keep a disk from ever being full.
            environment.push(("MILLRACE_DISK_FREE_LIMIT", "0".to_owned()));
            (1..=NODES).map(|node| MountedDisk::create(&dir.join(format!("node-{node}")))).collect()
        } else {
            Ok(Vec::new())
        }?;
        let clocks = if has(|fault| fault.needs.clocks) {
            clocks::is_possible()?;
            clocks::files(dir)?
        } else {
            Vec::new()
        };
        // Half of the seeds run with small log files, so that they often fill and are recycled.
        if options.seed.is_multiple_of(2) {
            environment.extend(small_files());
        }
        environment.extend(options.planted());
        let data = |node: u32| match disks.get(node as usize - 1) {
            Some(disk) => disk.data().join("broker"),
            None => dir.join(format!("data-{node}")),
        };
        let cluster = Cluster::start(&ClusterPlan {
            kind: options.kind,
            broker: options.broker.clone(),
            data: (1..=NODES).map(data).collect(),
            logs: dir.to_owned(),
            arguments: options.arguments.clone(),
            environment,
            clocks: clocks.clone(),
        })?;
        std::fs::write(dir.join("seed"), format!("{}\n", options.seed))?;
        let (recorder, writing) = Recorder::create(&dir.join("history.jsonl"))?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self {
            dir: dir.to_owned(),
            notes: Vec::new(),
            cluster,
            disks,
            clocks,
            chance: Chance::named(options.seed, &schedule.name),
            runtime,
            recorder,
            writing,
            load: None,
            lane: None,
            operations: None,
            elections: None,
            histories: vec![dir.join("history.jsonl")],
            damaged: None,
            is_whole: true,
        })
    }

    fn rounds(&mut self, options: &Options, schedule: &Schedule) -> Result<(), Failure> {
        self.start_load(options)?;
        for _ in 0..schedule.rounds {
            for fault in &schedule.faults {
                let ms = self.chance.within(300, (options.seconds * 1000.0) as u64);
                std::thread::sleep(Duration::from_millis(ms));
                self.strike(fault, options)?;
            }
        }
        self.heal()?;
        self.recorder.saw("nemesis", What::Heal);
        if let Some(load) = &mut self.load {
            let _inside = self.runtime.enter();
            // What nobody consumes must be delivered, too; the lane has a queue of its own.
            load.consume_backlogs(Some(pika::queue().name));
        }
        std::thread::sleep(HEALED);
        let begin = Instant::now();
        while self.recorder.confirmed() < CONFIRMED_MIN && begin.elapsed() < ENOUGH {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.drain()?;
        self.nobody_ended()?;
        self.cluster.wait_agreed(READY)?;
        // What was settled must stay settled: one more kill of all, long after, and nothing may be
        // back.
        std::thread::sleep(HORIZON + Duration::from_millis(500));
        let t0 = now();
        for node in 1..=NODES {
            self.cluster.node(node).kill()?;
        }
        self.cluster.restart_dead()?;
        self.wait_ready()?;
        self.fault("quiet kill", 0, t0, 0);
        self.drain()?;
        self.cluster.wait_agreed(READY)?;
        self.stop(options)
    }

    fn start_load(&mut self, options: &Options) -> Result<(), Failure> {
        let mut plan = Plan::everywhere(options.seed);
        if options.kind == Kind::Rabbitmq {
            plan.queue_type = Some("quorum".to_owned());
        } else {
            plan = plan.with_specials().with_operations().with_keys();
        }
        let pika = pika::is_possible(&options.python);
        if pika.is_ok() {
            plan.queues.push(pika::queue());
        }
        let target = Target::nodes(self.cluster.addresses());
        self.runtime.block_on(Load::declare(&plan, &target)).map_err(Failure::Broken)?;
        // What a node routes before it has heard of a binding is not lost: it was never to go there.
        self.cluster.wait_agreed(READY)?;
        let starting = Load::start(plan, target.clone(), self.recorder.clone());
        self.load = Some(self.runtime.block_on(starting).map_err(Failure::Broken)?);
        match pika {
            Ok(()) => {
                let lane = pika::Lane::start(&options.python, &target.addresses, &self.dir)?;
                self.lane = Some(lane);
            }
            Err(why) => self.notes.push(format!("skipped the clients with pika: {why}")),
        }
        if options.kind == Kind::Millrace {
            let data = (1..=NODES).map(|node| self.cluster.node(node).setup.data.clone()).collect();
            self.elections = Some(Elections::watch(data, self.recorder.clone())?);
            let (nodes, recorder) = (target.addresses, self.recorder.clone());
            let runtime = self.runtime.handle().clone();
            let operations = Operations::start(nodes, options.seed, recorder, runtime)?;
            self.operations = Some(operations);
        }
        Ok(())
    }

    /// One strike, and sometimes the cluster whole again.
    fn strike(&mut self, fault: &Fault, options: &Options) -> Result<(), Failure> {
        self.nobody_ended()?;
        let t0 = now();
        let mut world = World {
            cluster: &mut self.cluster,
            disks: &mut self.disks,
            clocks: &self.clocks,
            chance: &mut self.chance,
            seed: options.seed,
            dir: &self.dir,
            longest: Duration::from_secs_f64(options.seconds).max(Duration::from_secs(1)),
        };
        let bite = (fault.strike)(&mut world).map_err(|failure| match failure {
            // Harm that did not happen is no harness trouble to pass over: the run must fail.
            Failure::Trial(why) => Failure::Broken(format!("{} did not bite: {why}", fault.name)),
            Failure::Broken(what) => Failure::Broken(format!("{}: {what}", fault.name)),
            skipped @ Failure::Skipped(_) => skipped,
        })?;
        self.notes.push(format!("{} {}: {}", fault.row, fault.name, bite.seen));
        let was_whole = self.is_whole;
        // What the others' clients see is judged until the node is back.
        self.is_whole = bite.struck.is_some() || self.chance.percent(TIMEOUT_PERCENT);
        if fault.name == damage::NAME {
            self.damaged = bite.struck;
        }
        if self.is_whole {
            self.wait_ready()?;
        }
        let node = bite.struck.filter(|_| was_whole).unwrap_or(0);
        self.fault(fault.name, node, t0, bite.sectors);
        Ok(())
    }

    fn wait_ready(&mut self) -> Result<(), Failure> {
        match self.damaged {
            Some(node) => damage::wait_mended(&mut self.cluster, node),
            None => self.cluster.wait_ready(READY),
        }
    }

    /// A node that ends without being told to is a finding, whatever the clients see.
    fn nobody_ended(&mut self) -> Result<(), Failure> {
        for node in 1..=NODES {
            let broker = self.cluster.node(node);
            if self.damaged == Some(node) && damage::has_stopped(broker)? {
                broker.start()?;
                self.notes.push(format!("node {node} stopped when it read what is damaged"));
            }
            if let Some(status) = broker.exited()? {
                let last = super::broker::tail(&broker.setup.log);
                return Err(Failure::Broken(format!(
                    "node {node} ended by itself: {status}\n{last}"
                )));
            }
        }
        Ok(())
    }

    fn heal(&mut self) -> Result<(), Failure> {
        self.cluster.net.heal()?;
        for node in 1..=NODES {
            self.cluster.node(node).go_on()?;
        }
        for disk in &self.disks {
            disk.slow_flushes(0)?;
        }
        for file in &self.clocks {
            std::fs::write(file, "+0\n")?;
        }
        self.nobody_ended()?;
        self.cluster.restart_dead()?;
        // All agree on who leads; that they applied the same is asked when the load rests.
        for node in 1..=NODES {
            self.cluster.node(node).wait_ready(READY)?;
        }
        Ok(())
    }

    /// `node`: the only one that was harmed, and all were there before; else 0.
    fn fault(&self, kind: &str, node: u32, t0: Nanos, sectors: u64) {
        let kind = kind.to_owned();
        self.recorder.saw("nemesis", What::Fault { kind, node, t0, t1: now(), sectors });
    }

    /// Nothing is paused from here on, and nothing is sent on.
    fn end_operations(&mut self) -> Result<(), Failure> {
        let Some(operations) = self.operations.take() else { return Ok(()) };
        let done = operations.end().map_err(Failure::Broken)?;
        self.notes.push(done.to_string());
        match done.missing() {
            Some(what) => Err(Failure::Broken(format!("operations: no {what} all the time"))),
            None => Ok(()),
        }
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.end_operations()?;
        self.end_lane()?;
        let load = self.load.as_mut().expect("there is load while rounds go on");
        self.runtime.block_on(async {
            load.rest().await;
            load.drain(DRAIN).await;
        });
        Ok(())
    }

    fn end_lane(&mut self) -> Result<(), Failure> {
        if let Some(lane) = self.lane.take() {
            self.histories.extend(lane.end()?);
        }
        Ok(())
    }

    /// SIGTERM for one after the other, and a clean exit of each, the last of them alone.
    fn stop(&mut self, options: &Options) -> Result<(), Failure> {
        for node in 1..=NODES {
            let status = self.cluster.node(node).terminate(STOPS)?;
            if !status.success() && options.kind == Kind::Millrace {
                return Err(Failure::Broken(format!("SIGTERM ended node {node} with {status}")));
            }
        }
        Ok(())
    }

    /// Stops every client and ends the histories. Gives back where they are.
    fn end(mut self) -> Result<Vec<PathBuf>, Failure> {
        // A run that broke off may have left a node cut off or standing still.
        self.cluster.net.heal()?;
        for node in 1..=NODES {
            self.cluster.node(node).go_on()?;
        }
        if let Some(operations) = self.operations.take() {
            // The run is lost already, for another reason.
            let _ = operations.end();
        }
        self.elections = None;
        self.end_lane()?;
        let Self { runtime, recorder, writing, load, cluster, disks, histories, .. } = self;
        if let Some(load) = load {
            runtime.block_on(load.abandon());
        }
        drop(cluster);
        drop(disks);
        drop(runtime);
        drop(recorder);
        writing.finish()?;
        Ok(histories)
    }
}

/// Whether this machine can do what `fault` needs.
pub fn is_possible(fault: &Fault) -> Result<(), Failure> {
    net::is_possible()?;
    if fault.needs.disks {
        super::flaky_disk::mounted::is_possible()?;
    }
    if fault.needs.clocks {
        clocks::is_possible()?;
    }
    Ok(())
}
