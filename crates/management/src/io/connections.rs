//! What clients are doing.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use broker::io::describe::NotDescribed;
use broker::session::PauseOrder;
use broker::session::describe::{
    ChannelDescription, ChannelLine, ConnectionDescription, ConnectionLine, ConnectionState,
    ConsumerDescription, ConsumerPause, HeldBy, PublishMode,
};
use broker::{ConnectionId, Traffic};
use machine::{Actor, QueueId};
use serde_json::{Map, Value, json};

use super::api::{Api, now_ms};
use super::aside::aside;
use super::asking;
use super::assigned::{Shown, add_partitions};
use super::change::note;
use super::lines::{known, latest};
use crate::audit;
use crate::limits::{HOLDERS_MAX, SHOWN_CONNECTIONS_AT_ONCE};
use crate::lines::{Cut, Known, Wanted, name_at};
use crate::neighbour::{HeldMessage, Holder, Holding, Question, ToldConnections};
use crate::node::Facts;
use crate::page::Shape;
use crate::rates;
use crate::reply::{Problem, Reply};
use crate::work::{Connections, Of, Work};

/// Those of this node, and those of the others: a list leaves out a node that does not answer. The audit trail is told of
/// what was changed.
pub(super) async fn connections(
    api: &Api,
    facts: &Facts,
    by: &Actor,
    wanted: Connections,
) -> Result<Reply, Problem> {
    let event = audit::of_connections(&wanted.what);
    let (answer, has_changed) = match asked(api, facts, wanted).await {
        Ok((reply, has_changed)) => (Ok(reply), has_changed),
        // It may be done, or some of it.
        Err(why @ Problem::Unavailable(_)) => (Err(why), true),
        Err(why) => (Err(why), false),
    };
    if let Some(event) = event.filter(|_| has_changed) {
        note(api, by, event).await;
    }
    answer
}

/// The answer, and whether anything was changed.
async fn asked(api: &Api, facts: &Facts, wanted: Connections) -> Result<(Reply, bool), Problem> {
    let Connections { what, user, vhost, holding, shape } = wanted;
    let wanted = Wanted { what, user, vhost };
    let is_one = match wanted.what {
        Of::Connection(_) | Of::Channel(_) | Of::Channels(Some(_)) => true,
        Of::Close { .. } | Of::Pause { .. } => true,
        Of::Connections | Of::Channels(None) | Of::Consumers | Of::CloseAll { .. } => false,
    };
    if matches!(wanted.what, Of::Connections) && api.0.cluster.catalog().nodes().count() == 1 {
        return Ok((alone(api, facts, wanted, shape).await?, false));
    }
    let mut found = of_this_node(api, facts, &wanted).await?;
    if !is_one || found.is_none() {
        let Wanted { what, user, vhost } = &wanted;
        let (what, user, vhost) = (what.clone(), user.clone(), vhost.clone());
        let question = Question::Connections { what, user, vhost };
        let others = asking::ask_others::<ToldConnections>(api, &question).await;
        found = wanted.what.together(found, others)?;
    }
    let mut found = found.ok_or(Problem::NotFound)?;
    if holding {
        longest_first(&mut found);
    }
    let was_paused = found == [Value::Bool(true)];
    match wanted.what {
        Of::Connections | Of::Channels(_) | Of::Consumers => match Work::list(&shape, found) {
            Work::Answer(reply) => Ok((reply, false)),
            _ => Err(Problem::NotFound),
        },
        Of::Connection(_) | Of::Channel(_) => {
            let one = found.pop().ok_or(Problem::NotFound)?;
            Ok((Reply::of(shape.columns_of(one)), false))
        }
        Of::Close { .. } => Ok((Reply::done(), true)),
        Of::CloseAll { .. } => Ok((Reply::done(), !found.is_empty())),
        Of::Pause { by: None, .. } => Ok((Reply::done(), was_paused)),
        Of::Pause { by: Some(_), .. } => Ok((Reply::put(was_paused), !was_paused)),
    }
}

/// What another node is told of it.
pub(super) async fn told(api: &Api, facts: &Facts, wanted: &Wanted) -> Option<ToldConnections> {
    match of_this_node(api, facts, wanted).await {
        Ok(found) => Some(ToldConnections::Found(found)),
        Err(Problem::Unavailable(unavailable)) => Some(ToldConnections::Failed { unavailable }),
        Err(_) => None,
    }
}

/// Consumers that hold messages, who has held one for longest first.
fn longest_first(consumers: &mut Vec<Value>) {
    let held = |consumer: &Value| consumer["millrace"]["held"].as_u64().unwrap_or_default();
    consumers.retain(|consumer| held(consumer) > 0);
    consumers.sort_by_key(|consumer| {
        let at = consumer["oldest_held_at"].as_u64().unwrap_or(u64::MAX);
        (at, std::cmp::Reverse(held(consumer)))
    });
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
async fn of_this_node(
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
                let mut consumers = consumers_of(api, facts, known, &found);
                add_partitions(api, &mut consumers).await;
                let consumers = consumers.into_iter().map(|one| one.item).collect();
                fields.insert("consumer_details".to_owned(), consumers);
            }
            items.push(shown);
        }
        Of::Consumers => {
            let mut all = Vec::new();
            for known in known.iter().filter(|known| known.line.consumer_count > 0) {
                all.append(&mut consumers(api, facts, known).await);
            }
            add_partitions(api, &mut all).await;
            items.extend(all.into_iter().map(|one| one.item));
        }
        Of::Close { name, reason } => {
            let Some(known) = find(name) else { return Ok(None) };
            close(api, known.id, reason).await?;
        }
        Of::Pause { channel, tag, by } => {
            let Some((connection, number)) = split(channel) else { return Ok(None) };
            let Some(known) = find(connection) else { return Ok(None) };
            let pause = by.clone().map(|by| ConsumerPause { by, since_ms: now_ms() });
            let order = PauseOrder { channel: number, tag: tag.clone(), pause };
            let told = api.0.broker.connections().pause(known.id, order).await;
            items.push(told.map_err(not_done)?.into());
        }
        Of::CloseAll { user, reason } => {
            for known in known.iter().filter(|known| known.line.user == *user) {
                close(api, known.id, reason).await?;
                items.push(true.into());
            }
        }
    }
    Ok(Some(items))
}

