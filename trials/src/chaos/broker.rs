//! The broker under trial: a process that is started, watched, stopped and killed.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Failure;
use super::net::{self, PEER_PORT, host};
use crate::ladder::usage::cpu_of_tree;
use crate::ports;

/// Whose broker it is. The other one is a reference: the harness itself is tried on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Millrace,
    Rabbitmq,
}

/// A place in a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub number: u32,
    /// How many began it.
    pub of: u32,
    /// Where it listens for its peers.
    pub peer_port: u16,
    /// Where it listens for operators.
    pub http_port: u16,
}

/// How a broker is started.
#[derive(Clone, Debug)]
pub struct Setup {
    pub kind: Kind,
    pub path: PathBuf,
    /// Which node of a cluster it is, each of which has a host of its own.
    pub node: Option<Place>,
    pub port: u16,
    pub data: PathBuf,
    pub log: PathBuf,
    /// Arguments after those that every broker gets.
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
}

/// A broker process, or the place for one. Dropping it kills.
#[derive(Debug)]
pub struct Broker {
    pub setup: Setup,
    child: Option<Child>,
    started: Instant,
}

/// For how long a broker may start that holds little. RabbitMQ needs 10 seconds where it has a processor for itself, and
/// took 90 beside trials that made file systems.
pub const START_MAX: Duration = Duration::from_secs(240);

const PROBE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

impl Broker {
    pub fn new(setup: Setup) -> Self {
        Self { setup, child: None, started: Instant::now() }
    }

