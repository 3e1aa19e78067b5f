//! History of all nodes: asked for, merged, shown.

use machine::{NodeId, QueueId};
use serde_json::Value;

use super::api::{Api, now_ms};
use super::aside::aside;
use super::asking;
use crate::history::samples::{Kind, Range, Ranges, add_to};
use crate::history::{Merged, Told, Window};
use crate::limits::SAMPLED_QUEUES_MAX;
use crate::marks::{self, Mark};
use crate::neighbour::Question;
use crate::node::name_of;
use crate::reply::{Problem, Reply};
use crate::work::{History, Past};

/// Answers a request for it.
pub(super) async fn history(
    api: &Api,
    History { window, until_ms, of }: History,
) -> Result<Reply, Problem> {
    let (is_node, queues) = match of {
        Past::All | Past::Node(_) => (true, Vec::new()),
        Past::Queue(queue) => (false, vec![queue]),
    };
    let from_ms = window.starts_ms();
    let ((merged, silent), marks) =
        tokio::join!(gather(api, window, is_node, queues), gather_marks(api, from_ms, until_ms));
    let mut shown = match of {
        Past::All => merged.shown_all(),
        Past::Node(node) => merged.shown_node(node),
        Past::Queue(queue) => merged.shown_queue(queue),
    };
    if let Value::Object(fields) = &mut shown {
        fields.insert("silent".to_owned(), silent.into_iter().map(name_of).collect());
        let cluster = api.0.cluster.clone();
        // It may look through 100,000 queues.
        let (marks, left_out) = aside(move || {
            let catalog = cluster.catalog();
            marks::shown(&marks.about(of, &catalog, from_ms, until_ms), of, &catalog)
        })
        .await?;
        fields.insert("marks".to_owned(), marks.into());
        fields.insert("marks_left_out".to_owned(), left_out.into());
    }
    Ok(Reply::of(shown))
}

/// What all nodes have seen happen. A node that does not answer adds nothing: others have seen most of it, too.
async fn gather_marks(api: &Api, from_ms: u64, until_ms: u64) -> marks::Merged {
    let question = Question::Marks { from_ms, until_ms };
    let (own, others) = tokio::join!(
        own_marks(api, from_ms, until_ms),
        asking::ask_others::<Vec<Mark>>(api, &question)
    );
    let mut merged = marks::Merged::default();
    merged.add(own);
    others.into_iter().filter_map(|(_, told)| told.ok()).for_each(|told| merged.add(told));
    merged
}

/// What this node has seen happen.
pub(super) async fn own_marks(api: &Api, from_ms: u64, until_ms: u64) -> Vec<Mark> {
    api.0.seen.lock().await.marks.between(from_ms, until_ms)
}

/// What all nodes say, and those that say nothing.
async fn gather(
    api: &Api,
    window: Window,
    wants_node: bool,
    queues: Vec<QueueId>,
) -> (Merged, Vec<NodeId>) {
    let queues: Vec<u64> = queues.into_iter().map(|queue| queue.0).collect();
    let question = Question::History { window, wants_node, queues: queues.clone() };
    let (own, others) = tokio::join!(
        own(api, window, wants_node, &queues),
        asking::ask_others::<Told>(api, &question)
    );
    let mut merged = Merged::new(window);
    merged.add(api.0.cluster.node(), own);
    let mut silent = Vec::new();
    for (node, told) in others {
        match told {
            Ok(told) => merged.add(node, told),
            Err(_) => silent.push(node),
        }
    }
    (merged, silent)
}

/// What this node has seen. The queues that are asked for are kept from now on.
pub(super) async fn own(api: &Api, window: Window, wants_node: bool, queues: &[u64]) -> Told {
    let is_known = window.is_kept() && queues.len() <= SAMPLED_QUEUES_MAX;
    if !is_known {
        return Told::default();
    }
    let mut seen = api.0.seen.lock().await;
    let history = &mut seen.history;
    let mut told = Told::default();
    if wants_node {
        let points = history.node(window).into_iter();
        told.node = points.map(|point| point.map(|point| point.to_vec())).collect();
    }
    for queue in queues {
        history.watch(QueueId(*queue), now_ms() / 1000);
        let points = history.queue(QueueId(*queue), window);
        told.queues.extend(points.map(|points| (*queue, points)));
    }
    told
}

/// Points for a range, or those that say how fast it goes now.
fn window_of(range: Option<Range>) -> Window {
    range.unwrap_or(Range { age_s: 10, step_s: 10 }).window(now_ms())
}

async fn past_of(api: &Api, range: Option<Range>, queues: &[QueueId]) -> Option<(Range, Merged)> {
    let range = range?;
    let (past, _) = gather(api, range.window(now_ms()), false, queues.to_vec()).await;
    Some((range, past))
}

