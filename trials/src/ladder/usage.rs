//! What processes have used of the processors, from `/proc`.

use std::collections::BTreeMap;

/// CPU time is told in these, by every Linux that Millrace runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// One line of `/proc/PID/stat`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Of the process, and of its children that are gone.
    ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Field 4 is the parent; 14 to 17 are times; the name, field 2, may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let times = fields.get(11..15)?.iter();
        let ticks = times.filter_map(|field| field.parse::<u64>().ok()).sum();
        Some(Self { parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

pub fn parent(pid: u32) -> Option<u32> {
    Stat::of(pid).map(|stat| stat.parent)
}

/// Seconds of CPU that a process has used, its children left out.
pub fn cpu_of_process(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / TICKS_PER_SECOND
}

/// Seconds of CPU that a process and everything below it have used, the dead among them included.
pub fn cpu_of_tree(root: u32) -> f64 {
    let mut stats = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<u32>().ok();
        if let Some((pid, stat)) = pid.and_then(|pid| Some((pid, Stat::of(pid)?))) {
            stats.insert(pid, stat);
        }
    }
    let ticks = stats.iter().filter(|(pid, _)| is_below(&stats, **pid, root));
    ticks.map(|(_, stat)| stat.ticks).sum::<u64>() as f64 / TICKS_PER_SECOND
}

fn is_below(stats: &BTreeMap<u32, Stat>, mut pid: u32, root: u32) -> bool {
    while pid != root {
        match stats.get(&pid) {
            Some(stat) if stat.parent != pid => pid = stat.parent,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let text = "7 (a ) b) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0";
        assert_eq!(Stat::parse(text), Some(Stat { parent: 3, ticks: 100 }));
    }

    #[test]
    fn a_process_counts_only_below_its_ancestors() {
        let stat = |parent| Stat { parent, ticks: 0 };
        let stats = BTreeMap::from([(2, stat(1)), (3, stat(2)), (4, stat(1))]);
        assert!(is_below(&stats, 3, 2));
        assert!(!is_below(&stats, 4, 2));
    }
}
