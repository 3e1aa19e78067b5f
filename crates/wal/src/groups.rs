//! What a group keeps outside the log: its checkpoint and segments, as a start finds them.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::checkpoint::Stored;
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::identity::Identity;
use crate::layout::{GroupNames, checkpoint_path, segment_of, segment_path};
use crate::limits::CHECKPOINT_BYTES_MAX;
use crate::replay::Damage;

/// A group's directory.
#[derive(Debug, Default)]
pub(crate) struct GroupFiles {
    pub(crate) stored: Option<Stored>,
    /// Segment files, whoever made them.
    pub(crate) on_disk: BTreeSet<u64>,
    /// Next number for a segment: above all that were ever used.
    pub(crate) next_segment: u64,
    pub(crate) damage: Option<Damage>,
}

impl GroupFiles {
    /// Reads the checkpoint and looks at each segment's footer.
    pub(crate) fn load<D: Disk>(
        disk: &D,
        identity: &Identity,
        group: u32,
        names: &GroupNames,
    ) -> Result<Self, Error> {
        let mut files =
            Self { on_disk: names.segments.iter().copied().collect(), ..Self::default() };
        if names.has_checkpoint {
            let path = checkpoint_path(group);
            let bytes = read_whole(disk, &path)?;
            match Stored::decode(identity, group, &path, &bytes) {
                Ok(stored) => files.stored = Some(stored),
                Err(Error::Damaged { path, offset, what }) => {
                    files.damage = Some(Damage { path, offset, index: None, what });
                }
                Err(error) => return Err(error),
            }
        }
        files.next_segment = files.stored.as_ref().map_or(1, |stored| stored.next_segment);
        files.check_segments(disk, identity, group, names.is_suspect)?;
        let quarantined = names.quarantined.iter().filter_map(|name| segment_of(name));
        let used =
            files.on_disk.iter().copied().chain(quarantined).max().map_or(0, |last| last + 1);
        files.next_segment = files.next_segment.max(used);
        Ok(files)
    }

    fn check_segments<D: Disk>(
        &mut self,
        disk: &D,
        identity: &Identity,
        group: u32,
        is_suspect: bool,
    ) -> Result<(), Error> {
        let Some(stored) = &self.stored else { return Ok(()) };
        let damage = |number: u64, what: String| {
            Some(Damage { path: segment_path(group, number), offset: 0, index: None, what })
        };
        let mut explained: BTreeSet<u64> = stored.removed.iter().copied().collect();
        for meta in &stored.checkpoint.segments {
            explained.insert(meta.number);
            if !self.on_disk.contains(&meta.number) {
                self.damage = damage(meta.number, "the checkpoint needs it and it is gone".into());
                return Ok(());
            }
            let opened = crate::segments::Reader::open(disk, identity, group, meta);
            let checked = match is_suspect {
                true => opened.and_then(|segment| segment.verify()),
                false => opened.map(|_| ()),
            };
            match checked {
                Ok(()) => {}
                Err(Error::Damaged { path, offset, what }) => {
                    self.damage = Some(Damage { path, offset, index: None, what });
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        let unexplained = self
            .on_disk
            .iter()
            .find(|number| **number < stored.next_segment && !explained.contains(number));
        if let Some(number) = unexplained {
            let what = "the checkpoint does not know it: is the checkpoint an older copy?".into();
            self.damage = damage(*number, what);
        }
        Ok(())
    }
}

fn read_whole<D: Disk>(disk: &D, path: &str) -> Result<Bytes, Error> {
    let file = disk.open(path, Access::Read).at("open", path)?;
    let bytes = file.bytes().at("size", path)?;
    if bytes > CHECKPOINT_BYTES_MAX {
        return Err(Error::damaged(path, 0, format!("{bytes} bytes are too many")));
    }
    let mut contents = vec![0; bytes as usize];
    let count = file.read_at(0, &mut contents).at("read", path)?;
    contents.truncate(count);
    Ok(contents.into())
}
