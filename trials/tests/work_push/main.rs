//! Pushes to each provider, against servers of our own that speak its protocol.

mod apns;
#[path = "../support/apns.rs"]
mod devices;
mod fcm;
mod getui;
mod huawei;
#[path = "../support/push.rs"]
mod push;
mod xiaomi;
