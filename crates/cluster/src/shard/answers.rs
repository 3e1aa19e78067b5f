//! Answers to those who waited for an entry.

use super::Output;
use crate::proposals::Waiter;
use crate::request::Answer;

/// Tells a waiter that its entry is committed.
pub(crate) fn tell(waiter: Waiter, outputs: &mut Vec<Output>) {
    let (session, answer) = match waiter {
        Waiter::Appended { session, ticket, .. } => (session, Answer::Appended { ticket }),
        Waiter::Purged { session, ticket, count } => (session, Answer::Purged { ticket, count }),
        Waiter::Created { session, ticket, reply } => (session, Answer::Catalog { ticket, reply }),
        Waiter::Detached { session, ticket } => (session, Answer::Detached { ticket }),
        Waiter::SessionEnded { session, ticket } => (session, Answer::SessionEnded { ticket }),
        Waiter::Catalog { .. } | Waiter::Nobody => return,
    };
    outputs.push(Output::Answer { session, answer });
}

/// Tells waiters whose entry could not be proposed.
pub(crate) fn refuse(waiters: Vec<Waiter>, outputs: &mut Vec<Output>) {
    for waiter in waiters {
        let (session, ticket) = match waiter {
            Waiter::Appended { session, ticket, .. }
            | Waiter::Purged { session, ticket, .. }
            | Waiter::Catalog { session, ticket }
            | Waiter::Created { session, ticket, .. }
            | Waiter::Detached { session, ticket }
            | Waiter::SessionEnded { session, ticket } => (session, ticket),
            Waiter::Nobody => continue,
        };
        outputs.push(Output::Answer { session, answer: Answer::AppendFailed { ticket } });
    }
}
