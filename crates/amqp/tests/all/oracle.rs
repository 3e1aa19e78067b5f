//! Our codec against another one: what we write, `amq-protocol` reads, and the other way round.
//!
//! The oracle keeps tables sorted and without duplicates, so the tables here are so too; order and duplicates have
//! their own tests beside `field_table`.

use std::collections::BTreeMap;
use std::io::Cursor;

use crate::methods::Filling;
use amq_protocol::frame::{AMQPFrame, GenError, WriteContext, gen_frame, parse_frame};
use amq_protocol::protocol::basic::AMQPProperties;
use amq_protocol::types::generation::gen_field_table;
use amq_protocol::types::{self as theirs, AMQPValue, ShortString};
use amqp::{Decoder, Encoder, FieldTable, FieldValue, Frame, Method, Properties, TableRef};
use bytes::{BufMut, BytesMut};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

type Oracle<'b> = WriteContext<Cursor<&'b mut [u8]>>;

/// What the oracle's `write` puts into a buffer.
fn oracle_bytes(write: impl FnOnce(Oracle<'_>) -> Result<Oracle<'_>, GenError>) -> Vec<u8> {
    let mut buffer = vec![0; 100_000];
    let context = WriteContext::from(Cursor::new(&mut buffer[..]));
    let (_, written) = write(context).expect("the oracle writes").into_inner();
    buffer.truncate(written as usize);
    buffer
}

fn written_by_the_oracle(frame: &AMQPFrame) -> Vec<u8> {
    oracle_bytes(|context| gen_frame(frame)(context))
}

fn read_by_the_oracle(bytes: &[u8]) -> AMQPFrame {
    let (rest, frame) = parse_frame(bytes).expect("the oracle reads what we wrote");
    assert!(rest.is_empty(), "the oracle left {} bytes", rest.len());
    frame
}

fn method_frame(channel: u16, method: &Method<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    Encoder::new(&mut out, 0).method(channel, method);
    out
}

fn decoded(bytes: &[u8]) -> Frame<'_> {
    let (frame, taken) = Decoder::new(0).decode(bytes).expect("is valid").expect("is whole");
    assert_eq!(taken, bytes.len());
    frame
}

// ---- Values of all sorts ----

fn plain_value() -> impl Strategy<Value = FieldValue> {
    prop_oneof![
        any::<bool>().prop_map(FieldValue::Bool),
        any::<i8>().prop_map(FieldValue::I8),
        any::<u8>().prop_map(FieldValue::U8),
        any::<i16>().prop_map(FieldValue::I16),
        any::<u16>().prop_map(FieldValue::U16),
        any::<i32>().prop_map(FieldValue::I32),
        any::<u32>().prop_map(FieldValue::U32),
        any::<i64>().prop_map(FieldValue::I64),
        any::<f32>().prop_map(FieldValue::F32),
        any::<f64>().prop_map(FieldValue::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, value)| FieldValue::Decimal { scale, value }),
        vec(any::<u8>(), 0..40).prop_map(FieldValue::LongStr),
        vec(any::<u8>(), 0..40).prop_map(FieldValue::Bytes),
        any::<u64>().prop_map(FieldValue::Timestamp),
        Just(FieldValue::Void),
    ]
}

fn key() -> impl Strategy<Value = String> {
    "[a-zé-]{0,12}"
}

fn value() -> impl Strategy<Value = FieldValue> {
    plain_value().prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(FieldValue::Array),
            btree_map(key(), inner, 0..6)
                .prop_map(|fields| FieldValue::Table(fields.into_iter().collect())),
        ]
    })
}

fn table() -> impl Strategy<Value = FieldTable> {
    btree_map(key(), value(), 0..6).prop_map(|fields| fields.into_iter().collect())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9 .#*é€-]{0,40}", "[a-z]{255}"]
}

fn filling() -> impl Strategy<Value = Filling> {
    let numbers = (any::<u16>(), any::<u32>(), any::<u64>());
    ([text(), text(), text()], vec(any::<u8>(), 0..300), table(), any::<[bool; 5]>(), numbers)
        .prop_map(|(names, bytes, table, bits, (short, long, tag))| Filling {
            names,
            bytes,
            table: table.to_bytes().to_vec(),
            bits,
            short,
            long,
            tag,
        })
}

