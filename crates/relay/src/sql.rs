//! The statements of the poll source. Names are quoted here and nowhere else; values are parameters, always.

use crate::config::{Config, OnDead, OnSuccess, Order};
use crate::mapping::{Mapping, TableName};

/// Longest wait of a row that was not charged, in seconds: what holds it back is somebody else's, and may end any time.
const UNCHARGED_WAIT_MAX_S: f64 = 60.0;

/// What is said of a column by which polling could not find a row again.
pub const BYTES: &str = "is bytea, and rows are told apart and put in order by text: make it uuid or text, or name another \
    column";

/// Makes the schema `millrace` and its tables; safe to repeat.
pub const COMPANION: &str = include_str!("sql/companion.sql");

/// `name` as an identifier.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as a string constant, whatever `standard_conforming_strings` says.
pub fn literal(text: &str) -> String {
    if text.contains('\\') {
        return format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    }
    format!("'{}'", text.replace('\'', "''"))
}

impl TableName {
    /// The name as SQL has it.
    pub fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.name)),
            None => quoted(&self.name),
        }
    }
}

impl Mapping {
    /// Which rows `row` wait to be published, as a condition.
    pub(crate) fn is_pending(&self, row: &str) -> String {
        match (&self.pending_where, &self.processed) {
            // A comment at its end ends with the line.
            (Some(condition), _) => format!("({condition}\n)"),
            (None, Some(processed)) => format!("{row}.{} IS NULL", quoted(processed)),
            (None, None) => "true".into(),
        }
    }

    /// Which rows `row` are marked as confirmed. None: nothing marks them.
    pub(crate) fn is_marked(&self, row: &str) -> Option<String> {
        let processed = quoted(self.processed.as_ref()?);
        Some(match &self.processed_value {
            Some(value) => format!("{row}.{processed} = {}", literal(value)),
            None => format!("{row}.{processed} IS NOT NULL"),
        })
    }

    /// When a confirmed row was marked, or else when it occurred: its column.
    pub(crate) fn marked_at(&self) -> Option<&String> {
        match &self.processed_value {
            Some(_) => self.occurred.as_ref(),
            None => self.processed.as_ref(),
        }
    }

    /// What the processed column of a confirmed row gets.
    fn mark(&self) -> String {
        self.processed_value.as_deref().map_or("statement_timestamp()".into(), literal)
    }
}

/// What the database says of the outbox table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// With its schema, as the search path found it.
    pub name: TableName,
    pub oid: u32,
    /// Each column and its type.
    pub columns: Vec<(String, String)>,
    /// One heap: its rows can be named by their place (ctid).
    pub is_plain: bool,
    /// A column was dropped from it at some time.
    pub has_dropped: bool,
    /// A view: its rows have no place.
    pub is_view: bool,
}

impl Table {
    /// As `relay_failures.outbox` has it.
    pub fn label(&self) -> String {
        self.name.to_string()
    }

    /// A column that polling compares as text and reads as bytes: a row would not be found by it again.
    pub fn compared_bytes<'a>(&self, config: &'a Config) -> Option<&'a str> {
        config.compared().find(|column| self.type_of(column) == "bytea")
    }

    fn type_of(&self, column: &str) -> &str {
        let found = self.columns.iter().find(|(name, _)| name == column);
        found.map_or("text", |(_, kind)| kind)
    }
}

/// Which form of the fetch is meant; each is prepared once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fetch {
    /// Begin behind a row: its order columns (or its place, if there are none) are the first parameters.
    pub after: bool,
    /// Leave out what has failed and waits.
    pub without_parked: bool,
    /// Only some lanes: an int4 array, the last parameter.
    pub lanes: bool,
}

/// Statements for one table under one configuration.
#[derive(Clone, Debug)]
pub struct Statements {
    table: Table,
    config: Config,
}

impl Statements {
    /// For `table` as `config` maps it.
    pub fn new(config: &Config, table: &Table) -> Self {
        Self { table: table.clone(), config: config.clone() }
    }

    /// The key of a row, as text: what its order is kept by.
    fn key(&self) -> String {
        let id = quoted(&self.config.mapping.id);
        match (self.config.order, &self.config.mapping.key) {
            (Order::Strict, _) => "''".into(),
            (Order::Key, Some(key)) => {
                format!("coalesce(o.{}::text, o.{id}::text, '')", quoted(key))
            }
            (Order::None | Order::Key, _) => self.id(),
        }
    }

