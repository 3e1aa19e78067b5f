//! From a change to the columns of the mapping.
//!
//! A row stays in the bytes it came in, shared with the replication client's buffer: its columns are copied out only
//! when its message is made, into one buffer that is used for all. So a row costs no allocation here.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::fields::Fields;
use crate::mapping::{Layout, Mapping, TableName};
use crate::pgoutput::{self, Change, OWN_RELATION, Relation};

/// Which columns of a table's rows are those of the layout: the table may change while rows of before are unsettled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u32);

impl Version {
    /// Of rows that were made by [`pgoutput::encode_row`].
    pub(super) const OWN: Self = Self(0);
}

/// A column of the layout in a table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    index: usize,
    is_bytea: bool,
}

/// Reads changes of one table.
#[derive(Debug)]
pub(super) struct Decoder {
    table: TableName,
    layout: Layout,
    versions: Vec<Vec<Place>>,
    /// None: a table that is none of ours. An error is told once a row of it comes.
    relations: BTreeMap<u32, Result<Option<Version>, String>>,
    /// The table's columns as they were at the start, where their places say which is which: none was ever dropped.
    known: Vec<String>,
    spans: Vec<Option<(usize, usize)>>,
    bytea: Vec<u8>,
}

impl Decoder {
    /// For `table`, with its schema.
    pub(super) fn new(mapping: &Mapping, table: &TableName) -> Self {
        let layout = mapping.layout();
        let own = (0..layout.columns.len()).map(|index| Place { index, is_bytea: false }).collect();
        Self {
            table: table.clone(),
            layout,
            versions: vec![own],
            relations: BTreeMap::from([(OWN_RELATION, Ok(Some(Version::OWN)))]),
            known: Vec::new(),
            spans: Vec::new(),
            bytea: Vec::new(),
        }
    }

    /// The table's columns, in their order, are these.
    pub(super) fn know(&mut self, columns: impl Iterator<Item = String>) {
        self.known = columns.collect();
    }

    /// Takes a change; if it is a row of the table, which columns it has.
    ///
    /// # Errors
    /// In words: it cannot be read, or the table has lost a column.
    pub(super) fn change(&mut self, data: &[u8]) -> Result<Option<Version>, String> {
        match pgoutput::decode(data).map_err(|error| error.to_string())? {
            Change::Insert { relation } => match self.relations.get(&relation) {
                Some(version) => version.clone(),
                None => Err(format!("a row of table {relation}, which was never described")),
            },
            Change::Relation(relation) => {
                self.relation(&relation);
                Ok(None)
            }
            Change::Other => Ok(None),
        }
    }

    fn relation(&mut self, relation: &Relation) {
        let is_ours = self.table.name == relation.name
            && self.table.schema.as_ref().is_none_or(|schema| *schema == relation.schema);
        let version = if is_ours { self.version(relation).map(Some) } else { Ok(None) };
        if relation.id != OWN_RELATION {
            self.relations.insert(relation.id, version);
        }
    }

    /// Where the column is that was called `column` at the start: a table that never lost a column has each in its place
    /// for ever, and this one has as many as then. So it was renamed for a while.
    fn renamed(&self, relation: &Relation, column: &str) -> Option<usize> {
        let index = self.known.iter().position(|known| known == column)?;
        let is_new = |name: &String| !self.known.contains(name);
        let is_same = self.known.len() == relation.columns.len();
        (is_same && is_new(&relation.columns[index].name)).then_some(index)
    }

    fn version(&mut self, relation: &Relation) -> Result<Version, String> {
        let place = |column: &String| {
            let index = relation.columns.iter().position(|has| has.name == *column);
            let index = index.or_else(|| self.renamed(relation, column));
            let index = index.ok_or_else(|| {
                format!(
                    "rows of {} come without column `{column}`: it was dropped or renamed, or the \
                     publication leaves it out. Mend the mapping and start again, or the publication and `millrace relay \
                     resync`",
                    self.table
                )
            })?;
            Ok(Place { index, is_bytea: relation.columns[index].is_bytea })
        };
        let places: Vec<Place> =
            self.layout.columns.iter().map(place).collect::<Result<_, String>>()?;
        let known = self.versions.iter().position(|known| *known == places);
        let index = known.unwrap_or_else(|| {
            self.versions.push(places);
            self.versions.len() - 1
        });
        Ok(Version(index as u32))
    }

