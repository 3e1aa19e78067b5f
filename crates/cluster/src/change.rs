//! What an entry that changes who votes says.
//!
//! `raft` writes it with `protobuf`. It is read here, and by nothing else: such an entry comes from the disk or from
//! another node, and `protobuf` 2 follows nested groups as deep as its input says (RUSTSEC-2024-0437). What is read
//! is what `raft` writes, two levels deep, and not a byte more.
//!
//! ```text
//! change  08 transition, then for each node: 12 length single, then: 1A length context
//! single  08 kind, 10 node
//! ```
//!
//! Every number is a varint; a field that is zero or empty is left out.

use bytes::Bytes;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

use crate::limits::CHANGE_BYTES_MAX;

/// A field's number and how it lies there, as `protobuf` writes both.
const NUMBER_1: u64 = 1 << 3;
const NUMBER_2: u64 = 2 << 3;
const BYTES_2: u64 = 2 << 3 | 2;
const BYTES_3: u64 = 3 << 3 | 2;

/// Reads a change of members. None: nothing that `raft` wrote.
pub fn read(data: &[u8]) -> Option<ConfChangeV2> {
    if data.len() > CHANGE_BYTES_MAX {
        return None;
    }
    let mut change = ConfChangeV2::default();
    let mut rest = data;
    while !rest.is_empty() {
        match varint(&mut rest)? {
            NUMBER_1 => change.set_transition(transition(varint(&mut rest)?)?),
            BYTES_2 => change.mut_changes().push(single(bytes(&mut rest)?)?),
            BYTES_3 => change.context = Bytes::copy_from_slice(bytes(&mut rest)?),
            _ => return None,
        }
    }
    Some(change)
}

/// Writes a change without a context as `raft` does.
pub(crate) fn write(change: &ConfChangeV2) -> Bytes {
    let mut out = Vec::new();
    field(&mut out, NUMBER_1, change.get_transition() as u64);
    for single in change.get_changes() {
        let mut inner = Vec::new();
        field(&mut inner, NUMBER_1, single.get_change_type() as u64);
        field(&mut inner, NUMBER_2, single.node_id);
        push_varint(&mut out, BYTES_2);
        push_varint(&mut out, inner.len() as u64);
        out.extend_from_slice(&inner);
    }
    out.into()
}

