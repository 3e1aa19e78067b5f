//! What the arguments of a queue mean. They are read once, when the queue comes: by a command, or with a snapshot.

use super::arguments::{
    CONSUMER_TIMEOUT, DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY, GROUP_SIZE, features, type_of,
};
use super::kind::QueueType;
use crate::settings::QueueSettings;
use crate::value::{Arguments, Value};

/// What a queue is, apart from its name and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::catalog) struct QueueSpec {
    pub(super) queue_type: QueueType,
    /// What the queue's group has to know.
    pub(in crate::catalog) settings: QueueSettings,
    /// None: its dead letters are dropped.
    pub(super) dead_letter: Option<DeadLetter>,
    /// How long a consumer may hold a message. None: the arguments do not say.
    pub(super) consumer_timeout_ms: Option<u64>,
    /// How many voters the queue's group is to have. None: the arguments do not say.
    pub(super) members: Option<u8>,
}

/// Where the dead letters of a queue go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadLetter {
    /// The empty name is the default exchange.
    pub(super) exchange: String,
    /// None: they keep their keys.
    pub(super) key: Option<String>,
}

impl QueueSpec {
    /// Total: what is not valid is as if it were not there.
    pub(in crate::catalog) fn of(durable: bool, auto_delete: bool, arguments: &Arguments) -> Self {
        let text = |name| arguments.find(name).and_then(Value::text).map(str::to_owned);
        let number = |name| {
            let value = arguments.find(name).and_then(Value::integer)?;
            u64::try_from(value).ok()
        };
        let dead_letter = text(DEAD_LETTER_EXCHANGE)
            .map(|exchange| DeadLetter { exchange, key: text(DEAD_LETTER_KEY) });
        Self {
            queue_type: type_of(arguments),
            settings: QueueSettings {
                is_durable: durable,
                is_auto_delete: auto_delete,
                features: features(arguments),
            },
            dead_letter,
            consumer_timeout_ms: number(CONSUMER_TIMEOUT),
            members: number(GROUP_SIZE).map(|count| u8::try_from(count).unwrap_or(u8::MAX)),
        }
    }
}
