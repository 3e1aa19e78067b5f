//! A Redis of one's own: on a private port, in a directory that goes with it, as durable as Redis can be
//! (`appendonly yes`, `appendfsync always`). It can be killed as a real one can: [`RedisServer::kill9`] and
//! [`RedisServer::start_again`].
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "starts processes in directories of their own, and waits for them"
)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::ports;

/// Where Debian puts it.
const BINARY: &str = "/usr/bin/redis-server";
/// How long it may take to come up, on a machine that has much else to do.
const START_MAX: Duration = Duration::from_secs(60);

/// A Redis. Dropping it ends it and removes all of it.
#[derive(Debug)]
pub struct RedisServer {
    dir: PathBuf,
    port: u16,
    /// More lines of its configuration, as options.
    options: Vec<String>,
    child: Option<Child>,
}

impl RedisServer {
    /// Whether this machine has one.
    pub fn is_installed() -> bool {
        Path::new(BINARY).exists()
    }

    /// A fresh one; none: Redis is not installed.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start(options: &[&str]) -> io::Result<Option<Self>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !Self::is_installed() {
            return Ok(None);
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millrace-redis-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)?;
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { dir, port: ports::free()?, options, child: None };
        server.start_again()?;
        Ok(Some(server))
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As clients are told.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill9(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts it on what it has written.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_again(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.dir.join("log"))?;
        let mut command = Command::new(BINARY);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(&self.dir);
        command.args(&self.options);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        let end = Instant::now() + START_MAX;
        while !self.is_ready() {
            if Instant::now() > end {
                let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("Redis does not come up:\n{log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether it answers. A Redis that still reads its file takes connections and refuses all that is asked.
    fn is_ready(&self) -> bool {
        let ask = || -> io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(START_MAX))?;
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            Ok(&answer == b"+PONG")
        };
        ask().unwrap_or(false)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.kill9();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
