//! What the records of the log add up to, group by group.
//!
//! Replay takes the batches in order and is told of every batch that was lost in between, and
//! which groups it may have concerned. Two things clear a group of the suspicion: a later
//! status record that names the same last index and term as before the loss (in a Raft log,
//! equal index and term mean an equal prefix: Raft 5.3), or a checkpoint that covers everything
//! up to such a record. A hard state is whole in every record, so a later one heals an earlier
//! loss.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::place::Place;
use crate::record::{GroupStatus, Groups, Kind, LostState, Position, RecordHeader};

/// An entry that recovery found; its data stays on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryAt {
    /// Index in the group's log.
    pub index: u64,
    /// Term of the leader that proposed it.
    pub term: u64,
    /// Where its data lies.
    pub place: Place,
}

/// Something that was durable and is not readable any more. The group must not serve: its log
/// is to be rebuilt from peers, or from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File, relative to the data directory.
    pub path: String,
    /// Where in the file; 0 if the file as a whole is meant.
    pub offset: u64,
    /// First index of the group's log that is in doubt, if known.
    pub index: Option<u64>,
    /// What does not fit, for the operator.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.path, self.offset)?;
        if let Some(index) = self.index {
            write!(f, ", from entry {index} on")?;
        }
        write!(f, ": {}", self.what)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) groups: BTreeMap<u32, Replayed>,
    /// Batches or records that were lost, in order.
    lost: Vec<Loss>,
}

/// Something durable that is unreadable, and whose it may have been.
#[derive(Clone, Copy, Debug)]
struct Loss {
    at: Position,
    groups: Groups,
    what: &'static str,
}

/// A loss that may concern a group.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    loss: Loss,
    /// The group's log changed since: what it was before the loss cannot be compared any more.
    is_mixed: bool,
    /// Last index of the log according to a status record after the loss.
    bound: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) hard_state: Option<Bytes>,
    pub(crate) truncated: (u64, u64),
    pub(crate) entries: Vec<Found>,
    /// Index and term of the last entry. Term 0: not known, after a truncation.
    pub(crate) last: (u64, u64),
    /// The hard state in the log's last record of one is unreadable.
    hard_state_lost: Option<Position>,
    /// Something was lost since the last readable hard state that may have been one.
    is_vote_in_doubt: bool,
    pub(crate) lost_state: LostState,
    /// Losses up to here were looked at.
    losses_seen: usize,
    doubt: Option<Doubt>,
    /// An earlier start found damage below or at `last`, and noted it.
    pub(crate) is_damaged: bool,
    /// Checkpoint and last index when that was noted: a newer checkpoint that reaches as far
    /// has rebuilt the group.
    damaged_at: (u64, u64),
}

/// An entry in the log, readable or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) entry: EntryAt,
    pub(crate) is_damaged: bool,
}

impl Replay {
    /// Takes one record. `payload`: `None` if its checksum is wrong.
    pub(crate) fn record(
        &mut self,
        batch: Position,
        header: &RecordHeader,
        payload: Option<&[u8]>,
    ) {
        let group = self.groups.entry(header.group).or_default();
        group.see(header.group, &self.lost);
        match header.kind {
            // It was on its way when a snapshot came that covers it.
            Kind::Entry if header.index <= group.truncated.0 => {}
            Kind::Entry => {
                group.mix();
                group.truncate(header.index);
                let place = Place::new(batch, header);
                let entry = EntryAt { index: header.index, term: header.term, place };
                group.entries.push(Found { entry, is_damaged: payload.is_none() });
                group.last = (header.index, header.term);
            }
            Kind::Truncate => {
                group.mix();
                let index = header.index.max(group.truncated.0 + 1);
                if index <= group.last.0 {
                    group.truncate(index);
                    group.last = last_below(group.entries.last(), index);
                }
            }
            Kind::Reset => group.reset(payload),
            Kind::Rejoined => group.lost_state = LostState::default(),
            Kind::HardState => group.hard_state(batch, payload),
            Kind::GroupStatus => match payload.and_then(GroupStatus::decode) {
                Some(status) => group.status(header, status),
                None => group.hard_state_lost = Some(batch),
            },
        }
    }

    /// Notes that something durable is unreadable at `at`, and whose it may have been.
    pub(crate) fn lose(&mut self, at: Position, groups: Groups, what: &'static str) {
        self.lost.push(Loss { at, groups, what });
    }

    /// All losses.
    pub(crate) fn losses(&self, path: &dyn Fn(u64) -> String) -> Vec<Damage> {
        let damage = |loss: &Loss| Damage {
            path: path(loss.at.file),
            offset: loss.at.offset,
            index: None,
            what: loss.what.to_owned(),
        };
        self.lost.iter().map(damage).collect()
    }

