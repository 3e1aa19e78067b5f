//! Which partitions of their queues consumers have, as the leaders of the partitions say.

use std::collections::BTreeMap;

use machine::{GroupId, QueueId};
use serde_json::Value;

use super::api::Api;
use super::describing::describe_each;
use crate::limits::{ASSIGNED_QUEUES_MAX, ASSIGNED_WAIT};
use crate::routes::assignment::{ConsumerOf, partitions_of};

/// A consumer as it is shown, of this queue.
pub(super) struct Shown {
    pub(super) queue: QueueId,
    pub(super) of: ConsumerOf,
    pub(super) item: Value,
}

/// Adds `partitions` to those whose queue has several. `null`: not all leaders of the queue have said so in time, or there
/// are too many such queues.
pub(super) async fn add_partitions(api: &Api, consumers: &mut [Shown]) {
    let mut partitions: BTreeMap<QueueId, Vec<(GroupId, QueueId)>> = BTreeMap::new();
    {
        let catalog = api.0.cluster.catalog();
        for one in consumers.iter() {
            let queue = catalog.queue_by_id(one.queue);
            if let Some(queue) = queue.filter(|queue| queue.partition_count() > 1) {
                let all = || queue.partitions().map(|it| (it.group, it.queue)).collect();
                partitions.entry(one.queue).or_insert_with(all);
            }
        }
    }
    if partitions.is_empty() {
        return;
    }
    let asked = || partitions.iter().take(ASSIGNED_QUEUES_MAX);
    let all: Vec<(GroupId, QueueId)> = asked().flat_map(|(_, all)| all).copied().collect();
    let described = tokio::time::timeout(ASSIGNED_WAIT, describe_each(api, &all)).await;
    let mut described = described.unwrap_or_default().into_iter();
    let mut told: BTreeMap<QueueId, BTreeMap<ConsumerOf, Vec<usize>>> = BTreeMap::new();
    let catalog = api.0.cluster.catalog();
    for (id, all) in asked() {
        let described: Vec<_> = described.by_ref().take(all.len()).collect();
        // One that was deleted meanwhile has none.
        let queue = catalog.queue_by_id(*id).filter(|_| described.len() == all.len());
        told.extend(queue.and_then(|queue| Some((*id, partitions_of(queue, &described)?))));
    }
    for one in consumers.iter_mut().filter(|one| partitions.contains_key(&one.queue)) {
        let known = told.get(&one.queue);
        // One that the leaders do not know yet has none.
        let known = known.map(|of| of.get(&one.of).cloned().unwrap_or_default());
        one.item["partitions"] = known.into();
    }
}
