//! How far the log is done, in a table beside the outbox: there is no replication slot that would know.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

use crate::error::Error;
use crate::io::mysql::connection::{database, params, text, words};
use crate::lsn::Lsn;
use crate::mysql::binlog::place::{Place, offset_of};
use crate::mysql::binlog::server::Binlog;
use crate::mysql::binlog::start::Recorded;
use crate::mysql::sql::{PLACES, PLACES_TABLE};
use crate::progress::{CommitTime, Partial, Reached};

/// Makes the table of places if it is not there.
pub(super) async fn prepare(conn: &mut Conn) -> Result<(), Error> {
    if conn.query_drop(format!("SELECT 1 FROM {PLACES} LIMIT 0")).await.is_ok() {
        return Ok(());
    }
    conn.query_drop(PLACES_TABLE).await.map_err(|error| {
        Error::setup(format!(
            "the table {PLACES} (how far the log is read) cannot be made: {}. Let somebody who may create tables run \
             `millrace relay install --source wal` once, and grant SELECT, INSERT and UPDATE on it",
            words(&error)
        ))
    })
}

/// What is written down of this relay.
pub(in crate::io::mysql) async fn recorded(
    conn: &mut Conn,
    slot: &str,
) -> Result<Option<Recorded>, Error> {
    let sql = format!(
        "SELECT outbox, is_begun, log_file, log_position, gtid, last_commit, partial_commit, partial_below \
         FROM {PLACES} WHERE slot = ?"
    );
    let failed = |error| database("reading the place", &error);
    let row: Option<Row> = conn.exec_first(sql, (slot,)).await.map_err(failed)?;
    let Some(mut row) = row else { return Ok(None) };
    let mut word = |at| text(row.take(at));
    let (outbox, begun) = (word(0).unwrap_or_default(), word(1).unwrap_or_default());
    let (file, offset) = (word(2).unwrap_or_default(), word(3).unwrap_or_default());
    let gtid = word(4).unwrap_or_default();
    let is_begun = begun != "0";
    let place = match is_begun {
        true => Place::default(),
        false => Place::of(&file, offset.parse().unwrap_or(0)).map_err(Error::setup)?,
    };
    let mut count = |at| word(at).and_then(|text| text.parse::<u64>().ok());
    let partial = match (count(6), count(7)) {
        (Some(commit), Some(below)) => Some(Partial { commit: Lsn(commit), below: Lsn(below) }),
        _ => None,
    };
    let last_commit = word(5).and_then(|text| text.parse().ok()).map(CommitTime);
    let reached = Reached { confirmed: place.at, last_commit, partial };
    Ok(Some(Recorded { outbox, is_begun, place, gtid, reached }))
}

/// The table is to be read. The time of the last commit stays.
pub(super) async fn begin(conn: &mut Conn, slot: &str, outbox: &str) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO {PLACES} (slot, outbox, is_begun, log_file, log_position, gtid, updated_at) \
         VALUES (?, ?, 1, '', 0, '', NOW(6)) \
         ON DUPLICATE KEY UPDATE outbox = VALUES(outbox), is_begun = 1, partial_commit = NULL, partial_below = NULL, \
           updated_at = VALUES(updated_at)"
    );
    conn.exec_drop(sql, (slot, outbox))
        .await
        .map_err(|error| database("writing the place down", &error))
}

/// The log is done up to here.
pub(super) async fn confirm(
    conn: &mut Conn,
    slot: &str,
    place: &Place,
    gtid: &str,
    reached: Reached,
) -> Result<(), Error> {
    let sql = format!(
        "UPDATE {PLACES} SET is_begun = 0, log_file = ?, log_position = ?, gtid = ?, \
           last_commit = COALESCE(?, last_commit), partial_commit = ?, partial_below = ?, updated_at = NOW(6) \
         WHERE slot = ?"
    );
    let or_null = |value: Option<Value>| value.unwrap_or(Value::NULL);
    let values = vec![
        Value::from(place.file_of(place.at)),
        Value::from(offset_of(place.at)),
        Value::from(gtid),
        or_null(reached.last_commit.map(|CommitTime(at)| at.into())),
        or_null(reached.partial.map(|partial| partial.commit.0.into())),
        or_null(reached.partial.map(|partial| partial.below.0.into())),
        Value::from(slot),
    ];
    let failed = |error| database("writing the place down", &error);
    conn.exec_drop(sql, params(values)).await.map_err(failed)?;
    match conn.affected_rows() {
        1 => Ok(()),
        _ => Err(Error::SlotLost {
            text: format!(
                "the row of slot `{slot}` in {PLACES} is gone: somebody deleted it. The next relay begins as a new one: \
                 it reads the table, and then the log"
            ),
        }),
    }
}

