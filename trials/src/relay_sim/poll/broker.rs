//! The broker of a poll worker: one connection. Each key has a queue of its own, which may be silent for a while.

use std::collections::{BTreeSet, VecDeque};

use client::{Chance, PublishSeq, Run, Verdict};

use super::super::Below as _;
use super::Row;

/// The connection is gone at a message.
pub(super) struct Lost;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Broker {
    /// Published and not looked at yet: number on the connection, and row.
    wire: VecDeque<(u64, usize)>,
    verdicts: VecDeque<(Verdict, usize)>,
    last: u64,
}

impl Broker {
    pub(super) fn connect(&mut self) {
        *self = Self::default();
    }

    pub(super) fn publish(&mut self, row: usize) -> PublishSeq {
        self.last += 1;
        self.wire.push_back((self.last, row));
        PublishSeq(self.last)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.wire.is_empty() && self.verdicts.is_empty()
    }

    /// Looks at the next message whose queue is not silent.
    pub(super) fn take(
        &mut self,
        rows: &mut [Row],
        stalled: &BTreeSet<u64>,
        may_refuse: bool,
        stored: &mut Vec<usize>,
        chance: &mut Chance,
    ) -> Result<(), Lost> {
        let next = self.wire.iter().position(|(_, row)| !stalled.contains(&rows[*row].key));
        let Some((seq, row)) = next.and_then(|at| self.wire.remove(at)) else { return Ok(()) };
        let run = Run { first: PublishSeq(seq), last: PublishSeq(seq) };
        if rows[row].is_dropped {
            return Err(Lost);
        }
        let verdict = if rows[row].is_returned() {
            Verdict::Returned { seq: run.first, code: 312, text: "returned".into() }
        } else if may_refuse && chance.below(25) == 0 {
            rows[row].refused += 1;
            Verdict::Refused(run)
        } else {
            stored.push(row);
            Verdict::Confirmed(run)
        };
        self.verdicts.push_back((verdict, row));
        Ok(())
    }

    /// A verdict arrives, and the row that it is of; now and then not the oldest.
    pub(super) fn answer(&mut self, chance: &mut Chance) -> Option<(Verdict, usize)> {
        let count = self.verdicts.len().min(4) as u64;
        let at = if count > 0 && chance.below(3) == 0 { chance.below(count) } else { 0 };
        self.verdicts.remove(at as usize)
    }

    /// The connection is lost: some of what was on the wire arrived.
    pub(super) fn lose(&mut self, rows: &[Row], stored: &mut Vec<usize>, chance: &mut Chance) {
        let some = chance.below(self.wire.len() as u64 + 1) as usize;
        for (_, row) in self.wire.drain(..).take(some) {
            if rows[row].is_dropped {
                break;
            }
            if !rows[row].is_returned() {
                stored.push(row);
            }
        }
        self.connect();
    }
}

impl Row {
    fn is_returned(&self) -> bool {
        self.attempts < self.poison
    }
}
