//! Five nodes, some of which are lost with their disks, and what the others go on with: by themselves, or after
//! `millrace cluster rescue`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::runtime::Runtime;

use super::Failure;
use super::broker::Kind;
use super::cluster::{Cluster, Plan as ClusterPlan};
use super::status::{self, Status};
use super::table::Outcome;
use super::trial::{Options, small_files};
use crate::checker::{Rules, check};
use crate::history::{History, Nanos, What};
use crate::workload::io::{Load, Recorder, Target, Writing, now};
use crate::workload::{Chance, Plan};

/// Nodes that begin.
pub const NODES: u32 = 5;
/// Fewer confirmed messages show nothing.
const CONFIRMED_MIN: u64 = 3_000;
const READY: Duration = Duration::from_secs(120);
/// Load before the loss, and after it.
const LOADED: Duration = Duration::from_secs(4);
const DRAIN: Duration = Duration::from_secs(120);
/// What was settled this long before a loss must stay settled.
const HORIZON: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
const CATALOG: u32 = 0;

/// What is lost, of how many replicas.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    replicas: usize,
    lost: usize,
}

pub const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "two-lost", replicas: 3, lost: 2 },
    Scenario { name: "three-lost", replicas: 3, lost: 3 },
    Scenario { name: "two-lost-five-replicas", replicas: 5, lost: 2 },
];

/// What becomes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fate {
    Lives,
    Rescued { by: u32 },
    BegunAnew { by: u32 },
}

/// What `millrace cluster rescue --json` prints, as far as it is needed here.
#[derive(Debug, Deserialize)]
struct Shown {
    plan: Option<BTreeMap<u32, Fate>>,
    lost_queues: BTreeSet<String>,
    refused: Option<String>,
}

/// Runs one trial to its verdict. A run that passes leaves no files behind.
pub fn run(options: &Options, scenario: &Scenario) -> Result<Outcome, Failure> {
    let dir = options.dir.join(format!("{}-{}", scenario.name, options.seed));
    if dir.exists() {
        return Err(Failure::Trial(format!("{} exists already: remove it first", dir.display())));
    }
    std::fs::create_dir_all(&dir)?;
    let outcome = run_in(options, scenario, &dir);
    if outcome.as_ref().is_ok_and(|outcome| outcome.passed() && !options.keep) {
        // What cannot be removed is litter, not an outcome.
        drop(std::fs::remove_dir_all(&dir));
    }
    outcome
}

fn run_in(options: &Options, scenario: &Scenario, dir: &Path) -> Result<Outcome, Failure> {
    let mut trial = Trial::new(options, scenario, dir)?;
    let broken = match trial.lose_and_go_on(scenario) {
        Ok(()) => Vec::new(),
        Err(Failure::Broken(what)) => vec![what],
        Err(other) => return Err(other),
    };
    let notes = std::mem::take(&mut trial.notes);
    trial.end()?;
    let mut history = History::default();
    let path = dir.join("history.jsonl");
    let file = std::fs::File::open(&path)?;
    history.add(&path.display().to_string(), std::io::BufReader::new(file))?;
    let rules = Rules {
        confirmed_min: CONFIRMED_MIN,
        settle_horizon: HORIZON.as_nanos() as Nanos,
        settle_logged: HORIZON.as_nanos() as Nanos,
        order_of_flagged: false,
        ..Rules::default()
    };
    let report = check(&history, &rules);
    let (trial, dir, restarts) = (scenario.name.to_owned(), dir.to_owned(), Vec::new());
    Ok(Outcome { trial, seed: options.seed, report, broken, notes, restarts, dir })
}

struct Trial {
    dir: PathBuf,
    cluster: Cluster,
    chance: Chance,
    runtime: Runtime,
    recorder: Recorder,
    writing: Writing,
    load: Load,
    notes: Vec<String>,
}

impl Trial {
    fn new(options: &Options, scenario: &Scenario, dir: &Path) -> Result<Self, Failure> {
        let mut environment = Vec::new();
        if options.seed.is_multiple_of(2) {
            environment.extend(small_files());
        }
        let mut cluster = Cluster::start(&ClusterPlan {
            kind: Kind::Millrace,
            broker: options.broker.clone(),
            data: (1..=NODES).map(|node| dir.join(format!("data-{node}"))).collect(),
            logs: dir.to_owned(),
            arguments: options.arguments.clone(),
            environment,
            clocks: Vec::new(),
        })?;
        let replicas = scenario.replicas.to_string();
        if scenario.replicas != 3 {
            cluster_command(&mut cluster, 1, &["replicas", &replicas])?;
        }
        cluster.wait_views(READY, |views| have_voters(views, scenario.replicas))?;
        std::fs::write(dir.join("seed"), format!("{}\n", options.seed))?;
        let (recorder, writing) = Recorder::create(&dir.join("history.jsonl"))?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let plan = Plan::spread(options.seed);
        let target = Target::nodes(cluster.addresses());
        runtime.block_on(Load::declare(&plan, &target)).map_err(Failure::Broken)?;
        cluster.wait_agreed(READY)?;
        let starting = Load::start(plan, target, recorder.clone());
        let load = runtime.block_on(starting).map_err(Failure::Broken)?;
        Ok(Self {
            dir: dir.to_owned(),
            cluster,
            chance: Chance::named(options.seed, scenario.name),
            runtime,
            recorder,
            writing,
            load,
            notes: Vec::new(),
        })
    }

