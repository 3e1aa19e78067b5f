//! Events of the binlog, as far as a relay needs them. Total over any bytes that the library hands over.

use std::collections::BTreeMap;

use bytes::Bytes;
use mysql_common::binlog::consts::EventType;
use mysql_common::binlog::events::{
    Event as Raw, QueryEvent, RotateEvent, TableMapEvent, WriteRowsEventV1,
};

use super::gtid::Gtid;
use super::table::Table;
use crate::error::Error;
use crate::mapping::{Layout, TableName};
use crate::progress::CommitTime;

/// MariaDB's own events (`Log_event_type` in its sources).
const MARIADB_GTID: u8 = 162;
/// A statement, and rows that were put into a table, in two versions.
const MARIADB_COMPRESSED: [u8; 3] = [165, 166, 169];
const XA_PREPARE: u8 = 38;
/// Flags of a GTID event: the group is one statement alone.
const STANDALONE: u8 = 1;
/// A flag of any event: it is in no file.
const ARTIFICIAL: u16 = 0x20;
/// Tables that are remembered; one has a new number after each change, and after each opening.
const TABLES_MAX: usize = 4096;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Where it is in its file, and the offset behind it; none: the server has made it up for its reader.
    pub(crate) place: Option<(u32, u32)>,
    pub(crate) at: Option<CommitTime>,
    pub(crate) what: What,
}

/// What it says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A transaction begins.
    Begin {
        gtid: Gtid,
        is_standalone: bool,
    },
    /// Rows were put into the outbox.
    Rows(Vec<Bytes>),
    /// The transaction is committed.
    Commit,
    /// The first half of a commit by XA.
    Prepared,
    Query(String),
    /// The log goes on in this file, from this offset.
    Rotate {
        file: String,
        offset: u32,
    },
    /// Rows that would have to be unpacked.
    Compressed,
    /// The server could not write what happened.
    Incident,
    Other,
}

/// Reads events; knows how the outbox looked when its rows were written.
#[derive(Debug)]
pub(crate) struct Reader {
    table: TableName,
    layout: Layout,
    /// By the number that rows name: none, another table.
    tables: BTreeMap<u64, Option<Result<Table, String>>>,
    /// The next event is the log's first, and ends in a checksum that the library has left there: what tells of checksums
    /// comes behind it.
    ends_in_checksum: bool,
}

/// Bytes of an event's checksum.
const CHECKSUM_BYTES: usize = 4;

impl Reader {
    /// For `table` with its schema. `has_checksums`: the server writes a checksum behind each event.
    pub(crate) fn new(table: &TableName, layout: Layout, has_checksums: bool) -> Self {
        let (table, tables) = (table.clone(), BTreeMap::new());
        Self { table, layout, tables, ends_in_checksum: has_checksums }
    }

    /// Reads an event.
    ///
    /// # Errors
    /// It says something of the outbox that cannot be read.
    pub(crate) fn read(&mut self, raw: &Raw) -> Result<Event, Error> {
        let header = raw.header();
        let is_made_up = header.flags_raw() & ARTIFICIAL != 0
            || header.event_type_raw() == EventType::HEARTBEAT_EVENT as u8;
        let (end, size) = (header.log_pos(), header.event_size());
        let place = (end > 0 && !is_made_up).then(|| (end.wrapping_sub(size), end));
        let at = Some(header.timestamp()).filter(|&at| at > 0);
        let at = at.map(|at| CommitTime::of_unix(at.into()));
        let what = self.what(raw, header.event_type_raw()).map_err(|why| {
            Error::setup(format!(
                "the binlog cannot be read before offset {}: {why}",
                header.log_pos()
            ))
        })?;
        Ok(Event { place, at, what })
    }

    fn what(&mut self, raw: &Raw, kind: u8) -> Result<What, String> {
        let bad = |error: std::io::Error| error.to_string();
        let ends_in_checksum = std::mem::take(&mut self.ends_in_checksum);
        Ok(match kind {
            MARIADB_GTID => begin(raw.data(), raw.header().server_id())?,
            XA_PREPARE => What::Prepared,
            kind if MARIADB_COMPRESSED.contains(&kind) => What::Compressed,
            kind => match EventType::try_from(kind) {
                Ok(EventType::XID_EVENT) => What::Commit,
                Ok(EventType::QUERY_EVENT) => {
                    let query = raw.read_event::<QueryEvent<'_>>().map_err(bad)?;
                    What::Query(query.query().into_owned())
                }
                Ok(EventType::ROTATE_EVENT) => {
                    let rotate = raw.read_event::<RotateEvent<'_>>().map_err(bad)?;
                    let offset = u32::try_from(rotate.position());
                    let offset = offset.map_err(|_| "a file begins behind 4 GB".to_owned())?;
                    let name = rotate.name_raw();
                    let behind = if ends_in_checksum { CHECKSUM_BYTES } else { 0 };
                    let name = &name[..name.len().saturating_sub(behind)];
                    What::Rotate { file: String::from_utf8_lossy(name).into_owned(), offset }
                }
                Ok(EventType::TABLE_MAP_EVENT) => {
                    self.describe(&raw.read_event::<TableMapEvent<'_>>().map_err(bad)?);
                    What::Other
                }
                Ok(EventType::WRITE_ROWS_EVENT_V1) => {
                    self.rows(&raw.read_event::<WriteRowsEventV1<'_>>().map_err(bad)?)?
                }
                Ok(EventType::WRITE_ROWS_EVENT) => {
                    return Err(
                        "its rows are in a form of MySQL, and the relay reads MariaDB's".into()
                    );
                }
                Ok(EventType::INCIDENT_EVENT) => What::Incident,
                Ok(_) | Err(_) => What::Other,
            },
        })
    }

    fn describe(&mut self, map: &TableMapEvent<'_>) {
        let is_ours = map.table_name().eq_ignore_ascii_case(&self.table.name)
            && self.table.schema.as_ref().is_none_or(|has| map.database_name() == has.as_str());
        if self.tables.len() >= TABLES_MAX {
            // Each transaction describes its tables again.
            self.tables.clear();
        }
        let table = is_ours.then(|| Table::read(map, &self.layout));
        self.tables.insert(map.table_id(), table);
    }

    fn rows(&self, event: &WriteRowsEventV1<'_>) -> Result<What, String> {
        match self.tables.get(&event.table_id()) {
            Some(Some(table)) => Ok(What::Rows(table.as_ref().map_err(Clone::clone)?.rows(event)?)),
            Some(None) => Ok(What::Other),
            None => Err(format!("rows of table {}, which was never described", event.table_id())),
        }
    }
}

/// MariaDB's GTID event: a sequence, a domain, flags. The server is in the header.
fn begin(data: &[u8], server: u32) -> Result<What, String> {
    let (Some(sequence), Some(domain), Some(flags)) =
        (data.first_chunk::<8>(), data.get(8..12), data.get(12))
    else {
        return Err("the id of a transaction ends too early".into());
    };
    let domain = domain.iter().rev().fold(0_u32, |all, &byte| all << 8 | u32::from(byte));
    let sequence = u64::from_le_bytes(*sequence);
    let gtid = Gtid { domain, server, sequence };
    Ok(What::Begin { gtid, is_standalone: flags & STANDALONE != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transactions_id_is_read_with_its_flags_and_refused_when_it_is_cut_short() {
        let data = [5, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let gtid = Gtid { domain: 263, server: 3, sequence: 5 };
        assert_eq!(begin(&data, 3), Ok(What::Begin { gtid, is_standalone: true }));
        for end in 0..13 {
            assert!(begin(&data[..end], 3).is_err());
        }
    }
}
