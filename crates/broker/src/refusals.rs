//! The catalog's refusals in RabbitMQ's words. What the broker's own rules refuse is in `arguments::words`.

use amqp::ReplyCode;
use machine::{Kind, Refusal};

use crate::errors::{
    Failure, default_exchange, kind_name, locked, no_exchange, no_queue, precondition, reserved,
    unknown_vhost,
};

/// A judgement as the client is told of it.
pub(crate) fn told(judged: Result<(), Refusal>) -> Result<(), Failure> {
    judged.map_err(|refusal| failure(&refusal))
}

/// What the client is told.
pub(crate) fn failure(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::NotFound { kind: Kind::Exchange, name, vhost } => no_exchange(name, vhost),
        Refusal::NotFound { kind: Kind::Queue, name, vhost } => no_queue(name, vhost),
        Refusal::NotFound { kind: Kind::Vhost, name, .. } => unknown_vhost(name),
        Refusal::NotFound {
            kind: kind @ (Kind::User | Kind::Binding | Kind::Policy | Kind::Cluster),
            name,
            vhost,
        } => {
            let text = format!("no {} '{name}' in vhost '{vhost}'", kind_name(*kind));
            Failure::channel(ReplyCode::NotFound, text)
        }
        Refusal::Locked { name, vhost } => locked(name, vhost),
        Refusal::Reserved { kind, name } => reserved(*kind, name),
        Refusal::DefaultExchange => default_exchange(),
        Refusal::SystemExchange { name, vhost } => Failure::channel(
            ReplyCode::AccessRefused,
            format!("deletion of system exchange '{name}' in vhost '{vhost}' not allowed"),
        ),
        Refusal::InUse { kind, name, vhost } => {
            precondition(format!("{} '{name}' in vhost '{vhost}' in use", kind_name(*kind)))
        }
        Refusal::NotYet { since, agreed } => Failure::connection(
            ReplyCode::NotImplemented,
            format!(
                "this needs version {since} of the cluster, which stands at version {agreed} until all nodes \
                 are upgraded"
            ),
        ),
        Refusal::ImpossibleBinding { key } => {
            precondition(format!("the exchange cannot route by a binding with the key '{key}'"))
        }
        Refusal::HasSubscriptions { name, vhost, subscription } => precondition(format!(
            "stream '{name}' in vhost '{vhost}' has subscriptions, '{subscription}' among them"
        )),
        Refusal::NoDestination { name, vhost } => precondition(format!(
            "queue '{name}' in vhost '{vhost}' is a subscription and takes no messages: bind its stream"
        )),
        Refusal::NoSubscription { name, vhost } => {
            precondition(format!("queue '{name}' in vhost '{vhost}' is no subscription"))
        }
        Refusal::InvalidName { kind, name } => {
            precondition(format!("invalid {} name '{name}'", kind_name(*kind)))
        }
        Refusal::InvalidPattern { pattern } => precondition(format!("invalid pattern '{pattern}'")),
        Refusal::ArgumentsTooLarge => precondition("the table of arguments is too large"),
        Refusal::Membership(problem) => precondition(problem.to_string()),
        Refusal::TooLarge { what, max } => {
            precondition(format!("too many {what}: at most {max} are allowed"))
        }
        Refusal::LimitReached { kind, max } => precondition(format!(
            "there are {max} {}s already, and that is the limit",
            kind_name(*kind)
        )),
        Refusal::QueueLimit { queue, vhost, max } => precondition(format!(
            "cannot declare queue '{queue}': queue limit in vhost '{vhost}' ({max}) is reached"
        )),
    }
}
