//! Executes the jobs of a queue against webhooks, programs and phone push providers, or in the caller's own
//! functions, with exact flow control, and leaves nothing in memory when it stops.
//!
//! A job's way: a *source* takes it from a broker and keeps its receipt, the [`pool`] decides when it may start, a
//! *target* executes it and says an [`Outcome`], the pool turns that into a [`Settlement`], and the source carries
//! it out. Everything but `io` is without a clock, a socket or chance.

pub mod address;
pub mod batches;
pub mod chain;
pub mod config;
pub mod cron;
mod error;
pub mod feedback;
pub mod finish;
mod job;
pub mod limits;
mod outcome;
pub mod pool;
mod settlement;
pub mod shares;
pub mod source;
pub mod target;
pub mod unique;
pub mod value;

pub use error::Error;
pub use job::{Extras, Header, Job, Message, Receipt};
pub use outcome::{Outcome, Scope};
pub use settlement::{Cause, Publish, Settled, Settlement};

pub mod io;
