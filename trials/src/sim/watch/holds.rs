//! Who holds which message, and what is settled, while single nodes fail and nothing else is wrong: nobody gets
//! what a session of a living node holds, and what such a session has settled does not come back.
//!
//! After worse both may happen, for nobody can ask a node that is cut off what its sessions have.

use std::collections::{BTreeMap, BTreeSet};

use machine::{QueueId, SessionId};

use crate::sim::node::home;

/// A message: its level, and its place there.
type Place = (QueueId, u64);

#[derive(Debug, Default)]
pub(in crate::sim) struct Holds {
    is_watching: bool,
    held: BTreeMap<Place, SessionId>,
    settled: BTreeMap<Place, SessionId>,
    /// Deliveries and settles that were watched.
    pub(in crate::sim) judged: u64,
    violations: Vec<String>,
}

impl Holds {
    /// From now on nothing is wrong but that single nodes fail, each for a moment.
    pub(in crate::sim) fn begin(&mut self) {
        self.is_watching = true;
    }

    pub(super) fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// A message of a replicated queue came to a session that is to settle it.
    pub(in crate::sim) fn given(&mut self, place: Place, to: SessionId, id: &str) {
        if !self.is_watching {
            return;
        }
        self.judged += 1;
        let (queue, seq) = place;
        if let Some(by) = self.settled.get(&place) {
            self.violations.push(format!(
                "{id} ({seq} of queue {}) was settled by {by:?}, which lives, and comes back",
                queue.0
            ));
        }
        if let Some(other) = self.held.insert(place, to) {
            self.violations.push(format!(
                "{id} ({seq} of queue {}) comes to {to:?}, and is held by {other:?}, which lives",
                queue.0
            ));
        }
    }

    /// What was settled of a queue, by sessions that live.
    pub(in crate::sim) fn settled_of(&self, queue: QueueId) -> BTreeSet<Place> {
        let settled = self.settled.keys().filter(|(level, _)| level.base() == queue);
        settled.copied().collect()
    }

    /// A leader shows a message as ready to somebody who looks at it. `settled` was so when it was asked.
    pub(in crate::sim) fn shown_ready(
        &mut self,
        place: Place,
        id: &str,
        settled: &BTreeSet<Place>,
    ) {
        let (queue, seq) = place;
        if let Some(by) = self.settled.get(&place).filter(|_| settled.contains(&place)) {
            self.violations.push(format!(
                "{id} ({seq} of queue {}) was settled by {by:?}, which lives, and is shown as ready",
                queue.0
            ));
        }
    }

    /// Who holds it lets go of it.
    pub(in crate::sim) fn let_go(&mut self, place: Place, by: SessionId, is_final: bool) {
        if !self.is_watching {
            return;
        }
        self.judged += 1;
        // What it held before may have been given to another since.
        if self.held.remove(&place) == Some(by) && is_final {
            self.settled.insert(place, by);
        }
    }

    /// The sessions of `node` are no more, and what they said last may not be known.
    pub(in crate::sim) fn gone(&mut self, node: usize) {
        self.held.retain(|_, session| home(*session) != node);
        self.settled.retain(|_, session| home(*session) != node);
    }

    /// A session is over: what it held goes back, what it settled is settled.
    pub(in crate::sim) fn left(&mut self, session: SessionId) {
        self.held.retain(|_, by| *by != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = (QueueId(7), 3);
    const ANN: SessionId = SessionId(1 << 48 | 1);
    const BOB: SessionId = SessionId(2 << 48 | 1);

    fn watching() -> Holds {
        let mut holds = Holds::default();
        holds.begin();
        holds
    }

    #[test]
    fn what_a_living_session_holds_is_not_given_to_another() {
        let mut holds = watching();
        holds.given(PLACE, ANN, "a:1");
        holds.let_go(PLACE, ANN, false);
        holds.given(PLACE, BOB, "a:1");
        assert!(holds.take_violations().is_empty(), "it was given back");
        holds.given(PLACE, ANN, "a:1");
        assert_eq!(holds.take_violations().len(), 1);
    }

    #[test]
    fn what_a_living_session_settled_does_not_come_back() {
        let mut holds = watching();
        holds.given(PLACE, ANN, "a:1");
        holds.let_go(PLACE, ANN, true);
        holds.given(PLACE, BOB, "a:1");
        assert_eq!(holds.take_violations().len(), 1);
    }

    #[test]
    fn what_was_settled_before_somebody_looks_is_not_shown_as_ready() {
        let mut holds = watching();
        holds.given(PLACE, ANN, "a:1");
        let before = holds.settled_of(PLACE.0);
        holds.let_go(PLACE, ANN, true);
        holds.shown_ready(PLACE, "a:1", &before);
        assert!(holds.take_violations().is_empty(), "it was shown before");
        holds.shown_ready(PLACE, "a:1", &holds.settled_of(PLACE.0));
        assert_eq!(holds.take_violations().len(), 1);
    }

    #[test]
    fn with_its_node_everything_of_a_session_may_be_forgotten() {
        let mut holds = watching();
        holds.given(PLACE, ANN, "a:1");
        holds.given((QueueId(7), 4), ANN, "a:2");
        holds.let_go(PLACE, ANN, true);
        holds.gone(0);
        holds.given(PLACE, BOB, "a:1");
        holds.given((QueueId(7), 4), BOB, "a:2");
        assert!(holds.take_violations().is_empty());
    }
}
