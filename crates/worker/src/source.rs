//! The pure parts of sources: which jobs are in hand, message formats, and what brokers' answers mean.

pub mod amqp;
pub mod envelope;
pub mod ledger;
pub mod mns;
pub mod redis;
pub mod sqs;
pub mod visibility;

use std::hash::{DefaultHasher, Hash, Hasher};

/// The number that stands for an order key. The same text gives the same number in one process.
pub fn key_hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
