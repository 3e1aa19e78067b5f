//! Names, constants and lists, as these servers read them.

use crate::mapping::TableName;
use crate::mysql::shape::Kind;

/// `name` as an identifier.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// `text` as a constant that no character ends, whatever `sql_mode` says.
pub fn literal(text: &str) -> String {
    format!("CONVERT(X'{}' USING utf8mb4)", hex(text.as_bytes()))
}

pub(super) fn bytes_literal(text: &str) -> String {
    format!("X'{}'", hex(text.as_bytes()))
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into memory cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A table's name with its schema, as SQL has it.
pub fn quoted_table(table: &TableName) -> String {
    match &table.schema {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(&table.name)),
        None => quoted(&table.name),
    }
}

/// How many places a list of so many values has: the next power of two. The last value fills the rest.
pub fn list_length(values: usize) -> usize {
    values.max(1).next_power_of_two()
}

pub(super) fn places(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// `value` for a column of this kind. `true` and `false` are numbers here.
pub fn constant(value: &str, kind: Kind) -> String {
    match (kind, value) {
        (Kind::Integer | Kind::Bits, "true") => "1".into(),
        (Kind::Integer | Kind::Bits, "false") => "0".into(),
        _ => literal(value),
    }
}

/// Where confirmed rows are kept under [`OnSuccess::Archive`].
pub fn archive_of(table: &TableName) -> TableName {
    TableName { schema: table.schema.clone(), name: format!("{}_archive", table.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_ends_a_name_or_a_constant() {
        assert_eq!(quoted("a`b"), "`a``b`");
        assert_eq!(literal("a'b\\"), "CONVERT(X'6127625c' USING utf8mb4)");
        let table = TableName { schema: Some("s`".into()), name: "t".into() };
        assert_eq!(quoted_table(&table), "`s```.`t`");
    }

    #[test]
    fn lists_have_few_lengths() {
        let lengths = [0, 1, 2, 3, 1000, 10_000].map(list_length);
        assert_eq!(lengths, [1, 1, 2, 4, 1024, 16_384]);
    }

    #[test]
    fn true_and_false_are_numbers_for_a_column_of_numbers() {
        assert_eq!(constant("true", Kind::Integer), "1");
        assert_eq!(constant("false", Kind::Bits), "0");
        assert_eq!(constant("true", Kind::Text), literal("true"));
    }
}
