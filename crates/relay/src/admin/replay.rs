//! Rows that are to be published again: dead ones, waiting ones at once, or confirmed ones.
//!
//! Every form has one and the same parameter list, so that a choice is data and never text: outbox, ids, since,
//! until, reason, a pattern for the error, where the batch before ended.

use serde::Deserialize;

use super::ids::is_among;
use crate::config::{Config, OnSuccess, Order, Source};
use crate::sql::{Table, literal, quoted};
use crate::stored::{JSON_NULL, RAW};

/// Rows of one transaction.
pub const BATCH_ROWS: i64 = 1000;

/// Which rows are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// Set aside for good.
    Dead,
    /// Failed, with an attempt to come: it comes now.
    Waiting,
    /// Confirmed already: consumers get them once more.
    Processed,
}

/// Which of them are chosen; what is None chooses all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub ids: Option<Vec<String>>,
    /// Dead (or failed, or processed) at this time or later: what PostgreSQL reads as timestamptz.
    pub since: Option<String>,
    /// Before this time.
    pub until: Option<String>,
    pub reason: Option<String>,
    /// `%` is any text, `_` any character.
    pub error_like: Option<String>,
}

impl Choice {
    /// Nothing was chosen: everything would be.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// What would be brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counted {
    pub count: i64,
    pub example: Option<String>,
    pub error: Option<String>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub rows: u64,
    /// Chosen, and nowhere to be found: deleted from the outbox by somebody, and not stored.
    pub gone: u64,
}

/// The statements of one kind of replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statements {
    /// `count`, `example` (an id) and `error`.
    pub count: String,
    /// Locks the next rows and gives their ids, in order, each with where it stands.
    pub next: String,
    /// What is done to them, in order; each gives the ids it has brought back. Parameters: outbox, ids.
    pub bring_back: Vec<String>,
    /// Forgets the failures of those that were brought back. Parameters: outbox, ids.
    pub forget: Option<String>,
}

/// The type of a column, for casts.
fn kind_of<'a>(table: &'a Table, column: &str) -> &'a str {
    let found = table.columns.iter().find(|(name, _)| name == column);
    found.map_or("text", |(_, kind)| kind)
}

const CHOSEN: &str = "($2::text[] IS NULL OR {id} = ANY($2::text[])) \
    AND ($3::text IS NULL OR {at} >= $3::text::timestamptz) AND ($4::text IS NULL OR {at} < $4::text::timestamptz) \
    AND ($5::text IS NULL OR {reason} = $5::text) AND ($6::text IS NULL OR {error} LIKE $6::text)";

/// The statements for `among`. `settled`: with the log, a transaction id before which all that was committed is published.
///
/// # Errors
/// There are no such rows under this configuration: why, in words.
pub fn statements(
    config: &Config,
    among: Among,
    table: &Table,
    columns: &[String],
    settled: Option<&str>,
) -> Result<Statements, String> {
    match among {
        Among::Dead => Ok(dead(config, table, columns)),
        Among::Waiting => Ok(waiting()),
        Among::Processed => processed(config, table, columns, settled),
    }
}

fn failures(condition: &str, at: &str) -> (String, String) {
    let chosen = CHOSEN
        .replace("{id}", "f.row_id")
        .replace("{at}", at)
        .replace("{reason}", "f.reason")
        .replace("{error}", "f.error");
    let from = format!(
        "FROM millrace.relay_failures f WHERE f.outbox = $1::text AND {condition} AND {chosen}"
    );
    let count = format!(
        "SELECT c.count, c.example, (SELECT e.error FROM millrace.relay_failures e \
           WHERE e.outbox = $1::text AND e.row_id = c.example) AS error \
         FROM (SELECT count(*) AS count, min(f.row_id) AS example {from}) c"
    );
    let next = format!(
        "SELECT f.row_id, ARRAY[f.row_id] {from} AND ($7::text[] IS NULL OR f.row_id > ($7::text[])[1]) \
         ORDER BY f.row_id LIMIT {BATCH_ROWS} FOR UPDATE"
    );
    (count, next)
}

fn waiting() -> Statements {
    let (count, mut next) = failures("f.next_attempt_at IS NOT NULL", "f.last_failed_at");
    // One that is locked is tried at this moment. Waited for, it might wait for us.
    next += " SKIP LOCKED";
    let now = "UPDATE millrace.relay_failures SET next_attempt_at = now() \
               WHERE outbox = $1::text AND row_id = ANY($2::text[]) RETURNING row_id";
    Statements { count, next, bring_back: vec![now.into()], forget: None }
}

