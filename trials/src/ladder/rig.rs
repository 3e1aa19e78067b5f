//! A database and one broker on this machine, for as long as they are measured.

use std::cell::Cell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::queue::Queue;
use super::table::Table;
use super::usage::{cpu_of_process, cpu_of_tree};
use crate::chaos::Failure;
use crate::chaos::broker::{Broker, Kind, START_MAX, Setup};
use crate::ports;
use crate::postgres::{self, Postgres};

/// How long a broker may take to stop.
const STOP_MAX: Duration = Duration::from_secs(30);
/// A database with a fair share of the machine's memory. Nothing vacuums in the middle of a run of a few
/// seconds; what makes it durable keeps its default, which is on.
const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("autovacuum", "off"),
    // What PostgreSQL itself takes; a cluster of the tests has files instead.
    ("dynamic_shared_memory_type", "posix"),
];

/// Where things are and go.
#[derive(Args, Clone, Debug)]
pub struct Site {
    /// Only these brokers
    #[arg(long, value_enum, value_delimiter = ',')]
    pub brokers: Vec<Kind>,
    /// Millrace's binary
    #[arg(long, default_value = "target/release/millrace")]
    pub broker: PathBuf,
    /// RabbitMQ's
    #[arg(long, default_value = "/usr/lib/rabbitmq/bin/rabbitmq-server")]
    pub rabbitmq: PathBuf,
    /// Where data and logs go
    #[arg(long, default_value = "target/bench-relay")]
    pub dir: PathBuf,
    /// A database of PostgreSQL on this machine to use instead of a private one; its table
    /// outbox_messages is dropped
    #[arg(long)]
    pub database: Option<String>,
}

impl Site {
    pub fn kinds(&self) -> Vec<Kind> {
        let wanted = |kind: &Kind| self.brokers.is_empty() || self.brokers.contains(kind);
        [Kind::Millrace, Kind::Rabbitmq].into_iter().filter(wanted).collect()
    }

    fn program(&self, kind: Kind) -> &Path {
        match kind {
            Kind::Millrace => &self.broker,
            Kind::Rabbitmq => &self.rabbitmq,
        }
    }
}

/// What runs while this lives.
pub struct Rig {
    kind: Kind,
    runtime: Runtime,
    is_interrupted: Cell<bool>,
    queue: Queue,
    table: Table,
    postmaster: u32,
    broker: Broker,
    // Last: it outlives its connections.
    database: Database,
}

/// Ours, or somebody else's.
enum Database {
    Private(Postgres),
    Given(String),
}

impl Database {
    fn start(site: &Site) -> Result<Self, Failure> {
        if let Some(url) = &site.database {
            return Ok(Self::Given(url.clone()));
        }
        let settings = SETTINGS
            .iter()
            .fold(postgres::Options::default(), |options, (name, value)| options.set(name, value));
        // PostgreSQL runs as a user of its own, who may not enter every directory.
        let beside = Postgres::start(&settings.clone().below(&site.dir));
        let started = beside.or_else(|_| Postgres::start(&settings));
        started.map(Self::Private).map_err(|error| match error {
            postgres::Error::Missing(_) => Failure::Skipped(error.to_string()),
            postgres::Error::Failed(why) => Failure::Trial(why),
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Private(postgres) => postgres.url(),
            Self::Given(url) => url.clone(),
        }
    }
}

impl Rig {
    /// A fresh database beside a fresh broker.
    pub fn start(site: &Site, kind: Kind) -> Result<Self, Failure> {
        let program = site.program(kind);
        if !program.exists() {
            return Err(Failure::Skipped(format!("{} is missing", program.display())));
        }
        std::fs::create_dir_all(&site.dir)?;
        let site = Site { dir: site.dir.canonicalize()?, ..site.clone() };
        let database = Database::start(&site)?;
        let broker = start_broker(kind, program, &site.dir.join(name(kind)))?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let url = amqp_url(broker.setup.port);
        let (queue, table, postmaster) = runtime.block_on(async {
            let table = Table::open(&database.url()).await?;
            let postmaster = table.postmaster().await?;
            Ok::<_, Failure>((Queue::open(&url).await?, table, postmaster))
        })?;
        let is_interrupted = Cell::new(false);
        Ok(Self { kind, runtime, is_interrupted, queue, table, postmaster, broker, database })
    }

