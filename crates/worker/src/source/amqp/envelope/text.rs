//! Header values as text: what targets are given, and what people see.

use std::borrow::Cow;

use amqp::{ValueRef, Widened};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Deepest nesting that is shown.
const DEPTH_MAX: usize = 16;

/// Text as it is; numbers and truths in digits and words; bytes that are no text in Base64; tables and arrays as
/// JSON.
pub(super) fn of(value: ValueRef<'_>) -> Cow<'_, str> {
    match value.widened() {
        Widened::LongStr(bytes) | Widened::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(STANDARD.encode(bytes)),
        },
        Widened::Void => Cow::Borrowed(""),
        Widened::Bool(is_true) => Cow::Borrowed(if is_true { "true" } else { "false" }),
        Widened::F32(number) => Cow::Owned(number.to_string()),
        Widened::F64(number) => Cow::Owned(number.to_string()),
        Widened::Decimal { scale, value } => Cow::Owned(format!("{value}e-{scale}")),
        Widened::Array(_) | Widened::Table(_) => Cow::Owned(json(value, 0).to_string()),
        Widened::Integer(number) => Cow::Owned(number.to_string()),
        Widened::Timestamp(seconds) => Cow::Owned(seconds.to_string()),
    }
}

/// A whole number, or the text of one.
pub(super) fn integer(value: ValueRef<'_>) -> Option<i128> {
    Some(match value.widened() {
        Widened::Integer(number) => number.into(),
        Widened::Timestamp(seconds) => seconds.into(),
        Widened::LongStr(bytes) | Widened::Bytes(bytes) => {
            return std::str::from_utf8(bytes).ok()?.trim().parse().ok();
        }
        Widened::Bool(_)
        | Widened::F32(_)
        | Widened::F64(_)
        | Widened::Decimal { .. }
        | Widened::Array(_)
        | Widened::Table(_)
        | Widened::Void => return None,
    })
}

fn json(value: ValueRef<'_>, depth: usize) -> Value {
    match value.widened() {
        _ if depth > DEPTH_MAX => Value::Null,
        Widened::Void => Value::Null,
        Widened::Bool(is_true) => is_true.into(),
        Widened::F32(number) => number.into(),
        Widened::F64(number) => number.into(),
        Widened::Array(elements) => {
            elements.iter().map(|element| json(element, depth + 1)).collect()
        }
        Widened::Table(table) => {
            let fields =
                table.iter().map(|(name, value)| (name.to_owned(), json(value, depth + 1)));
            Value::Object(fields.collect())
        }
        Widened::Timestamp(seconds) => seconds.into(),
        Widened::Integer(number) => number.into(),
        Widened::LongStr(_) | Widened::Bytes(_) | Widened::Decimal { .. } => {
            of(value).into_owned().into()
        }
    }
}