    /// A row's id as failures have it.
    fn id(&self) -> String {
        format!("coalesce(o.{}::text, '')", quoted(&self.config.mapping.id))
    }

    fn pending(&self) -> String {
        self.config.mapping.is_pending("o")
    }

    /// Reads and locks rows: place, then the mapping's columns as text (bytea as it is).
    pub fn fetch(&self, form: Fetch) -> String {
        let mapping = &self.config.mapping;
        let layout = mapping.layout();
        let place = if self.table.is_view { "'(0,0)'::tid" } else { "o.ctid" };
        let mut sql = format!("SELECT {place}");
        for column in &layout.columns {
            let name = quoted(column);
            match self.table.type_of(column) {
                "bytea" => sql += &format!(", o.{name}"),
                _ => sql += &format!(", o.{name}::text"),
            }
        }
        sql += &format!(" FROM {} o WHERE {}", self.table.name.quoted(), self.pending());
        let mut parameter = 0;
        let mut next = || {
            parameter += 1;
            format!("${parameter}")
        };
        if form.after && mapping.order_by.is_empty() {
            sql += &format!(" AND o.ctid > {}::tid", next());
        } else if form.after {
            let names: Vec<String> =
                mapping.order_by.iter().map(|name| format!("o.{}", quoted(name))).collect();
            let values: Vec<String> = mapping
                .order_by
                .iter()
                .map(|name| format!("{}::text::{}", next(), self.table.type_of(name)))
                .collect();
            sql += &format!(" AND ({}) > ({})", names.join(", "), values.join(", "));
        }
        if form.without_parked {
            sql += &format!(" AND NOT EXISTS ({})", self.parked());
        }
        if form.lanes {
            let mask = self.config.lane_count() - 1;
            let key = self.key();
            sql += &format!(
                " AND (hashtextextended(({key}) COLLATE \"C\", 0) & {mask})::int4 = ANY({}::int4[])",
                next()
            );
        }
        if !mapping.order_by.is_empty() {
            let order: Vec<String> =
                mapping.order_by.iter().map(|name| format!("o.{}", quoted(name))).collect();
            sql += &format!(" ORDER BY {}", order.join(", "));
        }
        // The limit is text, not a parameter: a generic plan would take it for a tenth of the table.
        sql += &format!(" LIMIT {} FOR UPDATE OF o", self.config.batch);
        // Under an order, a row that somebody holds is waited for: what follows it must not pass.
        if self.config.order == Order::None {
            sql += " SKIP LOCKED";
        }
        sql
    }

    /// The failures that keep row `o` back.
    fn parked(&self) -> String {
        let outbox = literal(&self.table.label());
        let by = match self.config.order {
            Order::None => format!("f.row_id = {}", self.id()),
            Order::Key | Order::Strict => format!("f.key = {}", self.key()),
        };
        // What a dead row means for others of its key is the policy's. It is no longer pending itself, unless the
        // database did not let it go.
        let dead = match (self.config.order, self.config.on_dead) {
            (Order::Key | Order::Strict, OnDead::Skip) => {
                format!(" OR f.dead_at IS NOT NULL AND f.row_id = {}", self.id())
            }
            (Order::None, OnDead::Block | OnDead::Skip)
            | (Order::Key | Order::Strict, OnDead::Block) => " OR f.dead_at IS NOT NULL".into(),
        };
        format!(
            "SELECT FROM millrace.relay_failures f WHERE f.outbox = {outbox} AND {by} \
             AND (f.next_attempt_at > now(){dead})"
        )
    }

    /// Which of these rows (text array `$1`) have failed, and whether they wait.
    pub fn failed(&self) -> String {
        let outbox = literal(&self.table.label());
        // Mostly there are none at all, which is seen at once.
        format!(
            "SELECT f.row_id, f.dead_at IS NOT NULL OR coalesce(f.next_attempt_at > now(), false) \
             FROM millrace.relay_failures f WHERE f.outbox = {outbox} \
             AND EXISTS (SELECT FROM millrace.relay_failures WHERE outbox = {outbox}) \
             AND f.row_id = ANY($1::text[])"
        )
    }

    /// How rows are named after the fetch: `o.ctid = ANY($1)`, or by id where a table has many heaps.
    fn is_one_of(&self) -> String {
        if self.table.is_plain {
            return "o.ctid = ANY($1::tid[])".into();
        }
        let id = &self.config.mapping.id;
        format!("o.{} = ANY($1::text[]::{}[])", quoted(id), self.table.type_of(id))
    }

