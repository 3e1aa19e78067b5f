//! A backup wants a group that is led here as it is: with everything that was confirmed before it asked.
//!
//! The leader asks a majority whether it still leads. An index that the majority answers covers all that any leader had
//! confirmed until then (Raft's ReadIndex; Ongaro's thesis, 6.4). Once that index is applied, a checkpoint is what is
//! wanted.
//!
//! ```text
//!   none ──wanted──> asked ──a majority answers──> known ──applied, no checkpoint under way──> cut
//!                      │                             │
//!                      └──────leads no more──────────┴──> refused
//! ```

use std::collections::BTreeMap;

use machine::GroupId;
use raft::Storage;

use super::Shard;
use crate::exchange::{Cut, NotCut, Output};

/// Cuts that are wanted; at most one of a group.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    wanted: BTreeMap<GroupId, Wanted>,
}

#[derive(Debug)]
struct Wanted {
    number: u64,
    /// What has to be applied. `None`: it is not known yet.
    index: Option<u64>,
}

impl Shard {
    pub(super) fn want_cut(&mut self, group: GroupId, number: u64, outputs: &mut Vec<Output>) {
        let Some(found) = self.group_mut(group).filter(|found| found.serves()) else {
            return outputs.push(Output::Cut { group, number, cut: Err(NotCut::NotLeader) });
        };
        found.replica.ask_index(number);
        self.cuts.wanted.insert(group, Wanted { number, index: None });
    }

    /// Goes on with the cut of `group` that is wanted, if one is.
    pub(super) fn cut(&mut self, group: GroupId, outputs: &mut Vec<Output>) {
        let Some(mut wanted) = self.cuts.wanted.remove(&group) else { return };
        let number = wanted.number;
        let Some(found) = self.group_mut(group).filter(|found| found.serves()) else {
            return outputs.push(Output::Cut { group, number, cut: Err(NotCut::NotLeader) });
        };
        let indexes = found.replica.take_indexes();
        let told = indexes.iter().find(|(of, _)| *of == number).map(|(_, index)| *index);
        wanted.index = wanted.index.or(told);
        let is_early = wanted.index.is_none_or(|index| found.applied() < index);
        if is_early || found.is_checkpointing() {
            self.cuts.wanted.insert(group, wanted);
            return;
        }
        let index = found.applied();
        let term = found.replica.log().term(index).expect("an applied entry has a term");
        let is_new = found.begins_cut();
        let job = match group {
            _ if !is_new => None,
            GroupId::CATALOG => self.catalog.as_ref().map(|catalog| catalog.job()),
            _ => self.groups.get(&group).map(|queues| queues.job()),
        };
        outputs.push(Output::Cut { group, number, cut: Ok(Cut { index, term, job }) });
    }
}
