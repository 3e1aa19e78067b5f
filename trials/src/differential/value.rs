//! Values of arguments and headers as a script has them: `40`, `40l`, `true`, `text`, `'quoted'`,
//! `[a,b]`, `void`. The letter behind a number is AMQP's for its type, so that widths are not lost.

use amqp::{FieldTable, FieldValue};

/// Reads a value. Everything that looks like nothing else is text.
pub(super) fn parse(text: &str) -> FieldValue {
    match text {
        "true" => return FieldValue::Bool(true),
        "false" => return FieldValue::Bool(false),
        "void" => return FieldValue::Void,
        _ => {}
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let parts = inner.split(',').filter(|part| !part.is_empty());
        return FieldValue::Array(parts.map(parse).collect());
    }
    if let Some(inner) = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        return FieldValue::from(inner);
    }
    number(text).unwrap_or_else(|| FieldValue::from(text))
}

fn number(text: &str) -> Option<FieldValue> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return None;
    }
    if let Ok(value) = text.parse::<i32>() {
        return Some(FieldValue::I32(value));
    }
    if text.contains('.')
        && let Ok(value) = text.parse::<f64>()
    {
        return Some(FieldValue::F64(value));
    }
    let (digits, letter) = text.split_at_checked(text.len() - 1)?;
    match letter {
        "l" => digits.parse().ok().map(FieldValue::I64),
        "s" => digits.parse().ok().map(FieldValue::I16),
        "b" => digits.parse().ok().map(FieldValue::I8),
        "B" => digits.parse().ok().map(FieldValue::U8),
        "u" => digits.parse().ok().map(FieldValue::U16),
        "i" => digits.parse().ok().map(FieldValue::U32),
        _ => None,
    }
}

/// Writes a value as `parse` reads it, and those of which a script has no need in the same manner.
pub(super) fn show(value: &FieldValue) -> String {
    match value {
        FieldValue::Bool(is_true) => is_true.to_string(),
        FieldValue::I8(value) => format!("{value}b"),
        FieldValue::U8(value) => format!("{value}B"),
        FieldValue::I16(value) => format!("{value}s"),
        FieldValue::U16(value) => format!("{value}u"),
        FieldValue::I32(value) => value.to_string(),
        FieldValue::U32(value) => format!("{value}i"),
        FieldValue::I64(value) => format!("{value}l"),
        FieldValue::F32(value) => format!("{value:?}f"),
        FieldValue::F64(value) => format!("{value:?}"),
        FieldValue::Decimal { scale, value } => format!("{value}/{scale}D"),
        FieldValue::LongStr(text) => show_text(&String::from_utf8_lossy(text)),
        FieldValue::Bytes(bytes) => format!("{bytes:?}x"),
        FieldValue::Array(values) => {
            let values: Vec<String> = values.iter().map(show).collect();
            format!("[{}]", values.join(","))
        }
        FieldValue::Timestamp(seconds) => format!("{seconds}T"),
        FieldValue::Table(table) => show_table(table),
        FieldValue::Void => "void".to_owned(),
    }
}

/// A table in its order.
pub(super) fn show_table(table: &FieldTable) -> String {
    let fields: Vec<String> =
        table.0.iter().map(|(key, value)| format!("{key}={}", show(value))).collect();
    format!("{{{}}}", fields.join(" "))
}

/// Quotes what would be read as something else.
fn show_text(text: &str) -> String {
    let is_plain = !text.is_empty()
        && !text.contains([' ', ',', '\'', '[', ']'])
        && matches!(parse(text), FieldValue::LongStr(_));
    if is_plain { text.to_owned() } else { format!("'{text}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_value_is_read_as_the_same_value() {
        let array = FieldValue::Array(vec![FieldValue::from("a"), FieldValue::I32(1)]);
        let values = [
            FieldValue::from(""),
            FieldValue::from("40"),
            FieldValue::from("a.b"),
            FieldValue::I32(-1),
            FieldValue::I64(7),
            FieldValue::I16(7),
            FieldValue::F64(1.5),
            FieldValue::Bool(true),
            FieldValue::Void,
            array,
        ];
        for value in values {
            assert_eq!(parse(&show(&value)), value, "{value:?}");
        }
    }
}
