//! Jobs that come from elsewhere than a broker.

mod mns;
mod redis;
#[path = "../support/source.rs"]
mod source;
mod sqs;
