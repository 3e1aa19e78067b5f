//! What a command that runs for long needs around its work: how it is told to stop, what it serves to whoever
//! watches it, how it tries again, how it reads times and certificates.

mod duration;

pub use duration::duration;
