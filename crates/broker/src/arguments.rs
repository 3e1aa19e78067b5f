//! RabbitMQ's rules about queues, exchanges and bindings that clients declare: which arguments are known, what they
//! may be, in which order all is judged, what the client is told, and what they mean.
//!
//! The catalog judges none of this. It stores the spec that is made here of what a client asked for, and says who came
//! first: a client whose queue is there already is told by these rules whether it is the same.

pub(crate) mod age;
pub(crate) mod binding;
mod compare;
pub(crate) mod error;
pub(crate) mod exchange;
pub mod filter;
mod names;
pub(crate) mod offset;
pub(crate) mod queue;
pub mod rate;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
pub(crate) mod words;
