//! The statements of the poll source for MariaDB and MySQL. Names are quoted here and nowhere else; values are parameters.
//!
//! A statement that names rows takes their ids as a list of a few fixed lengths (see [`list_length`]), so that each is
//! prepared once. It forces the index of the ids: a scan of the table would wait for rows that other workers have locked.

mod scan;
mod words;

use super::shape::{Kind, Shape};
use crate::config::{Config, OnDead, OnSuccess, Order};
use crate::mapping::{Mapping, TableName};
pub use words::{archive_of, constant, hex, list_length, literal, quoted, quoted_table};
use words::{bytes_literal, places};

/// Makes the table of failures; safe to repeat.
pub const COMPANION: &str = include_str!("companion.sql");
/// Where failures are kept: a table in the outbox' database.
pub const FAILURES: &str = "millrace_relay_failures";
/// Gives the table of failures of an older relay its order.
pub const ADD_POSITION: &str = "ALTER TABLE millrace_relay_failures ADD COLUMN position bigint";
/// Makes the table of places in the binlog; safe to repeat.
pub const PLACES_TABLE: &str = include_str!("places.sql");
/// How far relays have read the binlog: a table beside that of failures.
pub const PLACES: &str = "millrace_relay_places";
/// Longest wait of a row that was not charged, in seconds: what holds it back is somebody else's, and may end any time.
pub const UNCHARGED_WAIT_MAX_S: f64 = 60.0;

/// Which form of the fetch is meant; each is prepared once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fetch {
    /// Leave out what has failed and waits.
    pub without_parked: bool,
    /// Only these lanes.
    pub lanes: Option<Vec<u32>>,
}

/// Statements for one table under one configuration.
#[derive(Clone, Debug)]
pub struct Statements {
    shape: Shape,
    config: Config,
    /// The index of the ids.
    id_index: String,
}

impl Statements {
    /// For the table of `shape` as `config` maps it.
    ///
    /// # Errors
    /// No index finds a row by its id.
    pub fn new(config: &Config, shape: &Shape) -> Result<Self, String> {
        let id = &config.mapping.id;
        let index = shape.unique_index(id).ok_or_else(|| {
            format!(
                "column `{id}` of {} has no unique index of its own: make it the primary key, or add one \
                 (CREATE UNIQUE INDEX), because the relay finds rows by it",
                shape.name
            )
        })?;
        let id_index = quoted(&index.name);
        Ok(Self { shape: shape.clone(), config: config.clone(), id_index })
    }

    /// The table, as failures and locks name it.
    pub fn label(&self) -> String {
        self.shape.name.to_string()
    }

    /// The table's name.
    pub fn name(&self) -> &TableName {
        &self.shape.name
    }

    /// The table.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Which rows `o` are marked as confirmed, or as dead.
    pub fn is_marked(&self) -> String {
        let Mapping { processed, processed_value, .. } = &self.config.mapping;
        match (processed, processed_value) {
            (None, _) => "1 = 0".into(),
            (Some(processed), Some(_)) => {
                format!("o.{} = {}", quoted(processed), self.mark_value())
            }
            (Some(processed), None) => format!("o.{} IS NOT NULL", quoted(processed)),
        }
    }

    /// When a confirmed row `o` was marked, or else when it occurred. None: nothing says it.
    pub fn marked_at(&self) -> Option<String> {
        self.config.mapping.marked_at().map(|column| format!("o.{}", quoted(column)))
    }

    /// Deletes at most `batch` confirmed rows that were marked before the parameter, and have not failed.
    pub fn purge(&self, at: &str, batch: u32) -> String {
        let condition = format!(
            "{} AND {at} IS NOT NULL AND {at} < CAST(? AS DATETIME(6)) AND NOT EXISTS (SELECT 1 FROM {FAILURES} f \
             WHERE f.outbox = {} AND f.row_id = {})",
            self.is_marked(),
            bytes_literal(&self.label()),
            self.bytes_of(&self.id())
        );
        // A statement that deletes of one table has no other name for it.
        let own = format!("{}.", self.table());
        format!(
            "DELETE FROM {} WHERE {} LIMIT {batch}",
            self.table(),
            condition.replace("o.`", &format!("{own}`"))
        )
    }