    /// Marks confirmed rows: their places (or ids) are the one parameter.
    pub fn mark(&self) -> String {
        let name = self.table.name.quoted();
        let which = self.is_one_of();
        match (self.config.on_success, &self.config.mapping.processed) {
            (OnSuccess::Update, Some(processed)) => {
                let (processed, mark) = (quoted(processed), self.config.mapping.mark());
                let update = format!("UPDATE {name} o SET {processed} = {mark} WHERE {which}");
                match self.config.mapping.pending_where {
                    None => update,
                    Some(_) => format!(
                        "WITH marked AS ({update} RETURNING {} AS waits) \
                         SELECT count(*), count(*) FILTER (WHERE waits) FROM marked",
                        self.pending()
                    ),
                }
            }
            (OnSuccess::Update | OnSuccess::Delete, _) => {
                format!("DELETE FROM {name} o WHERE {which}")
            }
            (OnSuccess::Archive, _) => self.move_to_archive(&which),
        }
    }

    /// [`Statements::mark`] says how many rows it has marked, and how many of them still wait: a condition of somebody's
    /// own may not fit the mark.
    pub fn counts_marks(&self) -> bool {
        let mapping = &self.config.mapping;
        self.dead_stay_in_place() && mapping.pending_where.is_some()
    }

    /// Marks a row that waits, if there is one, and says whether it still does: to be rolled back. None: there is nothing
    /// to find out.
    pub fn try_mark(&self) -> Option<String> {
        let mapping = &self.config.mapping;
        let is_asked = self.counts_marks() && self.table.is_plain;
        let processed = quoted(mapping.processed.as_ref().filter(|_| is_asked)?);
        let (name, pending) = (self.table.name.quoted(), self.pending());
        Some(format!(
            "UPDATE {name} o SET {processed} = {} WHERE o.ctid = (SELECT o.ctid FROM {name} o WHERE {pending} LIMIT 1 \
             FOR UPDATE SKIP LOCKED) RETURNING {pending}",
            mapping.mark()
        ))
    }

    /// Columns by name: the archive may have more of them, with defaults.
    fn move_to_archive(&self, which: &str) -> String {
        let columns = self.table.columns.iter().map(|(column, _)| quoted(column));
        let columns: Vec<String> = columns.collect();
        let processed = self.config.mapping.processed.as_deref().map(quoted);
        let values: Vec<String> = columns
            .iter()
            .map(|column| match processed.as_ref() == Some(column) {
                true => self.config.mapping.mark(),
                false => format!("moved.{column}"),
            })
            .collect();
        format!(
            "WITH moved AS (DELETE FROM {} o WHERE {which} RETURNING o.*) \
             INSERT INTO {} ({}) SELECT {} FROM moved",
            self.table.name.quoted(),
            self.archive().quoted(),
            columns.join(", "),
            values.join(", ")
        )
    }

    /// Where confirmed rows are kept under [`OnSuccess::Archive`].
    pub fn archive(&self) -> TableName {
        let TableName { schema, name } = self.table.name.clone();
        TableName { schema, name: format!("{name}_archive") }
    }

    /// Attempts that rows (text array `$1`) have behind them.
    pub fn attempts(&self) -> String {
        format!(
            "SELECT row_id, attempts FROM millrace.relay_failures \
             WHERE outbox = {} AND row_id = ANY($1::text[])",
            literal(&self.table.label())
        )
    }

