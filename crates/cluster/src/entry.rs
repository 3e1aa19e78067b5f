//! How an entry of the `raft` crate lies on disk.
//!
//! An entry of a machine is its bytes as they are: they begin with a version, or there are none. A
//! change of membership is wrapped, because the log keeps no types: marker, type, length of the
//! data, data, context.

use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType};
use wal::EntryAt;

/// No entry of a machine begins like this.
const MARKER: u8 = 0xCC;
const HEAD_BYTES: usize = 6;

/// What of `entry` is written besides index and term.
pub(crate) fn to_disk(entry: &Entry) -> Bytes {
    let kind = match entry.get_entry_type() {
        EntryType::EntryNormal => return entry.data.clone(),
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
    };
    let length = u32::try_from(entry.data.len()).expect("a change of membership is small");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + entry.data.len() + entry.context.len());
    bytes.extend_from_slice(&[MARKER, kind]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&entry.data);
    bytes.extend_from_slice(&entry.context);
    bytes.into()
}

/// Whether these bytes on disk are a change of membership.
pub(crate) fn is_change(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MARKER)
}

/// The entry at `at`, whose bytes on disk are `bytes`. `None`: a newer program wrote them.
pub fn from_disk(at: &EntryAt, bytes: Bytes) -> Option<Entry> {
    let mut entry = Entry::default();
    (entry.index, entry.term) = (at.index, at.term);
    if bytes.first() != Some(&MARKER) {
        entry.data = bytes;
        return Some(entry);
    }
    entry.set_entry_type(match bytes.get(1)? {
        1 => EntryType::EntryConfChange,
        2 => EntryType::EntryConfChangeV2,
        _ => return None,
    });
    let length = u32::from_le_bytes(bytes.get(2..HEAD_BYTES)?.try_into().ok()?) as usize;
    let end = HEAD_BYTES.checked_add(length).filter(|end| *end <= bytes.len())?;
    entry.data = bytes.slice(HEAD_BYTES..end);
    entry.context = bytes.slice(end..);
    Some(entry)
}

#[cfg(test)]
mod tests {
    use wal::Place;

    use super::*;

    fn at() -> EntryAt {
        EntryAt { index: 7, term: 3, place: Place { file: 1, offset: 0, bytes: 0, checksum: 0 } }
    }

    fn entry(kind: EntryType, data: &'static [u8], context: &'static [u8]) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (7, 3);
        entry.set_entry_type(kind);
        (entry.data, entry.context) = (Bytes::from_static(data), Bytes::from_static(context));
        entry
    }

    #[test]
    fn entries_of_all_types_survive_the_disk() {
        use EntryType::{EntryConfChange, EntryConfChangeV2, EntryNormal};
        for entry in [
            entry(EntryNormal, b"", b""),
            entry(EntryNormal, b"\x01machine", b""),
            entry(EntryConfChange, b"\xCCx", b""),
            entry(EntryConfChangeV2, b"data", b"context"),
        ] {
            assert_eq!(from_disk(&at(), to_disk(&entry)), Some(entry));
        }
    }

    #[test]
    fn a_wrapped_entry_that_is_cut_or_of_another_type_is_refused() {
        let bytes = to_disk(&entry(EntryType::EntryConfChangeV2, b"data", b""));
        for cut in 1..bytes.len() {
            assert_eq!(from_disk(&at(), bytes.slice(..cut)), None);
        }
        let mut other = bytes.to_vec();
        other[1] = 9;
        assert_eq!(from_disk(&at(), other.into()), None);
    }
}
