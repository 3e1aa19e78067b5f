//! The shell of MariaDB and MySQL: the poll source, MariaDB's binlog, and what operators do. As for PostgreSQL, it decides nothing.

pub(crate) mod admin;
pub(super) mod connection;
mod fetch;
mod lanes;
mod log;
mod mark;
mod monitor;
mod poll;
mod seats;
mod shared;
pub(super) mod table;
mod worker;

pub(super) use log::{resync_log, run_log};
pub(super) use poll::run_poll;
