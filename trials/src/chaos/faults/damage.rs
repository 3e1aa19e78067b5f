//! F7: bytes of one node's log and segments change while it is stopped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wal::{FileDisk, inspect};

use super::{Bite, World};
use crate::chaos::Failure;
use crate::chaos::bitflip::files_of;
use crate::chaos::broker::{Broker, tail};
use crate::chaos::cluster::Cluster;
use crate::chaos::net::NODES;
use crate::workload::Chance;

pub(in crate::chaos) const NAME: &str = "damage";
/// Places that are tried until the node finds one of them.
const TRIES: u32 = 8;
/// What a log file holds at least for its middle to have been synced, as batches behind it say.
const LOG_BYTES_MIN: u64 = 256 * 1024;
/// The exit code of a node that cannot trust its disk.
const STOPPED: i32 = 74;
/// How long it may take to get from the others what it has set aside.
const MENDED: Duration = Duration::from_secs(90);

/// One replica is damaged: the node sets aside what it cannot read, gets it from the others again,
/// and nobody else notices. Always the same node, since each damage needs others that are whole.
pub(super) fn one_replica(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = damaged_node(world.seed);
    world.cluster.node(node).kill()?;
    let data = world.cluster.node(node).setup.data.clone();
    let before = set_aside(&data)?;
    let mut flipped = Vec::new();
    if let Some(file) = any_of(files_of(&data, |name| name.starts_with("seg-"))?, world.chance) {
        let bytes = std::fs::read(&file)?;
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
        if used >= 4096 {
            flipped.push(flip(&file, world.chance.within(used / 4, used / 2))?);
        }
    }
    for _ in 0..TRIES {
        if let Some((file, used)) = newest_log(&data)? {
            flipped.push(flip(&file, world.chance.within(used / 2, used * 3 / 4))?);
        }
        world.cluster.node(node).start()?;
        wait_mended(world.cluster, node)?;
        let count = set_aside(&data)?.saturating_sub(before);
        if count > 0 {
            let what = flipped.join(", ");
            return Bite::at(node, format!("node {node}: {what}; {count} files set aside"));
        }
        world.cluster.node(node).kill()?;
    }
    world.cluster.node(node).start()?;
    Err(Failure::Trial(format!("node {node} did not find {}", flipped.join(", "))))
}

/// Waits until the cluster is whole. Damage in a segment is found when a message is read: the node stops, and sets
/// it aside at its next start.
pub(in crate::chaos) fn wait_mended(cluster: &mut Cluster, node: u32) -> Result<(), Failure> {
    for _ in 0..TRIES {
        let waited = cluster.wait_ready(MENDED);
        if waited.is_ok() || !has_stopped(cluster.node(node))? {
            return waited;
        }
        cluster.node(node).start()?;
    }
    Err(Failure::Broken(format!("node {node} stops for its damage again and again")))
}

/// Whether a node that ended did so because it read what is damaged.
pub(in crate::chaos) fn has_stopped(broker: &mut Broker) -> Result<bool, Failure> {
    let status = broker.exited()?;
    let is_right = status.is_none_or(|status| status.code() == Some(STOPPED));
    Ok(broker.pid().is_none() && is_right && tail(&broker.setup.log).contains("seg-"))
}

/// The newest log file that holds enough, and where its batches end. What lies in an older one may be of no use to
/// any group any more, and its damage is then no loss.
fn newest_log(data: &Path) -> Result<Option<(PathBuf, u64)>, Failure> {
    let disk = FileDisk::existing(data)?;
    let report = inspect(&disk, false)
        .map_err(|error| Failure::Trial(format!("cannot look at {}: {error}", data.display())))?;
    let newest = report.files.iter().rev().find(|file| file.used_bytes >= LOG_BYTES_MIN);
    Ok(newest.map(|file| (data.join(&file.path), file.used_bytes)))
}

/// The node whose files are damaged in a run.
pub(in crate::chaos) fn damaged_node(seed: u64) -> u32 {
    1 + (seed % u64::from(NODES)) as u32
}

fn any_of(files: Vec<PathBuf>, chance: &mut Chance) -> Option<PathBuf> {
    let index = chance.within(0, files.len() as u64) as usize;
    files.into_iter().nth(index)
}

/// Changes some bytes of a file. Gives back where.
fn flip(path: &Path, offset: u64) -> Result<String, Failure> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, offset)?;
    file.write_all_at(&bytes.map(|byte| byte ^ 0x55), offset)?;
    file.sync_all()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!("{name} changed at {offset}"))
}

/// How many files a node has set aside because of damage.
fn set_aside(data: &Path) -> Result<usize, Failure> {
    let mut count = 0;
    let mut dirs = vec![data.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            }
            count += usize::from(entry.file_name().to_string_lossy().starts_with("damaged-"));
        }
    }
    Ok(count)
}
