//! How much memory a node takes for its own, if nobody says: a share of what the process may have.
//!
//! That is the machine's, or less under a limit: of a container, which sees its own limit at the top of the tree of
//! control groups, or of a service (`MemoryMax` of a systemd unit), which sees the whole tree and stands somewhere below.

use std::path::{Path, PathBuf};

/// Tenths of what the process may have.
const SHARE_TENTHS: u64 = 6;

/// The groups that a process is in: a line each, NUMBER:CONTROLLERS:PATH.
const GROUPS: &str = "/proc/self/cgroup";

/// Where the limits of groups are, and how the file is called: in the tree for all resources, and in that for memory
/// alone, which older systems have.
const ALL: (&str, &str) = ("/sys/fs/cgroup", "memory.max");
const ALONE: (&str, &str) = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes");

/// Bytes that a node takes for its own.
pub(super) fn share() -> u64 {
    let total = rustix::system::sysinfo();
    let total = total.totalram as u64 * u64::from(total.mem_unit.max(1));
    let groups = std::fs::read_to_string(GROUPS).unwrap_or_default();
    let limits = limit_files(&groups);
    let limits = limits
        .iter()
        // The word for no limit is no number.
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    total.min(limits.min().unwrap_or(u64::MAX)) / 10 * SHARE_TENTHS
}

/// The files with the limits of the process's groups: its own, and those of all groups around it.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ALL,
            some if some.split(',').any(|controller| controller == "memory") => ALONE,
            _ => continue,
        };
        // A group outside of what the process sees begins with `..`, and is not to be found there.
        let own = Path::new(path.trim_start_matches('/'));
        files.extend(own.ancestors().map(|group| Path::new(root).join(group).join(file)));
    }
    // A container may not see which group it is in.
    files.extend([ALL, ALONE].map(|(root, file)| Path::new(root).join(file)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(groups: &str) -> Vec<String> {
        limit_files(groups).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_limit_of_a_service_is_found_and_those_of_what_is_around_it() {
        let files = shown("0::/system.slice/millrace.service\n");
        for group in ["system.slice/millrace.service/", "system.slice/", ""] {
            let file = format!("/sys/fs/cgroup/{group}memory.max");
            assert!(files.contains(&file), "{file} is not among {files:?}");
        }
    }

    #[test]
    fn a_tree_for_memory_alone_is_looked_at_where_the_process_is() {
        let files = shown("9:cpu:/other\n4:hugetlb,memory:/box/17\n0::/\nnonsense\n");
        assert!(files.contains(&"/sys/fs/cgroup/memory/box/17/memory.limit_in_bytes".to_owned()));
        assert!(!files.iter().any(|file| file.contains("other")), "{files:?}");
    }

    #[test]
    fn a_container_that_sees_no_group_looks_at_the_top() {
        let files = shown("");
        assert_eq!(
            files,
            ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
    }
}
