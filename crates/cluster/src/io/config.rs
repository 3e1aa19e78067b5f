//! What a node is started with.

use std::path::PathBuf;

use machine::Version;

use crate::membership::PeerConfig;

/// How to start a node.
#[derive(Clone, Debug)]
pub struct Config {
    pub data_dir: PathBuf,
    /// Data groups of a new directory; an old one keeps its own.
    pub groups: u32,
    /// Threads that own groups.
    pub shards: usize,
    /// Size of one file of the log.
    pub wal_file_bytes: u64,
    /// The longest that a commit waits for more before it is written, in microseconds; 0: it never waits.
    pub commit_delay_us: u64,
    /// Publishers wait while the process holds more memory than this, in bytes.
    pub memory_limit: u64,
    /// Publishers wait while the disk has less free than this, in bytes.
    pub disk_free_limit: u64,
    /// Drawn by the caller; the identity of a directory that is new and of no cluster.
    pub new_cluster: u128,
    /// A group confirms nothing while its replicas differ.
    pub reconcile_stop: bool,
    /// The other nodes. `None`: this one is alone.
    pub peers: Option<PeerConfig>,
    /// The node reads and writes no newer version than this, so its cluster agrees on none. `Version::NEWEST`, or
    /// `Version::TRIAL` in trials of upgrades.
    pub version_max: Version,
}
