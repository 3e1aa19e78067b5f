//! Everything of this crate that waits: sockets, clocks, chance.
#![allow(
    clippy::disallowed_methods,
    reason = "io is where clocks are read and sockets are opened (I1)"
)]

pub mod blocking;
mod connection;
mod consumer;
mod line;
mod publisher;
mod retry;
mod socket;
mod tls;

pub use connection::{Connection, ExchangeSpec, QueueDeclared, QueueSpec};
pub use consumer::{Consumer, ConsumerOptions, Delivery, DeliveryTag};
pub use publisher::{Publisher, Settled};
