//! RabbitMQ's rules about queues, exchanges and bindings that clients declare: which arguments are known, what they
//! may be, in which order all is judged, and what the client is told.
//!
//! The catalog judges again behind these rules, with a copy of them in `machine::catalog`, and the tests here hold that
//! both say the same. The catalog's copy decides about entries that are in logs, so it must not change.

pub(crate) mod binding;
mod compare;
pub(crate) mod exchange;
mod names;
pub(crate) mod queue;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
pub(crate) mod words;