    /// Deletes at most `batch` rows whose time is before the first parameter, and an hour before the second (microseconds
    /// since 2000). Whatever waits to be published from the log is there, or among the failures as a whole.
    pub(crate) fn purge_older(&self, occurred: &str, batch: u32) -> String {
        let at = quoted(occurred);
        format!(
            "DELETE FROM {} WHERE {at} < LEAST(CAST(? AS DATETIME(6)), \
               TIMESTAMP '2000-01-01 00:00:00' + INTERVAL ? MICROSECOND - INTERVAL 1 HOUR) LIMIT {batch}",
            self.table()
        )
    }

    fn table(&self) -> String {
        quoted_table(&self.shape.name)
    }

    fn kind(&self, column: &str) -> Kind {
        self.shape.column(column).map_or(Kind::Text, |column| column.kind)
    }

    /// A column of `o` as text; bytes in hexadecimal.
    fn text_of(&self, column: &str) -> String {
        let name = format!("o.{}", quoted(column));
        match self.kind(column) {
            Kind::Text => name,
            Kind::Bytes => format!("LOWER(HEX({name}))"),
            Kind::Bits => format!("CAST({name} + 0 AS CHAR)"),
            Kind::Integer | Kind::Number | Kind::Time => format!("CAST({name} AS CHAR)"),
        }
    }

    /// The same as bytes, as failures have it.
    fn bytes_of(&self, expression: &str) -> String {
        format!("CAST(CONVERT({expression} USING utf8mb4) AS BINARY)")
    }

