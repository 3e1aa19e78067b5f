//! Retries of dead letters that run on this node, and those of the others.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use broker::dead_letter::retry::{Plan, Progress, RETRIES_MAX, State};
use broker::io::retry;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tokio::sync::watch;

use super::api::{Api, now_ms};
use super::asking;
use super::retry_registry::{Entry, Registry};
use crate::limits::RETRY_WAIT;
use crate::neighbour::Question;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::routes::retries::planned;
use crate::work::{Retries, Work};

fn lock(api: &Api) -> MutexGuard<'_, Registry> {
    let registry: &Mutex<Registry> = &api.0.retries;
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a retry on this node. A short one is over when this answers.
pub(super) async fn start(api: &Api, plan: Plan) -> Result<Reply, Problem> {
    let (number, mut progress) = begin(api, plan)?;
    let ended = progress.wait_for(|progress| progress.state != State::Running);
    let _ = tokio::time::timeout(RETRY_WAIT, ended).await;
    let me = api.0.cluster.node();
    let shown = lock(api).all.get(&number).map(|entry| entry.shown(me, number));
    let reply = Reply::of(shown.unwrap_or(Value::Null));
    Ok(Reply { status: StatusCode::ACCEPTED, ..reply })
}

fn begin(api: &Api, plan: Plan) -> Result<(u64, watch::Receiver<Progress>), Problem> {
    let payload = plan.edit.as_ref().and_then(|edit| edit.payload.as_ref());
    let (bytes, bytes_max) = (payload.map_or(0, Bytes::len), api.0.broker.message_bytes_max());
    if bytes as u64 > bytes_max {
        return Err(Problem::bad(format!(
            "payload has {bytes} bytes, and a message may have {bytes_max}"
        )));
    }
    let mut registry = lock(api);
    if registry.running() >= RETRIES_MAX {
        return Err(Problem::bad(format!(
            "this node runs {RETRIES_MAX} retries: wait for one, stop one, or ask another node"
        )));
    }
    let is_of = |entry: &Entry| (&entry.vhost, &entry.queue) == (&plan.vhost, &plan.queue);
    let mut running = registry.all.iter().filter(|(_, entry)| entry.is_running());
    if let Some((number, _)) = running.find(|(_, entry)| is_of(entry)) {
        let id = format!("{}-{number}", api.0.cluster.node().0);
        return Err(Problem::bad(format!("the retry {id} of this queue runs still")));
    }
    registry.forget_old();
    registry.last += 1;
    let number = registry.last;
    let (vhost, queue, shown) = (plan.vhost.clone(), plan.queue.clone(), planned(&plan));
    let (told, progress) = watch::channel(Progress::default());
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(retry::run(api.0.broker.clone(), plan, told, stopped));
    let entry = Entry {
        vhost,
        queue,
        plan: shown,
        started_ms: now_ms(),
        progress: progress.clone(),
        stop,
        task,
    };
    registry.all.insert(number, entry);
    Ok((number, progress))
}

/// What this node has of those.
pub(super) fn of_this_node(api: &Api, what: &Retries, vhosts: &BTreeSet<String>) -> Vec<Value> {
    let me = api.0.cluster.node();
    let registry = lock(api);
    let mut found = Vec::new();
    for (number, entry) in registry.all.iter().filter(|(_, it)| vhosts.contains(&it.vhost)) {
        let is = |id: &str| id == format!("{}-{number}", me.0);
        match what {
            Retries::All => {}
            Retries::One(id) if is(id) => {}
            Retries::Stop(id) if is(id) => {
                entry.stop.send_replace(true);
            }
            Retries::One(_) | Retries::Stop(_) => continue,
        }
        found.push(entry.shown(me, *number));
    }
    found
}

/// Those of all nodes. A node that does not answer is left out.
pub(super) async fn retries(
    api: &Api,
    what: Retries,
    vhosts: BTreeSet<String>,
    shape: &Shape,
) -> Result<Reply, Problem> {
    let mut found = of_this_node(api, &what, &vhosts);
    if found.is_empty() || what == Retries::All {
        let question = Question::Retries { what: what.clone(), vhosts };
        let others = asking::ask_others::<Vec<Value>>(api, &question).await;
        found.extend(others.into_iter().filter_map(|(_, told)| told.ok()).flatten());
    }
    match what {
        Retries::All => match Work::list(shape, found) {
            Work::Answer(reply) => Ok(reply),
            _ => Err(Problem::NotFound),
        },
        Retries::One(_) => {
            let one = found.pop().ok_or(Problem::NotFound)?;
            Ok(Reply::of(shape.columns_of(one)))
        }
        Retries::Stop(_) => found.pop().map(|_| Reply::done()).ok_or(Problem::NotFound),
    }
}
