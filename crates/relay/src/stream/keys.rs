//! Which rows of a key may be published: at most a window of them is unconfirmed, and behind one that failed the rest
//! of its key goes where it went, among the failures.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::RowSeq;

/// A key with rows that are not done.
#[derive(Debug, Default)]
struct Key {
    /// Rows that may be published or are unconfirmed.
    admitted: u32,
    /// Rows that wait for them.
    waiting: VecDeque<RowSeq>,
    /// Rows of it are among the failures: later ones go there too.
    is_parked: bool,
    /// Rows on their way there.
    parking: u32,
}

/// What to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Publish,
    /// Later: behind others of its key.
    Wait,
    /// Store it behind those of its key that have failed.
    Park,
}

/// All keys with rows that are not done.
#[derive(Debug)]
pub(super) struct Keys {
    window: u32,
    keys: BTreeMap<Bytes, Key>,
    parked: usize,
}

impl Keys {
    /// At most `window` rows of a key unconfirmed at a time.
    pub(super) fn new(window: u32) -> Self {
        Self { window, keys: BTreeMap::new(), parked: 0 }
    }

    /// Keys with rows among the failures.
    pub(super) fn parked_count(&self) -> usize {
        self.parked
    }

    /// All of them.
    pub(super) fn parked(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.iter().filter(|(_, key)| key.is_parked).map(|(name, _)| name)
    }

    /// Whether rows of the key are among the failures.
    pub(super) fn is_parked(&self, name: &Bytes) -> bool {
        self.keys.get(name).is_some_and(|key| key.is_parked)
    }

    /// Rows of the key are among the failures.
    pub(super) fn park(&mut self, name: &Bytes) {
        let mut key = self.keys.remove(name).unwrap_or_default();
        self.parked += usize::from(!key.is_parked);
        key.is_parked = true;
        // Under a copy of its name, which is a part of a whole row: that must not stay in memory.
        self.keys.insert(Bytes::copy_from_slice(name), key);
    }

    /// A row arrives.
    pub(super) fn arrive(&mut self, name: &Bytes, row: RowSeq) -> Admission {
        let key = self.keys.entry(name.clone()).or_default();
        if key.is_parked && key.admitted == 0 && key.waiting.is_empty() {
            key.parking += 1;
            return Admission::Park;
        }
        if !key.is_parked && key.admitted < self.window && key.waiting.is_empty() {
            key.admitted += 1;
            return Admission::Publish;
        }
        key.waiting.push_back(row);
        Admission::Wait
    }

    /// An admitted row is confirmed, or failed and blocks nobody: the next of its key that may be published.
    pub(super) fn done(&mut self, name: &Bytes) -> Option<RowSeq> {
        let key = self.keys.get_mut(name).expect("an admitted row's key is here");
        key.admitted -= 1;
        self.next(name)
    }

    /// An admitted row failed and keeps its key back. It goes among the failures.
    pub(super) fn failed(&mut self, name: &Bytes) {
        let key = self.keys.get_mut(name).expect("an admitted row's key is here");
        key.admitted -= 1;
        key.parking += 1;
        self.park(name);
    }

    /// Rows that go among the failures now: those behind a failure, once nothing of their key is unconfirmed (one
    /// that is may still fail, and comes before them).
    pub(super) fn take_parking(&mut self, name: &Bytes, out: &mut Vec<RowSeq>) {
        let Some(key) = self.keys.get_mut(name).filter(|key| key.is_parked && key.admitted == 0)
        else {
            return;
        };
        key.parking += key.waiting.len() as u32;
        out.extend(key.waiting.drain(..));
    }

    /// A row of the key is stored among the failures.
    pub(super) fn stored(&mut self, name: &Bytes) {
        let key = self.keys.get_mut(name).expect("a row on its way has its key here");
        key.parking -= 1;
    }

    /// No row of the key is among the failures, as far as the database knows: what may be published again.
    pub(super) fn unpark(&mut self, name: &Bytes, out: &mut Vec<RowSeq>) {
        let Some(key) = self.keys.get_mut(name).filter(|key| key.is_parked && key.parking == 0)
        else {
            return;
        };
        key.is_parked = false;
        self.parked -= 1;
        while let Some(row) = self.next(name) {
            out.push(row);
        }
    }

    fn next(&mut self, name: &Bytes) -> Option<RowSeq> {
        let key = self.keys.get_mut(name)?;
        if !key.is_parked
            && key.admitted < self.window
            && let Some(row) = key.waiting.pop_front()
        {
            key.admitted += 1;
            return Some(row);
        }
        if key.admitted == 0 && key.waiting.is_empty() && !key.is_parked && key.parking == 0 {
            self.keys.remove(name);
        }
        None
    }
}
