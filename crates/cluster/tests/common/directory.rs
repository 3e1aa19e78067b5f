//! Directories of a test's own, and nodes in them.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use cluster::{ClusterHandle, Config, Failure, start};

/// Removed with the test.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node that a test which fails stops: one that outlives its directory would end the process, and what failed would not
/// be told.
pub(crate) struct Running(ClusterHandle);

impl Deref for Running {
    type Target = ClusterHandle;

    fn deref(&self) -> &ClusterHandle {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// A node with small log files, in two shards.
pub(crate) fn node(path: &Path) -> Running {
    let config = Config {
        data_dir: path.to_owned(),
        groups: 3,
        shards: 2,
        wal_file_bytes: 1 << 20,
        commit_delay_us: 300,
        memory_limit: u64::MAX,
        disk_free_limit: 0,
        new_cluster: 7,
        version_max: machine::Version::NEWEST,
        reconcile_stop: false,
        peers: None,
    };
    Running(start(&config, &Failure::new(|_, why| panic!("{why}"))).unwrap())
}
