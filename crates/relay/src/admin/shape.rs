//! What the database says of an outbox table: kind, columns, indexes, partitions.

use serde::Deserialize;

use crate::mapping::{Mapping, TableName};

/// A table as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Shape {
    pub schema: String,
    pub name: String,
    pub oid: i64,
    /// `r` a table, `p` a partitioned one; anything else is not an outbox.
    pub kind: String,
    /// `p` permanent, `u` unlogged, `t` temporary.
    pub persistence: String,
    pub has_row_security: bool,
    /// Rows, as the last ANALYZE saw them: 0 where it never did.
    pub rows: f64,
    /// Bytes of all heaps with what they keep outside of rows.
    pub bytes: i64,
    /// `RANGE (occurred_on_utc)`.
    pub partition_key: Option<String>,
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    /// The heaps: the table itself, or its partitions.
    pub leaves: Vec<Leaf>,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Column {
    pub name: String,
    /// As `format_type` says it.
    pub kind: String,
    pub is_required: bool,
    pub is_generated: bool,
    /// Filled from a sequence: an identity column, or a default of `nextval`.
    pub is_sequence: bool,
}

/// An index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Index {
    pub name: String,
    pub is_valid: bool,
    pub is_unique: bool,
    /// Columns of the key; expressions are None.
    pub keys: Vec<Option<String>>,
    /// Columns of INCLUDE.
    pub included: Vec<String>,
    pub predicate: Option<String>,
    pub method: String,
    pub definition: String,
}

/// One heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Leaf {
    pub schema: String,
    pub name: String,
    /// `FOR VALUES FROM (…) TO (…)`, `DEFAULT`; None: not a partition.
    pub bound: Option<String>,
}

impl Leaf {
    /// Its name.
    pub fn table(&self) -> TableName {
        TableName { schema: Some(self.schema.clone()), name: self.name.clone() }
    }
}

/// Reads a [`Shape`]: the quoted name is the parameter. No row: there is no such table.
pub(crate) const READ_SHAPE: &str = include_str!("../sql/admin/shape.sql");

impl Shape {
    /// Its name with its schema.
    pub fn table(&self) -> TableName {
        TableName { schema: Some(self.schema.clone()), name: self.name.clone() }
    }

    /// As `relay_failures.outbox` has it.
    pub fn label(&self) -> String {
        self.table().to_string()
    }

    /// The column `name`.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub fn is_partitioned(&self) -> bool {
        self.kind == "p"
    }

    /// An index that finds pending rows in order.
    pub fn serving_index(&self, mapping: &Mapping) -> Option<&Index> {
        self.indexes
            .iter()
            .filter(|index| index.serves(mapping))
            .min_by_key(|index| index.keys.len())
    }
}

impl Index {
    /// Whether it finds pending rows in their order, without reading processed ones.
    pub fn serves(&self, mapping: &Mapping) -> bool {
        let wanted = index_columns(mapping);
        let is_prefix = wanted.len() <= self.keys.len()
            && wanted.iter().zip(&self.keys).all(|(name, key)| key.as_deref() == Some(*name));
        let is_filtered = match (&mapping.pending_where, &mapping.processed, &self.predicate) {
            // PostgreSQL writes a condition of somebody's own in its own words: whether it is this one, it knows.
            (Some(_), _, predicate) => predicate.is_some(),
            (None, Some(processed), Some(predicate)) => is_null_test(predicate, processed),
            (None, None, None) => true,
            // It would read every processed row before the first pending one.
            (None, Some(_), None) | (None, None, Some(_)) => false,
        };
        self.is_valid && self.method == "btree" && is_prefix && is_filtered
    }

    /// Whether it holds a copy of `column`, so that a long value makes an INSERT fail.
    pub fn holds(&self, column: &str) -> bool {
        self.method == "btree"
            && (self.included.iter().any(|name| name == column)
                || self.keys.iter().any(|key| key.as_deref() == Some(column)))
    }

    /// Whether it says that `column` has no value twice (in one partition at least).
    pub fn makes_unique(&self, column: &str) -> bool {
        self.is_unique
            && self.predicate.is_none()
            && self.keys.first().and_then(Option::as_deref) == Some(column)
    }
}

/// What the relay's index is made of.
pub(crate) fn index_columns(mapping: &Mapping) -> Vec<&str> {
    let is_marked = mapping.processed.is_some() || mapping.pending_where.is_some();
    match (is_marked, mapping.order_by.is_empty()) {
        (true, true) => vec![mapping.id.as_str()],
        (_, _) => mapping.order_by.iter().map(String::as_str).collect(),
    }
}

/// Whether `predicate` is `(column IS NULL)` as PostgreSQL prints it.
fn is_null_test(predicate: &str, column: &str) -> bool {
    let inner =
        predicate.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(predicate);
    let Some(name) = inner.strip_suffix(" IS NULL") else { return false };
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\"") == column,
        None => name == column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Preset;

    fn index(keys: &[&str], included: &[&str], predicate: Option<&str>) -> Index {
        Index {
            name: "i".into(),
            is_valid: true,
            keys: keys.iter().map(|&key| Some(key.to_owned())).collect(),
            included: included.iter().map(|&name| name.to_owned()).collect(),
            predicate: predicate.map(str::to_owned),
            method: "btree".into(),
            ..Index::default()
        }
    }

    #[test]
    fn only_an_index_in_order_of_pending_rows_serves() {
        let mapping = Mapping::preset(Preset::OutboxMessages);
        let pending = Some("(processed_on_utc IS NULL)");
        let right = ["occurred_on_utc", "id"];
        assert!(index(&right, &[], pending).serves(&mapping));
        assert!(index(&right, &["content"], pending).serves(&mapping));
        assert!(!index(&["id", "occurred_on_utc"], &[], pending).serves(&mapping));
        assert!(!index(&right, &[], None).serves(&mapping));
        assert!(!index(&right, &[], Some("(error IS NULL)")).serves(&mapping));
        assert!(!Index { is_valid: false, ..index(&right, &[], pending) }.serves(&mapping));
    }

    #[test]
    fn a_predicate_is_known_with_any_name_in_it() {
        assert!(is_null_test("(\"Processed\"\"At\" IS NULL)", "Processed\"At"));
        assert!(!is_null_test("(a IS NULL) OR (b IS NULL)", "b"));
    }
}
