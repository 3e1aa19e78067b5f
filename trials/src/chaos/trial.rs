//! One trial from start to verdict; the harm is the caller's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::Failure;
use super::broker::{Broker, Kind, Setup};
use super::table::Outcome;
use crate::checker::{Rules, check};
use crate::history::{History, Nanos, What};
use crate::ports;
use crate::workload::io::{Load, Recorder, Target, Writing, now, pika};
use crate::workload::{Chance, Plan};

/// What is the same for every trial.
#[derive(Clone, Debug)]
pub struct Options {
    pub broker: PathBuf,
    pub kind: Kind,
    pub rounds: u32,
    /// Longest time between two harms.
    pub seconds: f64,
    pub seed: u64,
    /// Where runs are kept that fail; all files of a run are below.
    pub dir: PathBuf,
    /// Whether runs that pass are kept as well.
    pub keep: bool,
    /// A Python with pika, for the lane of another language.
    pub python: PathBuf,
    /// More arguments for the broker.
    pub arguments: Vec<String>,
    /// The planted bug that is at work in the broker, which was built with all of them.
    pub bug: Option<&'static str>,
}

impl Options {
    /// What tells the broker which bug it has.
    pub fn planted(&self) -> Option<(&'static str, String)> {
        self.bug.map(|bug| ("MILLRACE_PLANTED", bug.to_owned()))
    }
}

/// What harm did.
#[derive(Clone, Debug)]
pub struct Struck {
    pub t0: Nanos,
    /// Sectors that were thrown away.
    pub sectors: u64,
    /// Whether the broker is expected to be running after it.
    pub is_alive: bool,
    /// From then until its next start, nothing that a client begins may be confirmed.
    pub silent_from: Option<Nanos>,
    /// What a reader of the outcome should know.
    pub note: Option<String>,
}

impl Struck {
    /// Struck at `t0`, and dead; nothing else to say.
    pub fn dead(t0: Nanos) -> Self {
        Self { t0, sectors: 0, is_alive: false, silent_from: None, note: None }
    }
}

/// A kind of harm.
pub trait Harm {
    fn name(&self) -> &'static str;

    /// Where the broker's data is to lie.
    fn data(&self, run: &Path) -> PathBuf {
        run.join("data")
    }

    /// Settings of the broker that this harm needs.
    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Rules beyond the usual ones.
    fn rules(&self, rules: Rules) -> Rules {
        rules
    }

    /// Strikes a broker that runs or starts. Afterwards the disk is usable.
    fn strike(&mut self, broker: &mut Broker, chance: &mut Chance) -> Result<Struck, Failure>;

    /// Whether it may also strike while the broker recovers.
    fn strikes_recovery(&self) -> bool {
        true
    }
}

/// Chance, in percent, that a recovery is struck as well.
const RECOVERY_PERCENT: u64 = 35;
const READY: Duration = Duration::from_secs(90);
/// Load after the last harm.
const HEALED: Duration = Duration::from_secs(3);
const DRAIN: Duration = Duration::from_secs(120);
/// What was settled this long before a harm must stay settled.
const HORIZON: Duration = Duration::from_secs(2);
const NODE: u32 = 1;

/// Makes the harm of a run, below the run's directory.
pub type MakeHarm = fn(&Path) -> Result<Box<dyn Harm>, Failure>;

/// Runs one trial to its verdict. A run that passes leaves no files behind.
pub fn run(options: &Options, name: &str, make: MakeHarm) -> Result<Outcome, Failure> {
    let dir = options.dir.join(format!("{name}-{}", options.seed));
    if dir.exists() {
        return Err(Failure::Trial(format!("{} exists already: remove it first", dir.display())));
    }
    std::fs::create_dir_all(&dir)?;
    let outcome = run_in(options, make, &dir);
    match &outcome {
        Ok(outcome) if options.keep || !outcome.passed() => {}
        // What cannot be removed is litter, not an outcome.
        Ok(_) | Err(Failure::Skipped(_)) => drop(std::fs::remove_dir_all(&dir)),
        Err(_) => {}
    }
    outcome
}

fn run_in(options: &Options, make: MakeHarm, dir: &Path) -> Result<Outcome, Failure> {
    let mut harm = make(dir)?;
    let mut trial = Trial::new(options, harm.as_ref(), dir)?;
    let broken = match trial.rounds(options, harm.as_mut()) {
        Ok(()) => Vec::new(),
        Err(Failure::Broken(what)) => vec![what],
        Err(other) => return Err(other),
    };
    let restarts = std::mem::take(&mut trial.restarts);
    let notes = std::mem::take(&mut trial.notes);
    let histories = trial.end()?;
    let mut history = History::default();
    for path in histories {
        let file = std::fs::File::open(&path)?;
        history.add(&path.display().to_string(), std::io::BufReader::new(file))?;
    }
    let rules = harm.rules(Rules {
        settle_horizon: HORIZON.as_nanos() as Nanos,
        settle_logged: HORIZON.as_nanos() as Nanos,
        order_of_flagged: options.kind == Kind::Millrace,
        ..Rules::default()
    });
    let report = check(&history, &rules);
    let (trial, dir) = (harm.name().to_owned(), dir.to_owned());
    Ok(Outcome { trial, seed: options.seed, report, broken, notes, restarts, dir })
}

/// Half of the seeds run with small log files, so that they often fill and are recycled.
fn environment(options: &Options, harm: &dyn Harm) -> Vec<(&'static str, String)> {
    let mut environment = harm.environment();
    if environment.is_empty() && options.seed.is_multiple_of(2) {
        environment.extend(small_files());
    }
    environment.extend(options.planted());
    environment
}

