//! Everything of the worker that waits: brokers, targets, clocks, chance. Decides nothing.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "io is where clocks are read, sockets opened and things shared between tasks (I1)"
)]

pub mod config;
pub mod coord;
pub mod handlers;
pub mod http;
pub mod metrics;
pub mod replay;
pub mod secret;
pub mod source;
pub mod target;
pub mod worker;
