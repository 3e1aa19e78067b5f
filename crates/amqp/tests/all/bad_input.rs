//! Input that means harm, row by row of what a listener must withstand: lengths that lie, nesting without end,
//! counts without bytes, text that is none. Each is refused with the right code, before memory is asked for.

use amqp::{
    BodyCount, Decoder, Encoder, FieldTable, FieldValue, Frame, Method, Properties, ReplyCode,
    TableRef, ValueRef, limits,
};
use bytes::{BufMut, BytesMut};

fn refusal(decoder: &Decoder, input: &[u8]) -> ReplyCode {
    decoder.decode(input).expect_err("is refused").code
}

fn head(kind: u8, payload_bytes: u32) -> Vec<u8> {
    let mut head = vec![kind, 0, 1];
    head.put_u32(payload_bytes);
    head
}

fn table_refusal(raw: &[u8]) -> ReplyCode {
    TableRef::validate(raw).expect_err("is refused").code
}

/// A field that holds a value of `tag` with a length before it.
fn container(tag: u8, inner: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.put_u32(u32::try_from(inner.len()).expect("small"));
    out.extend_from_slice(inner);
    out
}

fn keyed(value: &[u8]) -> Vec<u8> {
    [b"\x01k", value].concat()
}

// ---- Frames: judged by their first seven bytes ----

#[test]
fn a_frame_of_four_gigabytes_is_refused_at_its_header() {
    let decoder = Decoder::new(limits::FRAME_BYTES_DEFAULT);
    for kind in [1, 2, 3, 8] {
        assert_eq!(refusal(&decoder, &head(kind, u32::MAX)), ReplyCode::FrameError);
    }
}

#[test]
fn a_payload_one_byte_over_the_negotiated_frame_size_is_refused_at_its_header() {
    for frame_max in [limits::FRAME_BYTES_BEFORE_TUNE, limits::FRAME_BYTES_DEFAULT] {
        let decoder = Decoder::new(frame_max);
        // Not less the overhead: RabbitMQ accepts that much, and rabbitpy sends it.
        let most = frame_max;
        assert_eq!(decoder.decode(&head(3, most)), Ok(None));
        assert_eq!(refusal(&decoder, &head(3, most + 1)), ReplyCode::FrameError);
    }
}

#[test]
fn the_limit_moves_with_what_is_negotiated() {
    let mut decoder = Decoder::new(limits::FRAME_BYTES_BEFORE_TUNE);
    assert_eq!(refusal(&decoder, &head(3, 100_000)), ReplyCode::FrameError);
    decoder.set_frame_max(limits::FRAME_BYTES_DEFAULT);
    assert_eq!(decoder.decode(&head(3, 100_000)), Ok(None));
}

#[test]
fn frame_max_of_zero_means_our_limit_and_tiny_ones_the_least_of_amqp() {
    let ours = Decoder::new(0);
    let most = limits::FRAME_BYTES_MAX;
    assert_eq!(ours.decode(&head(3, most)), Ok(None));
    assert_eq!(refusal(&ours, &head(3, most + 1)), ReplyCode::FrameError);

    for frame_max in [1, 7, 8, 9, 4095] {
        let least = limits::FRAME_BYTES_MIN - limits::FRAME_OVERHEAD_BYTES;
        assert_eq!(Decoder::new(frame_max).decode(&head(3, least)), Ok(None));
        let mut out = BytesMut::new();
        Encoder::new(&mut out, frame_max).body(1, &[0; 10_000]);
        assert_eq!(out.len(), 10_000 + 3 * 8, "nobody divides by zero");
    }
}

#[test]
fn a_wrong_end_octet_is_refused() {
    let frame = [&head(3, 2)[..], b"ab", b"\xcd"].concat();
    assert_eq!(refusal(&Decoder::new(0), &frame), ReplyCode::FrameError);
}

#[test]
fn an_unknown_type_is_refused_at_its_first_byte() {
    for kind in (0..=u8::MAX).filter(|kind| ![1, 2, 3, 8].contains(kind)) {
        assert_eq!(refusal(&Decoder::new(0), &[kind]), ReplyCode::FrameError);
        assert_eq!(refusal(&Decoder::new(0), &head(kind, 0)), ReplyCode::FrameError);
    }
}

