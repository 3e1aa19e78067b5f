//! Why a change of the catalog, or a route, was refused: typed, so that each door says it in its own words.

mod membership;

use crate::limits::NAME_BYTES_MAX;
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
    Policy,
    Cluster,
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
    /// The stream has subscriptions, of which this is one: they go first.
    HasSubscriptions { name: String, vhost: String, subscription: String },
    /// A subscription takes no messages: those of its stream are what it has.
    NoDestination { name: String, vhost: String },
    /// It is no subscription, so it cannot be set to another place.
    NoSubscription { name: String, vhost: String },
    /// A name that is empty, too long or holds a NUL.
    InvalidName { kind: Kind, name: String },
    /// The exchange cannot route by a binding with such a key and such arguments.
    ImpossibleBinding { key: String },
    /// A permission or the pattern of a policy that is not a regular expression we take.
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
    /// The vhost has as many queues as it may have.
    QueueLimit { queue: String, vhost: String, max: u32 },
}

impl std::fmt::Display for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Vhost => "vhost",
            Self::User => "user",
            Self::Exchange => "exchange",
            Self::Queue => "queue",
            Self::Binding => "binding",
            Self::Policy => "policy",
            Self::Cluster => "cluster",
        })
    }
}

/// For operators. Clients are told in RabbitMQ's words.
impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound { kind, name, vhost } if vhost.is_empty() => {
                write!(out, "{kind} '{name}' does not exist")
            }
            Self::NotFound { kind, name, vhost } => {
                write!(out, "{kind} '{name}' does not exist in vhost '{vhost}'")
            }
            Self::Locked { name, vhost } => {
                write!(out, "queue '{name}' in vhost '{vhost}' belongs to another connection alone")
            }
            Self::Reserved { kind, name } => {
                write!(out, "{kind} '{name}' is kept by the cluster for itself")
            }
            Self::DefaultExchange => {
                out.write_str("the default exchange cannot be declared, deleted or bound")
            }
            Self::SystemExchange { name, vhost } => {
                write!(
                    out,
                    "exchange '{name}' in vhost '{vhost}' is predeclared and cannot be deleted"
                )
            }
            Self::InUse { kind, name, vhost } => {
                write!(out, "{kind} '{name}' in vhost '{vhost}' is in use")
            }
            Self::HasSubscriptions { name, vhost, subscription } => write!(
                out,
                "stream '{name}' in vhost '{vhost}' has subscriptions, '{subscription}' among them: delete those \
                 first"
            ),
            Self::NoDestination { name, vhost } => write!(
                out,
                "queue '{name}' in vhost '{vhost}' is a subscription and takes no messages: bind its stream"
            ),
            Self::NoSubscription { name, vhost } => {
                write!(out, "queue '{name}' in vhost '{vhost}' is no subscription")
            }
            Self::InvalidName { kind, name } => write!(
                out,
                "'{}' cannot be the name of a {kind}: a name has 1 to {NAME_BYTES_MAX} bytes and no NUL",
                name.escape_debug()
            ),
            Self::ImpossibleBinding { key } => {
                write!(
                    out,
                    "the exchange cannot route by a binding with key '{key}' and its arguments"
                )
            }
            Self::InvalidPattern { pattern } => {
                write!(
                    out,
                    "'{pattern}' is not a regular expression that a permission or policy may have"
                )
            }
            Self::ArgumentsTooLarge => {
                out.write_str("the arguments are too deep, too many or too large")
            }
            Self::TooLarge { what, max } => {
                write!(out, "too many {what}: at most {max} are allowed")
            }
            Self::Membership(problem) => write!(out, "{problem}"),
            Self::NotYet { since, agreed } => write!(
                out,
                "this needs version {since} of the cluster, which has agreed on version {agreed}: start every \
                 node with the newest program"
            ),
            Self::LimitReached { kind: Kind::Policy, max } => {
                write!(out, "the vhost has the most policies that it may have, {max}: delete some")
            }
            Self::LimitReached { kind, max } => {
                write!(out, "the cluster has the most {kind}s that it may have, {max}: delete some")
            }
            Self::QueueLimit { queue: _, vhost, max } => write!(
                out,
                "vhost '{vhost}' has as many queues as its limit max-queues allows, {max}: delete some or raise the limit"
            ),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_told_in_words() {
        let name = "a\0b".to_owned();
        let said = Refusal::InvalidName { kind: Kind::User, name }.to_string();
        let words = "'a\\0b' cannot be the name of a user: a name has 1 to 255 bytes and no NUL";
        assert_eq!(said, words);
        let (name, vhost) = ("jobs".to_owned(), String::new());
        let said = Refusal::NotFound { kind: Kind::Vhost, name, vhost }.to_string();
        assert_eq!(said, "vhost 'jobs' does not exist");
        let said = Refusal::LimitReached { kind: Kind::User, max: 7 }.to_string();
        assert_eq!(said, "the cluster has the most users that it may have, 7: delete some");
    }
}
