//! The table in MariaDB or MySQL: a batch is a transaction of a few INSERTs of many rows.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as MyError, Value};
use tokio::sync::Mutex;

use super::{Failed, no_inbox, no_table};
use crate::error::Error;
use crate::inbox::mysql::{Server, install, pieces, problem, store};
use crate::inbox::{Config, Row};
use crate::io::mysql::connection::{Database, database, is_of_a_row, params, words};
use crate::io::mysql::table::{read_shape, server_version};
use crate::mapping::TableName;
use crate::mysql::version;

/// How often a batch is tried that another transaction is in the way of.
const ATTEMPTS_MAX: u32 = 10;
/// A deadlock, and a lock that was waited for too long.
const CONFLICTS: [u16; 2] = [1213, 1205];
/// A text that is too long is an error, not the beginning of a text.
const STRICT: &str = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')";

/// A connection, which one batch has at a time.
#[derive(Clone)]
pub(in crate::io::inbox) struct Mysql {
    conn: Arc<Mutex<Conn>>,
    table: TableName,
    consumer: String,
    /// The most that the server takes at once.
    packet_bytes: usize,
}

impl Mysql {
    /// Connects, makes the table if that is wanted, and looks whether it is an inbox.
    pub(super) async fn open(place: &Database, config: &Config) -> Result<Self, Error> {
        let mut conn = place.connect().await?;
        let told = server_version(&mut conn).await?;
        version::check(&told).map_err(Error::setup)?;
        let failed = |doing: &str, error: MyError| database(doing, &error);
        conn.query_drop(STRICT).await.map_err(|error| failed("setting up", error))?;
        if config.install {
            let sql = install(&config.table, Server::of_version(&told));
            let making = format!("making table {}", config.table);
            conn.query_drop(sql).await.map_err(|error| failed(&making, error))?;
        }
        let shape = read_shape(&mut conn, place, &config.table).await?;
        let shape = shape.ok_or_else(|| no_table(config))?;
        let collations = collations(&mut conn, place, &config.table).await?;
        if let Some(why) = problem(&shape, &collations) {
            return Err(no_inbox(config, &why));
        }
        // Whether this user may store is known now, and not with the first message.
        let sql = store(&config.table, 1);
        conn.prep(sql)
            .await
            .map_err(|error| failed(&format!("preparing for table {}", config.table), error))?;
        let packet: Option<u64> = conn
            .query_first("SELECT @@max_allowed_packet")
            .await
            .map_err(|error| failed("asking for max_allowed_packet", error))?;
        Ok(Self {
            conn: Arc::new(Mutex::new(conn)),
            table: config.table.clone(),
            consumer: config.consumer.clone(),
            packet_bytes: packet.map_or(usize::MAX, |bytes| bytes as usize),
        })
    }

    /// Stores the rows; says how many were not there before. When this says so, they are committed.
    pub(super) async fn insert(&self, rows: &[Row]) -> Result<u64, Failed> {
        let pieces = pieces(rows, self.packet_bytes).map_err(|why| Failed::Refused { why })?;
        let mut conn = self.conn.lock().await;
        let mut attempt = 1;
        loop {
            let error = match self.attempt(&mut conn, rows, &pieces).await {
                Ok(new) => return Ok(new),
                Err(error) => error,
            };
            // What the batch has stored until then must not be part of the next.
            let undone = conn.query_drop("ROLLBACK").await;
            if let Err(lost) = undone {
                return Err(Failed::Lost { why: words(&lost) });
            }
            if !is_conflict(&error) || attempt == ATTEMPTS_MAX {
                let why = words(&error);
                let is_refused = is_of_a_row(&error);
                return Err(if is_refused {
                    Failed::Refused { why }
                } else {
                    Failed::Lost { why }
                });
            }
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        conn: &mut Conn,
        rows: &[Row],
        pieces: &[usize],
    ) -> Result<u64, MyError> {
        conn.query_drop("START TRANSACTION").await?;
        let (mut rest, mut new) = (rows, 0);
        for &count in pieces {
            let (piece, others) = rest.split_at(count);
            let values = piece.iter().flat_map(|row| self.values(row)).collect();
            conn.exec_drop(store(&self.table, count), params(values)).await?;
            new += conn.affected_rows();
            rest = others;
        }
        assert!(rest.is_empty(), "every row of the batch is in one piece");
        conn.query_drop("COMMIT").await?;
        Ok(new)
    }

    fn values(&self, row: &Row) -> [Value; 8] {
        [
            Value::from(&self.consumer),
            Value::from(&row.message_id),
            Value::from(row.key.as_ref()),
            Value::from(row.kind.as_ref()),
            Value::from(row.headers.as_ref()),
            Value::from(row.properties.as_ref()),
            Value::from(&row.payload[..]),
            Value::from(row.error.as_ref()),
        ]
    }
}

fn is_conflict(error: &MyError) -> bool {
    matches!(error, MyError::Server(server) if CONFLICTS.contains(&server.code))
}

/// How the columns of the table compare: name, and collation. Columns of bytes have none.
async fn collations(
    conn: &mut Conn,
    at: &Database,
    table: &TableName,
) -> Result<Vec<(String, String)>, Error> {
    let schema = table.schema.clone().unwrap_or_else(|| at.schema().to_owned());
    let sql = "SELECT column_name, collation_name FROM information_schema.columns \
               WHERE table_schema = ? AND table_name = ? AND collation_name IS NOT NULL";
    let asked = conn.exec(sql, (schema, table.name.clone())).await;
    asked.map_err(|error| database("looking at the table", &error))
}
