//! Everything of a service that waits: signals, sockets, the clock of its screen.
#![allow(
    clippy::disallowed_methods,
    reason = "io is where clocks are read, sockets are opened and tasks are started (I1)"
)]

pub mod http;
pub mod pauses;
pub mod screen;
pub mod stop;
pub mod supervisor;
