//! Quarantining what is left of a damaged group, so that it can be rebuilt from its peers.
//!
//! Nothing is deleted: the group's files get other names, and of a damaged log file, which other
//! groups need too, a copy is kept. Then the log says that the group begins anew. What it forgot by
//! that stays noted until [`Item::Rejoined`].

use std::io::IoSlice;

use crate::batch::{CommitBatch, Item};
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::groups::GroupFiles;
use crate::keeper::Keeper;
use crate::layout::{QUARANTINED, SUSPECT, checkpoint_path, group_dir};
use crate::limits::FILL_STEP_BYTES;
use crate::record::LostState;
use crate::recovery::{Recovered, RecoveredGroup};
use crate::replay::Damage;
use crate::shared::{WAL_DIR, sync_dir};
use crate::wal::Wal;

impl<D: Disk> Wal<D> {
    /// Quarantines every group of `groups` that is damaged, or of which nothing is left although
    /// something of some group was lost. See [`Wal::quarantine`].
    pub fn quarantine_damaged(
        &mut self,
        keeper: &mut Keeper<D>,
        recovered: &mut Recovered,
        groups: impl IntoIterator<Item = u32>,
    ) -> Result<(), Error> {
        let losses = std::mem::take(&mut recovered.losses);
        for group in groups {
            if !losses.is_empty() && !recovered.groups.contains_key(&group) {
                let lost_state = LostState { log: true, vote: true };
                let nothing = RecoveredGroup { lost_state, ..RecoveredGroup::default() };
                let found = self.quarantine(keeper, group, &nothing)?;
                recovered.groups.insert(group, found);
            }
        }
        for (group, found) in &mut recovered.groups {
            if found.damage.is_some() {
                *found = self.quarantine(keeper, *group, found)?;
            }
        }
        Ok(())
    }

    /// Makes a damaged group empty but for its hard state; gives it as a next start would find it.
    /// For a node with peers only: what was durable is theirs to give back.
    ///
    /// Interrupted, it leaves the group as damaged as it was.
    pub fn quarantine(
        &mut self,
        keeper: &mut Keeper<D>,
        group: u32,
        found: &RecoveredGroup,
    ) -> Result<RecoveredGroup, Error> {
        let lost_state = LostState { log: true, ..found.lost_state };
        if let Some(damage) = &found.damage {
            keeper.keep_copy(damage)?;
            keeper.rename_quarantined(group, damage)?;
        }
        if self.stats().rollovers == 0 {
            // What is wrong with the end of the active file is not to be found again.
            self.take_next_file()?;
        }
        let mut batch = CommitBatch::new();
        batch.add(group, Item::Reset(lost_state));
        self.commit(vec![batch])?;
        let hard_state = found.hard_state.clone();
        Ok(RecoveredGroup { hard_state, lost_state, ..RecoveredGroup::default() })
    }
}

impl<D: Disk> Keeper<D> {
    /// Keeps a copy of the log file in which something is damaged, once for all groups.
    fn keep_copy(&self, damage: &Damage) -> Result<(), Error> {
        let disk = &self.shared.disk;
        let Some(name) = damage.path.strip_prefix("wal/") else { return Ok(()) };
        let kept = format!("{QUARANTINED}{}-{name}", damage.offset);
        let names = disk.list(WAL_DIR).at("list", WAL_DIR)?;
        if names.contains(&kept) || !names.iter().any(|other| other == name) {
            return Ok(());
        }
        let temporary = crate::shared::URGENT_TEMPORARY;
        let from = disk.open(&damage.path, Access::Read).at("open", &damage.path)?;
        let to = disk.create(temporary).at("create", temporary)?;
        let bytes = from.bytes().at("size", &damage.path)?;
        let (mut buffer, mut offset) = (vec![0; FILL_STEP_BYTES], 0);
        while offset < bytes {
            let count = from.read_at(offset, &mut buffer).at("read", &damage.path)?;
            if count == 0 {
                break;
            }
            to.write_at(offset, &[IoSlice::new(&buffer[..count])]).at("write", temporary)?;
            offset += count as u64;
        }
        to.sync_data().at("sync", temporary)?;
        let kept = format!("{WAL_DIR}/{kept}");
        disk.rename(temporary, &kept).at("rename", temporary)?;
        sync_dir(disk, WAL_DIR)
    }

    /// Gives the group's files names that say that they are damaged, and why.
    fn rename_quarantined(&mut self, group: u32, damage: &Damage) -> Result<(), Error> {
        self.make_group_dir(group)?;
        let disk = self.shared.disk.clone();
        let dir = group_dir(group);
        let names = disk.list(&dir).at("list", &dir)?;
        let number =
            |name: &String| name.strip_prefix(QUARANTINED)?.split('-').next()?.parse().ok();
        let last: u64 = names.iter().filter_map(number).max().unwrap_or(0);
        let is_ours = |name: &&String| name.starts_with("seg-") || *name == SUSPECT;
        let has_checkpoint = names.iter().any(|name| name == "checkpoint");
        let text = format!("{damage}\n");
        let is_done = !has_checkpoint && !names.iter().any(|name| is_ours(&name));
        if is_done && self.says(&format!("{dir}/{QUARANTINED}{last}-why"), &text) {
            // An earlier start came so far, and found no room for what comes next.
            return Ok(());
        }
        let quarantined = |name: &str| format!("{dir}/{QUARANTINED}{}-{name}", last + 1);
        let why = quarantined("why");
        let file = disk.create(&why).at("create", &why)?;
        let written = file.write_at(0, &[IoSlice::new(text.as_bytes())]).at("write", &why);
        if let Err(error) = written.and(file.sync_data().at("sync", &why)) {
            // Nothing is quarantined on a full disk, and each start tries again.
            let _ = disk.remove(&why);
            return Err(error);
        }
        // The checkpoint last: without it a segment would not be known any more.
        for segment in names.iter().filter(is_ours) {
            let path = format!("{dir}/{segment}");
            disk.rename(&path, &quarantined(segment)).at("rename", &path)?;
        }
        sync_dir(&disk, &dir)?;
        let path = checkpoint_path(group);
        if has_checkpoint {
            disk.rename(&path, &quarantined("checkpoint")).at("rename", &path)?;
            sync_dir(&disk, &dir)?;
        }
        tracing::warn!(
            group,
            "damaged files quarantined as {dir}/{QUARANTINED}{}-*; the other nodes rebuild this replica: {damage}",
            last + 1
        );
        let next_segment = self.groups.get(&group).map_or(1, |files| files.next_segment);
        self.groups.insert(group, GroupFiles { next_segment, ..GroupFiles::default() });
        Ok(())
    }

    /// Whether the file at `path` holds this text.
    fn says(&self, path: &str, text: &str) -> bool {
        let mut found = vec![0; text.len() + 1];
        let file = self.shared.disk.open(path, Access::Read);
        let count = file.and_then(|file| file.read_at(0, &mut found));
        count.is_ok_and(|count| &found[..count] == text.as_bytes())
    }
}
