//! What the sources are told at the end of a step: settlements, renewals, room.

use std::time::Instant;

use super::{Effect, PipelineId, Pool};

impl Pool {
    /// Tells the sources what the step has decided.
    pub(super) fn tell_sources(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let expected: usize = self.pipelines.iter().map(|one| one.expected_bytes()).sum();
        let mut bytes_left = self.bytes_max.saturating_sub(self.bytes_held + expected);
        for (at, pipeline) in self.pipelines.iter_mut().enumerate() {
            let id = PipelineId(at as u16);
            if !pipeline.settled.is_empty() {
                let settled = std::mem::take(&mut pipeline.settled);
                effects.push(Effect::Settle { pipeline: id, settled });
            }
            if !pipeline.renew.is_empty() {
                let receipts = std::mem::take(&mut pipeline.renew);
                effects.push(Effect::Renew { pipeline: id, receipts });
            }
            if self.stop.is_some() || pipeline.is_paused || self.bytes_held >= self.bytes_max {
                continue;
            }
            let takes = self.targets[pipeline.target].takes(now);
            let jobs = pipeline.room(takes, bytes_left);
            if jobs > 0 {
                let before = pipeline.expected_bytes();
                pipeline.granted += jobs;
                bytes_left = bytes_left.saturating_sub(pipeline.expected_bytes() - before);
                effects.push(Effect::Room { pipeline: id, jobs });
            }
        }
    }
}
