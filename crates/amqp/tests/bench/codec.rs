//! Nanoseconds per message on the hot paths: `cargo bench -p amqp`. No gate; the numbers go into the commit that
//! changes them.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement reads the clock and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use amqp::{
    Decoder, Encoder, FieldTable, Frame, Method, Properties, TableRef, basic, encode_deliver,
    encode_publish, limits,
};
use bytes::BytesMut;

const FRAME_MAX: u32 = limits::FRAME_BYTES_DEFAULT;
/// Messages in the buffer: 500 of 128 bytes are what one socket read brings.
const BATCH: u32 = 500;
const RUNS: u32 = 10;
const ROUNDS: u32 = 400;

/// Prints nanoseconds per item of `run`, which does `items` of them: the best of ten runs.
pub(crate) fn measure(items: u32, name: &str, mut run: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            run();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(items * ROUNDS));
    }
    println!("{name:52} {best:7.1} ns");
}

/// Decodes all frames, methods and properties; the sum keeps the work from being optimised away.
fn read_all(decoder: &Decoder, mut rest: &[u8]) -> usize {
    let mut sum = 0;
    while let Some((frame, taken)) = decoder.decode(rest).expect("valid") {
        sum += match frame {
            Frame::Method { payload, .. } => match Method::decode(payload).expect("valid") {
                Method::BasicPublish(publish) => publish.exchange.len() + publish.routing_key.len(),
                Method::BasicDeliver(deliver) => deliver.routing_key.len(),
                Method::BasicAck(ack) => usize::from(ack.multiple) + ack.delivery_tag as usize,
                _ => 0,
            },
            Frame::Header { properties, .. } => {
                let properties = Properties::decode(properties).expect("valid");
                usize::from(properties.delivery_mode.unwrap_or(0))
            }
            Frame::Body { payload, .. } => payload.len(),
            Frame::Heartbeat { .. } => 0,
        };
        rest = &rest[taken..];
    }
    sum
}

fn main() {
    let mut persistent = BytesMut::new();
    Properties { delivery_mode: Some(2), ..Properties::default() }.encode(&mut persistent);
    let mut table = FieldTable::new();
    table.insert("trace-id", "0af7651916cd43dd8448eb211c80319c").insert("tries", 3);
    let raw_table = table.to_bytes();
    let mut rich = BytesMut::new();
    Properties {
        content_type: Some("application/json"),
        headers: TableRef::validate(&raw_table).ok(),
        delivery_mode: Some(2),
        message_id: Some("7d44402d-5bc1-4a4b-9c1f-0d3ce1a5a6c2"),
        timestamp: Some(1_700_000_000),
        ..Properties::default()
    }
    .encode(&mut rich);

    let decoder = Decoder::new(FRAME_MAX);
    let address = b"\x00\x06orders";
    let mut out = BytesMut::new();
    for (label, raw, bytes) in [
        ("128 B", &persistent, 128),
        ("1 KiB", &persistent, 1024),
        ("128 B, 5 properties", &rich, 128),
    ] {
        let body = vec![7; bytes];
        let mut wire = BytesMut::new();
        for _ in 0..BATCH {
            encode_publish(&mut wire, FRAME_MAX, 1, address, false, raw, &body);
        }
        measure(BATCH, &format!("decode publish + header + body, {label}"), || {
            black_box(read_all(&decoder, black_box(&wire)));
        });
        measure(BATCH, &format!("encode_publish, {label}"), || {
            out.clear();
            for _ in 0..BATCH {
                encode_publish(&mut out, FRAME_MAX, 1, address, false, black_box(raw), &body);
            }
            black_box(&out);
        });
        measure(BATCH, &format!("encode_deliver, {label}"), || {
            out.clear();
            for tag in 0..BATCH {
                let tag = u64::from(tag);
                let raw = black_box(raw);
                encode_deliver(
                    &mut out,
                    FRAME_MAX,
                    1,
                    b"\x04ctag",
                    tag,
                    false,
                    address,
                    raw,
                    &body,
                );
            }
            black_box(&out);
        });
    }

    let mut acks = BytesMut::new();
    let write_acks = |out: &mut BytesMut| {
        let mut encoder = Encoder::new(out, FRAME_MAX);
        for tag in 0..BATCH {
            let ack = basic::Ack { delivery_tag: u64::from(tag), multiple: false };
            encoder.method(1, &Method::BasicAck(black_box(ack)));
        }
    };
    write_acks(&mut acks);
    measure(BATCH, "decode ack", || {
        black_box(read_all(&decoder, black_box(&acks)));
    });
    measure(BATCH, "encode ack", || {
        out.clear();
        write_acks(&mut out);
        black_box(&out);
    });
}
