//! Bindings.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machine::{Arguments, Binding, Destination, Vhost};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::exchanges::name;
use crate::asked::Asked;
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::{self, Step, Work};
use crate::{access, arguments};

/// Names a binding among those between the same ends: `~` for no key and no arguments, else the key as a query has it,
/// with a hash of the arguments if there are any. Other brokers make other hashes: the name is good where it was given.
fn properties_key(key: &str, arguments: &Arguments) -> String {
    if key.is_empty() && arguments.0.is_empty() {
        return "~".to_owned();
    }
    let quoted: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
    let quoted = quoted.replace('*', "%2A").replace('~', "%7E");
    if arguments.0.is_empty() {
        return quoted;
    }
    let shown = arguments::shown(arguments).to_string();
    let hash = URL_SAFE_NO_PAD.encode(&Sha256::digest(shown.as_bytes())[..16]);
    format!("{quoted}~{hash}")
}

fn shown(vhost: &str, binding: &Binding) -> Value {
    let destination_type = match &binding.destination {
        Destination::Queue(_) => "queue",
        Destination::Exchange(_) => "exchange",
    };
    json!({
        "source": binding.source,
        "vhost": vhost,
        "destination": binding.destination.name(),
        "destination_type": destination_type,
        "routing_key": binding.key,
        "arguments": arguments::shown(&binding.arguments),
        "properties_key": properties_key(&binding.key, &binding.arguments),
    })
}

/// Every queue is bound to the default exchange by its name.
fn by_default(queue: &str) -> Binding {
    Binding {
        source: String::new(),
        destination: Destination::Queue(queue.to_owned()),
        key: queue.to_owned(),
        arguments: Arguments::new(),
    }
}

fn all(vhost: &Vhost) -> impl Iterator<Item = Value> {
    let defaults = vhost.queues().map(|queue| shown(vhost.name(), &by_default(&queue.name)));
    defaults.chain(vhost.bindings().map(|binding| shown(vhost.name(), binding)))
}

/// How the bindings of a vhost are written into definitions: without those that every queue has.
pub(super) fn defined(vhost: &Vhost) -> impl Iterator<Item = Value> {
    vhost.bindings().filter(|binding| vhost.is_durable(binding)).map(|binding| {
        let mut shown = shown(vhost.name(), binding);
        if let Value::Object(fields) = &mut shown {
            fields.remove("properties_key");
        }
        shown
    })
}

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    Ok(Work::list(&Shape::of(asked)?, seen.flat_map(all).collect()))
}

fn vhost<'a>(view: &View<'a>, asked: &Asked) -> Result<&'a Vhost, Problem> {
    view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::list(&Shape::of(asked)?, all(vhost(view, asked)?).collect()))
}

pub(super) fn of_queue(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = vhost(view, asked)?;
    let queue = vhost.queue(asked.part("queue")).ok_or(Problem::NotFound)?;
    let destination = Destination::Queue(queue.name.clone());
    let bound = vhost.bindings_of_destination(&destination);
    let default = std::iter::once(shown(vhost.name(), &by_default(&queue.name)));
    let items = default.chain(bound.map(|binding| shown(vhost.name(), binding)));
    Ok(Work::list(&Shape::of(asked)?, items.collect()))
}

pub(super) fn of_source(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, source) = (vhost(view, asked)?, name(asked, "exchange"));
    vhost.exchange(&source).ok_or(Problem::NotFound)?;
    let items = match source.is_empty() {
        true => vhost.queues().map(|queue| shown(vhost.name(), &by_default(&queue.name))).collect(),
        false => {
            vhost.bindings_of_source(&source).map(|binding| shown(vhost.name(), binding)).collect()
        }
    };
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn of_destination(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, exchange) = (vhost(view, asked)?, name(asked, "exchange"));
    vhost.exchange(&exchange).ok_or(Problem::NotFound)?;
    let destination = Destination::Exchange(exchange);
    let bound = vhost.bindings_of_destination(&destination);
    let items = bound.map(|binding| shown(vhost.name(), binding)).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