    /// Writes failures: ids, keys, attempts, reasons, errors, seconds until the next attempt (NULL: dead).
    ///
    /// What is not charged waits twice as long as the last time, so that it does not come back at once for ever. The key
    /// is that of the order which is kept now: an earlier run may have kept another. Time counts from this statement, not
    /// from the beginning of a batch that may have waited for the broker for as long as the next attempt is to wait.
    pub fn fail(&self) -> String {
        let longest = self.config.attempts.backoff.longest.as_secs_f64().min(UNCHARGED_WAIT_MAX_S);
        format!(
            "INSERT INTO millrace.relay_failures AS f \
               (outbox, row_id, key, attempts, reason, error, last_failed_at, next_attempt_at, \
                dead_at) \
             SELECT {}, id, key, attempts, reason, error, statement_timestamp(), \
               statement_timestamp() + after * interval '1 second', \
               CASE WHEN after IS NULL THEN statement_timestamp() END \
             FROM unnest($1::text[], $2::text[], $3::int4[], $4::text[], $5::text[], $6::float8[]) \
               AS n(id, key, attempts, reason, error, after) \
             ON CONFLICT (outbox, row_id) DO UPDATE SET key = excluded.key, attempts = excluded.attempts, \
               reason = excluded.reason, error = excluded.error, last_failed_at = excluded.last_failed_at, \
               dead_at = excluded.dead_at, next_attempt_at = CASE \
                 WHEN excluded.attempts > f.attempts OR excluded.next_attempt_at IS NULL \
                   OR f.next_attempt_at IS NULL THEN excluded.next_attempt_at \
                 ELSE excluded.last_failed_at + least(greatest( \
                   excluded.next_attempt_at - excluded.last_failed_at, \
                   2 * (f.next_attempt_at - f.last_failed_at)), interval '{longest} seconds') END",
            literal(&self.table.label())
        )
    }

    /// Whether dead rows stay in the table, marked, when they leave the outbox.
    pub fn dead_stay_in_place(&self) -> bool {
        self.config.on_success == OnSuccess::Update && self.config.mapping.processed.is_some()
    }

    /// Whether dead rows leave the outbox. With a mark of somebody's own they stay, and wait, where no other mark says
    /// that they are dead: they were not sent.
    pub fn moves_dead(&self) -> bool {
        let mapping = &self.config.mapping;
        !self.dead_stay_in_place()
            || mapping.processed_value.is_none()
            || mapping.dead_value.is_some()
    }

    /// Takes dead rows out of the outbox: places (or ids) and errors. Where they do not stay in their place, it gives how
    /// many would be lost: how many more leave the table than are kept among the failures.
    pub fn move_to_dead(&self) -> String {
        let name = self.table.name.quoted();
        let mapping = &self.config.mapping;
        let id = quoted(&mapping.id);
        if let (OnSuccess::Update, Some(processed)) = (self.config.on_success, &mapping.processed) {
            let error = mapping.error.as_deref();
            let error = error.map(|error| format!(", {} = d.error", quoted(error)));
            let (kind, place) = match self.table.is_plain {
                true => ("tid".into(), "o.ctid = d.place".into()),
                false => {
                    let of = self.table.type_of(&mapping.id);
                    ("text".to_string(), format!("o.{id} = d.place::{of}"))
                }
            };
            let mark = mapping.dead_value.as_deref().map_or(mapping.mark(), literal);
            return format!(
                "UPDATE {name} o SET {} = {mark}{} \
                 FROM unnest($1::{kind}[], $2::text[]) AS d(place, error) WHERE {place}",
                quoted(processed),
                error.unwrap_or_default()
            );
        }
        format!(
            "WITH gone AS (DELETE FROM {name} o WHERE {} RETURNING o.{id}::text AS id, {} AS whole), \
             told AS (SELECT cardinality($2::text[])), \
             kept AS (UPDATE millrace.relay_failures f SET stored_row = gone.whole FROM gone, told \
             WHERE f.outbox = {} AND f.row_id = gone.id RETURNING 1) \
             SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM kept)",
            self.is_one_of(),
            self.whole_row(),
            literal(&self.table.label())
        )
    }

    /// The row as a jsonb object. A column of type json becomes a string: json may hold what jsonb refuses (`\u0000`). The
    /// null of jsonb is told from that of SQL.
    fn whole_row(&self) -> String {
        let columns = &self.table.columns;
        if columns.iter().all(|(_, kind)| kind != "json" && kind != "jsonb") {
            return "to_jsonb(o)".into();
        }
        let value = |(column, kind): &(String, String)| {
            let name = quoted(column);
            match kind.as_str() {
                "json" => format!("o.{name}::text AS {name}"),
                "jsonb" => format!(
                    "CASE WHEN o.{name} = 'null' THEN '{}'::jsonb ELSE o.{name} END AS {name}",
                    crate::stored::JSON_NULL
                ),
                _ => format!("o.{name} AS {name}"),
            }
        };
        let values: Vec<String> = columns.iter().map(value).collect();
        format!("to_jsonb((SELECT w FROM (SELECT {}) w))", values.join(", "))
    }

    /// Forgets failures of rows (text array `$1`) that are confirmed now.
    pub fn clear_failures(&self) -> String {
        format!(
            "DELETE FROM millrace.relay_failures WHERE outbox = {} AND row_id = ANY($1::text[])",
            literal(&self.table.label())
        )
    }

