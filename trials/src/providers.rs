//! Local servers that speak the protocols of push providers, with faults on demand.
//!
//! They know nothing of the worker: made from the providers' public documents alone.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "servers and loads: sockets, clocks and threads"
)]

pub mod apns;
pub mod authority;
pub mod fcm;
pub mod getui;
pub mod huawei;
pub mod mns;
pub mod rest;
pub mod webhook;
pub mod xiaomi;
