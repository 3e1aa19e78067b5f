//! Which files a data directory holds. Reads names only, changes nothing.
//!
//! Every name is either known, and then its reason is known too, or it is reported as unknown:
//! what cannot be explained is never removed.

use std::collections::BTreeMap;
use std::io;

use crate::disk::Disk;
use crate::error::{Context, Error};
use crate::identity::{IDENTITY_FILE, IDENTITY_TEMPORARY};
use crate::notes::{
    BOOT_FILE, BOOT_TEMPORARY, FOUNDING_FILE, FOUNDING_TEMPORARY, MEMBERS_FILE, MEMBERS_TEMPORARY,
};
use crate::scan;
use crate::shared::{GROUPS_DIR, NEXT_TEMPORARY, URGENT_TEMPORARY, WAL_DIR};

pub(crate) const BALLAST_FILE: &str = "ballast";
pub(crate) const BALLAST_TEMPORARY: &str = "ballast.new";
/// Where a running node takes commands.
const CONTROL_SOCKET: &str = "control.sock";
/// The cluster's secret, which is not the log's.
const SECRET_FILE: &str = "SECRET";
const SECRET_TEMPORARY: &str = "SECRET.new";
/// Name of a file that says that a group's segments are to be read as a whole at the next start.
pub(crate) const SUSPECT: &str = "suspect";
/// How the names of files begin that were damaged and quarantined. They are never touched again.
pub(crate) const QUARANTINED: &str = "damaged-";
/// What ext4 puts into the root of a file system.
const LOST_AND_FOUND: &str = "lost+found/";

/// Names in a data directory.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) has_identity: bool,
    pub(crate) has_ballast: bool,
    /// Log files, in order.
    pub(crate) log_files: Vec<u64>,
    /// Unfinished files, which an interrupted start or preparation leaves.
    pub(crate) temporaries: Vec<String>,
    pub(crate) groups: BTreeMap<u32, GroupNames>,
    /// Relative paths of what does not belong here.
    pub(crate) unknown: Vec<String>,
}

/// Names in a group's directory.
#[derive(Debug, Default)]
pub(crate) struct GroupNames {
    pub(crate) has_checkpoint: bool,
    /// Segment files, in order.
    pub(crate) segments: Vec<u64>,
    /// Names of files that were quarantined.
    pub(crate) quarantined: Vec<String>,
    /// Something in a segment was found unreadable while it was used.
    pub(crate) is_suspect: bool,
}

/// Directory of a group.
pub(crate) fn group_dir(group: u32) -> String {
    format!("{GROUPS_DIR}/{group}")
}

/// Path of a group's checkpoint.
pub(crate) fn checkpoint_path(group: u32) -> String {
    format!("{GROUPS_DIR}/{group}/checkpoint")
}

/// Path of a checkpoint that is being written.
pub(crate) fn checkpoint_temporary(group: u32) -> String {
    format!("{GROUPS_DIR}/{group}/checkpoint.new")
}

/// Path of a segment.
pub(crate) fn segment_path(group: u32, number: u64) -> String {
    format!("{GROUPS_DIR}/{group}/seg-{number}")
}

/// Path of the file that makes a group's segments suspect.
pub(crate) fn suspect_path(group: u32) -> String {
    format!("{GROUPS_DIR}/{group}/{SUSPECT}")
}

/// The group whose segment this is.
pub(crate) fn group_of_segment(path: &str) -> Option<u32> {
    let (group, name) = path.strip_prefix(GROUPS_DIR)?.strip_prefix('/')?.split_once('/')?;
    name.starts_with("seg-").then(|| canonical(group)).flatten()
}

/// The number of the segment that a file that was quarantined has been.
pub(crate) fn segment_of(name: &str) -> Option<u64> {
    let (_, segment) = name.split_once("-seg-")?;
    segment.parse().ok()
}

/// What a file of a data directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The log, with the files that are prepared for it.
    Log,
    /// Messages of a group that are not in the log any more.
    Segments {
        group: u32,
    },
    Checkpoints,
    /// Files that were damaged, and are kept aside.
    Quarantined,
    Others,
}

impl Part {
    /// Of the file with this path below the directory.
    pub fn of(path: &str) -> Self {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_in_group = dir.strip_prefix(GROUPS_DIR).is_some_and(|rest| rest.starts_with('/'));
        match group_of_segment(path) {
            _ if name.starts_with(QUARANTINED) => Self::Quarantined,
            Some(group) => Self::Segments { group },
            None if dir == WAL_DIR => Self::Log,
            None if is_in_group && name.starts_with("checkpoint") => Self::Checkpoints,
            None => Self::Others,
        }
    }
}

/// Lists the directory.
pub(crate) fn survey<D: Disk>(disk: &D) -> Result<Layout, Error> {
    let mut layout = Layout::default();
    for name in disk.list("").at("list", "the data directory")? {
        match name.as_str() {
            IDENTITY_FILE => layout.has_identity = true,
            BALLAST_FILE => layout.has_ballast = true,
            IDENTITY_TEMPORARY | BALLAST_TEMPORARY | BOOT_TEMPORARY | MEMBERS_TEMPORARY
            | FOUNDING_TEMPORARY | SECRET_TEMPORARY => {
                layout.temporaries.push(name);
            }
            BOOT_FILE | FOUNDING_FILE | MEMBERS_FILE | SECRET_FILE | CONTROL_SOCKET => {}
            "wal/" | "groups/" | LOST_AND_FOUND => {}
            _ => layout.unknown.push(name),
        }
    }
    if exists(disk, WAL_DIR)? {
        let (numbers, others) = scan::log_files(disk)?;
        layout.log_files = numbers;
        for name in others {
            let path = format!("{WAL_DIR}/{name}");
            match path == NEXT_TEMPORARY || path == URGENT_TEMPORARY {
                true => layout.temporaries.push(path),
                false if name.starts_with(QUARANTINED) => {}
                false => layout.unknown.push(path),
            }
        }
    }
    if exists(disk, GROUPS_DIR)? {
        for name in disk.list(GROUPS_DIR).at("list", GROUPS_DIR)? {
            match name.strip_suffix('/').and_then(canonical::<u32>) {
                Some(group) => survey_group(disk, group, &mut layout)?,
                None => layout.unknown.push(format!("{GROUPS_DIR}/{name}")),
            }
        }
    }
    Ok(layout)
}

fn survey_group<D: Disk>(disk: &D, group: u32, layout: &mut Layout) -> Result<(), Error> {
    let dir = group_dir(group);
    let mut names = GroupNames::default();
    for name in disk.list(&dir).at("list", &dir)? {
        match name.as_str() {
            "checkpoint" => names.has_checkpoint = true,
            "checkpoint.new" => {}
            SUSPECT => names.is_suspect = true,
            other if other.starts_with(QUARANTINED) => names.quarantined.push(name),
            other => match other.strip_prefix("seg-").and_then(canonical::<u64>) {
                Some(number) => names.segments.push(number),
                None => layout.unknown.push(format!("{dir}/{name}")),
            },
        }
    }
    names.segments.sort_unstable();
    layout.groups.insert(group, names);
    Ok(())
}

/// A number in the one form in which we write it: no sign, no leading zero.
fn canonical<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    text.parse::<N>().ok().filter(|number| number.to_string() == text)
}

fn exists<D: Disk>(disk: &D, dir: &str) -> Result<bool, Error> {
    match disk.list(dir) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).at("list", dir),
    }
}