    /// Ends both; says so if the broker had died.
    pub fn stop(mut self) -> Result<(), Failure> {
        drop(self.queue);
        let status = self.broker.terminate(STOP_MAX)?;
        match self.kind {
            Kind::Millrace if !status.success() => {
                Err(Failure::Broken(format!("Millrace ends with {status}")))
            }
            Kind::Millrace | Kind::Rabbitmq => Ok(()),
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn amqp_url(&self) -> String {
        amqp_url(self.broker.setup.port)
    }

    pub fn amqp_port(&self) -> u16 {
        self.broker.setup.port
    }

    pub fn database_url(&self) -> String {
        self.database.url()
    }

    /// Works until it is done, or until somebody wants all of it to end.
    pub fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.runtime.block_on(async {
            let mut term = signal(SignalKind::terminate())?;
            tokio::select! {
                result = work => return result,
                _ = term.recv() => (),
                _ = tokio::signal::ctrl_c() => (),
            }
            self.is_interrupted.set(true);
            Err(Failure::Trial("interrupted".to_owned()))
        })
    }

    /// Whether nothing more is to be measured.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }

    /// Begins to count what everybody spends; `relay` is the process that drains.
    pub async fn meter(&self, relay: u32) -> Result<Meter<'_>, Failure> {
        let before = self.spent(relay).await?;
        Ok(Meter { rig: self, relay, begin: Instant::now(), before })
    }

    async fn spent(&self, relay: u32) -> Result<Spent, Failure> {
        let broker = self.broker.working_pid().unwrap_or_default();
        Ok(Spent {
            postgres_s: cpu_of_tree(self.postmaster),
            broker_s: cpu_of_tree(broker),
            // Of this process its children do not count: they are the database and the broker.
            relay_s: match relay == std::process::id() {
                true => cpu_of_process(relay),
                false => cpu_of_tree(relay),
            },
            wal_bytes: self.table.wal_position().await? as f64,
        })
    }
}

/// What was spent since a moment.
pub struct Meter<'a> {
    rig: &'a Rig,
    relay: u32,
    pub begin: Instant,
    before: Spent,
}

/// CPU seconds, and bytes of the database's log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub postgres_s: f64,
    pub broker_s: f64,
    pub relay_s: f64,
    pub wal_bytes: f64,
}

impl Meter<'_> {
    pub async fn stop(&self) -> Result<Spent, Failure> {
        let (before, after) = (self.before, self.rig.spent(self.relay).await?);
        Ok(Spent {
            postgres_s: after.postgres_s - before.postgres_s,
            broker_s: after.broker_s - before.broker_s,
            relay_s: after.relay_s - before.relay_s,
            wal_bytes: after.wal_bytes - before.wal_bytes,
        })
    }
}

pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Millrace => "Millrace",
        Kind::Rabbitmq => "RabbitMQ",
    }
}

fn amqp_url(port: u16) -> String {
    format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
}

/// A broker with default durability and nothing in it.
fn start_broker(kind: Kind, program: &Path, folder: &Path) -> Result<Broker, Failure> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let data = folder.join("data");
    std::fs::create_dir_all(&data)?;
    if kind == Kind::Rabbitmq {
        let files = [
            ("rabbitmq.conf", "log.file.level = warning\n"),
            ("plugins", "[].\n"),
            ("environment", ""),
        ];
        for (name, text) in files {
            std::fs::write(data.join(name), text)?;
        }
    }
    let mut broker = Broker::new(Setup {
        kind,
        path: program.to_owned(),
        node: None,
        port: ports::free()?,
        data,
        log: folder.join("output.txt"),
        arguments: Vec::new(),
        environment: Vec::new(),
    });
    broker.start()?;
    broker.wait_ready(START_MAX)?;
    Ok(broker)
}
