//! Refusals in RabbitMQ's words, with their code and scope. Every text that a client may see is here.

use amqp::ReplyCode;
use machine::Kind;

/// What a refusal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Channel,
    Connection,
}

/// Why a method is not done. The dispatcher adds which method it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) scope: Scope,
    pub(crate) error: amqp::Error,
    /// Class and method at fault; zero until the dispatcher has said.
    pub(crate) ids: (u16, u16),
}

impl Failure {
    #[cold]
    pub(crate) fn channel(code: ReplyCode, text: impl Into<String>) -> Self {
        Self { scope: Scope::Channel, error: amqp::Error::new(code, text), ids: (0, 0) }
    }

    #[cold]
    pub(crate) fn connection(code: ReplyCode, text: impl Into<String>) -> Self {
        Self { scope: Scope::Connection, error: amqp::Error::new(code, text), ids: (0, 0) }
    }
}

/// What the codec cannot read ends the connection; what it can read and does not take, only the channel.
impl From<amqp::Error> for Failure {
    fn from(error: amqp::Error) -> Self {
        let scope = match error.code == ReplyCode::PreconditionFailed {
            true => Scope::Channel,
            false => Scope::Connection,
        };
        Self { scope, error, ids: (0, 0) }
    }
}

pub(crate) fn no_exchange(name: &str, vhost: &str) -> Failure {
    Failure::channel(ReplyCode::NotFound, format!("no exchange '{name}' in vhost '{vhost}'"))
}

pub(crate) fn no_queue(name: &str, vhost: &str) -> Failure {
    Failure::channel(ReplyCode::NotFound, format!("no queue '{name}' in vhost '{vhost}'"))
}

pub(crate) fn no_previous_queue() -> Failure {
    Failure::channel(ReplyCode::NotFound, "no previously declared queue")
}

/// The prefix `amq.` is the broker's own.
pub(crate) fn reserved(kind: Kind, name: &str) -> Failure {
    let text = format!("{} name '{name}' contains reserved prefix 'amq.*'", kind_name(kind));
    Failure::channel(ReplyCode::AccessRefused, text)
}

pub(crate) fn locked(queue: &str, vhost: &str) -> Failure {
    let text = format!(
        "cannot obtain exclusive access to locked queue '{queue}' in vhost '{vhost}'. It could be \
         originally declared on another connection or the exclusive property value does not match \
         that of the original declaration."
    );
    Failure::channel(ReplyCode::ResourceLocked, text)
}

pub(crate) fn exclusive_use(queue: &str, vhost: &str) -> Failure {
    let text = format!("queue '{queue}' in vhost '{vhost}' in exclusive use");
    Failure::channel(ReplyCode::AccessRefused, text)
}

pub(crate) fn precondition(text: impl Into<String>) -> Failure {
    Failure::channel(ReplyCode::PreconditionFailed, text)
}

pub(crate) fn invalid_argument(vhost: &str, queue: &str, argument: &str, problem: &str) -> Failure {
    precondition(format!(
        "invalid arg '{argument}' for queue '{queue}' in vhost '{vhost}'{problem}"
    ))
}

pub(crate) fn queue_in_use(queue: &str, vhost: &str) -> Failure {
    let text = format!("queue '{queue}' in vhost '{vhost}' in use");
    Failure::channel(ReplyCode::PreconditionFailed, text)
}

pub(crate) fn queue_not_empty(queue: &str, vhost: &str) -> Failure {
    let text = format!("queue '{queue}' in vhost '{vhost}' not empty");
    Failure::channel(ReplyCode::PreconditionFailed, text)
}

pub(crate) fn default_exchange() -> Failure {
    Failure::channel(ReplyCode::AccessRefused, "operation not permitted on the default exchange")
}

pub(crate) fn unknown_tag(tag: u64) -> Failure {
    Failure::channel(ReplyCode::PreconditionFailed, format!("unknown delivery tag {tag}"))
}

/// What no stream does.
pub(crate) fn not_of_streams(what: &str, queue: &str, vhost: &str) -> Failure {
    let text = format!("{what} not supported by stream queues queue '{queue}' in vhost '{vhost}'");
    Failure::connection(ReplyCode::NotImplemented, text)
}

/// What cannot happen to this method in this state.
pub(crate) fn unexpected(name: &str) -> Failure {
    Failure::connection(ReplyCode::CommandInvalid, format!("unimplemented method '{name}'"))
}

/// The cluster could not say whether it was done.
pub(crate) fn not_done(what: &str) -> Failure {
    Failure::connection(
        ReplyCode::InternalError,
        format!("{what} was not confirmed by the cluster"),
    )
}

pub(crate) fn low_on_memory() -> Failure {
    precondition("low on memory: nothing new is declared or bound until publishers go on")
}

pub(crate) fn unknown_vhost(name: &str) -> Failure {
    Failure::connection(ReplyCode::NotAllowed, format!("vhost {name} not found"))
}

/// The word for a kind of thing.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Vhost => "vhost",
        Kind::User => "user",
        Kind::Exchange => "exchange",
        Kind::Queue => "queue",
        Kind::Binding => "binding",
        Kind::Policy => "policy",
        Kind::Cluster => "cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp::TableRef;

    #[test]
    fn a_table_that_holds_too_much_ends_the_channel_and_one_that_cannot_be_read_the_connection() {
        let scope = |raw: &[u8]| Failure::from(TableRef::validate(raw).unwrap_err()).scope;
        let too_many = b"\0V".repeat(amqp::limits::TABLE_ENTRIES_MAX + 1);
        assert_eq!(scope(&too_many), Scope::Channel);
        assert_eq!(scope(b"\0S\0\0\0\x09ab"), Scope::Connection);
    }
}
