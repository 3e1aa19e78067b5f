//! Who is served by which partition of a queue, since when, and why.

use std::collections::BTreeMap;

use broker::ConnectionId;
use cluster::{DescribedQueue, NotDescribed};
use machine::{HolderDescription, Queue, SessionId, Weight};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::node::{View, name_of};
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn get(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue"));
    queue.map(|queue| Work::Assignment(queue.id)).ok_or(Problem::NotFound)
}

/// What is said of one consumer, over all partitions.
struct Consumer {
    holder: HolderDescription,
    held: u64,
    partitions: Vec<usize>,
}

/// Who consumes: the connection, and its own number for the consumer.
pub(crate) type ConsumerOf = (ConnectionId, u64);

/// Who consumes, from what the leaders of the partitions said.
fn consumers(
    queue: &Queue,
    described: &[Result<Box<DescribedQueue>, NotDescribed>],
) -> BTreeMap<(SessionId, u64), Consumer> {
    let is_assigned = queue.features().is_some_and(|it| it.assignment.is_some());
    // The session's numbers for the partitions of one consumer are in a row.
    let mut consumers: BTreeMap<(SessionId, u64), Consumer> = BTreeMap::new();
    for (index, told) in described.iter().enumerate() {
        let Ok(told) = told else { continue };
        let attached = told.queue.holders.iter().filter(|holder| holder.is_attached);
        for holder in attached {
            let id = holder.consumer;
            let first = id.number.wrapping_sub(index as u64);
            let new = || Consumer { holder: *holder, held: 0, partitions: Vec::new() };
            let one = consumers.entry((id.session, first)).or_insert_with(new);
            one.held += holder.held;
            if holder.is_active || !is_assigned {
                one.partitions.push(index);
            }
        }
    }
    consumers
}

/// Which partitions each consumer has. `None`: not all of their leaders said so.
pub(crate) fn partitions_of(
    queue: &Queue,
    described: &[Result<Box<DescribedQueue>, NotDescribed>],
) -> Option<BTreeMap<ConsumerOf, Vec<usize>>> {
    let is_whole = described.iter().all(Result::is_ok);
    let each = consumers(queue, described).into_iter().filter_map(|((session, number), it)| {
        Some(((ConnectionId::of(session)?, number), it.partitions))
    });
    is_whole.then(|| each.collect())
}

/// From what the leaders of its partitions said, in their order.
pub(crate) fn shown(
    queue: &Queue,
    described: &[Result<Box<DescribedQueue>, NotDescribed>],
) -> Value {
    let consumers = consumers(queue, described);
    let mut partitions = Vec::with_capacity(described.len());
    for (index, told) in described.iter().enumerate() {
        let Ok(told) = told else {
            partitions.push(json!({ "partition": index, "leader": null, "consumer": null }));
            continue;
        };
        let active = told.queue.holders.iter().find(|holder| holder.is_active);
        partitions.push(json!({
            "partition": index,
            "leader": name_of(told.leader),
            "messages_ready": told.queue.status.ready,
            "messages_unacknowledged": told.queue.status.unsettled,
            "consumer": active.map(connection),
            "since": told.queue.active_since_ms,
        }));
    }
    json!({
        "vhost": queue.vhost,
        "name": queue.name,
        "assignment": word(queue),
        "partitions": partitions,
        "consumers": consumers.values().map(Consumer::shown).collect::<Vec<_>>(),
    })
}

/// How consumers get messages: as `x-assign` has it, or `single-active`.
fn word(queue: &Queue) -> &'static str {
    match queue.features() {
        Some(features) if features.single_active => "single-active",
        Some(features) if features.assignment.is_some() => "partition",
        Some(features) if features.order.is_some() => "key",
        Some(_) | None => "shared",
    }
}

fn connection(holder: &HolderDescription) -> Option<String> {
    ConnectionId::of(holder.consumer.session).map(|id| id.to_string())
}

impl Consumer {
    fn shown(&self) -> Value {
        let (because, weight) = match self.holder.spec.weight {
            Weight::Unknown => ("unknown", None),
            Weight::Said(weight) => ("said", Some(f64::from(weight))),
            Weight::Measured(capacity) => ("measured", Some(capacity.per_second())),
        };
        json!({
            "connection": connection(&self.holder),
            "partitions": self.partitions,
            "messages_unacknowledged": self.held,
            "weight": { "from": because, "value": weight },
        })
    }
}
