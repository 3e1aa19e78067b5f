//! Watches memory and disk space, and raises the alarms that hold publishers back.

use std::time::Duration;

use super::handle::Node;
use super::start::Config;
use crate::request::Alarms;

/// How often is looked.
const PERIOD: Duration = Duration::from_millis(250);

/// Looks until the node stops.
pub(crate) fn run(node: &Node, config: &Config) {
    while !node.is_stopping.load(std::sync::atomic::Ordering::Relaxed) {
        let alarms = Alarms {
            memory: resident_bytes().is_some_and(|bytes| bytes > config.memory_limit),
            disk: free_bytes(config).is_some_and(|bytes| bytes < config.disk_free_limit),
        };
        node.set_alarms(alarms);
        std::thread::park_timeout(PERIOD);
    }
}

/// Memory that this process holds, in bytes: the second field of `/proc/self/statm`, in pages.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn free_bytes(config: &Config) -> Option<u64> {
    let stat = rustix::fs::statvfs(&config.data_dir).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
}
