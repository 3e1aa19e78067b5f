//! Why a node does not start, and why it ends by itself.

use std::sync::Arc;

use wal::Error;

/// Why a node does not start: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The data directory cannot be used.
    Directory(Error),
    /// The configuration does not fit the data directory, or the peer port is not free.
    Cluster(String),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Directory(error)
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(error) => write!(out, "the data directory cannot be used: {error}"),
            Self::Cluster(why) => out.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a node ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A write or a sync failed, or what was read is damaged.
    Disk,
    /// The log has what this program is too old to read.
    Outdated,
}

/// Told why the node ends, at the first reason; is expected to end the process.
#[derive(Clone)]
pub struct Failure(Arc<Tell>);

type Tell = dyn Fn(Cause, &str) + Send + Sync;

impl Failure {
    /// Calls `tell` with a sentence for the operator.
    pub fn new(tell: impl Fn(Cause, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Does not come back: a node that cannot write must not look as if it could.
    pub(crate) fn tell(&self, error: &Error) -> ! {
        self.end(Cause::Disk, &error.to_string())
    }

    /// Does not come back: what comes after in the log may hang on what cannot be read.
    pub(crate) fn tell_outdated(&self, why: &str) -> ! {
        self.end(Cause::Outdated, why)
    }

    fn end(&self, cause: Cause, why: &str) -> ! {
        (self.0)(cause, why);
        std::process::abort();
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Failure")
    }
}
