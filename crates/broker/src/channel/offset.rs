//! `x-stream-offset`: where a consumer of a stream begins.
//!
//! A message's offset is one less than its sequence number: the first has offset 0.

use amqp::ValueRef;
use bytes::BytesMut;
use machine::StreamOffset;

use crate::arguments::offset::{offset_of, word_of};
use crate::headers::{self, Number};
use crate::values::type_name;

/// The argument that says where a consumer begins, and the header that tells a message's offset.
pub(super) const NAME: &str = "x-stream-offset";

/// The header that tells which of several partitions a message is from.
const PARTITION_HEADER: &str = "x-stream-partition";

/// What the argument means.
///
/// # Errors
/// It means nothing: the value, as RabbitMQ writes it.
pub(super) fn of(value: &ValueRef<'_>) -> Result<StreamOffset, String> {
    if let Some(offset) = value.integer() {
        return Ok(offset_of(offset));
    }
    match value {
        ValueRef::Timestamp(seconds) => Ok(StreamOffset::Since(seconds.saturating_mul(1000))),
        ValueRef::LongStr(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            word_of(&text).ok_or_else(|| format!("{{longstr,<<\"{text}\">>}}"))
        }
        other => Err(type_name(other).to_owned()),
    }
}

/// The offset of a message.
fn of_seq(seq: u64) -> i64 {
    i64::try_from(seq.saturating_sub(1)).unwrap_or(i64::MAX)
}

/// The properties of a message with its offset in them, and its partition if there are several, for which `out` is
/// there.
pub(super) fn told<'a>(
    out: &'a mut BytesMut,
    properties: &'a [u8],
    seq: u64,
    partition: Option<u16>,
) -> &'a [u8] {
    let number = Number::I64(of_seq(seq));
    if !headers::put_with_number(out, properties, NAME, number) {
        return properties;
    }
    if let Some(partition) = partition {
        let with_offset = out.split();
        let number = Number::I64(partition.into());
        if !headers::put_with_number(out, &with_offset, PARTITION_HEADER, number) {
            *out = with_offset;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_a_word_a_number_a_time_or_an_age() {
        for (value, offset) in [
            (ValueRef::LongStr(b"first"), StreamOffset::First),
            (ValueRef::LongStr(b"last"), StreamOffset::Last),
            (ValueRef::LongStr(b"next"), StreamOffset::Next),
            (ValueRef::LongStr(b"1h"), StreamOffset::Ago(3_600_000)),
            (ValueRef::I64(0), StreamOffset::At(1)),
            (ValueRef::I8(41), StreamOffset::At(42)),
            (ValueRef::I32(-7), StreamOffset::First),
            (ValueRef::Timestamp(1_600_000_000), StreamOffset::Since(1_600_000_000_000)),
        ] {
            assert_eq!(of(&value), Ok(offset), "{value:?}");
        }
        assert_eq!(of(&ValueRef::LongStr(b"5")), Err("{longstr,<<\"5\">>}".into()));
        for wrong in [ValueRef::Bool(true), ValueRef::LongStr(b"1w"), ValueRef::LongStr(b"")] {
            assert!(of(&wrong).is_err(), "{wrong:?}");
        }
    }
}
