//! What the database says of the outbox table, and of what the relay may do with it.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

use super::connection::{Database, database, number, text, words};
use crate::config::{Config, Order};
use crate::error::Error;
use crate::mapping::TableName;
use crate::mysql::shape::{Column, Index, Kind, Shape};
use crate::mysql::sql::{COMPANION, FAILURES, Fetch, Statements};

/// What the server calls itself.
pub(in crate::io) async fn server_version(conn: &mut Conn) -> Result<String, Error> {
    let asked = conn.query_first::<String, _>("SELECT VERSION()").await;
    asked.map_err(|error| database("asking for the version", &error)).map(Option::unwrap_or_default)
}

/// Makes the table of failures if it is not there.
///
/// # Errors
/// It is not there and this user may not make it: what to do is said.
pub(super) async fn prepare_companion(conn: &mut Conn) -> Result<(), Error> {
    let look = format!("SELECT 1 FROM {FAILURES} LIMIT 0");
    if conn.query_drop(look).await.is_ok() {
        return Ok(());
    }
    conn.query_drop(COMPANION).await.map_err(|error| {
        Error::setup(format!(
            "the table {FAILURES} (where failures are kept) cannot be made: {}. Let somebody who may create tables run \
             `millrace relay install` once, and grant SELECT, INSERT, UPDATE and DELETE on it",
            words(&error)
        ))
    })
}

/// Finds the table and checks that every column the mapping names is there.
///
/// # Errors
/// It is not there, lacks columns, or has no row locks.
pub(super) async fn find_table(
    conn: &mut Conn,
    database: &Database,
    config: &Config,
) -> Result<Shape, Error> {
    let table = &config.mapping.table;
    let shape = read_shape(conn, database, table).await?.ok_or_else(|| {
        Error::setup(format!(
            "there is no table {table} in the database {}: `millrace relay install` makes it, or name another with --table",
            database.schema()
        ))
    })?;
    let missing = shape.missing(&config.mapping);
    if !missing.is_empty() {
        let has: Vec<&str> = shape.columns.iter().map(|column| column.name.as_str()).collect();
        return Err(Error::setup(format!(
            "table {} has no column {}: it has {}. Choose a preset or name columns that are there",
            shape.name,
            missing.join(", "),
            has.join(", ")
        )));
    }
    if !shape.engine.eq_ignore_ascii_case("InnoDB") {
        return Err(Error::setup(format!(
            "table {} has the engine {}, which locks no rows: ALTER TABLE … ENGINE = InnoDB",
            shape.name, shape.engine
        )));
    }
    Ok(shape)
}

/// How the table `name` is. None: it is not there.
pub(in crate::io) async fn read_shape(
    conn: &mut Conn,
    at: &Database,
    name: &TableName,
) -> Result<Option<Shape>, Error> {
    let failed = |error: mysql_async::Error| database("looking at the table", &error);
    let schema = name.schema.clone().unwrap_or_else(|| at.schema().to_owned());
    let of = || (schema.clone(), name.name.clone());
    let row: Option<Row> = conn
        .exec_first(
            "SELECT CAST(COALESCE(engine, '') AS CHAR), COALESCE(table_rows, 0) FROM information_schema.tables \
             WHERE table_schema = ? AND table_name = ?",
            of(),
        )
        .await
        .map_err(failed)?;
    let Some(mut row) = row else { return Ok(None) };
    let (engine, rows) =
        (text(row.take(0)).unwrap_or_default(), number(row.take(1)).unwrap_or(0.0));
    let found: Vec<Row> = conn
        .exec(
            "SELECT column_name, CAST(data_type AS CHAR), CAST(column_type AS CHAR), is_nullable = 'YES', \
               COALESCE(generation_expression, '') <> '', extra LIKE '%auto_increment%', character_set_name \
             FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position",
            of(),
        )
        .await
        .map_err(failed)?;
    let columns = found.into_iter().map(|mut row| {
        let mut is = |at| number(row.take(at)).is_some_and(|told| told > 0.0);
        let (is_nullable, is_generated, is_counted) = (is(3), is(4), is(5));
        let charset = text(row.take(6));
        let mut word = |at| text(row.take(at)).unwrap_or_default();
        let (name, kind, type_text) = (word(0), Kind::of(&word(1).to_lowercase()), word(2));
        Column { name, kind, type_text, is_nullable, is_generated, is_counted, charset }
    });
    let columns = columns.collect();
    let found: Vec<Row> = conn
        .exec(
            "SELECT index_name, non_unique = 0, COALESCE(column_name, ''), sub_part IS NOT NULL \
             FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? \
             ORDER BY index_name, seq_in_index",
            of(),
        )
        .await
        .map_err(failed)?;
    let mut indexes: Vec<Index> = Vec::new();
    for mut row in found {
        let mut word = |at| text(row.take(at)).unwrap_or_default();
        let (name, mut column) = (word(0), word(2));
        let (is_unique, is_part) = (word(1) == "1", word(3) == "1");
        // An index of the beginning of a column does not find a row by the whole of it, nor in its order.
        if is_part {
            column = String::new();
        }
        match indexes.last_mut().filter(|index| index.name == name) {
            Some(index) => index.columns.push(column),
            None => indexes.push(Index { name, is_unique, columns: vec![column] }),
        }
    }
    let name = TableName { schema: Some(schema), name: name.name.clone() };
    Ok(Some(Shape { name, engine, rows: rows as u64, columns, indexes }))
}

/// Every statement of the relay on no rows, with its parameters, and what it is for.
pub(super) fn tries(
    config: &Config,
    statements: &Statements,
) -> Vec<(&'static str, String, Vec<Value>)> {
    let nobody = || vec![Value::NULL];
    let form = Fetch { without_parked: true, lanes: None };
    let mut tries =
        vec![("reading and locking rows", statements.fetch(&form), vec![Value::Int(0)])];
    if config.order != Order::None {
        tries.push(("reading rows", statements.choose(&form), vec![Value::Int(0)]));
        tries.push(("locking rows", statements.lock(1), nobody()));
    }
    tries.extend(statements.mark(1).into_iter().map(|sql| ("marking rows", sql, nobody())));
    tries.push(("reading failures", statements.attempts(1), nobody()));
    tries.push(("forgetting failures", statements.clear_failures(1), nobody()));
    tries.push(("writing failures", statements.keep_row(), vec![Value::NULL, Value::NULL]));
    tries
}

/// The id as its column has it: a number is compared as a number, so that its index finds it.
pub(super) fn id_value(column: &str, id: &str, shape: &Shape) -> Value {
    match shape.column(column).map(|column| column.kind) {
        Some(Kind::Integer | Kind::Bits) => id
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| id.parse::<u64>().map(Value::from))
            .unwrap_or_else(|_| Value::from(id)),
        Some(Kind::Text | Kind::Bytes | Kind::Number | Kind::Time) | None => Value::from(id),
    }
}
