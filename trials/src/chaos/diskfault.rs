//! F8 and F9: syncs that fail, and a disk without space.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Failure;
use super::broker::{Broker, tail};
use super::flaky_disk::mounted::{Cut, MountedDisk};
use super::trial::{Harm, Struck, small_files};
use crate::history::Nanos;
use crate::workload::Chance;
use crate::workload::io::now;

/// How long a broker may go on after a sync failed.
const STOPS: Duration = Duration::from_secs(60);

/// Holds the broker to it: it ends by itself, not with success, and names the file.
pub(super) fn must_stop(broker: &mut Broker) -> Result<(), Failure> {
    let status = broker.wait_exit(STOPS).map_err(|failure| match failure {
        Failure::Broken(_) => Failure::Broken("the broker goes on after a failed sync".to_owned()),
        other => other,
    })?;
    if status.success() {
        return Err(Failure::Broken("a failed sync ended the broker with success".to_owned()));
    }
    let last = tail(&broker.setup.log);
    let data = broker.setup.data.display().to_string();
    if !names_file(&last, &data) {
        return Err(Failure::Broken(format!("no file is named after a failed sync:\n{last}")));
    }
    Ok(())
}

/// Whether the log says which file or directory could not be synced, and in which data directory: names are
/// relative to it.
fn names_file(log: &str, data: &str) -> bool {
    let is_named = |line: &str| {
        let what = line.split_once("sync of ").and_then(|(_, rest)| rest.split_once(" failed: "));
        let is_name = |name: &str| !name.is_empty() && !name.contains(' ');
        what.is_some_and(|(name, _)| is_name(name) || name == "the data directory")
    };
    log.lines().any(|line| is_named(line) && line.contains(data))
}

/// `fdatasync` and `fsync` fail with EIO, once per thread or for ever (strace injects it). The
/// file's pages are written all the same: a broker that tried again would be told that all is well.
#[derive(Debug)]
pub struct FailingSync {
    log: PathBuf,
}

impl FailingSync {
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        let version = Command::new("strace").arg("-V").output();
        version.map_err(|error| Failure::Skipped(format!("strace: {error}")))?;
        Ok(Self { log: dir.join("strace.log") })
    }

    fn attach(&self, pid: u32, how_often: &str) -> Result<Tracer, Failure> {
        let inject = format!("inject=fdatasync,fsync:error=EIO:when={how_often}");
        let tracer = Command::new("strace")
            .args(["-f", "-qq", "-ttt", "-e", "trace=fdatasync,fsync", "-e", &inject, "-o"])
            .arg(&self.log)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Tracer(tracer))
    }

    /// When the first sync failed, out of what strace wrote (wall clock) about it.
    fn failed_at(&self, wall_offset: i128) -> Option<Nanos> {
        let text = std::fs::read_to_string(&self.log).ok()?;
        let line = text.lines().find(|line| line.contains("(INJECTED)"))?;
        let seconds: f64 = line.split_whitespace().find_map(|word| {
            let (whole, part) = word.split_once('.')?;
            (whole.len() >= 10 && part.len() == 6).then(|| word.parse().ok())?
        })?;
        Nanos::try_from((seconds * 1e9) as i128 - wall_offset).ok()
    }
}

/// A tracer that lets go when it is dropped.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Harm for FailingSync {
    fn name(&self) -> &'static str {
        "eio"
    }

    fn strikes_recovery(&self) -> bool {
        false
    }

    fn strike(&mut self, broker: &mut Broker, chance: &mut Chance) -> Result<Struck, Failure> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let t0 = now();
        let wall_offset = i128::try_from(wall).unwrap_or_default() - i128::from(t0);
        let _ = std::fs::remove_file(&self.log);
        let how_often = if chance.percent(50) { "1" } else { "1+" };
        let pid = broker.pid().ok_or(Failure::Trial("there is no broker to trace".to_owned()))?;
        let tracer = self.attach(pid, how_often)?;
        must_stop(broker)?;
        drop(tracer);
        let failed = self.failed_at(wall_offset);
        let Some(failed) = failed else {
            return Err(Failure::Trial("strace injected no failure".to_owned()));
        };
        Ok(Struck { silent_from: Some(failed), note: None, ..Struck::dead(t0) })
    }
}

/// The disk itself fails to flush, and forgets what it was to flush.
#[derive(Debug)]
pub struct FailingFlush {
    disk: MountedDisk,
}