    /// Whether anything has failed that keeps rows back, how many wait, how many are dead.
    pub fn failures(&self) -> String {
        format!(
            "SELECT count(*) FILTER (WHERE dead_at IS NULL), count(*) FILTER (WHERE dead_at IS NOT NULL) \
             FROM millrace.relay_failures WHERE outbox = {}",
            literal(&self.table.label())
        )
    }

    /// Rows that wait (at most `$1`), and the age of the oldest in seconds.
    pub fn backlog(&self) -> String {
        let name = self.table.name.quoted();
        let pending = self.pending();
        let age = match &self.config.mapping.occurred {
            Some(at) if self.table.type_of(at).starts_with("timestamp") => format!(
                "(SELECT extract(epoch FROM now() - o.{})::float8 FROM {name} o WHERE {pending} \
                 ORDER BY o.{0} LIMIT 1)",
                quoted(at)
            ),
            _ => "NULL::float8".into(),
        };
        format!(
            "SELECT (SELECT count(*) FROM (SELECT FROM {name} o WHERE {pending} LIMIT $1) p), {age}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Preset};

    fn statements(preset: Preset, kind: &str) -> Statements {
        let broker = "amqp://h".parse().expect("it is a URL");
        let config = Config::new("postgres://h/d", broker, Mapping::preset(preset));
        let name = TableName { schema: None, name: "t".into() };
        let columns = vec![("id".into(), "uuid".into()), ("payload".into(), kind.into())];
        Statements::new(
            &config,
            &Table { name, oid: 1, columns, is_plain: true, has_dropped: false, is_view: false },
        )
    }

    #[test]
    fn rows_without_order_columns_are_read_on_from_a_place_and_not_sorted() {
        let after = Fetch { after: true, ..Fetch::default() };
        let sql = statements(Preset::Debezium, "jsonb").fetch(after);
        assert!(sql.contains("o.ctid > $1::tid") && !sql.contains("ORDER BY"), "{sql}");
        let sql = statements(Preset::OutboxMessages, "jsonb").fetch(after);
        assert!(!sql.contains("ctid >") && sql.contains("ORDER BY"), "{sql}");
    }

    #[test]
    fn rows_of_a_view_have_no_place_and_are_named_by_their_id() {
        let mut statements = statements(Preset::OutboxMessages, "jsonb");
        (statements.table.is_plain, statements.table.is_view) = (false, true);
        assert!(!statements.fetch(Fetch::default()).contains("ctid"));
        assert!(statements.mark().contains("o.\"id\" = ANY($1::text[]::uuid[])"));
    }

    #[test]
    fn bytes_may_be_the_content_and_nothing_by_which_a_row_is_found_again() {
        let broker = "amqp://h".parse().expect("it is a URL");
        let mapping = Mapping::preset(Preset::Debezium);
        let config = Config::new("postgres://h/d", broker, mapping);
        let found = |bytes: &str, config: &Config| {
            let column = |name: &&str| {
                let kind = if *name == bytes { "bytea" } else { "text" };
                (name.to_string(), kind.to_owned())
            };
            let columns = ["id", "payload", "aggregateid", "seq"].iter().map(column).collect();
            let name = TableName { schema: None, name: "t".into() };
            let table =
                Table { name, oid: 1, columns, is_plain: true, has_dropped: false, is_view: false };
            table.compared_bytes(config).map(str::to_owned)
        };
        assert_eq!(found("payload", &config), None);
        assert_eq!(found("id", &config).as_deref(), Some("id"));
        assert_eq!(found("aggregateid", &config), None, "it keeps no order");
        let mut config = Config { order: Order::Key, ..config };
        assert_eq!(found("aggregateid", &config).as_deref(), Some("aggregateid"));
        config.mapping.order_by.push("seq".into());
        assert_eq!(found("seq", &config).as_deref(), Some("seq"));
    }

    #[test]
    fn a_column_of_type_json_is_kept_as_text() {
        let sql = statements(Preset::Debezium, "text").move_to_dead();
        assert!(sql.contains("to_jsonb(o) AS whole"), "{sql}");
        let sql = statements(Preset::Debezium, "json").move_to_dead();
        assert!(sql.contains("o.\"id\" AS \"id\", o.\"payload\"::text AS \"payload\""), "{sql}");
    }
}
