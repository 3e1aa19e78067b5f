//! Opens the data directory of a node that does not run, to see what can be rescued and to do it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use machine::{NodeId, QueueId};
use wal::{Error, FileDisk, Founding, Identity, Wal};

use super::neighbours;
use crate::recovery::Genesis;
use crate::rescue::{self, Plan, Survey, plan, survey, write};

/// What the directory holds. Changes nothing.
///
/// # Errors
/// A sentence that says why it cannot be told.
pub fn survey_directory(data_dir: &Path) -> Result<Survey, String> {
    let explain = |error: Error| explain(data_dir, &error);
    let (disk, identity, genesis) = open(data_dir)?;
    let (reader, recovered) = Wal::look(disk, wal::Config::new(identity)).map_err(explain)?;
    survey(&identity, &genesis, &reader, &recovered).map_err(explain)
}

/// Vhost and name of the queues that the directory's catalog has. Changes nothing.
///
/// # Errors
/// A sentence that says why they cannot be told.
pub fn queue_names(data_dir: &Path) -> Result<BTreeMap<QueueId, (String, String)>, String> {
    let explain = |error: Error| explain(data_dir, &error);
    let (disk, identity, genesis) = open(data_dir)?;
    let (reader, recovered) = Wal::look(disk, wal::Config::new(identity)).map_err(explain)?;
    rescue::queue_names(&genesis, &reader, &recovered).map_err(explain)
}

/// Carries out what is planned for this node. `others`: what the others that live have.
///
/// # Errors
/// A sentence that says why nothing was done.
pub fn rescue_directory(
    data_dir: &Path,
    others: &[Survey],
    lost: &BTreeSet<NodeId>,
    force: bool,
) -> Result<Plan, String> {
    let explain = |error: Error| explain(data_dir, &error);
    let (disk, identity, genesis) = open(data_dir)?;
    // Once more without touching anything: a refusal changes nothing.
    let (reader, recovered) =
        Wal::look(disk.clone(), wal::Config::new(identity)).map_err(explain)?;
    let ours = survey(&identity, &genesis, &reader, &recovered).map_err(explain)?;
    drop(reader);
    let mut surveys = vec![ours];
    surveys.extend_from_slice(others);
    let plan = plan(&surveys, lost, force)?;
    if !plan.is_for(NodeId(identity.node)) {
        return Ok(plan);
    }
    let (mut wal, recovered) = Wal::open(disk, wal::Config::new(identity)).map_err(explain)?;
    let reader = wal.reader();
    let again = survey(&identity, &genesis, &reader, &recovered).map_err(explain)?;
    if again != surveys[0] {
        return Err(
            "the data directory changed during the rescue: stop its node, and repeat this command"
                .to_owned(),
        );
    }
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(0);
    let batch = write(&identity, (&again, &plan), &reader, &recovered, wall_ms).map_err(explain)?;
    wal.commit(vec![batch]).map_err(explain)?;
    wal.close().map_err(explain)?;
    Ok(plan)
}

fn open(data_dir: &Path) -> Result<(FileDisk, Identity, Genesis), String> {
    let disk = FileDisk::existing(data_dir)
        .map_err(|error| format!("{} cannot be opened: {error}", data_dir.display()))?;
    let explain = |error: Error| explain(data_dir, &error);
    let missing = |what: &str| {
        format!(
            "{} has no {what}: it is not the data directory of a node of a cluster",
            data_dir.display()
        )
    };
    let identity = Identity::load(&disk).map_err(explain)?.ok_or_else(|| missing("IDENTITY"))?;
    let founding = Founding::load(&disk).map_err(explain)?.ok_or_else(|| missing("FOUNDING"))?;
    Ok((disk, identity, neighbours::genesis(&founding)))
}

fn explain(data_dir: &Path, error: &Error) -> String {
    format!("the data directory {} cannot be used: {error}", data_dir.display())
}
