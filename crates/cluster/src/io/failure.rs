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
    /// A file of the data directory is not as this node wrote it, and not damaged: something else has written it.
    Directory,
    /// The log has what this program is too old to read.
    Outdated,
}

/// The callback that hears why the node ends, at the first reason. It has to end the process.
#[derive(Clone)]
pub struct Failure(Arc<Tell>);

type Tell = dyn Fn(Cause, &str) + Send + Sync;

impl Failure {
    /// Calls `report` with a sentence for the operator.
    pub fn new(report: impl Fn(Cause, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    /// Does not come back: a node that cannot write must not look as if it could.
    pub(crate) fn report(&self, error: &Error) -> ! {
        let cause = match error {
            Error::Refused { .. } => Cause::Directory,
            Error::Disk { .. }
            | Error::Damaged { .. }
            | Error::Gone
            | Error::TooLarge { .. }
            | Error::CheckpointTooLarge { .. } => Cause::Disk,
        };
        self.end(cause, &error.to_string())
    }

    /// Ends the process: later entries of the log may depend on the one that this program cannot read.
    pub(crate) fn report_outdated(&self, why: &str) -> ! {
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

    use super::*;

    fn cause_of(error: &Error) -> Cause {
        let failure = Failure::new(|cause, _| panic_any(cause));
        let reported = catch_unwind(AssertUnwindSafe(|| failure.report(error)));
        *reported.unwrap_err().downcast().expect("it was given a reason")
    }

    #[test]
    fn a_file_that_something_else_wrote_is_told_from_a_disk_that_failed() {
        let overwritten = Error::Refused { path: "BOOT".into(), why: "it has the number 9".into() };
        assert_eq!(cause_of(&overwritten), Cause::Directory);
        let damaged = Error::Damaged { path: "BOOT".into(), offset: 0, what: "no number".into() };
        assert_eq!(cause_of(&damaged), Cause::Disk);
    }
}