fn their_value(value: &FieldValue) -> AMQPValue {
    match value {
        FieldValue::Bool(is_true) => AMQPValue::Boolean(*is_true),
        FieldValue::I8(number) => AMQPValue::ShortShortInt(*number),
        FieldValue::U8(number) => AMQPValue::ShortShortUInt(*number),
        FieldValue::I16(number) => AMQPValue::ShortInt(*number),
        FieldValue::U16(number) => AMQPValue::ShortUInt(*number),
        FieldValue::I32(number) => AMQPValue::LongInt(*number),
        FieldValue::U32(number) => AMQPValue::LongUInt(*number),
        FieldValue::I64(number) => AMQPValue::LongLongInt(*number),
        FieldValue::F32(number) => AMQPValue::Float(*number),
        FieldValue::F64(number) => AMQPValue::Double(*number),
        FieldValue::Decimal { scale, value } => {
            AMQPValue::DecimalValue(theirs::DecimalValue { scale: *scale, value: *value })
        }
        FieldValue::LongStr(text) => AMQPValue::LongString(text.clone().into()),
        FieldValue::Bytes(bytes) => AMQPValue::ByteArray(bytes.clone().into()),
        FieldValue::Array(elements) => {
            let elements: Vec<AMQPValue> = elements.iter().map(their_value).collect();
            AMQPValue::FieldArray(elements.into())
        }
        FieldValue::Timestamp(seconds) => AMQPValue::Timestamp(*seconds),
        FieldValue::Table(table) => AMQPValue::FieldTable(their_table(table)),
        FieldValue::Void => AMQPValue::Void,
    }
}

fn their_table(table: &FieldTable) -> theirs::FieldTable {
    let fields = table.0.iter();
    let fields: BTreeMap<ShortString, AMQPValue> =
        fields.map(|(key, value)| (key.as_str().into(), their_value(value))).collect();
    fields.into()
}

#[derive(Debug)]
struct OwnedProperties {
    texts: [Option<String>; 10],
    headers: Option<FieldTable>,
    octets: [Option<u8>; 2],
    timestamp: Option<u64>,
}

fn properties() -> impl Strategy<Value = OwnedProperties> {
    let texts = proptest::array::uniform10(option::of(text()));
    let octets = [option::of(any::<u8>()), option::of(any::<u8>())];
    (texts, option::of(table()), octets, option::of(any::<u64>())).prop_map(
        |(texts, headers, octets, timestamp)| OwnedProperties { texts, headers, octets, timestamp },
    )
}

impl OwnedProperties {
    fn ours<'a>(&'a self, headers: Option<&'a [u8]>) -> Properties<'a> {
        let texts = self.texts.each_ref().map(Option::as_deref);
        let [content_type, content_encoding, correlation_id, reply_to, expiration, ..] = texts;
        let [.., message_id, kind, user_id, app_id, cluster_id] = texts;
        let headers = headers.map(|raw| TableRef::validate(raw).expect("our own table"));
        let [delivery_mode, priority] = self.octets;
        Properties {
            content_type,
            content_encoding,
            headers,
            delivery_mode,
            priority,
            correlation_id,
            reply_to,
            expiration,
            message_id,
            timestamp: self.timestamp,
            kind,
            user_id,
            app_id,
            cluster_id,
        }
    }