/// A number that is not zero.
fn field(out: &mut Vec<u8>, tag: u64, number: u64) {
    if number != 0 {
        push_varint(out, tag);
        push_varint(out, number);
    }
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn single(mut rest: &[u8]) -> Option<ConfChangeSingle> {
    let mut single = ConfChangeSingle::default();
    while !rest.is_empty() {
        match varint(&mut rest)? {
            NUMBER_1 => single.set_change_type(kind(varint(&mut rest)?)?),
            NUMBER_2 => single.node_id = varint(&mut rest)?,
            _ => return None,
        }
    }
    Some(single)
}

fn transition(number: u64) -> Option<ConfChangeTransition> {
    match number {
        0 => Some(ConfChangeTransition::Auto),
        1 => Some(ConfChangeTransition::Implicit),
        2 => Some(ConfChangeTransition::Explicit),
        _ => None,
    }
}

fn kind(number: u64) -> Option<ConfChangeType> {
    match number {
        0 => Some(ConfChangeType::AddNode),
        1 => Some(ConfChangeType::RemoveNode),
        2 => Some(ConfChangeType::AddLearnerNode),
        _ => None,
    }
}

/// Seven bits a byte, the lowest first; all bytes but the last have the eighth set.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        let bits = u64::from(byte & 0x7F);
        // The tenth byte has one bit.
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use protobuf::Message as _;

    use super::*;

    fn change(transition: ConfChangeTransition, nodes: &[(ConfChangeType, u64)]) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        change.set_transition(transition);
        for (kind, node) in nodes {
            let mut single = ConfChangeSingle { node_id: *node, ..ConfChangeSingle::default() };
            single.set_change_type(*kind);
            change.mut_changes().push(single);
        }
        change
    }

    #[test]
    fn what_is_written_is_what_raft_would_write() {
        use ConfChangeTransition::{Auto, Explicit};
        use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
        let nodes = [(AddNode, 1), (RemoveNode, 127), (AddLearnerNode, 128), (AddNode, u64::MAX)];
        for change in [change(Auto, &[]), change(Explicit, &nodes), change(Explicit, &nodes[..1])] {
            assert_eq!(write(&change), change.write_to_bytes().unwrap());
        }
    }

    #[test]
    fn what_raft_writes_is_read_as_it_was() {
        use ConfChangeTransition::{Auto, Explicit, Implicit};
        use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
        let nodes = [(AddNode, 1), (RemoveNode, 127), (AddLearnerNode, 128), (AddNode, u64::MAX)];
        for transition in [Auto, Implicit, Explicit] {
            for count in 0..=nodes.len() {
                let mut written = change(transition, &nodes[..count]);
                assert_eq!(read(&written.write_to_bytes().unwrap()), Some(written.clone()));
                written.context = Bytes::from_static(b"why");
                assert_eq!(read(&written.write_to_bytes().unwrap()), Some(written));
            }
        }
    }

    #[test]
    fn groups_that_nest_are_refused_however_deep_they_are() {
        // Fields 1 and 4 as groups that begin: what `protobuf` 2 follows by recursion.
        for begin in [0x0B, 0x23] {
            for depth in [1, 100, CHANGE_BYTES_MAX, 10_000_000] {
                assert_eq!(read(&vec![begin; depth]), None, "{depth} groups");
            }
        }
        let inside = [&[0x12, 0x7F][..], &[0x0B; 0x7F]].concat();
        assert_eq!(read(&inside), None);
    }

    #[test]
    fn a_change_that_is_too_long_is_refused_and_one_at_the_bound_is_read() {
        let long = |count: usize| {
            let context = vec![b'x'; count].into();
            let change = ConfChangeV2 { context, ..ConfChangeV2::default() };
            change.write_to_bytes().unwrap()
        };
        let head = long(CHANGE_BYTES_MAX).len() - CHANGE_BYTES_MAX;
        assert!(read(&long(CHANGE_BYTES_MAX - head)).is_some());
        assert_eq!(read(&long(CHANGE_BYTES_MAX - head + 1)), None);
    }

    #[test]
    fn what_is_cut_or_unknown_is_refused() {
        let whole = change(ConfChangeTransition::Explicit, &[(ConfChangeType::RemoveNode, 300)]);
        let whole = whole.write_to_bytes().unwrap();
        // Behind the transition, two bytes, it is a whole change as well.
        for cut in (1..whole.len()).filter(|cut| *cut != 2) {
            assert_eq!(read(&whole[..cut]), None, "cut at {cut}");
        }
        let wrong: [&[u8]; 6] = [
            &[0x08, 3],
            &[0x12, 2, 0x08, 3],
            &[0x20, 1],
            &[0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1],
            &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2],
            &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0],
        ];
        for bytes in wrong {
            assert_eq!(read(bytes), None, "{bytes:02x?}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_what_it_reads_protobuf_reads_alike() {
        let mut state = 1_u64;
        for _ in 0..200_000 {
            let mut bytes = Vec::new();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for place in 0..state >> 60 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let likely = [0x08, 0x10, 0x12, 0x1A, 0, 1, 2, 4];
                let byte = (state >> 56) as u8;
                bytes.push(if place % 3 == 0 { byte } else { likely[usize::from(byte) % 8] });
            }
            if let Some(change) = read(&bytes) {
                let mut theirs = ConfChangeV2::default();
                theirs.merge_from_bytes(&bytes).unwrap();
                assert_eq!(change, theirs, "{bytes:02x?}");
            }
        }
    }
}
