//! Frames to bytes, at the end of a buffer that the caller owns and sends.
//!
//! `Encoder` writes any frame. `encode_publish` and `encode_deliver` write a whole message at once: they are what
//! a busy connection does all day.

use bytes::{BufMut, BytesMut};

use crate::frame::{CLASS_BASIC, FRAME_END, TYPE_BODY, TYPE_HEADER, TYPE_HEARTBEAT, TYPE_METHOD};
use crate::limits;
use crate::method::Method;
use crate::writer::{fill_length, length_u32};

const METHOD_PUBLISH: u16 = 40;
const METHOD_DELIVER: u16 = 60;
/// Class (2), weight (2), body size (8).
const HEADER_FIXED_BYTES: usize = 12;
/// Type (1), channel (2), size (4).
const FRAME_HEAD_BYTES: usize = 7;

/// Appends frames to a buffer.
#[derive(Debug)]
pub struct Encoder<'b> {
    out: &'b mut BytesMut,
    frame_max: u32,
}

impl<'b> Encoder<'b> {
    /// `frame_max` is the negotiated size of a frame in bytes, overhead included; 0 means `limits::FRAME_BYTES_MAX`.
    pub fn new(out: &'b mut BytesMut, frame_max: u32) -> Self {
        Self { out, frame_max }
    }

    /// A method frame. AMQP cannot split one: that it fits `frame_max` is the caller's to see to.
    pub fn method(&mut self, channel: u16, method: &Method<'_>) {
        self.out.put_u8(TYPE_METHOD);
        self.out.put_u16(channel);
        let at = crate::writer::put_length_later(self.out);
        method.encode(self.out);
        fill_length(self.out, at);
        self.out.put_u8(FRAME_END);
    }

    /// A content header frame of class `basic`. `raw_properties` are flags and values.
    pub fn header(&mut self, channel: u16, body_bytes: u64, raw_properties: &[u8]) {
        self.out.put_slice(&frame_head(
            TYPE_HEADER,
            channel,
            HEADER_FIXED_BYTES.saturating_add(raw_properties.len()),
        ));
        self.out.put_slice(&header_fixed(body_bytes));
        self.out.put_slice(raw_properties);
        self.out.put_u8(FRAME_END);
    }

    /// Body frames for these bytes, none of them larger than `frame_max` or empty. No bytes, no frame.
    pub fn body(&mut self, channel: u16, bytes: &[u8]) {
        put_body(self.out, self.frame_max, channel, bytes);
    }

    /// A heartbeat, on channel 0.
    pub fn heartbeat(&mut self) {
        self.out.put_slice(&frame_head(TYPE_HEARTBEAT, 0, 0));
        self.out.put_u8(FRAME_END);
    }
}

/// Writes `basic.deliver` with its header and body: one reservation, no copy in between.
///
/// `consumer_tag` is a short string and `exchange_and_key` are two, one behind the other, all as on the wire, with
/// their length octets. `raw_properties` are flags and values. `frame_max` as in `Encoder::new`.
#[expect(
    clippy::too_many_arguments,
    reason = "the fields of one method, without a struct to fill and empty"
)]
#[inline]
pub fn encode_deliver(
    out: &mut BytesMut,
    frame_max: u32,
    channel: u16,
    consumer_tag: &[u8],
    delivery_tag: u64,
    redelivered: bool,
    exchange_and_key: &[u8],
    raw_properties: &[u8],
    body: &[u8],
) {
    const FIXED_BYTES: usize = 13; // Class (2), method (2), delivery tag (8), redelivered (1).
    let method_bytes =
        FIXED_BYTES.saturating_add(consumer_tag.len()).saturating_add(exchange_and_key.len());
    reserve_content(out, frame_max, method_bytes, raw_properties, body);

    out.put_slice(&frame_head(TYPE_METHOD, channel, method_bytes));
    out.put_slice(&method_id(METHOD_DELIVER));
    out.put_slice(consumer_tag);
    let [a, b, c, d, e, f, g, h] = delivery_tag.to_be_bytes();
    out.put_slice(&[a, b, c, d, e, f, g, h, u8::from(redelivered)]);
    out.put_slice(exchange_and_key);
    put_content(out, frame_max, channel, raw_properties, body);
}

