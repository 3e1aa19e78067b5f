//! Frames byte by byte, as the specification has them: the one place where the layout is spelt out by hand.

use amqp::{
    Decoder, Encoder, FieldTable, FieldValue, Frame, Method, PROTOCOL_HEADER, Properties, TableRef,
    basic, channel, connection, encode_deliver, exchange, queue,
};
use bytes::BytesMut;

/// The bytes of a method frame must be these, and be read as this method.
#[track_caller]
fn is_written_as(channel: u16, method: Method<'_>, bytes: &[u8]) {
    let mut out = BytesMut::new();
    Encoder::new(&mut out, 0).method(channel, &method);
    assert_eq!(&out[..], bytes);
    let Ok(Some((Frame::Method { payload, .. }, _))) = Decoder::new(0).decode(bytes) else {
        panic!("a method frame is read as one");
    };
    assert_eq!(Method::decode(payload), Ok(method));
}

#[test]
fn the_protocol_header_is_amqp_0_9_1() {
    assert_eq!(PROTOCOL_HEADER, [b'A', b'M', b'Q', b'P', 0, 0, 9, 1]);
}

#[test]
fn tune_ok() {
    let tune = connection::TuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 60 };
    is_written_as(
        0,
        Method::ConnectionTuneOk(tune),
        b"\x01\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x1f\x07\xff\x00\x02\x00\x00\x00\x3c\xce",
    );
}

#[test]
fn an_open_carries_two_empty_reserved_fields() {
    is_written_as(
        0,
        Method::ConnectionOpen(connection::Open { virtual_host: "/" }),
        b"\x01\x00\x00\x00\x00\x00\x08\x00\x0a\x00\x28\x01/\x00\x00\xce",
    );
    is_written_as(
        1,
        Method::ChannelOpenOk(channel::OpenOk),
        b"\x01\x00\x01\x00\x00\x00\x08\x00\x14\x00\x0b\x00\x00\x00\x00\xce",
    );
}

#[test]
fn a_publish() {
    let publish =
        basic::Publish { exchange: "", routing_key: "orders", mandatory: true, immediate: false };
    is_written_as(
        1,
        Method::BasicPublish(publish),
        b"\x01\x00\x01\x00\x00\x00\x0f\x00\x3c\x00\x28\x00\x00\x00\x06orders\x01\xce",
    );
}

#[test]
fn an_ack_of_many() {
    is_written_as(
        0x0102,
        Method::BasicAck(basic::Ack { delivery_tag: 0x0102_0304_0506_0708, multiple: true }),
        b"\x01\x01\x02\x00\x00\x00\x0d\x00\x3c\x00\x50\x01\x02\x03\x04\x05\x06\x07\x08\x01\xce",
    );
}

#[test]
fn the_bits_of_a_declare_share_an_octet_the_first_in_the_lowest() {
    let mut arguments = FieldTable::new();
    arguments.insert("x-max-length", 10);
    let raw = arguments.to_bytes();
    let declare = queue::Declare {
        queue: "q",
        durable: true,
        auto_delete: true,
        arguments: TableRef::validate(&raw).expect("our own table"),
        ..queue::Declare::default()
    };
    is_written_as(
        1,
        Method::QueueDeclare(declare),
        b"\x01\x00\x01\x00\x00\x00\x1f\x00\x32\x00\x0a\x00\x00\x01q\x0a\
          \x00\x00\x00\x12\x0cx-max-lengthI\x00\x00\x00\x0a\xce",
    );
}

#[test]
fn prefetch_size_and_count_are_both_read() {
    let qos = basic::Qos { prefetch_size: 0x0102_0304, prefetch_count: 0xffff, global: true };
    is_written_as(
        1,
        Method::BasicQos(qos),
        b"\x01\x00\x01\x00\x00\x00\x0b\x00\x3c\x00\x0a\x01\x02\x03\x04\xff\xff\x01\xce",
    );
}

#[test]
fn unbinding_an_exchange_is_answered_with_number_51() {
    is_written_as(
        1,
        Method::ExchangeUnbindOk(exchange::UnbindOk),
        b"\x01\x00\x01\x00\x00\x00\x04\x00\x28\x00\x33\xce",
    );
}

