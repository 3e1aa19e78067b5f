//! Publishes that are encoded once and sent over and over: only the time in each body is written anew.
//!
//! A stencil is a ring of whole messages, one behind the other, as they go to the socket. If the
//! publisher has several targets they alternate message by message. What else differs from message to
//! message has a fixed width, and is written over a placeholder: see [`Extras`].

use amqp::{FieldTable, FieldValue, TableRef, encode_publish};
use bytes::{BufMut, BytesMut};

use super::due::{Chance, Due, How};

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

/// What messages have besides their body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    /// A random priority up to this.
    pub(super) priorities: Option<u8>,
    pub(super) expiration_ms: Option<u64>,
    pub(super) has_message_ids: bool,
    /// One of so many keys, as correlation-id.
    pub(super) keys: Option<u32>,
    /// A time at which the message is due; it takes the place of the time in the body.
    pub(super) due: Option<Due>,
}

/// Where a message-id stands until there is one.
const ID_PLACE: [u8; 16] = *b"################";
/// Where a key stands until there is one.
const KEY_PLACE: [u8; 16] = *b"$$$$$$$$$$$$$$$$";
/// Where milliseconds stand until they are known: digits, or the four bytes behind the header's name.
const DIGITS_PLACE: [u8; 8] = *b"@@@@@@@@";
const DELAY_NAME: &str = "x-delay";
const DELAY_PLACE: [u8; 8] = *b"x-delayI";

/// A ring of encoded messages.
pub(super) struct Stencil {
    bytes: Vec<u8>,
    /// Where each message begins; one more for the end of the last.
    starts: Vec<usize>,
    /// From the begin of a message to its body. None: the body is too short for a time.
    stamps: Option<Vec<usize>>,
    /// Where the message-ids are, if there are any.
    ids: Vec<usize>,
    /// Where the keys are, and how many there are.
    keys: Vec<usize>,
    key_count: u64,
    /// Where the milliseconds until a message is due are, if it has such.
    dues: Vec<usize>,
    due: Option<Due>,
    next_id: u64,
    chance: Chance,
    /// The message that goes next.
    at: usize,
}

impl Stencil {
    /// Messages that go to each of `routing_keys` in turn, from the publisher with this number.
    pub(super) fn new(
        shape: Shape<'_>,
        routing_keys: &[String],
        extras: Extras,
        publisher: u64,
    ) -> Self {
        let body: Vec<u8> = (0..shape.body_bytes).map(|index| b'a' + (index % 26) as u8).collect();
        let mut chance = Chance::new(publisher);
        let round_bytes: usize =
            routing_keys.iter().map(|key| message(shape, key, &body, &extras, 0).len()).sum();
        let rounds =
            (RING_BYTES / round_bytes).clamp(1, RING_MESSAGES_MAX.div_ceil(routing_keys.len()));
        let mut ring = Self {
            bytes: Vec::new(),
            starts: vec![0],
            stamps: None,
            ids: Vec::new(),
            keys: Vec::new(),
            key_count: extras.keys.map_or(1, u64::from),
            dues: Vec::new(),
            due: extras.due,
            // Numbers grow slower than the time: the ids of two runs differ.
            next_id: publisher << 56 | (super::tally::now_ns() & (u64::MAX >> 8)),
            chance: Chance::new(publisher + 1),
            at: 0,
        };
        let mut stamps = Vec::new();
        for key in (0..rounds).flat_map(|_| routing_keys) {
            let priority = extras.priorities.map_or(0, |highest| chance.within(highest));
            let message = message(shape, key, &body, &extras, priority);
            let (start, body_at) = (ring.bytes.len(), body_start(&message));
            let find = |place: &[u8]| {
                let found = message[..body_at].windows(place.len()).position(|part| part == place);
                start + found.expect("the message was encoded with it")
            };
            if extras.has_message_ids {
                ring.ids.push(find(&ID_PLACE));
            }
            if extras.keys.is_some() {
                ring.keys.push(find(&KEY_PLACE));
            }
            match extras.due.map(|due| due.how) {
                Some(How::Delayed) => ring.dues.push(find(&DELAY_PLACE) + DELAY_PLACE.len()),
                Some(How::Expires) => ring.dues.push(find(&DIGITS_PLACE)),
                None => {}
            }
            stamps.push(start + body_at);
            ring.bytes.extend_from_slice(&message);
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
                let mut stamp = sent_ns(index);
                if let Some(due) = &self.due {
                    let (due_ns, ms) = due.draw(stamp, &mut self.chance);
                    let at = self.dues[first + index];
                    due.write(ms, &mut self.bytes[at..]);
                    stamp = due_ns;
                }
                self.bytes[*at..*at + STAMP_BYTES].copy_from_slice(&stamp.to_be_bytes());
            }
        }
        if let Some(ids) = self.ids.get(first..last) {
            for at in ids {
                self.next_id += 1;
                write_hex(self.next_id, &mut self.bytes[*at..*at + ID_PLACE.len()]);
            }
        }
        if let Some(keys) = self.keys.get(first..last) {
            for at in keys {
                let key = self.chance.below(self.key_count);
                write_hex(key, &mut self.bytes[*at..*at + KEY_PLACE.len()]);
            }
        }
        self.at = if last == self.starts.len() - 1 { 0 } else { last };
        &self.bytes[self.starts[first]..self.starts[last]]
    }
}

