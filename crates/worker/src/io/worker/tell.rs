//! What a worker's operator is told: a line for each change of state, and the gauges that go with it.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::pool::Notice;

use super::Shell;

/// Dead jobs of a pipeline are told so often: there may be thousands.
const DEAD_EVERY: Duration = Duration::from_secs(10);

impl Shell {
    pub(super) fn tell(&mut self, notice: Notice) {
        match notice {
            Notice::BreakerOpened { target, until, why } => {
                let goal = &self.goals[usize::from(target.0)];
                let seconds = until.as_secs_f64();
                tracing::warn!(
                    target_name = goal.name,
                    %why,
                    "target fails; nothing is started there for {seconds:.1} s, then one job tries"
                );
                goal.meters.breaker(Some(why));
            }
            Notice::BreakerClosed { target } => {
                let goal = &self.goals[usize::from(target.0)];
                tracing::info!(target_name = goal.name, "target works again");
                goal.meters.breaker(None);
            }
            Notice::Throttled { target, until, why } => {
                let goal = &self.goals[usize::from(target.0)];
                let seconds = until.as_secs_f64();
                tracing::warn!(
                    target_name = goal.name,
                    %why,
                    "target asks for less; nothing is started there for {seconds:.1} s"
                );
                goal.meters.throttled(until, &why);
            }
            Notice::TargetStopped { target, why } => {
                let goal = &self.goals[usize::from(target.0)];
                tracing::error!(
                    target_name = goal.name,
                    %why,
                    "target has stopped: its credentials or settings are wrong; its jobs wait at their source; \
                     correct the configuration and send SIGHUP"
                );
                goal.meters.stopped(Some(why));
            }
            Notice::JobDead { pipeline, id, why } => {
                let line = &mut self.lines[usize::from(pipeline.0)];
                line.dead_untold += 1;
                let now = Instant::now();
                if line.dead_told.is_some_and(|at| now - at < DEAD_EVERY) {
                    return;
                }
                let dead = std::mem::take(&mut line.dead_untold);
                line.dead_told = Some(now);
                tracing::warn!(
                    pipeline = line.name,
                    dead,
                    id,
                    why,
                    "jobs are dead; they are set aside, and `millrace work replay` brings them back; this is the last"
                );
            }
        }
    }

    pub(super) fn tell_paused(&self, pipeline: Option<&str>, is_paused: bool) {
        let pipelines = self.lines.len();
        match (pipeline, is_paused) {
            (None, true) => tracing::info!(
                pipelines,
                "paused by PUT /pause: no job is fetched or started until DELETE /pause or a restart; running jobs finish"
            ),
            (None, false) => tracing::info!(
                pipelines,
                "resumed by DELETE /pause; pipelines that were paused by themselves stay so"
            ),
            (Some(pipeline), true) => tracing::info!(
                pipeline,
                "paused by PUT /pause/{pipeline}: the pipeline fetches and starts no job until DELETE of the same or a \
                 restart; its running jobs finish"
            ),
            (Some(pipeline), false) if self.is_paused => tracing::info!(
                pipeline,
                "resumed by DELETE /pause/{pipeline}; it rests until DELETE /pause, as all of the worker does"
            ),
            (Some(pipeline), false) => {
                tracing::info!(pipeline, "resumed by DELETE /pause/{pipeline}")
            }
        }
    }

    pub(super) fn away(&self, line: usize, why: String) {
        let line = &self.lines[line];
        tracing::warn!(pipeline = line.name, %why, "source is away; connecting again");
        line.meters.away(Some(why));
    }

    pub(super) fn back(&self, line: usize) {
        let line = &self.lines[line];
        tracing::info!(pipeline = line.name, "source connected");
        line.meters.away(None);
    }

    pub(super) fn tell_ended(&self, line: usize, error: &Error) {
        let line = &self.lines[line];
        tracing::error!(
            pipeline = line.name,
            %error,
            "source cannot go on; this pipeline has stopped, others go on; correct its settings and start again"
        );
        line.meters.source_ended(&error.to_string());
    }
}
