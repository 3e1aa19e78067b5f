//! The broker of one seed: one connection, which keeps the order of what is published on it.

use std::collections::VecDeque;

use ::relay::publisher::RowSeq;
use client::{Chance, PublishSeq, Run, Verdict};

use super::super::Below as _;
use super::{Kind, Row};

/// What the connection came to.
pub(super) enum End {
    Lost,
    Closed { code: u16 },
}

/// One broker.
#[derive(Debug, Default)]
pub(super) struct Broker {
    /// Published, and not looked at yet: the number on the connection, the row, and the publisher's number of it.
    wire: VecDeque<(u64, usize)>,
    verdicts: VecDeque<(Verdict, usize)>,
    next: u64,
    /// Refuses everything.
    pub(super) is_ill: bool,
    /// Rows in the order they were stored.
    pub(super) stored: Vec<usize>,
    /// How often each row was refused while the broker was well.
    pub(super) refused: Vec<u32>,
    pub(super) is_healed: bool,
}

impl Broker {
    pub(super) fn new(rows: usize) -> Self {
        Self { refused: vec![0; rows], ..Self::default() }
    }

    pub(super) fn connect(&mut self) {
        (self.next, self.wire, self.verdicts) = (1, VecDeque::new(), VecDeque::new());
    }

    pub(super) fn publish(&mut self, row: usize) -> PublishSeq {
        self.wire.push_back((self.next, row));
        self.next += 1;
        PublishSeq(self.next - 1)
    }

    /// Looks at the next message. An end: the connection is gone at it.
    pub(super) fn take(&mut self, rows: &[Row], chance: &mut Chance) -> Result<(), End> {
        let Some((seq, row)) = self.wire.pop_front() else { return Ok(()) };
        let run = Run { first: PublishSeq(seq), last: PublishSeq(seq) };
        let verdict = match rows[row].kind {
            Kind::Deadly => {
                self.wire.clear();
                return Err(End::Lost);
            }
            Kind::Hated => {
                self.wire.clear();
                return Err(End::Closed { code: 406 });
            }
            Kind::Unroutable if !self.is_healed => {
                Verdict::Returned { seq: run.first, code: 312, text: "NO_ROUTE".into() }
            }
            _ if self.is_ill => Verdict::Refused(run),
            _ if !self.is_healed && chance.below(25) == 0 => {
                self.refused[row] += 1;
                Verdict::Refused(run)
            }
            _ => {
                self.stored.push(row);
                Verdict::Confirmed(run)
            }
        };
        self.verdicts.push_back((verdict, row));
        Ok(())
    }

    /// A verdict arrives; now and then not the oldest, as confirms of several queues do.
    pub(super) fn answer(&mut self, chance: &mut Chance) -> Option<Verdict> {
        if chance.below(4) == 0 {
            let count = self.verdicts.len().min(4);
            self.verdicts.range(..count).len().checked_sub(1)?;
            let at = chance.below(count as u64) as usize;
            return self.verdicts.remove(at).map(|(verdict, _)| verdict);
        }
        self.verdicts.pop_front().map(|(verdict, _)| verdict)
    }

    /// The connection is lost: the broker may have looked at some of what is on the wire, and nobody hears of it.
    pub(super) fn lose(&mut self, rows: &[Row], chance: &mut Chance) {
        let some = chance.below(self.wire.len() as u64 + 1);
        for _ in 0..some {
            if self.take(rows, chance).is_err() {
                break;
            }
        }
        self.connect();
    }

    /// Nothing is on its way.
    pub(super) fn is_quiet(&self) -> bool {
        self.wire.is_empty() && self.verdicts.is_empty()
    }
}

/// What the publisher calls a row: its number in the world, and which attempt it is.
pub(super) fn seq(row: usize, is_retry: bool, nth: u64) -> RowSeq {
    match is_retry {
        false => RowSeq(row as u64),
        true => RowSeq(1 << 63 | nth << 20 | row as u64),
    }
}

/// Which row of the world that is.
pub(super) fn row_of(seq: RowSeq) -> usize {
    (seq.0 & 0xf_ffff) as usize
}
