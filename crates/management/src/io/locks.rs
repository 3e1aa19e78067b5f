//! Locks, as the leaders of their groups have them.

use cluster::shard::WantedLine;
use cluster::{LockQuestion, LockSpec, LockWaiter, NotLocked};
use machine::limits::LOCKS_LISTED_MAX;
use machine::{Event, GroupId, LockCommand, LockReply, LockView};
use serde_json::Value;
use tokio::task::JoinSet;

use super::api::{Api, now_ms};
use super::aside::aside;
use super::asking;
use super::change::note;
use crate::audit;
use crate::limits::{LOCK_LINE_WAIT, LOCKS_SHOWN_MAX};
use crate::neighbour::{Question, ToldWaiter};
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::routes::locks::{add_line, reply, shown};
use crate::work::{Lock, LockStep};

/// Asks the lock's leader, and waits with it.
pub(super) async fn lock(api: &Api, by: &machine::Actor, wanted: Lock) -> Result<Reply, Problem> {
    let Lock { group, vhost, name, step, sees_value } = wanted;
    let spec = match step {
        LockStep::Ask(spec) => spec,
        LockStep::Force => return force(api, by, group, (vhost, name)).await,
    };
    let _wait = match spec.wait_ms {
        0 => None,
        _ => Some(api.0.lock_waits.try_acquire().map_err(|_| problem(NotLocked::Busy))?),
    };
    let spec = numbered(spec)?;
    // Who waits for a value wants to know of nothing else.
    let looks = matches!(&spec.what, LockQuestion::Read { unlike: None, .. });
    let told = api.0.cluster.ask_lock(group, spec).await.map_err(problem)?;
    let mut reply = reply(&vhost, &told, sees_value)?;
    if let (true, LockReply::Is(view), Some(body)) = (looks, &told, &mut reply.body) {
        let line = match view.holder {
            Some(_) => line(api, WantedLine { group, vhost, name }).await,
            // Nobody waits for what is free.
            None => Some((Vec::new(), 0)),
        };
        add_line(body, line, now_ms());
    }
    Ok(reply)
}

/// The first of those who wait for a lock, and how many do, as the leader of its group says. `None`: no node says so in
/// time.
async fn line(api: &Api, wanted: WantedLine) -> Option<(Vec<ToldWaiter>, usize)> {
    if let Some(line) = own_line(api, wanted.clone()).await {
        return Some(line);
    }
    let WantedLine { group, vhost, name } = wanted;
    let question = Question::LockLine { group: group.0, vhost, name };
    let asking = asking::ask_others::<Option<(Vec<ToldWaiter>, usize)>>(api, &question);
    let told = tokio::time::timeout(LOCK_LINE_WAIT, asking).await.unwrap_or_default();
    told.into_iter().find_map(|(_, told)| told.ok().flatten())
}

/// The same, if this node leads the group.
pub(super) async fn own_line(api: &Api, wanted: WantedLine) -> Option<(Vec<ToldWaiter>, usize)> {
    let cluster = api.0.cluster.clone();
    let line = aside(move || cluster.lock_line(wanted)).await.ok().flatten()?;
    let told = |LockWaiter { owner, waited_ms }| ToldWaiter { owner, waited_ms };
    Some((line.first.into_iter().map(told).collect(), line.count))
}

/// Frees a lock, whoever holds it.
async fn force(
    api: &Api,
    by: &machine::Actor,
    group: GroupId,
    (vhost, name): (String, String),
) -> Result<Reply, Problem> {
    let read = LockQuestion::Read { vhost: vhost.clone(), name: name.clone(), unlike: None };
    let told = api.0.cluster.ask_lock(group, LockSpec::now(read)).await.map_err(problem)?;
    let LockReply::Is(LockView { holder: Some(holder), .. }) = told else {
        return Err(Problem::NotFound);
    };
    let event = Event::new("lock.released", audit::cut(&vhost), audit::cut(&name));
    let command = LockCommand::Release { vhost: vhost.clone(), name, token: holder.token };
    let spec = LockSpec::now(LockQuestion::Do(command));
    let told = api.0.cluster.ask_lock(group, spec).await.map_err(problem)?;
    if told == LockReply::Done {
        note(api, by, event).await;
    }
    reply(&vhost, &told, false)
}

/// The locks of a vhost, of all groups together.
pub(super) async fn locks(
    api: &Api,
    vhost: &str,
    groups: Vec<GroupId>,
    shape: &Shape,
) -> Result<Reply, Problem> {
    let mut asking = JoinSet::new();
    for group in groups {
        let (api, vhost) = (api.clone(), vhost.to_owned());
        asking.spawn(async move { of_group(&api, group, &vhost).await });
    }
    let mut all = Vec::new();
    for found in asking.join_all().await {
        all.extend(found?);
        if all.len() > LOCKS_SHOWN_MAX {
            return Err(Problem::Unavailable(format!(
                "the vhost has more than {LOCKS_SHOWN_MAX} locks: ask for one by its name"
            )));
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let total_count = all.len();
    let wanted = all.iter().filter(|view| shape.wants(&view.name));
    let items: Vec<Value> = wanted.map(|view| shown(vhost, view, false)).collect();
    Ok(shape.reply(items, total_count))
}

async fn of_group(api: &Api, group: GroupId, vhost: &str) -> Result<Vec<LockView>, Problem> {
    let mut found: Vec<LockView> = Vec::new();
    while found.len() <= LOCKS_SHOWN_MAX {
        let behind = found.last().map_or(String::new(), |last| last.name.clone());
        let (vhost, count) = (vhost.to_owned(), LOCKS_LISTED_MAX as u32);
        let spec = LockSpec::now(LockQuestion::List { vhost, behind, count });
        match api.0.cluster.ask_lock(group, spec).await.map_err(problem)? {
            LockReply::List { locks, has_more } => {
                found.extend(locks);
                if !has_more {
                    break;
                }
            }
            _ => break,
        }
    }
    Ok(found)
}

/// The vhost was deleted: its locks go with it, as far as their groups answer.
pub(super) async fn forget(api: &Api, vhost: &str, groups: Vec<GroupId>) {
    let mut asking = JoinSet::new();
    for group in groups {
        let (api, vhost) = (api.clone(), vhost.to_owned());
        asking.spawn(async move {
            let spec = LockSpec::now(LockQuestion::Do(LockCommand::Forget { vhost }));
            (group, api.0.cluster.ask_lock(group, spec).await)
        });
    }
    for (group, told) in asking.join_all().await {
        match told {
            // A cluster that is being upgraded has none.
            Ok(_) | Err(NotLocked::NotYet { .. }) => {}
            Err(why) => tracing::warn!(
                vhost,
                group = group.0,
                "the vhost is deleted, and its locks in this group stay until their leases are over, their values \
                 for good: {why}. Make the vhost and delete it again"
            ),
        }
    }
}

/// A value that is written has a number of its own, so that it is written once.
fn numbered(mut spec: LockSpec) -> Result<LockSpec, Problem> {
    if let LockQuestion::Do(LockCommand::Put { by, .. }) = &mut spec.what {
        let mut bytes = [0; 16];
        let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        if drawn != Ok(bytes.len()) {
            return Err(Problem::Unavailable("the system gives no random numbers".to_owned()));
        }
        *by = u128::from_le_bytes(bytes);
    }
    Ok(spec)
}

fn problem(why: NotLocked) -> Problem {
    Problem::Unavailable(why.to_string())
}
