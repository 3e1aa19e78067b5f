//! Backups of a cluster that runs: all groups are cut at their leaders, and then read part by part, through this node.
//!
//! ```text
//!   begin: dead letters are held on all nodes ──> groups of queues are cut ──> the catalog is cut ──> dead letters go on
//!   then, for each group: part, part, …, end of the group
//! ```
//!
//! The catalog comes last: a queue that a group has and the catalog does not, would give its number to the next queue
//! that is declared. Why dead letters are held: `cluster::io::dead_letters`.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::{BackupPart, BackupSource, CutGroup, NotTold};
use machine::{GroupId, NodeId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinSet;

use super::api::{Api, Backups};
use super::asking;
use crate::limits::{
    BACKUP_CUT_WAIT, BACKUP_HOLD, BACKUP_KEEP_EVERY, BACKUP_NEIGHBOUR_WAIT, BACKUP_PART_BYTES,
    BACKUP_PART_WAIT,
};
use crate::neighbour::{Question, ToldCut, ToldPart};
use crate::reply::{Problem, Reply};
use crate::work::Backup;

/// Between two looks whether a part is there.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn perform(api: &Api, step: Backup) -> Result<Reply, Problem> {
    match step {
        Backup::Begin => begin(api).await,
        Backup::Part { backup, group, offset } => part(api, backup, group, offset).await,
        Backup::End { backup } => {
            end_here(api, backup);
            let _: Vec<Told<bool>> = asking::ask_others(api, &Question::EndBackup { backup }).await;
            Ok(Reply::done())
        }
    }
}

/// What a node said.
type Told<T> = (NodeId, Result<T, NotTold>);

fn unavailable(why: impl Into<String>) -> Problem {
    Problem::Unavailable(why.into())
}

async fn begin(api: &Api) -> Result<Reply, Problem> {
    let backup = drawn()?;
    let begun = Instant::now();
    let cut = tokio::time::timeout(BACKUP_CUT_WAIT, cut_all(api, backup)).await;
    let is_late = begun.elapsed() > BACKUP_CUT_WAIT;
    api.0.cluster.release_dead_letters(backup);
    let _: Vec<Told<bool>> =
        asking::ask_others(api, &Question::ReleaseDeadLetters { backup }).await;
    let cut = match cut {
        Ok(cut) if !is_late => cut,
        Ok(_) | Err(_) => Err(unavailable(
            "the groups could not all be read within 20 seconds, because the nodes are busy: try again",
        )),
    };
    let groups = match cut {
        Ok(groups) => groups,
        Err(why) => {
            end_here(api, backup);
            let _: Vec<Told<bool>> = asking::ask_others(api, &Question::EndBackup { backup }).await;
            return Err(why);
        }
    };
    let homes = groups.iter().map(|(node, cut)| (cut.group, *node)).collect();
    lock(api).begun = Some((backup, homes));
    let shown = groups.iter().map(|(node, ToldCut { group, index, term })| {
        json!({ "group": group, "index": index, "term": term, "node": node.0 })
    });
    let version = api.0.cluster.catalog().agreed();
    Ok(Reply::of(json!({
        "backup": format!("{backup:016x}"),
        "cluster": format!("{:032x}", api.0.cluster.identity().cluster),
        "version": version.0,
        "groups": shown.collect::<Vec<_>>(),
    })))
}

/// Cuts all groups at their leaders: the catalog is the last of them.
async fn cut_all(api: &Api, backup: u64) -> Result<Vec<(NodeId, ToldCut)>, Problem> {
    let me = api.0.cluster.node();
    let before = leaders(api).await?;
    hold(api, backup, &before).await?;
    let mut by_node: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    for (group, leader) in before.iter().filter(|(group, _)| **group != GroupId::CATALOG) {
        by_node.entry(*leader).or_default().push(group.0);
    }
    let mut cutting = JoinSet::new();
    for (node, groups) in by_node {
        let api = api.clone();
        cutting.spawn(async move { (node, cut_at(&api, node, backup, groups).await) });
    }
    let mut cuts = Vec::new();
    for (node, told) in cutting.join_all().await {
        cuts.extend(told?.into_iter().map(|cut| (node, cut)));
    }
    let catalog = before.get(&GroupId::CATALOG).copied().unwrap_or(me);
    let told = cut_at(api, catalog, backup, vec![GroupId::CATALOG.0]).await?;
    cuts.extend(told.into_iter().map(|cut| (catalog, cut)));
    cuts.sort_by_key(|(_, cut)| cut.group);
    // A leader that came meanwhile may be on a node that holds nothing.
    if leaders(api).await? != before {
        return Err(unavailable("a leader changed while the groups were read: try again"));
    }
    Ok(cuts)
}

