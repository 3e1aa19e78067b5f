//! Everything of the relay that waits: the database, the broker, clocks, chance. Decides nothing.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "io is where clocks are read, sockets opened and things shared between tasks (I1)"
)]

pub mod admin;
mod broker;
mod drain;
mod inbox;
mod mysql;
mod poll;
mod postgres;
mod session;
mod slot;
mod sources;
mod table;

pub use drain::{resync, run, run_poll, run_slot};
pub use inbox::{run_inbox, watch_queue};
pub use postgres::{Database, connect};
pub use slot::{Resynced, Since, name_slot};
pub use sources::run_sources;
pub use table::{find_table, prepare_companion};
