//! A JSON object to AMQP headers.

use amqp::{FieldTable, FieldValue};
use bytes::BytesMut;
use serde_json::Value;

use crate::limits::{HEADERS_DEPTH_MAX, SHORT_STRING_BYTES_MAX};

/// The encoded table of the JSON object `text`, without its length. None: it is the null of JSON, which says no more than
/// that of SQL.
///
/// # Errors
/// In plain words: it is not an object, a name is too long, it is nested too deep.
pub(crate) fn encode(text: &str) -> Result<Option<BytesMut>, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("the headers are not JSON: {error}"))?;
    match value {
        Value::Object(object) => Ok(Some(table(object, 1)?.to_bytes())),
        Value::Null => Ok(None),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("the headers are not a JSON object".into())
        }
    }
}

fn table(object: serde_json::Map<String, Value>, depth: usize) -> Result<FieldTable, String> {
    if depth > HEADERS_DEPTH_MAX {
        return Err(format!("the headers are nested deeper than {HEADERS_DEPTH_MAX}"));
    }
    let mut table = FieldTable::new();
    for (name, value) in object {
        if name.len() > SHORT_STRING_BYTES_MAX {
            return Err(format!("a header's name has {} bytes, more than 255", name.len()));
        }
        table.insert(name, field(value, depth)?);
    }
    Ok(table)
}

fn field(value: Value, depth: usize) -> Result<FieldValue, String> {
    Ok(match value {
        Value::Null => FieldValue::Void,
        Value::Bool(yes) => FieldValue::Bool(yes),
        Value::Number(number) => match number.as_i64() {
            Some(number) => FieldValue::I64(number),
            None => FieldValue::F64(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => FieldValue::LongStr(text.into_bytes()),
        Value::Array(values) if depth < HEADERS_DEPTH_MAX => FieldValue::Array(
            values.into_iter().map(|value| field(value, depth + 1)).collect::<Result<_, _>>()?,
        ),
        Value::Array(_) => {
            return Err(format!("the headers are nested deeper than {HEADERS_DEPTH_MAX}"));
        }
        Value::Object(object) => FieldValue::Table(table(object, depth + 1)?),
    })
}

#[cfg(test)]
mod tests {
    use amqp::TableRef;

    use super::*;

    #[test]
    fn each_kind_of_json_has_its_kind_of_field() {
        let text = r#"{"a":"x","b":7,"c":true,"d":null,"e":1.5,"f":[1,"y"],"g":{"h":2}}"#;
        let raw = encode(text).expect("it is an object").expect("and not null");
        let table = TableRef::validate(&raw).expect("it is a table").to_table();
        assert_eq!(table.find("a"), Some(&FieldValue::LongStr(b"x".to_vec())));
        assert_eq!(table.find("b"), Some(&FieldValue::I64(7)));
        assert_eq!(table.find("c"), Some(&FieldValue::Bool(true)));
        assert_eq!(table.find("d"), Some(&FieldValue::Void));
        assert_eq!(table.find("e"), Some(&FieldValue::F64(1.5)));
        let array = vec![FieldValue::I64(1), FieldValue::LongStr(b"y".to_vec())];
        assert_eq!(table.find("f"), Some(&FieldValue::Array(array)));
        let inner: FieldTable = [("h", FieldValue::I64(2))].into_iter().collect();
        assert_eq!(table.find("g"), Some(&FieldValue::Table(inner)));
    }

    #[test]
    fn the_null_of_json_means_no_headers() {
        assert_eq!(encode(" null "), Ok(None));
        assert!(encode("{}").is_ok_and(|table| table.is_some()));
    }

    #[test]
    fn what_is_no_object_is_refused_in_words() {
        assert!(encode("[1]").is_err_and(|why| why.contains("not a JSON object")));
        assert!(encode("{").is_err_and(|why| why.contains("not JSON")));
        let long = format!("{{\"{}\":1}}", "n".repeat(256));
        assert!(encode(&long).is_err_and(|why| why.contains("256 bytes")));
        let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        assert!(encode(&deep).is_err_and(|why| why.contains("nested")));
    }
}
