//! What a worker is made of: the settings of its pool, its sources and its targets.

use std::sync::Arc;
use std::time::Duration;

use crate::io::source::Source;
use crate::io::target::Target;
use crate::pool::Settings;

use super::errands::Errands;

/// What a worker is made of. Pipelines and targets are in the order of their settings.
pub struct Plan {
    pub settings: Settings,
    pub pipelines: Vec<PlanPipeline>,
    pub targets: Vec<PlanTarget>,
    /// How long runs may go on once the worker is asked to stop.
    pub grace: Duration,
    pub errands: Errands,
}

/// Where the jobs of a pipeline come from.
pub struct PlanPipeline {
    pub source: Box<dyn Source>,
}

/// Who executes jobs.
pub struct PlanTarget {
    pub target: Arc<dyn Target>,
    /// What it is, for the screen: `webhook`, `apns`, `handlers`.
    pub kind: String,
}

impl Plan {
    /// What is wrong with it, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.settings.problems();
        if self.settings.pipelines.is_empty() {
            problems.push("there is no pipeline: nothing would be done".to_owned());
        }
        problems
    }
}

/// Jobs of one run of each target: what its settings allow, and what it takes.
pub(super) fn run_jobs_max(settings: &Settings, targets: &[PlanTarget]) -> Vec<usize> {
    let both = settings.targets.iter().zip(targets);
    both.map(|(limits, one)| one.target.run_jobs_max().min(limits.run_jobs_max)).collect()
}

/// The settings of a pool whose targets take at most so many jobs in a run.
pub(super) fn held_to(mut settings: Settings, run_jobs_max: &[usize]) -> Settings {
    for (limits, most) in settings.targets.iter_mut().zip(run_jobs_max) {
        limits.run_jobs_max = *most;
    }
    settings
}