/// The bindings between two ends, which must be there.
fn between(
    view: &View<'_>,
    asked: &Asked,
    destination: &Destination,
) -> Result<Vec<Binding>, Problem> {
    let vhost = vhost(view, asked)?;
    let source = name(asked, "source");
    let is_there = match destination {
        Destination::Queue(name) => vhost.queue(name).is_some(),
        Destination::Exchange(name) => vhost.exchange(name).is_some(),
    };
    if !is_there || vhost.exchange(&source).is_none() {
        return Err(Problem::NotFound);
    }
    match (source.as_str(), destination) {
        ("", Destination::Queue(queue)) => Ok(vec![by_default(queue)]),
        (source, destination) => {
            let bound = vhost.bindings_of_source(source);
            Ok(bound.filter(|it| it.destination == *destination).cloned().collect())
        }
    }
}

fn queue(asked: &Asked) -> Destination {
    Destination::Queue(asked.part("destination").to_owned())
}

fn exchange(asked: &Asked) -> Destination {
    Destination::Exchange(name(asked, "destination"))
}

pub(super) fn to_queue(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    list_between(view, asked, &queue(asked))
}

pub(super) fn to_exchange(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    list_between(view, asked, &exchange(asked))
}

fn list_between(view: &View<'_>, asked: &Asked, to: &Destination) -> Result<Work, Problem> {
    let bindings = between(view, asked, to)?;
    let items = bindings.iter().map(|binding| shown(asked.vhost(), binding)).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

/// The binding that the path names.
fn named(view: &View<'_>, asked: &Asked, to: &Destination) -> Result<Binding, Problem> {
    let key = asked.part("key");
    let mut bindings = between(view, asked, to)?.into_iter();
    let found = bindings.find(|it| properties_key(&it.key, &it.arguments) == key);
    found.ok_or(Problem::NotFound)
}

pub(super) fn one_to_queue(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(shown(asked.vhost(), &named(view, asked, &queue(asked))?)))
}

pub(super) fn one_to_exchange(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(shown(asked.vhost(), &named(view, asked, &exchange(asked))?)))
}

pub(super) fn bind_queue(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    bind(view, asked, &queue(asked))
}

pub(super) fn bind_exchange(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    bind(view, asked, &exchange(asked))
}

fn bind(view: &View<'_>, asked: &Asked, to: &Destination) -> Result<Work, Problem> {
    let bound = between(view, asked, to)?;
    let body = asked.object()?;
    let key = body.short("routing_key")?.unwrap_or_default().to_owned();
    let table = arguments::table(&body.object("arguments")?)?;
    // The table is sorted by JSON already, as the catalog sorts it.
    let stored = broker::operator::arguments(&table);
    let quoted = |text: &str| -> String {
        let serialized: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        serialized.replace('+', "%20")
    };
    // Relative to what was asked, as RabbitMQ says it: clients take the key from behind the only slash.
    let key_part = quoted(&properties_key(&key, &stored));
    let location = format!("{}/{key_part}", quoted(asked.part("destination")));
    let step = Step::Bind(work::Binding {
        source: name(asked, "source"),
        destination: to.name().to_owned(),
        to_exchange: matches!(to, Destination::Exchange(_)),
        is_there: bound.iter().any(|it| it.key == key && it.arguments == stored),
        key,
        arguments: table,
    });
    let reply = Reply { location: Some(location), ..Reply::created() };
    Ok(Work::Client { vhost: asked.vhost().to_owned(), step, reply })
}

pub(super) fn unbind_queue(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    unbind(view, asked, &queue(asked))
}

pub(super) fn unbind_exchange(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    unbind(view, asked, &exchange(asked))
}

fn unbind(view: &View<'_>, asked: &Asked, to: &Destination) -> Result<Work, Problem> {
    let Binding { source, destination, key, arguments } = named(view, asked, to)?;
    let step = Step::Unbind(work::Binding {
        source,
        destination: destination.name().to_owned(),
        to_exchange: matches!(destination, Destination::Exchange(_)),
        key,
        arguments: broker::operator::table(&arguments),
        is_there: true,
    });
    Ok(Work::Client { vhost: asked.vhost().to_owned(), step, reply: Reply::done() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_named_as_in_rabbitmq() {
        let none = Arguments::new();
        assert_eq!(properties_key("", &none), "~");
        assert_eq!(properties_key("a.b c", &none), "a.b+c");
        assert_eq!(properties_key("a.*.#~", &none), "a.%2A.%23%7E");
        let arguments = Arguments::new().with("x", machine::Value::I64(1));
        let named = properties_key("k", &arguments);
        assert!(named.starts_with("k~") && named.len() > 10, "{named}");
    }
}
