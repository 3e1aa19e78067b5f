//! What is measured: who works, from which queue.

use std::path::Path;
use std::process::Command;

use super::Options;
use super::provider;
use super::servers::{Need, Servers};
use crate::chaos::Failure;

/// Who works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Millrace,
    /// Ours, with a server behind its target.
    Serving(provider::Kind),
    Celery,
    Asynq,
    River,
    Bullmq,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    who: Who,
    need: Need,
    /// Jobs handled at a time.
    concurrency: u32,
}

impl Case {
    /// All of them, ours beside the peer on the same server.
    pub(super) fn all() -> Vec<Self> {
        let case = |who, need, concurrency| Self { who, need, concurrency };
        vec![
            case(Who::Millrace, Need::Millrace, 256),
            case(Who::Serving(provider::Kind::Apns), Need::Millrace, 2000),
            case(Who::Serving(provider::Kind::Webhook), Need::Millrace, 2000),
            case(Who::Millrace, Need::Rabbitmq, 256),
            case(Who::Celery, Need::Rabbitmq, 2),
            case(Who::Millrace, Need::Redis, 256),
            case(Who::Asynq, Need::Redis, 64),
            case(Who::Bullmq, Need::Redis, 64),
            case(Who::Celery, Need::Redis, 2),
            case(Who::River, Need::Postgres, 500),
        ]
    }

    pub(super) fn name(&self) -> String {
        let who = match self.who {
            Who::Millrace => "millrace work",
            Who::Serving(provider::Kind::Apns) => "pushes to APNs, 50 ms each,",
            Who::Serving(provider::Kind::Webhook) => "webhooks, 50 ms each,",
            Who::Celery => "Celery",
            Who::Asynq => "asynq",
            Who::River => "River",
            Who::Bullmq => "BullMQ",
        };
        format!("{who} from {}", self.need.name())
    }

    pub(super) fn needs(&self) -> Need {
        self.need
    }

    /// What is behind the target.
    pub(super) fn provider(&self) -> Option<provider::Kind> {
        match self.who {
            Who::Serving(kind) => Some(kind),
            Who::Millrace | Who::Celery | Who::Asynq | Who::River | Who::Bullmq => None,
        }
    }

    /// Everybody gets as many jobs as take some seconds.
    pub(super) fn jobs(&self, options: &Options) -> u64 {
        options.jobs(match (self.who, self.need) {
            (Who::Millrace, Need::Millrace) => 1.0,
            (Who::Serving(_), _) => 0.2,
            (Who::Millrace, _) => 0.3,
            (Who::Asynq | Who::River, _) => 0.1,
            (Who::Bullmq, _) => 0.1,
            (Who::Celery, _) => 0.02,
        })
    }

    /// The program that fills the queue, and the one that works it off.
    pub(super) fn command(
        &self,
        options: &Options,
        servers: &Servers,
        target: Option<&str>,
        is_fill: bool,
    ) -> Result<Command, Failure> {
        let what = if is_fill { "fill" } else { "work" };
        let address = servers.address();
        let (jobs, concurrency) = (self.jobs(options).to_string(), self.concurrency.to_string());
        let peers = || {
            options.peers.as_deref().ok_or_else(|| {
                Failure::Skipped(
                    "--peers is not set: `cargo xtask bench work --peers` builds the peers".into(),
                )
            })
        };
        let mut words = vec![what.to_owned(), address, jobs, concurrency];
        let mut program = match self.who {
            Who::Millrace | Who::Serving(_) => {
                let mut ours = Command::new(std::env::current_exe()?);
                ours.arg("noop-worker");
                ours
            }
            Who::Asynq => program(&peers()?.join("asynq"))?,
            Who::River => program(&peers()?.join("river"))?,
            Who::Bullmq => {
                let mut node = Command::new("node");
                node.arg(existing(&peers()?.join("bullmq/main.mjs"))?);
                words[1] = servers.port().to_string();
                node
            }
            Who::Celery => {
                let mut python = program(&peers()?.join("celery/bin/python"))?;
                python.arg(existing(&peers()?.join("celery/noop.py"))?);
                words[1] = servers.url();
                python
            }
        };
        if matches!(self.who, Who::Millrace | Who::Serving(_)) {
            words[1] = servers.url();
        }
        words.extend(target.map(|target| format!("--target={target}")));
        program.args(words);
        Ok(match &options.cpus {
            Some(cpus) if !is_fill => pinned(cpus, &program),
            Some(_) | None => program,
        })
    }
}

fn pinned(cpus: &str, program: &Command) -> Command {
    let mut taskset = Command::new("taskset");
    taskset.args(["-c", cpus]).arg(program.get_program()).args(program.get_args());
    taskset
}

fn program(path: &Path) -> Result<Command, Failure> {
    existing(path).map(Command::new)
}

fn existing(path: &Path) -> Result<&Path, Failure> {
    if path.exists() {
        Ok(path)
    } else {
        Err(Failure::Skipped(format!("{} is missing", path.display())))
    }
}
