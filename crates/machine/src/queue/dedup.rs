//! Which keys came lately: how a queue tells a second message from a first.
//!
//! Replicated: it knows the time by entries, so every replica leaves out the same messages.

use std::collections::{BTreeSet, VecDeque};

use crate::encoding::{Corrupt, Reader, put_varint};
use crate::settings::Dedup;

/// The keys of a queue's last messages, bounded by time and count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyWindow {
    keys: BTreeSet<u128>,
    /// In order of arrival, each with when it is forgotten.
    order: VecDeque<(u64, u128)>,
}

impl KeyWindow {
    /// Whether the key came lately. If not, it has now.
    pub(crate) fn is_known(&mut self, key: u128, now_ms: u64, bounds: &Dedup) -> bool {
        while self.order.front().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            self.forget_first();
        }
        if self.keys.contains(&key) {
            return true;
        }
        while self.order.len() >= bounds.entries_max as usize && self.forget_first() {}
        if bounds.entries_max > 0 {
            self.keys.insert(key);
            self.order.push_back((now_ms.saturating_add(bounds.window_ms), key));
        }
        false
    }

    fn forget_first(&mut self) -> bool {
        let Some((_, key)) = self.order.pop_front() else { return false };
        self.keys.remove(&key);
        true
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.order.len() as u64);
        for (until_ms, key) in &self.order {
            put_varint(out, *until_ms);
            out.extend_from_slice(&key.to_le_bytes());
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut window = Self::default();
        for _ in 0..reader.varint()? {
            let (until_ms, key) = (reader.varint()?, reader.u128()?);
            if !window.keys.insert(key) {
                return Err(reader.corrupt());
            }
            window.order.push_back((until_ms, key));
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Dedup = Dedup { window_ms: 100, entries_max: 2 };

    #[test]
    fn a_key_is_known_until_its_time_is_over() {
        let mut window = KeyWindow::default();
        assert!(!window.is_known(1, 1_000, &BOUNDS));
        assert!(window.is_known(1, 1_099, &BOUNDS));
        assert!(!window.is_known(1, 1_100, &BOUNDS));
    }

    #[test]
    fn no_more_keys_are_known_than_the_window_has_entries() {
        let mut window = KeyWindow::default();
        for key in 1..=3 {
            assert!(!window.is_known(key, 0, &BOUNDS));
        }
        assert!(!window.is_known(1, 0, &BOUNDS), "the first was forgotten for the third");
        assert!(window.is_known(3, 0, &BOUNDS));
    }

    #[test]
    fn a_window_comes_back_from_its_bytes() {
        let mut window = KeyWindow::default();
        window.is_known(u128::MAX, 5, &BOUNDS);
        window.is_known(7, 6, &BOUNDS);
        let mut out = Vec::new();
        window.encode(&mut out);
        let mut reader = Reader::new(&out, "test");
        assert_eq!(KeyWindow::read(&mut reader), Ok(window));
    }
}
