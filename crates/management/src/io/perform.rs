//! Does what a route has decided.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use axum::response::Response;
use cluster::{DescribedQueue, NotDescribed};
use http::StatusCode;
use machine::{CatalogCommand, GroupId, NodeId, QueueId, QueueStatus};
use serde_json::{Value, json};

use super::api::{Api, Caller, now_ms};
use super::aside::aside;
use super::change::{change, mark, note, put_user};
use super::describing::describe_each;
use super::import::Differing;
use super::response::response;
use super::{
    asking, backup, books, client, companions, connections, deaths, disk, exchanges, fronts,
    groups, history, import, live, locks, model, neighbours, orders, peeks, places, problems,
    purges, retries,
};
use crate::audit;
use crate::fronts::Merged;
use crate::history::samples::Ranges;
use crate::limits::{ASKED_QUEUES_MAX, SHOWN_QUEUES_AT_ONCE};
use crate::neighbour::{NodeStanding, Question};
use crate::node::Facts;
use crate::page::{Shape, last_if_none};
use crate::picture::{self, Picture, sort_key};
use crate::problems::critical_groups;
use crate::rates::PerSecond;
use crate::reply::{Problem, Reply};
use crate::routes::{assignment, explain, health, nodes, overview, queues};
use crate::work::{Kept, Listed, Queues, Work};

pub(super) async fn perform(
    api: &Api,
    caller: &Caller,
    facts: &Facts,
    work: Work,
) -> Result<Response, Problem> {
    let by = audit::actor(&caller.user, &caller.peer.to_string());
    let reply = match work {
        Work::Live => return live::open(api, caller),
        Work::Answer(reply) => Ok(reply),
        Work::Change { commands, reply } => {
            for command in commands {
                change(api, &by, command).await?;
            }
            Ok(reply)
        }
        Work::PutUser { name, password, tags, then, reply } => {
            put_user(api, &by, name, password, tags).await?;
            if let Some(command) = then {
                change(api, &by, command).await?;
            }
            Ok(reply)
        }
        Work::Queues(listed) => queues(api, listed).await,
        Work::Explain { queues, body, kept } => Ok(explained(api, &queues, body, kept).await),
        Work::Overview { seen, mut body, ranges, sees_all } => {
            let now = self::overview(api, facts, seen.as_deref(), &mut body);
            let ((), past) = tokio::join!(now, history::of_overview(api, ranges));
            past.add_to(&mut body, sees_all);
            Ok(Reply::of(body))
        }
        Work::Nodes { shape, one, ranges } => self::nodes(api, &shape, one, ranges).await,
        Work::History(wanted) => history::history(api, wanted).await,
        Work::Mark { text } => mark(api, &by, &text).await.map(|()| Reply::created()),
        Work::Connections(wanted) => connections::connections(api, facts, &by, wanted).await,
        Work::Places { partitions, to } => places::places(api, partitions, to).await,
        Work::Companions { shape } => companions::companions(api, &shape).await,
        Work::Groups { shape } => groups::groups(api, &shape).await,
        Work::Disk(node) => disk::disk(api, node).await,
        Work::Companion(wish) => companions::order(api, &by, &wish).await,
        Work::Exchanges { items, shape, is_one } => {
            exchanges::exchanges(api, items, &shape, is_one).await
        }
        Work::Client { vhost, step, reply } => {
            let is_new = reply.status == StatusCode::CREATED;
            let event = audit::of_step(&vhost, &step, is_new);
            let reply = client::client(api, caller, vhost, step, reply).await?;
            if let Some(event) = event {
                note(api, &by, event).await;
            }
            Ok(reply)
        }
        Work::Peek(wanted) => peeks::peek(api, wanted).await,
        Work::Assignment(queue) => assigned(api, queue).await,
        Work::Withhold(wanted) => purges::withhold(api, &by, wanted).await,
        Work::Order(wanted) => orders::order(api, &by, wanted).await,
        Work::Lock(wanted) => locks::lock(api, &by, wanted).await,
        Work::Locks { vhost, groups, shape } => locks::locks(api, &vhost, groups, &shape).await,
        Work::DeleteVhost { name, groups } => {
            change(api, &by, CatalogCommand::DeleteVhost { name: name.clone() }).await?;
            locks::forget(api, &name, groups).await;
            Ok(Reply::done())
        }
        Work::Deaths(wanted) => deaths::deaths(api, wanted).await,
        Work::DeathsEverywhere { queues, is_cut } => {
            Ok(deaths::everywhere(api, queues, is_cut).await)
        }
        Work::Retry(plan) => {
            let event = (!plan.is_dry).then(|| audit::of_retry(&plan));
            let reply = retries::start(api, *plan).await?;
            if let Some(event) = event {
                note(api, &by, event).await;
            }
            Ok(reply)
        }
        Work::Retries { what, vhosts, shape } => retries::retries(api, what, vhosts, &shape).await,
        Work::Import(import) => import::import(api, &by, *import, Differing::Refused).await,
        Work::Problems(sight) => Ok(problems::problems(api, &sight).await),
        Work::Books { vhost } => Ok(books::books(api, vhost.as_deref()).await),
        Work::Backup(step) => backup::perform(api, step).await,
        Work::Alarms => alarms(api).await,
        Work::QuorumCheck => quorum_check(api),
    };
    reply.map(response)
}

