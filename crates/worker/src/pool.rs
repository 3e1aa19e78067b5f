//! The manager: which job may start when, and what follows an outcome. A core: told the time, the jobs and the
//! outcomes, it says what is to be done. It holds no message of a job that runs.

#[allow(dead_code, reason = "the pool that uses it follows")]
mod bucket;
#[allow(dead_code, reason = "the pool that uses it follows")]
mod settings;

use std::time::{Duration, Instant};

pub use settings::{BreakerSettings, Order, PipelineSettings, Settings, TargetSettings};

use crate::job::{Job, Message, Receipt};
use crate::outcome::Outcome;
use crate::settlement::Settled;

/// A pipeline: one queue of one source, and the target that executes its jobs. Its place in the list of pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineId(pub u16);

/// A target: its place in the list of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u16);

/// One execution of one job, or of several that go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// What happens to a pool.
#[derive(Debug)]
pub enum Input {
    /// A source took jobs. They count against the room it was given.
    Took { pipeline: PipelineId, jobs: Vec<Job> },
    /// A run is over: one outcome for each of its jobs, in their order.
    Finished { run: RunId, outcomes: Vec<Outcome> },
    /// The source has carried out settlements: what the proof counts.
    Settled { pipeline: PipelineId, receipts: Vec<Receipt> },
    /// Leases were made longer; one that is missing could not be.
    Renewed { pipeline: PipelineId, leases: Vec<(Receipt, Instant)> },
    /// The source has lost these jobs: somebody else gets them. What has not started is dropped; what runs is
    /// settled in vain.
    Lost { pipeline: PipelineId, receipts: Vec<Receipt> },
    /// The rate that this process may use of a target's, in runs per second; none: all that is set.
    Share { target: TargetId, rate: Option<f64> },
    /// Nothing of this pipeline is started until it is resumed; sources get no room.
    Paused { pipeline: PipelineId, is_paused: bool },
    /// A target whose settings were wrong was mended: it goes on.
    Mended { target: TargetId },
    /// Fetch nothing more. What has not started goes back; what runs has until `deadline`.
    Stop { deadline: Instant },
    /// Time has passed: the deadline that the pool told has come.
    Tick,
}

/// What a pool wants done.
#[derive(Debug)]
pub enum Effect {
    /// Execute these jobs together, within the time.
    Start {
        run: RunId,
        pipeline: PipelineId,
        target: TargetId,
        jobs: Vec<Message>,
        deadline: Instant,
    },
    /// The run's time is over: stop it. It is still answered with `Finished`.
    Cancel { run: RunId },
    /// Carry these out at the source.
    Settle { pipeline: PipelineId, settled: Vec<Settled> },
    /// The source may take so many jobs more.
    Room { pipeline: PipelineId, jobs: usize },
    /// Make these leases longer.
    Renew { pipeline: PipelineId, receipts: Vec<Receipt> },
    /// Something that an operator should see, once per change.
    Notice(Notice),
    /// After `Stop`: everything is settled. taken = done + returned + dead + lost.
    Stopped,
}

/// A change of state that is worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    BreakerOpened {
        target: TargetId,
        until: Duration,
        why: String,
    },
    BreakerClosed {
        target: TargetId,
    },
    Throttled {
        target: TargetId,
        until: Duration,
        why: String,
    },
    /// The target has stopped: its settings are wrong.
    TargetStopped {
        target: TargetId,
        why: String,
    },
    JobDead {
        pipeline: PipelineId,
        id: String,
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    /// When a test begins.
    #[allow(clippy::disallowed_methods, reason = "an instant can be made in no other way")]
    pub(super) fn start() -> Instant {
        Instant::now()
    }
}
