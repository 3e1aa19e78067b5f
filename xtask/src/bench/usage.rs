//! What a process and a disk have done, from `/proc`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::process::{command, run};

/// CPU time is told in these, by every Linux that Millrace runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Of `/proc/diskstats`, whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu_s: f64,
    /// Resident memory now.
    pub(super) rss_bytes: u64,
}

pub(super) fn of(pid: u32) -> Result<Usage, String> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    };
    let (stat, status) = (read("stat")?, read("status")?);
    // Fields 14 and 15; the name, field 2, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 = fields
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(Usage {
        cpu_s: ticks as f64 / TICKS_PER_SECOND,
        rss_bytes: number(&status, "VmRSS:") * 1024,
    })
}

/// Bytes written so far to the disk on which a folder lies, by everybody, after a sync. `None` if the
/// kernel counts nothing for it, as for file systems in memory.
///
/// `/proc/PID/io` will not do: it counts whole folios of the page cache, of which the kernel writes only
/// the dirty blocks (4 KiB synced into a preallocated file counted as 256 KiB).
pub(super) fn disk_bytes(folder: &Path) -> Option<u64> {
    run(&mut command("sync", &[])).ok()?;
    let device = std::fs::metadata(folder).ok()?.dev();
    let major = (device >> 8) & 0xfff | (device >> 32) & !0xfff;
    let minor = device & 0xff | (device >> 12) & !0xff;
    let counters = std::fs::read_to_string("/proc/diskstats").ok()?;
    sectors_written(&counters, major, minor).map(|sectors| sectors * SECTOR_BYTES)
}

/// Field 10 of the device's line: sectors written.
fn sectors_written(counters: &str, major: u64, minor: u64) -> Option<u64> {
    let words = counters.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (major, minor) = (major.to_string(), minor.to_string());
    let mut found = words.filter(|words| words.len() > 9 && words[0] == major && words[1] == minor);
    found.next()?[9].parse().ok()
}

fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    line.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        assert!(of(std::process::id()).unwrap().rss_bytes > 0);
    }

    #[test]
    fn a_disk_is_found_by_its_numbers() {
        let counters = " 254 0 vda 1 2 3 4 5 6 77 8 9\n 254 1 vda1 1 2 3 4 5 6 66 8 9\n";
        assert_eq!(sectors_written(counters, 254, 1), Some(66));
        assert_eq!(sectors_written(counters, 8, 0), None);
    }
}
