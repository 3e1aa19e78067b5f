//! Names that are a program's own, and those in its values.

use amqp::FieldValue;

/// The full name of what is the program's own: `q1`, `e2`.
pub(super) fn own(prefix: &str, name: &str) -> String {
    let mut letters = name.chars();
    let is_own = matches!(letters.next(), Some('q' | 'e'))
        && letters.next().is_some_and(|digit| digit.is_ascii_digit())
        && letters.next().is_none();
    if is_own { format!("{prefix}{name}") } else { name.to_owned() }
}

/// A value with the full names of what is the program's own.
pub(super) fn own_value(prefix: &str, value: &FieldValue) -> FieldValue {
    match value {
        FieldValue::LongStr(text) => match std::str::from_utf8(text) {
            Ok(text) => FieldValue::from(own(prefix, text)),
            Err(_) => value.clone(),
        },
        FieldValue::Array(values) => {
            FieldValue::Array(values.iter().map(|value| own_value(prefix, value)).collect())
        }
        other => other.clone(),
    }
}
