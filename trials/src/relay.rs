//! Proves `millrace relay` by real processes: a PostgreSQL, a broker and relays that are killed, and a
//! [`checker`] that knows what the relay promises.
//!
//! Writers ([`writers`]) fill an outbox in transactions, a taker ([`taker`]) writes down what the broker
//! delivers, and PostgreSQL itself tells what was committed and in which order ([`truth`]). A [`Stage`] is
//! the processes, a [`Run`] one database and one queue on it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes have clocks and files, and a history that several tasks write"
)]

pub mod backlog;
pub mod checker;
pub mod command;
pub mod harm;
pub mod history;
pub mod hold;
pub mod plan;
pub mod planted;
pub mod process;
pub mod run;
pub mod shape;
pub mod soak;
pub mod stage;
pub mod taker;
pub mod truth;
pub mod writers;

pub use checker::{Order, Report, Rules, check};
pub use history::{History, Kind};
pub use plan::Plan;
pub use run::{Run, Shape};
pub use stage::{Stage, broker_in};
