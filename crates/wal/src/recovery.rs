//! Opening a data directory: what is there, what of it holds, and what must be repaired first.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;

use crate::active::Active;
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::group_status::Group;
use crate::groups::GroupFiles;
use crate::identity::{IDENTITY_FILE, Identity};
use crate::keeper::Keeper;
use crate::layout::{self, Layout, group_dir, suspect_path};
use crate::limits::{
    CHECKPOINT_BYTES_MAX, DATA_START, FILE_BYTES_MAX, FILE_BYTES_MIN, SECTOR_BYTES,
};
use crate::record::{BATCH_HEADER_BYTES, BATCH_MAGIC, Groups, LostState, Position, Seed};
use crate::replay::{Damage, EntryAt, Replayed};
use crate::scan::{Scan, scan};
use crate::shared::{
    GROUPS_DIR, LogFile, Ready, Shared, Table, Truncated, WAL_DIR, make_file, sync_dir, wal_path,
};
use crate::terms::Terms;

/// What a start found, by group.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Every group that has anything on this disk.
    pub groups: BTreeMap<u32, RecoveredGroup>,
    /// Whether something that was never synced followed the last whole batch, and was cut.
    pub was_torn: bool,
    /// Everything durable that is unreadable and whose groups are not exactly known. Groups it
    /// may concern have it as their damage; one that should be in `groups` and is not may have
    /// been lost altogether, and must not start empty.
    pub losses: Vec<Damage>,
}

/// What a start found of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredGroup {
    /// The last one committed.
    pub hard_state: Option<Bytes>,
    /// Entries above the checkpoint, without gaps. With damage: those below it.
    pub entries: Vec<EntryAt>,
    /// The newest one.
    pub checkpoint: Option<Checkpoint>,
    /// If set, the group must not serve, vote or be written: something promised is missing. With
    /// peers, [`Wal::quarantine`](crate::Wal::quarantine) makes it empty, to be filled by a snapshot.
    pub damage: Option<Damage>,
    /// What it would forget, or forgot, when its files are quarantined.
    pub lost_state: LostState,
}

/// What recovery hands to the writer.
pub(crate) struct Parts<D: Disk> {
    pub(crate) shared: Arc<Shared<D>>,
    pub(crate) keeper: Keeper<D>,
    pub(crate) active: Active<D::File>,
    pub(crate) sequence: u64,
    pub(crate) groups: BTreeMap<u32, Group>,
}

pub(crate) fn open<D: Disk>(disk: D, config: Config) -> Result<(Parts<D>, Recovered), Error> {
    assert!(config.file_bytes >= FILE_BYTES_MIN, "a log file holds a header and some batches");
    assert!(config.file_bytes <= FILE_BYTES_MAX, "offsets in a log file fit 32 bits");
    assert!(config.file_bytes.is_multiple_of(SECTOR_BYTES), "a log file is made of sectors");
    assert!(
        config.checkpoint_bytes_max <= CHECKPOINT_BYTES_MAX,
        "a checkpoint that is written can be read again"
    );
    let lock = disk.lock().map_err(in_use)?;
    let mut layout = survey_known(&disk)?;
    if !layout.has_identity {
        make_new(&disk, &config, &layout)?;
        layout = survey_known(&disk)?;
    }
    match Identity::load(&disk)? {
        Some(identity) => identity.expect(&config.identity)?,
        None => return Err(Error::refused(IDENTITY_FILE, "it vanished while it was read")),
    }
    let scan = scan_whole(&disk, &config, Access::Write, &layout)?;
    let files = load_groups(&disk, &config, &layout)?;
    repair(&disk, &scan, &layout)?;
    clear_suspicions(&disk, &layout, &files)?;
    Ok(assemble(disk, config, lock, scan, files))
}

