//! The local server that a target talks to, as a process of its own: its CPU is not the worker's.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Options;
use crate::chaos::Failure;
use crate::ports;

/// How long an answer takes, in milliseconds.
const LATENCY_MS: &str = "50";
const START_MAX: Duration = Duration::from_secs(30);

/// What is behind a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Apns,
    Webhook,
}

/// A server that runs until it is dropped.
pub(super) struct Provider {
    child: Child,
    /// What the worker is told: `apns:FILE` or `webhook:URL`.
    pub(super) target: String,
}

impl Provider {
    pub(super) fn start(options: &Options, kind: Kind) -> Result<Self, Failure> {
        let port = ports::free()?;
        let dir = options.dir.join("apns");
        let (name, target) = match kind {
            Kind::Apns => ("apns-server", format!("apns:{}/target.toml", dir.display())),
            Kind::Webhook => ("webhook-server", format!("webhook:http://127.0.0.1:{port}/hook")),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(name).args(["--port", &port.to_string(), "--latency-ms", LATENCY_MS]);
        if kind == Kind::Apns {
            command.arg("--dir").arg(&dir);
        }
        let child = command.stdout(Stdio::null()).spawn()?;
        let provider = Self { child, target };
        let begin = Instant::now();
        let file = dir.join("target.toml");
        while TcpStream::connect(("127.0.0.1", port)).is_err()
            || (kind == Kind::Apns && !file.exists())
        {
            if begin.elapsed() > START_MAX {
                return Err(Failure::Trial(format!("{name} does not answer")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(provider)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
