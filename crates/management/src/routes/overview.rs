//! The broker as a whole, and who asks.

use machine::CatalogCommand;
use serde_json::{Value, json};

use super::queues;
use crate::access::Role;
use crate::asked::Asked;
use crate::history::samples::Ranges;
use crate::node::{Facts, Totals, View};
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// The release of RabbitMQ whose API this is: tools look at it before they ask for more.
pub const RABBITMQ_VERSION: &str = "3.10.8";

/// Tools read it, and want one.
pub const ERLANG_VERSION: &str = "25";

const EXCHANGE_TYPES: [&str; 10] = [
    "direct",
    "fanout",
    "headers",
    "topic",
    "x-consistent-hash",
    "x-delayed-message",
    "x-local-random",
    "x-modulus-hash",
    "x-random",
    "x-recent-history",
];

pub(super) fn overview(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let facts = view.facts;
    let seen = queues::seen(view, asked)?;
    let exchange_count: usize = view.catalog.vhosts().map(|vhost| vhost.exchanges().count()).sum();
    let body = json!({
        "management_version": RABBITMQ_VERSION,
        "rates_mode": "basic",
        "product_version": env!("CARGO_PKG_VERSION"),
        "product_name": "Millrace",
        "rabbitmq_version": RABBITMQ_VERSION,
        "cluster_name": name(view),
        // What all nodes have agreed on: what older nodes do not know waits for it.
        "cluster_version": view.catalog.agreed().0,
        "erlang_version": ERLANG_VERSION,
        "erlang_full_version": ERLANG_VERSION,
        "node": facts.name(),
        "exchange_types": exchange_types(),
        "listeners": listeners(facts),
        "contexts": contexts(facts),
        "statistics_db_event_queue": 0,
        "object_totals": {
            "exchanges": exchange_count,
            "queues": seen.len(),
        },
        "disable_stats": false,
        "enable_queue_totals": false,
    });
    let is_wanted = !asked.says("disable_stats");
    let sees_all = Role::of(asked.who(view.catalog)?).monitors;
    let ranges = Ranges::of(asked)?;
    Ok(Work::Overview { seen: is_wanted.then_some(seen), body, ranges, sees_all })
}

pub(super) fn exchange_types() -> Value {
    let types = EXCHANGE_TYPES.map(|name| json!({ "name": name, "enabled": true }));
    types.to_vec().into()
}

/// Adds what the clients of all nodes have, and did since the nodes started.
pub(crate) fn add_totals(body: &mut Value, totals: &Totals) {
    let Value::Object(fields) = body else { return };
    let stats = json!({
        "publish": totals.published,
        "confirm": totals.confirmed,
        "return_unroutable": totals.returned,
        "drop_unroutable": totals.dropped,
        "deliver": totals.delivered,
        "get": totals.got,
        "deliver_get": totals.delivered + totals.got,
        "ack": totals.acked,
    });
    let churn = json!({
        "connection_created": totals.connections_opened,
        "connection_closed": totals.connections_closed,
        "channel_created": totals.channels_opened,
        "channel_closed": totals.channels_closed,
    });
    fields.insert("message_stats".to_owned(), stats);
    fields.insert("churn_rates".to_owned(), churn);
    if let Some(Value::Object(objects)) = fields.get_mut("object_totals") {
        objects.insert("channels".to_owned(), totals.channels.into());
        objects.insert("connections".to_owned(), totals.connections.into());
        objects.insert("consumers".to_owned(), totals.consumers.into());
    }
}

fn listeners(facts: &Facts) -> Value {
    let at = |protocol: &str, address: std::net::SocketAddr| {
        json!({
            "node": facts.name(),
            "protocol": protocol,
            "ip_address": address.ip().to_string(),
            "port": address.port(),
        })
    };
    let listening = facts.listening();
    listening.into_iter().map(|(protocol, address)| at(protocol, address)).collect()
}

fn contexts(facts: &Facts) -> Value {
    let served = [facts.http, facts.https].into_iter().flatten();
    let context = |address: std::net::SocketAddr| {
        json!({
            "node": facts.name(),
            "description": "RabbitMQ Management",
            "path": "/",
            "ip": address.ip().to_string(),
            "port": address.port().to_string(),
        })
    };
    served.map(context).collect()
}

/// What operators call the cluster; its number, if they have not named it.
pub(super) fn name(view: &View<'_>) -> String {
    match view.catalog.name() {
        "" => crate::node::cluster_name(view.facts.cluster),
        name => name.to_owned(),
    }
}

pub(super) fn cluster_name(view: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(json!({ "name": name(view) })))
}

pub(super) fn put_cluster_name(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.object()?.needed_short("name")?.to_owned();
    let commands = vec![CatalogCommand::SetClusterName { name }];
    Ok(Work::Change { commands, reply: Reply::done() })
}

pub(super) fn whoami(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let body =
        json!({ "name": user.name(), "tags": user.tags(), "is_internal_user": user.is_user() });
    Ok(Work::answer(Shape::of(asked)?.columns_of(body)))
}

pub(super) fn auth(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(json!({ "oauth_enabled": false })))
}

pub(super) fn extensions(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(json!([])))
}
