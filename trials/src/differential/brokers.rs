//! The two brokers, started for the programs and stopped after them.
//!
//! Their data lies in memory where the machine has a file system for that: what is compared is what
//! clients see, and it is seen sooner without disks.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Endpoint, Pair};
use crate::chaos::Failure;
use crate::chaos::broker::{Broker, Kind, START_MAX, Setup};
use crate::ports;

/// Where Debian's package has the broker.
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const MEMORY: &str = "/dev/shm";
const STOP_MAX: Duration = Duration::from_secs(30);
/// Of a broker that runs already, the HTTP API is so far above the AMQP port, as RabbitMQ has it by default.
const HTTP_ABOVE: u16 = 10_000;
const PAUSE: Duration = Duration::from_millis(20);

/// Brokers that run while this lives.
pub(super) struct Brokers {
    reference: Option<Broker>,
    tried: Option<Broker>,
    folder: PathBuf,
    pub(super) pair: Pair,
}

impl Brokers {
    /// Starts what does not run yet. Without a binary, RabbitMQ is compared with itself.
    pub(super) fn start(
        reference: Option<SocketAddr>,
        tried: Option<SocketAddr>,
        binary: Option<&Path>,
        folder: &Path,
    ) -> Result<Brokers, Failure> {
        if reference.is_none() && !Path::new(RABBITMQ).exists() {
            return Err(Failure::Skipped(format!("there is no RabbitMQ at {RABBITMQ}")));
        }
        let in_memory = Path::new(MEMORY).is_dir();
        let folder = if in_memory { Path::new(MEMORY) } else { folder };
        let folder = folder.join(format!("differential-{}", std::process::id()));
        let mut rabbitmq = None;
        let reference = match reference {
            Some(address) => running(address)?,
            None => {
                let started = start(Kind::Rabbitmq, Path::new(RABBITMQ), &folder.join("rabbitmq"));
                let (broker, endpoint) = started?;
                rabbitmq = Some(broker);
                endpoint
            }
        };
        let mut millrace = None;
        let tried = match (tried, binary) {
            (Some(address), _) => running(address)?,
            (None, Some(binary)) => {
                let (broker, endpoint) = start(Kind::Millrace, binary, &folder.join("millrace"))?;
                millrace = Some(broker);
                endpoint
            }
            (None, None) => reference,
        };
        let pair = Pair { reference, tried };
        Ok(Brokers { reference: rabbitmq, tried: millrace, folder, pair })
    }

    /// Stops what was started here.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        if let Some(mut broker) = self.tried.take() {
            let status = broker.terminate(STOP_MAX)?;
            if !status.success() {
                return Err(Failure::Broken(format!("Millrace ends with {status}")));
            }
        }
        Ok(())
    }

    /// Whether the broker that is tried still runs, if it was started here.
    pub(super) fn is_alive(&mut self) -> Result<bool, Failure> {
        match &mut self.tried {
            Some(broker) => Ok(broker.exited()?.is_none()),
            None => Ok(true),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        // Killed first: they write while they live.
        self.reference = None;
        let is_failing = self.tried.take().is_some() && std::thread::panicking();
        if !is_failing {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A broker that was started by somebody else.
fn running(amqp: SocketAddr) -> Result<Endpoint, Failure> {
    let port = amqp.port().checked_add(HTTP_ABOVE);
    let port = port.ok_or_else(|| Failure::Trial(format!("{amqp}: no room for the HTTP API")))?;
    Ok(Endpoint { amqp, http: SocketAddr::new(amqp.ip(), port) })
}

fn start(kind: Kind, path: &Path, folder: &Path) -> Result<(Broker, Endpoint), Failure> {
    let data = folder.join("data");
    std::fs::create_dir_all(&data)?;
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
    if kind == Kind::Rabbitmq {
        // Programs come and go faster than its tables are written: a limit of disk is no concern. Nor is what its HTTP API
        // would count.
        let settings = format!(
            "log.file.level = warning\ndisk_free_limit.absolute = 50MB\nmanagement.tcp.ip = 127.0.0.1\n\
             management.tcp.port = {}\nmanagement_agent.disable_metrics_collector = true\n",
            http.port()
        );
        let plugins = "[rabbitmq_management].\n";
        let files =
            [("rabbitmq.conf", settings.as_str()), ("plugins", plugins), ("environment", "")];
        for (name, text) in files {
            std::fs::write(data.join(name), text)?;
        }
    }
    let setup = Setup {
        kind,
        path: path.to_owned(),
        node: None,
        port: ports::free()?,
        data,
        log: folder.join("output.txt"),
        arguments: match kind {
            Kind::Millrace => vec!["--http".to_owned(), http.to_string()],
            Kind::Rabbitmq => Vec::new(),
        },
        environment: Vec::new(),
    };
    let amqp = setup.address();
    let mut broker = Broker::new(setup);
    broker.start()?;
    broker.wait_ready(START_MAX)?;
    wait_for_http(http)?;
    Ok((broker, Endpoint { amqp, http }))
}

/// It may listen later than for AMQP.
fn wait_for_http(http: SocketAddr) -> Result<(), Failure> {
    let begin = Instant::now();
    while TcpStream::connect(http).is_err() {
        if begin.elapsed() > START_MAX {
            return Err(Failure::Broken(format!("nobody listens at {http} for the HTTP API")));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
