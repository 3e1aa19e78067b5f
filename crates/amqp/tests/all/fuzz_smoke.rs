//! Valid bytes, spoiled at random: nothing may panic, every step must get on, and what decodes must encode to
//! the same again. `MILLRACE_FUZZ_ITERATIONS` and `MILLRACE_FUZZ_SEED` set how many and which.

use crate::methods::Filling;
use amqp::{
    Decoder, Encoder, FieldTable, FieldValue, Frame, Method, Properties, TableRef, encode_deliver,
    encode_publish,
};
use bytes::BytesMut;

const ITERATIONS: u64 = 200_000;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Marsaglia's xorshift: enough chance for this, and the same on every machine.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }
}

fn table() -> FieldTable {
    let mut inner = FieldTable::new();
    inner.insert("count", FieldValue::I64(3)).insert("reason", "rejected");
    let mut table = FieldTable::new();
    table
        .insert("flag", true)
        .insert("small", FieldValue::I8(-1))
        .insert("price", FieldValue::Decimal { scale: 2, value: 995 })
        .insert("ratio", f64::NAN)
        .insert("x-death", vec![inner.clone().into(), FieldValue::Void, 7.into()])
        .insert("inner", inner)
        .insert("when", FieldValue::Timestamp(1_700_000_000))
        .insert("raw", FieldValue::Bytes(vec![0, 255]));
    table
}

/// Streams of valid frames.
fn corpus() -> Vec<Vec<u8>> {
    let table = table();
    let raw_table = table.to_bytes().to_vec();
    let filling = Filling {
        names: ["orders", "amq.topic", "a.b.#"].map(str::to_owned),
        bytes: b"\0guest\0guest".to_vec(),
        table: raw_table.clone(),
        bits: [true, false, true, true, false],
        short: 2047,
        long: 131_072,
        tag: 17,
    };
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    for method in filling.methods() {
        let mut out = BytesMut::new();
        Encoder::new(&mut out, 4096).method(1, &method);
        Encoder::new(&mut out, 4096).heartbeat();
        corpus.push(out.to_vec());
    }
    let full = Properties {
        content_type: Some("text/plain"),
        headers: TableRef::validate(&raw_table).ok(),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: Some("42"),
        reply_to: Some("amq.rabbitmq.reply-to"),
        expiration: Some("60000"),
        timestamp: Some(1_700_000_000),
        user_id: Some("guest"),
        ..Properties::default()
    };
    for properties in [full, Properties::default()] {
        let (mut raw, mut out) = (BytesMut::new(), BytesMut::new());
        properties.encode(&mut raw);
        encode_publish(&mut out, 4096, 1, b"\x00\x06orders", true, &raw, &[7; 200]);
        encode_deliver(&mut out, 4096, 2, b"\x03tag", 9, true, b"\x01e\x01k", &raw, b"body");
        corpus.push(out.to_vec());
    }
    corpus
}

fn spoil(bytes: &mut Vec<u8>, chance: &mut Chance) {
    const LOUD: [u8; 10] = [0, 1, 0x7f, 0x80, 0xff, 0xce, b'F', b'A', b'S', b'V'];
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len());
        match chance.below(7) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.insert(at, LOUD[chance.below(LOUD.len())]),
            3 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            4 => {
                let end = (at + chance.below(24)).min(bytes.len());
                let copy = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ if at < bytes.len() => bytes[at] = LOUD[chance.below(LOUD.len())],
            _ => {}
        }
    }
}

/// Decodes whatever is there; gives how many frames and how many values were good.
fn read_all(decoder: &Decoder, input: &[u8]) -> (u64, u64) {
    let (mut frames, mut values) = (0, 0);
    let mut rest = input;
    while let Ok(Some((frame, taken))) = decoder.decode(rest) {
        assert!(taken >= 8 && taken <= rest.len(), "a frame took {taken} of {}", rest.len());
        frames += 1;
        values += u64::from(read_value(&frame, &rest[..taken]));
        rest = &rest[taken..];
    }
    (frames, values)
}

