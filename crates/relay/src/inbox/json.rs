//! Headers of AMQP as JSON that PostgreSQL's `jsonb` takes.

use amqp::{FieldTable, FieldValue};
use serde_json::{Map, Number, Value};

use super::row::ZERO;
use crate::limits::HEADERS_DEPTH_MAX;

/// The table as an object; what JSON has no word for is told in `flaws` and written as near as it goes.
pub(super) fn object(table: &FieldTable, flaws: &mut Vec<String>) -> Map<String, Value> {
    let mut writer = Writer { has_zero: false, is_deep: false };
    let object = writer.object(table, 1);
    if writer.has_zero {
        flaws.push(format!("the headers hold U+0000, which is written as {ZERO}"));
    }
    if writer.is_deep {
        let text = format!("the headers are nested deeper than {HEADERS_DEPTH_MAX}: null is there");
        flaws.push(text);
    }
    object
}

struct Writer {
    has_zero: bool,
    is_deep: bool,
}

impl Writer {
    /// Goes no deeper than the limit, whatever the message holds.
    fn object(&mut self, table: &FieldTable, depth: usize) -> Map<String, Value> {
        let fields = table.0.iter();
        fields.map(|(name, value)| (self.text(name), self.value(value, depth))).collect()
    }

    fn value(&mut self, value: &FieldValue, depth: usize) -> Value {
        match value {
            FieldValue::Bool(yes) => (*yes).into(),
            FieldValue::I8(number) => (*number).into(),
            FieldValue::U8(number) => (*number).into(),
            FieldValue::I16(number) => (*number).into(),
            FieldValue::U16(number) => (*number).into(),
            FieldValue::I32(number) => (*number).into(),
            FieldValue::U32(number) => (*number).into(),
            FieldValue::I64(number) => (*number).into(),
            FieldValue::Timestamp(seconds) => (*seconds).into(),
            FieldValue::F32(number) => real(f64::from(*number)),
            FieldValue::F64(number) => real(*number),
            FieldValue::Decimal { scale, value } => Value::String(decimal(*scale, *value)),
            FieldValue::LongStr(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Value::String(self.text(text)),
                Err(_) => Value::String(hex(bytes)),
            },
            FieldValue::Bytes(bytes) => Value::String(hex(bytes)),
            FieldValue::Void => Value::Null,
            FieldValue::Array(_) | FieldValue::Table(_) if depth >= HEADERS_DEPTH_MAX => {
                self.is_deep = true;
                Value::Null
            }
            FieldValue::Array(values) => {
                values.iter().map(|value| self.value(value, depth + 1)).collect()
            }
            FieldValue::Table(table) => Value::Object(self.object(table, depth + 1)),
        }
    }

    fn text(&mut self, text: &str) -> String {
        self.has_zero |= text.contains('\0');
        text.replace('\0', ZERO)
    }
}

/// JSON has no infinities.
fn real(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

fn decimal(scale: u8, value: u32) -> String {
    let digits = format!("{value:0>width$}", width = usize::from(scale) + 1);
    let (whole, part) = digits.split_at(digits.len() - usize::from(scale));
    if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
}

/// As PostgreSQL writes a `bytea`.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("\\x");
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(table: FieldTable) -> (String, Vec<String>) {
        let mut flaws = Vec::new();
        let object = object(&table, &mut flaws);
        (Value::Object(object).to_string(), flaws)
    }

    #[test]
    fn each_kind_of_field_has_its_json() {
        let table: FieldTable = [
            ("a", FieldValue::LongStr("ü".into())),
            ("b", FieldValue::LongStr(vec![0xff])),
            ("c", FieldValue::Decimal { scale: 2, value: 5 }),
            ("d", FieldValue::F64(f64::NAN)),
            ("e", FieldValue::F64(1.5)),
            ("f", FieldValue::Array(vec![FieldValue::Void, FieldValue::Bool(true)])),
            ("g", FieldValue::Table([("h", FieldValue::I64(-7))].into_iter().collect())),
            ("i", FieldValue::Timestamp(9)),
        ]
        .into_iter()
        .collect();
        let expected = r#"{"a":"ü","b":"\\xff","c":"0.05","d":"NaN","e":1.5,"f":[null,true],"g":{"h":-7},"i":9}"#;
        assert_eq!(json(table), (expected.to_owned(), Vec::new()));
    }

    #[test]
    fn a_zero_is_replaced_in_names_and_values_and_told() {
        let table: FieldTable =
            [("x\0y", FieldValue::LongStr(b"a\0b".to_vec()))].into_iter().collect();
        let (text, flaws) = json(table);
        assert_eq!(text, r#"{"x\\u{0}y":"a\\u{0}b"}"#);
        assert_eq!(flaws.len(), 1);
    }

    #[test]
    fn what_is_nested_too_deep_ends_in_null_and_is_told() {
        let mut value = FieldValue::I64(1);
        for _ in 0..HEADERS_DEPTH_MAX * 2 {
            value = FieldValue::Array(vec![value]);
        }
        let (text, flaws) = json([("a", value)].into_iter().collect());
        assert!(text.contains("null"), "{text}");
        assert_eq!(flaws.len(), 1);
    }
}
