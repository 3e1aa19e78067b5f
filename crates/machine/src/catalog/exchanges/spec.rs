//! What the arguments of an exchange mean. They are read once, when the exchange comes: by a command, or with a
//! snapshot.

use super::kind::{
    ALTERNATE, DELAYED_TYPE, ExchangeKind, HASH_HEADER, HASH_PROPERTY, HISTORY_LENGTH, is_length,
};
use crate::value::{Arguments, HashProperty, Value};

const HISTORY_LENGTH_DEFAULT: u64 = 20;

/// What an exchange is, apart from its name, its flags and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::catalog) struct ExchangeSpec {
    pub(in crate::catalog) kind: ExchangeKind,
    /// Of a delayed one the kind inside; else the same.
    pub(in crate::catalog) routing: ExchangeKind,
    /// Where a message goes that the exchange has no destination for.
    pub(in crate::catalog) alternate: Option<String>,
    /// What it hashes, if it routes by a consistent hash.
    pub(in crate::catalog) hash_by: HashBy,
    /// How many messages it keeps. None: it is not one of recent history.
    pub(super) history_length: Option<u64>,
}

/// What a consistent hash exchange hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::catalog) enum HashBy {
    Key,
    Header(String),
    Property(HashProperty),
}

impl ExchangeSpec {
    /// Total: what is not valid is as if it were not there.
    pub(super) fn of(kind: ExchangeKind, arguments: &Arguments) -> Self {
        let routing = routing(kind, arguments);
        Self {
            kind,
            routing,
            alternate: arguments.find(ALTERNATE).and_then(Value::text).map(str::to_owned),
            hash_by: HashBy::of(arguments),
            history_length: (routing == ExchangeKind::RecentHistory)
                .then(|| history_length(arguments)),
        }
    }
}

impl HashBy {
    fn of(arguments: &Arguments) -> Self {
        let text = |name: &str| arguments.find(name).and_then(Value::text);
        if let Some(header) = text(HASH_HEADER) {
            return Self::Header(header.to_owned());
        }
        let property = text(HASH_PROPERTY).and_then(HashProperty::parse);
        property.map_or(Self::Key, Self::Property)
    }
}

/// How an exchange with these arguments routes. A delayed one without a valid inner kind, which nobody could declare,
/// is direct.
fn routing(kind: ExchangeKind, arguments: &Arguments) -> ExchangeKind {
    if kind != ExchangeKind::DelayedMessage {
        return kind;
    }
    let inner = arguments.find(DELAYED_TYPE).and_then(Value::text).and_then(ExchangeKind::parse);
    inner.filter(|kind| *kind != ExchangeKind::DelayedMessage).unwrap_or(ExchangeKind::Direct)
}

/// How many messages an exchange of recent history keeps.
fn history_length(arguments: &Arguments) -> u64 {
    let length = arguments.find(HISTORY_LENGTH).filter(|value| is_length(value));
    let length = length.and_then(Value::integer).and_then(|length| u64::try_from(length).ok());
    length.unwrap_or(HISTORY_LENGTH_DEFAULT)
}