fn message(
    shape: Shape<'_>,
    routing_key: &str,
    body: &[u8],
    extras: &Extras,
    priority: u8,
) -> BytesMut {
    let mut address = BytesMut::new();
    for name in [shape.exchange, routing_key] {
        address.put_u8(u8::try_from(name.len()).expect("names are checked with the options"));
        address.put_slice(name.as_bytes());
    }
    let how = extras.due.map(|due| due.how);
    let mut headers = FieldTable::new();
    if how == Some(How::Delayed) {
        headers.insert(DELAY_NAME, FieldValue::I32(0));
    }
    let headers_bytes = headers.to_bytes();
    let headers = TableRef::validate(&headers_bytes).expect("it was encoded here");
    let expiration = extras.expiration_ms.map(|ms| ms.to_string());
    let place = |place: &'static [u8]| std::str::from_utf8(place).expect("it is ASCII");
    let properties = amqp::Properties {
        delivery_mode: Some(if shape.persistent { 2 } else { 1 }),
        headers: (how == Some(How::Delayed)).then_some(headers),
        priority: extras.priorities.map(|_| priority),
        message_id: extras.has_message_ids.then_some(place(&ID_PLACE)),
        correlation_id: extras.keys.map(|_| place(&KEY_PLACE)),
        expiration: match how {
            Some(How::Expires) => Some(place(&DIGITS_PLACE)),
            Some(How::Delayed) | None => expiration.as_deref(),
        },
        ..amqp::Properties::default()
    };
    let mut encoded = BytesMut::new();
    properties.encode(&mut encoded);
    let mut out = BytesMut::new();
    encode_publish(&mut out, shape.frame_max, shape.channel, &address, false, &encoded, body);
    out
}

fn write_hex(number: u64, out: &mut [u8]) {
    for (index, digit) in out.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * index) & 15) as usize];
    }
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
        let mut stencil =
            Stencil::new(shape(128), &["q1".into(), "q2".into()], Extras::default(), 0);
        let messages = read(stencil.next(3, |index| 100 + index as u64));
        let expected = [("q1", 100), ("q2", 101), ("q1", 102)];
        for (message, (key, time)) in messages.iter().zip(expected) {
            assert_eq!(*message, (key.to_string(), 2, time, 128));
        }
        assert_eq!(read(stencil.next(1, |_| 7))[0], ("q2".into(), 2, 7, 128));
    }

    #[test]
    fn the_ring_begins_again_after_its_last_message() {
        let mut stencil = Stencil::new(
            shape(1000),
            &["q1".into(), "q2".into(), "q3".into()],
            Extras::default(),
            0,
        );
        let ring = stencil.left_in_ring();
        assert_eq!(ring % 3, 0);
        assert_eq!(read(stencil.next(ring, |_| 1)).len(), ring);
        assert_eq!(stencil.left_in_ring(), ring);
        assert_eq!(read(stencil.next(1, |_| 2))[0].0, "q1");
    }

    #[test]
    fn a_body_larger_than_a_frame_is_split_and_one_too_short_for_a_time_is_left_alone() {
        let mut stencil = Stencil::new(shape(10_000), &["q".into()], Extras::default(), 0);
        assert_eq!(read(stencil.next(1, |_| 9)), [("q".into(), 2, 9, 10_000)]);
        let mut stencil = Stencil::new(shape(7), &["q".into()], Extras::default(), 0);
        assert_eq!(read(stencil.next(1, |_| 9)), [("q".into(), 2, 0, 7)]);
        let mut stencil = Stencil::new(shape(0), &["q".into()], Extras::default(), 0);
        assert_eq!(read(stencil.next(2, |_| 9)).len(), 2);
    }

    /// Priority, message-id, expiration and x-delay.
    type Found = (Option<u8>, Option<String>, Option<String>, Option<i64>);

    fn properties(bytes: &[u8]) -> Vec<Found> {
        let decoder = Decoder::new(4096);
        let (mut found, mut rest) = (Vec::new(), bytes);
        while let Some((frame, taken)) = decoder.decode(rest).expect("it is AMQP") {
            rest = &rest[taken..];
            if let Frame::Header { properties, .. } = frame {
                let read = amqp::Properties::decode(properties).expect("they are AMQP");
                let delay = read.headers.and_then(|headers| match headers.find("x-delay") {
                    Some(amqp::ValueRef::I32(ms)) => Some(i64::from(ms)),
                    _ => None,
                });
                let text = |text: Option<&str>| text.map(str::to_owned);
                found.push((read.priority, text(read.message_id), text(read.expiration), delay));
            }
        }
        found
    }

    #[test]
    fn priorities_are_spread_and_message_ids_differ() {
        let extras = Extras { priorities: Some(10), has_message_ids: true, ..Extras::default() };
        let mut stencil = Stencil::new(shape(8), &["q".into()], extras, 3);
        let found = properties(stencil.next(400, |_| 1));
        let priorities: std::collections::BTreeSet<_> = found.iter().map(|one| one.0).collect();
        let ids: std::collections::BTreeSet<_> = found.iter().map(|one| one.1.clone()).collect();
        assert_eq!(priorities.len(), 11);
        assert_eq!(ids.len(), 400);
    }

    #[test]
    fn a_delay_and_an_expiration_say_how_long_it_is_until_the_time_in_the_body() {
        let at_ns = 5_000_000_000;
        for due in [Due::delayed(at_ns, at_ns), Due::expires(at_ns)] {
            let extras = Extras { due: Some(due), ..Extras::default() };
            let mut stencil = Stencil::new(shape(8), &["q".into()], extras, 0);
            let bytes = stencil.next(1, |_| 3_000_000_000).to_vec();
            assert_eq!(read(&bytes)[0].2, at_ns);
            let (_, _, expiration, delay) = properties(&bytes)[0].clone();
            let ms = delay.or_else(|| expiration.and_then(|digits| digits.parse().ok()));
            assert_eq!(ms, Some(2_000));
        }
    }
}
