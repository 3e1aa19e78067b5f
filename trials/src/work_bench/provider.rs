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
    pub(super) port: u16,
}

impl Provider {
    /// What is behind a target, and what the worker is told of it: `apns:FILE` or `webhook:URL`.
    pub(super) fn start(options: &Options, kind: Kind) -> Result<(Self, String), Failure> {
        let latency = ["--latency-ms", LATENCY_MS];
        match kind {
            Kind::Webhook => {
                let provider = Self::serve("webhook-server", &latency)?;
                let target = format!("webhook:http://127.0.0.1:{}/hook", provider.port);
                Ok((provider, target))
            }
            Kind::Apns => {
                let dir = options.dir.join("apns");
                let words = dir.to_string_lossy();
                let provider =
                    Self::serve("apns-server", &[latency[0], latency[1], "--dir", &words])?;
                let file = dir.join("target.toml");
                let end = Instant::now() + START_MAX;
                while !file.exists() {
                    look_again("apns-server", end)?;
                }
                Ok((provider, format!("apns:{}", file.display())))
            }
        }
    }

    /// A server of the trials on a port of its own, once that is open.
    pub(super) fn serve(name: &str, words: &[&str]) -> Result<Self, Failure> {
        let port = ports::free()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(name).args(["--port", &port.to_string()]).args(words);
        let provider = Self { child: command.stdout(Stdio::null()).spawn()?, port };
        let end = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            look_again(name, end)?;
        }
        Ok(provider)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn look_again(name: &str, end: Instant) -> Result<(), Failure> {
    if Instant::now() > end {
        return Err(Failure::Trial(format!("{name} does not answer")));
    }
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