impl FailingFlush {
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        Ok(Self { disk: MountedDisk::create(dir)? })
    }
}

impl Harm for FailingFlush {
    fn name(&self) -> &'static str {
        "badflush"
    }

    fn data(&self, _: &Path) -> PathBuf {
        self.disk.data().join("broker")
    }

    fn strikes_recovery(&self) -> bool {
        false
    }

    fn strike(&mut self, broker: &mut Broker, _: &mut Chance) -> Result<Struck, Failure> {
        let t0 = now();
        self.disk.fail_flushes(true)?;
        let failed = now();
        must_stop(broker)?;
        self.disk.fail_flushes(false)?;
        self.disk.cut(Cut::Drop)?;
        let sectors = self.disk.power_on()?;
        Ok(Struck { sectors, silent_from: Some(failed), ..Struck::dead(t0) })
    }
}

/// The disk is full for a while. A broker may wait, or stop; it may not lose, and it must serve
/// again when there is space.
#[derive(Debug)]
pub struct DiskFull {
    disk: MountedDisk,
}

/// A disk with so little left is full: whole blocks that nobody gets.
const FULL_LEAVES: u64 = 1 << 20;
/// How long there is no space.
const FULL: Duration = Duration::from_secs(4);

impl DiskFull {
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        Ok(Self { disk: MountedDisk::create(dir)? })
    }
}

/// Leaves no space on the disk of `dir` for so long. Gives back how little was left at the fullest.
pub(super) fn fill_for(dir: &Path, time: Duration) -> Result<u64, Failure> {
    let filler = dir.join("filler");
    let file = File::create(&filler)?;
    let (mut end, mut least) = (0, u64::MAX);
    let until = now() + time.as_nanos() as Nanos;
    while now() < until {
        end = fill(&file, end);
        let space = rustix::fs::statvfs(dir).map_err(std::io::Error::from)?;
        least = least.min(space.f_bavail * space.f_frsize);
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(file);
    std::fs::remove_file(filler)?;
    if least > FULL_LEAVES {
        return Err(Failure::Trial(format!("the disk was never full: {least} bytes were left")));
    }
    Ok(least)
}

/// Takes all space that is left, again and again: others may free some in between.
fn fill(file: &File, from: u64) -> u64 {
    let (mut end, mut step) = (from, 256_u64 << 20);
    while step >= 4096 {
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(file, flags, end, step) {
            Ok(()) => end += step,
            Err(_) => step /= 2,
        }
    }
    end
}

impl Harm for DiskFull {
    fn name(&self) -> &'static str {
        "diskfull"
    }

    fn data(&self, _: &Path) -> PathBuf {
        self.disk.data().join("broker")
    }

    fn strikes_recovery(&self) -> bool {
        false
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        // The alarm long before would keep the disk from ever being full.
        let mut environment = vec![("MILLRACE_DISK_FREE_LIMIT", "0".to_owned())];
        environment.extend(small_files());
        environment
    }

    fn strike(&mut self, broker: &mut Broker, _: &mut Chance) -> Result<Struck, Failure> {
        let t0 = now();
        fill_for(self.disk.data(), FULL)?;
        let ended = broker.exited()?;
        match ended {
            Some(status) if status.success() => {
                Err(Failure::Broken("a full disk ended the broker with success".to_owned()))
            }
            Some(status) => {
                let note = format!("a full disk stopped the broker ({status})");
                Ok(Struck { note: Some(note), ..Struck::dead(t0) })
            }
            None => {
                let note = Some("the broker went on through a full disk".to_owned());
                Ok(Struck { is_alive: true, note, ..Struck::dead(t0) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_sync_names_the_file_or_the_directory_and_where_it_lies() {
        let named = |name: &str| {
            format!(
                "millrace: the disk failed, so the node stops: sync of {name} failed: EIO. The data directory is /data: \
                 check the disk, then start the node again"
            )
        };
        assert!(names_file(&named("wal/00000002.wal"), "/data"));
        assert!(names_file(&named("groups"), "/data"));
        assert!(names_file(&named("the data directory"), "/data"));
        assert!(!names_file(&named("something or other"), "/data"));
        assert!(!names_file(&named("groups"), "/elsewhere"));
        let nameless = "millrace: the disk failed, so the node stops. The data directory is /data";
        assert!(!names_file(nameless, "/data"));
    }
}
