//! Why a change of the catalog, or a route, was refused: typed, so that each door says it in its own words.

mod membership;

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
    /// The queue is exclusive to another session.
    Locked { name: String, vhost: String },
    /// The queue is the history of an exchange.
    Reserved { kind: Kind, name: String },
    /// The default exchange can be neither declared, deleted nor bound.
    DefaultExchange,
    /// A predeclared exchange cannot be deleted.
    SystemExchange { name: String, vhost: String },
    /// The exchange has bindings.
    InUse { kind: Kind, name: String, vhost: String },
    /// A name that is empty, too long or holds a NUL.
    InvalidName { kind: Kind, name: String },
    /// The exchange cannot route by a binding with such a key and such arguments.
    ImpossibleBinding { key: String },
    /// A permission that is not a regular expression we take.
    InvalidPattern { pattern: String },
    /// A table of arguments that is too deep, too long or too large.
    ArgumentsTooLarge,
    /// A text that is too long, or too many of them: what, and how many there may be.
    TooLarge { what: &'static str, max: usize },
    /// Nodes, or who keeps a group.
    Membership(MembershipProblem),
    /// Not all members can read it yet.
    NotYet { since: Version, agreed: Version },
    /// There are as many as there may be.
    LimitReached { kind: Kind, max: usize },
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
