//! Queues: listed, made, deleted, emptied.

use broker::rate;
use client::QueueSpec;
use cluster::DescribedQueue;
use machine::{
    Arguments, Catalog, Governed, GroupId, NodeId, PolicyKind, Queue, QueueId, QueuePause,
    QueueStatus, QueueType, SessionOwner,
};
use serde_json::{Map, Value, json};

use crate::asked::Asked;
use crate::fronts::{Front, Merged};
use crate::history::samples::Ranges;
use crate::node::{View, name_of};
use crate::page::Shape;
use crate::rates::PerSecond;
use crate::reply::{Problem, Reply};
use crate::work::{Listed, Queues, Step, Work};
use crate::{access, arguments};

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    let seen: Vec<_> = seen.filter(|vhost| vhost.queues().next().is_some()).collect();
    let queues = seen.iter().flat_map(|vhost| vhost.queues()).collect();
    shaped(asked, queues, if seen.len() > 1 { Order::Any } else { Order::Names })
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    shaped(asked, vhost.queues().collect(), Order::Names)
}

/// In which order queues are that a list is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// That of their names, as in one vhost.
    Names,
    Any,
}

pub(super) fn shaped(
    asked: &Asked,
    mut queues: Vec<&Queue>,
    order: Order,
) -> Result<Work, Problem> {
    let shape = Shape::of(asked)?;
    let total_count = queues.len();
    queues.retain(|queue| shape.wants(&queue.name));
    let (queues, listed) = match shape.window(queues.len()) {
        // Those of other pages are not asked for.
        Some(window) => {
            // The catalog is held meanwhile, and 100,000 names lie far apart.
            if order != Order::Names {
                queues.sort_by(|one, other| one.name.cmp(&other.name));
            }
            if shape.is_reversed() {
                queues.reverse();
            }
            let filtered_count = queues.len();
            (queues[window].to_vec(), Listed::Page { filtered_count, total_count })
        }
        None if shape.sorted_page().is_some() => (queues, Listed::Sorted { total_count }),
        None => (queues, Listed::All { total_count }),
    };
    let queues = queues.into_iter().map(|queue| (queue.group, queue.id)).collect();
    Ok(Work::Queues(Queues { queues, shape, listed, ranges: Ranges::of(asked)? }))
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    let queues = vec![(queue.group, queue.id)];
    let (shape, ranges) = (Shape::of(asked)?, Ranges::of(asked)?);
    Ok(Work::Queues(Queues { queues, shape, listed: Listed::One, ranges }))
}

/// What a queue's leader says of it.
pub(crate) struct Said<'a> {
    pub(crate) leader: NodeId,
    pub(crate) status: &'a QueueStatus,
    pub(crate) rates: PerSecond,
    pub(crate) front: Front,
    /// What it says only if it is asked for this queue.
    pub(crate) more: Option<&'a DescribedQueue>,
}

/// A queue and what its leader says of it; `None`: it says nothing.
pub(crate) fn shown(catalog: &Catalog, queue: &Queue, said: Option<&Said<'_>>) -> Value {
    let mut fields = Map::new();
    let Value::Object(known) = defined(queue) else { return Value::Null };
    fields.extend(known);
    let exclusive = queue.exclusive.is_some();
    let Value::Object(more) = json!({
        "exclusive": exclusive,
        "type": queue.queue_type().name(),
        "policy": queue.governed().and_then(|governed| governed.policy.clone()),
        "operator_policy": queue.governed().and_then(|governed| governed.operator_policy.clone()),
        "effective_policy_definition":
            policy_definition(catalog, &queue.vhost, queue.governed(), None),
        "state": if said.is_some() { "running" } else { "down" },
    }) else {
        return Value::Null;
    };
    fields.extend(more);
    if queue.partition_count() > 1 {
        fields.insert("partitions".to_owned(), partitions(catalog, queue));
    }
    if let Some(rates) = rates(queue) {
        fields.insert("rates".to_owned(), rates);
    }
    fields.insert("paused".to_owned(), queue.pause().is_some().into());
    if let Some(QueuePause { by, since_ms }) = queue.pause() {
        fields.insert("paused_by".to_owned(), by.as_str().into());
        fields.insert("paused_at".to_owned(), (*since_ms).into());
    }
    if let Some(owner) = queue.exclusive {
        fields.insert("owner_pid_details".to_owned(), owner_of(owner));
    }
    match said {
        Some(said) => fields.extend(counted(catalog, queue, said)),
        None => {
            let leader = catalog.preferred_leader(queue.group).or(queue.node);
            fields.insert("node".to_owned(), leader.map(name_of).into());
        }
    }
    Value::Object(fields)
}