#[test]
fn a_frame_too_small_for_its_type_is_refused_at_its_header() {
    assert_eq!(refusal(&Decoder::new(0), &head(1, 3)), ReplyCode::FrameError);
    assert_eq!(refusal(&Decoder::new(0), &head(2, 13)), ReplyCode::FrameError);
    assert_eq!(refusal(&Decoder::new(0), &head(8, 1)), ReplyCode::FrameError);
}

#[test]
fn a_frame_in_pieces_is_waited_for_byte_by_byte() {
    let mut whole = BytesMut::new();
    Encoder::new(&mut whole, 0).body(1, b"hello");
    for length in 0..whole.len() {
        assert_eq!(Decoder::new(0).decode(&whole[..length]), Ok(None));
    }
    let read = Decoder::new(0).decode(&whole);
    assert_eq!(read, Ok(Some((Frame::Body { channel: 1, payload: b"hello" }, whole.len()))));
}

#[test]
fn a_content_header_with_a_weight_is_refused() {
    let frame = [&head(2, 14)[..], b"\0\x3c\0\x01\0\0\0\0\0\0\0\0\0\0\xce"].concat();
    assert_eq!(refusal(&Decoder::new(0), &frame), ReplyCode::UnexpectedFrame);
}

// ---- Bodies ----

#[test]
fn an_announced_body_of_2_to_the_63_asks_for_no_memory() {
    let mut frame = BytesMut::new();
    Encoder::new(&mut frame, 0).header(1, 1 << 63, b"\0\0");
    let Ok(Some((Frame::Header { body_bytes, .. }, _))) = Decoder::new(0).decode(&frame) else {
        panic!("how large a body may be is the session's to say");
    };
    assert_eq!(BodyCount::new(body_bytes).missing(), 1 << 63);
}

#[test]
fn body_frames_beyond_the_announced_size_are_refused() {
    let mut count = BodyCount::new(10);
    assert_eq!(count.accept(9), Ok(false));
    assert_eq!(count.accept(2).expect_err("is refused").code, ReplyCode::FrameError);
}

// ---- Methods ----

#[test]
fn an_unknown_class_and_an_unknown_method_have_their_codes() {
    let code = |payload: &[u8]| Method::decode(payload).expect_err("is refused").code;
    assert_eq!(code(&[0, 61, 0, 10]), ReplyCode::CommandInvalid);
    assert_eq!(code(&[0xff, 0xff, 0xff, 0xff]), ReplyCode::CommandInvalid);
    assert_eq!(code(&[0, 60, 0, 41]), ReplyCode::NotImplemented);
    assert_eq!(code(&[0, 60, 0]), ReplyCode::SyntaxError);
}

