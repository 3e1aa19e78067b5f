//! The core's orders about failures, by what a database does of each kind at once.

use std::collections::BTreeSet;

use crate::config::OnDead;
use crate::error::Error;
use crate::stream::{Failure, NextAttempt, Output};

/// They are done in the order of the fields.
#[derive(Debug, Default)]
pub(in crate::io) struct Orders {
    pub(in crate::io) stores: Vec<Failure>,
    pub(in crate::io) retries: Vec<Failure>,
    /// Rows that are no failures any more.
    pub(in crate::io) removed: Vec<String>,
    /// Keys whose next row may be due.
    pub(in crate::io) keys: Vec<String>,
    pub(in crate::io) asked: Vec<Asked>,
}

/// What the core wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Asked {
    Due,
    Swept,
}

impl Orders {
    /// # Errors
    /// The core gives up: the session ends at that, and hands it to nobody.
    pub(in crate::io) fn of(outputs: Vec<Output>, on_dead: OnDead) -> Result<Self, Error> {
        let mut orders = Self::default();
        let mut keys = BTreeSet::new();
        for output in outputs {
            match output {
                Output::Store(failure) => orders.stores.push(failure),
                Output::Retry(failure) => {
                    if failure.next == NextAttempt::Never && on_dead != OnDead::Block {
                        keys.extend(failure.key.clone());
                    }
                    orders.retries.push(failure);
                }
                Output::Remove { row_id, key } => {
                    orders.removed.push(row_id);
                    keys.extend(key);
                }
                Output::FetchDue => orders.asked.push(Asked::Due),
                Output::Sweep => orders.asked.push(Asked::Swept),
                Output::GiveUp(error) => return Err(error),
            }
        }
        orders.keys = keys.into_iter().collect();
        Ok(orders)
    }
}