/// Where the partitions of a queue are.
fn partitions(catalog: &Catalog, queue: &Queue) -> Value {
    let shown = queue.partitions().enumerate().map(|(index, partition)| {
        let leader = catalog.preferred_leader(partition.group).map(name_of);
        json!({ "partition": index, "group": partition.group.0, "leader": leader })
    });
    shown.collect()
}

/// Adds how each partition of a queue stands, where there are several.
pub(crate) fn add_partitions(
    queue: &Queue,
    parts: &[Option<QueueStatus>],
    fronts: &Merged,
    fields: &mut Map<String, Value>,
) {
    let Some(Value::Array(partitions)) = fields.get_mut("partitions") else { return };
    let ids = queue.partitions().map(|partition| partition.queue);
    for ((shown, id), status) in partitions.iter_mut().zip(ids).zip(parts) {
        let Some(status) = status else { continue };
        shown["messages_ready"] = status.ready.into();
        shown["messages_unacknowledged"] = status.unsettled.into();
        shown["oldest_ready_at"] = fronts.of_partition(id, status.ready).oldest_ready_ms.into();
    }
}

/// The rates that hold for a queue now, as they are written. `None`: it has none.
fn rates(queue: &Queue) -> Option<Value> {
    let rates = queue.features().map(|features| features.rates).filter(|rates| !rates.is_none())?;
    let text = |rate: Option<machine::Rate>| rate.map(rate::shown);
    let burst = rates.dequeue.map(|rate| rates.dequeue_burst.unwrap_or(rate.default_burst()));
    Some(json!({
        "dequeue": text(rates.dequeue),
        "dequeue_burst": burst,
        "dequeue_bytes": text(rates.dequeue_bytes),
        "dequeue_per_key": text(rates.dequeue_per_key),
        "enqueue": text(rates.enqueue),
    }))
}

/// Whether the second of two limits is the larger. Of a rate only that is known which is written as one.
fn is_larger(before: &Value, now: &Value) -> bool {
    if let (Some(before), Some(now)) = (before.as_u64(), now.as_u64()) {
        return now > before;
    }
    let read = |value: &Value| value.as_str().and_then(rate::bytes);
    let rates = read(before).zip(read(now));
    rates.is_some_and(|(before, now)| before.slower(now) == before)
}

/// What the policies of a queue say together, as they were given; `new` is a policy that is not there yet, or says
/// something else.
pub(super) fn policy_definition(
    catalog: &Catalog,
    vhost: &str,
    governed: Option<&Governed>,
    new: Option<(PolicyKind, &str, &Arguments)>,
) -> Value {
    let (Some(governed), Some(vhost)) = (governed, catalog.vhost(vhost)) else {
        return json!({});
    };
    let named =
        [(PolicyKind::User, &governed.policy), (PolicyKind::Operator, &governed.operator_policy)];
    let mut all = Map::new();
    for (kind, name) in named {
        let Some(name) = name else { continue };
        let new = new.filter(|(of, new, _)| *of == kind && new == name);
        let known = || vhost.policy(kind, name).map(|policy| &policy.spec.definition);
        let definition = new.map(|(_, _, definition)| definition).or_else(known);
        let Some(Value::Object(fields)) = definition.map(arguments::shown) else { continue };
        for (name, value) in fields {
            // Of two limits the smaller counts.
            if !all.get(&name).is_some_and(|before| is_larger(before, &value)) {
                all.insert(name, value);
            }
        }
    }
    Value::Object(all)
}

fn owner_of(owner: SessionOwner) -> Value {
    let connection = broker::ConnectionId::of(owner.session);
    json!({ "name": connection.map(|it| it.to_string()), "node": name_of(owner.node) })
}

/// What a declaration says: also what definitions hold.
pub(super) fn defined(queue: &Queue) -> Value {
    json!({
        "name": queue.name,
        "vhost": queue.vhost,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": arguments::shown(&queue.arguments),
    })
}

