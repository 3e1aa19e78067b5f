//! How many connections a node may have: each is an open file, and the store needs some, too.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Open files that are left for the store, however few there are: its log, segments, and the other nodes.
const KEPT: u64 = 64;

/// A node with fewer connections than this says so.
const FEW: usize = 4096;

/// Takes as many open files as the system gives.
pub(super) fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(
            "cannot raise the limit of open files; the node runs with the present limit: {error}"
        );
    }
}

/// How many files and sockets are open. `None`: that cannot be looked at, because no file can be opened.
pub(super) fn open() -> Option<u64> {
    // One of them is the look.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

/// How many may be. `None`: there is no limit.
pub(super) fn max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Connections that the node may have.
pub(super) fn connections() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let connections = connections_of(files);
    if connections < FEW {
        tracing::warn!(
            connections,
            open_files = files,
            "the limit of open files allows only few connections: raise it (ulimit -n, LimitNOFILE)"
        );
    }
    connections
}

/// Nine tenths, but for what the store needs. `None` is no limit.
fn connections_of(files: Option<u64>) -> usize {
    let files = files.unwrap_or(u64::MAX);
    let kept = (files / 10).max(KEPT.min(files / 2));
    usize::try_from(files - kept).unwrap_or(usize::MAX).min(broker::limits::CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_for_the_store_however_few_there_are() {
        assert_eq!(connections_of(None), broker::limits::CONNECTIONS_MAX);
        assert_eq!(connections_of(Some(1 << 20)), broker::limits::CONNECTIONS_MAX);
        assert_eq!(connections_of(Some(1024)), 1024 - 102);
        assert_eq!(connections_of(Some(256)), 256 - 64);
        assert_eq!(connections_of(Some(100)), 50);
    }
}
