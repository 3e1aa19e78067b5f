//! A machine that is thrown away: it has this one's files, and what it writes is kept in memory.
//!
//! Two file systems make it: this machine's root, which is only read, and one in memory that takes what changes. It
//! wants namespaces for mounts, processes and the network, with which all of it ends. It may have a systemd of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::process::{command, run};

/// Where its programs are.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Room for what changes. A node stops taking messages while less than 2 GiB are free; only what is written takes memory.
const ROOM: &str = "size=16g,mode=755";

/// Boots systemd on the root that the first word names, in namespaces of its own: with devices that hurt nobody, with
/// control groups as this machine has them, and without the services that this machine has.
const BOOT: &str = "
cd \"$1\"
umount --recursive --lazy dev proc
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/unified sys/fs/cgroup/systemd
    mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
rm -f etc/systemd/system/multi-user.target.wants/* etc/fstab usr/sbin/policy-rc.d
exec chroot . env --ignore-environment container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=multi-user.target --show-status=0
";

/// How long systemd may take until it answers.
const BOOT_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

pub(super) struct Machine {
    root: PathBuf,
    /// What started its systemd, and the number of that process.
    booted: Option<(Child, String)>,
}

impl Machine {
    /// Makes one at an empty folder.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(fail)?;
        run(command("mount", &["-t", "tmpfs", "-o", ROOM, "tmpfs"]).arg(folder))?;
        let [written, work, root] = ["written", "work", "root"].map(|name| folder.join(name));
        for part in [&written, &work, &root] {
            std::fs::create_dir(part).map_err(fail)?;
        }
        let layers =
            format!("lowerdir=/,upperdir={},workdir={}", written.display(), work.display());
        run(command("mount", &["-t", "overlay", "-o", &layers, "overlay"]).arg(&root))?;
        run(command("mount", &["--rbind", "/dev"]).arg(root.join("dev")))?;
        run(command("mount", &["-t", "proc", "proc"]).arg(root.join("proc")))?;
        // No service manager of this machine is to be found here.
        let run_folder = ["-t", "tmpfs", "-o", "mode=755", "tmpfs"];
        run(command("mount", &run_folder).arg(root.join("run")))?;
        Ok(Self { root, booted: None })
    }

    /// Starts systemd on it, and waits until that has started what it starts.
    pub(super) fn boot(&mut self) -> Outcome {
        let spaces = ["--pid", "--ipc", "--uts", "--cgroup", "--mount", "--fork", "--kill-child"];
        let mut unshare = command("unshare", &spaces);
        unshare.args(["sh", "-e", "-c", BOOT, "sh"]).arg(&self.root);
        let child = unshare.spawn().map_err(|error| format!("unshare: {error}"))?;
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let begin = Instant::now();
        let mut child = Some(child);
        while begin.elapsed() < BOOT_MAX {
            let number = std::fs::read_to_string(&children).unwrap_or_default();
            if self.has("/run/systemd/private")
                && let Some(child) = child.take()
            {
                self.booted = Some((child, number.trim().to_string()));
                // Whatever of this machine's own does not start here is of no interest.
                let _ = self.command(&["systemctl", "is-system-running", "--wait"]).output();
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err("systemd does not boot on the machine that is thrown away".into())
    }

    /// Whether a systemd runs on it.
    pub(super) fn is_booted(&self) -> bool {
        self.booted.is_some()
    }

    /// Where a path of the machine is from outside.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// Whether there is such a file, folder or link. A link may lead nowhere from outside.
    pub(super) fn has(&self, inside: &str) -> bool {
        self.path(inside).symlink_metadata().is_ok()
    }

    /// A command that root runs there.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        self.command_as("root", words)
    }

    /// A command that somebody runs there.
    pub(super) fn command_as(&self, user: &str, words: &[&str]) -> Command {
        let mut there = match &self.booted {
            Some((_, number)) => {
                let mut enter = command("nsenter", &["--target", number]);
                enter.args(["--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wd"]);
                enter
            }
            None => {
                let mut chroot = command("chroot", &[]);
                chroot.arg(&self.root);
                chroot
            }
        };
        // Changes the user and becomes the command: what is started is the command itself.
        there.args(["setpriv", "--reuid", user, "--regid", user_group(user), "--init-groups"]);
        there.args(words);
        there.env_clear().env("PATH", PATH).env("DEBIAN_FRONTEND", "noninteractive");
        there
    }

    /// Runs a command of root to its end.
    pub(super) fn run(&self, words: &[&str]) -> Outcome {
        run(&mut self.command(words))
    }
}

/// The name of a user's own group.
fn user_group(user: &str) -> &str {
    if user == "nobody" { "nogroup" } else { user }
}
