//! Unique jobs: of several jobs with one key within a window, one is stored.
//!
//! - **Millrace**: the queue does it, over crashes and changes of leader. It is declared with
//!   `x-message-deduplication` and with the window as `x-cache-ttl` ([`queue_arguments`]); the job carries its key
//!   in the header `x-deduplication-header`. The window is the queue's, so all unique jobs of a queue have one.
//! - **Redis**: one script notes the key (`SET NX PX`) and adds the job ([`ADD`]). The window is the job's.
//! - **RabbitMQ, SQS, MNS**: refused ([`refusal`]). RabbitMQ would take the arguments, ignore them, and store
//!   every job.

use std::time::Duration;

use amqp::{FieldTable, FieldValue};

use crate::limits::NAME_BYTES_MAX;

/// Longest window.
pub const WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Keys that a queue remembers, if nobody says otherwise: as many as it can.
const KEYS_MAX: i32 = 1_000_000;

/// The header by which a queue of Millrace knows a job again.
pub const HEADER: &str = "x-deduplication-header";

/// Adds a job to a stream or list of Redis unless one with its key was added within the window.
///
/// `KEYS`: the note of the key ([`redis_key`]), the stream or list. `ARGV`: the window in milliseconds, the command
/// (`XADD` or `LPUSH`), its arguments after the key. Gives 1 if the job was added, 0 if not.
pub const ADD: &str = include_str!("unique/add.lua");

/// What makes a job unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    pub key: String,
    pub window: Duration,
}

impl Unique {
    /// A key and a window.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub fn new(key: &str, window: Duration) -> Result<Self, String> {
        if !(1..=NAME_BYTES_MAX).contains(&key.len()) {
            return Err(format!("a unique key has 1 to {NAME_BYTES_MAX} bytes"));
        }
        if window < Duration::from_millis(1) || window > WINDOW_MAX {
            let days = WINDOW_MAX.as_secs() / 86_400;
            return Err(format!("the window of a unique job is 1ms to {days}d"));
        }
        Ok(Self { key: key.to_owned(), window })
    }
}

/// What a queue of Millrace is declared with, so that it stores one job per key and window.
pub fn queue_arguments(window: Duration) -> FieldTable {
    let ms = i64::try_from(window.as_millis().max(1)).unwrap_or(i64::MAX);
    let fields = [
        ("x-message-deduplication", FieldValue::from(true)),
        ("x-cache-ttl", FieldValue::from(ms)),
        ("x-cache-size", FieldValue::from(KEYS_MAX)),
    ];
    fields.into_iter().collect()
}

/// Where Redis notes that a job with this key was added to `queue`.
pub fn redis_key(queue: &str, unique: &Unique) -> String {
    format!("millrace:unique:{queue}:{}", unique.key)
}

/// Why a broker cannot do it; none if it can. `product` names it: `millrace`, `rabbitmq`, else the kind of the source.
pub fn refusal(product: &str) -> Option<String> {
    let product = product.to_ascii_lowercase();
    if ["millrace", "redis"].iter().any(|able| product.contains(able)) {
        return None;
    }
    Some(format!(
        "unique jobs need queues of Millrace or Redis; {product} would store every job: leave out --unique"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_of_millrace_gets_the_window_and_other_brokers_are_refused_in_words() {
        let arguments = queue_arguments(Duration::from_secs(3600));
        assert_eq!(arguments.find("x-message-deduplication"), Some(&FieldValue::from(true)));
        assert_eq!(arguments.find("x-cache-ttl"), Some(&FieldValue::from(3_600_000_i64)));
        assert_eq!((refusal("Millrace"), refusal("redis_stream")), (None, None));
        for other in ["RabbitMQ", "sqs", "mns"] {
            assert!(refusal(other).unwrap().contains("would store every job"), "{other}");
        }
    }

    #[test]
    fn a_key_and_a_window_have_bounds() {
        assert!(Unique::new("", Duration::from_secs(1)).is_err());
        assert!(Unique::new(&"k".repeat(256), Duration::from_secs(1)).is_err());
        assert!(Unique::new("k", Duration::ZERO).is_err());
        assert!(Unique::new("k", WINDOW_MAX + Duration::from_secs(1)).is_err());
        let unique = Unique::new("k", WINDOW_MAX).unwrap();
        assert_eq!(redis_key("jobs", &unique), "millrace:unique:jobs:k");
    }
}
