//! Header values as text: what targets are given, and what people see.

use std::borrow::Cow;

use amqp::ValueRef;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Deepest nesting that is shown.
const DEPTH_MAX: usize = 16;

/// Text as it is; numbers and truths in digits and words; bytes that are no text in Base64; tables and arrays as
/// JSON.
pub(super) fn of(value: ValueRef<'_>) -> Cow<'_, str> {
    match value {
        ValueRef::LongStr(bytes) | ValueRef::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(STANDARD.encode(bytes)),
        },
        ValueRef::Void => Cow::Borrowed(""),
        ValueRef::Bool(is_true) => Cow::Borrowed(if is_true { "true" } else { "false" }),
        ValueRef::F32(number) => Cow::Owned(number.to_string()),
        ValueRef::F64(number) => Cow::Owned(number.to_string()),
        ValueRef::Decimal { scale, value } => Cow::Owned(format!("{value}e-{scale}")),
        ValueRef::Array(_) | ValueRef::Table(_) => Cow::Owned(json(value, 0).to_string()),
        ValueRef::I8(_)
        | ValueRef::U8(_)
        | ValueRef::I16(_)
        | ValueRef::U16(_)
        | ValueRef::I32(_)
        | ValueRef::U32(_)
        | ValueRef::I64(_)
        | ValueRef::Timestamp(_) => {
            Cow::Owned(integer(value).expect("these are whole numbers").to_string())
        }
    }
}

/// A whole number, or the text of one.
pub(super) fn integer(value: ValueRef<'_>) -> Option<i128> {
    Some(match value {
        ValueRef::I8(number) => number.into(),
        ValueRef::U8(number) => number.into(),
        ValueRef::I16(number) => number.into(),
        ValueRef::U16(number) => number.into(),
        ValueRef::I32(number) => number.into(),
        ValueRef::U32(number) => number.into(),
        ValueRef::I64(number) => number.into(),
        ValueRef::Timestamp(seconds) => seconds.into(),
        ValueRef::LongStr(bytes) | ValueRef::Bytes(bytes) => {
            return std::str::from_utf8(bytes).ok()?.trim().parse().ok();
        }
        ValueRef::Bool(_)
        | ValueRef::F32(_)
        | ValueRef::F64(_)
        | ValueRef::Decimal { .. }
        | ValueRef::Array(_)
        | ValueRef::Table(_)
        | ValueRef::Void => return None,
    })
}

fn json(value: ValueRef<'_>, depth: usize) -> Value {
    match value {
        _ if depth > DEPTH_MAX => Value::Null,
        ValueRef::Void => Value::Null,
        ValueRef::Bool(is_true) => is_true.into(),
        ValueRef::F32(number) => number.into(),
        ValueRef::F64(number) => number.into(),
        ValueRef::Array(elements) => {
            elements.iter().map(|element| json(element, depth + 1)).collect()
        }
        ValueRef::Table(table) => {
            let fields =
                table.iter().map(|(name, value)| (name.to_owned(), json(value, depth + 1)));
            Value::Object(fields.collect())
        }
        ValueRef::Timestamp(seconds) => seconds.into(),
        ValueRef::I8(_)
        | ValueRef::U8(_)
        | ValueRef::I16(_)
        | ValueRef::U16(_)
        | ValueRef::I32(_)
        | ValueRef::U32(_)
        | ValueRef::I64(_) => integer(value).and_then(|number| i64::try_from(number).ok()).into(),
        ValueRef::LongStr(_) | ValueRef::Bytes(_) | ValueRef::Decimal { .. } => {
            of(value).into_owned().into()
        }
    }
}
