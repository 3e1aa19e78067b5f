//! A postmaster and its children, as the kernel knows them.

use rustix::process::{Pid, Signal, kill_process};

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    /// In ticks since the machine started.
    born: u64,
}

impl Process {
    /// Whether it still runs: one that waits for its parent to notice does not.
    pub(super) fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.born == self.born && stat.state != 'Z')
    }
}

/// Kills a process and all its children, of which it has made no more meanwhile. Gives the children.
pub(super) fn kill_with_children(pid: u32) -> Vec<Process> {
    signal(pid, Signal::STOP);
    while stat(pid).is_some_and(|stat| !"TZX".contains(stat.state)) {
        std::thread::yield_now();
    }
    let children = children(pid);
    signal(pid, Signal::KILL);
    for child in &children {
        signal(child.pid, Signal::KILL);
    }
    children
}

pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may be gone by itself.
        let _ = kill_process(pid, signal);
    }
}

/// The processes that it has started and that are there.
pub(super) fn children(parent: u32) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        let stat = stat(pid)?;
        (stat.parent == parent).then_some(Process { pid, born: stat.born })
    })
    .collect()
}

struct Stat {
    state: char,
    parent: u32,
    born: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let born = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, born })
}
