//! Targets: who executes jobs.

pub mod apns;
pub mod fanout;
pub mod fcm;
pub mod getui;
pub mod huawei;
pub mod program;
pub mod push;
pub mod session;
pub mod webhook;
pub mod xiaomi;

use std::sync::Arc;
use std::time::Instant;

use crate::io::source::BoxFuture;
use crate::job::Message;
use crate::outcome::Outcome;

/// One execution.
#[derive(Debug)]
pub struct Run {
    /// At least one; more only where [`Target::run_jobs_max`] allows it, all of one group.
    pub jobs: Vec<Message>,
    /// Answer by then: the worker drops the future after it, and takes it for a retry.
    pub deadline: Instant,
}

/// Who executes jobs. Shared by all runs: it holds its connections and credentials.
pub trait Target: Send + Sync + 'static {
    /// How many jobs one run may have.
    fn run_jobs_max(&self) -> usize {
        1
    }

    /// Jobs with an equal group may share a run; none: the job goes alone.
    fn group(&self, _job: &Message) -> Option<u64> {
        None
    }

    /// Executes the jobs; gives one outcome for each, in their order. May be dropped at any await.
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>>;

    /// Looks whether the settings work (credentials, addresses), without executing anything: for `doctor`.
    fn check(self: Arc<Self>) -> BoxFuture<Result<String, crate::Error>>;
}