/// What the leaders of a queue's partitions say of it.
struct Told {
    whole: Result<Box<DescribedQueue>, NotDescribed>,
    /// How each of its partitions stands. `None`: its leader says nothing.
    parts: Vec<Option<QueueStatus>>,
}

/// What leaders say of these queues, in their order.
async fn describe(api: &Api, queues: &[(GroupId, QueueId)]) -> Vec<Told> {
    let (all, counts) = with_partitions(api, queues);
    let parts = describe_each(api, &all).await;
    let mut all = parts.into_iter();
    let whole = |count: usize| {
        let status = |part: &Result<Box<DescribedQueue>, _>| {
            part.as_ref().ok().map(|part| part.queue.status)
        };
        // A queue is as its first partition is. Of a partition that cannot be asked it says nothing.
        let mut whole = all.next().unwrap_or(Err(NotDescribed::Late));
        let mut parts = vec![status(&whole)];
        for part in all.by_ref().take(count - 1) {
            parts.push(status(&part));
            if let (Ok(whole), Ok(part)) = (&mut whole, part) {
                whole.queue.add_partition(&part.queue);
            }
        }
        Told { whole, parts }
    };
    counts.into_iter().map(whole).collect()
}

/// All partitions of these queues, those of one in a row, and how many each has.
fn with_partitions(
    api: &Api,
    queues: &[(GroupId, QueueId)],
) -> (Vec<(GroupId, QueueId)>, Vec<usize>) {
    let catalog = api.0.cluster.catalog();
    if catalog.partitions().is_empty() {
        return (queues.to_vec(), vec![1; queues.len()]);
    }
    let (mut all, mut counts) =
        (Vec::with_capacity(queues.len()), Vec::with_capacity(queues.len()));
    for queue in queues {
        let before = all.len();
        match catalog.queue_by_id(queue.1) {
            Some(found) => all.extend(found.partitions().map(|it| (it.group, it.queue))),
            None => all.push(*queue),
        }
        counts.push(all.len() - before);
    }
    (all, counts)
}

/// Whom the partitions of a queue serve.
async fn assigned(api: &Api, queue: QueueId) -> Result<Reply, Problem> {
    let partitions: Vec<(GroupId, QueueId)> = {
        let catalog = api.0.cluster.catalog();
        let found = catalog.queue_by_id(queue).ok_or(Problem::NotFound)?;
        found.partitions().map(|it| (it.group, it.queue)).collect()
    };
    let described = describe_each(api, &partitions).await;
    let catalog = api.0.cluster.catalog();
    let queue = catalog.queue_by_id(queue).ok_or(Problem::NotFound)?;
    Ok(Reply::of(assignment::shown(queue, &described)))
}

async fn queues(api: &Api, mut wanted: Queues) -> Result<Reply, Problem> {
    let picture = match wanted.listed {
        Listed::One | Listed::Page { .. } => None,
        Listed::All { .. } if wanted.queues.len() <= ASKED_QUEUES_MAX => None,
        Listed::All { .. } | Listed::Sorted { .. } => Some(model::picture(api).await),
    };
    let fronts = fronts::fronts(api).await;
    if let (Listed::Sorted { total_count }, Some(picture)) = (wanted.listed, &picture) {
        let (picture, fronts) = (Arc::clone(picture), Arc::clone(&fronts));
        wanted = aside(move || cut_out(wanted, total_count, &picture, &fronts)).await?;
    }
    match picture {
        Some(picture) => Ok(as_pictured(api, &wanted, &picture, &fronts).await),
        None => as_told(api, wanted, &fronts).await,
    }
}

