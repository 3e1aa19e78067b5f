//! What a command that runs for long needs around its work: how it tries again, how it is told to stop, what it
//! serves to whoever watches it, how it reads lengths of time.
//!
//! The relay and the worker share it. What they do, and what they count, is theirs.

mod attempts;
mod duration;
pub mod io;

pub use attempts::{Attempts, Jitter, Next};
pub use duration::duration;
