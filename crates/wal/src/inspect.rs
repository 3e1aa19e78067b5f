//! Looking at a data directory without changing it: for `millrace doctor`.
//!
//! It may look at the directory of a running node, and then sees the log at some moment; what
//! looks torn may be a commit in progress.

use std::collections::BTreeSet;
use std::fmt;

use crate::config::Config;
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::groups::GroupFiles;
use crate::identity::Identity;
use crate::layout::{self, Layout, segment_path};
use crate::notes::{BOOT_FILE, Boot, FOUNDING_FILE, Founding, MEMBERS_FILE, Member};
use crate::record::LostState;
use crate::replay::Damage;
use crate::scan::{self, Scan};
use crate::shared::wal_path;

/// What a data directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose it is.
    pub identity: Identity,
    /// Log files, oldest first.
    pub files: Vec<FileReport>,
    /// Groups, by number.
    pub groups: Vec<GroupReport>,
    /// Batches in the log.
    pub batches: u64,
    /// Something follows the last whole batch that was never synced; the next start cuts it.
    pub is_torn: bool,
    /// Durable data that is unreadable, and not exactly whose it was.
    pub losses: Vec<Damage>,
    /// Small files of the directory that a start needs and that cannot be read: path and reason.
    pub notes: Vec<(String, String)>,
    /// The file that counts the starts of this directory is not there. It is made before anything is served.
    pub is_uncounted: bool,
    /// Files that do not belong here: the next start refuses the directory.
    pub unknown: Vec<String>,
    /// Log, segments and checkpoints together.
    pub bytes: u64,
}

/// A log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// Relative to the data directory.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Batches end here.
    pub used_bytes: u64,
    /// Its header can be read and fits.
    pub is_header_good: bool,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReport {
    /// Its number.
    pub group: u32,
    /// Index and term of the checkpoint.
    pub checkpoint: Option<(u64, u64)>,
    /// First and last index of the entries in the log above the checkpoint.
    pub entries: Option<(u64, u64)>,
    /// Whether it has a hard state.
    pub has_hard_state: bool,
    /// Segments that the checkpoint names.
    pub segments: usize,
    /// Messages in them.
    pub messages: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Why it does not serve.
    pub damage: Option<Damage>,
    /// What it must make up for before it votes.
    pub lost_state: LostState,
    /// Files that were quarantined as damaged.
    pub quarantined: usize,
    /// What of the segments cannot be read, if every message was looked at.
    pub lost: Vec<Lost>,
}

/// Messages of a queue in a segment that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The segment's file.
    pub path: String,
    /// The queue's number.
    pub queue: u64,
    /// How many of its messages cannot be read, and how many there are.
    pub count: u64,
    pub of: u64,
}

/// Reads everything there is; changes nothing. `deep`: every message of every segment is read
/// and checked too.
pub fn inspect<D: Disk>(disk: &D, deep: bool) -> Result<Report, Error> {
    let identity = Identity::load(disk)?.ok_or_else(|| {
        Error::refused(
            "IDENTITY",
            "the file is missing: this is not a data directory, or no node has used it yet",
        )
    })?;
    let layout = layout::survey(disk)?;
    let config = Config::new(identity);
    if layout.log_files.is_empty() {
        return Err(Error::refused("wal", "the directory was used before, but its log is missing"));
    }
    let scan = scan::scan(disk, &config, Access::Read, &layout.log_files)?;
    let mut groups = Vec::new();
    let numbers: BTreeSet<u32> =
        layout.groups.keys().chain(scan.replay.groups.keys()).copied().collect();
    for number in numbers {
        groups.push(inspect_group(disk, &identity, &layout, &scan, number, deep)?);
    }
    let file = |(number, file): (&u64, &scan::ScannedFile<D::File>)| FileReport {
        path: wal_path(*number),
        bytes: file.bytes,
        used_bytes: file.used_bytes,
        is_header_good: file.is_header_good,
    };
    let files: Vec<FileReport> = scan.files.iter().map(file).collect();
    let bytes = files.iter().map(|file| file.bytes).sum::<u64>()
        + groups.iter().map(|group| group.segment_bytes).sum::<u64>()
        + checkpoint_bytes(disk, &layout)?;
    Ok(Report {
        identity,
        files,
        groups,
        batches: scan.batches,
        is_torn: scan.is_torn,
        losses: scan.replay.losses(&wal_path),
        notes: inspect_notes(disk),
        is_uncounted: matches!(Boot::last(disk), Ok(0)),
        unknown: layout.unknown,
        bytes,
    })
}

fn inspect_notes<D: Disk>(disk: &D) -> Vec<(String, String)> {
    let found = [
        (BOOT_FILE, Boot::last(disk).err()),
        (FOUNDING_FILE, Founding::load(disk).err()),
        (MEMBERS_FILE, Member::load(disk).err()),
    ];
    let told = |(path, error): (&str, Option<Error>)| Some((path.to_owned(), error?.to_string()));
    found.into_iter().filter_map(told).collect()
}

