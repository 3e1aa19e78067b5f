//! The log's writer: one commit is one write and one sync.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::active::Active;
use crate::ballast;
use crate::batch::{CommitBatch, Draft, Item, Synced, size_of_batch};
use crate::config::Config;
use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Error};
use crate::group_status::Group;
use crate::keeper::Keeper;
use crate::limits::{BATCH_RECORDS_MAX, DATA_START, SECTOR_BYTES};
use crate::place::Place;
use crate::reader::Reader;
use crate::record::{GroupStatus, Kind, Position, RECORD_HEADER_BYTES, Seed, aligned};
use crate::recovery::{self, Parts, Recovered};
use crate::shared::{LogFile, Ready, Shared, make_file, wal_path};
use crate::stats::Stats;

/// The log of one node, for all its groups. Owned by the one thread that writes it; others read
/// with a [`Reader`], and one keeps house with the [`Keeper`].
pub struct Wal<D: Disk> {
    shared: Arc<Shared<D>>,
    keeper: Option<Keeper<D>>,
    active: Active<D::File>,
    /// Of the last batch written.
    sequence: u64,
    groups: BTreeMap<u32, Group>,
    /// The first failure: from then on the only answer.
    failed: Option<Error>,
    stats: Stats,
    draft: Draft,
}

impl<D: Disk> Wal<D> {
    /// Opens the log in `disk`'s directory, or makes a new one if the directory is empty.
    ///
    /// What was torn by a power cut is cut off, and what is left is written and synced again
    /// before this returns. What was durable and is unreadable now is reported as the damage of
    /// its groups, and left as it is.
    pub fn open(disk: D, config: Config) -> Result<(Self, Recovered), Error> {
        let (parts, recovered) = recovery::open(disk, config)?;
        let Parts { shared, keeper, active, sequence, groups } = parts;
        let wal = Self {
            shared,
            keeper: Some(keeper),
            active,
            sequence,
            groups,
            failed: None,
            stats: Stats::default(),
            draft: Draft::default(),
        };
        Ok((wal, recovered))
    }

    /// What a start would find in a directory that was used before, and a handle to read it with. Changes
    /// nothing; the directory is locked as long as the handle is there.
    pub fn look(disk: D, config: Config) -> Result<(Reader<D>, Recovered), Error> {
        let (parts, recovered) = recovery::look(disk, config)?;
        Ok((Reader::new(parts.shared), recovered))
    }

    /// A handle to read entries with, for any thread.
    pub fn reader(&self) -> Reader<D> {
        Reader::new(Arc::clone(&self.shared))
    }

    /// The handle for checkpoints, segments and log files, for one thread. Can be taken once.
    pub fn keeper(&mut self) -> Keeper<D> {
        self.keeper.take().expect("the keeper has one owner, and was taken before")
    }

