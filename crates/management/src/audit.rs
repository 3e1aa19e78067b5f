//! What the audit trail is told of what is done over HTTP and is no change of the catalog by itself.

use broker::dead_letter::retry::Plan;
use machine::limits::NAME_BYTES_MAX;
use machine::{Actor, Arguments, Event, Value};

use crate::import::Import;
use crate::work::{Binding, Of, Step};

/// Who asks, as the trail knows it. A name that a token gives may be longer than one of ours.
pub(crate) fn actor(user: &str, address: &str) -> Actor {
    Actor::new(cut(user), cut(address))
}

/// What a session of the user has done, if it is more than publishing and taking messages. `is_new`: what was declared
/// was not there before.
pub(crate) fn of_step(vhost: &str, step: &Step, is_new: bool) -> Option<Event> {
    let event = |name: &str, object: &str| Some(Event::new(name, cut(vhost), cut(object)));
    match step {
        Step::DeclareQueue(spec) if is_new => event("queue.created", &spec.name),
        Step::DeclareExchange(spec) if is_new => event("exchange.created", &spec.name),
        Step::DeleteQueue { name, .. } => event("queue.deleted", name),
        Step::DeleteExchange { name, .. } => event("exchange.deleted", name),
        Step::Purge { name } => event("queue.purged", name),
        Step::Bind(binding) => Some(of_binding("binding.created", vhost, binding)),
        Step::Unbind(binding) => Some(of_binding("binding.deleted", vhost, binding)),
        Step::DeclareQueue(_)
        | Step::DeclareExchange(_)
        | Step::Get(_)
        | Step::Publish(_)
        | Step::Alive => None,
    }
}

fn of_binding(name: &str, vhost: &str, binding: &Binding) -> Event {
    let Binding { source, destination, to_exchange, key, arguments: _ } = binding;
    let kind = if *to_exchange { "exchange" } else { "queue" };
    let details = Arguments::new()
        .with("source_name", text(source))
        .with("destination_kind", text(kind))
        .with("destination_name", text(destination))
        .with("routing_key", text(key));
    Event::new(name, cut(vhost), cut(source)).with(details)
}

/// Connections that were closed. `None`: they were only looked at.
pub(crate) fn of_connections(what: &Of) -> Option<Event> {
    let (name, object, reason) = match what {
        Of::Close { name, reason } => ("connection.closed", name, reason),
        Of::CloseAll { user, reason } => ("user.connections.closed", user, reason),
        Of::Connections | Of::Connection(_) | Of::Channels(_) | Of::Channel(_) | Of::Consumers => {
            return None;
        }
    };
    let details = Arguments::new().with("reason", text(reason));
    Some(Event::new(name, "", cut(object)).with(details))
}

/// Dead letters that are sent on from a queue.
pub(crate) fn of_retry(plan: &Plan) -> Event {
    Event::new("queue.retried", cut(&plan.vhost), cut(&plan.queue))
}

/// Definitions that are brought in: their vhosts, users, permissions and policies have records of their own.
pub(crate) fn of_import(import: &Import) -> Event {
    let Import { vhosts, users, plain_users, permissions, policies, exchanges, queues, bindings } =
        import;
    let counts = [
        ("vhosts", vhosts.len()),
        ("users", users.len() + plain_users.len()),
        ("permissions", permissions.len()),
        ("policies", policies.len()),
        ("exchanges", exchanges.len()),
        ("queues", queues.len()),
        ("bindings", bindings.len()),
    ];
    let details = counts.into_iter().fold(Arguments::new(), |details, (name, count)| {
        details.with(name, Value::I64(i64::try_from(count).unwrap_or(i64::MAX)))
    });
    Event::new("definitions.imported", "", "").with(details)
}

fn text(text: &str) -> Value {
    Value::LongStr(text.as_bytes().to_vec())
}

/// The beginning of it, as much as the trail takes.
pub(crate) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_to_what_the_trail_takes_within_no_character() {
        let long = "ä".repeat(NAME_BYTES_MAX);
        let Actor { user, address } = actor(&long, "[::1]:1");
        assert_eq!((user.len(), &*address), (NAME_BYTES_MAX - 1, "[::1]:1"));
    }

    #[test]
    fn what_changes_nothing_is_no_event() {
        let name = || "q".to_owned();
        let spec = client::QueueSpec { name: name(), ..client::QueueSpec::default() };
        assert_eq!(of_step("/", &Step::DeclareQueue(spec.clone()), false), None);
        assert_eq!(of_step("/", &Step::Alive, true), None);
        assert_eq!(of_connections(&Of::Consumers), None);
        let created = of_step("/", &Step::DeclareQueue(spec), true);
        assert_eq!(created, Some(Event::new("queue.created", "/", "q")));
        let purged = of_step("/", &Step::Purge { name: name() }, false);
        assert_eq!(purged, Some(Event::new("queue.purged", "/", "q")));
    }
}