    /// Starts the process; it need not be ready.
    pub fn start(&mut self) -> Result<(), Failure> {
        assert!(self.child.is_none(), "one broker at a time on one data directory");
        let log = File::options().create(true).append(true).open(&self.setup.log)?;
        let mut command = self.setup.command();
        command.process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        self.started = Instant::now();
        let child = command.spawn().map_err(|error| {
            Failure::Trial(format!("cannot start {}: {error}", self.setup.path.display()))
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until it answers AMQP. Gives back how long that took since its start.
    pub fn wait_ready(&mut self, within: Duration) -> Result<Duration, Failure> {
        loop {
            if let Some(status) = self.exited()? {
                let last = tail(&self.setup.log);
                return Err(Failure::Broken(format!(
                    "the broker does not start: {status}\n{last}"
                )));
            }
            if speaks_amqp(self.setup.address()) {
                return Ok(self.started.elapsed());
            }
            if self.started.elapsed() > within {
                return Err(self.not_ready(within));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Tells a broker that stands still from one that had no processor.
    fn not_ready(&self, within: Duration) -> Failure {
        let used = self.pid().map_or(0.0, cpu_of_tree);
        let last = tail(&self.setup.log);
        Failure::Broken(format!(
            "the broker is not ready after {within:?}, of which it had a processor for {used:.1} s\n{last}"
        ))
    }

    /// How the process ended, if it did. It is gone then.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// `kill -9`, and wait until it is gone.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.signal(Signal::KILL)?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    /// SIGSTOP: from here on it says nothing.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT: it goes on as if no time had passed.
    pub fn go_on(&mut self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// The process that does the work, which is not always the one that was started.
    pub fn working_pid(&self) -> Option<u32> {
        let written = std::fs::read_to_string(self.setup.data.join("pid")).ok();
        written.and_then(|text| text.trim().parse().ok()).or(self.pid())
    }

    /// Whether every thread of it stands still.
    pub fn is_stopped(&self) -> bool {
        let stat = self.working_pid().map(|pid| format!("/proc/{pid}/stat"));
        let stat = stat.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    }

    /// SIGTERM, and wait for its end.
    pub fn terminate(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        self.signal(Signal::TERM)?;
        self.wait_exit(within)
    }

    /// Waits for it to end by itself.
    pub fn wait_exit(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(Failure::Broken(format!("the broker still runs after {within:?}")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let Some(child) = &self.child else { return Ok(()) };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a child has a positive id");
        // It may have ended by itself in between: then there is nobody to signal.
        let _ = kill_process_group(pid, signal);
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

impl Setup {
    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        (self.node.map_or(Ipv4Addr::LOCALHOST, |node| host(node.number)), self.port).into()
    }

    /// A command on its host.
    pub fn on_host(&self, program: &Path) -> Command {
        let Some(node) = self.node else { return Command::new(program) };
        let on = net::on(node.number);
        let mut command = Command::new(&on[0]);
        command.args(&on[1..]).arg(program);
        command
    }

    fn command(&self) -> Command {
        let mut command = self.on_host(&self.path);
        match self.kind {
            Kind::Millrace => {
                command.arg("serve").arg("--data-dir").arg(&self.data);
                command.arg("--amqp").arg(self.address().to_string());
                if let Some(node) = self.node {
                    let Place { number, of, peer_port, http_port } = node;
                    let listens = format!("{}:{peer_port}", host(number));
                    command.args(["--node-id", &number.to_string()]);
                    command.args(["--peer-listen", &listens]).args(["--peers", &peers(of)]);
                    command.args(["--set", "loopback_users=none"]);
                    command.args(["--http", &format!("{}:{http_port}", host(number))]);
                    command
                        .env("MILLRACE_CLUSTER_SECRET", "a secret of trials, which all nodes know");
                }
            }
            Kind::Rabbitmq => drop(command.envs(self.rabbitmq())),
        }
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// One node of Debian's package, with everything below the data directory. Also what its own
    /// programs need to find it.
    pub fn rabbitmq(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| self.data.join(name).to_string_lossy().into_owned();
        let address = self.address().ip().to_string();
        // Nodes of a cluster know each other by a secret in their common home.
        let home = self.log.parent().unwrap_or(&self.data).to_string_lossy().into_owned();
        let node = match self.node {
            Some(node) => rabbitmq_node(node.number),
            None => format!("trials{}@localhost", self.port),
        };
        let interface = address.replace('.', ",");
        let interface = format!("-kernel inet_dist_use_interface {{{interface}}}");
        vec![
            ("HOME", home),
            ("RABBITMQ_NODENAME", node),
            ("RABBITMQ_USE_LONGNAME", self.node.is_some().to_string()),
            ("ERL_EPMD_ADDRESS", address.clone()),
            ("ERL_EPMD_PORT", ports::PORT_MAPPER.to_string()),
            ("RABBITMQ_NODE_IP_ADDRESS", address),
            ("RABBITMQ_NODE_PORT", self.port.to_string()),
            ("RABBITMQ_DIST_PORT", (self.port + 1).to_string()),
            ("RABBITMQ_CONFIG_FILE", file("rabbitmq")),
            ("RABBITMQ_CONF_ENV_FILE", file("environment")),
            ("RABBITMQ_MNESIA_BASE", file("mnesia")),
            ("RABBITMQ_LOG_BASE", file("log")),
            ("RABBITMQ_PID_FILE", file("pid")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", file("plugins")),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", interface),
            ("ERL_CRASH_DUMP", file("erl_crash.dump")),
        ]
    }
}

/// The name that a node of a RabbitMQ cluster has.
pub fn rabbitmq_node(node: u32) -> String {
    format!("trials@{}", host(node))
}

/// The members of a Millrace cluster, as `--peers` takes them.
fn peers(count: u32) -> String {
    let member = |node: u32| format!("{node}={}:{PEER_PORT}", host(node));
    (1..=count).map(member).collect::<Vec<_>>().join(",")
}

/// Whether somebody answers the protocol header with a method frame.
pub(super) fn speaks_amqp(address: SocketAddr) -> bool {
    let Ok(mut socket) = TcpStream::connect_timeout(&address, PROBE) else { return false };
    let _ = socket.set_read_timeout(Some(PROBE));
    let mut kind = [0];
    socket.write_all(b"AMQP\0\0\x09\x01").is_ok()
        && socket.read_exact(&mut kind).is_ok()
        && kind == [1]
}

/// The last lines of a log.
pub fn tail(log: &Path) -> String {
    const LINES: usize = 15;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