/// Who leads which group.
async fn leaders(api: &Api) -> Result<BTreeMap<GroupId, NodeId>, Problem> {
    let cluster = api.0.cluster.clone();
    let status = tokio::task::spawn_blocking(move || cluster.status()).await;
    let status = status.ok().flatten().ok_or_else(|| {
        unavailable("the node did not say in time how its groups stand: try again")
    })?;
    let mut leaders: BTreeMap<GroupId, Option<NodeId>> = BTreeMap::new();
    leaders.extend(status.elsewhere.iter().map(|it| (it.group, it.leader)));
    leaders.extend(status.groups.iter().map(|it| (it.group, it.leader)));
    let count = api.0.cluster.catalog().group_count();
    let all = (0..=count).map(GroupId);
    all.map(|group| match leaders.get(&group).copied().flatten() {
        Some(leader) => Ok((group, leader)),
        None => Err(unavailable(format!(
            "group {} has no leader, so nobody can say what is in it: see millrace cluster status",
            group.0
        ))),
    })
    .collect()
}

/// Dead letters stay at their sources on all nodes that lead a group.
async fn hold(api: &Api, backup: u64, leaders: &BTreeMap<GroupId, NodeId>) -> Result<(), Problem> {
    let me = api.0.cluster.node();
    let ms = u64::try_from(BACKUP_HOLD.as_millis()).unwrap_or(u64::MAX);
    let mut told: BTreeMap<NodeId, Result<bool, NotTold>> =
        BTreeMap::from([(me, Ok(api.0.cluster.hold_dead_letters(backup, BACKUP_HOLD)))]);
    told.extend(asking::ask_others(api, &Question::HoldDeadLetters { backup, ms }).await);
    for node in leaders.values() {
        match told.get(node) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => {
                return Err(unavailable("another backup is being begun: try again in a minute"));
            }
            Some(Err(why)) => return Err(unavailable(format!("node {}: {why}", node.0))),
            None => {
                return Err(unavailable(format!(
                    "node {} leads a group, and is no member of the cluster any more: try again",
                    node.0
                )));
            }
        }
    }
    Ok(())
}

async fn cut_at(
    api: &Api,
    node: NodeId,
    backup: u64,
    groups: Vec<u32>,
) -> Result<Vec<ToldCut>, Problem> {
    let told = match node == api.0.cluster.node() {
        true => cut_here(api, backup, &groups).await,
        false => {
            let question = Question::Cut { backup, groups };
            ask(api, node, &question, BACKUP_CUT_WAIT).await?
        }
    };
    told.map_err(|why| unavailable(format!("node {}: {why}", node.0)))
}

async fn ask<T: DeserializeOwned + Serialize>(
    api: &Api,
    node: NodeId,
    question: &Question,
    wait: Duration,
) -> Result<T, Problem> {
    let body = asking::encoded(question).unwrap_or_default();
    let told = api.0.cluster.ask_node(node, body.into(), wait).await;
    let read = |told: Vec<u8>| serde_json::from_slice(&told).map_err(|_| NotTold::TooOld);
    told.and_then(read).map_err(|why| unavailable(format!("node {}: {why}", node.0)))
}

async fn part(api: &Api, backup: u64, group: u32, offset: u64) -> Result<Reply, Problem> {
    let node = {
        let backups = lock(api);
        let begun = backups.begun.as_ref().filter(|(of, _)| *of == backup);
        *begun.and_then(|(_, homes)| homes.get(&group)).ok_or(Problem::NotFound)?
    };
    keep(api, backup).await;
    let told: Result<ToldPart, String> = match node == api.0.cluster.node() {
        true => part_here(api, backup, group, offset).await,
        false => {
            let question = Question::BackupPart { backup, group, offset };
            ask(api, node, &question, BACKUP_NEIGHBOUR_WAIT).await?
        }
    };
    Ok(Reply::of(match told {
        Ok(ToldPart::Early) => json!({ "early": true }),
        Ok(ToldPart::Bytes(data)) => json!({ "data": data }),
        Ok(ToldPart::End) => json!({ "end": true }),
        Err(why) => return Err(unavailable(format!("node {}: {why}", node.0))),
    }))
}