    fn lose_and_go_on(&mut self, scenario: &Scenario) -> Result<(), Failure> {
        std::thread::sleep(LOADED);
        // What is confirmed before is on the disk of every replica: it is in what is committed now.
        let since = now();
        let before = status::committed(&self.cluster.views().map_err(Failure::Trial)?);
        let level = |views: &[Status]| status::are_level(views, &before);
        let views = self.cluster.wait_views(READY, level)?;
        std::thread::sleep(Duration::from_millis(self.chance.within(0, 1500)));
        let lost = self.lose(scenario)?;
        let fates = fates(&views, &lost);
        let t0 = now();
        let is_rescue = fates.values().any(|fate| *fate != Fate::Lives);
        // Those who go on do so by themselves.
        std::thread::sleep(LOADED);
        let (kind, harmed) = (scenario.name, if is_rescue { vec![0] } else { lost.clone() });
        if is_rescue {
            self.rescue(scenario, &lost, &fates)?;
            for (name, group) in queues(&views) {
                let fate = fates[&group];
                if fate != Fate::Lives {
                    let empty = matches!(fate, Fate::BegunAnew { .. });
                    self.recorder.saw("nemesis", What::Rescued { q: name, since, empty });
                }
            }
            self.cluster.restart_dead()?;
        }
        self.cluster.wait_ready(READY)?;
        for node in harmed {
            let (kind, t0) = (kind.to_owned(), since.min(t0));
            let fault = What::Fault { kind, node, t0, t1: now(), sectors: 0 };
            self.recorder.saw("nemesis", fault);
        }
        self.judge_the_rest()
    }

    /// Kills so many nodes and deletes what they had.
    fn lose(&mut self, scenario: &Scenario) -> Result<Vec<u32>, Failure> {
        let mut living: Vec<u32> = self.cluster.living();
        let mut lost = Vec::new();
        for _ in 0..scenario.lost {
            let index = self.chance.within(0, living.len() as u64) as usize;
            lost.push(living.swap_remove(index));
        }
        lost.sort_unstable();
        for node in &lost {
            self.cluster.node(*node).kill()?;
        }
        for node in &lost {
            self.cluster.lose(*node)?;
        }
        self.notes.push(format!("nodes {lost:?} lost with their disks"));
        Ok(lost)
    }

    /// What `docs/operating/cluster.md` tells an operator to do.
    fn rescue(
        &mut self,
        scenario: &Scenario,
        lost: &[u32],
        fates: &BTreeMap<u32, Fate>,
    ) -> Result<(), Failure> {
        if fates[&CATALOG] == Fate::Lives {
            self.remove(lost)?;
        }
        let living = self.cluster.living();
        for node in &living {
            let node = self.cluster.node(*node);
            if self.chance.percent(50) {
                node.kill()?;
            } else {
                node.terminate(READY)?;
            }
        }
        let lost = lost.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let mut files = Vec::new();
        for node in &living {
            let said =
                cluster_command(&mut self.cluster, *node, &["rescue", "--lost", &lost, "--json"])?;
            let file = self.dir.join(format!("survey-{node}"));
            std::fs::write(&file, said)?;
            files.push((*node, file.display().to_string()));
        }
        for node in &living {
            let mut words = vec!["rescue", "--lost", &lost, "--json", "--yes"];
            let others = files.iter().filter(|(other, _)| other != node);
            others.for_each(|(_, file)| words.extend(["--with", file]));
            let said = cluster_command(&mut self.cluster, *node, &words)?;
            let shown: Shown = serde_json::from_str(&said)
                .map_err(|error| Failure::Trial(format!("rescue said {said}: {error}")))?;
            must_be_planned(&shown, fates, *node)?;
        }
        let count =
            |is_such: fn(&Fate) -> bool| fates.values().filter(|fate| is_such(fate)).count();
        self.notes.push(format!(
            "{}: {} groups went on, {} were rescued, {} began anew",
            scenario.name,
            count(|fate| *fate == Fate::Lives),
            count(|fate| matches!(fate, Fate::Rescued { .. })),
            count(|fate| matches!(fate, Fate::BegunAnew { .. })),
        ));
        Ok(())
    }

