//! The runs that go on, and when their time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::RunId;
use super::held::HeldId;

/// Why a run was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Its own time is over.
    Timeout,
    /// The process stops.
    Stop,
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) pipeline: usize,
    pub(super) first: HeldId,
    /// The others, where several go together.
    pub(super) rest: Vec<HeldId>,
    deadline: Instant,
    pub(super) cut: Option<Cut>,
    /// It tries whether the target is well again.
    pub(super) is_trying: bool,
}

/// All runs that go on.
#[derive(Debug, Default)]
pub(super) struct Runs {
    last: u64,
    runs: BTreeMap<RunId, Run>,
    /// Of those that were not told to stop.
    deadlines: BTreeSet<(Instant, RunId)>,
}

impl Runs {
    pub(super) fn start(
        &mut self,
        pipeline: usize,
        first: HeldId,
        rest: Vec<HeldId>,
        deadline: Instant,
        is_trying: bool,
    ) -> RunId {
        self.last += 1;
        let id = RunId(self.last);
        let run = Run { pipeline, first, rest, deadline, cut: None, is_trying };
        self.runs.insert(id, run);
        self.deadlines.insert((deadline, id));
        id
    }

    /// A run is over.
    pub(super) fn finish(&mut self, id: RunId) -> Option<Run> {
        let run = self.runs.remove(&id)?;
        if run.cut.is_none() {
            self.deadlines.remove(&(run.deadline, id));
        }
        Some(run)
    }

    /// The next run whose time is over. It is told once.
    pub(super) fn cut_late(&mut self, now: Instant) -> Option<RunId> {
        let (at, id) = *self.deadlines.first().filter(|(at, _)| *at <= now)?;
        self.deadlines.remove(&(at, id));
        self.runs.get_mut(&id).expect("a deadline is of a run that goes on").cut =
            Some(Cut::Timeout);
        Some(id)
    }

    /// Cuts all runs, because the process stops: those to tell.
    pub(super) fn cut_all(&mut self) -> Vec<RunId> {
        let told = std::mem::take(&mut self.deadlines).into_iter().map(|(_, id)| id).collect();
        self.runs.values_mut().for_each(|run| run.cut = Some(Cut::Stop));
        told
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
