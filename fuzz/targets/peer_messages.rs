//! What another node says: frames, the handshake, messages, chunks of snapshots, changes of members.
#![no_main]

use bytes::BytesMut;
use cluster::peer::admission::{Admitted, decode_enter};
use cluster::peer::codec;
use cluster::peer::frame::take;
use cluster::peer::handshake::Greeting;
use cluster::peer::limits::FRAME_BYTES_MAX;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = BytesMut::from(data);
    while let Ok(Some(frame)) = take(&mut input, FRAME_BYTES_MAX) {
        let _ = Greeting::decode(frame.clone());
        let _ = Admitted::decode(frame.clone());
        let _ = decode_enter(frame.clone());
        if let Ok(Some(message)) = codec::decode(frame) {
            assert!(message.weight() > 0, "everything weighs something");
        }
    }
    let _ = cluster::change::read(data);
});
