//! The lane of another language: pika publishes to a queue of its own and consumes from it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::workload::{Manner, QueuePlan};

/// The lane's queue.
const QUEUE: &str = "snake";
/// Publishes per second.
const RATE: u32 = 200;
const SCRIPT: &str = include_str!("../../../python/lane.py");
/// How long the script may take to end after it was asked.
const END: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(20);

/// A publisher and a consumer at work.
#[derive(Debug)]
pub struct Lane {
    publisher: Script,
    consumer: Script,
}

#[derive(Debug)]
struct Script {
    child: Child,
    history: PathBuf,
}

/// The queue that the plan has to declare and to drain; lapin takes what pika leaves.
pub fn queue() -> QueuePlan {
    let manner = Manner::AckMany { count: 20 };
    QueuePlan::plain(QUEUE, 0, 100, manner)
}

/// Whether `python` has pika; if not, why.
pub fn is_possible(python: &Path) -> Result<(), String> {
    let output = Command::new(python).args(["-c", "import pika"]).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err(format!("{} has no pika (cargo xtask setup)", python.display())),
        Err(error) => Err(format!("{}: {error} (cargo xtask setup)", python.display())),
    }
}

impl Lane {
    /// Starts both; their histories go below `dir`.
    pub fn start(python: &Path, nodes: &[SocketAddr], dir: &Path) -> std::io::Result<Self> {
        let nodes: Vec<String> = nodes.iter().map(SocketAddr::to_string).collect();
        let nodes = nodes.join(",");
        let script = dir.join("lane.py");
        std::fs::write(&script, SCRIPT)?;
        let start = |role: &str, name: &str| {
            let history = dir.join(format!("{name}.jsonl"));
            let log = std::fs::File::create(dir.join(format!("{name}.log")))?;
            let child = Command::new(python)
                .arg(&script)
                .args([role, &nodes, QUEUE, name])
                .arg(&history)
                .arg(RATE.to_string())
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()?;
            Ok::<_, std::io::Error>(Script { child, history })
        };
        let publisher = start("publish", "pika-pub")?;
        let consumer = start("consume", "pika-con")?;
        Ok(Self { publisher, consumer })
    }

    /// Lets the publisher hear about what it sent, then stops both. Gives back their histories.
    pub fn end(mut self) -> std::io::Result<Vec<PathBuf>> {
        self.publisher.end()?;
        self.consumer.end()?;
        Ok(vec![self.publisher.history.clone(), self.consumer.history.clone()])
    }
}

impl Script {
    fn end(&mut self) -> std::io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = kill_process(pid.expect("a child has a positive id"), Signal::TERM);
        let deadline = Instant::now() + END;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                // Its history has no end then, and the checker says so.
                self.child.kill()?;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
