//! What the server's processes cost: CPU, memory and writes, from `/proc`.

use std::fs;

/// Memory is looked at this often, in milliseconds.
pub(super) const RSS_INTERVAL_MS: u64 = 200;

/// The processes of the server that is measured.
pub(super) struct Processes {
    pids: Vec<u32>,
    ticks_per_second: f64,
}

/// What they have used since they started, summed over all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    /// None where `/proc/PID/io` may not be read.
    pub(super) io: Option<Io>,
}

/// Counters of `/proc/PID/io`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Io {
    pub(super) write_syscalls: u64,
    /// Bytes handed to `write` and its kin, sockets included.
    pub(super) write_bytes: u64,
    /// Bytes that went, or will go, to a disk.
    pub(super) disk_write_bytes: u64,
}

impl Processes {
    /// # Errors
    /// One of them is not running.
    pub(super) fn new(pids: &[u32]) -> Result<Self, String> {
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        let processes = Self { pids: pids.to_vec(), ticks_per_second };
        processes.usage()?;
        Ok(processes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    /// # Errors
    /// One of them has ended.
    pub(super) fn usage(&self) -> Result<Usage, String> {
        let mut usage = Usage { io: Some(Io::default()), ..Usage::default() };
        for pid in &self.pids {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
                .map_err(|error| format!("cannot measure process {pid}: {error}"))?;
            let (user, system) = ticks(&stat).ok_or_else(|| {
                format!("cannot read /proc/{pid}/stat: its form is not the expected one")
            })?;
            usage.user_s += user as f64 / self.ticks_per_second;
            usage.system_s += system as f64 / self.ticks_per_second;
            let io =
                fs::read_to_string(format!("/proc/{pid}/io")).ok().and_then(|io| counters(&io));
            usage.io = usage.io.zip(io).map(|(sum, io)| Io {
                write_syscalls: sum.write_syscalls + io.write_syscalls,
                write_bytes: sum.write_bytes + io.write_bytes,
                disk_write_bytes: sum.disk_write_bytes + io.disk_write_bytes,
            });
        }
        Ok(usage)
    }

    /// Resident memory of all of them, in bytes; what has ended counts as nothing.
    pub(super) fn rss_bytes(&self) -> u64 {
        let status = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/status")).ok();
        self.pids.iter().filter_map(status).filter_map(|text| rss_bytes(&text)).sum()
    }
}

/// CPU seconds that this process (the generator) has used, all threads.
pub(super) fn own_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// `utime` and `stime`, fields 14 and 15 of proc(5)'s `stat`. The name, field 2, may hold anything.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn rss_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn counters(io: &str) -> Option<Io> {
    let find = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':')?.trim().parse().ok()
    };
    Some(Io {
        write_syscalls: find("syscw")?,
        write_bytes: find("wchar")?,
        disk_write_bytes: find("write_bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_found_behind_a_name_with_spaces_and_brackets() {
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1";
        assert_eq!(ticks(stat), Some((150, 50)));
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(rss_bytes("Name:\tx\nVmRSS:\t   1024 kB\nThreads: 2\n"), Some(1 << 20));
        assert_eq!(rss_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn write_bytes_are_not_taken_for_cancelled_write_bytes() {
        let io = "rchar: 1\nwchar: 22\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
                  cancelled_write_bytes: 7\n";
        let io = counters(io).expect("all are there");
        assert_eq!((io.write_syscalls, io.write_bytes, io.disk_write_bytes), (4, 22, 6));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error_before_the_run() {
        assert!(Processes::new(&[u32::MAX]).is_err());
        assert!(Processes::new(&[std::process::id()]).is_ok());
    }
}
