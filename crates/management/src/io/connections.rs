//! What clients are doing.

use std::net::SocketAddr;
use std::sync::Arc;

use broker::ConnectionId;
use broker::io::describe::NotDescribed;
use broker::session::describe::{
    ChannelDescription, ChannelLine, ConnectionDescription, ConnectionLine, ConnectionState,
    ConsumerDescription, PublishMode,
};
use serde_json::{Value, json};

use super::api::Api;
use super::aside::aside;
use super::asking;
use super::lines::{known, latest};
use crate::limits::{HOLDERS_MAX, SHOWN_CONNECTIONS_AT_ONCE};
use crate::lines::{Cut, Known, Wanted, name_at};
use crate::neighbour::{Holder, Holding, Question};
use crate::node::Facts;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::{Connections, Of, Work};

/// Those of this node, and those of the others: a node that does not answer is left out.
pub(super) async fn connections(
    api: &Api,
    facts: &Facts,
    wanted: Connections,
) -> Result<Reply, Problem> {
    let Connections { what, user, vhost, shape } = wanted;
    let wanted = Wanted { what, user, vhost };
    let is_one = match wanted.what {
        Of::Connection(_) | Of::Channel(_) | Of::Channels(Some(_)) | Of::Close { .. } => true,
        Of::Connections | Of::Channels(None) | Of::Consumers | Of::CloseAll { .. } => false,
    };
    if matches!(wanted.what, Of::Connections) && api.0.cluster.catalog().nodes().count() == 1 {
        return alone(api, facts, wanted, shape).await;
    }
    let mut found = of_this_node(api, facts, &wanted).await?;
    if !is_one || found.is_none() {
        let Wanted { what, user, vhost } = &wanted;
        let (what, user, vhost) = (what.clone(), user.clone(), vhost.clone());
        let question = Question::Connections { what, user, vhost };
        let others = asking::ask_others::<Option<Vec<Value>>>(api, &question).await;
        for told in others.into_iter().filter_map(|(_, told)| told.ok().flatten()) {
            found.get_or_insert_default().extend(told);
        }
    }
    let mut found = found.ok_or(Problem::NotFound)?;
    match wanted.what {
        Of::Connections | Of::Channels(_) | Of::Consumers => match Work::list(&shape, found) {
            Work::Answer(reply) => Ok(reply),
            _ => Err(Problem::NotFound),
        },
        Of::Connection(_) | Of::Channel(_) => {
            let one = found.pop().ok_or(Problem::NotFound)?;
            Ok(Reply::of(shape.columns_of(one)))
        }
        Of::Close { .. } | Of::CloseAll { .. } => Ok(Reply::done()),
    }
}

/// The connections of a node without others: those of other pages are not written first to be left out then.
async fn alone(api: &Api, facts: &Facts, wanted: Wanted, shape: Shape) -> Result<Reply, Problem> {
    let all = latest(api).await;
    let (of, local) = (Arc::clone(&all), local(facts));
    let cut = aside(move || (Cut::of(&of, local, &wanted, &shape), shape));
    let (cut, shape) = cut.await?;
    let items = all_shown(facts, cut.places.into_iter().filter_map(|place| all.get(place))).await;
    Ok(match cut.is_page {
        true => shape.reply_with(items, cut.filtered_count, cut.total_count),
        false => shape.reply(items, cut.total_count),
    })
}