/// The page of queues in the order of a column, if that is one of numbers; all queues otherwise.
fn cut_out(mut wanted: Queues, total_count: usize, picture: &Picture, fronts: &Merged) -> Queues {
    let key = |queue: &QueueId| {
        let (path, _) = wanted.shape.sorted_page()?;
        let standing = picture.queues.get(queue)?;
        sort_key(path, standing, fronts.of(*queue, standing.status.ready))
    };
    let mut keyed: Vec<(Option<f64>, (GroupId, QueueId))> =
        wanted.queues.iter().map(|queue| (key(&queue.1), *queue)).collect();
    if keyed.iter().all(|(key, _)| key.is_none()) {
        wanted.listed = Listed::All { total_count };
        return wanted;
    }
    let is_reversed = wanted.shape.is_reversed();
    if is_reversed {
        keyed.reverse();
    }
    keyed.sort_by(|(one, _), (other, _)| last_if_none(*one, *other, is_reversed, f64::total_cmp));
    let filtered_count = keyed.len();
    let place = wanted.shape.place(filtered_count);
    wanted.queues = keyed.drain(place).map(|(_, queue)| queue).collect();
    wanted.listed = Listed::Page { filtered_count, total_count };
    wanted
}

/// Queues as the picture has them.
async fn as_pictured(api: &Api, wanted: &Queues, picture: &Picture, fronts: &Merged) -> Reply {
    let mut items = Vec::with_capacity(wanted.queues.len());
    // In pieces: whoever changes the catalog waits for who looks at it, and all sessions wait behind.
    for some in wanted.queues.chunks(SHOWN_QUEUES_AT_ONCE) {
        {
            let catalog = api.0.cluster.catalog();
            // Who was deleted meanwhile is in no list.
            let known = some.iter().filter_map(|(_, id)| Some((id, catalog.queue_by_id(*id)?)));
            items.extend(known.map(|(id, queue)| {
                let said = picture.queues.get(id).map(|standing| queues::Said {
                    leader: standing.node,
                    status: &standing.status,
                    rates: standing.rates,
                    front: fronts.of(*id, standing.status.ready),
                    more: None,
                });
                (*id, queues::shown(&catalog, queue, said.as_ref()))
            }));
        }
        tokio::task::yield_now().await;
    }
    listed(api, wanted, items).await
}

/// Queues as their leaders tell of them now.
async fn as_told(api: &Api, wanted: Queues, fronts: &Merged) -> Result<Reply, Problem> {
    let described = describe(api, &wanted.queues).await;
    let now = now_ms();
    let rates: BTreeMap<QueueId, PerSecond> = {
        let mut rates = api.0.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let said = wanted.queues.iter().zip(&described);
        let said = said.filter_map(|((_, id), said)| Some((*id, said.whole.as_ref().ok()?)));
        said.map(|(id, said)| (id, rates.of(id, now, picture::totals(&said.queue.status))))
            .collect()
    };
    let mut items = told_items(api, &wanted, &described, &rates, fronts);
    if wanted.listed == Listed::One {
        history::add_to_queues(api, wanted.ranges, &mut items).await;
        let (_, item) = items.pop().ok_or(Problem::NotFound)?;
        return Ok(Reply::of(wanted.shape.columns_of(item)));
    }
    Ok(listed(api, &wanted, items).await)
}

/// Queues and what their leaders have told. Who was deleted meanwhile is in no list.
fn told_items(
    api: &Api,
    wanted: &Queues,
    described: &[Told],
    rates: &BTreeMap<QueueId, PerSecond>,
    fronts: &Merged,
) -> Vec<(QueueId, Value)> {
    let catalog = api.0.cluster.catalog();
    let mut items = Vec::with_capacity(wanted.queues.len());
    for ((_, id), Told { whole, parts }) in wanted.queues.iter().zip(described) {
        let Some(queue) = catalog.queue_by_id(*id) else { continue };
        if matches!(whole, Err(NotDescribed::NoQueue)) {
            continue;
        }
        let told = whole.as_ref().ok().map(Box::as_ref);
        let said = told.map(|told| queues::Said {
            leader: told.leader,
            status: &told.queue.status,
            rates: rates.get(id).copied().unwrap_or_default(),
            front: fronts.of(*id, told.queue.status.ready),
            more: Some(told),
        });
        let mut item = queues::shown(&catalog, queue, said.as_ref());
        if let (Listed::One, Some(told), Value::Object(fields)) = (wanted.listed, told, &mut item) {
            fields.insert("consumer_details".to_owned(), queues::consumers(queue, told));
            queues::add_partitions(queue, parts, fronts, fields);
        }
        items.push((*id, item));
    }
    items
}

