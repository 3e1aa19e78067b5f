//! What the audit trail is told of what is done over HTTP and is no change of the catalog by itself.

use broker::dead_letter::retry::Plan;
use cluster::orders::Order;
use cluster::{NotWithheld, WithheldCount, WithholdStep};
use machine::limits::NAME_BYTES_MAX;
use machine::{Actor, Arguments, Event, Value};

use crate::companions::Wish;
use crate::import::Import;
use crate::marks::{MARKED, TEXT};
use crate::work::{Binding, Of, Orders, Step, Withhold};

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
        Step::Bind(binding) if binding.is_there => None,
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
    let Binding { source, destination, to_exchange, key, arguments: _, is_there: _ } = binding;
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
        Of::Pause { channel, tag, by } => {
            let name = if by.is_some() { "consumer.paused" } else { "consumer.resumed" };
            let details = Arguments::new().with("channel", text(channel));
            return Some(Event::new(name, "", cut(tag)).with(details));
        }
        Of::Connections | Of::Connection(_) | Of::Channels(_) | Of::Channel(_) | Of::Consumers => {
            return None;
        }
    };
    let details = Arguments::new().with("reason", text(reason));
    Some(Event::new(name, "", cut(object)).with(details))
}

/// A purge that can be undone, or its undoing. Without a count of messages: nobody knows whether it was done. `None`:
/// nothing was changed.
pub(crate) fn of_withhold(
    wanted: &Withhold,
    told: &Result<WithheldCount, NotWithheld>,
) -> Option<Event> {
    let count = match told {
        Ok(WithheldCount { count: 0, .. }) => return None,
        Err(NotWithheld::NoQueue | NotWithheld::NotYet { .. }) => return None,
        Ok(WithheldCount { count, .. }) => Some(*count),
        Err(NotWithheld::NoLeader | NotWithheld::Late) => None,
    };
    let number = |count: u64| Value::I64(i64::try_from(count).unwrap_or(i64::MAX));
    let (name, details) = match wanted.step {
        WithholdStep::Purge { undo_ms } => {
            ("queue.purged", Arguments::new().with("undo_ms", number(undo_ms.into())))
        }
        WithholdStep::Undo => ("queue.unpurged", Arguments::new()),
    };
    let details = match count {
        Some(count) => details.with("messages", number(count)),
        None => details,
    };
    Some(Event::new(name, cut(&wanted.vhost), cut(&wanted.name)).with(details))
}

/// What an operator ordered of the cluster.
pub(crate) fn of_order(wanted: &Orders) -> Event {
    let name = match &wanted.order {
        Order::Drain { .. } => "node.drained",
        Order::Replace { .. } => "node.replaced",
        Order::Rebalance => "cluster.rebalanced",
        Order::Add { .. } => "node.added",
        Order::Remove { .. } => "node.removed",
        Order::Replicas { .. } => "cluster.replicas",
        Order::Raise { .. } => "cluster.raised",
    };
    let event = Event::new(name, "", cut(&wanted.node));
    match &wanted.order {
        Order::Replace { by, .. } => {
            let by = Value::I64(i64::try_from(by.0).unwrap_or(i64::MAX));
            event.with(Arguments::new().with("by", by))
        }
        _ => event,
    }
}

/// A relay, a worker or a pipeline that was told to rest, or to go on.
pub(crate) fn of_companion(wish: &Wish) -> Event {
    let name = if wish.rest { "companion.paused" } else { "companion.resumed" };
    let event = Event::new(name, "", cut(&wish.address));
    match &wish.pipeline {
        Some(pipeline) => event.with(Arguments::new().with("pipeline", text(cut(pipeline)))),
        None => event,
    }
}

/// Dead letters that are sent on from a queue.
pub(crate) fn of_retry(plan: &Plan) -> Event {
    let event = Event::new("queue.retried", cut(&plan.vhost), cut(&plan.queue));
    match &plan.edit {
        None => event,
        Some(_) => event.with(Arguments::new().with("edited", Value::Bool(true))),
    }
}

/// A deployment that somebody tells of.
pub(crate) fn of_mark(said: &str) -> Event {
    Event::new(MARKED, "", "").with(Arguments::new().with(TEXT, text(said)))
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
        let binding = |is_there| {
            let (source, destination, key) = ("e".to_owned(), name(), String::new());
            let arguments = amqp::FieldTable::default();
            Step::Bind(Binding {
                source,
                destination,
                to_exchange: false,
                key,
                arguments,
                is_there,
            })
        };
        assert_eq!(of_step("/", &binding(true), true), None);
        assert!(of_step("/", &binding(false), true).is_some());
    }

    #[test]
    fn a_purge_that_can_be_undone_is_an_event_if_it_was_done_or_may_be() {
        let (vhost, name) = ("/".to_owned(), "q".to_owned());
        let step = WithholdStep::Purge { undo_ms: 1000 };
        let wanted = Withhold { vhost, name, partitions: Vec::new(), step };
        let counted = |count| Ok(WithheldCount { count, until_ms: 7 });
        let said = |told| {
            let event = of_withhold(&wanted, &told)?;
            Some(event.details.find("messages").cloned())
        };
        assert_eq!(said(counted(3)), Some(Some(Value::I64(3))));
        assert_eq!(said(counted(0)), None, "nothing was ready");
        assert_eq!(said(Err(NotWithheld::Late)), Some(None), "nobody knows");
        assert_eq!(said(Err(NotWithheld::NoLeader)), Some(None), "nobody knows");
        assert_eq!(said(Err(NotWithheld::NoQueue)), None);
        let since = machine::Version::UNDO;
        assert_eq!(said(Err(NotWithheld::NotYet { since })), None, "it was refused");
    }
}
