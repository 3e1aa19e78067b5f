//! Pushes to each provider, against servers of our own that speak its protocol.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "writes certificates for the targets that it starts, and waits with deadlines"
)]

mod apns;
#[path = "../support/apns.rs"]
mod devices;
mod fcm;
mod getui;
mod huawei;
#[path = "../support/push.rs"]
mod push;
mod xiaomi;
