//! What the records of the log add up to, group by group.
//!
//! Replay takes the batches in order and is told of every batch that was lost in between. Which
//! groups a lost batch concerned is often not known. Two things clear a group of the suspicion:
//! a later standing record that names the same last index and term as what was replayed (in a
//! Raft log, equal index and term mean an equal prefix: Raft 5.3), or a checkpoint that covers
//! everything up to there. A hard state is whole in every record, so a later one heals an
//! earlier loss.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::place::Place;
use crate::record::{Kind, Position, RecordHeader, Standing};

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

#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) groups: BTreeMap<u32, Replayed>,
    /// Batches or records lost whose groups are not known: where, the newest last.
    lost: Vec<(Position, &'static str)>,
}

#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) hard_state: Option<Bytes>,
    pub(crate) floor: (u64, u64),
    pub(crate) entries: Vec<Found>,
    /// Index and term of the last entry. Term 0: not known, after a truncation.
    pub(crate) last: (u64, u64),
    /// The hard state in the log's last record of one is unreadable.
    hard_state_lost: Option<Position>,
    /// Of the losses that might concern any group, so many do not concern this one.
    cleared: usize,
    /// After so many losses, a standing record said that the last index was this.
    bound: Option<(usize, u64)>,
    /// An earlier start found damage below or at `last`, and noted it.
    pub(crate) is_damaged: bool,
    /// Last index when that was noted.
    damaged_up_to: u64,
}

/// An entry in the log, readable or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) entry: EntryAt,
    pub(crate) is_damaged: bool,
}

impl Replay {
    /// Takes one record. `payload`: `None` if its checksum does not fit.
    pub(crate) fn record(
        &mut self,
        batch: Position,
        header: &RecordHeader,
        payload: Option<&[u8]>,
    ) {
        let lost = self.lost.len();
        let group = self.groups.entry(header.group).or_default();
        match header.kind {
            Kind::Entry => {
                group.truncate(header.index);
                let place = Place::new(batch, header);
                let entry = EntryAt { index: header.index, term: header.term, place };
                group.entries.push(Found { entry, is_damaged: payload.is_none() });
                group.last = (header.index, header.term);
            }
            Kind::Truncate => {
                if header.index <= group.last.0 {
                    group.truncate(header.index);
                    group.last = last_below(group.entries.last(), header.index);
                }
            }
            Kind::HardState => group.hard_state(batch, payload),
            Kind::Standing => match payload.and_then(Standing::decode) {
                Some(standing) => group.standing(header, standing, lost),
                None => group.hard_state_lost = Some(batch),
            },
        }
    }

    /// Notes that something durable is unreadable at `at`, and nobody knows whose it was.
    pub(crate) fn lose(&mut self, at: Position, what: &'static str) {
        self.lost.push((at, what));
    }

    /// What is wrong with a group whose newest checkpoint is at `checkpoint`, if anything.
    pub(crate) fn damage(
        &self,
        group: u32,
        checkpoint: u64,
        path: &dyn Fn(u64) -> String,
    ) -> Option<Damage> {
        let fresh = Replayed::default();
        let state = self.groups.get(&group).unwrap_or(&fresh);
        let at = |position: Position, index, what: &str| {
            let what = what.to_owned();
            Some(Damage { path: path(position.file), offset: position.offset, index, what })
        };
        if checkpoint < state.floor.0 {
            return Some(Damage {
                path: format!("groups/{group}/checkpoint"),
                offset: 0,
                index: Some(checkpoint + 1),
                what: format!(
                    "the log says there was a checkpoint at {}, what is there reaches {checkpoint}",
                    state.floor.0
                ),
            });
        }
        if state.is_damaged && (checkpoint == 0 || checkpoint < state.damaged_up_to) {
            return at(Position::default(), None, "an earlier start found damage in this group");
        }
        if let Some(position) = state.hard_state_lost {
            return at(position, None, "the group's hard state is unreadable");
        }
        let mut expected = checkpoint + 1;
        for found in state.entries.iter().filter(|found| found.entry.index > checkpoint) {
            let place = found.entry.place;
            let position = Position { file: place.file, offset: place.offset };
            if found.entry.index != expected {
                return at(position, Some(expected), "entries before this one are missing");
            }
            if found.is_damaged {
                return at(position, Some(expected), "the entry's checksum does not fit");
            }
            expected += 1;
        }
        if state.last.0 >= expected {
            return Some(Damage {
                path: "wal".to_owned(),
                offset: 0,
                index: Some(expected),
                what: format!("entries {expected} to {} are missing", state.last.0),
            });
        }
        if state.cleared < self.lost.len() {
            let is_covered = state
                .bound
                .is_some_and(|(lost, index)| lost == self.lost.len() && index <= checkpoint);
            let (position, what) = self.lost[self.lost.len() - 1];
            return if is_covered { None } else { at(position, None, what) };
        }
        None
    }
}

impl Replayed {
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
            }
            None => self.hard_state_lost = Some(batch),
        }
    }

    fn standing(&mut self, header: &RecordHeader, standing: Standing<'_>, lost: usize) {
        let says = (header.index, header.term);
        let is_known = says == (0, 0) || says.1 != 0;
        if self.cleared < lost && says == self.last && is_known {
            self.cleared = lost;
        }
        if self.cleared < lost {
            self.bound = Some((lost, says.0));
        }
        self.last = says;
        self.is_damaged = standing.is_damaged;
        self.damaged_up_to = says.0;
        self.floor = self.floor.max(standing.floor);
        self.hard_state = standing.hard_state.map(Bytes::copy_from_slice);
        self.hard_state_lost = None;
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