    fn theirs(&self) -> AMQPProperties {
        type With = fn(AMQPProperties, ShortString) -> AMQPProperties;
        let with: [With; 10] = [
            AMQPProperties::with_content_type,
            AMQPProperties::with_content_encoding,
            AMQPProperties::with_correlation_id,
            AMQPProperties::with_reply_to,
            AMQPProperties::with_expiration,
            AMQPProperties::with_message_id,
            AMQPProperties::with_type,
            AMQPProperties::with_user_id,
            AMQPProperties::with_app_id,
            AMQPProperties::with_cluster_id,
        ];
        let mut properties = AMQPProperties::default();
        for (text, with) in self.texts.iter().zip(with) {
            if let Some(text) = text {
                properties = with(properties, text.as_str().into());
            }
        }
        if let Some(headers) = &self.headers {
            properties = properties.with_headers(their_table(headers));
        }
        let [delivery_mode, priority] = self.octets;
        if let Some(mode) = delivery_mode {
            properties = properties.with_delivery_mode(mode);
        }
        if let Some(priority) = priority {
            properties = properties.with_priority(priority);
        }
        match self.timestamp {
            Some(seconds) => properties.with_timestamp(seconds),
            None => properties,
        }
    }
}

// ---- The comparisons ----

proptest! {
    // A failure prints the smallest input that shows it: that becomes a test, not a file of seeds.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_oracle_reads_every_method_and_writes_the_same_bytes(filling in filling()) {
        for method in filling.methods() {
            let bytes = method_frame(7, &method);
            prop_assert_eq!(&written_by_the_oracle(&read_by_the_oracle(&bytes)), &bytes);
            let Frame::Method { channel: 7, payload } = decoded(&bytes) else {
                panic!("a method frame became another");
            };
            prop_assert_eq!(Method::decode(payload), Ok(method));
            prop_assert_eq!(Method::peek_ids(payload), Some(method.ids()));
        }
    }

    #[test]
    fn tables_are_the_same_bytes_in_both_codecs(table in table()) {
        let ours = {
            let mut out = BytesMut::new();
            table.encode(&mut out);
            out
        };
        let their_table = their_table(&table);
        let theirs = oracle_bytes(|context| gen_field_table(&their_table)(context));
        prop_assert_eq!(&ours, &theirs);

        let (view, taken) = TableRef::decode(&ours).expect("our own table");
        prop_assert_eq!(taken, ours.len());
        prop_assert_eq!(view.to_table(), table);
    }

    #[test]
    fn properties_are_the_same_bytes_in_both_codecs(
        properties in properties(), body_bytes in any::<u64>(),
    ) {
        let headers = properties.headers.as_ref().map(FieldTable::to_bytes);
        let ours = properties.ours(headers.as_deref());
        let (mut raw, mut frame) = (BytesMut::new(), BytesMut::new());
        ours.encode(&mut raw);
        Encoder::new(&mut frame, 0).header(3, body_bytes, &raw);

        let AMQPFrame::Header(3, theirs) = read_by_the_oracle(&frame) else {
            panic!("a header frame became another");
        };
        prop_assert_eq!(&theirs.properties, &properties.theirs());
        prop_assert_eq!(theirs.body_size, body_bytes);
        prop_assert_eq!(&written_by_the_oracle(&AMQPFrame::Header(3, theirs)), &frame);
        prop_assert_eq!(
            decoded(&frame),
            Frame::Header { channel: 3, class_id: 60, body_bytes, properties: &raw }
        );
        prop_assert_eq!(Properties::decode(&raw), Ok(ours));
    }

    #[test]
    fn a_body_is_split_at_frame_max_and_comes_together_again(
        body in vec(any::<u8>(), 0..20_000), frame_max in 4096u32..9000,
    ) {
        let mut frames = BytesMut::new();
        Encoder::new(&mut frames, frame_max).body(9, &body);
        let mut rest = &frames[..];
        let mut joined = Vec::new();
        while !rest.is_empty() {
            let (_, frame) = parse_frame(rest).expect("the oracle reads what we wrote");
            let (Frame::Body { channel: 9, payload }, taken) =
                Decoder::new(frame_max).decode(rest).expect("is valid").expect("is whole")
            else {
                panic!("a body frame became another");
            };
            prop_assert!(!payload.is_empty() && taken <= frame_max as usize);
            prop_assert_eq!(frame, AMQPFrame::Body(9, payload.to_vec()));
            joined.extend_from_slice(payload);
            rest = &rest[taken..];
        }
        prop_assert_eq!(joined, body);
    }

    #[test]
    fn a_message_in_one_call_is_the_same_bytes_as_frame_by_frame(
        filling in filling(),
        properties in properties(),
        body in vec(any::<u8>(), 0..9000),
    ) {
        let headers = properties.headers.as_ref().map(FieldTable::to_bytes);
        let mut raw = BytesMut::new();
        properties.ours(headers.as_deref()).encode(&mut raw);
        let wire = |texts: &[&String]| {
            let mut out = Vec::new();
            for text in texts {
                out.put_u8(u8::try_from(text.len()).expect("fits a short string"));
                out.put_slice(text.as_bytes());
            }
            out
        };
        let [a, b, c] = &filling.names;
        for method in filling.methods() {
            let mut at_once = BytesMut::new();
            match method {
                Method::BasicPublish(publish) if !publish.immediate => amqp::encode_publish(
                    &mut at_once, 4096, 5, &wire(&[a, b]), publish.mandatory, &raw, &body,
                ),
                Method::BasicDeliver(deliver) => amqp::encode_deliver(
                    &mut at_once, 4096, 5, &wire(&[a]), deliver.delivery_tag,
                    deliver.redelivered, &wire(&[b, c]), &raw, &body,
                ),
                _ => continue,
            }
            let mut stepwise = BytesMut::new();
            let mut encoder = Encoder::new(&mut stepwise, 4096);
            encoder.method(5, &method);
            encoder.header(5, body.len() as u64, &raw);
            encoder.body(5, &body);
            prop_assert_eq!(at_once, stepwise);
        }
    }
}

