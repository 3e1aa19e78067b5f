//! What can be read of a pool: for metrics, `status` and `top`, and the simulation.

use std::fmt;
use std::time::Instant;

use super::breaker::Breaker;
use super::pipeline::Proof;
use super::target::Outcomes;
use super::{PipelineId, Pool, TargetId};

/// A pipeline, now.
#[derive(Clone, Copy, Debug)]
pub struct PipelineStatus<'a> {
    pub id: PipelineId,
    pub name: &'a str,
    pub target: TargetId,
    /// The jobs that have left, by how they left.
    pub proof: Proof,
    /// Jobs that wait for their start.
    pub waiting: usize,
    /// Jobs that run.
    pub running: usize,
    /// Jobs that the source has been told to settle, and has not yet.
    pub settling: usize,
    /// When the oldest job in hand was taken.
    pub oldest: Option<Instant>,
    /// Jobs that the source may take now.
    pub room: usize,
    /// Keys that are remembered.
    pub keys: usize,
    pub is_paused: bool,
}

/// A target, now.
#[derive(Clone, Copy, Debug)]
pub struct TargetStatus<'a> {
    pub id: TargetId,
    pub name: &'a str,
    /// Runs that go on.
    pub running: usize,
    /// Runs per second that it may start: the set rate, or this process's share; none: no limit.
    pub rate: Option<f64>,
    pub breaker: Breaker,
    /// Nothing starts before this. May be over.
    pub throttled_until: Option<Instant>,
    /// Why it has stopped.
    pub stopped: Option<&'a str>,
    pub outcomes: Outcomes,
}

impl Pool {
    /// Every pipeline, in the order of the settings.
    pub fn pipelines(&self) -> impl Iterator<Item = PipelineStatus<'_>> {
        self.pipelines.iter().enumerate().map(|(at, one)| {
            let oldest = one.receipts.first_key_value().map(|(_, id)| self.held.at(*id).taken_at);
            PipelineStatus {
                id: PipelineId(at as u16),
                name: &one.settings.name,
                target: TargetId(one.target as u16),
                proof: one.proof,
                waiting: one.waiting,
                running: one.running,
                settling: one.held() - one.waiting - one.running,
                oldest,
                room: one.granted,
                keys: one.keys.count(),
                is_paused: one.is_paused,
            }
        })
    }

    /// Every target, in the order of the settings.
    pub fn targets(&self) -> impl Iterator<Item = TargetStatus<'_>> {
        self.targets.iter().enumerate().map(|(at, one)| TargetStatus {
            id: TargetId(at as u16),
            name: &one.settings.name,
            running: one.running,
            rate: one.rate(),
            breaker: one.breaker,
            throttled_until: one.throttled_until(),
            stopped: one.stopped.as_deref(),
            outcomes: one.outcomes,
        })
    }

    /// What has become of all jobs, of all pipelines.
    pub fn proof(&self) -> Proof {
        self.pipelines.iter().fold(Proof::default(), |all, one| all.plus(&one.proof))
    }

    /// Bytes of the bodies of the jobs in hand.
    pub fn bytes_held(&self) -> usize {
        self.bytes_held
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.proof())?;
        for one in self.pipelines() {
            let PipelineStatus { name, waiting, running, settling, room, keys, is_paused, .. } =
                one;
            write!(out, "; {name}: {waiting} wait, {running} run, {settling} settle, room {room}")?;
            if keys > 0 {
                write!(out, ", {keys} keys")?;
            }
            if is_paused {
                write!(out, ", paused")?;
            }
        }
        for one in self.targets() {
            write!(out, "; {}: {} runs, ", one.name, one.running)?;
            match one.breaker {
                Breaker::Closed { failures } => write!(out, "closed ({failures} failed)")?,
                Breaker::Open { .. } => write!(out, "open")?,
                Breaker::HalfOpen { is_trying } => write!(out, "half open (trying: {is_trying})")?,
            }
            if let Some(why) = one.stopped {
                write!(out, ", stopped: {why}")?;
            }
        }
        if self.stop.is_some() {
            write!(out, "; stopping")?;
        }
        Ok(())
    }
}