/// Who holds messages, as far as that is on this node.
pub(super) async fn holders(
    api: &Api,
    facts: &Facts,
    of: &[Holding],
    messages: &[HeldMessage],
) -> Vec<Holder> {
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
        let held = messages.iter().filter(|message| message.by == *holding);
        let held: BTreeSet<_> = held.map(|it| (QueueId(it.queue), it.seq)).collect();
        let since = api.0.broker.connections().held_since(id, holding.number, held).await;
        let since = since.unwrap_or_default().into_iter();
        let since = since.map(|((queue, seq), ms)| (queue.0, seq, ms)).collect();
        found.push(Holder { of: holding.clone(), shown, since });
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
        Err(why) => Err(not_done(why)),
    }
}

fn not_done(why: NotDescribed) -> Problem {
    match why {
        NotDescribed::Late | NotDescribed::Busy => {
            Problem::Unavailable("the connection did not answer in time".to_owned())
        }
        NotDescribed::NoConnection | NotDescribed::NoChannel | NotDescribed::NoConsumer => {
            Problem::NotFound
        }
    }
}

fn connection(facts: &Facts, known: &Known, more: Option<&ConnectionDescription>) -> Value {
    let Known { id, line, is_tls, rates } = known;
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
        "blocked_by": line.blocked_by.map(blocked_by),
        "millrace": { "id": id.to_string(), "consumers": line.consumer_count },
    });
    if let Value::Object(fields) = &mut shown {
        let [received, sent, published, delivered, acked] = *rates;
        let Traffic { received_bytes, sent_bytes, .. } = line.traffic;
        rates::shown(fields, "recv_oct", received_bytes, received);
        rates::shown(fields, "send_oct", sent_bytes, sent);
        let mut stats = Map::new();
        rates::shown(&mut stats, "publish", line.traffic.published, published);
        rates::shown(&mut stats, "deliver_get", line.traffic.delivered, delivered);
        rates::shown(&mut stats, "ack", line.traffic.acked, acked);
        fields.insert("message_stats".to_owned(), stats.into());
    }
    if let (Some(more), Value::Object(fields)) = (more, &mut shown) {
        fields.insert("channel_max".to_owned(), more.channel_max.into());
        fields.insert("frame_max".to_owned(), more.frame_bytes_max.into());
        fields.insert("timeout".to_owned(), more.heartbeat_seconds.into());
    }
    shown
}

/// What publishers of a connection wait for, for programs.
fn blocked_by(held: HeldBy) -> &'static str {
    match held {
        HeldBy::Memory => "memory",
        HeldBy::Disk => "disk",
        HeldBy::InFlight => "in_flight",
        HeldBy::Queue => "queue",
        HeldBy::Log => "log",
    }
}

async fn channels(api: &Api, facts: &Facts, known: &Known) -> Vec<Value> {
    let described = api.0.broker.connections().describe(known.id).await;
    let lines = described.map(|described| described.channels).unwrap_or_default();
    lines.iter().map(|line| channel(facts, known, line)).collect()
}

async fn consumers(api: &Api, facts: &Facts, known: &Known) -> Vec<Shown> {
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
) -> Vec<Shown> {
    let now = now_ms();
    let mut rates = api.0.client_rates.lock().unwrap_or_else(PoisonError::into_inner);
    let catalog = api.0.cluster.catalog();
    let shown = channel.consumers.iter().filter_map(|consumer| {
        let queue = catalog.queue_by_id(consumer.queue)?;
        let totals = [consumer.delivered, consumer.acked];
        let rates = rates.consumers.of((known.id, consumer.number), now, totals);
        let item = self::consumer(facts, known, &channel.line, (consumer, rates), queue);
        Some(Shown { queue: queue.id, of: (known.id, consumer.number), item })
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
    (consumer, [delivered, acked]): (&ConsumerDescription, [f64; 2]),
    queue: &machine::Queue,
) -> Value {
    let mut stats = Map::new();
    rates::shown(&mut stats, "deliver", consumer.delivered, delivered);
    rates::shown(&mut stats, "ack", consumer.acked, acked);
    let pause = consumer.pause.as_ref();
    json!({
        "consumer_tag": consumer.tag,
        "queue": { "name": queue.name, "vhost": queue.vhost },
        "channel_details": channel_details(facts, known, line.number),
        "ack_required": !consumer.no_ack,
        "prefetch_count": consumer.prefetch,
        "oldest_held_at": consumer.held_since_ms,
        "message_stats": stats,
        "millrace": {
            "held": consumer.held,
            "credit": consumer.credit,
            "paused": pause.is_some(),
            "paused_by": pause.map(|pause| &pause.by),
            "paused_at": pause.map(|pause| pause.since_ms),
        },
    })
}
