//! The one server that a measurement needs, fresh, with the durability that it is used with.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Options;
use crate::chaos::Failure;
use crate::chaos::broker::{Broker, Kind, START_MAX, Setup};
use crate::ports;
use crate::postgres::{self, Postgres};

/// Where the jobs wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Millrace,
    Rabbitmq,
    Redis,
    Postgres,
}

impl Need {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Millrace => "Millrace",
            Self::Rabbitmq => "RabbitMQ",
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// A server that runs.
pub(super) struct Servers {
    need: Need,
    port: u16,
    url: String,
    process: Process,
}

enum Process {
    Broker(Broker),
    Redis(Child),
    Postgres(Postgres),
}

impl Servers {
    pub(super) fn start(options: &Options, need: Need) -> Result<Self, Failure> {
        let dir = options.dir.join(need.name().to_lowercase());
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        let (process, port, url) = match need {
            Need::Millrace => amqp(Kind::Millrace, &options.broker, &dir)?,
            Need::Rabbitmq => amqp(Kind::Rabbitmq, &options.rabbitmq, &dir)?,
            Need::Redis => redis(&options.redis, &dir)?,
            Need::Postgres => postgres()?,
        };
        Ok(Self { need, port, url, process })
    }

    /// As Go's clients want it.
    pub(super) fn address(&self) -> String {
        match self.need {
            Need::Postgres => self.url.clone(),
            Need::Millrace | Need::Rabbitmq | Need::Redis => format!("127.0.0.1:{}", self.port),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// Whose children and self the server's CPU is.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.process {
            Process::Broker(broker) => broker.working_pid(),
            Process::Redis(child) => Some(child.id()),
            Process::Postgres(postgres) => postgres.pid(),
        }
    }

    pub(super) fn stop(self) {
        match self.process {
            Process::Broker(mut broker) => {
                // What is measured is measured: how it ends does not matter.
                let _ = broker.terminate(Duration::from_secs(30));
            }
            Process::Redis(mut child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Process::Postgres(mut postgres) => {
                let _ = postgres.stop();
            }
        }
    }
}

fn amqp(kind: Kind, program: &Path, dir: &Path) -> Result<(Process, u16, String), Failure> {
    if !program.exists() {
        return Err(Failure::Skipped(format!("{} is missing", program.display())));
    }
    let data = dir.join("data");
    std::fs::create_dir_all(&data)?;
    if kind == Kind::Rabbitmq {
        std::fs::write(data.join("rabbitmq.conf"), "log.file.level = warning\n")?;
        std::fs::write(data.join("plugins"), "[].\n")?;
        std::fs::write(data.join("environment"), "")?;
    }
    let mut broker = Broker::new(Setup {
        kind,
        path: program.to_owned(),
        node: None,
        port: ports::free()?,
        data,
        log: dir.join("output.txt"),
        arguments: Vec::new(),
        environment: Vec::new(),
    });
    broker.start()?;
    broker.wait_ready(START_MAX)?;
    let port = broker.setup.port;
    Ok((Process::Broker(broker), port, format!("amqp://guest:guest@127.0.0.1:{port}/")))
}

/// With an append-only file that is synced each second: what Redis's own page recommends for queues.
fn redis(program: &Path, dir: &Path) -> Result<(Process, u16, String), Failure> {
    let port = ports::free()?;
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--dir"]).arg(dir);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| {
        Failure::Skipped(format!("{}: {error} (Debian: redis-server)", program.display()))
    })?;
    let process = Process::Redis(child);
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begin.elapsed() > START_MAX {
            return Err(Failure::Trial("Redis does not answer".into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((process, port, format!("redis://127.0.0.1:{port}/0")))
}

fn postgres() -> Result<(Process, u16, String), Failure> {
    let options = postgres::Options::default().set("shared_buffers", "512MB");
    let started = Postgres::start(&options).map_err(|error| match error {
        postgres::Error::Missing(_) => Failure::Skipped(error.to_string()),
        postgres::Error::Failed(why) => Failure::Trial(why),
    })?;
    let (port, url) = (started.port(), started.url());
    Ok((Process::Postgres(started), port, url))
}
