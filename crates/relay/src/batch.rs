//! The rows of one batch, and how each ended.

use crate::attempts::Fault;
use crate::fields::Fields;
use crate::publisher::{RowSeq, Rows};

/// A row of the outbox that this batch has locked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its place in the table (`ctid`), packed: block and offset.
    pub place: u64,
    pub fields: Fields,
}

/// A row that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its place in the batch.
    pub row: usize,
    pub fault: Fault,
    /// It counts as an attempt.
    pub is_charged: bool,
}

/// One batch. Rows are named by their place in it. Whatever is neither confirmed nor failed in the end is given back:
/// untouched, and without an attempt counted.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<OutboxRow>,
    /// The publisher's number of the first.
    first: u64,
    id: usize,
    confirmed: Vec<usize>,
    failed: Vec<Failed>,
}

impl Batch {
    /// Rows that the publisher knows by their numbers from `first` on; `id`: the column of their ids.
    pub(crate) fn new(rows: Vec<OutboxRow>, first: u64, id: usize) -> Self {
        Self { rows, first, id, ..Self::default() }
    }

    /// The rows, by their place.
    pub fn rows(&self) -> &[OutboxRow] {
        &self.rows
    }

    /// The publisher's number of a row.
    pub(crate) fn seq(&self, row: usize) -> RowSeq {
        RowSeq(self.first + row as u64)
    }

    /// The place of a row of this batch.
    pub(crate) fn place(&self, seq: RowSeq) -> Option<usize> {
        let row = seq.0.checked_sub(self.first)? as usize;
        (row < self.rows.len()).then_some(row)
    }

    pub(crate) fn confirm(&mut self, row: usize) {
        self.confirmed.push(row);
    }

    pub(crate) fn fail(&mut self, row: usize, fault: Fault, is_charged: bool) {
        self.failed.push(Failed { row, fault, is_charged });
    }

    /// Nothing of it is to be written down.
    pub(crate) fn is_untouched(&self) -> bool {
        self.confirmed.is_empty() && self.failed.is_empty()
    }

    /// Confirmed rows.
    pub fn confirmed(&self) -> &[usize] {
        &self.confirmed
    }

    /// Rows that were not taken, and why.
    pub fn failed(&self) -> &[Failed] {
        &self.failed
    }
}

impl Rows for Batch {
    fn read(&mut self, row: RowSeq) -> Result<&Fields, Fault> {
        let row = self.place(row).expect("only rows of the batch are published");
        Ok(&self.rows[row].fields)
    }

    fn name(&mut self, row: RowSeq) -> Vec<u8> {
        let row = self.place(row).map(|row| &self.rows[row]);
        let name = row.map(|row| {
            let id = row.fields.get(self.id).unwrap_or_default();
            [&row.place.to_be_bytes(), id].concat()
        });
        name.unwrap_or_default()
    }
}
