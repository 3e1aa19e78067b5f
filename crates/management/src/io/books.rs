//! The books of all queues, and the digests of all replicas, as all nodes have them.

use machine::{NodeId, QueueId};
use serde_json::{Value, json};

use super::api::Api;
use super::{asking, model};
use crate::books::{Gathered, Replica, Row, Told, shown_queue};
use crate::limits::{RECONCILED_QUEUES_MAX, SHOWN_QUEUES_AT_ONCE};
use crate::neighbour::Question;
use crate::node::name_of;
use crate::reply::Reply;

/// The books of the queues of a vhost, or of all and with them the groups.
pub(super) async fn books(api: &Api, vhost: Option<&str>) -> Reply {
    let (own, others) =
        tokio::join!(own(api), asking::ask_others::<Option<Told>>(api, &Question::Books));
    let me = api.0.cluster.node();
    let (mut gathered, mut silent) = (Gathered::default(), Vec::new());
    let others = others.into_iter().map(|(node, told)| (node, told.ok().flatten()));
    for (node, told) in [(me, own)].into_iter().chain(others) {
        match told {
            Some(told) => gathered.add(node, told),
            None => silent.push(name_of(node)),
        }
    }
    let Queues { shown, wrong, missing, left_out } = queues(api, vhost, &gathered).await;
    let (groups, differing) = match vhost {
        None => gathered.groups(),
        Some(_) => (Vec::new(), 0),
    };
    let verdict = match () {
        () if wrong + differing > 0 => "different",
        () if !silent.is_empty() || missing > 0 => "unknown",
        () => "ok",
    };
    let mut body = json!({
        "verdict": verdict,
        "queues": shown,
        "wrong_queues": wrong,
        "missing_queues": missing,
        "left_out": left_out,
        "silent": silent,
    });
    if let (None, Value::Object(fields)) = (vhost, &mut body) {
        fields.insert("groups".to_owned(), groups.into());
        fields.insert("differing_groups".to_owned(), differing.into());
    }
    Reply::of(body)
}

/// What this node has. None: its shards do not come to it in time.
pub(super) async fn own(api: &Api) -> Option<Told> {
    let (queues, tally) = model::own_books(api).await?;
    let me = api.0.cluster.node();
    let queues = queues.iter().map(|(queue, balance)| Row::of(*queue, balance)).collect();
    let replicas = tally.groups.iter().map(|report| Replica::of(report, me)).collect();
    Some(Told { queues, replicas })
}

/// Queues as they are shown.
struct Queues {
    shown: Vec<Value>,
    /// Those whose books are wrong.
    wrong: usize,
    /// Those of which no node has told.
    missing: usize,
    /// Those that are not shown.
    left_out: usize,
}

async fn queues(api: &Api, vhost: Option<&str>, gathered: &Gathered) -> Queues {
    let wanted: Vec<(QueueId, NodeId)> =
        gathered.queues().map(|(queue, node, _)| (queue, node)).collect();
    let mut all = Queues { shown: Vec::new(), wrong: 0, missing: 0, left_out: 0 };
    // In pieces: whoever changes the catalog waits for who looks at it, and all sessions wait behind.
    for some in wanted.chunks(SHOWN_QUEUES_AT_ONCE) {
        {
            let catalog = api.0.cluster.catalog();
            for (id, node) in some {
                // Who was deleted meanwhile is in no list.
                let known = catalog.queue_by_id(*id);
                let known = known.filter(|queue| vhost.is_none_or(|vhost| queue.vhost == vhost));
                let (Some(queue), Some((_, balance))) = (known, gathered.of(*id)) else { continue };
                all.wrong += usize::from(!balance.is_right());
                match all.shown.len() < RECONCILED_QUEUES_MAX {
                    true => all.shown.push(shown_queue((queue, *id), *node, balance)),
                    false => all.left_out += 1,
                }
            }
        }
        tokio::task::yield_now().await;
    }
    let catalog = api.0.cluster.catalog();
    let of_vhost = catalog.queues().filter(|it| vhost.is_none_or(|vhost| it.vhost == vhost));
    let partitions = of_vhost.flat_map(machine::Queue::partitions);
    all.missing = partitions.filter(|it| gathered.of(it.queue).is_none()).count();
    all
}
