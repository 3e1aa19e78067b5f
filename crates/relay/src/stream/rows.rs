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
pub(super) struct Rows {
    table: TableName,
    layout: Layout,
    versions: Vec<Vec<Place>>,
    /// None: a table that is none of ours.
    relations: BTreeMap<u32, Option<Version>>,
    spans: Vec<Option<(usize, usize)>>,
    bytea: Vec<u8>,
}

impl Rows {
    /// For `table`, with its schema.
    pub(super) fn new(mapping: &Mapping, table: &TableName) -> Self {
        let layout = mapping.layout();
        let own = (0..layout.columns.len()).map(|index| Place { index, is_bytea: false }).collect();
        Self {
            table: table.clone(),
            layout,
            versions: vec![own],
            relations: BTreeMap::from([(OWN_RELATION, Some(Version::OWN))]),
            spans: Vec::new(),
            bytea: Vec::new(),
        }
    }

    /// Takes a change; if it is a row of the table, which columns it has.
    ///
    /// # Errors
    /// In words: it cannot be read, or the table has lost a column.
    pub(super) fn change(&mut self, data: &[u8]) -> Result<Option<Version>, String> {
        match pgoutput::decode(data).map_err(|error| error.to_string())? {
            Change::Insert { relation } => match self.relations.get(&relation) {
                Some(version) => Ok(*version),
                None => Err(format!("a row of table {relation}, which was never described")),
            },
            Change::Relation(relation) => self.relation(&relation).map(|()| None),
            Change::Other => Ok(None),
        }
    }

    fn relation(&mut self, relation: &Relation) -> Result<(), String> {
        let is_ours = self.table.name == relation.name
            && self.table.schema.as_ref().is_none_or(|schema| *schema == relation.schema);
        let version = if is_ours { Some(self.version(relation)?) } else { None };
        if relation.id != OWN_RELATION {
            self.relations.insert(relation.id, version);
        }
        Ok(())
    }

    fn version(&mut self, relation: &Relation) -> Result<Version, String> {
        let place = |column: &String| {
            let index = relation.columns.iter().position(|has| has.name == *column);
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

    /// Copies the columns of a row that [`Rows::change`] has taken.
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

    /// The columns that are read.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }
}