    /// Takes nodes out that a majority does not need. The commands wait for groups that nobody leads: in vain.
    fn remove(&mut self, lost: &[u32]) -> Result<(), Failure> {
        let first = self.cluster.living()[0];
        let mut removals: Vec<Child> = Vec::new();
        for node in lost {
            let setup = &self.cluster.node(first).setup;
            let mut command = setup.on_host(&setup.path);
            command.args(["cluster", "--data-dir"]).arg(&setup.data);
            command.args(["remove", &node.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            removals.push(command.spawn()?);
        }
        let living = self.cluster.living().len();
        let removed = self.cluster.wait_views(READY, |views| {
            match views.iter().find(|view| view.nodes.len() != living) {
                None => Ok(()),
                Some(view) => Err(format!("node {} knows {} nodes", view.node, view.nodes.len())),
            }
        });
        for mut removal in removals {
            // It may have ended.
            let _ = removal.kill();
            removal.wait()?;
        }
        removed.map(drop)
    }

    /// Load once more, a drain, a kill of all long after, and a drain.
    fn judge_the_rest(&mut self) -> Result<(), Failure> {
        self.recorder.saw("nemesis", What::Heal);
        {
            let _inside = self.runtime.enter();
            self.load.consume_backlogs(None);
        }
        std::thread::sleep(LOADED);
        let begin = Instant::now();
        while self.recorder.confirmed() < CONFIRMED_MIN && begin.elapsed() < READY {
            std::thread::sleep(PAUSE);
        }
        self.drain();
        self.cluster.wait_agreed(READY)?;
        std::thread::sleep(HORIZON + Duration::from_millis(500));
        let t0 = now();
        for node in self.cluster.living() {
            self.cluster.node(node).kill()?;
        }
        self.cluster.restart_dead()?;
        self.cluster.wait_ready(READY)?;
        let kind = "quiet kill".to_owned();
        self.recorder.saw("nemesis", What::Fault { kind, node: 0, t0, t1: now(), sectors: 0 });
        self.drain();
        self.cluster.wait_agreed(READY).map(drop)
    }

    fn drain(&mut self) {
        self.runtime.block_on(async {
            self.load.rest().await;
            self.load.drain(DRAIN).await;
        });
    }

    /// Stops every client and ends the history.
    fn end(self) -> Result<(), Failure> {
        let Self { runtime, recorder, writing, load, cluster, .. } = self;
        runtime.block_on(load.abandon());
        drop(cluster);
        drop(runtime);
        drop(recorder);
        writing.finish().map_err(Failure::from)
    }
}

/// What decision 14 says of each group, by its voters before the loss.
fn fates(views: &[Status], lost: &[u32]) -> BTreeMap<u32, Fate> {
    let mut fates = BTreeMap::new();
    for group in views.iter().flat_map(|view| &view.groups) {
        let gone = group.voters.iter().filter(|voter| lost.contains(voter)).count();
        let fate = match group.voters.len() - gone {
            0 => Fate::BegunAnew { by: 0 },
            left if left > gone => Fate::Lives,
            _ => Fate::Rescued { by: 0 },
        };
        fates.insert(group.group, fate);
    }
    fates
}

/// Holds the command to it: it rescues what must be, and nothing else.
fn must_be_planned(shown: &Shown, fates: &BTreeMap<u32, Fate>, node: u32) -> Result<(), Failure> {
    let broken = |what: String| Err(Failure::Broken(format!("rescue on node {node}: {what}")));
    let Some(plan) = &shown.plan else {
        return broken(format!("refused: {:?}", shown.refused));
    };
    for (group, fate) in fates {
        let planned = plan.get(group).copied().unwrap_or(Fate::Lives);
        if std::mem::discriminant(&planned) != std::mem::discriminant(fate) {
            return broken(format!("group {group} is planned {planned:?}, its fate is {fate:?}"));
        }
    }
    let is_anew = |fate: &Fate| matches!(fate, Fate::BegunAnew { .. });
    if shown.lost_queues.is_empty() == fates.values().any(is_anew) {
        return broken(format!("names as empty {:?}", shown.lost_queues));
    }
    Ok(())
}

/// Every queue and its group.
fn queues(views: &[Status]) -> BTreeMap<String, u32> {
    let all = views.iter().flat_map(|view| &view.queues);
    all.map(|queue| (queue.name.clone(), queue.group)).collect()
}

fn have_voters(views: &[Status], replicas: usize) -> Result<(), String> {
    let groups = views.iter().flat_map(|view| &view.groups);
    for group in groups.filter(|group| group.group != CATALOG) {
        if group.voters.len() != replicas {
            return Err(format!("group {} has voters {:?}", group.group, group.voters));
        }
    }
    Ok(())
}

/// Runs `millrace cluster` on a node's host: what it prints.
fn cluster_command(cluster: &mut Cluster, node: u32, words: &[&str]) -> Result<String, Failure> {
    let setup = &cluster.node(node).setup;
    let mut command: Command = setup.on_host(&setup.path);
    command.args(["cluster", "--data-dir"]).arg(&setup.data).args(words);
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::Broken(format!("node {node}: {}: {complaint} {said}", words.join(" "))))
}
