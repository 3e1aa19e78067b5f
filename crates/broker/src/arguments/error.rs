//! Why RabbitMQ would refuse what a client declares, as a type that tests can match. `words` has the texts for clients.

use machine::{Kind, QueueType, Refusal, Value};

use super::filter::FilterProblem;

/// Why a declaration or a binding is refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeclareError {
    /// The catalog would say the same.
    Catalog(Refusal),
    /// It exists and is different.
    Inequivalent { kind: Kind, name: String, vhost: String, difference: Box<Difference> },
    /// An argument has the wrong type or value.
    InvalidArgument {
        kind: Kind,
        name: String,
        vhost: String,
        argument: String,
        problem: ArgumentProblem,
    },
    /// A name that begins with `amq.`.
    Reserved { kind: Kind, name: String },
    /// A queue of this type cannot be given its name by the broker.
    ServerNamed { queue_type: QueueType },
    /// A queue of this type cannot have this property.
    InvalidProperty { name: String, vhost: String, property: Property },
    /// A valid value of an argument that changes behaviour, and whose behaviour does not exist yet.
    NotImplemented { argument: &'static str, value: String },
    /// A new exchange lacks what its kind needs.
    InvalidExchange(ExchangeProblem),
    /// The key of a binding to a consistent hash exchange is no weight: no number, or below 1.
    InvalidWeight { key: String, is_number: bool },
    /// `x-match` of a binding to a headers exchange is none of the four words.
    InvalidMatch { value: Value },
    /// A binding to an exchange of local queues has a key.
    KeyNotPermitted { key: String },
    /// A binding to an exchange of local queues leads to an exchange.
    NoLocalQueue,
}

impl From<Refusal> for DeclareError {
    fn from(refusal: Refusal) -> Self {
        Self::Catalog(refusal)
    }
}

/// How two declarations differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The property or argument: `durable`, `auto_delete`, `type`, `x-message-ttl`, …
    pub(crate) argument: String,
    pub(crate) received: Compared,
    pub(crate) current: Compared,
}

/// One side of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// The argument is not there.
    Absent,
    /// A property, or an argument that both sides have: `'true'`, `'fanout'`, `'1000'`.
    Plain(Value),
    /// An argument that the other side has not: its type is worth telling.
    Typed(Value),
}

/// What is wrong with an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentProblem {
    /// A number was due.
    ExpectedInteger {
        got: Value,
    },
    /// Another type was due.
    UnacceptableType {
        got: Value,
    },
    /// The name of an exchange was due, which is looked at before all else.
    InvalidType {
        got: Value,
    },
    Negative(i64),
    Zero,
    /// More than the largest time.
    TooLarge(i64),
    /// More than the largest priority.
    MaxExceeded(i64),
    /// More than the largest segment.
    AboveMax,
    InvalidOverflow,
    UnsupportedQueueMode(String),
    UnsupportedVersion(i64),
    UnsupportedQueueType(String),
    InvalidLocator,
    InvalidStrategy,
    InvalidMaxAge,
    InvalidRate(String),
    InvalidBytesRate(String),
    InvalidRetryType,
    /// `x-dead-letter-routing-key` without an exchange.
    RoutingKeyWithoutExchange,
    /// A subscription does not say which stream it reads.
    NoStream,
    /// A subscription cannot begin there.
    InvalidStart,
    /// `x-when-behind` is neither of its words.
    InvalidBehind,
    /// No place of a message where a key is.
    InvalidPartitionBy(String),
    /// No way to share partitions.
    InvalidAssign,
    InvalidOrder,
    /// Messages keep the order of their keys, or those of higher priority go first.
    OrderWithPriorities,
    /// Nobody looks at the keys of a queue without order by key.
    KeyRateWithoutOrder,
    /// A subscription cannot be told by it what to give out.
    InvalidFilter(FilterProblem),
    /// A queue of this type does not take this argument.
    NotForType(QueueType),
}

/// What is wrong with the arguments of a new exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeProblem {
    /// `x-delayed-type` is missing or no text.
    NoDelayedType,
    /// `x-delayed-type` is `x-delayed-message` itself.
    DelayedTwice,
    /// `x-delayed-type` names no kind of exchange.
    UnknownType {
        name: String,
    },
    HeaderAndProperty,
    /// `hash-property` names none of those that can be hashed.
    UnsupportedProperty {
        property: String,
    },
    /// `x-recent-history-length` is no signed number above 0.
    InvalidHistoryLength {
        got: Value,
    },
}

/// What a quorum queue cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    AutoDelete,
    Exclusive,
    NonDurable,
}
