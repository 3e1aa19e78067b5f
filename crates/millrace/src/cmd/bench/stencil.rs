//! Publishes that are encoded once and sent over and over: only the time in each body is written anew.
//!
//! A stencil is a ring of whole messages, one behind the other, as they go to the socket. If the
//! publisher has several targets they alternate message by message.

use amqp::encode_publish;
use bytes::{BufMut, BytesMut};

/// Bytes of messages in a ring: enough that a write is large, little enough to stay in the cache.
const RING_BYTES: usize = 128 * 1024;
/// Messages in a ring, at most: small messages are not written more than this at once.
const RING_MESSAGES_MAX: usize = 512;
/// Bytes of the time at the start of a body.
pub(super) const STAMP_BYTES: usize = 8;

/// What every message of a run has in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) channel: u16,
    /// Negotiated, in bytes.
    pub(super) frame_max: u32,
    pub(super) body_bytes: usize,
    pub(super) persistent: bool,
    pub(super) exchange: &'a str,
}

/// A ring of encoded messages.
pub(super) struct Stencil {
    bytes: Vec<u8>,
    /// Where each message begins; one more for the end of the last.
    starts: Vec<usize>,
    /// From the begin of a message to its body. None: the body is too short for a time.
    stamps: Option<Vec<usize>>,
    /// The message that goes next.
    at: usize,
}

impl Stencil {
    /// Messages that go to each of `routing_keys` in turn.
    pub(super) fn new(shape: Shape<'_>, routing_keys: &[String]) -> Self {
        let body: Vec<u8> = (0..shape.body_bytes).map(|index| b'a' + (index % 26) as u8).collect();
        let messages: Vec<BytesMut> =
            routing_keys.iter().map(|key| message(shape, key, &body)).collect();
        let round_bytes: usize = messages.iter().map(BytesMut::len).sum();
        let rounds =
            (RING_BYTES / round_bytes).clamp(1, RING_MESSAGES_MAX.div_ceil(messages.len()));
        let mut ring = Self { bytes: Vec::new(), starts: vec![0], stamps: None, at: 0 };
        let mut stamps = Vec::new();
        for message in (0..rounds).flat_map(|_| &messages) {
            stamps.push(ring.bytes.len() + body_start(message));
            ring.bytes.extend_from_slice(message);
            ring.starts.push(ring.bytes.len());
        }
        ring.stamps = (shape.body_bytes >= STAMP_BYTES).then_some(stamps);
        ring
    }

    /// At most this many messages come out of one [`Stencil::next`].
    pub(super) fn left_in_ring(&self) -> usize {
        self.starts.len() - 1 - self.at
    }

    /// Whether bodies are long enough for a time.
    pub(super) fn has_stamps(&self) -> bool {
        self.stamps.is_some()
    }

    /// The next `count` messages as bytes, each stamped with what `sent_ns` says of it (by its number
    /// within this batch).
    pub(super) fn next(&mut self, count: usize, mut sent_ns: impl FnMut(usize) -> u64) -> &[u8] {
        let (first, last) = (self.at, self.at + count);
        if let Some(stamps) = &self.stamps {
            for (index, at) in stamps[first..last].iter().enumerate() {
                let stamp = sent_ns(index).to_be_bytes();
                self.bytes[*at..*at + STAMP_BYTES].copy_from_slice(&stamp);
            }
        }
        self.at = if last == self.starts.len() - 1 { 0 } else { last };
        &self.bytes[self.starts[first]..self.starts[last]]
    }
}

fn message(shape: Shape<'_>, routing_key: &str, body: &[u8]) -> BytesMut {
    let mut address = BytesMut::new();
    for name in [shape.exchange, routing_key] {
        address.put_u8(u8::try_from(name.len()).expect("names are checked with the options"));
        address.put_slice(name.as_bytes());
    }
    let mut properties = BytesMut::new();
    let delivery_mode = Some(if shape.persistent { 2 } else { 1 });
    amqp::Properties { delivery_mode, ..amqp::Properties::default() }.encode(&mut properties);
    let mut out = BytesMut::new();
    encode_publish(&mut out, shape.frame_max, shape.channel, &address, false, &properties, body);
    out
}

