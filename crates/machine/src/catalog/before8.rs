//! Declarations and snapshots of before version 8: they hold a client's arguments in place of a spec.
//!
//! What these arguments mean decides about bytes in logs and snapshots. Every replica must decide the same, whichever
//! program it runs, so nothing in here ever changes. What clients may ask for today is in `broker::arguments`.

mod binding;
mod exchange;
mod queue;

pub(super) use binding::check_binding;
pub(super) use exchange::exchange_spec;
pub(super) use queue::queue_spec;
