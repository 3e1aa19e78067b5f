//! Frames, methods and properties: whatever decodes, encodes to the same again.
#![no_main]

use amqp::{Decoder, Frame, Method, Properties};
use bytes::BytesMut;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let decoder = Decoder::new(4096);
    let mut rest = data;
    while let Ok(Some((frame, taken))) = decoder.decode(rest) {
        assert!((8..=rest.len()).contains(&taken), "a frame took {taken} of {}", rest.len());
        rest = &rest[taken..];
        let mut again = BytesMut::new();
        match frame {
            Frame::Method { payload, .. } => {
                if let Ok(method) = Method::decode(payload) {
                    method.encode(&mut again);
                    assert_eq!(
                        Method::decode(&again),
                        Ok(method),
                        "what we encode decodes to the same"
                    );
                }
            }
            Frame::Header { properties, .. } => {
                if let Ok(view) = Properties::decode(properties) {
                    view.encode(&mut again);
                    assert_eq!(again, properties, "properties are exact to the bit");
                }
            }
            Frame::Body { .. } | Frame::Heartbeat { .. } => {}
        }
    }
});
