//! Does what a route has decided.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Instant;

use cluster::limits::DESCRIBED_QUEUES_MAX;
use cluster::{DescribedQueue, NotDescribed};
use machine::{GroupId, QueueId};
use serde_json::{Value, json};

use super::api::{Api, Caller, now_ms};
use super::change::{change, put_user};
use super::{client, connections, import};
use crate::limits::DESCRIBE_WAIT;
use crate::node::Facts;
use crate::rates::PerSecond;
use crate::reply::{Problem, Reply};
use crate::routes::queues;
use crate::work::{Listed, Queues, Work};

pub(super) async fn perform(
    api: &Api,
    caller: &Caller,
    facts: &Facts,
    work: Work,
) -> Result<Reply, Problem> {
    match work {
        Work::Answer(reply) => Ok(reply),
        Work::Change { commands, reply } => {
            for command in commands {
                change(api, command).await?;
            }
            Ok(reply)
        }
        Work::PutUser { name, password, tags, reply } => {
            put_user(api, name, password, tags).await?;
            Ok(reply)
        }
        Work::Queues(listed) => queues(api, listed).await,
        Work::Overview { seen, body } => overview(api, &seen, body).await,
        Work::Connections(wanted) => connections::connections(api, facts, wanted).await,
        Work::Client { vhost, step, reply } => {
            client::client(api, caller, vhost, step, reply).await
        }
        Work::Import(import) => import::import(api, *import).await,
        Work::QuorumCheck => quorum_check(api).await,
    }
}

/// What leaders say of these queues, in their order.
async fn describe(
    api: &Api,
    queues: &[(GroupId, QueueId)],
) -> Vec<Result<Box<DescribedQueue>, NotDescribed>> {
    let deadline = Instant::now() + DESCRIBE_WAIT;
    let mut described = Vec::with_capacity(queues.len());
    for some in queues.chunks(DESCRIBED_QUEUES_MAX) {
        // A group without a leader makes each of its queues wait.
        match Instant::now() < deadline {
            true => described.append(&mut api.0.cluster.describe(some).await),
            false => described.extend(some.iter().map(|_| Err(NotDescribed::Late))),
        }
    }
    described
}

async fn queues(api: &Api, wanted: Queues) -> Result<Reply, Problem> {
    let Queues { queues, shape, listed } = wanted;
    let described = describe(api, &queues).await;
    let now = now_ms();
    let rates: BTreeMap<QueueId, PerSecond> = {
        let mut rates = api.0.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let said = queues.iter().zip(&described);
        let said = said.filter_map(|((_, id), said)| Some((*id, said.as_ref().ok()?)));
        said.map(|(id, said)| (id, rates.of(id, now, queues::totals(said)))).collect()
    };
    let catalog = api.0.cluster.catalog();
    let mut items = Vec::with_capacity(queues.len());
    for ((_, id), said) in queues.iter().zip(&described) {
        // Who was deleted meanwhile is in no list.
        let Some(queue) = catalog.queue_by_id(*id) else { continue };
        if matches!(said, Err(NotDescribed::NoQueue)) {
            continue;
        }
        let said = said.as_ref().ok().map(Box::as_ref);
        let rates = rates.get(id).copied().unwrap_or_default();
        let mut item = queues::shown(&catalog, queue, said, rates);
        if let (Listed::One, Some(said), Value::Object(fields)) = (listed, said, &mut item) {
            fields.insert("consumer_details".to_owned(), queues::consumers(queue, said));
        }
        items.push(item);
    }
    Ok(match listed {
        Listed::One => {
            let item = items.pop().ok_or(Problem::NotFound)?;
            Reply::of(shape.columns_of(item))
        }
        Listed::All { total_count } => shape.reply(items, total_count),
        Listed::Page { filtered_count, total_count } => {
            shape.reply_with(items, filtered_count, total_count)
        }
    })
}

async fn overview(
    api: &Api,
    seen: &[(GroupId, QueueId)],
    mut body: Value,
) -> Result<Reply, Problem> {
    let (mut ready, mut unacked) = (0, 0);
    for said in describe(api, seen).await.iter().flatten() {
        ready += said.queue.status.ready;
        unacked += said.queue.status.unsettled;
    }
    if let Value::Object(fields) = &mut body {
        let totals = json!({
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
        });
        fields.insert("queue_totals".to_owned(), totals);
    }
    Ok(Reply::of(body))
}

/// Whether every group of which this node keeps a replica has a majority without it.
async fn quorum_check(api: &Api) -> Result<Reply, Problem> {
    let cluster = api.0.cluster.clone();
    let status = tokio::task::spawn_blocking(move || cluster.status()).await;
    let status = status.ok().flatten().ok_or_else(|| {
        Problem::Unavailable("the node did not say in time how its groups stand".to_owned())
    })?;
    let me = api.0.cluster.node();
    let up = |node| status.peers.iter().any(|peer| peer.node == node && peer.is_up);
    let catalog = api.0.cluster.catalog();
    let is_critical = |voters: &[machine::NodeId]| {
        let others = voters.iter().filter(|voter| **voter != me && up(**voter)).count();
        voters.len() > 1 && voters.contains(&me) && others < voters.len() / 2 + 1
    };
    let groups = (1..=catalog.group_count()).map(GroupId).chain([GroupId::CATALOG]);
    let critical: Vec<u32> =
        groups.filter(|group| is_critical(catalog.voters(*group))).map(|group| group.0).collect();
    if critical.is_empty() {
        return Ok(Reply::of(json!({ "status": "ok" })));
    }
    Err(Problem::Failed(json!({
        "status": "failed",
        "reason": "There are queues that would lose their quorum if the target node is shut down",
        "groups": critical,
    })))
}
