//! Rows that have arrived and are not done: those of the log in its order, and those that are tried again.

use std::collections::VecDeque;

use bytes::Bytes;

use super::retries::{Due, Retries, Retry};
use super::rows::{Decoder, Version};
use super::{TransactionSeq, text_of};
use crate::attempts::{Fault, Reason};
use crate::fields::Fields;
use crate::label::{hash, label};
use crate::lsn::Lsn;
use crate::mapping::{Mapping, TableName};
use crate::publisher::{self, RowSeq};
use crate::stored;

/// A row of the log.
#[derive(Debug)]
pub(super) struct Row {
    /// Empty once it is done.
    pub(super) data: Bytes,
    pub(super) version: Version,
    pub(super) lsn: Lsn,
    /// Rows of its transaction before it from the same place.
    pub(super) nth: u32,
    pub(super) of: TransactionSeq,
    pub(super) key: Option<Bytes>,
    /// No message can be made of it.
    pub(super) fault: Option<Box<Fault>>,
    pub(super) is_done: bool,
}

impl Row {
    /// What names a row without an id: the same each time that it comes.
    fn place(&self) -> String {
        match self.nth {
            // Whatever is left among the failures from an earlier reading of the table is another row.
            nth if self.lsn == Lsn(0) => format!("table:{}+{nth}", hash(&self.data)),
            0 => format!("log:{}", self.lsn),
            nth => format!("log:{}+{nth}", self.lsn),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) decoder: Decoder,
    pub(super) retries: Retries,
    /// Rows from the oldest that is not done on.
    log: VecDeque<Row>,
    /// Number of the first.
    first: u64,
    bytes: usize,
    scratch: Fields,
}

impl Arrived {
    pub(super) fn new(mapping: &Mapping, table: &TableName) -> Self {
        Self {
            decoder: Decoder::new(mapping, table),
            retries: Retries::default(),
            log: VecDeque::new(),
            first: 0,
            bytes: 0,
            scratch: Fields::default(),
        }
    }

    /// How many of the log there are, from the oldest that is not done on.
    pub(super) fn count(&self) -> usize {
        self.log.len()
    }

    /// Bytes of those that are not done.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The oldest that is not done.
    pub(super) fn first(&self) -> Option<&Row> {
        self.log.front()
    }

    pub(super) fn push(&mut self, row: Row) -> RowSeq {
        self.bytes += row.data.len();
        self.log.push_back(row);
        RowSeq(self.first + self.log.len() as u64 - 1)
    }

    /// A row that failed before, as the publisher knows it.
    pub(super) fn add_retry(&mut self, due: Due) -> publisher::Row {
        let row = stored::from_json(self.decoder.layout(), &due.stored_row);
        self.retries.add(due, row)
    }

    /// A row of the log that is not done.
    pub(super) fn row(&self, seq: RowSeq) -> &Row {
        &self.log[(seq.0 - self.first) as usize]
    }

    /// A row of the log is done; of which transaction it is.
    pub(super) fn done(&mut self, seq: RowSeq) -> TransactionSeq {
        let row = &mut self.log[(seq.0 - self.first) as usize];
        assert!(!row.is_done, "a row is done once");
        row.is_done = true;
        self.bytes -= row.data.len();
        (row.data, row.key) = (Bytes::new(), None);
        let of = row.of;
        while self.log.front().is_some_and(|row| row.is_done) {
            self.log.pop_front();
            self.first += 1;
        }
        of
    }

    /// The key of a row, as the database has it.
    pub(super) fn key(&self, seq: RowSeq) -> Option<String> {
        match self.retries.get(seq) {
            Some(retry) => retry.key.clone(),
            None => self.row(seq).key.as_deref().map(text_of),
        }
    }

    /// Bytes of a row's body.
    pub(super) fn body_bytes(&self, seq: RowSeq) -> usize {
        let payload = self.decoder.layout().payload;
        let (version, data) = match self.retries.get(seq) {
            Some(Retry { row: Ok(row), .. }) => (Version::OWN, row),
            Some(_) => return 0,
            None => (self.row(seq).version, &self.row(seq).data),
        };
        self.decoder.byte_count(version, data, payload)
    }

    /// What a row of the log is called among the failures.
    pub(super) fn label(&mut self, seq: RowSeq) -> String {
        self.read_log(seq);
        let id = self.scratch.get(self.decoder.layout().id);
        id.map_or_else(|| self.row(seq).place(), |id| label(id).into_owned())
    }

    /// A row of the log as a JSON object.
    pub(super) fn stored_row(&mut self, seq: RowSeq) -> String {
        self.read_log(seq);
        stored::to_json(self.decoder.layout(), &self.scratch)
    }

    fn read_log(&mut self, seq: RowSeq) {
        let row = &self.log[(seq.0 - self.first) as usize];
        self.decoder.read(row.version, &row.data, &mut self.scratch);
    }
}

impl publisher::Rows for Arrived {
    fn read(&mut self, seq: RowSeq) -> Result<&Fields, Fault> {
        match self.retries.get(seq).map(|retry| &retry.row) {
            Some(Ok(row)) => self.decoder.read(Version::OWN, row, &mut self.scratch),
            Some(Err(text)) => {
                return Err(Fault { reason: Reason::Broken, text: text.clone() });
            }
            None => {
                if let Some(fault) = &self.row(seq).fault {
                    return Err((**fault).clone());
                }
                self.read_log(seq);
            }
        }
        Ok(&self.scratch)
    }

    fn name(&mut self, seq: RowSeq) -> Vec<u8> {
        let name = self.retries.get(seq).map(|retry| retry.row_id.clone());
        name.unwrap_or_else(|| self.label(seq)).into_bytes()
    }
}