/// Writes `basic.publish` with its header and body: one reservation, no copy in between. Arguments as in
/// `encode_deliver`; `immediate` is not sent, because no server has it.
#[inline]
pub fn encode_publish(
    out: &mut BytesMut,
    frame_max: u32,
    channel: u16,
    exchange_and_key: &[u8],
    mandatory: bool,
    raw_properties: &[u8],
    body: &[u8],
) {
    const FIXED_BYTES: usize = 7; // Class (2), method (2), reserved (2), bits (1).
    let method_bytes = FIXED_BYTES.saturating_add(exchange_and_key.len());
    reserve_content(out, frame_max, method_bytes, raw_properties, body);

    out.put_slice(&frame_head(TYPE_METHOD, channel, method_bytes));
    let [a, b, c, d] = method_id(METHOD_PUBLISH);
    out.put_slice(&[a, b, c, d, 0, 0]);
    out.put_slice(exchange_and_key);
    out.put_u8(u8::from(mandatory));
    put_content(out, frame_max, channel, raw_properties, body);
}

/// Makes room for a method, its content header and its body frames.
#[inline]
fn reserve_content(
    out: &mut BytesMut,
    frame_max: u32,
    method_bytes: usize,
    raw_properties: &[u8],
    body: &[u8],
) {
    const OVERHEAD: usize = FRAME_HEAD_BYTES + 1;
    let body_overhead = if body.len() <= payload_bytes_max(frame_max) {
        OVERHEAD
    } else {
        body.len().div_ceil(payload_bytes_max(frame_max)).saturating_mul(OVERHEAD)
    };
    let bytes = method_bytes
        .saturating_add(raw_properties.len())
        .saturating_add(body.len())
        .saturating_add(body_overhead)
        .saturating_add(2 * OVERHEAD + HEADER_FIXED_BYTES);
    out.reserve(bytes);
}

/// Ends the method's frame and writes header and body.
#[inline]
fn put_content(
    out: &mut BytesMut,
    frame_max: u32,
    channel: u16,
    raw_properties: &[u8],
    body: &[u8],
) {
    out.put_u8(FRAME_END);
    let header_bytes = HEADER_FIXED_BYTES.saturating_add(raw_properties.len());
    out.put_slice(&frame_head(TYPE_HEADER, channel, header_bytes));
    out.put_slice(&header_fixed(u64::try_from(body.len()).unwrap_or(u64::MAX)));
    out.put_slice(raw_properties);
    out.put_u8(FRAME_END);
    put_body(out, frame_max, channel, body);
}

#[inline]
fn put_body(out: &mut BytesMut, frame_max: u32, channel: u16, body: &[u8]) {
    for part in body.chunks(payload_bytes_max(frame_max)) {
        out.put_slice(&frame_head(TYPE_BODY, channel, part.len()));
        out.put_slice(part);
        out.put_u8(FRAME_END);
    }
}

/// Bytes of a body that one frame holds: never zero, whatever was negotiated.
#[inline]
fn payload_bytes_max(frame_max: u32) -> usize {
    let frame_max = if frame_max == 0 { limits::FRAME_BYTES_MAX } else { frame_max };
    let frame_max = frame_max.max(limits::FRAME_BYTES_MIN);
    usize::try_from(frame_max.saturating_sub(limits::FRAME_OVERHEAD_BYTES)).unwrap_or(1)
}

#[inline]
fn frame_head(kind: u8, channel: u16, payload_bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
    let [channel_high, channel_low] = channel.to_be_bytes();
    let [a, b, c, d] = length_u32(payload_bytes).to_be_bytes();
    [kind, channel_high, channel_low, a, b, c, d]
}

#[inline]
fn method_id(method: u16) -> [u8; 4] {
    let [a, b] = CLASS_BASIC.to_be_bytes();
    let [c, d] = method.to_be_bytes();
    [a, b, c, d]
}

#[inline]
fn header_fixed(body_bytes: u64) -> [u8; HEADER_FIXED_BYTES] {
    let [class_high, class_low] = CLASS_BASIC.to_be_bytes();
    let [a, b, c, d, e, f, g, h] = body_bytes.to_be_bytes();
    [class_high, class_low, 0, 0, a, b, c, d, e, f, g, h]
}
