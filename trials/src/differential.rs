//! Random programs of AMQP operations against RabbitMQ and Millrace: what a client sees of both must
//! be equal.
//!
//! A seed makes a [`program`] of a few operations ([`generate`]); a [`runner`] does them one after the
//! other and writes down everything its clients are told, having waited after each until nothing
//! moves any more. Where the two traces part, [`shrink`] looks for the shortest program that still
//! shows it. What RabbitMQ leaves open, and is therefore not compared, is all in [`leeway`], with the
//! reason; differences that are meant are in `docs/differences.md`. Programs that once showed a
//! difference stay in `trials/differential/cases`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "real brokers have sockets and clocks, and the command line has a terminal"
)]

mod brokers;
mod cases;
pub mod command;
mod generate;
mod leeway;
mod pool;
mod program;
mod runner;
mod shrink;
mod value;
mod wire;

use std::net::SocketAddr;

pub use program::Program;

/// The brokers whose answers are compared. The first is the reference.
#[derive(Clone, Copy, Debug)]
struct Pair {
    reference: Endpoint,
    tried: Endpoint,
}

/// Where a broker listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Endpoint {
    amqp: SocketAddr,
    /// The HTTP API.
    http: SocketAddr,
}
