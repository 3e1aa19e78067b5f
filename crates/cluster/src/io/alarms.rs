//! Watches memory and disk space, and raises the alarms that hold publishers back.

use std::time::Duration;

use super::config::Config;
use super::handle::Node;
use crate::described::Resources;
use crate::request::Alarms;

/// How often is looked.
const PERIOD: Duration = Duration::from_millis(250);

/// Log files for which there must be room.
const LOG_FILES_FREE: u64 = 2;

/// Looks until the node stops; `alarms` is what the first look found.
pub(crate) fn run(node: &Node, config: &Config, mut alarms: Alarms) {
    while !node.is_stopping() {
        std::thread::park_timeout(PERIOD);
        alarms = look(node, config, alarms);
    }
}

/// Looks once. Before a node takes anything, so that nothing is published to one that has no room.
pub(crate) fn look(node: &Node, config: &Config, before: Alarms) -> Alarms {
    let (resident, free) = (resident_bytes(), free_bytes(config));
    let alarms = judged(before, config, resident, free);
    node.set_resources(Resources {
        memory_bytes: resident,
        memory_limit_bytes: config.memory_limit,
        disk_free_bytes: free,
        disk_free_limit_bytes: disk_limit(config),
    });
    node.set_alarms(Alarms { disk: alarms.disk || node.is_short(), ..alarms });
    for line in words(before, alarms, config, resident, free) {
        tracing::warn!("{line}");
    }
    alarms
}

/// What cannot be looked at, because no file can be opened, stays as it was.
fn judged(before: Alarms, config: &Config, held: Option<u64>, free: Option<u64>) -> Alarms {
    Alarms {
        memory: held.map_or(before.memory, |bytes| bytes > config.memory_limit),
        disk: free.map_or(before.disk, |bytes| bytes < disk_limit(config)),
    }
}

/// Whatever is configured: what was accepted already must fit the log.
fn disk_limit(config: &Config) -> u64 {
    config.disk_free_limit.max(LOG_FILES_FREE * config.wal_file_bytes)
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

/// What there is to say of a change: what happened, the numbers, what the node does now, and what can be done.
fn words(
    before: Alarms,
    after: Alarms,
    config: &Config,
    resident: Option<u64>,
    free: Option<u64>,
) -> Vec<String> {
    let mut lines = Vec::new();
    let (dir, limit) = (config.data_dir.display(), mebibytes(Some(disk_limit(config))));
    let free = mebibytes(free);
    match (before.disk, after.disk) {
        (false, true) => lines.push(format!(
            "disk alarm: {free} are free for {dir}, the limit is {limit} (disk_free_limit, or two log files). \
             Publishers wait, consumers go on. Consume messages, free space on that file system, or set a lower \
             disk_free_limit"
        )),
        (true, false) => lines
            .push(format!("disk alarm over: {free} are free for {dir}. Publishers go on")),
        (true, true) | (false, false) => {}
    }
    let (resident, limit) = (mebibytes(resident), mebibytes(Some(config.memory_limit)));
    match (before.memory, after.memory) {
        (false, true) => lines.push(format!(
            "memory alarm: the process holds {resident}, memory_limit is {limit}. Publishers wait, consumers go on. \
             Consume messages, close unneeded connections, or set a higher memory_limit"
        )),
        (true, false) => lines
            .push(format!("memory alarm over: the process holds {resident}. Publishers go on")),
        (true, true) | (false, false) => {}
    }
    lines
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(
        || "an unknown number of MiB".to_owned(),
        |bytes| format!("{} MiB", bytes >> 20),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_stays_while_nothing_can_be_looked_at() {
        let config = Config {
            version_max: machine::Version::NEWEST,
            reconcile_stop: false,
            data_dir: ".".into(),
            groups: 1,
            shards: 1,
            wal_file_bytes: 5,
            commit_delay_us: 300,
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

    #[test]
    fn an_alarm_says_the_numbers_what_happens_and_what_to_do_and_its_end_says_so() {
        let config = Config {
            version_max: machine::Version::NEWEST,
            reconcile_stop: false,
            data_dir: "/var/lib/millrace".into(),
            groups: 1,
            shards: 1,
            wal_file_bytes: 1,
            commit_delay_us: 300,
            memory_limit: 600 << 20,
            disk_free_limit: 2 << 30,
            new_cluster: 1,
            peers: None,
        };
        let (none, disk) = (Alarms::default(), Alarms { disk: true, memory: false });
        let told = |before, after| words(before, after, &config, Some(700 << 20), Some(17 << 20));
        let [line] = &told(none, disk)[..] else { panic!("one alarm, one line") };
        for part in
            ["17 MiB are free", "/var/lib/millrace", "the limit is 2048 MiB", "Publishers wait"]
        {
            assert!(line.contains(part), "{line}");
        }
        assert!(told(disk, none)[0].contains("disk alarm over"));
        assert!(told(disk, disk).is_empty());
        let memory = Alarms { memory: true, disk: false };
        assert!(told(none, memory)[0].contains("holds 700 MiB, memory_limit is 600 MiB"));
        assert_eq!(told(disk, memory).len(), 2);
    }
}