/// A relay that reads the log publishes what failed from where it is stored. Of a key, the first alone is due: the relay
/// goes on to the next.
const REVIVE: &str = "UPDATE millrace.relay_failures f SET dead_at = NULL, attempts = 0, next_attempt_at = CASE \
    WHEN f.key IS NULL OR NOT EXISTS (SELECT FROM millrace.relay_failures g WHERE g.outbox = f.outbox AND g.key = f.key \
      AND (g.position, g.row_id) < (f.position, f.row_id) AND (g.dead_at IS NULL OR g.row_id = ANY($2::text[]))) \
    THEN now() END \
    WHERE f.outbox = $1::text AND f.row_id = ANY($2::text[]) AND f.stored_row IS NOT NULL RETURNING f.row_id";

fn dead(config: &Config, table: &Table, columns: &[String]) -> Statements {
    let (count, next) = failures("f.dead_at IS NOT NULL", "f.dead_at");
    if config.source != Source::Poll {
        return Statements { count, next, bring_back: vec![REVIVE.into()], forget: None };
    }
    let back = unmark(config, table).unwrap_or_else(|| remaining(config, table));
    let bring_back = vec![back, restore(config, table, columns)];
    let forget =
        "DELETE FROM millrace.relay_failures WHERE outbox = $1::text AND row_id = ANY($2::text[])";
    Statements { count, next, bring_back, forget: Some(forget.into()) }
}

/// Marked rows are pending again.
fn unmark(config: &Config, table: &Table) -> Option<String> {
    let mapping = &config.mapping;
    let processed = quoted(mapping.processed.as_ref()?);
    let id = quoted(&mapping.id);
    let (mark, back) = match mapping.pending_where {
        None => ("NULL", format!("o.{id}::text")),
        // Whoever has a condition of their own has a value of their own for a new row. If it is none that waits, a
        // number is made of a sentence, which is how a statement says what is wrong.
        Some(_) => {
            let name = literal(mapping.processed.as_deref().unwrap_or_default());
            let back = format!(
                "CASE WHEN {} THEN o.{id}::text ELSE ('the default of column ' || {name} || \
                 ' makes no row wait, such as ' || o.{id}::text)::int4::text END",
                mapping.is_pending("o")
            );
            ("DEFAULT", back)
        }
    };
    let error =
        mapping.error.as_ref().map_or(String::new(), |name| format!(", {} = NULL", quoted(name)));
    Some(format!(
        "UPDATE {} o SET {processed} = {mark}{error} WHERE $1::text IS NOT NULL AND {} RETURNING {back}",
        table.name.quoted(),
        is_among(&format!("o.{id}"), kind_of(table, &mapping.id), "$2")
    ))
}

/// Rows that could not leave the outbox are pending as they are, once their failures are gone.
fn remaining(config: &Config, table: &Table) -> String {
    let id = quoted(&config.mapping.id);
    format!(
        "SELECT o.{id}::text FROM {} o WHERE $1::text IS NOT NULL AND {} FOR UPDATE",
        table.name.quoted(),
        is_among(&format!("o.{id}"), kind_of(table, &config.mapping.id), "$2")
    )
}

/// Columns of a row that goes back into the outbox: it is new there, so neither processed nor failed.
fn back(config: &Config, columns: &[String], from: &str) -> (String, String) {
    let mapping = &config.mapping;
    let is_mark = |name: &String| {
        mapping.processed.as_ref() == Some(name) || mapping.error.as_ref() == Some(name)
    };
    // Of a column that is left out, a new row has the default: with a condition of one's own, that is what waits.
    let is_default = |name: &&String| {
        mapping.pending_where.is_some() && mapping.processed.as_ref() == Some(*name)
    };
    let columns: Vec<&String> = columns.iter().filter(|name| !is_default(name)).collect();
    let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let values: Vec<String> = columns
        .iter()
        .map(|&name| if is_mark(name) { "NULL".into() } else { format!("{from}.{}", quoted(name)) })
        .collect();
    (names.join(", "), values.join(", "))
}

/// Rows that were taken out of the outbox go back.
fn restore(config: &Config, table: &Table, columns: &[String]) -> String {
    let name = table.name.quoted();
    let (names, mut values) = back(config, columns, "r");
    for column in columns {
        let (key, plain) = (literal(column), format!("r.{}", quoted(column)));
        let stored = match kind_of(table, column) {
            // It was stored as a string: jsonb cannot hold all that json can.
            "json" => format!("(f.stored_row->>{key})::json"),
            "jsonb" => format!(
                "CASE WHEN f.stored_row->{key} = '{JSON_NULL}' THEN 'null'::jsonb ELSE {plain} END"
            ),
            _ => continue,
        };
        values = values.replace(&plain, &stored);
    }
    format!(
        "INSERT INTO {name} AS o ({names}) OVERRIDING SYSTEM VALUE SELECT {values} \
         FROM millrace.relay_failures f, jsonb_populate_record(NULL::{name}, f.stored_row) r \
         WHERE f.outbox = $1::text AND f.row_id = ANY($2::text[]) AND f.stored_row IS NOT NULL \
         ON CONFLICT DO NOTHING RETURNING o.{}::text",
        quoted(&config.mapping.id)
    )
}