fn counted(catalog: &Catalog, queue: &Queue, said: &Said<'_>) -> Map<String, Value> {
    let Said { leader, status, rates, front, more } = said;
    let counters = &status.counters;
    let voters: &[NodeId] = match (more, queue.node) {
        (_, Some(_)) => &[],
        (Some(more), None) => &more.voters,
        (None, None) => catalog.voters(queue.group),
    };
    let members: Vec<String> = match voters.is_empty() {
        true => vec![name_of(*leader)],
        false => voters.iter().copied().map(name_of).collect(),
    };
    // Messages that were purged and can be brought back.
    let withheld = more.and_then(|more| more.queue.withheld);
    let counted = json!({
        "node": name_of(*leader),
        "leader": name_of(*leader),
        "members": members,
        "messages": status.ready + status.unsettled,
        "messages_ready": status.ready,
        "messages_unacknowledged": status.unsettled,
        "consumers": status.consumers,
        "message_bytes_ready": more.and_then(|more| more.queue.ready_bytes).or(front.ready_bytes),
        "oldest_ready_at": front.oldest_ready_ms,
        "message_stats": {
            "publish": counters.enqueued,
            "publish_details": { "rate": rates.published },
            "ack": counters.settled,
            "ack_details": { "rate": rates.acked },
            // How many there were at all is not counted.
            "deliver_get_details": { "rate": rates.given },
        },
        "millrace": {
            "term": more.map(|more| more.term),
            "delayed": status.delayed,
            "leaving": status.leaving,
            "published_bytes": counters.enqueued_bytes,
            "purged": counters.purged,
            "withheld": withheld.map(|(count, _)| count),
            "withheld_until": withheld.map(|(_, until_ms)| until_ms),
            "dropped": counters.dropped,
            "dead_lettered": counters.dead_lettered,
            "passed_over": counters.passed_over,
            "duplicates": counters.duplicates,
            "held_back": status.held_back.messages,
            "held_back_ms": status.held_back.wait_ms,
            "held_back_publishes": status.held_back.publishes,
        },
    });
    match counted {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// Who consumes from a queue, as its leader knows them.
pub(crate) fn consumers(queue: &Queue, described: &DescribedQueue) -> Value {
    let attached = described.queue.holders.iter().filter(|holder| holder.is_attached);
    let shown = attached.map(|holder| {
        let connection = broker::ConnectionId::of(holder.consumer.session);
        let arguments = match queue.queue_type() {
            // Who reads one has no priority.
            QueueType::Stream => json!({}),
            QueueType::Classic | QueueType::Quorum | QueueType::Subscription => {
                json!({ "x-priority": holder.spec.priority })
            }
        };
        json!({
            "queue": { "name": queue.name, "vhost": queue.vhost },
            "channel_details": { "connection_name": connection.map(|it| it.to_string()) },
            "ack_required": !holder.spec.no_ack,
            "exclusive": holder.spec.exclusive,
            "active": holder.is_active,
            "arguments": arguments,
            "millrace": { "held": holder.held, "credit": holder.credit },
        })
    });
    shown.collect()
}

/// Ids of all queues that a user sees.
pub(super) fn seen(view: &View<'_>, asked: &Asked) -> Result<Vec<(GroupId, QueueId)>, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    Ok(seen.flat_map(|vhost| vhost.queues()).map(|queue| (queue.group, queue.id)).collect())
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.part("queue").to_owned();
    let reply = Reply::put(view.catalog.queue(asked.vhost(), &name).is_some());
    let body = asked.object()?;
    let spec = QueueSpec {
        name,
        durable: body.flag("durable", true)?,
        exclusive: false,
        auto_delete: body.flag("auto_delete", false)?,
        arguments: arguments::table(&body.object("arguments")?)?,
    };
    let (vhost, step) = (asked.vhost().to_owned(), Step::DeclareQueue(spec));
    Ok(Work::Client { vhost, step, reply })
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.part("queue").to_owned();
    view.catalog.queue(asked.vhost(), &name).ok_or(Problem::NotFound)?;
    let (if_empty, if_unused) = (asked.says("if-empty"), asked.says("if-unused"));
    let step = Step::DeleteQueue { name, if_empty, if_unused };
    Ok(Work::Client { vhost: asked.vhost().to_owned(), step, reply: Reply::done() })
}

/// What RabbitMQ's mirrors may be told. Replicas here always catch up by themselves, so there is nothing to do.
pub(super) fn act(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    match asked.object()?.needed("action")? {
        "sync" | "cancel_sync" => Ok(Work::Answer(Reply::done())),
        other => Err(Problem::Bad(format!("there is no action '{other}'"))),
    }
}