/// Reads what a start would find in a directory that was used before. Changes nothing.
pub(crate) fn look<D: Disk>(disk: D, config: Config) -> Result<(Parts<D>, Recovered), Error> {
    let lock = disk.lock().map_err(in_use)?;
    let layout = survey_known(&disk)?;
    match Identity::load(&disk)? {
        Some(identity) => identity.expect(&config.identity)?,
        None => return Err(Error::refused(IDENTITY_FILE, "the file is missing")),
    }
    let scan = scan_whole(&disk, &config, Access::Read, &layout)?;
    let files = load_groups(&disk, &config, &layout)?;
    Ok(assemble(disk, config, lock, scan, files))
}

/// Scans the log of a directory that was used before.
fn scan_whole<D: Disk>(
    disk: &D,
    config: &Config,
    access: Access,
    layout: &Layout,
) -> Result<Scan<D::File>, Error> {
    if layout.log_files.is_empty() {
        let why = "the directory was used before, but its log is missing: restore the log, or start \
             with an empty directory";
        return Err(Error::refused(WAL_DIR, why));
    }
    let scan = scan(disk, config, access, &layout.log_files)?;
    if scan.last.is_none() && layout.log_files[0] > 1 {
        // The last file with batches is never given away.
        let why = "the log files with data are missing, and only prepared ones are left: restore the log, or \
             start with an empty directory";
        return Err(Error::refused(WAL_DIR, why));
    }
    Ok(scan)
}

fn in_use(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => Error::refused(
            "the data directory",
            "another process uses it: stop that process, or give this node its own directory",
        ),
        _ => Err::<(), _>(error).at("lock", "the data directory").expect_err("it is an error"),
    }
}

fn survey_known<D: Disk>(disk: &D) -> Result<Layout, Error> {
    let layout = layout::survey(disk)?;
    match layout.unknown.first() {
        None => Ok(layout),
        Some(path) => {
            let why = format!(
                "{} file(s) in the data directory do not belong to Millrace; this is the first. Nothing was changed. \
                 Move the file(s) out of the directory, then start the node again",
                layout.unknown.len()
            );
            Err(Error::refused(path, why))
        }
    }
}

/// Makes a new directory. The identity comes last: with it the directory counts as used.
fn make_new<D: Disk>(disk: &D, config: &Config, layout: &Layout) -> Result<(), Error> {
    let is_interrupted_start = layout.groups.is_empty()
        && match layout.log_files.as_slice() {
            [] => true,
            [1] => is_without_batches(disk)?,
            _ => false,
        };
    if !is_interrupted_start {
        let why = "the file is missing, but there is a log: restore the file from a backup, or start with an empty \
             directory";
        return Err(Error::refused(IDENTITY_FILE, why));
    }
    disk.create_dir(WAL_DIR).at("create", WAL_DIR)?;
    disk.create_dir(GROUPS_DIR).at("create", GROUPS_DIR)?;
    sync_dir(disk, "")?;
    make_file(disk, config, 1, config.urgent_bytes())?;
    config.identity.store(disk)
}

fn is_without_batches<D: Disk>(disk: &D) -> Result<bool, Error> {
    let path = wal_path(1);
    let file = disk.open(&path, Access::Read).at("open", &path)?;
    let mut sector = [0; BATCH_HEADER_BYTES];
    file.read_at(DATA_START, &mut sector).at("read", &path)?;
    Ok(!sector.starts_with(&BATCH_MAGIC))
}

fn load_groups<D: Disk>(
    disk: &D,
    config: &Config,
    layout: &Layout,
) -> Result<BTreeMap<u32, GroupFiles>, Error> {
    let load = |(group, names): (&u32, _)| {
        Ok((*group, GroupFiles::load(disk, &config.identity, *group, names)?))
    };
    layout.groups.iter().map(load).collect()
}