/// The smallest log files, and messages that fit them.
pub fn small_files() -> [(&'static str, String); 2] {
    [
        ("MILLRACE_WAL_FILE_BYTES", "4MiB".to_owned()),
        ("MILLRACE_MESSAGE_BYTES_MAX", "1MiB".to_owned()),
    ]
}

struct Trial {
    dir: PathBuf,
    lane: Option<pika::Lane>,
    /// Histories of the lane, once it ended.
    histories: Vec<PathBuf>,
    notes: Vec<String>,
    runtime: Runtime,
    broker: Broker,
    recorder: Recorder,
    writing: Writing,
    chance: Chance,
    load: Option<Load>,
    restarts: Vec<Duration>,
}

impl Trial {
    fn new(options: &Options, harm: &dyn Harm, dir: &Path) -> Result<Self, Failure> {
        let setup = Setup {
            kind: options.kind,
            path: options.broker.clone(),
            node: None,
            port: ports::free()?,
            data: harm.data(dir),
            log: dir.join("broker.log"),
            arguments: options.arguments.clone(),
            environment: environment(options, harm),
        };
        std::fs::create_dir_all(&setup.data)?;
        std::fs::write(dir.join("seed"), format!("{}\n", options.seed))?;
        let (recorder, writing) = Recorder::create(&dir.join("history.jsonl"))?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self {
            dir: dir.to_owned(),
            lane: None,
            histories: vec![dir.join("history.jsonl")],
            notes: Vec::new(),
            runtime,
            broker: Broker::new(setup),
            recorder,
            writing,
            chance: Chance::named(options.seed, harm.name()),
            load: None,
            restarts: Vec::new(),
        })
    }

    fn rounds(&mut self, options: &Options, harm: &mut dyn Harm) -> Result<(), Failure> {
        self.broker.start()?;
        self.broker.wait_ready(READY)?;
        let mut plan = Plan::everyday(options.seed);
        if options.kind == Kind::Rabbitmq {
            plan.queue_type = Some("quorum".to_owned());
        } else {
            plan = plan.with_specials().with_keys();
        }
        let pika = pika::is_possible(&options.python);
        if pika.is_ok() {
            plan.queues.push(pika::queue());
        }
        let port = self.broker.setup.port;
        let target = Target::local(port);
        let starting = Load::start(plan, target.clone(), self.recorder.clone());
        self.load = Some(self.runtime.block_on(starting).map_err(Failure::Broken)?);
        match pika {
            Ok(()) => {
                self.lane = Some(pika::Lane::start(&options.python, &target.addresses, &self.dir)?)
            }
            Err(why) => self.notes.push(format!("skipped the clients with pika: {why}")),
        }
        for _ in 0..options.rounds {
            let ms = self.chance.within(100, (options.seconds * 1000.0) as u64);
            std::thread::sleep(Duration::from_millis(ms));
            self.harm(harm)?;
        }
        self.recorder.saw("nemesis", What::Heal);
        std::thread::sleep(HEALED);
        self.drain()?;
        // What was settled must stay settled: one more kill, long after, and nothing may be back.
        std::thread::sleep(HORIZON + Duration::from_millis(500));
        let t0 = now();
        self.broker.kill()?;
        self.restart()?;
        self.fault("quiet kill", t0, 0);
        self.drain()?;
        self.stop(options)
    }

    /// One harm, and the broker ready again.
    fn harm(&mut self, harm: &mut dyn Harm) -> Result<(), Failure> {
        if let Some(status) = self.broker.exited()? {
            return Err(Failure::Broken(format!("the broker ended by itself: {status}")));
        }
        let struck = harm.strike(&mut self.broker, &mut self.chance)?;
        if let Some(t0) = struck.silent_from {
            self.recorder.saw("nemesis", What::Silent { t0, t1: now() });
        }
        self.notes.extend(struck.note);
        let mut sectors = struck.sectors;
        if !struck.is_alive {
            while harm.strikes_recovery() && self.chance.percent(RECOVERY_PERCENT) {
                self.broker.start()?;
                let usual = self.restarts.last().copied().unwrap_or(Duration::from_millis(300));
                let ms = self.chance.within(0, usual.as_millis() as u64 * 3 / 2);
                std::thread::sleep(Duration::from_millis(ms));
                sectors += harm.strike(&mut self.broker, &mut self.chance)?.sectors;
            }
            self.restart()?;
        }
        self.fault(harm.name(), struck.t0, sectors);
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Failure> {
        self.broker.start()?;
        let time = self.broker.wait_ready(READY)?;
        self.restarts.push(time);
        Ok(())
    }

    fn fault(&self, kind: &str, t0: Nanos, sectors: u64) {
        let kind = kind.to_owned();
        self.recorder.saw("nemesis", What::Fault { kind, node: NODE, t0, t1: now(), sectors });
    }

    fn drain(&mut self) -> Result<(), Failure> {
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

    /// The end of a broker's day: SIGTERM, and a clean exit.
    fn stop(&mut self, options: &Options) -> Result<(), Failure> {
        let status = self.broker.terminate(Duration::from_secs(30))?;
        if !status.success() && options.kind == Kind::Millrace {
            return Err(Failure::Broken(format!("SIGTERM ended the broker with {status}")));
        }
        Ok(())
    }

    /// Stops every client and ends the histories. Gives back where they are.
    fn end(mut self) -> Result<Vec<PathBuf>, Failure> {
        self.end_lane()?;
        let Self { runtime, recorder, writing, load, broker, histories, .. } = self;
        if let Some(load) = load {
            runtime.block_on(load.abandon());
        }
        drop(broker);
        drop(runtime);
        drop(recorder);
        writing.finish()?;
        Ok(histories)
    }
}
