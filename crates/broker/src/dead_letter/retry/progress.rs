//! How far a retry has come.

use std::collections::BTreeMap;

use super::super::limits::RETRY_TARGETS_MAX;

/// How far a retry has come. Counts are of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub state: State,
    /// Looked at.
    pub seen: u64,
    /// Of these: meant by the plan.
    pub matched: u64,
    /// Stored where they go, and let go of. In a dry run: would be sent on.
    pub sent: u64,
    /// Taken by somebody else in between, or not there.
    pub gone: u64,
    /// Not sent on.
    pub stays: BTreeMap<Stays, u64>,
    /// What goes to which exchange with which key: so many of them as are kept apart.
    pub targets: BTreeMap<(String, String), u64>,
    /// What goes to others.
    pub other_targets: u64,
    /// What it waits for.
    pub waits_for: Option<&'static str>,
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Running,
    /// It is through.
    Done,
    /// Somebody stopped it, or the node stops.
    Stopped,
    /// The queue is gone.
    NoQueue,
}

/// Why a message stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stays {
    /// It does not tell where it died.
    NoDeath,
    /// It has been sent on as often as the plan allows.
    TooOften,
    /// Its target would be an exchange that does not exist.
    NoExchange,
    /// No queue takes it there.
    Unroutable,
    /// It would come to the queue that it lies in.
    SameQueue,
    /// Whoever retries may not publish there.
    NotAllowed,
}

impl Progress {
    pub(super) fn stays(&mut self, why: Stays) {
        *self.stays.entry(why).or_default() += 1;
    }

    pub(super) fn goes(&mut self, exchange: &str, key: &str) {
        let target = (exchange.to_owned(), key.to_owned());
        let is_room = self.targets.len() < RETRY_TARGETS_MAX;
        match self.targets.get_mut(&target) {
            Some(count) => *count += 1,
            None if is_room => drop(self.targets.insert(target, 1)),
            None => self.other_targets += 1,
        }
    }
}