#[test]
fn every_field_has_the_oracles_name() {
    let filling = |bits: u8| Filling {
        names: ["alpha", "beta", "gamma"].map(str::to_owned),
        bytes: b"delta".to_vec(),
        table: Vec::new(),
        bits: [1, 2, 4, 8, 16].map(|bit| bits & bit != 0),
        short: 0x1234,
        long: 0x1234_5678,
        tag: u64::MAX - 5,
    };
    for bits in 0..32 {
        for method in filling(bits).methods() {
            let theirs = format!("{:?}", read_by_the_oracle(&method_frame(1, &method)))
                .replace("ShortString(\"", "\"")
                .replace("\")", "\"")
                .replace("r#type", "type")
                .replace(" type: ", " kind: ")
                .replace("nowait", "no_wait");
            for field in plain_fields(&format!("{method:?}")) {
                assert!(theirs.contains(&field), "{field} is not in {theirs}");
            }
        }
    }
}

/// `name: value` of every number, bit and short string in a value's debug text.
fn plain_fields(debug: &str) -> Vec<String> {
    let body = debug.split_once("{ ").map_or("", |(_, body)| body);
    let fields = body.trim_end_matches([')', '}', ' ']).split(", ");
    let is_plain = |field: &&str| {
        let value = field.split_once(": ").map_or("", |(_, value)| value);
        value.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '"')
            && !field.starts_with("prefetch_size") // Reserved, for the oracle.
            && !field.contains("(secret)") // Bytes, for the oracle.
    };
    fields.filter(is_plain).map(str::to_owned).collect()
}

#[test]
fn the_samples_hold_every_method_there_is() {
    let filling = Filling {
        names: [const { String::new() }; 3],
        bytes: Vec::new(),
        table: Vec::new(),
        bits: [false; 5],
        short: 0,
        long: 0,
        tag: 0,
    };
    let mut sampled: Vec<(u16, u16)> = filling.methods().iter().map(Method::ids).collect();
    sampled.sort_unstable();

    let is_known = |class: u16, method: u16| {
        let mut payload = BytesMut::new();
        payload.put_u16(class);
        payload.put_u16(method);
        match Method::decode(&payload) {
            Ok(_) => true,
            Err(error) => error.code == amqp::ReplyCode::SyntaxError,
        }
    };
    let ids = (0..=200).flat_map(|class| (0..=200).map(move |method| (class, method)));
    let known: Vec<(u16, u16)> = ids.filter(|&(class, method)| is_known(class, method)).collect();
    assert_eq!(known, sampled);
}
