//! The processes that are there before any relay: one PostgreSQL and one broker.

use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::runtime::Runtime;

use crate::chaos::Failure;
use crate::chaos::broker::{Broker, Kind, START_MAX, Setup};
use crate::ports;
use crate::postgres::{self, Options, Postgres};

/// Where Debian's package has the broker and its tools.
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const RABBITMQCTL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";
const MEMORY: &str = "/dev/shm";

/// What the errors of a database mean for a trial.
impl From<postgres::Error> for Failure {
    fn from(error: postgres::Error) -> Self {
        match error {
            postgres::Error::Missing(what) => Self::Skipped(what),
            postgres::Error::Failed(what) => Self::Trial(what),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let told = error.as_db_error().map(|error| format!(": {}", error.message()));
        Self::Trial(format!("{error}{}", told.unwrap_or_default()))
    }
}

impl From<lapin::Error> for Failure {
    fn from(error: lapin::Error) -> Self {
        Self::Trial(format!("the broker: {error}"))
    }
}

/// A database and a broker. Dropping it ends both and removes what they wrote.
pub struct Stage {
    pub postgres: Postgres,
    pub broker: Broker,
    /// Clients of the trial live here.
    pub runtime: Runtime,
    /// The product's binary.
    pub millrace: PathBuf,
    /// Logs of the relays.
    pub dir: PathBuf,
    /// Runs so far: each has a database and a queue of its own.
    pub(super) runs: u32,
    is_kept: bool,
}

impl Stage {
    /// Starts both, in directories below `dir`.
    ///
    /// # Errors
    /// [`Failure::Skipped`] where PostgreSQL or RabbitMQ is not installed.
    pub fn start(kind: Kind, millrace: &Path, dir: &Path) -> Result<Self, Failure> {
        Self::start_with(kind, millrace, dir, &Options::default(), &[])
    }

    /// The same, with settings of one's own; the broker's are words of Millrace's command line, or lines of RabbitMQ's
    /// configuration.
    ///
    /// # Errors
    /// As [`Stage::start`].
    pub fn start_with(
        kind: Kind,
        millrace: &Path,
        dir: &Path,
        options: &Options,
        settings: &[&str],
    ) -> Result<Self, Failure> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let postgres = Postgres::start(options)?;
        let name = format!("relay-{}-{count}", std::process::id());
        let dir = dir.join(&name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir)?;
        let mut broker = broker_in(kind, millrace, &dir, &name, settings)?;
        broker.start()?;
        broker.wait_ready(START_MAX)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self {
            postgres,
            broker,
            runtime,
            millrace: millrace.to_owned(),
            dir,
            runs: 0,
            is_kept: false,
        })
    }

    /// Starts the broker on what a killed one left.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_broker(&mut self) -> Result<(), Failure> {
        self.broker.start()?;
        self.broker.wait_ready(START_MAX).map(drop)
    }

    /// What it wrote stays when it ends.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Slots of runs that are over.
    ///
    /// # Errors
    /// PostgreSQL does not answer.
    pub fn drop_slots(&self) -> Result<(), Failure> {
        let idle =
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active";
        Ok(self.postgres.psql(idle).map(drop)?)
    }

    /// RabbitMQ's own tool, about this broker.
    ///
    /// # Errors
    /// It complains.
    pub fn rabbitmqctl(&self, words: &[&str]) -> Result<(), Failure> {
        let mut command = Command::new(RABBITMQCTL);
        let setup = &self.broker.setup;
        let output = command.envs(setup.rabbitmq()).args(words).output()?;
        if output.status.success() {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&output.stderr);
        Err(Failure::Trial(format!("rabbitmqctl {words:?}: {told}")))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        if !self.is_kept && !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
            let _ = std::fs::remove_dir_all(&self.broker.setup.data);
        }
    }
}

/// A broker that is not started yet, below `dir`. `name` tells it from others on this machine; `settings` are as
/// [`Stage::start_with`] takes them.
///
/// # Errors
/// [`Failure::Skipped`] where RabbitMQ is not installed.
pub fn broker_in(
    kind: Kind,
    millrace: &Path,
    dir: &Path,
    name: &str,
    settings: &[&str],
) -> Result<Broker, Failure> {
    match kind {
        Kind::Millrace => millrace_in(millrace, dir, settings),
        Kind::Rabbitmq => rabbitmq_in(dir, name, settings),
    }
}

fn setup(kind: Kind, path: &Path, data: PathBuf, dir: &Path) -> Result<Setup, Failure> {
    std::fs::create_dir_all(&data)?;
    Ok(Setup {
        kind,
        path: path.to_owned(),
        node: None,
        port: ports::free()?,
        data,
        log: dir.join("broker.txt"),
        arguments: Vec::new(),
        environment: Vec::new(),
    })
}

fn millrace_in(path: &Path, dir: &Path, words: &[&str]) -> Result<Broker, Failure> {
    let mut setup = setup(Kind::Millrace, path, dir.join("millrace"), dir)?;
    setup.arguments.extend(words.iter().map(|&word| word.to_owned()));
    Ok(Broker::new(setup))
}

/// In memory, where there is a file system for that: it is slow to start.
fn rabbitmq_in(dir: &Path, name: &str, lines: &[&str]) -> Result<Broker, Failure> {
    if !Path::new(RABBITMQ).exists() {
        return Err(Failure::Skipped(format!("there is no RabbitMQ at {RABBITMQ}")));
    }
    let memory = Path::new(MEMORY);
    let data = if memory.is_dir() { memory.join(name) } else { dir.join("rabbitmq") };
    let setup = setup(Kind::Rabbitmq, Path::new(RABBITMQ), data, dir)?;
    let usual = "log.file.level = warning\ndisk_free_limit.absolute = 50MB\n";
    let settings = format!("{usual}{}\n", lines.join("\n"));
    let files = [("rabbitmq.conf", settings.as_str()), ("plugins", "[].\n"), ("environment", "")];
    for (name, text) in files {
        std::fs::write(setup.data.join(name), text)?;
    }
    Ok(Broker::new(setup))
}
