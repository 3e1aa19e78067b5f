//! The flaky disk with a file system on it, as a directory for a broker's data.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::chaos::Failure;

/// How the power goes.
#[derive(Clone, Copy, Debug)]
pub(in crate::chaos) enum Cut {
    /// Everything not flushed is lost.
    Drop,
    /// Some sectors of what was not flushed are there.
    Tear { seed: u64 },
}

/// The size of the disk. The image is sparse.
const DISK_BYTES: u64 = 4 << 30;
/// The journal commits by itself only this often (seconds), so that what is not synced stays
/// unsynced: with the usual 5 s a missing sync of a directory is often repaired by luck.
const COMMIT: u32 = 600;

/// More than the status of a disk takes.
const STATUS_BYTES_MAX: usize = 4096;

/// A mounted flaky disk. Dropping it unmounts everything.
#[derive(Debug)]
pub(in crate::chaos) struct MountedDisk {
    served: PathBuf,
    data: PathBuf,
    server: Child,
    device: Option<String>,
    lost_before: u64,
}

/// Whether this machine can do it, and if not, why.
pub(in crate::chaos) fn is_possible() -> Result<(), Failure> {
    let skipped = |why: &str| Err(Failure::Skipped(why.to_owned()));
    if !rustix::process::geteuid().is_root() {
        return skipped("a flaky disk needs root");
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return skipped(&format!("{device} is missing"));
        }
    }
    for tool in ["losetup", "mkfs.ext4", "mount", "umount"] {
        if Command::new(tool).arg("--version").output().is_err()
            && Command::new(tool).arg("-V").output().is_err()
        {
            return skipped(&format!("{tool} is missing"));
        }
    }
    Ok(())
}

impl MountedDisk {
    /// Makes a new disk below `dir` and mounts it.
    pub(in crate::chaos) fn create(dir: &Path) -> Result<Self, Failure> {
        is_possible()?;
        let (image, served, data) = (dir.join("image"), dir.join("disk"), dir.join("data"));
        fs::create_dir_all(&served)?;
        fs::create_dir_all(&data)?;
        File::create(&image)?.set_len(DISK_BYTES)?;
        let server = Command::new(std::env::current_exe()?)
            .arg("flakydisk")
            .args([&image, &served])
            .stdin(Stdio::null())
            .spawn()?;
        let mut disk = Self { served, data, server, device: None, lost_before: 0 };
        disk.wait_served()?;
        let device = disk.attach()?;
        tool("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device])?;
        // What mkfs wrote is no part of the trial.
        tool("blockdev", &["--flushbufs", &device])?;
        disk.mount()?;
        Ok(disk)
    }

    /// Where the broker's data goes.
    pub(in crate::chaos) fn data(&self) -> &Path {
        &self.data
    }

    fn wait_served(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.served.join("ctl").exists() {
            if let Some(status) = self.server.try_wait()? {
                return Err(Failure::Skipped(format!("FUSE cannot mount here ({status})")));
            }
            if Instant::now() > deadline {
                return Err(Failure::Trial("the flaky disk does not come up".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn attach(&mut self) -> Result<String, Failure> {
        let disk = self.served.join("disk");
        let device = tool("losetup", &["-f", "--show", &text(&disk)])?;
        self.device = Some(device.clone());
        Ok(device)
    }

    fn mount(&mut self) -> Result<(), Failure> {
        let device = self.device.clone().ok_or(Failure::Trial("no loop device".to_owned()))?;
        let options = format!("commit={COMMIT},noatime");
        tool("mount", &["-t", "ext4", "-o", &options, &device, &text(&self.data)]).map(drop)
    }

    /// Cuts the power. The broker must be stopped, so that it says nothing more.
    pub(in crate::chaos) fn cut(&self, cut: Cut) -> Result<(), Failure> {
        match cut {
            Cut::Drop => self.control("drop"),
            Cut::Tear { seed } => self.control(&format!("tear {seed}")),
        }
    }

    /// Makes every flush this slow, so that a cut often comes in the middle of one.
    pub(in crate::chaos) fn slow_flushes(&self, ms: u64) -> Result<(), Failure> {
        self.control(&format!("delay {ms}"))
    }

    /// Flushes since it was made.
    pub(in crate::chaos) fn flushes(&self) -> Result<u64, Failure> {
        self.status("flushes")
    }

    /// From now on flushes fail, or no longer.
    pub(in crate::chaos) fn fail_flushes(&self, fail: bool) -> Result<(), Failure> {
        self.control(if fail { "eio on" } else { "eio off" })
    }

    /// Power is back: the file system is mounted again, as its journal says. No process may have a
    /// file of the old mount open. Gives back how many sectors were lost since last time: out of
    /// the disk's cache, and out of the kernel's, which finds the disk gone.
    pub(in crate::chaos) fn power_on(&mut self) -> Result<u64, Failure> {
        self.unmount()?;
        let lost = self.status("lost")? + self.status("refused")?;
        self.attach()?;
        self.mount()?;
        let sectors = lost - self.lost_before;
        self.lost_before = lost;
        Ok(sectors)
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while tool("umount", &[&text(&self.data)]).is_err() {
            if Instant::now() > deadline {
                return Err(Failure::Trial("the old mount is still in use".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(device) = self.device.take() {
            tool("losetup", &["-d", &device])?;
        }
        Ok(())
    }

    fn control(&self, command: &str) -> Result<(), Failure> {
        let control = File::options().write(true).open(self.served.join("ctl"));
        let told = control.and_then(|mut control| control.write_all(command.as_bytes()));
        told.map_err(|error| Failure::Trial(format!("flaky disk, {command}: {error}")))
    }

    fn status(&self, name: &str) -> Result<u64, Failure> {
        let failed = |error| Failure::Trial(format!("flaky disk, status: {error}"));
        // In one read: the disk makes its status anew for each, and the parts of two do not fit together.
        let mut status = [0; STATUS_BYTES_MAX];
        let mut control = File::open(self.served.join("ctl")).map_err(failed)?;
        let bytes = control.read(&mut status).map_err(failed)?;
        let status = String::from_utf8_lossy(&status[..bytes]);
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.ok_or(Failure::Trial(format!("the flaky disk does not report {name}")))
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        // Best effort: the trial is over, and says by itself how it went.
        let _ = self.control("eio off");
        if self.unmount().is_err() {
            let _ = tool("umount", &["-l", &text(&self.data)]);
            let _ = self.device.take().map(|device| tool("losetup", &["-d", &device]));
        }
        let _ = tool("umount", &["-l", &text(&self.served)]);
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Runs a system tool and gives back its first line.
pub(in crate::chaos) fn tool(name: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Skipped(format!("{name}: {error}")))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::Trial(format!("{name} {}: {complaint}", arguments.join(" "))));
    }
    let first = String::from_utf8_lossy(&output.stdout);
    Ok(first.lines().next().unwrap_or_default().to_owned())
}
