//! What the nodes of a cluster have agreed to write.
//!
//! Every program reads and writes a range of versions. The catalog holds the version that the cluster has
//! agreed on, which is at most the newest that each of its members can read. A command, an attribute and a
//! part of a snapshot exist since one version, and are not written before the cluster has agreed on it.
//! See `docs/operating/upgrades.md`.

use std::fmt;

/// A version of the cluster, and of the protocol that nodes speak with each other: one number.
///
/// | version | new in it |
/// | --- | --- |
/// | 3 | nodes say whom they reach |
/// | 4 | the first that a cluster's catalog stands for without saying so |
/// | 5 | the catalog holds the version: `RaiseVersion`, and format 3 of its snapshot |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

impl Version {
    /// The oldest that this program speaks.
    pub const OLDEST: Self = Self(3);
    /// What a catalog stands at that holds no version.
    pub const FIRST: Self = Self(4);
    /// The newest that this program reads and writes.
    pub const NEWEST: Self = if cfg!(next_version) { Self(6) } else { Self(5) };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