/// Adds the samples that are wanted to queues as the API shows them.
pub(super) async fn add_to_queues(api: &Api, ranges: Ranges, shown: &mut [(QueueId, Value)]) {
    if shown.is_empty() || shown.len() > SAMPLED_QUEUES_MAX {
        return;
    }
    let ids: Vec<QueueId> = shown.iter().map(|(id, _)| *id).collect();
    let (lengths_past, rates_past) = match ranges.lengths == ranges.rates {
        true => (past_of(api, ranges.lengths, &ids).await, None),
        false => {
            tokio::join!(past_of(api, ranges.lengths, &ids), past_of(api, ranges.rates, &ids))
        }
    };
    for (id, queue) in &mut *shown {
        if let Some((range, past)) = &lengths_past {
            let ready = past.of_queue(*id, "messages_ready");
            let unacked = past.of_queue(*id, "messages_unacknowledged");
            lengths(queue, Some(*range), past.window, &ready, &unacked);
        }
        let both = lengths_past.as_ref().filter(|_| ranges.lengths == ranges.rates);
        let Some((range, past)) = rates_past.as_ref().or(both) else { continue };
        let Some(stats) = queue.get_mut("message_stats") else { continue };
        for name in ["publish", "ack"] {
            count(stats, name, Some(*range), past.window, &past.of_queue(*id, name));
        }
    }
}

/// What the overview says of the past.
pub(super) struct Overview {
    ranges: Ranges,
    rates: Merged,
    /// `None`: the same.
    lengths: Option<Merged>,
}

/// Asks all nodes for it.
pub(super) async fn of_overview(api: &Api, ranges: Ranges) -> Overview {
    let ask = |range| gather(api, window_of(range), true, Vec::new());
    if ranges.lengths == ranges.rates {
        let (rates, _) = ask(ranges.rates).await;
        return Overview { ranges, rates, lengths: None };
    }
    let ((rates, _), (lengths, _)) = tokio::join!(ask(ranges.rates), ask(ranges.lengths));
    Overview { ranges, rates, lengths: Some(lengths) }
}

impl Overview {
    /// Adds samples, and how fast everything goes. `sees_all`: who asks sees all queues.
    pub(super) fn add_to(&self, body: &mut Value, sees_all: bool) {
        let Some(stats) = body.get_mut("message_stats") else { return };
        let (past, range) = (&self.rates, self.ranges.rates);
        let names =
            ["publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "get", "ack"];
        for name in names {
            count(stats, name, range, past.window, &past.of_all(name));
        }
        let both = sum(&past.of_all("deliver"), &past.of_all("get"));
        count(stats, "deliver_get", range, past.window, &both);
        let Some(totals) = body.get_mut("queue_totals").filter(|_| sees_all) else { return };
        let past = self.lengths.as_ref().unwrap_or(past);
        let ready = past.of_all("messages_ready");
        let unacked = past.of_all("messages_unacknowledged");
        lengths(totals, self.ranges.lengths, past.window, &ready, &unacked);
    }
}

/// Adds samples to a node as the API shows it.
pub(super) async fn add_to_node(api: &Api, range: Range, node: NodeId, shown: &mut Value) {
    let (past, _) = gather(api, range.window(now_ms()), true, Vec::new()).await;
    let mib = |name: &str| -> Vec<Option<u64>> {
        past.of_node(node, name).into_iter().map(|it| it.map(|mib| mib << 20)).collect()
    };
    let all = [
        ("mem_used", mib("memory_mib")),
        ("disk_free", mib("disk_free_mib")),
        ("sockets_used", past.of_node(node, "connections")),
    ];
    for (name, points) in all {
        details(shown, name, Kind::Height, Some(range), (past.window, &points));
    }
}

fn lengths(
    shown: &mut Value,
    range: Option<Range>,
    window: Window,
    ready: &[Option<u64>],
    unacked: &[Option<u64>],
) {
    let all = sum(ready, unacked);
    for (name, points) in
        [("messages", &*all), ("messages_ready", ready), ("messages_unacknowledged", unacked)]
    {
        details(shown, name, Kind::Height, range, (window, points));
    }
}

fn count(
    shown: &mut Value,
    name: &str,
    range: Option<Range>,
    window: Window,
    points: &[Option<u64>],
) {
    details(shown, name, Kind::Count, range, (window, points));
}

fn details(
    shown: &mut Value,
    name: &str,
    kind: Kind,
    range: Option<Range>,
    past: (Window, &[Option<u64>]),
) {
    // What does not say how much it is has no past either: a queue whose leader does not answer.
    let Some(now) = shown[name].as_u64() else { return };
    let mut details = shown[format!("{name}_details")].take();
    add_to(&mut details, kind, range, past, (now_ms(), now));
    shown[format!("{name}_details")] = details;
}

fn sum(ones: &[Option<u64>], others: &[Option<u64>]) -> Vec<Option<u64>> {
    let both = ones.iter().zip(others);
    both.map(|(one, other)| Some(one.as_ref()? + other.as_ref()?)).collect()
}
