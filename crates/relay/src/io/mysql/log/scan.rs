//! Reads the outbox table itself: once, as it was at the place where the reading of the log begins.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

use super::places;
use crate::error::Error;
use crate::io::mysql::connection::{Database, cell, database, params};
use crate::limits::FIRST_ROWS;
use crate::mysql::binlog::place::Place;
use crate::mysql::sql::Statements;
use crate::pgoutput::encode_row;
use crate::stream::Input;

/// Rows read at once at most, when their size is known; bytes of them.
const ROWS: usize = 500;
const BYTES: usize = 4 << 20;

/// A reading of the table, with a connection of its own: the snapshot is its transaction.
pub(super) struct Scan {
    conn: Conn,
    statements: Statements,
    since: Option<i64>,
    /// Values of the order of the last row that was read.
    last: Option<Vec<Value>>,
    rows: usize,
}

impl Scan {
    /// Begins: rows that are not processed; with `since` (microseconds since 2000), of those only what is newer. Says where
    /// the log ended for this snapshot.
    pub(super) async fn begin(
        at: &Database,
        statements: Statements,
        since: Option<i64>,
    ) -> Result<(Self, Place), Error> {
        let mut conn = at.connect().await?;
        for sql in [
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        ] {
            conn.query_drop(sql)
                .await
                .map_err(|error| database("reading the outbox table", &error))?;
        }
        let place = places::end(&mut conn).await?;
        Ok((Self { conn, statements, since, last: None, rows: FIRST_ROWS }, place))
    }

    /// The next rows; none: that was all.
    pub(super) async fn next(mut self) -> Result<(Self, Vec<Input>), Error> {
        let sql = self.statements.scan(self.last.is_none(), self.since, self.rows);
        let mut values = self.last.clone().unwrap_or_default();
        if let Some(first) = values.first().cloned() {
            values.insert(0, first);
        }
        let rows: Vec<Row> = self
            .conn
            .exec(sql, params(values))
            .await
            .map_err(|error| database("reading the outbox table", &error))?;
        let order = self.statements.scan_order().len();
        let count = rows.len();
        let mut bytes = 0;
        let mut inputs = Vec::with_capacity(count);
        for row in rows {
            let mut values = row.unwrap();
            let last = values.split_off(values.len() - order);
            let cells: Vec<Option<Vec<u8>>> =
                values.into_iter().map(|value| cell(Some(value))).collect();
            let encoded = encode_row(cells.iter().map(Option::as_deref));
            bytes += encoded.len();
            inputs.push(Input::Scanned(encoded));
            self.last = Some(last);
        }
        if let Some(each) = bytes.checked_div(count) {
            // As the poll's fetch: the next rows may be larger than all so far.
            self.rows = (BYTES / each.max(1)).clamp(1, ROWS.min(8 * count));
        }
        Ok((self, inputs))
    }
}
