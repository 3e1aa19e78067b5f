//! What a process has used, from `/proc`.

/// CPU time is told in these, by every Linux that Millrace runs on.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu_s: f64,
    /// Bytes that went, or will go, to a disk.
    pub(super) disk_bytes: u64,
    /// Resident memory now.
    pub(super) rss_bytes: u64,
}

pub(super) fn of(pid: u32) -> Result<Usage, String> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    };
    let (stat, status, io) = (read("stat")?, read("status")?, read("io")?);
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
        disk_bytes: number(&io, "write_bytes:"),
        rss_bytes: number(&status, "VmRSS:") * 1024,
    })
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
    fn cancelled_writes_are_not_taken_for_writes() {
        assert_eq!(number("write_bytes: 6\ncancelled_write_bytes: 7\n", "write_bytes:"), 6);
    }
}
