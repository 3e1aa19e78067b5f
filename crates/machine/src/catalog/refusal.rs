//! Why a change of the catalog, or a route, was refused: typed, so that each door says it in its own words.

mod membership;

use super::queues::QueueType;
use crate::value::Value;
use crate::version::Version;
pub use membership::MembershipProblem;

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Vhost,
    User,
    Exchange,
    Queue,
    Binding,
}

/// Why the catalog refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `vhost` is empty where the thing itself is a vhost or a user.
    NotFound { kind: Kind, name: String, vhost: String },
    /// It exists and is different.
    Inequivalent { kind: Kind, name: String, vhost: String, difference: Box<Difference> },
    /// The queue is exclusive to another session, or exclusive where it should not be, or the reverse.
    Locked { name: String, vhost: String },
    /// A name that begins with `amq.`.
    Reserved { kind: Kind, name: String },
    /// The default exchange can be neither declared, deleted nor bound.
    DefaultExchange,
    /// A predeclared exchange cannot be deleted.
    SystemExchange { name: String, vhost: String },
    /// The exchange has bindings.
    InUse { kind: Kind, name: String, vhost: String },
    /// An argument has the wrong type or value.
    InvalidArgument {
        kind: Kind,
        name: String,
        vhost: String,
        argument: String,
        problem: ArgumentProblem,
    },
    /// A queue of this type cannot be given its name by the broker.
    ServerNamed { queue_type: QueueType },
    /// A queue of this type cannot have this property.
    InvalidProperty { name: String, vhost: String, property: Property },
    /// A valid value of an argument that changes behaviour, and whose behaviour does not exist yet.
    NotImplemented { argument: &'static str, value: String },
    /// A name that is empty, too long or holds a NUL.
    InvalidName { kind: Kind, name: String },
    /// A new exchange lacks what its kind needs.
    InvalidExchange(ExchangeProblem),
    /// The key of a binding to a consistent hash exchange is no weight: no number, or below 1.
    InvalidWeight { key: String, is_number: bool },
    /// A permission that is not a regular expression we take.
    InvalidPattern { pattern: String },
    /// A table of arguments that is too deep, too long or too large.
    ArgumentsTooLarge,
    /// `x-match` of a binding to a headers exchange is none of the four words.
    InvalidMatch { value: Value },
    /// A text that is too long, or too many of them: what, and how many there may be.
    TooLarge { what: &'static str, max: usize },
    /// Nodes, or who keeps a group.
    Membership(MembershipProblem),
    /// Not all members can read it yet.
    NotYet { since: Version, agreed: Version },
    /// There are as many as there may be.
    LimitReached { kind: Kind, max: usize },
}

/// How two declarations differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The property or argument: `durable`, `auto_delete`, `type`, `x-message-ttl`, …
    pub argument: String,
    pub received: Compared,
    pub current: Compared,
}

/// One side of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The argument is not there.
    Absent,
    /// A property, or an argument that both sides have: `'true'`, `'fanout'`, `'1000'`.
    Plain(Value),
    /// An argument that the other side has not: its type is worth telling.
    Typed(Value),
}

/// What is wrong with an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentProblem {
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
    InvalidOverflow,
    UnsupportedQueueMode(String),
    UnsupportedVersion(i64),
    UnsupportedQueueType(String),
    InvalidLocator,
    InvalidStrategy,
    InvalidMaxAge,
    InvalidRetryType,
    /// `x-dead-letter-routing-key` without an exchange.
    RoutingKeyWithoutExchange,
    /// A queue of this type does not take this argument.
    NotForType(QueueType),
}

/// What is wrong with the arguments of a new exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeProblem {
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
pub enum Property {
    AutoDelete,
    Exclusive,
    NonDurable,
}

/// Why a message has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    NoVhost,
    NoExchange,
    /// Clients cannot publish to it.
    Internal,
    /// More than `limits::ROUTE_STEPS_MAX` for one message.
    TooManySteps,
}