fn inspect_group<D: Disk>(
    disk: &D,
    identity: &Identity,
    layout: &Layout,
    scan: &Scan<D::File>,
    group: u32,
    deep: bool,
) -> Result<GroupReport, Error> {
    let files = match layout.groups.get(&group) {
        Some(names) => GroupFiles::load(disk, identity, group, names)?,
        None => GroupFiles::default(),
    };
    let checkpoint = files.stored.as_ref().map(|stored| &stored.checkpoint);
    let at = checkpoint.map_or((0, 0), |checkpoint| (checkpoint.index, checkpoint.term));
    let mut damage = files.damage.clone().or_else(|| scan.replay.damage(group, at, &wal_path));
    let metas = checkpoint.map_or(&[][..], |checkpoint| &checkpoint.segments);
    let mut lost = Vec::new();
    if deep && damage.is_none() {
        for meta in metas {
            let found = read_segment(disk, identity, group, meta, &mut lost);
            damage = damage.or(found);
        }
    }
    let replayed = scan.replay.groups.get(&group);
    let mut entries =
        replayed.iter().flat_map(|group| group.above(at)).map(|found| found.entry.index);
    let first = entries.next();
    Ok(GroupReport {
        group,
        checkpoint: checkpoint.map(|_| at),
        entries: first.map(|first| (first, entries.next_back().unwrap_or(first))),
        has_hard_state: replayed.is_some_and(|group| group.hard_state.is_some()),
        segments: metas.len(),
        messages: metas.iter().map(crate::segments::SegmentMeta::count).sum(),
        segment_bytes: metas.iter().map(|meta| meta.bytes).sum(),
        damage,
        lost_state: replayed.map(|group| group.lost_state).unwrap_or_default(),
        quarantined: layout.groups.get(&group).map_or(0, |names| names.quarantined.len()),
        lost,
    })
}

fn read_segment<D: Disk>(
    disk: &D,
    identity: &Identity,
    group: u32,
    meta: &crate::segments::SegmentMeta,
    lost: &mut Vec<Lost>,
) -> Option<Damage> {
    let opened = crate::segments::Reader::open(disk, identity, group, meta);
    let path = segment_path(group, meta.number);
    let checked = opened.and_then(|segment| {
        segment.verify().inspect_err(|_| {
            let unreadable = segment.unreadable().into_iter();
            let told = |(queue, count, of)| Lost { path: path.clone(), queue, count, of };
            lost.extend(unreadable.map(told));
        })
    });
    match checked {
        Ok(()) => None,
        Err(Error::Damaged { path, offset, what }) => {
            Some(Damage { path, offset, index: None, what })
        }
        Err(error) => Some(Damage { path, offset: 0, index: None, what: error.to_string() }),
    }
}

fn checkpoint_bytes<D: Disk>(disk: &D, layout: &Layout) -> Result<u64, Error> {
    let mut bytes = 0;
    for group in layout.groups.iter().filter(|(_, names)| names.has_checkpoint).map(|(g, _)| *g) {
        let path = layout::checkpoint_path(group);
        let file = disk.open(&path, Access::Read).at("open", &path)?;
        bytes += file.bytes().at("size", &path)?;
    }
    Ok(bytes)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} bytes, {} batches", self.identity, self.bytes, self.batches)?;
        for FileReport { path, bytes, used_bytes, is_header_good } in &self.files {
            let header = if *is_header_good { "" } else { ", its header is damaged" };
            writeln!(f, "{path}: {used_bytes} of {bytes} bytes used{header}")?;
        }
        for group in &self.groups {
            write!(f, "group {}:", group.group)?;
            if let Some((index, term)) = group.checkpoint {
                write!(f, " checkpoint {index} (term {term})")?;
            }
            if let Some((first, last)) = group.entries {
                write!(f, " entries {first} to {last}")?;
            }
            let GroupReport { segments, messages, segment_bytes, .. } = group;
            writeln!(f, " segments {segments} with {messages} messages, {segment_bytes} bytes")?;
            if let Some(damage) = &group.damage {
                writeln!(f, "  damaged: {damage}")?;
            }
            if group.lost_state.any() {
                writeln!(f, "  does not vote before it has caught up with the other nodes")?;
            }
            if group.quarantined > 0 {
                writeln!(f, "  {} damaged files are quarantined", group.quarantined)?;
            }
        }
        for loss in &self.losses {
            writeln!(f, "lost: {loss}")?;
        }
        for (_, why) in &self.notes {
            writeln!(f, "unreadable: {why}")?;
        }
        if self.is_uncounted {
            writeln!(f, "missing: {BOOT_FILE}")?;
        }
        for path in &self.unknown {
            writeln!(f, "unknown file: {path}")?;
        }
        if self.is_torn {
            writeln!(f, "the last commit was interrupted; nothing of it was confirmed")?;
        }
        Ok(())
    }
}