    /// An id that is a parameter, to be compared with the column.
    fn id_place(&self) -> &'static str {
        match self.kind(&self.config.mapping.id) {
            Kind::Bytes => "UNHEX(?)",
            Kind::Text | Kind::Bits | Kind::Integer | Kind::Number | Kind::Time => "?",
        }
    }

    /// Rows whose ids are in a list of `count` parameters.
    fn is_one_of(&self, count: usize) -> String {
        let list = vec![self.id_place(); count].join(", ");
        format!("o.{} IN ({list})", quoted(&self.config.mapping.id))
    }

    /// The key of a row, as text: what its order is kept by.
    fn key(&self) -> String {
        let Mapping { id, key, .. } = &self.config.mapping;
        match (self.config.order, key) {
            (Order::Strict, _) => "''".into(),
            (Order::Key, Some(key)) => {
                format!("COALESCE({}, {}, '')", self.text_of(key), self.text_of(id))
            }
            (Order::None | Order::Key, _) => self.id(),
        }
    }

    fn id(&self) -> String {
        format!("COALESCE({}, '')", self.text_of(&self.config.mapping.id))
    }

    /// Which rows wait.
    pub fn pending(&self) -> String {
        pending(&self.config.mapping)
    }

    /// Reads the mapping's columns, and locks the rows.
    ///
    /// Without an order: the next rows that nobody has locked; the limit is the parameter.
    pub fn fetch(&self, form: &Fetch) -> String {
        let index = self.shape.serving_index(&self.config.mapping);
        let index = index.map(|index| format!(" FORCE INDEX ({})", quoted(&index.name)));
        format!(
            "SELECT {} FROM {} o{} WHERE {}{}{} LIMIT ? FOR UPDATE SKIP LOCKED",
            self.columns(),
            self.table(),
            index.unwrap_or_default(),
            self.pending(),
            self.limits(form),
            self.order_by()
        )
    }

    /// The ids of the next rows, without locks; the limit is the parameter. Under an order, rows are chosen first and
    /// locked then: a locking scan would wait for rows of other workers' lanes.
    pub fn choose(&self, form: &Fetch) -> String {
        format!(
            "SELECT {} FROM {} o WHERE {}{}{} LIMIT ?",
            self.id(),
            self.table(),
            self.pending(),
            self.limits(form),
            self.order_by()
        )
    }

    /// Reads and locks `count` chosen rows. A row that somebody holds is waited for: what follows it must not pass.
    pub fn lock(&self, count: usize) -> String {
        format!(
            "SELECT {} FROM {} o FORCE INDEX ({}) WHERE {} AND {}{} FOR UPDATE",
            self.columns(),
            self.table(),
            self.id_index,
            self.is_one_of(count),
            self.pending(),
            self.order_by()
        )
    }

    fn columns(&self) -> String {
        let layout = self.config.mapping.layout();
        let column = |(at, name): (usize, &String)| match self.kind(name) {
            // The body is as it is.
            Kind::Bytes if at == layout.payload => format!("o.{}", quoted(name)),
            _ => self.text_of(name),
        };
        let columns: Vec<String> = layout.columns.iter().enumerate().map(column).collect();
        columns.join(", ")
    }

    fn limits(&self, form: &Fetch) -> String {
        let mut sql = String::new();
        if form.without_parked {
            sql += &format!(" AND NOT EXISTS ({})", self.parked());
        }
        if let Some(lanes) = &form.lanes {
            let mask = self.config.lane_count() - 1;
            let lanes: Vec<String> = lanes.iter().map(u32::to_string).collect();
            let key = self.bytes_of(&self.key());
            sql += &format!(" AND CRC32({key}) & {mask} IN ({})", lanes.join(", "));
        }
        sql
    }

    fn order_by(&self) -> String {
        let order = self.config.mapping.order_by.iter();
        let order: Vec<String> = order.map(|name| format!("o.{}", quoted(name))).collect();
        if order.is_empty() { String::new() } else { format!(" ORDER BY {}", order.join(", ")) }
    }

    /// The failures that keep row `o` back.
    fn parked(&self) -> String {
        let by = match self.config.order {
            Order::None => format!("f.row_id = {}", self.bytes_of(&self.id())),
            Order::Key | Order::Strict => format!("f.row_key = {}", self.bytes_of(&self.key())),
        };
        // What a dead row means for others of its key is the policy's. It is no longer pending itself, unless the
        // database did not let it go.
        let dead = match (self.config.order, self.config.on_dead) {
            (Order::Key | Order::Strict, OnDead::Skip) => {
                format!("f.dead_at IS NOT NULL AND f.row_id = {}", self.bytes_of(&self.id()))
            }
            (Order::None, OnDead::Block | OnDead::Skip)
            | (Order::Key | Order::Strict, OnDead::Block) => "f.dead_at IS NOT NULL".into(),
        };
        format!(
            "SELECT 1 FROM {FAILURES} f WHERE f.outbox = {} AND {by} \
             AND (f.next_attempt_at > NOW(6) OR {dead})",
            bytes_literal(&self.label())
        )
    }

    /// Which of `count` rows have failed, and whether they wait.
    pub fn failed(&self, count: usize) -> String {
        format!(
            "SELECT row_id, dead_at IS NOT NULL OR COALESCE(next_attempt_at > NOW(6), 0) FROM {FAILURES} \
             WHERE outbox = {} AND row_id IN ({})",
            bytes_literal(&self.label()),
            places(count)
        )
    }

    /// Marks `count` confirmed rows, statement by statement; each takes their ids. The last says how many rows it has done.
    pub fn mark(&self, count: usize) -> Vec<String> {
        let (table, which) = (self.table(), self.is_one_of(count));
        let index = &self.id_index;
        let delete = format!("DELETE o FROM {table} o FORCE INDEX ({index}) WHERE {which}");
        match (self.config.on_success, &self.config.mapping.processed) {
            (OnSuccess::Update, Some(processed)) => vec![format!(
                "UPDATE {table} o FORCE INDEX ({index}) SET o.{} = {} WHERE {which}",
                quoted(processed),
                self.mark_value()
            )],
            (OnSuccess::Update | OnSuccess::Delete, _) => vec![delete],
            (OnSuccess::Archive, _) => vec![self.copy_to_archive(&which), delete],
        }
    }

    /// How many of `count` rows still wait though they are marked. None: nobody's own condition is to be asked.
    pub fn still_waiting(&self, count: usize) -> Option<String> {
        self.config.mapping.pending_where.as_ref()?;
        self.dead_stay_in_place().then(|| {
            format!(
                "SELECT COUNT(*) FROM {} o FORCE INDEX ({}) WHERE {} AND {}",
                self.table(),
                self.id_index,
                self.is_one_of(count),
                self.pending()
            )
        })
    }

    /// What the processed column of a confirmed row gets.
    fn mark_value(&self) -> String {
        let mapping = &self.config.mapping;
        let kind = mapping.processed.as_deref().map_or(Kind::Text, |name| self.kind(name));
        mapping.processed_value.as_deref().map_or("NOW(6)".into(), |value| constant(value, kind))
    }

    fn copy_to_archive(&self, which: &str) -> String {
        let columns = self.shape.columns.iter().filter(|column| !column.is_generated);
        let names: Vec<String> = columns.map(|column| quoted(&column.name)).collect();
        let processed = self.config.mapping.processed.as_deref().map(quoted);
        let value = |name: &String| match processed.as_ref() == Some(name) {
            true => self.mark_value(),
            false => format!("o.{name}"),
        };
        let values: Vec<String> = names.iter().map(value).collect();
        format!(
            "INSERT INTO {} ({}) SELECT {} FROM {} o FORCE INDEX ({}) WHERE {which}",
            quoted_table(&archive_of(&self.shape.name)),
            names.join(", "),
            values.join(", "),
            self.table(),
            self.id_index
        )
    }

    /// Attempts that `count` rows have behind them.
    pub fn attempts(&self, count: usize) -> String {
        format!(
            "SELECT row_id, attempts FROM {FAILURES} WHERE outbox = {} AND row_id IN ({})",
            bytes_literal(&self.label()),
            places(count)
        )
    }

    /// Writes one failure: id, key, attempts, reason, error, seconds until the next attempt (NULL: dead), twice.
    ///
    /// What is not charged waits twice as long as the last time, so that it does not come back at once for ever. Columns
    /// are set from left to right, so the next attempt comes before what it is computed from.
    pub fn fail(&self) -> String {
        let longest = self.config.attempts.backoff.longest.as_secs_f64().min(UNCHARGED_WAIT_MAX_S);
        let next = "NOW(6) + INTERVAL CAST(? * 1000000 AS SIGNED) MICROSECOND";
        format!(
            "INSERT INTO {FAILURES} (outbox, row_id, row_key, attempts, reason, error, first_failed_at, last_failed_at, \
               next_attempt_at, dead_at) \
             VALUES ({}, ?, ?, ?, ?, ?, NOW(6), NOW(6), {next}, IF(? IS NULL, NOW(6), NULL)) \
             ON DUPLICATE KEY UPDATE next_attempt_at = IF(VALUES(attempts) > attempts \
                 OR VALUES(next_attempt_at) IS NULL OR next_attempt_at IS NULL, VALUES(next_attempt_at), \
               VALUES(last_failed_at) + INTERVAL LEAST(GREATEST( \
                 TIMESTAMPDIFF(MICROSECOND, VALUES(last_failed_at), VALUES(next_attempt_at)), \
                 2 * TIMESTAMPDIFF(MICROSECOND, last_failed_at, next_attempt_at)), {}) MICROSECOND), \
               row_key = VALUES(row_key), attempts = VALUES(attempts), reason = VALUES(reason), error = VALUES(error), \
               last_failed_at = VALUES(last_failed_at), dead_at = VALUES(dead_at)",
            bytes_literal(&self.label()),
            (longest * 1e6) as u64
        )
    }

    /// Forgets failures of `count` rows.
    pub fn clear_failures(&self, count: usize) -> String {
        format!(
            "DELETE FROM {FAILURES} WHERE outbox = {} AND row_id IN ({})",
            bytes_literal(&self.label()),
            places(count)
        )
    }

    /// Whether dead rows stay in the table, marked, when they leave the outbox.
    pub fn dead_stay_in_place(&self) -> bool {
        self.config.on_success == OnSuccess::Update && self.config.mapping.processed.is_some()
    }

    /// Whether dead rows leave the outbox. With a mark of somebody's own they stay, and wait, where no other mark says
    /// that they are dead: they were not sent.
    pub fn moves_dead(&self) -> bool {
        let Mapping { processed_value, dead_value, .. } = &self.config.mapping;
        !self.dead_stay_in_place() || processed_value.is_none() || dead_value.is_some()
    }

    /// Marks a dead row in its place: its error, if there is a column for it, and its id.
    pub fn mark_dead(&self) -> String {
        let mapping = &self.config.mapping;
        let processed = mapping.processed.as_deref().unwrap_or_default();
        let dead = mapping.dead_value.as_deref();
        let mark = dead.map_or(self.mark_value(), |value| constant(value, self.kind(processed)));
        let error = mapping.error.as_deref().map(|error| format!(", o.{} = ?", quoted(error)));
        format!(
            "UPDATE {} o FORCE INDEX ({}) SET o.{} = {mark}{} WHERE {}",
            self.table(),
            self.id_index,
            quoted(processed),
            error.unwrap_or_default(),
            self.is_one_of(1)
        )
    }

    /// Every column of a row by its id, as text: what is kept of a dead row that leaves the table.
    pub fn whole_row(&self) -> String {
        let columns = self.shape.columns.iter().map(|column| self.text_of(&column.name));
        let columns: Vec<String> = columns.collect();
        format!(
            "SELECT {} FROM {} o FORCE INDEX ({}) WHERE {}",
            columns.join(", "),
            self.table(),
            self.id_index,
            self.is_one_of(1)
        )
    }

    /// Keeps such a row among the failures: the row as JSON, and its id.
    pub fn keep_row(&self) -> String {
        format!(
            "UPDATE {FAILURES} SET stored_row = ? WHERE outbox = {} AND row_id = ?",
            bytes_literal(&self.label())
        )
    }

    /// Deletes a row of the outbox by its id.
    pub fn delete_row(&self) -> String {
        format!(
            "DELETE o FROM {} o FORCE INDEX ({}) WHERE {}",
            self.table(),
            self.id_index,
            self.is_one_of(1)
        )
    }

    /// How many rows wait for another attempt, how many are dead.
    pub fn failures(&self) -> String {
        format!(
            "SELECT COALESCE(SUM(dead_at IS NULL), 0), COALESCE(SUM(dead_at IS NOT NULL), 0) FROM {FAILURES} \
             WHERE outbox = {}",
            bytes_literal(&self.label())
        )
    }

    /// Rows that wait (at most the parameter).
    pub fn backlog(&self) -> String {
        format!(
            "SELECT COUNT(*) FROM (SELECT 1 FROM {} o WHERE {} LIMIT ?) p",
            self.table(),
            self.pending()
        )
    }

    /// The age of the oldest row that waits, in seconds. None: no column says when a row occurred.
    pub fn oldest(&self) -> Option<String> {
        let occurred = self.config.mapping.occurred.as_deref()?;
        (self.kind(occurred) == Kind::Time).then(|| {
            let at = format!("o.{}", quoted(occurred));
            format!(
                "SELECT TIMESTAMPDIFF(MICROSECOND, {at}, NOW(6)) / 1000000 FROM {} o WHERE {} AND {at} IS NOT NULL \
                 ORDER BY {at} LIMIT 1",
                self.table(),
                self.pending()
            )
        })
    }
}

/// Which rows `o` wait to be published.
pub fn pending(mapping: &Mapping) -> String {
    match (&mapping.pending_where, &mapping.processed) {
        // A comment at its end ends with the line.
        (Some(condition), _) => format!("({condition}\n)"),
        (None, Some(processed)) => format!("o.{} IS NULL", quoted(processed)),
        (None, None) => "1 = 1".into(),
    }
}

#[cfg(test)]
mod tests;