#[test]
fn a_method_cut_short_or_with_bytes_left_over_is_refused() {
    let ack = [0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert!(Method::decode(&ack).is_ok());
    for length in 4..ack.len() {
        let error = Method::decode(&ack[..length]).expect_err("is refused");
        assert_eq!(error.code, ReplyCode::SyntaxError);
        assert!(error.text.starts_with("basic.ack: "), "{}", error.text);
    }
    let long = [&ack[..], &[0]].concat();
    assert_eq!(Method::decode(&long).expect_err("is refused").code, ReplyCode::SyntaxError);
}

#[test]
fn a_short_string_longer_than_its_frame_is_refused() {
    // basic.publish whose exchange claims 255 bytes, and has 3.
    let payload = b"\0\x3c\0\x28\0\0\xffabc";
    assert_eq!(Method::decode(payload).expect_err("is refused").code, ReplyCode::SyntaxError);
}

#[test]
fn a_long_string_of_four_gigabytes_is_refused() {
    let payload = b"\0\x0a\0\x15\xff\xff\xff\xffabc"; // connection.secure-ok
    assert_eq!(Method::decode(payload).expect_err("is refused").code, ReplyCode::SyntaxError);
}

#[test]
fn names_are_utf_8_without_nul_and_up_to_255_bytes() {
    let publish = |key: &[u8]| {
        let mut payload = b"\0\x3c\0\x28\0\0\0".to_vec();
        payload.push(u8::try_from(key.len()).expect("fits"));
        payload.extend_from_slice(key);
        payload.push(0);
        Method::decode(&payload).map(|_| ()).map_err(|error| error.code)
    };
    assert_eq!(publish("ключ".as_bytes()), Ok(()));
    assert_eq!(publish(&[b'k'; 255]), Ok(()));
    assert_eq!(publish(b"a\0b"), Err(ReplyCode::SyntaxError));
    assert_eq!(publish(b"\xff\xfe"), Err(ReplyCode::SyntaxError));
    assert_eq!(publish(b"\xed\xa0\x80"), Err(ReplyCode::SyntaxError), "a lone surrogate");
}

#[test]
fn a_secret_is_not_shown_by_debug() {
    let mut payload = BytesMut::new();
    let secret = amqp::connection::StartOk {
        mechanism: "PLAIN",
        response: b"\0ann\0canary",
        ..amqp::connection::StartOk::default()
    };
    Method::ConnectionStartOk(secret).encode(&mut payload);
    let shown = format!("{:?}", Method::decode(&payload));
    assert!(shown.contains("PLAIN") && !shown.contains("99, 97, 110"), "{shown}");
}

// ---- Properties ----

#[test]
fn unknown_property_flags_are_refused() {
    for flags in [1u16, 2, 3, 0x1001] {
        let error = Properties::decode(&flags.to_be_bytes()).expect_err("is refused");
        assert_eq!(error.code, ReplyCode::SyntaxError);
    }
}

#[test]
fn properties_that_are_short_or_long_are_refused() {
    for raw in [&b""[..], b"\x10", b"\x10\x00", b"\x00\x00\x00", b"\x80\x00\x05ab"] {
        let error = Properties::decode(raw).expect_err("is refused");
        assert_eq!(error.code, ReplyCode::SyntaxError, "{raw:?}");
    }
}

#[test]
fn as_many_headers_as_a_frame_holds_are_read() {
    let table: FieldTable = (0..20_000).map(|n| (n.to_string(), FieldValue::Void)).collect();
    let mut raw = BytesMut::from(&b"\x20\x00"[..]);
    table.encode(&mut raw);
    let properties = Properties::decode(&raw).expect("they are well formed");
    assert_eq!(properties.headers.map(|headers| headers.iter().count()), Some(20_000));
}

// ---- Tables ----

#[test]
fn a_table_of_256_levels_is_read_and_one_more_is_refused() {
    for tag in [b'F', b'A'] {
        let nested = |levels: usize| {
            let mut raw = Vec::new();
            for level in 1..levels {
                let value = container(tag, &raw);
                let in_array = tag == b'A' && level < levels - 1;
                raw = if in_array { value } else { keyed(&value) };
            }
            raw
        };
        let deepest = nested(limits::TABLE_DEPTH_MAX);
        let view = TableRef::validate(&deepest).expect("is allowed");
        assert_eq!(view.to_table().to_bytes(), deepest);
        let refused = table_refusal(&nested(limits::TABLE_DEPTH_MAX + 1));
        assert_eq!(refused, ReplyCode::PreconditionFailed);
    }
}

#[test]
fn ten_thousand_levels_do_not_overflow_the_stack() {
    // Each level claims the rest.
    let mut raw = Vec::new();
    while raw.len() + 6 <= limits::TABLE_BYTES_MAX {
        raw.extend_from_slice(b"\x00F");
        let left = u32::try_from(limits::TABLE_BYTES_MAX - raw.len() - 4).expect("small");
        raw.put_u32(left);
    }
    raw.resize(limits::TABLE_BYTES_MAX, 0);
    assert_eq!(table_refusal(&raw), ReplyCode::PreconditionFailed);
}

#[test]
fn a_table_larger_than_any_frame_is_refused() {
    let value = vec![b'a'; limits::TABLE_BYTES_MAX - 7];
    let raw = keyed(&container(b'S', &value));
    assert_eq!(raw.len(), limits::TABLE_BYTES_MAX);
    assert!(TableRef::validate(&raw).is_ok());
    let raw = keyed(&container(b'S', &[&value[..], b"a"].concat()));
    assert_eq!(table_refusal(&raw), ReplyCode::PreconditionFailed);
}

#[test]
fn more_than_65536_entries_are_refused_however_they_are_nested() {
    let keys = |count: usize| b"\0V".repeat(count);
    assert!(TableRef::validate(&keys(limits::TABLE_ENTRIES_MAX)).is_ok());
    assert_eq!(table_refusal(&keys(limits::TABLE_ENTRIES_MAX + 1)), ReplyCode::PreconditionFailed);

    // One entry is the array itself.
    let voids = |count: usize| keyed(&container(b'A', &vec![b'V'; count]));
    assert!(TableRef::validate(&voids(limits::TABLE_ENTRIES_MAX - 1)).is_ok());
    assert_eq!(table_refusal(&voids(limits::TABLE_ENTRIES_MAX)), ReplyCode::PreconditionFailed);

    let empties = |count: usize| keyed(&container(b'A', &b"A\0\0\0\0".repeat(count)));
    assert!(TableRef::validate(&empties(limits::TABLE_ENTRIES_MAX - 1)).is_ok());
    assert_eq!(table_refusal(&empties(limits::TABLE_ENTRIES_MAX)), ReplyCode::PreconditionFailed);
}

#[test]
fn a_length_that_crosses_its_parents_end_is_refused() {
    // The string in the array claims three bytes; the array has two left, the table more.
    let raw = [&keyed(b"A\0\0\0\x07S\0\0\0\x03ab")[..], b"\x01zV"].concat();
    assert_eq!(table_refusal(&raw), ReplyCode::SyntaxError);
    // The inner table claims one byte more than the outer one has.
    assert_eq!(table_refusal(&keyed(b"F\0\0\0\x01")), ReplyCode::SyntaxError);
    // A plain number crosses the array's end.
    let raw = [&keyed(b"A\0\0\0\x02I\0")[..], b"\0\0\0\0\0\0"].concat();
    assert_eq!(table_refusal(&raw), ReplyCode::SyntaxError);
}

#[test]
fn a_length_of_four_gigabytes_in_a_table_is_refused() {
    for tag in [b'S', b'x', b'A', b'F'] {
        assert_eq!(table_refusal(&keyed(&[tag, 0xff, 0xff, 0xff, 0xff])), ReplyCode::SyntaxError);
    }
    assert!(TableRef::decode(&[0xff, 0xff, 0xff, 0xff, 0]).is_err());
}

#[test]
fn an_unknown_type_of_field_is_refused() {
    let known = b"tbBsuIilLfdDSATFVx";
    for tag in (0..=u8::MAX).filter(|tag| !known.contains(tag)) {
        let raw = keyed(&[&[tag][..], &[0; 16]].concat());
        assert_eq!(table_refusal(&raw), ReplyCode::SyntaxError, "{tag}");
    }
}

#[test]
fn a_key_that_is_not_utf_8_is_refused() {
    assert_eq!(table_refusal(b"\x01\xffV"), ReplyCode::SyntaxError);
}

#[test]
fn odd_but_lawful_values_pass_to_the_bit() {
    let raw = [
        &keyed(b"d\x7f\xf8\xde\xad\xbe\xef\0\x01")[..], // A NaN with a payload.
        &keyed(b"D\xff\xff\xff\xff\xff"),               // A decimal of scale 255.
        &keyed(b"T\xff\xff\xff\xff\xff\xff\xff\xff"),   // The year 584 billion.
        &keyed(b"f\xff\x80\0\0"),                       // Minus infinity.
        &keyed(b"x\0\0\0\0"),
        b"\0V", // An empty key.
    ]
    .concat();
    let view = TableRef::validate(&raw).expect("is allowed");
    assert_eq!(view.to_table().to_bytes(), raw);
    assert_eq!(view.iter().filter(|(key, _)| *key == "k").count(), 5, "duplicates are kept");
    let last = view.iter().last();
    assert_eq!(last, Some(("", ValueRef::Void)));
}
