//! Sockets, tasks, clocks and password checks around the sessions. Decides nothing that a client could see.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: the only place with sockets, tasks, clocks, and locks between owners"
)]

pub mod broker;
mod connection;
mod credentials;
pub mod dead_letter;
pub mod describe;
mod exchange_meters;
pub mod first_user;
pub mod inside;
pub mod listener;
pub mod own;
mod place;
mod places;
mod reply_to;
pub mod retry;
mod traces;
