//! Whatever the bytes, the answer is a message or an error.

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;

use super::round_trip::{read, written};
use super::samples;
use crate::peer::Error;
use crate::peer::admission::{Admitted, decode_enter};
use crate::peer::codec::encode;
use crate::peer::frame::{FRAME_HEAD_BYTES, VERSION, take};
use crate::peer::gather::Gather;
use crate::peer::handshake::Greeting;
use crate::peer::limits::FRAME_BYTES_MAX;

/// A frame of any kind and body, whose checksum is right.
fn framed(version: u8, kind: u8, body: &[u8]) -> BytesMut {
    let mut rest = vec![version, kind];
    rest.extend_from_slice(body);
    let mut bytes = BytesMut::new();
    bytes.put_u32_le((rest.len() + 4) as u32);
    bytes.put_u32_le(crc32c::crc32c(&rest));
    bytes.extend_from_slice(&rest);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&mut BytesMut::from(&bytes[..]));
    }

    #[test]
    fn any_body_with_a_right_checksum_is_read_or_refused(
        kind in 0..40u8,
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = read(&mut framed(VERSION, kind, &body));
        if let Ok(Some(frame)) = take(&mut framed(VERSION, kind, &body), FRAME_BYTES_MAX) {
            let _ = Greeting::decode(frame.clone());
            let _ = Admitted::decode(frame.clone());
            let _ = decode_enter(frame);
        }
    }

    #[test]
    fn a_message_with_changed_bytes_is_read_or_refused(
        message in samples::message(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut gather = Gather::default();
        encode(&mut gather, &message).unwrap();
        let bytes = written(&gather, usize::MAX);
        let mut body = bytes[FRAME_HEAD_BYTES..].to_vec();
        for (index, byte) in &changes {
            if !body.is_empty() {
                let index = index.index(body.len());
                body[index] = *byte;
            }
        }
        // Under a checksum that fits: it gets to the fields.
        let _ = read(&mut framed(VERSION, bytes[9], &body));
        let _ = read(&mut framed(VERSION, bytes[9], &body[..cut.index(body.len() + 1)]));
    }

    #[test]
    fn one_changed_bit_is_noticed(message in samples::message(), at in any::<prop::sample::Index>()) {
        let mut gather = Gather::default();
        encode(&mut gather, &message).unwrap();
        let mut bytes = written(&gather, usize::MAX);
        // Behind the length, which has no checksum: a wrong one makes another frame of the bytes.
        let bit = at.index((bytes.len() - 4) * 8);
        bytes[4 + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(read(&mut bytes).unwrap_err(), Error::Checksum);
    }

    #[test]
    fn a_part_of_a_frame_is_waited_for(message in samples::message(), cut in any::<prop::sample::Index>()) {
        let mut gather = Gather::default();
        encode(&mut gather, &message).unwrap();
        let bytes = written(&gather, usize::MAX);
        let mut part = BytesMut::from(&bytes[..cut.index(bytes.len())]);
        let is_waited_for = matches!(take(&mut part, FRAME_BYTES_MAX), Ok(None));
        prop_assert!(is_waited_for || matches!(take(&mut part, FRAME_BYTES_MAX), Ok(None)));
    }
}

#[test]
fn a_length_is_refused_before_anything_is_waited_for() {
    let mut bytes = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
    assert_eq!(
        take(&mut bytes, FRAME_BYTES_MAX).unwrap_err(),
        Error::TooLarge { bytes: u32::MAX as usize }
    );
    let mut bytes = BytesMut::from(&3u32.to_le_bytes()[..]);
    assert!(matches!(take(&mut bytes, FRAME_BYTES_MAX), Err(Error::Malformed(_))));
}

#[test]
fn versions_and_kinds_that_are_not_known_are_refused_by_name() {
    assert_eq!(read(&mut framed(2, 1, &[])).unwrap_err(), Error::Version(2));
    assert_eq!(read(&mut framed(VERSION, 99, &[])).unwrap_err(), Error::Kind(99));
}

#[test]
fn messages_that_raft_nodes_tell_themselves_are_not_taken_from_others() {
    for kind in [0, 1, 2, 10, 11, 12, 19] {
        // Group 1, this type, no fields, to 2, from 1.
        let refused = read(&mut framed(VERSION, 1, &[1, kind, 0, 2, 1]));
        assert!(matches!(refused, Err(Error::Malformed(_))), "type {kind}");
    }
}

#[test]
fn a_count_without_the_bytes_behind_it_is_refused() {
    // Group 1, epoch 1, 2^40 attachments.
    let body = [1, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    assert!(matches!(read(&mut framed(VERSION, 2, &body)), Err(Error::Malformed(_))));
}
