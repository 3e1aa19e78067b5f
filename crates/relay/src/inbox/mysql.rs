//! The inbox in MariaDB and MySQL: its statements, what a table needs to be one, and how a batch is cut into INSERTs.

use super::Row;
use crate::limits::{
    INSERT_BYTES, INSERT_ROWS_MAX, MESSAGE_ID_LETTERS_MAX, SHORT_STRING_BYTES_MAX,
};
use crate::mapping::TableName;
use crate::mysql::shape::Shape;
use crate::mysql::sql::{quoted, quoted_table};

/// Columns that a row is written into, in the order of the parameters.
const COLUMNS: [&str; 8] =
    ["consumer", "message_id", "key", "type", "headers", "properties", "payload", "error"];
/// Columns that recognise a message.
const ONCE: [&str; 2] = ["consumer", "message_id"];
/// Bytes of a packet that are not the texts and bytes of rows: lengths, kinds and NULLs of the parameters, at most.
const PARAMETER_BYTES: usize = 16;

/// Which of the two it is: they have other names for the collation that compares every byte, spaces at the end too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    MariaDb,
    Mysql,
}

impl Server {
    /// By what the server calls itself.
    pub fn of_version(said: &str) -> Self {
        if said.contains("MariaDB") { Self::MariaDb } else { Self::Mysql }
    }

    /// By the scheme of a URL, where nobody can be asked.
    pub fn of_url(url: &str) -> Self {
        if url.starts_with("mariadb://") { Self::MariaDb } else { Self::Mysql }
    }

    fn collation(self) -> &'static str {
        match self {
            Self::MariaDb => "utf8mb4_nopad_bin",
            Self::Mysql => "utf8mb4_0900_bin",
        }
    }
}

/// The statement that makes the table; safe to repeat, and by two at the same time.
pub fn install(table: &TableName, server: Server) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {} (
    seq              bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer         varchar(255) NOT NULL,
    message_id       varchar({MESSAGE_ID_LETTERS_MAX}) NOT NULL,
    `key`            varchar(1275),
    type             varchar(1275),
    headers          json,
    properties       json,
    payload          longblob NOT NULL,
    received_on_utc  datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    processed_on_utc datetime(6),
    error            text,
    UNIQUE KEY once (consumer, message_id),
    KEY waiting (consumer, processed_on_utc, seq)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {}",
        quoted_table(table),
        server.collation()
    )
}

/// Stores so many rows, eight parameters each. Whatever is there already stays as it is. A row that another unique
/// index has already is an error (the id would become NULL), because it would be taken for a message that comes again.
pub fn store(table: &TableName, rows: usize) -> String {
    let columns = COLUMNS.map(quoted).join(", ");
    let places = vec!["(?, ?, ?, ?, ?, ?, ?, ?)"; rows].join(", ");
    let same = ONCE.map(|name| format!("{0} = VALUES({0})", quoted(name))).join(" AND ");
    format!(
        "INSERT INTO {} ({columns}) VALUES {places} \
         ON DUPLICATE KEY UPDATE `message_id` = IF({same}, `message_id`, NULL)",
        quoted_table(table)
    )
}

/// Why the table is no inbox, in words. `collations`: of the columns that are texts.
pub fn problem(shape: &Shape, collations: &[(String, String)]) -> Option<String> {
    if let Some(name) = COLUMNS.into_iter().find(|name| shape.column(name).is_none()) {
        return Some(format!("it has no column {name}"));
    }
    if !shape.engine.eq_ignore_ascii_case("InnoDB") {
        return Some(format!("its engine {} has no transactions", shape.engine));
    }
    let recognises = |columns: &[String]| {
        columns.len() == ONCE.len()
            && ONCE.iter().all(|name| columns.iter().any(|column| column == name))
    };
    if !shape.indexes.iter().any(|index| index.is_unique && recognises(&index.columns)) {
        return Some("it has no unique index of consumer and message_id".into());
    }
    let is_exact =
        |collation: &str| ["_nopad_bin", "_0900_bin"].iter().any(|end| collation.ends_with(end));
    let inexact = collations
        .iter()
        .find(|(column, collation)| ONCE.contains(&column.as_str()) && !is_exact(collation));
    inexact.map(|(column, collation)| {
        format!(
            "its column {column} has the collation {collation}, in which names that differ are the same: {} on \
             MariaDB, {} on MySQL",
            Server::MariaDb.collation(),
            Server::Mysql.collation()
        )
    })
}

/// How many rows each INSERT of the batch has. Powers of two, so that few statements are prepared; and no more bytes than
/// the server takes at once.
///
/// # Errors
/// In words: a row is larger than that by itself.
pub fn pieces(rows: &[Row], packet_bytes: usize) -> Result<Vec<usize>, String> {
    let weight = |row: &Row| row.bytes() + SHORT_STRING_BYTES_MAX + COLUMNS.len() * PARAMETER_BYTES;
    let most = packet_bytes.min(INSERT_BYTES);
    let mut pieces = Vec::new();
    let mut rest = rows;
    while let Some(first) = rest.first() {
        if weight(first) > packet_bytes {
            return Err(format!(
                "the message has {} bytes, and the server takes {packet_bytes} bytes at once: raise max_allowed_packet",
                first.bytes()
            ));
        }
        let mut bytes = 0;
        let fits = |row: &&Row| {
            bytes += weight(row);
            bytes <= most
        };
        let count = rest.iter().take(INSERT_ROWS_MAX).take_while(fits).count().max(1);
        let count = 1 << count.ilog2();
        pieces.push(count);
        rest = &rest[count..];
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests;