/// A row `o` as it is stored among the failures: every column as text, in which jsonb takes whatever json takes; bytes in
/// hexadecimal.
fn stored(config: &Config, table: &Table) -> String {
    let (mut names, mut values, mut bytes) = (Vec::new(), Vec::new(), String::new());
    for column in config.mapping.layout().columns {
        let (name, value) = (literal(&column), format!("o.{}", quoted(&column)));
        match kind_of(table, &column) {
            "bytea" => {
                bytes += &format!(
                    " || jsonb_build_object({name}::text, CASE WHEN {value} IS NOT NULL THEN \
                     jsonb_build_object('{RAW}', encode({value}, 'hex')) END)"
                );
            }
            _ => {
                names.push(name);
                // As the log has it: a cast to text trims and spells out.
                values
                    .push(format!("CASE WHEN {value} IS NOT NULL THEN format('%s', {value}) END"));
            }
        }
    }
    let (names, values) = (names.join(", "), values.join(", "));
    format!("jsonb_object(ARRAY[{names}]::text[], ARRAY[{values}]::text[]){bytes}")
}

fn processed(
    config: &Config,
    table: &Table,
    columns: &[String],
    settled: Option<&str>,
) -> Result<Statements, String> {
    let mapping = &config.mapping;
    let id = quoted(&mapping.id);
    let kind = kind_of(table, &mapping.id);
    let is_chosen = is_among(&format!("o.{id}"), kind, "$2");
    let has_not_failed = format!(
        "NOT EXISTS (SELECT FROM millrace.relay_failures f WHERE f.outbox = {} AND f.row_id = o.{id}::text)",
        literal(&table.label())
    );
    let is_archive = config.source == Source::Poll && config.on_success == OnSuccess::Archive;
    let (from, at, condition) = match (
        &config.source,
        config.on_success,
        &mapping.processed,
        &mapping.occurred,
    ) {
        (Source::Poll, OnSuccess::Archive, _, _) => {
            let archive = super::install::archive_of(&table.name);
            (archive.quoted(), "o.archived_at".to_owned(), "true".to_owned())
        }
        (Source::Poll, OnSuccess::Update, Some(_), _) => {
            let marked = mapping.is_marked("o").unwrap_or_default();
            let at =
                mapping.marked_at().map_or("now()".into(), |name| format!("o.{}", quoted(name)));
            (table.name.quoted(), at, format!("{marked} AND {has_not_failed}"))
        }
        (Source::Poll, OnSuccess::Delete | OnSuccess::Update, _, _) => {
            return Err("confirmed rows are deleted under --on-success delete: there is nothing to bring back. \
                        Under archive they are kept"
                .into());
        }
        (Source::Wal { .. }, _, _, occurred) => {
            // What waits among the failures keeps its place there, and what the log has not reached yet comes from it.
            let settled = literal(settled.ok_or("nothing says which rows were published")?);
            let condition = format!("age(o.xmin) > age({settled}::xid) AND {has_not_failed}");
            let at = occurred.as_ref().map_or("now()".into(), |name| format!("o.{}", quoted(name)));
            (table.name.quoted(), at, condition)
        }
        (Source::Messages { .. }, _, _, _) => {
            return Err("messages of pg_logical_emit_message are in no table: only dead ones can be replayed".into());
        }
    };
    let error = mapping.error.as_ref().map_or("''".into(), |name| format!("o.{}", quoted(name)));
    let chosen = CHOSEN
        .replace("{id}", &format!("o.{id}::text"))
        .replace("{at}", &at)
        .replace("{reason}", "''")
        .replace("{error}", &error);
    // A row without an id can neither be published nor named.
    let body = format!(
        "FROM {from} o WHERE $1::text IS NOT NULL AND o.{id} IS NOT NULL AND {condition} AND {chosen}"
    );
    let count =
        format!("SELECT count(*) AS count, min(o.{id}::text) AS example, '' AS error {body}");
    // A relay may publish what is back before the rest is: what it keeps in order has to come back in that order.
    let is_in_order = config.source == Source::Poll && config.order != Order::None;
    let order_by = if is_in_order { &mapping.order_by[..] } else { &[] };
    let id_last = (!order_by.contains(&mapping.id)).then_some(&mapping.id);
    let by = order_by.iter().chain(id_last);
    let (mut columns_by, mut texts, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (name, at) in by.zip(1..) {
        columns_by.push(format!("o.{}", quoted(name)));
        texts.push(format!("o.{}::text", quoted(name)));
        values.push(format!("($7::text[])[{at}]::{}", kind_of(table, name)));
    }
    let (by, texts, values) = (columns_by.join(", "), texts.join(", "), values.join(", "));
    let next = format!(
        "SELECT o.{id}::text, ARRAY[{texts}] {body} AND ($7::text[] IS NULL OR ({by}) > ({values})) \
         ORDER BY {by} LIMIT {BATCH_ROWS} FOR UPDATE SKIP LOCKED"
    );
    let bring = if is_archive {
        let (names, values) = back(config, columns, "r");
        format!(
            "WITH r AS (DELETE FROM {from} o WHERE $1::text IS NOT NULL AND {is_chosen} \
             RETURNING o.*) INSERT INTO {} AS o ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM r \
             RETURNING o.{id}::text",
            table.name.quoted()
        )
    } else if config.source == Source::Poll {
        unmark(config, table).unwrap_or_default()
    } else {
        // Without a key: a row that was published before has no place in the order any more.
        format!(
            "INSERT INTO millrace.relay_failures AS f (outbox, row_id, key, attempts, reason, error, next_attempt_at, \
               stored_row) SELECT $1::text, o.{id}::text, NULL, 0, 'replay', 'asked for', now(), {} \
             FROM {from} o WHERE {is_chosen} \
             ON CONFLICT (outbox, row_id) DO NOTHING RETURNING f.row_id",
            stored(config, table)
        )
    };
    Ok(Statements { count, next, bring_back: vec![bring], forget: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Preset, TableName};

    fn config() -> Config {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.id = "i\"d; DROP TABLE x; --".into();
        Config::new("postgres://h/d", "amqp://h".parse().expect("it is a URL"), mapping)
    }

    fn table() -> Table {
        let name = TableName { schema: Some("s'h".into()), name: "out'box\"".into() };
        Table {
            name,
            oid: 1,
            columns: Vec::new(),
            is_plain: true,
            has_dropped: false,
            is_view: false,
        }
    }

    #[test]
    fn names_are_quoted_wherever_they_stand() {
        for among in [Among::Dead, Among::Waiting, Among::Processed] {
            for on_success in [OnSuccess::Update, OnSuccess::Archive] {
                let config = Config { on_success, ..config() };
                let columns = [config.mapping.id.clone()];
                let made = statements(&config, among, &table(), &columns, None)
                    .expect("there are such rows");
                for sql in made.bring_back.iter().chain([&made.count, &made.next]) {
                    // Every quote of the name stands doubled, in identifiers and in constants.
                    let rest = sql
                        .replace("\"i\"\"d; DROP TABLE x; --\"", "")
                        .replace("\"out'box\"\"\"", "")
                        .replace("'s''h.out''box\"'", "")
                        .replace("\"out'box\"\"_archive\"", "");
                    assert!(!rest.contains("DROP") && !rest.contains("out'"), "{sql}");
                }
            }
        }
    }

    #[test]
    fn published_rows_come_back_in_the_order_that_is_kept() {
        let mapping = Mapping::preset(Preset::OutboxMessages);
        let broker = "amqp://h".parse().expect("it is a URL");
        let mut config = Config::new("postgres://h/d", broker, mapping);
        let next = |config: &Config| {
            statements(config, Among::Processed, &table(), &[], None).map(|made| made.next)
        };
        let sql = next(&config).expect("there are such rows");
        assert!(sql.contains("ORDER BY o.\"id\" LIMIT"), "{sql}");
        config.order = Order::Key;
        let sql = next(&config).expect("there are such rows");
        assert!(sql.contains("ORDER BY o.\"occurred_on_utc\", o.\"id\" LIMIT"), "{sql}");
        config.mapping.order_by = vec!["id".into(), "seq".into()];
        let sql = next(&config).expect("there are such rows");
        assert!(sql.contains("ORDER BY o.\"id\", o.\"seq\" LIMIT"), "{sql}");
    }

    #[test]
    fn rows_that_are_deleted_cannot_be_brought_back_after_they_are_confirmed() {
        let config = Config { on_success: OnSuccess::Delete, ..config() };
        let refused = statements(&config, Among::Processed, &table(), &[], None);
        assert!(refused.is_err_and(|why| why.contains("nothing to bring back")));
    }
}
