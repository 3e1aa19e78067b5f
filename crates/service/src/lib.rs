//! What a command that runs for long needs around its work: how it tries again, how it is told to stop, what it
//! serves to whoever watches it, what it tells the service manager that started it, how it reads lengths of time, how its
//! settings are written down.
//!
//! The node, the relay and the worker share it. What they do, count and can be set to is theirs.

mod attempts;
mod duration;
pub mod io;
pub mod settings;

pub use attempts::{Attempts, Jitter, Next};
pub use duration::{duration, duration_words};
