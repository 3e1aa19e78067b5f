//! Columns of lists: one table says what a terminal shows, what JSON holds, and what the node is asked for.
#![allow(clippy::disallowed_methods, reason = "a time that is shown as an age needs the clock")]

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::table::{age, bytes, shown, shown_or_dash};

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// RabbitMQ's name for it: in `--columns`, `--sort` and JSON.
    pub(crate) key: &'static str,
    pub(crate) head: &'static str,
    /// Where the node's answer has it: fields within fields, parted by dots.
    pub(crate) from: &'static str,
    kind: Kind,
    /// Shown if nobody names columns.
    pub(crate) is_usual: bool,
}

/// How a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Count,
    Bytes,
    PerSecond,
    Flag,
    /// JSON within JSON, such as arguments.
    Table,
    /// A list of words; some servers give one text with commas.
    Words,
    /// Milliseconds since 1970, shown as how long ago.
    Since,
}

impl Column {
    /// One that people want to see only if they name it.
    pub(crate) const fn seldom(mut self) -> Self {
        self.is_usual = false;
        self
    }

    /// Whether its values are numbers: a list is then most telling with the largest first.
    pub(crate) const fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Count | Kind::Bytes | Kind::PerSecond)
    }

    /// The value in an item of the node's answer.
    pub(crate) fn value(&self, item: &Value) -> Value {
        let found = self.from.split('.').try_fold(item, |value, field| value.get(field));
        match (self.kind, found) {
            (Kind::Words, Some(Value::String(text))) => {
                text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
            }
            (_, found) => found.cloned().unwrap_or(Value::Null),
        }
    }

    /// The value as a terminal may see it.
    pub(crate) fn cell(&self, item: &Value) -> String {
        let value = self.value(item);
        match (self.kind, &value) {
            (_, Value::Null) => "-".to_owned(),
            (Kind::Bytes, Value::Number(number)) => {
                number.as_u64().map_or_else(|| number.to_string(), bytes)
            }
            (Kind::PerSecond, Value::Number(number)) => {
                number.as_f64().map_or_else(|| number.to_string(), |rate| format!("{rate:.1}/s"))
            }
            (Kind::Since, Value::Number(number)) => {
                let since_ms = number.as_u64().unwrap_or(0);
                age(now_ms().saturating_sub(since_ms) / 1000)
            }
            (_, Value::Bool(true)) => "yes".to_owned(),
            (_, Value::Bool(false)) => "no".to_owned(),
            (_, Value::String(text)) => shown_or_dash(text),
            (Kind::Words, Value::Array(words)) => {
                let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                shown_or_dash(&words.join(", "))
            }
            (_, Value::Array(list)) if list.is_empty() => "-".to_owned(),
            (_, Value::Object(fields)) if fields.is_empty() => "-".to_owned(),
            (_, value) => shown(&value.to_string()),
        }
    }
}

const fn of(key: &'static str, head: &'static str, from: &'static str, kind: Kind) -> Column {
    Column { key, head, from, kind, is_usual: true }
}

pub(crate) const fn text(key: &'static str, head: &'static str) -> Column {
    of(key, head, key, Kind::Text)
}

/// A text that lies elsewhere in the answer.
pub(crate) const fn text_of(key: &'static str, head: &'static str, from: &'static str) -> Column {
    of(key, head, from, Kind::Text)
}

pub(crate) const fn count(key: &'static str, head: &'static str) -> Column {
    of(key, head, key, Kind::Count)
}

/// A count that lies elsewhere in the answer.
pub(crate) const fn count_of(key: &'static str, head: &'static str, from: &'static str) -> Column {
    of(key, head, from, Kind::Count)
}

pub(crate) const fn size(key: &'static str, head: &'static str) -> Column {
    of(key, head, key, Kind::Bytes)
}

pub(crate) const fn rate(key: &'static str, head: &'static str, from: &'static str) -> Column {
    of(key, head, from, Kind::PerSecond)
}

pub(crate) const fn flag(key: &'static str, head: &'static str) -> Column {
    of(key, head, key, Kind::Flag)
}

pub(crate) const fn table(key: &'static str, head: &'static str) -> Column {
    of(key, head, key, Kind::Table)
}

pub(crate) const fn words(key: &'static str, head: &'static str) -> Column {
    of(key, head, key, Kind::Words)
}

pub(crate) const fn since(key: &'static str, head: &'static str) -> Column {
    of(key, head, key, Kind::Since)
}

pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_found_and_shown_as_what_it_is() {
        let item = json!({
            "name": "a\u{1b}[2J", "x": { "rate": 1.5 }, "bytes": 20_480, "on": true,
            "arguments": { "a": "\u{9b}" }, "none": {}, "tags": "a,b", "list": ["a", "b"],
        });
        let cells = [
            (text("name", "Name"), "a\\u{1b}[2J"),
            (rate("rate", "Rate", "x.rate"), "1.5/s"),
            (size("bytes", "Bytes"), "20 KiB"),
            (flag("on", "On"), "yes"),
            (table("arguments", "Arguments"), "{\"a\":\"\\u{9b}\"}"),
            (table("none", "None"), "-"),
            (words("tags", "Tags"), "a, b"),
            (words("list", "List"), "a, b"),
            (count("missing", "Missing"), "-"),
        ];
        for (column, cell) in cells {
            assert_eq!(column.cell(&item), cell, "{}", column.key);
        }
        assert_eq!(words("tags", "Tags").value(&item), json!(["a", "b"]));
        assert_eq!(count("missing", "Missing").value(&item), Value::Null);
    }
}
