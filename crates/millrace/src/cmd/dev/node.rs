//! The nodes of `millrace dev` as child processes.
//!
//! ```text
//!   started ──its first line──> ready ──SIGTERM──> ended
//!      └──────────── it ends by itself ──────────────^
//! ```
//!
//! A child is in a process group of its own: Ctrl-C on a terminal goes to `millrace dev` alone, which tells the nodes. If
//! `millrace dev` itself is killed, the kernel kills each node: `serve --end-with`.
#![allow(clippy::disallowed_methods, reason = "a shell: starts processes, and tasks that read")]

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use service::settings::Setting;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::directory::Log;
use super::plan::Plan;
use crate::config::SETTINGS;

/// What of the settings' variables a node of a development cluster goes by: all others would be meant for another node.
const VARIABLE_KEPT: &str = "MILLRACE_LOG";

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u16,
    process: Child,
    log: Log,
    /// Where clients connect, once it is ready.
    pub(super) url: Option<String>,
    pub(super) ended: Option<ExitStatus>,
}

/// What a node said first.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) node: u16,
    pub(super) line: String,
}

impl Node {
    /// Starts the process. What it says first goes to `said`. Wants a runtime, and the thread that lives as long as this
    /// process: the kernel takes a child's parent to be the thread that started it.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn start(
        plan: &Plan,
        number: u16,
        said: mpsc::Sender<Said>,
    ) -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("node {number} cannot be started: {error}");
        let program = std::env::current_exe().map_err(fail)?;
        let (log, file) = Log::open(plan.log(number)).map_err(fail)?;
        let mut command = Command::new(program);
        command
            .args(plan.arguments(number, std::process::id()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .process_group(0)
            // A service manager is told by whom it has started.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("MILLRACE_CONFIG");
        let variables = SETTINGS.iter().filter_map(Setting::variable_name);
        for variable in variables.filter(|variable| variable != VARIABLE_KEPT) {
            command.env_remove(variable);
        }
        let mut process = command.spawn().map_err(fail)?;
        let pipe = process.stdout.take().map(OwnedFd::from);
        let node = Self { number, process, log, url: None, ended: None };
        if let Some(pipe) = pipe {
            let pipe = pipe::Receiver::from_owned_fd(pipe).map_err(fail)?;
            tokio::spawn(hear(number, pipe, said));
        }
        Ok(node)
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has ended since this was asked last.
    pub(super) fn has_just_ended(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.ended = self.process.try_wait().ok().flatten();
        self.ended.is_some()
    }

    /// Sends a signal to a process that is not known to have ended.
    pub(super) fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            // It may have ended just now.
            let _ = kill_process(Pid::from_child(&self.process), signal);
        }
    }

    /// The last lines of its log.
    pub(super) fn last_words(&self) -> Vec<String> {
        self.log.tail()
    }
}

/// Whatever becomes of `millrace dev`, no node stays behind.
impl Drop for Node {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Passes on the first line, and reads the others: the node does not wait for a reader.
async fn hear(node: u16, pipe: pipe::Receiver, said: mpsc::Sender<Said>) {
    let mut lines = BufReader::new(pipe).lines();
    if let Ok(Some(line)) = lines.next_line().await {
        // Nobody waits for it when all are told to stop.
        let _ = said.send(Said { node, line }).await;
    }
    while let Ok(Some(_)) = lines.next_line().await {}
}