/// Where the body of an encoded message begins: behind method, header and the body frame's own head.
fn body_start(message: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..2 {
        let size = [message[at + 3], message[at + 4], message[at + 5], message[at + 6]];
        at += 7 + u32::from_be_bytes(size) as usize + 1;
    }
    at + 7
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp::{Decoder, Frame, Method};

    fn shape(body_bytes: usize) -> Shape<'static> {
        Shape { channel: 1, frame_max: 4096, body_bytes, persistent: true, exchange: "" }
    }

    /// Key, persistence, first eight bytes and length of each message.
    fn read(bytes: &[u8]) -> Vec<(String, u8, u64, usize)> {
        let decoder = Decoder::new(4096);
        let (mut messages, mut rest) = (Vec::new(), bytes);
        while let Some((frame, taken)) = decoder.decode(rest).expect("it is AMQP") {
            rest = &rest[taken..];
            match frame {
                Frame::Method { payload, .. } => {
                    let Ok(Method::BasicPublish(publish)) = Method::decode(payload) else {
                        panic!("not a publish");
                    };
                    messages.push((publish.routing_key.to_owned(), 0, 0, 0));
                }
                Frame::Header { properties, .. } => {
                    let properties = amqp::Properties::decode(properties).expect("they are AMQP");
                    messages.last_mut().unwrap().1 = properties.delivery_mode.unwrap();
                }
                Frame::Body { payload, .. } => {
                    let message = messages.last_mut().unwrap();
                    if message.3 == 0 && payload.len() >= 8 {
                        message.2 = u64::from_be_bytes(payload[..8].try_into().unwrap());
                    }
                    message.3 += payload.len();
                }
                Frame::Heartbeat { .. } => panic!("no heartbeat here"),
            }
        }
        assert!(rest.is_empty());
        messages
    }

    #[test]
    fn targets_alternate_and_every_message_has_its_own_time() {
        let mut stencil = Stencil::new(shape(128), &["q1".into(), "q2".into()]);
        let messages = read(stencil.next(3, |index| 100 + index as u64));
        let expected = [("q1", 100), ("q2", 101), ("q1", 102)];
        for (message, (key, time)) in messages.iter().zip(expected) {
            assert_eq!(*message, (key.to_string(), 2, time, 128));
        }
        assert_eq!(read(stencil.next(1, |_| 7))[0], ("q2".into(), 2, 7, 128));
    }

    #[test]
    fn the_ring_begins_again_after_its_last_message() {
        let mut stencil = Stencil::new(shape(1000), &["q1".into(), "q2".into(), "q3".into()]);
        let ring = stencil.left_in_ring();
        assert_eq!(ring % 3, 0);
        assert_eq!(read(stencil.next(ring, |_| 1)).len(), ring);
        assert_eq!(stencil.left_in_ring(), ring);
        assert_eq!(read(stencil.next(1, |_| 2))[0].0, "q1");
    }

    #[test]
    fn a_body_larger_than_a_frame_is_split_and_one_too_short_for_a_time_is_left_alone() {
        let mut stencil = Stencil::new(shape(10_000), &["q".into()]);
        assert_eq!(read(stencil.next(1, |_| 9)), [("q".into(), 2, 9, 10_000)]);
        let mut stencil = Stencil::new(shape(7), &["q".into()]);
        assert_eq!(read(stencil.next(1, |_| 9)), [("q".into(), 2, 0, 7)]);
        let mut stencil = Stencil::new(shape(0), &["q".into()]);
        assert_eq!(read(stencil.next(2, |_| 9)).len(), 2);
    }
}
