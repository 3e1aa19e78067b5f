//! The broker under trial: a process that is started, watched, stopped and killed.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Failure;

/// Whose broker it is. The other one is a reference: the harness itself is tried on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Millrace,
    Rabbitmq,
}

/// How a broker is started.
#[derive(Clone, Debug)]
pub struct Setup {
    pub kind: Kind,
    pub path: PathBuf,
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
            if speaks_amqp(self.setup.port) {
                return Ok(self.started.elapsed());
            }
            if self.started.elapsed() > within {
                return Err(Failure::Broken(format!("the broker is not ready after {within:?}")));
            }
            std::thread::sleep(PAUSE);
        }
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
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        match self.kind {
            Kind::Millrace => {
                command.arg("serve").arg("--data-dir").arg(&self.data);
                command.arg("--amqp").arg(format!("127.0.0.1:{}", self.port));
            }
            Kind::Rabbitmq => self.rabbitmq(&mut command),
        }
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// One node of Debian's package, with everything below the data directory, on loopback.
    fn rabbitmq(&self, command: &mut Command) {
        let dir = &self.data;
        let node = format!("trials{}@localhost", self.port);
        let path = |name: &str| dir.join(name);
        let home = self.log.parent().unwrap_or(dir);
        command.env("HOME", home).env("RABBITMQ_NODENAME", node);
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1").env("ERL_EPMD_PORT", "24369");
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODE_PORT", self.port.to_string());
        command.env("RABBITMQ_DIST_PORT", (self.port + 20_000).to_string());
        command.env("RABBITMQ_MNESIA_BASE", path("mnesia")).env("RABBITMQ_LOG_BASE", path("log"));
        command.env("RABBITMQ_PID_FILE", path("pid"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"));
        command.env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "-kernel inet_dist_use_interface {127,0,0,1}",
        );
    }
}

/// A port that nobody listens on just now.
pub fn free_port() -> Result<u16, Failure> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// Whether somebody answers the protocol header with a method frame.
fn speaks_amqp(port: u16) -> bool {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
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