    /// Notes the end: every group hears of the losses that no record of it followed.
    pub(crate) fn finish(&mut self) {
        for (number, group) in &mut self.groups {
            group.see(*number, &self.lost);
        }
    }
    /// What is wrong with a group whose newest checkpoint is at this index and term, if anything.
    ///
    /// Entries that a snapshot from a peer has made void are not missed.
    pub(crate) fn damage(
        &self,
        group: u32,
        (checkpoint, term): (u64, u64),
        path: &dyn Fn(u64) -> String,
    ) -> Option<Damage> {
        let mut fresh = Replayed::default();
        fresh.see(group, &self.lost);
        let state = self.groups.get(&group).unwrap_or(&fresh);
        let at = |position: Position, index, what: &str| {
            let what = what.to_owned();
            Some(Damage { path: path(position.file), offset: position.offset, index, what })
        };
        if (checkpoint, term) < state.truncated {
            return Some(Damage {
                path: format!("groups/{group}/checkpoint"),
                offset: 0,
                index: Some(checkpoint + 1),
                what: format!(
                    "the log says that there was a checkpoint up to entry {}, but the file reaches only entry \
                     {checkpoint}",
                    state.truncated.0
                ),
            });
        }
        let (truncated, last) = state.damaged_at;
        if state.is_damaged && (checkpoint <= truncated || checkpoint < last) {
            return Some(Damage {
                path: "wal".to_owned(),
                offset: 0,
                index: None,
                what: "an earlier start found damage, and the group was not rebuilt".to_owned(),
            });
        }
        if let Some(position) = state.hard_state_lost {
            return at(position, None, "the group's hard state is unreadable");
        }
        let mut expected = checkpoint + 1;
        for found in state.above((checkpoint, term)) {
            let place = found.entry.place;
            let position = Position { file: place.file, offset: place.offset };
            if found.entry.index != expected {
                return at(position, Some(expected), "entries before this one are missing");
            }
            if found.is_damaged {
                return at(position, Some(expected), "the entry's checksum is wrong");
            }
            expected += 1;
        }
        if state.last.0 >= expected && state.continues((checkpoint, term)) {
            return Some(Damage {
                path: "wal".to_owned(),
                offset: 0,
                index: Some(expected),
                what: format!("entries {expected} to {} are missing", state.last.0),
            });
        }
        if let Some(Doubt { loss, bound, .. }) = state.doubt
            && (checkpoint == 0 || bound.is_none_or(|index| checkpoint < index))
        {
            return at(loss.at, None, loss.what);
        }
        None
    }
}

impl Replayed {
    /// Whether the log goes on above a checkpoint. If it has another entry in the place of the
    /// checkpoint's last one, the checkpoint is a snapshot from a peer and the log is void.
    pub(crate) fn continues(&self, (index, term): (u64, u64)) -> bool {
        let at = self.entries.partition_point(|found| found.entry.index < index);
        let own = self.entries.get(at).map(|found| found.entry).filter(|own| own.index == index);
        own.is_none_or(|own| own.term == term)
    }

    /// The entries above a checkpoint that belong to it.
    pub(crate) fn above(&self, checkpoint: (u64, u64)) -> &[Found] {
        if !self.continues(checkpoint) {
            return &[];
        }
        let first = self.entries.partition_point(|found| found.entry.index <= checkpoint.0);
        &self.entries[first..]
    }

    /// What of the hard state and the log may be missing if the group is damaged.
    pub(crate) fn forgets(&self) -> LostState {
        LostState { log: true, vote: self.hard_state_lost.is_some() || self.is_vote_in_doubt }
    }

    fn reset(&mut self, payload: Option<&[u8]>) {
        *self = Self {
            hard_state: self.hard_state.take(),
            lost_state: self.lost_state.or(LostState::decode(payload)),
            losses_seen: self.losses_seen,
            ..Self::default()
        };
    }

    fn truncate(&mut self, index: u64) {
        while self.entries.last().is_some_and(|found| found.entry.index >= index) {
            self.entries.pop();
        }
    }

    fn hard_state(&mut self, batch: Position, payload: Option<&[u8]>) {
        match payload {
            Some(bytes) => {
                self.hard_state = Some(Bytes::copy_from_slice(bytes));
                self.hard_state_lost = None;
                self.is_vote_in_doubt = false;
            }
            None => self.hard_state_lost = Some(batch),
        }
    }

    /// Hears of the losses since the last time.
    fn see(&mut self, group: u32, lost: &[Loss]) {
        let new = &lost[self.losses_seen..];
        if let Some(loss) = new.iter().rev().find(|loss| loss.groups.may_hold(group)) {
            let is_mixed = self.doubt.is_some();
            self.doubt = Some(Doubt { loss: *loss, is_mixed, bound: None });
            self.is_vote_in_doubt = true;
        }
        self.losses_seen = lost.len();
    }

    fn mix(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.is_mixed = true;
        }
    }

    fn status(&mut self, header: &RecordHeader, status: GroupStatus<'_>) {
        let says = (header.index, header.term);
        let is_known = says == (0, 0) || says.1 != 0;
        if let Some(doubt) = &mut self.doubt {
            doubt.bound = Some(says.0);
            let is_mixed = std::mem::replace(&mut doubt.is_mixed, true);
            if !is_mixed && is_known && says == self.last {
                self.doubt = None;
            }
        }
        // Entries above it were truncated, perhaps by a batch that is lost.
        self.truncate(says.0 + 1);
        self.last = says;
        self.is_damaged = status.is_damaged;
        self.damaged_at = (status.truncated.0, says.0);
        self.truncated = self.truncated.max(status.truncated);
        // Those below are in the checkpoint, or void.
        let covered = self.entries.partition_point(|found| found.entry.index <= self.truncated.0);
        self.entries.drain(..covered);
        self.hard_state = status.hard_state.map(Bytes::copy_from_slice);
        self.hard_state_lost = None;
        self.is_vote_in_doubt = false;
        self.lost_state = status.lost_state;
    }
}

/// Index and term of the last entry after everything from `index` on is gone.
fn last_below(entry: Option<&Found>, index: u64) -> (u64, u64) {
    let below = index.saturating_sub(1);
    match entry {
        Some(found) if found.entry.index == below => (below, found.entry.term),
        Some(_) | None => (below, 0),
    }
}