/// Makes durable what was found, before anybody builds on it.
///
/// The last batch may never have been synced, or its sync may have failed, after which the
/// system says "synced" of pages it dropped. So it is written again, and what follows it is cut.
fn repair<D: Disk>(disk: &D, scan: &Scan<D::File>, layout: &Layout) -> Result<(), Error> {
    let end = scan.end;
    let mut touched = vec![end.file];
    if let Some(last) = scan.last.filter(|last| last.bytes > 0) {
        let path = wal_path(last.at.file);
        let file = &scan.files[&last.at.file].file;
        let mut batch = vec![0; last.bytes as usize];
        file.read_at(last.at.offset, &mut batch).at("read", &path)?;
        file.write_at(last.at.offset, &[IoSlice::new(&batch)]).at("write", &path)?;
        touched.push(last.at.file);
    }
    let path = wal_path(end.file);
    if end.offset + SECTOR_BYTES <= scan.files[&end.file].bytes {
        let zeros = [0; SECTOR_BYTES as usize];
        scan.files[&end.file]
            .file
            .write_at(end.offset, &[IoSlice::new(&zeros)])
            .at("write", &path)?;
    }
    for number in touched {
        scan.files[&number].file.sync_data().at("sync", &wal_path(number))?;
    }
    for temporary in &layout.temporaries {
        disk.remove(temporary).at("remove", temporary)?;
    }
    for (number, file) in scan.files.range(end.file + 1..) {
        if !file.is_header_good {
            // It holds no batch, and no batch can have been in it without a header.
            let path = wal_path(*number);
            disk.remove(&path).at("remove", &path)?;
        }
    }
    sync_dir(disk, WAL_DIR)?;
    sync_dir(disk, GROUPS_DIR)?;
    layout.groups.keys().try_for_each(|group| sync_dir(disk, &group_dir(*group)))?;
    sync_dir(disk, "")
}

/// Segments that were read as a whole and are sound are not suspect any more.
fn clear_suspicions<D: Disk>(
    disk: &D,
    layout: &Layout,
    files: &BTreeMap<u32, GroupFiles>,
) -> Result<(), Error> {
    for (group, _) in layout.groups.iter().filter(|(_, names)| names.is_suspect) {
        if files.get(group).is_some_and(|files| files.damage.is_none()) {
            let path = suspect_path(*group);
            disk.remove(&path).at("remove", &path)?;
            sync_dir(disk, &group_dir(*group))?;
        }
    }
    Ok(())
}

fn assemble<D: Disk>(
    disk: D,
    config: Config,
    lock: D::Lock,
    scan: Scan<D::File>,
    files: BTreeMap<u32, GroupFiles>,
) -> (Parts<D>, Recovered) {
    let losses = scan.replay.losses(&wal_path);
    if scan.is_torn {
        let Position { file, offset } = scan.end;
        tracing::info!(
            file,
            offset,
            "removed an interrupted commit from the end of the log; nothing of it was confirmed"
        );
    }
    let mut recovered = Recovered { groups: BTreeMap::new(), was_torn: scan.is_torn, losses };
    let mut groups = BTreeMap::new();
    let mut truncated = BTreeMap::new();
    let numbers: std::collections::BTreeSet<u32> =
        files.keys().chain(scan.replay.groups.keys()).copied().collect();
    for number in numbers {
        let (found, group, covered) = assemble_group(&scan, number, files.get(&number));
        if let Some(damage) = &found.damage {
            tracing::error!(
                group = number,
                "files of this group are damaged: {damage}. In a cluster the other nodes rebuild this replica; a \
                 single node does not start"
            );
        }
        recovered.groups.insert(number, found);
        groups.insert(number, group);
        truncated.insert(number, covered);
    }
    let Position { file: active, offset } = scan.end;
    assert!(offset.is_multiple_of(SECTOR_BYTES), "the next batch begins at a sector");
    let scanned = &scan.files[&active];
    let active = Active {
        number: active,
        file: Arc::clone(&scanned.file),
        bytes: scanned.bytes,
        seed: Seed::of(&config.identity, active),
        offset,
        durable: scan.end,
        groups: scan.last.map_or(Groups::ALL, |last| last.groups),
    };
    let table = table_of(&scan, truncated);
    let shared = Arc::new(Shared::new(disk, config, lock, table));
    *shared.prepared.lock() = prepared_of(&scan);
    let keeper = Keeper::new(Arc::clone(&shared), files);
    let sequence = scan.last.map_or(0, |last| last.sequence);
    (Parts { shared, keeper, active, sequence, groups }, recovered)
}

