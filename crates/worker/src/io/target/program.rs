//! The program target: a process for each job, or processes that stay.
//!
//! No process outlives the worker: each is the head of a process group, which is killed whole when its job's time is
//! over, when it misbehaves, and when the worker ends. The kernel kills the head of the group with the worker
//! (`setpriv --pdeathsig`), and the keeper kills the rest of it: see [`spawner`]. A program that leaves its group
//! by `setsid` is out of reach.

mod once;
mod pool;
mod process;
mod spawner;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::io::secret;
use crate::io::source::BoxFuture;
use crate::io::target::{Run, Target};
use crate::outcome::{Outcome, Scope};
use crate::target::program::{Mode, Settings};

use pool::Pool;
use process::Process;
use spawner::Spawner;

/// For how long the target waits when no process can be had.
const BUSY: Duration = Duration::from_secs(1);

/// Hands each job to a program.
#[derive(Debug)]
pub struct Program {
    shared: Arc<Shared>,
    pool: OnceLock<Pool>,
}

/// What all processes of a target have in common.
struct Shared {
    settings: Settings,
    /// `setpriv`, `prlimit` and the program, with their arguments.
    words: Vec<String>,
    environment: Vec<(String, String)>,
    places: Arc<Semaphore>,
    spawner: OnceLock<Spawner>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.settings.command)
    }
}

impl Program {
    /// A target.
    ///
    /// # Errors
    /// The settings are wrong, the program is not there, or this machine cannot limit it as told.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let mut environment: Vec<(String, String)> = Vec::new();
        for name in &settings.environment {
            environment.extend(std::env::var(name).ok().map(|value| (name.clone(), value)));
        }
        for (name, value) in &settings.set {
            environment.push((name.clone(), secret::read(value)?));
        }
        let words = words(&settings)?;
        let places = Arc::new(Semaphore::new(settings.processes));
        let shared = Shared { words, environment, places, spawner: OnceLock::new(), settings };
        Ok(Self { shared: Arc::new(shared), pool: OnceLock::new() })
    }
}

impl Target for Program {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(run.jobs.len());
            for job in run.jobs {
                let deadline = run.deadline.min(Instant::now() + self.shared.settings.timeout.0);
                outcomes.push(match self.shared.settings.mode {
                    Mode::Once => once::run(&self.shared, job, deadline).await,
                    Mode::Lines => {
                        let pool = self.pool.get_or_init(|| Pool::start(&self.shared));
                        pool.run(job, deadline).await
                    }
                });
            }
            outcomes
        })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
        Box::pin(async move {
            words(&self.shared.settings)?;
            Ok(format!("{} can be executed; it was not", self.shared.settings.command[0]))
        })
    }
}

impl Shared {
    /// Starts a process, with more variables.
    async fn spawn(&self, more: &[(&'static str, String)]) -> Result<Process, String> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.envs(more.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.settings.directory {
            command.current_dir(directory);
        }
        self.spawner.get_or_init(Spawner::start).spawn(command).await
    }
}

/// No process can be had: the job waits, uncharged.
fn busy(why: impl Into<String>) -> Outcome {
    Outcome::Throttle { scope: Scope::Target, until: BUSY, why: why.into() }
}

/// The command with what limits it and ties it to the worker.
fn words(settings: &Settings) -> Result<Vec<String>, Error> {
    let program = find(&settings.command[0], settings.directory.as_deref()).ok_or_else(|| {
        Error::setup(format!("{} is no program that can be executed here", settings.command[0]))
    })?;
    let mut words = Vec::new();
    if let Some(setpriv) = find("setpriv", None) {
        words.push(setpriv.display().to_string());
        words.extend(["--pdeathsig", "KILL", "--"].map(String::from));
    }
    let limits = settings.limits();
    if !limits.is_empty() {
        let prlimit = find("prlimit", None).ok_or_else(|| {
            Error::setup("limits of a program need prlimit, which is not here; install util-linux")
        })?;
        words.push(prlimit.display().to_string());
        words.extend(limits);
        words.push("--core=0:0".into());
        words.push("--".into());
    }
    words.push(program.display().to_string());
    words.extend(settings.command[1..].iter().cloned());
    Ok(words)
}

/// The file that a command names, as a shell finds it.
fn find(name: &str, directory: Option<&Path>) -> Option<PathBuf> {
    let can_run = |path: &PathBuf| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if name.contains('/') {
        let path = directory.map_or_else(|| PathBuf::from(name), |from| from.join(name));
        return std::path::absolute(path).ok().filter(can_run);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(can_run)
}
