//! What the database says of a table: columns, indexes, engine.

use crate::mapping::{Mapping, TableName};

/// How values of a column are read, compared and given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Characters, and what is sent as such: enum, json, uuid.
    Text,
    /// Binary strings: read in hexadecimal, but for the body.
    Bytes,
    Integer,
    /// Decimals and floating point.
    Number,
    /// Dates and times; those without a zone count as UTC.
    Time,
    Bits,
}

impl Kind {
    /// Of `data_type` in `information_schema.columns`.
    pub fn of(data_type: &str) -> Self {
        match data_type {
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Self::Bytes,
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" => Self::Integer,
            "decimal" | "float" | "double" => Self::Number,
            "datetime" | "timestamp" | "date" | "time" => Self::Time,
            "bit" => Self::Bits,
            _ => Self::Text,
        }
    }
}

/// Character sets that are UTF-8, or part of it.
const READABLE: [&str; 4] = ["utf8mb4", "utf8mb3", "utf8", "ascii"];
/// Types that the binlog has in a form of their own.
const OWN_FORM: [&str; 4] = ["uuid", "inet6", "inet4", "geometry"];

/// Whether the relay cannot read values of the type (`time(2)`) from the binlog. The library reads negative times wrongly.
fn is_own_form(kind: &str) -> bool {
    kind == "time" || kind.starts_with("time(") || OWN_FORM.iter().any(|own| kind.starts_with(own))
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// As SQL has it: `varchar(255)`.
    pub type_text: String,
    pub is_nullable: bool,
    pub is_generated: bool,
    pub is_counted: bool,
    /// Its character set, where it has one.
    pub charset: Option<String>,
}

/// An index: its columns in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub name: String,
    pub is_unique: bool,
    pub columns: Vec<String>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// With its schema.
    pub name: TableName,
    pub engine: String,
    /// An estimate.
    pub rows: u64,
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
}

impl Shape {
    /// The column of that name. MySQL's column names do not tell capitals apart.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// The index that finds exactly one row by this column.
    pub fn unique_index(&self, column: &str) -> Option<&Index> {
        let of = |index: &&Index| index.is_unique && is_same(&index.columns, &[column]);
        self.indexes.iter().find(of)
    }

    /// The index that finds rows that wait, in their order.
    pub fn serving_index(&self, mapping: &Mapping) -> Option<&Index> {
        let wanted = wanted_index(mapping)?;
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        self.indexes.iter().find(|index| {
            index.columns.len() >= wanted.len() && is_same(&index.columns[..wanted.len()], &wanted)
        })
    }

    /// Columns of the mapping that the binlog has otherwise than as the text that the poll reads, and why.
    pub(crate) fn unreadable(&self, mapping: &Mapping) -> Vec<String> {
        let layout = mapping.layout();
        let columns = layout.columns.iter().filter_map(|name| self.column(name));
        let mut told = Vec::new();
        for column in columns {
            let kind = column.type_text.to_lowercase();
            if is_own_form(&kind) {
                told.push(format!("column {} is {kind}", column.name));
            }
            if let Some(charset) = &column.charset
                && !READABLE.contains(&charset.to_lowercase().as_str())
            {
                told.push(format!("column {} has the character set {charset}", column.name));
            }
        }
        told
    }

    /// Columns that the mapping names and the table lacks.
    pub fn missing(&self, mapping: &Mapping) -> Vec<String> {
        let mut wanted = mapping.layout().columns;
        wanted.extend(mapping.processed.clone());
        wanted.extend(mapping.error.clone());
        wanted.retain(|column| self.column(column).is_none());
        wanted
    }
}

fn is_same(columns: &[String], wanted: &[&str]) -> bool {
    columns.len() == wanted.len()
        && columns.iter().zip(wanted).all(|(column, wanted)| column.eq_ignore_ascii_case(wanted))
}

/// The columns of the index that rows are found by: the processed column, then those of the order. None: the rows come as
/// they lie in the table, or by a condition of somebody's own.
pub fn wanted_index(mapping: &Mapping) -> Option<Vec<String>> {
    if mapping.pending_where.is_some() {
        return None;
    }
    let columns: Vec<String> = mapping.processed.iter().chain(&mapping.order_by).cloned().collect();
    (!columns.is_empty()).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Preset;

    #[test]
    fn times_of_day_are_not_read_from_the_binlog_and_timestamps_are() {
        let own = ["time", "time(6)", "uuid", "inet6"];
        assert!(own.into_iter().all(is_own_form));
        let read = ["timestamp(6)", "datetime", "date", "varchar(8)"];
        assert!(!read.into_iter().any(is_own_form));
    }

    fn shape(indexes: &[(&str, bool, &[&str])]) -> Shape {
        let index = |(name, is_unique, columns): &(&str, bool, &[&str])| Index {
            name: (*name).into(),
            is_unique: *is_unique,
            columns: columns.iter().map(|&column| column.into()).collect(),
        };
        Shape {
            name: TableName { schema: Some("shop".into()), name: "outbox_messages".into() },
            engine: "InnoDB".into(),
            rows: 0,
            columns: Vec::new(),
            indexes: indexes.iter().map(index).collect(),
        }
    }

    #[test]
    fn rows_are_found_by_the_processed_column_and_then_in_order() {
        let mapping = Mapping::preset(Preset::OutboxMessages);
        let found = |indexes| {
            let shape = shape(indexes);
            shape.serving_index(&mapping).map(|index| index.name.clone())
        };
        assert_eq!(found(&[("a", false, &["processed_on_utc"])]), None);
        assert_eq!(found(&[("a", false, &["occurred_on_utc", "id", "processed_on_utc"])]), None);
        let whole: &[_] =
            &[("a", false, &["Processed_On_UTC", "occurred_on_utc", "id", "type"] as _)];
        assert_eq!(found(whole).as_deref(), Some("a"));
        assert_eq!(wanted_index(&Mapping::preset(Preset::Debezium)), None);
    }

    #[test]
    fn an_id_needs_a_unique_index_of_its_own() {
        let unique = |indexes| shape(indexes).unique_index("id").is_some();
        assert!(unique(&[("PRIMARY", true, &["ID"])]));
        assert!(!unique(&[("a", false, &["id"])]));
        assert!(!unique(&[("a", true, &["id", "type"])]));
    }
}
