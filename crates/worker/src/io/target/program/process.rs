//! A process and everything in its group.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::spawner::Kept;
use crate::target::program::End;

/// A process, which is the head of its group. Dropping it kills the group.
///
/// That it has ended is seen without reaping it, so that its number cannot be another group's by the time that the
/// group is killed.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Pid,
    ended: AsyncFd<OwnedFd>,
    is_reaped: bool,
    _kept: Kept,
}

/// Its three pipes.
pub(super) struct Pipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

impl Process {
    pub(super) fn new(child: Child, kept: Kept) -> Result<Self, String> {
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let group = group.ok_or("the process has no number")?;
        let ended = pidfd_open(group, PidfdFlags::empty())
            .map_err(|error| error.to_string())
            .and_then(|fd| watch(fd).map_err(|error| error.to_string()));
        match ended {
            Ok(ended) => Ok(Self { child, group, ended, is_reaped: false, _kept: kept }),
            Err(why) => {
                let _ = kill_process_group(group, Signal::KILL);
                Err(format!("the process cannot be watched: {why}"))
            }
        }
    }

    /// Its pipes; to be taken once.
    pub(super) fn pipes(&mut self) -> Pipes {
        Pipes {
            stdin: self.child.stdin.take().expect("it was piped, and is taken once"),
            stdout: self.child.stdout.take().expect("it was piped, and is taken once"),
            stderr: self.child.stderr.take().expect("it was piped, and is taken once"),
        }
    }

    /// Waits until it has ended by itself.
    pub(super) async fn ended(&self) {
        // An error means that it cannot be watched: it is killed, then.
        let _ = self.ended.readable().await;
    }

    /// Asks the group to end, waits for the process, and kills what is left.
    pub(super) async fn stop(&mut self, grace: Duration) -> End {
        if self.is_reaped {
            return End::Signal(0);
        }
        let _ = kill_process_group(self.group, Signal::TERM);
        let _ = timeout(grace, self.ended()).await;
        self.kill().await
    }

    /// Kills what is left of the group, and reaps the process.
    pub(super) async fn kill(&mut self) -> End {
        let _ = kill_process_group(self.group, Signal::KILL);
        let status = self.child.wait().await;
        self.is_reaped = true;
        match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => End::Exit(code),
                (None, signal) => End::Signal(signal.unwrap_or(0)),
            },
            Err(_) => End::Signal(0),
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe, which is forbidden here; an OwnedFd keeps what that asks for"
)]
fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}
