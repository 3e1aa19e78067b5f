//! Rows that failed before and are due: fetched from the failures, published again, and told to the database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::publisher::{Row, RowSeq};

/// A row among the failures that may be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub row_id: String,
    /// Rows of one key come together, in their order.
    pub key: Option<String>,
    /// Attempts it has behind it.
    pub attempts: u32,
    /// How long ago it failed first.
    pub age: Duration,
    /// The row as a JSON object.
    pub stored_row: String,
}

/// Numbers of retries begin here: above all rows of the log.
const FIRST: u64 = 1 << 63;
/// A key of retries begins with it. No key of the log does: it is no UTF-8.
const KEY_PREFIX: u8 = 0xff;

/// A row that is tried again.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) row_id: String,
    pub(super) key: Option<String>,
    pub(super) attempts: u32,
    pub(super) age: Duration,
    /// Or why it cannot be read.
    pub(super) row: Result<Bytes, String>,
}

impl Retry {
    /// What keeps the order of retries of one key: rows of the log are withheld meanwhile.
    pub(super) fn publishing_key(&self) -> Option<Bytes> {
        let key = self.key.as_ref()?;
        Some([&[KEY_PREFIX], key.as_bytes()].concat().into())
    }

    /// Whether a key of the publisher is one of retries.
    pub(super) fn is_key_of_one(key: &[u8]) -> bool {
        key.first() == Some(&KEY_PREFIX)
    }
}

/// What was fetched and is not done.
#[derive(Debug, Default)]
pub(super) struct Retries {
    all: BTreeMap<RowSeq, Retry>,
    next: u64,
    /// Their keys, also of those that are done.
    keys: BTreeSet<Bytes>,
}

impl Retries {
    /// Nothing is left of what was fetched.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn add(&mut self, due: Due, row: Result<Bytes, String>) -> Row {
        let Due { row_id, key, attempts, age, .. } = due;
        let seq = RowSeq(FIRST + self.next);
        self.next += 1;
        let bytes = row.as_ref().map_or(0, Bytes::len);
        let retry = Retry { row_id, key, attempts, age, row };
        let key = retry.publishing_key();
        self.keys.extend(key.clone());
        self.all.insert(seq, retry);
        Row { seq, key, attempts, bytes }
    }

    pub(super) fn get(&self, seq: RowSeq) -> Option<&Retry> {
        if seq.0 < FIRST { None } else { self.all.get(&seq) }
    }

    /// It is done, or stays where it is.
    pub(super) fn remove(&mut self, seq: RowSeq) -> Option<Retry> {
        if seq.0 < FIRST { None } else { self.all.remove(&seq) }
    }

    /// The keys of all that was fetched.
    pub(super) fn take_keys(&mut self) -> BTreeSet<Bytes> {
        std::mem::take(&mut self.keys)
    }
}
