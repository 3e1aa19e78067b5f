//! The node under siege: its cgroup, its descriptors, its memory.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::Options;
use crate::chaos::Failure;
use crate::chaos::broker::{Broker, Kind, START_MAX, Setup};
use crate::ports;

const LOOK_EVERY: Duration = Duration::from_millis(50);
const STOP_MAX: Duration = Duration::from_secs(30);

pub(super) struct Fortress {
    broker: Broker,
    cgroup: Option<PathBuf>,
    watcher: Option<std::thread::JoinHandle<()>>,
    now_mb: Arc<AtomicU64>,
    peak_mb: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Fortress {
    pub(super) fn start(options: &Options) -> Result<Self, Failure> {
        let memory = match options.kind {
            Kind::Millrace => options.memory_mb << 20,
            Kind::Rabbitmq => 2 << 30,
        };
        let cgroup = cgroup(memory);
        if cgroup.is_none() {
            println!("no cgroup can be made (needs root): only the memory that is seen counts");
        }
        let mut broker = Broker::new(Setup {
            kind: options.kind,
            path: gate(options, cgroup.as_deref())?,
            node: None,
            port: ports::free()?,
            data: options.dir.join("data"),
            log: options.dir.join("node.txt"),
            arguments: match options.kind {
                Kind::Millrace => {
                    vec!["--set".into(), format!("memory_limit={}MiB", options.memory_mb * 6 / 10)]
                }
                Kind::Rabbitmq => Vec::new(),
            },
            environment: Vec::new(),
        });
        std::fs::create_dir_all(&broker.setup.data)?;
        broker.start()?;
        broker.wait_ready(START_MAX)?;
        let (now_mb, peak_mb) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let is_over = Arc::new(AtomicBool::new(false));
        let pid = broker.working_pid().unwrap_or_default();
        now_mb.store(resident_mb(pid), Ordering::Relaxed);
        let watcher = {
            let (now, peak, is_over) = (now_mb.clone(), peak_mb.clone(), is_over.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mb = resident_mb(pid);
                    now.store(mb, Ordering::Relaxed);
                    peak.fetch_max(mb, Ordering::Relaxed);
                    std::thread::sleep(LOOK_EVERY);
                }
            })
        };
        Ok(Self { broker, cgroup, watcher: Some(watcher), now_mb, peak_mb, is_over })
    }

    pub(super) fn url(&self) -> String {
        format!("amqp://guest:guest@{}/", self.broker.setup.address())
    }

    pub(super) fn resident_mb(&self) -> u64 {
        self.now_mb.load(Ordering::Relaxed)
    }

    pub(super) fn begin_peak(&self) {
        self.peak_mb.store(0, Ordering::Relaxed);
    }

    pub(super) fn peak_mb(&self) -> u64 {
        self.peak_mb.load(Ordering::Relaxed)
    }

    pub(super) fn lives(&mut self) -> Result<bool, Failure> {
        Ok(self.broker.exited()?.is_none())
    }

    /// What it printed last; a node whose standard error is dead prints nothing.
    pub(super) fn last_words(&self) -> String {
        std::fs::read_to_string(&self.broker.setup.log).unwrap_or_default()
    }

    /// SIGTERM ends it.
    pub(super) fn end(mut self) -> Result<bool, Failure> {
        let status = self.broker.terminate(STOP_MAX)?;
        println!("the node ended: {status}");
        Ok(status.success() || self.broker.setup.kind == Kind::Rabbitmq)
    }
}

impl Drop for Fortress {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        let _ = self.broker.kill();
        if let Some(cgroup) = &self.cgroup {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

/// A program that enters the cgroup, gives up descriptors and standard error, and becomes the node.
fn gate(options: &Options, cgroup: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = options.dir.join("gate");
    let mut file = std::fs::File::create(&path)?;
    writeln!(file, "#!/bin/bash")?;
    if let Some(cgroup) = cgroup {
        writeln!(file, "echo $$ > {}/cgroup.procs", cgroup.display())?;
    }
    writeln!(file, "ulimit -n {}", options.descriptors)?;
    let broker = options.broker.canonicalize()?;
    let dead = if options.kind == Kind::Millrace { " 2> >(exec true)" } else { "" };
    writeln!(file, "exec {} \"$@\"{dead}", broker.display())?;
    file.set_permissions(std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A memory cgroup of either version with this limit, in bytes. None: not as this user, not on this machine.
fn cgroup(limit: u64) -> Option<PathBuf> {
    let name = format!("millrace-siege-{}", std::process::id());
    let places =
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    places.iter().find_map(|(root, file)| {
        let path = Path::new(root).join(&name);
        std::fs::create_dir(&path).ok()?;
        if path.join(file).exists() && std::fs::write(path.join(file), limit.to_string()).is_ok() {
            return Some(path);
        }
        let _ = std::fs::remove_dir(&path);
        None
    })
}

fn resident_mb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kb.unwrap_or(0) / 1024
}
