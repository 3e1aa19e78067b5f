//! The pure parts of targets: what is asked of a provider, and what its answers mean.

pub mod apns;
pub mod push;
pub mod webhook;
