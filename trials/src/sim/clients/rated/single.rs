//! What a session does for a consumer that is elected for all partitions: it tells them, and gives credit then. And what
//! is judged of it.
//!
//! | What is judged | When |
//! | --- | --- |
//! | S1: of several consumers one is served, by all partitions, as long as it is there | while all is drained, from a few seconds on |

use machine::SessionId;

use super::plan::PLANS;
use crate::sim::agenda::Micros;

/// What was on its way when the drain began has come after so long, and leaders have heard of each other.
const SETTLED: Micros = 5_000_000;

/// How far the partitions know that a consumer is elected.
#[derive(Default)]
pub(super) struct Told {
    /// 0: another one is.
    pub(super) generation: u64,
    /// The partitions that do not know yet, the next one last.
    untold: Vec<usize>,
    /// The question that the next one has not answered.
    asked: Option<u64>,
}

impl Told {
    pub(super) fn elected(&mut self, generation: u64, partitions: usize) {
        let mut untold = vec![0];
        untold.extend((1..partitions).rev());
        *self = Self { generation, untold, asked: None };
    }

    /// The partition that is to be told, once all serve it.
    pub(super) fn next(&self) -> Option<usize> {
        self.untold.last().copied().filter(|_| self.asked.is_none())
    }

    pub(super) fn ask(&mut self, ticket: u64) {
        self.asked = Some(ticket);
    }

    /// An answer. True: all partitions know, so that it may give credit.
    pub(super) fn answered(&mut self, ticket: u64, knows: bool) -> bool {
        if self.asked != Some(ticket) {
            return false;
        }
        self.asked = None;
        if knows {
            self.untold.pop();
        }
        self.is_active() && knows
    }

    /// Whether it may have credit.
    pub(super) fn is_active(&self) -> bool {
        self.generation > 0 && self.untold.is_empty()
    }
}

/// Who is served by the queues that serve one.
#[derive(Default)]
pub(super) struct Served {
    since: Option<Micros>,
    by_plan: [Option<SessionId>; PLANS.len()],
}

impl Served {
    /// Nobody fails from here on.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Time passes while that is so.
    pub(super) fn look(&mut self, now: Micros) {
        self.since.get_or_insert(now);
    }

    /// A consumer is sent something. Gives what is wrong with that.
    pub(super) fn comes(
        &mut self,
        queue: usize,
        to: SessionId,
        is_there: impl Fn(SessionId) -> bool,
        now: Micros,
    ) -> Option<String> {
        let is_settled = self.since.is_some_and(|since| now - since > SETTLED);
        if !PLANS[queue].is_single || !is_settled {
            return None;
        }
        let before = self.by_plan[queue].replace(to).filter(|it| *it != to && is_there(*it))?;
        let name = PLANS[queue].name;
        Some(format!("{name} serves session {} beside session {}, which is there", to.0, before.0))
    }
}