/// One group is read after the other, and a large one takes long: whoever has the later ones is told to keep them.
async fn keep(api: &Api, backup: u64) {
    let now = Instant::now();
    let is_told = |at: Instant| now.saturating_duration_since(at) < BACKUP_KEEP_EVERY;
    if lock(api).kept.is_some_and(is_told) {
        return;
    }
    lock(api).kept = Some(now);
    keep_here(api, backup);
    let _: Vec<Told<bool>> = asking::ask_others(api, &Question::KeepBackup { backup }).await;
}

/// The groups of this node are read later.
pub(super) fn keep_here(api: &Api, backup: u64) {
    let backups = lock(api);
    backups
        .sources
        .get(&backup)
        .into_iter()
        .flat_map(BTreeMap::values)
        .for_each(BackupSource::keep);
}

/// Cuts groups that this node leads.
pub(super) async fn cut_here(
    api: &Api,
    backup: u64,
    groups: &[u32],
) -> Result<Vec<ToldCut>, String> {
    forget_idle(api);
    if lock(api).sources.keys().any(|other| *other != backup) {
        return Err("another backup is being read: wait for its end, or end it".to_owned());
    }
    let mut cutting = JoinSet::new();
    for &group in groups {
        let cluster = api.0.cluster.clone();
        cutting.spawn(async move { (group, cluster.cut(GroupId(group), BACKUP_CUT_WAIT).await) });
    }
    let mut cuts = Vec::new();
    for (group, cut) in cutting.join_all().await {
        let Some(CutGroup { index, term, source, .. }) = cut else {
            return Err(format!("it does not lead group {group} any more, or is busy: try again"));
        };
        lock(api).sources.entry(backup).or_default().insert(group, source);
        cuts.push(ToldCut { group, index, term });
    }
    Ok(cuts)
}

/// A part of a group that was cut here.
pub(super) async fn part_here(
    api: &Api,
    backup: u64,
    group: u32,
    offset: u64,
) -> Result<ToldPart, String> {
    let source = {
        let backups = lock(api);
        let source = backups.sources.get(&backup).and_then(|groups| groups.get(&group));
        source.cloned().ok_or("it has nothing of this backup any more: begin another")?
    };
    let begun = Instant::now();
    loop {
        let reading = source.clone();
        let read = move || reading.part(offset, BACKUP_PART_BYTES);
        let part = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())??;
        match part {
            BackupPart::Early if begun.elapsed() < BACKUP_PART_WAIT => {
                tokio::time::sleep(LOOK).await;
            }
            BackupPart::Early => return Ok(ToldPart::Early),
            BackupPart::Bytes(bytes) => return Ok(ToldPart::Bytes(STANDARD.encode(bytes))),
            BackupPart::End => return Ok(ToldPart::End),
        }
    }
}

/// Lets the files go.
pub(super) fn end_here(api: &Api, backup: u64) {
    let mut backups = lock(api);
    backups.sources.remove(&backup);
    backups.begun = backups.begun.take().filter(|(begun, _)| *begun != backup);
}

/// Lets go of backups that nobody reads any more. One group is read after the other: a backup is read as long as one of
/// them is.
pub(super) fn forget_idle(api: &Api) {
    let is_read = |groups: &BTreeMap<u32, BackupSource>| groups.values().any(|it| !it.is_idle());
    lock(api).sources.retain(|_, groups| is_read(groups));
}

fn lock(api: &Api) -> MutexGuard<'_, Backups> {
    api.0.backups.lock().unwrap_or_else(PoisonError::into_inner)
}

fn drawn() -> Result<u64, Problem> {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        Ok(_) | Err(_) => Err(unavailable("the operating system gave no random bytes")),
    }
}