fn read_value(frame: &Frame<'_>, bytes: &[u8]) -> bool {
    let mut again = BytesMut::new();
    let mut encoder = Encoder::new(&mut again, 0);
    match *frame {
        Frame::Method { payload, .. } => {
            let Ok(method) = Method::decode(payload) else { return false };
            method.encode(&mut again);
            let second = Method::decode(&again).expect("what we encode decodes");
            assert_eq!(second, method);
            assert!(!format!("{method:?}").is_empty());
            true
        }
        Frame::Header { channel, class_id, body_bytes, properties } => {
            if class_id == amqp::CLASS_BASIC {
                encoder.header(channel, body_bytes, properties);
                assert_eq!(again, bytes);
            }
            let Ok(view) = Properties::decode(properties) else { return false };
            again.clear();
            view.encode(&mut again);
            assert_eq!(again, properties, "properties are exact to the bit");
            if let Some(headers) = view.headers {
                check_table(headers);
            }
            true
        }
        Frame::Body { channel, payload } => {
            encoder.body(channel, payload);
            assert!(payload.is_empty() || again == bytes);
            true
        }
        Frame::Heartbeat { .. } => true,
    }
}

/// A copy of a table must encode to bytes that are a fixed point: a foreign `L` or a bool of 2 becomes ours at
/// the first copy, and nothing changes at the second.
fn check_table(view: TableRef<'_>) {
    let first = view.to_table().to_bytes();
    let second = TableRef::validate(&first).expect("what we encode decodes").to_table().to_bytes();
    assert_eq!(first, second);
    assert_eq!(first.len(), view.as_bytes().len());
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn spoiled_bytes_never_break_the_decoder() {
    let mut chance = Chance(setting("MILLRACE_FUZZ_SEED", SEED).max(1));
    let corpus = corpus();
    let decoder = Decoder::new(4096);
    let (mut frames, mut values) = (0, 0);
    let mut bytes = Vec::new();
    for _ in 0..setting("MILLRACE_FUZZ_ITERATIONS", ITERATIONS) {
        bytes.clear();
        bytes.extend_from_slice(&corpus[chance.below(corpus.len())]);
        spoil(&mut bytes, &mut chance);
        let (read, good) = read_all(&decoder, &bytes);
        frames += read;
        values += good;
    }
    assert!(frames > 0 && values > 0, "the fuzzer only ever met walls");
}

#[test]
fn spoiled_payloads_never_break_what_is_inside_a_frame() {
    // Without the frame around it, so that a wrong length or end octet does not hide what is inside.
    let mut chance = Chance(setting("MILLRACE_FUZZ_SEED", SEED).max(1));
    let mut payloads: Vec<(bool, Vec<u8>)> = Vec::new();
    for stream in corpus() {
        let mut rest = &stream[..];
        while let Ok(Some((frame, taken))) = Decoder::new(4096).decode(rest) {
            match frame {
                Frame::Method { payload, .. } => payloads.push((true, payload.to_vec())),
                Frame::Header { properties, .. } => payloads.push((false, properties.to_vec())),
                Frame::Body { .. } | Frame::Heartbeat { .. } => {}
            }
            rest = &rest[taken..];
        }
    }
    let mut good = 0;
    for _ in 0..setting("MILLRACE_FUZZ_ITERATIONS", ITERATIONS) / 2 {
        let (is_method, mut bytes) = payloads[chance.below(payloads.len())].clone();
        spoil(&mut bytes, &mut chance);
        let frame = if is_method {
            Frame::Method { channel: 1, payload: &bytes }
        } else {
            Frame::Header { channel: 1, class_id: 0, body_bytes: 0, properties: &bytes }
        };
        good += u64::from(read_value(&frame, &bytes));
    }
    assert!(good > 0, "the fuzzer only ever met walls");
}