fn assemble_group<F>(
    scan: &Scan<F>,
    number: u32,
    files: Option<&GroupFiles>,
) -> (RecoveredGroup, Group, Truncated) {
    let checkpoint =
        files.and_then(|files| files.stored.as_ref()).map(|stored| stored.checkpoint.clone());
    let (index, term) = checkpoint.as_ref().map_or((0, 0), |c| (c.index, c.term));
    let damage = files
        .and_then(|files| files.damage.clone())
        .or_else(|| scan.replay.damage(number, (index, term), &wal_path));
    let replayed = scan.replay.groups.get(&number);
    let mut entries = Vec::new();
    for found in replayed.iter().flat_map(|group| group.above((index, term))) {
        let is_next = found.entry.index == index + 1 + entries.len() as u64;
        if found.is_damaged || !is_next {
            break;
        }
        entries.push(found.entry);
    }
    let continues = replayed.is_none_or(|group| group.continues((index, term)));
    let last = replayed.map_or((0, 0), |group| group.last);
    let mut terms = Terms::default();
    entries.iter().for_each(|entry| terms.push(entry.index, entry.term));
    let mut lost_state = replayed.map_or(LostState::default(), |group| group.lost_state);
    let group = Group {
        hard_state: replayed.and_then(|group| group.hard_state.clone()),
        truncated: (index, term).max(replayed.map_or((0, 0), |group| group.truncated)),
        last: if last.0 < index || !continues { (index, term) } else { last },
        terms,
        is_damaged: damage.is_some(),
        lost_state,
    };
    if damage.is_some() {
        let nothing = LostState { log: true, vote: true };
        lost_state = lost_state.or(replayed.map_or(nothing, Replayed::forgets));
    }
    let is_logged = replayed.is_some_and(|group| {
        group.truncated == (index, term) && group.is_damaged == damage.is_some()
    });
    let truncated = Truncated { index, term, is_logged, is_new: false };
    let hard_state = group.hard_state.clone();
    (RecoveredGroup { hard_state, entries, checkpoint, damage, lost_state }, group, truncated)
}

fn table_of<F>(scan: &Scan<F>, truncated: BTreeMap<u32, Truncated>) -> Table<F> {
    // What comes before the file with the last batch may be given away, and no more.
    let active = scan.last.map_or(scan.end.file, |last| last.at.file);
    let mut table = Table { files: BTreeMap::new(), active, truncated };
    for (number, scanned) in scan.files.range(..=scan.end.file) {
        let file = Arc::clone(&scanned.file);
        let bytes = scanned.bytes;
        table.files.insert(*number, LogFile { file, bytes, holds: BTreeMap::new() });
    }
    for (group, replayed) in &scan.replay.groups {
        let checkpoint = table
            .truncated
            .get(group)
            .map_or((0, 0), |truncated| (truncated.index, truncated.term));
        for found in replayed.above(checkpoint) {
            table.hold(found.entry.place.file, *group, found.entry.index);
        }
    }
    table
}

/// Files behind the end, as far as their numbers follow each other.
fn prepared_of<F>(scan: &Scan<F>) -> std::collections::VecDeque<Ready<F>> {
    let mut prepared = std::collections::VecDeque::new();
    for (number, scanned) in scan.files.range(scan.end.file + 1..) {
        if *number != scan.end.file + 1 + prepared.len() as u64 || !scanned.is_header_good {
            break;
        }
        let file = Arc::clone(&scanned.file);
        prepared.push_back(Ready { number: *number, file, bytes: scanned.bytes });
    }
    prepared
}
