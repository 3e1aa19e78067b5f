//! Why: where a message would go, exchange by exchange and binding by binding; and which setting of a queue is from where.
//!
//! Routing says the first (`machine::Catalog::explain`), the leaders of the queues whether they have room. Nothing is
//! published, and nothing counts as a use.

pub(crate) mod settings;

use cluster::DescribedQueue;
use machine::{
    Arguments, Catalog, ExchangeKind, Features, HashProperty, Headers, Hop, NoHeaders, NodeId,
    Overflow, PublishedBy, Queue, RouteError, Target, ValueView,
};
use serde_json::{Map, Value, json};

use super::exchanges;
use crate::arguments;
use crate::asked::Asked;
use crate::limits::{EXPLAINED_QUEUES_MAX, NAME_BYTES_MAX};
use crate::node::{View, name_of};
use crate::reply::Problem;
use crate::work::{Kept, Work};

/// A message that nobody publishes.
struct Imagined {
    headers: Arguments,
    node: NodeId,
}

impl Headers for Imagined {
    fn find(&self, name: &str) -> Option<ValueView<'_>> {
        Headers::find(&self.headers, name)
    }

    fn each<'m>(&'m self, show: &mut dyn FnMut(&'m str, ValueView<'m>)) {
        self.headers.each(show);
    }

    fn property(&self, _: HashProperty) -> Option<ValueView<'_>> {
        None
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }
}

/// Where a message would go.
pub(super) fn message(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, exchange) = (asked.vhost(), exchanges::name(asked, "exchange"));
    let key = asked.word("routing_key").unwrap_or_default();
    if key.len() > NAME_BYTES_MAX {
        return Err(Problem::bad(format!(
            "routing_key should have at most {NAME_BYTES_MAX} bytes"
        )));
    }
    let message = Imagined { headers: headers(asked)?, node: view.facts.node };
    let explain = |by| machine::explain(view.catalog, by, vhost, &exchange, &[key], &message);
    let (explained, refused) = match explain(PublishedBy::Client) {
        Err(RouteError::Internal) => {
            let why =
                "the exchange is internal: the broker and other exchanges publish to it, no client";
            (explain(PublishedBy::Broker), Some(why))
        }
        explained => (explained, None),
    };
    let explained = explained.map_err(|why| match why {
        RouteError::NoVhost | RouteError::NoExchange => Problem::NotFound,
        RouteError::TooManySteps | RouteError::Internal => {
            Problem::bad("routing takes too many steps: a client would be refused with 406")
        }
    })?;
    let queues: Vec<&Queue> = explained
        .targets
        .iter()
        .filter(|target| !target.is_history)
        .filter_map(|target| view.catalog.queue_by_id(target.queue))
        .collect();
    let hops = explained.hops.iter().map(|hop| shown_hop(view.catalog, hop));
    let body = json!({
        "vhost": vhost,
        "exchange": exchange,
        "routing_key": key,
        "is_routed": !queues.is_empty(),
        "refused": refused,
        "hops": hops.collect::<Vec<_>>(),
        "hops_left_out": explained.hops_left_out,
        "queue_count": queues.len(),
        "queues": [],
    });
    let queues = queues.iter().take(EXPLAINED_QUEUES_MAX).map(|queue| (queue.group, queue.id));
    Ok(Work::Explain { queues: queues.collect(), body, kept: Kept::Message })
}

/// Which setting of a queue is from where.
pub(super) fn queue(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let queue = vhost.queue(asked.part("queue")).ok_or(Problem::NotFound)?;
    let body = settings::shown(vhost, queue);
    let queues = vec![(queue.group, queue.id)];
    Ok(Work::Explain { queues, body, kept: Kept::Queue })
}

/// The query's headers: a JSON object.
fn headers(asked: &Asked) -> Result<Arguments, Problem> {
    let Some(text) = asked.word("headers") else { return Ok(Arguments::new()) };
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => arguments::machine_table(&object),
        Ok(_) | Err(_) => {
            Err(Problem::bad("headers should be a JSON object, such as {\"kind\":\"order\"}"))
        }
    }
}