#[test]
fn a_heartbeat() {
    let mut out = BytesMut::new();
    Encoder::new(&mut out, 0).heartbeat();
    assert_eq!(&out[..], b"\x08\x00\x00\x00\x00\x00\x00\xce");
    let read = Decoder::new(0).decode(&out);
    assert_eq!(read, Ok(Some((Frame::Heartbeat { channel: 0 }, 8))));
}

#[test]
fn a_delivery_is_three_frames() {
    let properties =
        Properties { delivery_mode: Some(2), expiration: Some("60"), ..Properties::default() };
    let mut raw = BytesMut::new();
    properties.encode(&mut raw);
    assert_eq!(&raw[..], b"\x11\x00\x02\x0260");

    let mut out = BytesMut::new();
    encode_deliver(&mut out, 4096, 3, b"\x02ct", 5, true, b"\x02ex\x03key", &raw, b"hello");
    let method = b"\x01\x00\x03\x00\x00\x00\x17\x00\x3c\x00\x3c\x02ct\
                   \x00\x00\x00\x00\x00\x00\x00\x05\x01\x02ex\x03key\xce";
    let header = b"\x02\x00\x03\x00\x00\x00\x12\x00\x3c\x00\x00\
                   \x00\x00\x00\x00\x00\x00\x00\x05\x11\x00\x02\x0260\xce";
    let body = b"\x03\x00\x03\x00\x00\x00\x05hello\xce";
    assert_eq!(out, [&method[..], header, body].concat());
}

#[test]
fn a_message_without_a_body_has_no_body_frame() {
    let mut out = BytesMut::new();
    encode_deliver(&mut out, 4096, 1, b"\x01t", 1, false, b"\x00\x01q", b"\x00\x00", b"");
    let decoder = Decoder::new(4096);
    let (_, method) = decoder.decode(&out).expect("valid").expect("whole");
    let (header, taken) = decoder.decode(&out[method..]).expect("valid").expect("whole");
    assert!(matches!(header, Frame::Header { body_bytes: 0, .. }));
    assert_eq!(method + taken, out.len());
}

#[test]
fn every_type_of_field_has_its_letter() {
    let mut inner = FieldTable::new();
    inner.insert("k", FieldValue::Void);
    let mut table = FieldTable::new();
    table
        .insert("t", true)
        .insert("b", FieldValue::I8(-2))
        .insert("B", FieldValue::U8(254))
        .insert("s", FieldValue::I16(-2))
        .insert("u", FieldValue::U16(65534))
        .insert("I", -2)
        .insert("i", 0xffff_fffe_u32)
        .insert("l", -2_i64)
        .insert("f", FieldValue::F32(1.5))
        .insert("d", 1.5_f64)
        .insert("D", FieldValue::Decimal { scale: 2, value: 314 })
        .insert("S", "text")
        .insert("x", FieldValue::Bytes(vec![0]))
        .insert("A", vec![FieldValue::Bool(false), FieldValue::Void])
        .insert("T", FieldValue::Timestamp(1))
        .insert("F", inner)
        .insert("V", FieldValue::Void);
    let wire = b"\x01tt\x01\x01bb\xfe\x01BB\xfe\x01ss\xff\xfe\x01uu\xff\xfe\
        \x01II\xff\xff\xff\xfe\x01ii\xff\xff\xff\xfe\x01ll\xff\xff\xff\xff\xff\xff\xff\xfe\
        \x01ff\x3f\xc0\x00\x00\x01dd\x3f\xf8\x00\x00\x00\x00\x00\x00\x01DD\x02\x00\x00\x01\x3a\
        \x01SS\x00\x00\x00\x04text\x01xx\x00\x00\x00\x01\x00\x01AA\x00\x00\x00\x03t\x00V\
        \x01TT\x00\x00\x00\x00\x00\x00\x00\x01\x01FF\x00\x00\x00\x03\x01kV\x01VV";
    assert_eq!(&table.to_bytes()[..], &wire[..]);
    assert_eq!(TableRef::validate(wire).expect("valid").to_table(), table);
}
