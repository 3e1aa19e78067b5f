//! Watches memory and disk space, and raises the alarms that hold publishers back.

use std::time::Duration;

use super::handle::Node;
use super::start::Config;
use crate::request::Alarms;

/// How often is looked.
const PERIOD: Duration = Duration::from_millis(250);

/// Log files for which there must be room.
const LOG_FILES_FREE: u64 = 2;

/// Looks until the node stops.
pub(crate) fn run(node: &Node, config: &Config) {
    let mut alarms = Alarms::default();
    while !node.is_stopping() {
        alarms = judged(alarms, config, resident_bytes(), free_bytes(config));
        let alarms = Alarms { disk: alarms.disk || node.is_short(), ..alarms };
        node.set_alarms(alarms);
        std::thread::park_timeout(PERIOD);
    }
}

/// What cannot be looked at, because no file can be opened, stays as it was.
fn judged(before: Alarms, config: &Config, held: Option<u64>, free: Option<u64>) -> Alarms {
    // Whatever is configured: what was accepted already must fit the log.
    let disk_free_limit = config.disk_free_limit.max(LOG_FILES_FREE * config.wal_file_bytes);
    Alarms {
        memory: held.map_or(before.memory, |bytes| bytes > config.memory_limit),
        disk: free.map_or(before.disk, |bytes| bytes < disk_free_limit),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_stays_while_nothing_can_be_looked_at() {
        let config = Config {
            data_dir: ".".into(),
            groups: 1,
            shards: 1,
            wal_file_bytes: 5,
            memory_limit: 100,
            disk_free_limit: 10,
            new_cluster: 1,
            peers: None,
        };
        let both = judged(Alarms::default(), &config, Some(101), Some(9));
        assert_eq!(both, Alarms { memory: true, disk: true });
        assert_eq!(judged(both, &config, None, None), both);
        assert_eq!(judged(both, &config, Some(100), Some(10)), Alarms::default());
    }
}