fn shown_hop(catalog: &Catalog, hop: &Hop) -> Value {
    let bindings = hop.bindings.iter().map(|shown| {
        let kind = match &shown.binding.destination {
            machine::Destination::Queue(_) => "queue",
            machine::Destination::Exchange(_) => "exchange",
        };
        json!({
            "destination": shown.binding.destination.name(),
            "destination_type": kind,
            "routing_key": shown.binding.key,
            "arguments": arguments::shown(&shown.binding.arguments),
            "matches": shown.matches,
            "is_taken": shown.is_taken,
        })
    });
    let (by_chance, one_of_several) = match hop.routing {
        ExchangeKind::Random | ExchangeKind::LocalRandom => (true, true),
        ExchangeKind::ConsistentHash | ExchangeKind::ModulusHash => (false, true),
        ExchangeKind::Direct
        | ExchangeKind::Fanout
        | ExchangeKind::Topic
        | ExchangeKind::Headers
        | ExchangeKind::DelayedMessage
        | ExchangeKind::RecentHistory => (false, false),
    };
    json!({
        "exchange": hop.exchange,
        "type": hop.routing.name(),
        "one_of_several": one_of_several,
        "by_chance": by_chance,
        "bindings": bindings.collect::<Vec<_>>(),
        "bindings_left_out": hop.bindings_left_out,
        "queues": names(catalog, &hop.targets),
        "alternate_exchange": hop.alternate,
    })
}

fn names(catalog: &Catalog, targets: &[Target]) -> Vec<String> {
    let found = targets.iter().filter(|target| !target.is_history);
    found.filter_map(|target| Some(catalog.queue_by_id(target.queue)?.name.clone())).collect()
}

/// What a queue would do with a message. `told`: what its leader says of it, if it says something.
pub(crate) fn outcome(catalog: &Catalog, queue: &Queue, told: Option<&DescribedQueue>) -> Value {
    let features = queue.features();
    let full = match (told, features) {
        (Some(told), Some(features)) => is_full(told, features),
        (Some(_), None) => Some(false),
        (None, _) => None,
    };
    let overflow = features.map_or(Overflow::DropHead, |features| features.overflow);
    let outcome = match (full, overflow) {
        (None, _) => "unknown: its leader does not answer",
        (Some(false), _) => "stored",
        (Some(true), Overflow::DropHead) => "stored: the oldest message goes for it",
        (Some(true), Overflow::RejectPublish) => "refused: the queue is full",
        (Some(true), Overflow::RejectPublishDlx) => {
            "refused: the queue is full, it is a dead letter"
        }
    };
    let mut fields = Map::new();
    fields.insert("name".to_owned(), queue.name.clone().into());
    fields.insert("type".to_owned(), queue.queue_type().name().into());
    fields.insert("outcome".to_owned(), outcome.into());
    fields.insert(
        "is_refused".to_owned(),
        (full == Some(true) && overflow != Overflow::DropHead).into(),
    );
    fields.insert("dead_letters".to_owned(), dead_letters(catalog, queue));
    fields.extend(stands(told));
    fields.into()
}

/// Whether there is no room for one more message.
fn is_full(told: &DescribedQueue, features: &Features) -> Option<bool> {
    let status = &told.queue.status;
    let by_count = features.max_length.is_some_and(|max| status.ready >= max);
    let by_bytes = match (features.max_length_bytes, told.queue.ready_bytes) {
        (Some(max), Some(bytes)) => bytes >= max,
        (Some(_) | None, _) => false,
    };
    Some(by_count || by_bytes)
}

/// How the queue stands, as its leader says.
pub(crate) fn stands(told: Option<&DescribedQueue>) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("state".to_owned(), if told.is_some() { "running" } else { "down" }.into());
    if let Some(told) = told {
        let status = &told.queue.status;
        fields.insert("leader".to_owned(), name_of(told.leader).into());
        fields.insert("messages_ready".to_owned(), status.ready.into());
        fields.insert("messages_unacknowledged".to_owned(), status.unsettled.into());
        fields.insert("ready_bytes".to_owned(), told.queue.ready_bytes.into());
        fields.insert("consumers".to_owned(), status.consumers.into());
    }
    fields
}

/// Where its dead letters would go now. `null`: they are dropped.
pub(crate) fn dead_letters(catalog: &Catalog, queue: &Queue) -> Value {
    let Some(exchange) = queue.dead_letter_exchange() else { return Value::Null };
    let (key, mut targets) = (queue.dead_letter_key(), Vec::new());
    // Without a key of its own each message keeps its own: where that leads, only the message knows.
    let routed = key.map(|key| {
        let by = PublishedBy::Broker;
        catalog.route_keys(by, &queue.vhost, exchange, &[key], &NoHeaders, &mut targets)
    });
    let queues = routed.and_then(Result::ok).map(|()| names(catalog, &targets));
    json!({
        "exchange": exchange,
        "is_there": exchange.is_empty() || catalog.exchange(&queue.vhost, exchange).is_some(),
        "routing_key": key,
        "queues": queues,
    })
}