/// Connections as they are shown, some at a time: publishers get their turns in between.
async fn all_shown(facts: &Facts, known: impl Iterator<Item = &Known>) -> Vec<Value> {
    let mut items = Vec::new();
    for known in known {
        items.push(connection(facts, known, None));
        if items.len() % SHOWN_CONNECTIONS_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
    items
}

/// What this node has of it. `None`: the one connection that is meant is not here.
pub(super) async fn of_this_node(
    api: &Api,
    facts: &Facts,
    wanted: &Wanted,
) -> Result<Option<Vec<Value>>, Problem> {
    let what = &wanted.what;
    let all = match what {
        Of::Connections => latest(api).await,
        _ => Arc::new(known(api).await),
    };
    let known: Vec<&Known> = all.iter().filter(|known| wanted.wants(known)).collect();
    let find =
        |name: &str| known.iter().copied().find(|known| name_of(facts, &known.line) == *name);
    let mut items = Vec::new();
    match what {
        Of::Connections => items = all_shown(facts, known.iter().copied()).await,
        Of::Connection(name) => {
            let Some(known) = find(name) else { return Ok(None) };
            let more = api.0.broker.connections().describe(known.id).await.ok();
            items.push(connection(facts, known, more.as_ref()));
        }
        Of::Channels(None) => {
            for known in &known {
                items.append(&mut channels(api, facts, known).await);
            }
        }
        Of::Channels(Some(name)) => {
            let Some(known) = find(name) else { return Ok(None) };
            items.append(&mut channels(api, facts, known).await);
        }
        Of::Channel(name) => {
            let Some((connection, number)) = split(name) else { return Ok(None) };
            let Some(known) = find(connection) else { return Ok(None) };
            let found = api.0.broker.connections().channel(known.id, number).await;
            let Ok(found) = found else { return Ok(None) };
            let mut shown = channel(facts, known, &found.line);
            if let Value::Object(fields) = &mut shown {
                let consumers = consumers_of(api, facts, known, &found);
                fields.insert("consumer_details".to_owned(), consumers.into());
            }
            items.push(shown);
        }
        Of::Consumers => {
            for known in known.iter().filter(|known| known.line.consumer_count > 0) {
                items.append(&mut consumers(api, facts, known).await);
            }
        }
        Of::Close { name, reason } => {
            let Some(known) = find(name) else { return Ok(None) };
            close(api, known.id, reason).await?;
        }
        Of::CloseAll { user, reason } => {
            for known in known.iter().filter(|known| known.line.user == *user) {
                close(api, known.id, reason).await?;
            }
        }
    }
    Ok(Some(items))
}

/// Who holds messages, as far as that is on this node.
pub(super) async fn holders(api: &Api, facts: &Facts, of: &[Holding]) -> Vec<Holder> {
    let mut found = Vec::new();
    for holding in of.iter().take(HOLDERS_MAX) {
        let Ok(id) = holding.connection.parse::<ConnectionId>() else { continue };
        let described = api.0.broker.connections().describe(id).await;
        let Ok(described) = described else { continue };
        let mut shown = json!({
            "connection_name": name_of(facts, &described.line),
            "user": described.line.user,
            "user_provided_name": described.line.client,
        });
        let consumer = find_consumer(api, id, &described, holding.number).await;
        // Without one it was fetched, or its consumer has been cancelled since.
        if let (Some((channel, tag)), Value::Object(fields)) = (consumer, &mut shown) {
            fields.insert("channel".to_owned(), channel.into());
            fields.insert("consumer_tag".to_owned(), tag.into());
        }
        found.push(Holder { of: holding.clone(), shown });
    }
    found
}

/// Channel and tag of a consumer, by the connection's own number for it.
async fn find_consumer(
    api: &Api,
    id: ConnectionId,
    described: &ConnectionDescription,
    number: u64,
) -> Option<(u16, String)> {
    for line in described.channels.iter().filter(|line| line.consumer_count > 0) {
        let channel = api.0.broker.connections().channel(id, line.number).await;
        let mut consumers =
            channel.map(|channel| channel.consumers).unwrap_or_default().into_iter();
        if let Some(found) = consumers.find(|consumer| consumer.number == number) {
            return Some((line.number, found.tag));
        }
    }
    None
}

/// Ends a connection; one that has ended meanwhile is as good.
async fn close(api: &Api, id: ConnectionId, reason: &str) -> Result<(), Problem> {
    match api.0.broker.connections().close(id, reason).await {
        Ok(()) | Err(NotDescribed::NoConnection) => Ok(()),
        Err(NotDescribed::Late | NotDescribed::Busy) => {
            Err(Problem::Unavailable("the connection did not answer in time".to_owned()))
        }
        Err(NotDescribed::NoChannel | NotDescribed::NoConsumer) => Err(Problem::NotFound),
    }
}

fn connection(facts: &Facts, known: &Known, more: Option<&ConnectionDescription>) -> Value {
    let Known { id, line, is_tls } = known;
    let local = local(facts);
    let state = match line.state {
        ConnectionState::Opening => "starting",
        ConnectionState::Running => "running",
        ConnectionState::Blocked => "blocked",
        ConnectionState::Closing => "closing",
    };
    let mut shown = json!({
        "name": name_of(facts, line),
        "user": line.user,
        "user_who_performed_action": line.user,
        "vhost": line.vhost,
        "state": state,
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "node": facts.name(),
        "host": local.ip().to_string(),
        "port": local.port(),
        "peer_host": line.peer.ip().to_string(),
        "peer_port": line.peer.port(),
        "ssl": is_tls,
        "channels": line.channel_count,
        "connected_at": line.since_ms,
        "user_provided_name": line.client,
        "client_properties": { "connection_name": line.client },
        "send_pend": line.outbound_bytes,
        "millrace": { "id": id.to_string(), "consumers": line.consumer_count },
    });
    if let (Some(more), Value::Object(fields)) = (more, &mut shown) {
        fields.insert("channel_max".to_owned(), more.channel_max.into());
        fields.insert("frame_max".to_owned(), more.frame_bytes_max.into());
        fields.insert("timeout".to_owned(), more.heartbeat_seconds.into());
    }
    shown
}

async fn channels(api: &Api, facts: &Facts, known: &Known) -> Vec<Value> {
    let described = api.0.broker.connections().describe(known.id).await;
    let lines = described.map(|described| described.channels).unwrap_or_default();
    lines.iter().map(|line| channel(facts, known, line)).collect()
}

async fn consumers(api: &Api, facts: &Facts, known: &Known) -> Vec<Value> {
    let described = api.0.broker.connections().describe(known.id).await;
    let lines = described.map(|described| described.channels).unwrap_or_default();
    let mut consumers = Vec::new();
    for line in lines.iter().filter(|line| line.consumer_count > 0) {
        let found = api.0.broker.connections().channel(known.id, line.number).await;
        if let Ok(found) = found {
            consumers.append(&mut consumers_of(api, facts, known, &found));
        }
    }
    consumers
}

fn consumers_of(
    api: &Api,
    facts: &Facts,
    known: &Known,
    channel: &ChannelDescription,
) -> Vec<Value> {
    let catalog = api.0.cluster.catalog();
    let shown = channel.consumers.iter().filter_map(|consumer| {
        let queue = catalog.queue_by_id(consumer.queue)?;
        Some(self::consumer(facts, known, &channel.line, consumer, queue))
    });
    shown.collect()
}

/// Where AMQP is served.
fn local(facts: &Facts) -> SocketAddr {
    facts.amqp.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
}

/// What RabbitMQ calls a connection.
fn name_of(facts: &Facts, line: &ConnectionLine) -> String {
    name_at(local(facts), line)
}

/// A channel's name is its connection's, with its number in parentheses.
fn split(name: &str) -> Option<(&str, u16)> {
    let (connection, number) = name.strip_suffix(')')?.rsplit_once(" (")?;
    Some((connection, number.parse().ok()?))
}

fn channel_details(facts: &Facts, known: &Known, number: u16) -> Value {
    let connection = name_of(facts, &known.line);
    json!({
        "name": format!("{connection} ({number})"),
        "number": number,
        "user": known.line.user,
        "node": facts.name(),
        "connection_name": connection,
        "peer_host": known.line.peer.ip().to_string(),
        "peer_port": known.line.peer.port(),
    })
}

fn channel(facts: &Facts, known: &Known, line: &ChannelLine) -> Value {
    let connection = name_of(facts, &known.line);
    let (unconfirmed, settles) = match line.publishes {
        PublishMode::Plain => (0, 0),
        PublishMode::Confirm { unconfirmed } => (unconfirmed, 0),
        PublishMode::Tx { settles, .. } => (0, settles),
    };
    json!({
        "name": format!("{connection} ({})", line.number),
        "number": line.number,
        "user": known.line.user,
        "user_who_performed_action": known.line.user,
        "vhost": known.line.vhost,
        "node": facts.name(),
        "state": "running",
        "confirm": matches!(line.publishes, PublishMode::Confirm { .. }),
        "transactional": matches!(line.publishes, PublishMode::Tx { .. }),
        "consumer_count": line.consumer_count,
        "prefetch_count": line.prefetch,
        "global_prefetch_count": line.prefetch_global,
        "messages_unacknowledged": line.unacked,
        "messages_unconfirmed": unconfirmed,
        "acks_uncommitted": settles,
        "connection_details": {
            "name": connection,
            "peer_host": known.line.peer.ip().to_string(),
            "peer_port": known.line.peer.port(),
        },
    })
}

fn consumer(
    facts: &Facts,
    known: &Known,
    line: &ChannelLine,
    consumer: &ConsumerDescription,
    queue: &machine::Queue,
) -> Value {
    json!({
        "consumer_tag": consumer.tag,
        "queue": { "name": queue.name, "vhost": queue.vhost },
        "channel_details": channel_details(facts, known, line.number),
        "ack_required": !consumer.no_ack,
        "prefetch_count": consumer.prefetch,
        "millrace": { "held": consumer.held, "credit": consumer.credit },
    })
}
