//! Whether a fetch has to look at failures: what the workers of one relay know together.
//!
//! Mostly nothing has failed, and a fetch is spared the look. It is a promise to others of a dead row's key that a fetch
//! looks whenever something has: so this errs towards a look. "None" counts only if nobody was writing failures down
//! when it was asked, nor since; "some" always does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Begins with "some": nobody has asked yet.
#[derive(Debug)]
pub(in crate::io) struct Failures {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    has_some: bool,
    /// Whoever is between the first statement about failures and the end of that transaction.
    writers: u32,
    /// Raised by everything that makes an older "none" void.
    turn: u64,
}

/// When the database was asked; none: its answer says nothing, as somebody was writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) struct Asked(Option<u64>);

/// Somebody is writing failures down, until this is dropped: after the commit.
#[derive(Debug)]
pub(in crate::io) struct Writing(Arc<Failures>);

impl Default for Failures {
    fn default() -> Self {
        Self { state: Mutex::new(State { has_some: true, writers: 0, turn: 0 }) }
    }
}

impl Failures {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something has failed that may keep rows back.
    pub(in crate::io) fn has_some(&self) -> bool {
        self.state().has_some
    }

    /// To be held from before the first failure is written until its transaction has ended.
    pub(in crate::io) fn write(self: &Arc<Self>) -> Writing {
        let mut state = self.state();
        state.has_some = true;
        state.writers += 1;
        Writing(Arc::clone(self))
    }

    /// Before the database is asked.
    pub(in crate::io) fn ask(&self) -> Asked {
        let state = self.state();
        Asked((state.writers == 0).then_some(state.turn))
    }

    /// Somebody came upon some.
    pub(in crate::io) fn found(&self) {
        let mut state = self.state();
        state.has_some = true;
        // Whoever asked earlier, and heard that there were none, may answer later.
        state.turn += 1;
    }

    /// What the database said to a question that was asked `then`.
    pub(in crate::io) fn answered(&self, then: Asked, has_some: bool) {
        if has_some {
            return self.found();
        }
        let mut state = self.state();
        if state.writers == 0 && then.0 == Some(state.turn) {
            state.has_some = false;
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.0.state();
        // Whoever asked meanwhile has not seen what is committed now.
        state.has_some = true;
        state.writers -= 1;
        state.turn += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Arc<Failures> {
        let failures = Arc::new(Failures::default());
        failures.answered(failures.ask(), false);
        assert!(!failures.has_some());
        failures
    }

    #[test]
    fn there_may_be_some_until_the_database_says_that_there_are_none() {
        assert!(Failures::default().has_some());
        let failures = none();
        failures.answered(failures.ask(), true);
        assert!(failures.has_some());
    }

    #[test]
    fn what_is_asked_while_somebody_writes_is_no_proof_that_there_are_none() {
        let failures = none();
        let before = failures.ask();
        let writing = failures.write();
        let meanwhile = failures.ask();
        failures.answered(before, false);
        assert!(failures.has_some());
        failures.answered(meanwhile, false);
        assert!(failures.has_some());
        drop(writing);
        // Their answers may come late.
        failures.answered(before, false);
        failures.answered(meanwhile, false);
        assert!(failures.has_some());
        failures.answered(failures.ask(), false);
        assert!(!failures.has_some());
    }

    #[test]
    fn who_heard_of_some_is_not_unheard_by_who_asked_before() {
        let failures = none();
        let (first, second) = (failures.ask(), failures.ask());
        failures.answered(second, true);
        failures.answered(first, false);
        assert!(failures.has_some());
        let failures = Arc::new(Failures::default());
        let (first, second) = (failures.ask(), failures.ask());
        failures.answered(first, false);
        failures.answered(second, true);
        assert!(failures.has_some());
    }

    #[test]
    fn two_may_write_at_a_time() {
        let failures = none();
        let (first, second) = (failures.write(), failures.write());
        drop(first);
        failures.answered(failures.ask(), false);
        assert!(failures.has_some());
        drop(second);
        failures.answered(failures.ask(), false);
        assert!(!failures.has_some());
    }
}