    /// Copies the columns of a row that [`Decoder::change`] has taken.
    pub(super) fn read(&mut self, version: Version, row: &[u8], out: &mut Fields) {
        self.spans.clear();
        self.spans.extend(pgoutput::columns(row));
        out.clear();
        for place in &self.versions[version.0 as usize] {
            let span = self.spans.get(place.index).copied().flatten();
            let value = span.map(|(start, end)| &row[start..end]);
            match value {
                Some(text) if place.is_bytea => {
                    self.bytea.clear();
                    pgoutput::push_bytea(&mut self.bytea, text);
                    out.push(Some(&self.bytea));
                }
                value => out.push(value),
            }
        }
    }

    /// The value of one column of the layout, still where it came if it came as it is.
    pub(super) fn value(&self, version: Version, row: &Bytes, column: usize) -> Option<Bytes> {
        let place = self.versions[version.0 as usize].get(column)?;
        let (start, end) = pgoutput::columns(row).nth(place.index)??;
        if place.is_bytea {
            let mut bytes = Vec::new();
            pgoutput::push_bytea(&mut bytes, &row[start..end]);
            return Some(bytes.into());
        }
        Some(row.slice(start..end))
    }

    /// How many bytes the value of one column has as it came: of bytea, half of its digits.
    pub(super) fn byte_count(&self, version: Version, row: &[u8], column: usize) -> usize {
        let Some(place) = self.versions[version.0 as usize].get(column) else { return 0 };
        let span = pgoutput::columns(row).nth(place.index).flatten();
        let count = span.map_or(0, |(start, end)| end - start);
        if place.is_bytea { count.saturating_sub(2) / 2 } else { count }
    }

    /// The columns that are read.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Preset;
    use crate::pgoutput::encode_row;

    const COLUMNS: [&str; 4] = ["id", "content", "type", "occurred_on_utc"];

    fn rows() -> Decoder {
        let mapping = Mapping::preset(Preset::OutboxMessages);
        Decoder::new(&mapping, &mapping.table)
    }

    /// The table as pgoutput describes it, under the number 7.
    fn described(columns: &[&str]) -> Vec<u8> {
        let mut message = b"R\x00\x00\x00\x07public\0outbox_messages\0d".to_vec();
        message.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for column in columns {
            message.push(0);
            message.extend_from_slice(column.as_bytes());
            message.extend_from_slice(b"\0\x00\x00\x00\x19\xff\xff\xff\xff");
        }
        message
    }

    fn insert() -> Vec<u8> {
        let mut row = encode_row([Some(&b"1"[..]), Some(b"{}"), Some(b"t"), None]).to_vec();
        row[1..5].copy_from_slice(&7_u32.to_be_bytes());
        row
    }

    #[test]
    fn a_column_that_was_renamed_for_a_while_is_known_by_its_place() {
        let mut rows = rows();
        rows.know(COLUMNS.iter().map(|&name| name.to_owned()));
        let described = described(&["id", "payload", "type", "occurred_on_utc"]);
        assert_eq!(rows.change(&described), Ok(None));
        let row = insert();
        let version = rows.change(&row).expect("it is read").expect("it is ours");
        let mut fields = Fields::default();
        rows.read(version, &row, &mut fields);
        assert_eq!(
            (fields.text(0), fields.text(1), fields.text(2)),
            (Some("1"), Some("{}"), Some("t"))
        );
        assert_eq!(rows.byte_count(version, &row, 1), 2);
    }

    #[test]
    fn a_column_that_is_missing_stops_nobody_before_a_row_comes_without_it() {
        // One less than there were; the same number, but of a table that has lost one before; two that changed places.
        let cases = [
            (&COLUMNS[..], &["id", "type", "occurred_on_utc"][..]),
            (&[], &["id", "payload", "type", "occurred_on_utc"]),
            (&COLUMNS, &["id", "type", "payload", "occurred_on_utc"]),
        ];
        for (known, now) in cases {
            let mut rows = rows();
            rows.know(known.iter().map(|&name| name.to_owned()));
            assert_eq!(rows.change(&described(now)), Ok(None), "it may come back");
            assert!(rows.change(&insert()).is_err_and(|why| why.contains("`content`")));
            assert_eq!(rows.change(&described(&COLUMNS)), Ok(None));
            assert!(rows.change(&insert()).is_ok_and(|version| version.is_some()));
        }
    }
}
