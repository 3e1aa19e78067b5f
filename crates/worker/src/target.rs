//! The pure parts of targets: what is asked of a provider, and what its answers mean.

pub mod apns;
pub mod fanout;
pub mod fcm;
pub mod getui;
pub mod huawei;
pub mod program;
pub mod push;
pub mod session;
pub mod webhook;
pub mod xiaomi;