/// What is explained, with how the queues stand now.
async fn explained(api: &Api, queues: &[(GroupId, QueueId)], mut body: Value, kept: Kept) -> Reply {
    let described = describe(api, queues).await;
    let catalog = api.0.cluster.catalog();
    let mut items = Vec::new();
    for ((_, id), told) in queues.iter().zip(&described) {
        // Who was deleted meanwhile gets nothing.
        let Some(queue) = catalog.queue_by_id(*id) else { continue };
        let told = told.whole.as_ref().ok().map(Box::as_ref);
        match (kept, &mut body) {
            (Kept::Message, _) => items.push(explain::outcome(&catalog, queue, told)),
            (Kept::Queue, Value::Object(fields)) => {
                let dead_letters = explain::dead_letters(&catalog, queue);
                fields.insert("dead_letters".to_owned(), dead_letters);
                fields.extend(explain::stands(told));
            }
            (Kept::Queue, _) => {}
        }
    }
    if let (Kept::Message, Value::Object(fields)) = (kept, &mut body) {
        fields.insert("queues".to_owned(), items.into());
    }
    Reply::of(body)
}

async fn listed(api: &Api, wanted: &Queues, mut items: Vec<(QueueId, Value)>) -> Reply {
    history::add_to_queues(api, wanted.ranges, &mut items).await;
    let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
    let shape = &wanted.shape;
    match wanted.listed {
        Listed::All { total_count } | Listed::Sorted { total_count } => {
            shape.reply(items, total_count)
        }
        Listed::One => shape.reply(items, 1),
        Listed::Page { filtered_count, total_count } => {
            shape.reply_with(items, filtered_count, total_count)
        }
    }
}

async fn overview(api: &Api, facts: &Facts, seen: Option<&[(GroupId, QueueId)]>, body: &mut Value) {
    let mut all = facts.totals;
    let others = asking::ask_others::<NodeStanding>(api, &Question::Standing).await;
    others.into_iter().filter_map(|(_, told)| told.ok()).for_each(|told| all += told.totals);
    overview::add_totals(body, &all);
    let Some(seen) = seen else { return };
    let (mut ready, mut unacked) = (0, 0);
    let mut add = |status: &QueueStatus| {
        ready += status.ready;
        unacked += status.unsettled;
    };
    if seen.len() <= ASKED_QUEUES_MAX {
        let told = describe(api, seen).await;
        let told = told.iter().filter_map(|told| told.whole.as_ref().ok());
        told.for_each(|told| add(&told.queue.status));
    } else {
        let picture = model::picture(api).await;
        let found = seen.iter().filter_map(|(_, queue)| picture.queues.get(queue));
        found.for_each(|standing| add(&standing.status));
    }
    if let Value::Object(fields) = body {
        let totals = json!({
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
        });
        fields.insert("queue_totals".to_owned(), totals);
    }
}

async fn nodes(
    api: &Api,
    shape: &Shape,
    one: Option<NodeId>,
    ranges: Ranges,
) -> Result<Reply, Problem> {
    let me = api.0.cluster.node();
    let mut items = BTreeMap::from([(me, neighbours::standing(api).shown)]);
    if one != Some(me) {
        let others = asking::ask_others::<NodeStanding>(api, &Question::Standing).await;
        items.extend(others.into_iter().map(|(node, told)| match told {
            Ok(told) => (node, told.shown),
            Err(why) => (node, nodes::silent(node, why)),
        }));
    }
    {
        let catalog = api.0.cluster.catalog();
        items.iter_mut().for_each(|(node, shown)| nodes::add_address(&catalog, *node, shown));
    }
    let Some(one) = one else {
        let count = items.len();
        return Ok(shape.reply(items.into_values().collect(), count));
    };
    let mut item = items.remove(&one).ok_or(Problem::NotFound)?;
    if let Some(range) = ranges.node {
        history::add_to_node(api, range, one, &mut item).await;
    }
    Ok(Reply::of(shape.columns_of(item)))
}

async fn alarms(api: &Api) -> Result<Reply, Problem> {
    let mut nodes = vec![neighbours::standing(api).shown];
    let others = asking::ask_others::<NodeStanding>(api, &Question::Standing).await;
    nodes.extend(others.into_iter().filter_map(|(_, told)| Some(told.ok()?.shown)));
    health::alarms_of(&nodes, "There are alarms in effect in the cluster")?;
    Ok(Reply::of(json!({ "status": "ok" })))
}

/// Whether every group of which this node keeps a replica has a majority without it.
fn quorum_check(api: &Api) -> Result<Reply, Problem> {
    let peers = api.0.cluster.peers();
    let up = |node| peers.iter().any(|peer| peer.node == node && peer.is_up);
    let critical = critical_groups(&api.0.cluster.catalog(), api.0.cluster.node(), up);
    if critical.is_empty() {
        return Ok(Reply::of(json!({ "status": "ok" })));
    }
    Err(Problem::Failed(json!({
        "status": "failed",
        "reason": "There are queues that would lose their quorum if the target node is shut down",
        "groups": critical,
    })))
}
