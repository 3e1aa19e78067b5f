//! The key of a message: what its order, and its partition, go by.

use amqp::{Properties, Widened};

/// The header that holds the key.
const HEADER: &str = "x-partition-key";

/// A hash of the key, if the message has one.
pub(crate) fn of(_routing_key: &str, properties: &Properties<'_>) -> Option<u32> {
    match properties.headers?.find(HEADER)?.widened() {
        Widened::LongStr(bytes) => {
            Some(bytes.iter().fold(7, |h: u32, b| h.wrapping_mul(31).wrapping_add((*b).into())))
        }
        Widened::Integer(number) => Some(number as u32),
        _ => None,
    }
}