    /// Makes all items of all batches durable: one write and one sync, unless they fill a file.
    ///
    /// Each batch is durable as a whole or not at all, and none without the batches before it. Without
    /// batches, a commit writes down which checkpoints there are, which frees log files. After an error the
    /// log accepts nothing more, because nobody knows what is on disk: stop the node and open the log again.
    /// The exception is [`Error::TooLarge`], which writes nothing.
    pub fn commit(&mut self, batches: Vec<CommitBatch>) -> Result<Synced, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.check_sizes(&batches)?;
        let mut places = Vec::new();
        self.write_all(&batches, &mut places).inspect_err(|error| {
            self.failed = Some(error.clone());
        })?;
        self.stats.commits += 1;
        self.stats.batches += batches.len() as u64;
        self.stats.entries += places.len() as u64;
        Ok(Synced::new(self.sequence, places))
    }

    /// Takes another file if the active one has no room for the first of `batches`, as many of them as go into one
    /// file. Says how many these are: a commit of them does not fail for want of space, one of all of them
    /// may, because it takes a file after the other. If there is no room now, this says so
    /// ([`Error::is_full`]) and nothing is lost: it may be tried again. Any other failure latches.
    pub fn make_room(&mut self, batches: &[CommitBatch]) -> Result<usize, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.check_sizes(batches)?;
        let statuses = self.status_bytes() + self.new_truncated_bytes();
        let count = self.count_for_one_file(batches, statuses);
        let bytes: u64 = batches[..count].iter().map(CommitBatch::bytes).sum();
        let bytes_max = self.shared.config.file_bytes - DATA_START;
        let needed = aligned(bytes + statuses + size_of_batch(0, 0)).min(bytes_max);
        if self.active.offset + needed <= self.active.bytes {
            return Ok(count);
        }
        self.roll(needed).map(|()| count).inspect_err(|error| {
            if !error.is_full() {
                self.failed = Some(error.clone());
            }
        })
    }

    /// Writes a last batch, which proves that the one before it was durable: a later start can
    /// then tell damage from a torn tail everywhere.
    pub fn close(mut self) -> Result<(), Error> {
        self.commit(vec![CommitBatch::new()]).map(|_| ())
    }

    /// Counters since the log was opened.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Why the log takes nothing more, if so.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    fn check_sizes(&self, batches: &[CommitBatch]) -> Result<(), Error> {
        let statuses = self.status_bytes();
        let bytes_max = (self.shared.config.file_bytes - DATA_START).saturating_sub(statuses);
        for batch in batches {
            let bytes = aligned(batch.bytes() + size_of_batch(0, 0));
            if bytes > bytes_max || batch.count() > BATCH_RECORDS_MAX / 2 {
                return Err(Error::TooLarge { bytes, bytes_max });
            }
        }
        Ok(())
    }

    /// Most that the status records of all groups take.
    fn status_bytes(&self) -> u64 {
        let of_group = |group: &Group| {
            let hard_state = group.hard_state.as_ref().map_or(0, Bytes::len);
            (RECORD_HEADER_BYTES + 17 + hard_state) as u64
        };
        self.groups.values().map(of_group).sum::<u64>() + size_of_batch(0, 0)
    }

    /// Writes the batches in as few writes as the file size allows: nearly always one.
    fn write_all(&mut self, batches: &[CommitBatch], places: &mut Vec<Place>) -> Result<(), Error> {
        let statuses = self.status_bytes();
        let mut rest = batches;
        loop {
            let (now, later) = rest.split_at(self.count_for_one_file(rest, statuses));
            self.write(now, places)?;
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// How many of the first of `batches` go into one file, with so many bytes of status records: at least one.
    fn count_for_one_file(&self, batches: &[CommitBatch], statuses: u64) -> usize {
        let room = (self.shared.config.file_bytes - DATA_START)
            .saturating_sub(statuses + size_of_batch(0, 0));
        let (mut bytes, mut records) = (0, 0);
        let fits = batches.iter().take_while(|batch| {
            bytes += batch.bytes();
            records += batch.count();
            bytes <= room && records <= BATCH_RECORDS_MAX / 2
        });
        fits.count().max(1).min(batches.len())
    }

    /// What the status records take of groups that have a checkpoint and nothing in the log so far.
    fn new_truncated_bytes(&self) -> u64 {
        let table = self.shared.table.lock();
        let new = table.truncated.keys().filter(|group| !self.groups.contains_key(group)).count();
        new as u64 * (RECORD_HEADER_BYTES + 17) as u64
    }

    /// One write and one sync.
    fn write(&mut self, batches: &[CommitBatch], places: &mut Vec<Place>) -> Result<(), Error> {
        let first_place = places.len();
        let payload: u64 = batches.iter().map(CommitBatch::bytes).sum();
        let (dirty, void) = self.adopt_truncated();
        let needed = |statuses: u64| aligned(payload + statuses + size_of_batch(0, 0));
        let mut is_fresh = self.active.offset == DATA_START;
        let all = self.status_bytes();
        if self.active.offset + needed(all) > self.active.bytes {
            self.roll(needed(all))?;
            is_fresh = true;
        }
        let mut draft = std::mem::take(&mut self.draft);
        draft.clear();
        for (number, group) in &self.groups {
            if is_fresh || dirty.contains(number) {
                let Group { truncated, is_damaged, lost_state, .. } = *group;
                let hard_state = group.hard_state.as_deref();
                let status = GroupStatus { truncated, hard_state, is_damaged, lost_state };
                let (index, term) = group.last;
                draft.add(*number, Kind::GroupStatus, index, term, status.encode().into());
            }
        }
        for batch in batches {
            for (group, item) in batch.items() {
                self.groups.entry(*group).or_default().note(*group, item);
                match item {
                    Item::Entry { index, term, data } => {
                        draft.add(*group, Kind::Entry, *index, *term, data.clone());
                    }
                    Item::HardState(state) => {
                        draft.add(*group, Kind::HardState, 0, 0, state.clone());
                    }
                    Item::TruncateFrom(index) => {
                        draft.add(*group, Kind::Truncate, *index, 0, Bytes::new());
                    }
                    Item::Reset(lost_state) => {
                        let payload = Bytes::copy_from_slice(&[lost_state.encode()]);
                        draft.add(*group, Kind::Reset, 0, 0, payload);
                    }
                    Item::Rejoined => draft.add(*group, Kind::Rejoined, 0, 0, Bytes::new()),
                }
            }
        }
        let at = Position { file: self.active.number, offset: self.active.offset };
        assert!(self.active.durable <= at, "nothing is called synced that is not written");
        self.sequence += 1;
        let previous = (self.sequence, self.active.groups);
        self.active.groups =
            draft.seal(self.active.seed, (at, self.active.durable), previous, places);
        let result = self.write_draft(&draft);
        // The payloads are on disk now; whoever still needs them has them.
        draft.clear();
        self.draft = draft;
        result?;
        let durable = self.active.durable;
        assert!(
            places.last().is_none_or(|last| last.end() <= durable),
            "what is given out as durable lies before the end of what is synced"
        );
        self.publish(batches, (&dirty, &void), places[first_place..].iter());
        Ok(())
    }

    fn write_draft(&mut self, draft: &Draft) -> Result<(), Error> {
        let bytes = aligned(draft.bytes());
        assert!(
            self.active.offset.is_multiple_of(SECTOR_BYTES),
            "a torn write shares no sector with what was synced before"
        );
        assert!(
            self.active.offset + bytes <= self.active.bytes,
            "a batch is only written to a file that has room for it"
        );
        assert!(draft.count() <= BATCH_RECORDS_MAX, "the sizes were checked before");
        let path = wal_path(self.active.number);
        self.active.file.write_at(self.active.offset, &draft.parts()).at("write", &path)?;
        self.stats.sync_us += self.active.file.sync_data().at("sync", &path)?;
        self.stats.syncs += 1;
        self.stats.bytes += bytes;
        self.active.offset += bytes;
        self.active.durable = Position { file: self.active.number, offset: self.active.offset };
        Ok(())
    }

    /// Takes over the checkpoints that the log does not know yet. Gives their groups, and those of
    /// them whose log above the checkpoint is void.
    fn adopt_truncated(&mut self) -> (Vec<u32>, Vec<u32>) {
        let mut table = self.shared.table.lock();
        let (mut dirty, mut void) = (Vec::new(), Vec::new());
        for (number, truncated) in
            table.truncated.iter_mut().filter(|(_, truncated)| !truncated.is_logged)
        {
            let group = self.groups.entry(*number).or_default();
            if !group.adopt(truncated.index, truncated.term, truncated.is_new) {
                void.push(*number);
            }
            dirty.push(*number);
        }
        (dirty, void)
    }

    /// Tells the readers and the keeper what is durable now.
    fn publish<'a>(
        &self,
        batches: &[CommitBatch],
        (dirty, void): (&[u32], &[u32]),
        mut places: impl Iterator<Item = &'a Place>,
    ) {
        let mut table = self.shared.table.lock();
        for number in void {
            table.truncate(*number, 0);
        }
        for (group, item) in batches.iter().flat_map(CommitBatch::items) {
            match item {
                Item::Entry { index, .. } => {
                    let place = places.next().expect("every entry has a place");
                    let truncated = self.groups.get(group).map_or(0, |group| group.truncated.0);
                    if *index > truncated {
                        table.truncate(*group, *index);
                        table.hold(place.file, *group, *index);
                    }
                }
                Item::TruncateFrom(index) => table.truncate(*group, *index),
                Item::Reset(_) => {
                    table.truncate(*group, 0);
                    table.truncated.remove(group);
                }
                Item::HardState(_) | Item::Rejoined => {}
            }
        }
        assert!(places.next().is_none(), "every place is that of an entry");
        for number in dirty {
            let group = &self.groups[number];
            if let Some(truncated) = table.truncated.get_mut(number) {
                truncated.is_logged = truncated.index <= group.truncated.0;
            }
        }
        table.active = self.active.number;
    }

    /// Goes on in another file whatever room there is.
    pub(crate) fn take_next_file(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let needed = aligned(self.status_bytes() + size_of_batch(0, 0));
        self.roll(needed).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Goes on in the next file; makes a small one if none is ready.
    fn roll(&mut self, needed: u64) -> Result<(), Error> {
        let mut prepared = self.shared.prepared.lock();
        let ready = match prepared.pop_front() {
            Some(ready) if ready.bytes >= DATA_START + needed => ready,
            Some(_) | None => {
                self.stats.urgent_rollovers += 1;
                tracing::debug!(
                    file = self.active.number + 1,
                    "the next log file was not ready; making it now, which delays this commit"
                );
                let config = &self.shared.config;
                let bytes = config.urgent_bytes().max(DATA_START + needed);
                let (disk, number) = (&self.shared.disk, self.active.number + 1);
                match make_file(disk, config, number, bytes) {
                    Err(error) if error.is_full() && ballast::release_for_log(disk, bytes)? => {
                        make_file(disk, config, number, bytes)?
                    }
                    other => other?,
                }
            }
        };
        assert!(ready.number == self.active.number + 1, "log files follow each other");
        let Ready { number, file, bytes } = ready;
        self.stats.rollovers += 1;
        self.active.number = number;
        self.active.file = Arc::clone(&file);
        self.active.bytes = bytes;
        self.active.seed = Seed::of(&self.shared.config.identity, number);
        self.active.offset = DATA_START;
        // The readers may be asked for entries of this file as soon as the commit returns.
        self.shared
            .table
            .lock()
            .files
            .insert(number, LogFile { file, bytes, holds: BTreeMap::new() });
        Ok(())
    }
}
