//! Rows as JSON objects: how they are kept among the failures, and what `pg_logical_emit_message` carries.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::attempts::{Fault, Reason};
use crate::fields::Fields;
use crate::lsn::Lsn;
use crate::mapping::Layout;
use crate::pgoutput::encode_row;

/// Marks a value that jsonb's text cannot hold: its bytes, in hexadecimal.
pub(crate) const RAW: &str = "$bytes";

/// Stands for the null of jsonb, which an object could not tell from that of SQL.
pub(crate) const JSON_NULL: &str = r#"{"$json": null}"#;

/// The fields of an object, each as it was written: numbers keep all their digits.
type Object<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The object for `relay_failures.stored_row`.
pub(crate) fn to_json(layout: &Layout, fields: &Fields) -> String {
    let mut object = serde_json::Map::new();
    for (index, column) in layout.columns.iter().enumerate() {
        let value = match (fields.get(index), fields.text(index)) {
            (None, _) => Value::Null,
            (Some(_), Some(text)) if !text.contains('\0') => Value::from(text),
            (Some(bytes), _) => {
                let mut hex = String::with_capacity(2 * bytes.len());
                for byte in bytes {
                    let _ = write!(hex, "{byte:02x}");
                }
                serde_json::json!({ RAW: hex })
            }
        };
        object.insert(column.clone(), value);
    }
    Value::Object(object).to_string()
}

/// The row of such an object, or of any other with these columns (`to_jsonb(row)`), as a change.
///
/// # Errors
/// It is no object.
pub(crate) fn from_json(layout: &Layout, text: &str) -> Result<Bytes, String> {
    let object: Object<'_> = serde_json::from_str(text)
        .map_err(|error| format!("the stored row is not a JSON object: {error}"))?;
    Ok(row(layout, &object, None, raw))
}

/// The row of a message that was written to the log at `lsn`; its id is that place if it names none. What is no
/// JSON object is a row with that as its payload, and the reason why it cannot be published.
pub(crate) fn from_message(layout: &Layout, content: &[u8], lsn: Lsn) -> (Bytes, Option<Fault>) {
    let id = lsn.to_string();
    match serde_json::from_slice::<Object<'_>>(content) {
        // What looks like bytes was written so by the application.
        Ok(object) => (row(layout, &object, Some(&id), |_| None), None),
        Err(error) => {
            let values = (0..layout.columns.len()).map(|column| match column {
                _ if column == layout.id => Some(id.as_bytes()),
                _ if column == layout.payload => Some(content),
                _ => None,
            });
            let text = format!("the message at {id} of the log is not a JSON object: {error}");
            (encode_row(values), Some(Fault { reason: Reason::Broken, text }))
        }
    }
}

/// `raw` finds the bytes that an object may stand for.
fn row(
    layout: &Layout,
    object: &Object<'_>,
    id: Option<&str>,
    raw: fn(&str) -> Option<Vec<u8>>,
) -> Bytes {
    let values: Vec<Option<Cow<'_, [u8]>>> = layout
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let value = object.get(column.as_str()).and_then(|value| bytes_of(value.get(), raw));
            let id = id.filter(|_| index == layout.id);
            value.or_else(|| id.map(|id| Cow::Borrowed(id.as_bytes())))
        })
        .collect();
    encode_row(values.iter().map(Option::as_deref))
}

/// Strings as what they say, all else as it is written.
fn bytes_of(json: &str, raw: fn(&str) -> Option<Vec<u8>>) -> Option<Cow<'_, [u8]>> {
    match json.as_bytes().first()? {
        b'n' => None,
        b'"' => {
            let text: Cow<'_, str> = serde_json::from_str::<String>(json).ok()?.into();
            Some(Cow::Owned(text.into_owned().into_bytes()))
        }
        b'{' => Some(raw(json).map_or(Cow::Borrowed(json.as_bytes()), Cow::Owned)),
        _ => Some(Cow::Borrowed(json.as_bytes())),
    }
}

/// The bytes of an object that has them and nothing else.
fn raw(json: &str) -> Option<Vec<u8>> {
    let object: Object<'_> = serde_json::from_str(json).ok().filter(|_| json.contains(RAW))?;
    if object.len() > 1 {
        return None;
    }
    let hex = serde_json::from_str::<&str>(object.get(RAW)?.get()).ok()?.as_bytes();
    let pairs = hex.chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Preset};
    use crate::pgoutput::columns;

    fn values(row: &Bytes) -> Vec<Option<&[u8]>> {
        columns(row).map(|span| span.map(|(start, end)| &row[start..end])).collect()
    }

    #[test]
    fn a_row_comes_back_as_it_was_stored_whatever_its_bytes() {
        let layout = Mapping::preset(Preset::OutboxMessages).layout();
        let row = [Some(&b"7"[..]), Some(b"\xff\0x"), None, Some("a\u{0}ü".as_bytes())];
        let fields: Fields = row.into_iter().collect();
        let text = to_json(&layout, &fields);
        assert!(!text.contains("\\u0000"), "jsonb refuses it: {text}");
        assert_eq!(values(&from_json(&layout, &text).expect("an object")), row);
    }

    #[test]
    fn a_row_that_the_database_made_an_object_of_is_read_too() {
        let layout = Mapping::preset(Preset::OutboxMessages).layout();
        let text = r#"{"id":"7","content":{"a":1},"type":"paid","more":true}"#;
        let row = from_json(&layout, text).expect("an object");
        assert_eq!(values(&row), [Some(&b"7"[..]), Some(b"{\"a\":1}"), Some(b"paid"), None]);
        assert!(from_json(&layout, "[1]").is_err());
        assert!(from_json(&layout, "{").is_err());
    }

    #[test]
    fn a_message_of_the_log_is_a_row_with_its_fields_as_they_were_written() {
        let layout = Mapping::preset(Preset::OutboxMessages).layout();
        let content = br#"{"id":"a-1","content":{"n": 12345678901234567890.10},"type":"paid"}"#;
        let (row, fault) = from_message(&layout, content, Lsn(0x1_0000_00aa));
        let body = b"{\"n\": 12345678901234567890.10}";
        assert_eq!(values(&row), [Some(&b"a-1"[..]), Some(body), Some(b"paid"), None]);
        assert_eq!(fault, None);
        let (row, _) =
            from_message(&layout, br#"{"content":"plain \"text\""}"#, Lsn(0x1_0000_00aa));
        assert_eq!(values(&row), [Some(&b"1/AA"[..]), Some(b"plain \"text\""), None, None]);
    }

    #[test]
    fn an_object_that_only_looks_like_stored_bytes_stays_what_it_is() {
        let layout = Mapping::preset(Preset::OutboxMessages).layout();
        let stored = from_json(&layout, r#"{"content":{"$bytes":"ff","x":1}}"#).expect("an object");
        assert_eq!(values(&stored)[1], Some(&br#"{"$bytes":"ff","x":1}"#[..]));
        let (row, _) = from_message(&layout, br#"{"content":{"$bytes":"ff"}}"#, Lsn(1));
        assert_eq!(values(&row)[1], Some(&br#"{"$bytes":"ff"}"#[..]));
    }

    #[test]
    fn a_message_that_is_no_object_is_kept_with_the_reason() {
        let layout = Mapping::preset(Preset::OutboxMessages).layout();
        let (row, fault) = from_message(&layout, b"\xff[", Lsn(1));
        assert_eq!(values(&row), [Some(&b"0/1"[..]), Some(b"\xff["), None, None]);
        assert_eq!(fault.map(|fault| fault.reason), Some(Reason::Broken));
    }
}