/// The ids before a place, as this server has them. None: it has no such place.
pub(super) async fn ids_before(conn: &mut Conn, place: &Place) -> Result<Option<String>, Error> {
    let values = vec![place.file_of(place.at).into(), offset_of(place.at).into()];
    let row: Option<Row> = conn
        .exec_first("SELECT BINLOG_GTID_POS(?, ?)", params(values))
        .await
        .map_err(|error| database("looking for the place in the binlog", &error))?;
    Ok(row.and_then(|mut row| text(row.take(0))))
}

/// Where the log ends, as the snapshot of this session's transaction has it.
pub(super) async fn end(conn: &mut Conn) -> Result<Place, Error> {
    let rows: Vec<Row> = conn
        .query("SHOW STATUS LIKE 'binlog_snapshot_%'")
        .await
        .map_err(|error| database("asking where the binlog ends", &error))?;
    let (mut file, mut offset) = (String::new(), 0);
    for mut row in rows {
        let name = text(row.take(0)).unwrap_or_default().to_lowercase();
        let value = text(row.take(1)).unwrap_or_default();
        match name.as_str() {
            "binlog_snapshot_file" => file = value,
            "binlog_snapshot_position" => offset = value.parse().unwrap_or(0),
            _ => (),
        }
    }
    Place::of(&file, offset)
        .map_err(|why| Error::setup(format!("asking where the binlog ends: {why}")))
}

/// What the server says of its binlog.
pub(in crate::io::mysql) async fn binlog(conn: &mut Conn) -> Result<Binlog, Error> {
    let mut binlog = Binlog::default();
    let sql = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('version', 'log_bin', 'binlog_format', 'binlog_row_image', \
               'binlog_row_metadata', 'log_bin_compress', 'binlog_expire_logs_seconds')";
    let failed = |error| database("looking at the binlog's settings", &error);
    let rows: Vec<Row> = conn.query(sql).await.map_err(failed)?;
    for mut row in rows {
        let name = text(row.take(0)).unwrap_or_default().to_lowercase();
        let value = text(row.take(1)).unwrap_or_default();
        let is_on = || value.eq_ignore_ascii_case("ON");
        match name.as_str() {
            "version" => binlog.version = value,
            "log_bin" => binlog.is_on = is_on(),
            "binlog_format" => binlog.format = value,
            "binlog_row_image" => binlog.row_image = value,
            "binlog_row_metadata" => binlog.row_metadata = value,
            "log_bin_compress" => binlog.is_compressed = is_on(),
            "binlog_expire_logs_seconds" => {
                binlog.expires_seconds = value.parse().ok().filter(|&seconds| seconds > 0);
            }
            _ => (),
        }
    }
    let grants: Vec<Row> = conn.query("SHOW GRANTS").await.map_err(failed)?;
    let mut grants = grants.into_iter().filter_map(|mut row| text(row.take(0)));
    let may_read = |grant: String| {
        let grant = grant.to_uppercase();
        grant.contains("REPLICATION SLAVE") || grant.starts_with("GRANT ALL PRIVILEGES ON *.* ")
    };
    // Of a role that is granted the server shows the grants, too.
    if !grants.any(may_read) {
        binlog.refused = Some("this user lacks REPLICATION SLAVE".into());
    }
    Ok(binlog)
}

/// Bytes of the log between two places, as far as they are in one file; of others the whole of them.
pub(in crate::io::mysql) async fn lag(conn: &mut Conn, from: &Place) -> Result<i64, Error> {
    let end = end(conn).await?;
    if end.at.0 >> 32 == from.at.0 >> 32 {
        return Ok(end.at.0.saturating_sub(from.at.0) as i64);
    }
    // How long the files between them are is told only to whoever may: the last alone counts, and 1 per file.
    let files = (end.at.0 >> 32).saturating_sub(from.at.0 >> 32) as i64;
    Ok(i64::from(offset_of(end.at)) + files)
}
