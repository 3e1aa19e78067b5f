//! What an outbox needs in the database, what of it is there, and the statements that make the rest.
//!
//! A plan is made from what is found, so a second run plans nothing. `install --print` shows the same
//! statements that `install` runs.

mod columns;
mod extras;
pub(crate) mod index;
pub(crate) mod partitions;

use std::fmt;

use serde::Deserialize;

pub use columns::check_columns;
pub(crate) use columns::{Role, names, role};
pub use partitions::{Every, Partitions};

use crate::admin::finding::{Finding, Report};
use crate::admin::shape::Shape;
use crate::config::{Config, Order, Source};
use crate::mapping::{Mapping, TableName};
use crate::sql::{COMPANION, quoted};

/// The sequence column that is added where an order is asked for.
pub const SEQUENCE_COLUMN: &str = "seq";
/// Tables with more do not get a column by `install`: it rewrites the table and stops all writers meanwhile. Rows are
/// known from ANALYZE, which may never have run; bytes are always known.
const REWRITE_ROWS_MAX: f64 = 100_000.0;
const REWRITE_BYTES_MAX: i64 = 100 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// As the relay will run: mapping, source, order and what becomes of confirmed rows are looked at.
    pub config: Config,
    pub partitions: Option<Partitions>,
    /// A role that gets what a relay needs, and no more.
    pub grant_to: Option<String>,
}

/// What is there.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub table: Option<Shape>,
    pub archive: Option<Shape>,
    pub publication: Option<Publication>,
    pub server: Server,
}

/// The server, as far as an installation depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Server {
    pub version: i32,
    pub wal_level: String,
    pub now_seconds: i64,
    pub has_companion: bool,
    /// The table has at least one row.
    pub has_rows: bool,
}

/// A publication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Publication {
    pub publishes_insert: bool,
    pub via_root: bool,
    pub has_table: bool,
}

/// Reads a [`Server`]; the table's quoted name is the parameter.
pub const READ_SERVER: &str = "SELECT current_setting('server_version_num')::int4 AS version, \
    current_setting('wal_level') AS wal_level, extract(epoch FROM now())::int8 AS now_seconds, \
    to_regclass('millrace.relay_failures') IS NOT NULL AND EXISTS (SELECT FROM pg_attribute \
      WHERE attrelid = to_regclass('millrace.relay_slots') AND attname = 'published') AS has_companion, \
    false AS has_rows";

/// Reads a [`Publication`]: its name, and the table's oid.
pub const READ_PUBLICATION: &str = "SELECT p.pubinsert AS publishes_insert, p.pubviaroot AS via_root, \
    p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = $2::int8::oid) \
      OR EXISTS (SELECT FROM pg_get_publication_tables(p.pubname) t WHERE t.relid = $2::int8::oid) AS has_table \
    FROM pg_publication p WHERE p.pubname = $1::text";

/// One statement, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub why: String,
    pub sql: String,
    /// Must not run in a transaction (CREATE INDEX CONCURRENTLY).
    pub is_alone: bool,
}

/// What to do, and what was found on the way.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Those of one transaction first.
    pub steps: Vec<Step>,
    pub report: Report,
}

impl Plan {
    pub(crate) fn step(&mut self, why: impl Into<String>, sql: impl Into<String>) {
        self.steps.push(Step { why: why.into(), sql: sql.into(), is_alone: false });
    }

    pub(crate) fn alone(&mut self, why: impl Into<String>, sql: impl Into<String>) {
        self.steps.push(Step { why: why.into(), sql: sql.into(), is_alone: true });
    }

    pub(crate) fn tell(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    /// Steps of one transaction, then those that run alone.
    pub fn parts(&self) -> (Vec<&Step>, Vec<&Step>) {
        self.steps.iter().partition(|step| !step.is_alone)
    }
}

impl fmt::Display for Plan {
    /// A script that psql runs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (together, alone) = self.parts();
        if !together.is_empty() {
            writeln!(out, "BEGIN;")?;
            for step in together {
                writeln!(out, "-- {}\n{};", step.why, step.sql.trim_end().trim_end_matches(';'))?;
            }
            writeln!(out, "COMMIT;")?;
        }
        for step in alone {
            writeln!(out, "-- {}\n{};", step.why, step.sql)?;
        }
        Ok(())
    }
}

/// Where confirmed rows of `table` go when they are archived.
pub fn archive_of(table: &TableName) -> TableName {
    TableName { schema: table.schema.clone(), name: format!("{}_archive", table.name) }
}

/// What remains to be done.
pub fn plan(wanted: &Wanted, found: &Found) -> Plan {
    let mut plan = Plan::default();
    if matches!(wanted.config.source, Source::Messages { .. }) {
        plan.tell(Finding::ok("table", "messages of pg_logical_emit_message need no table"));
    } else {
        table(wanted, found, &mut plan);
    }
    if found.server.has_companion {
        plan.tell(Finding::ok("companion", "the schema millrace is there"));
    } else {
        plan.step("what the relay remembers of failures and slots", COMPANION);
    }
    extras::publication(wanted, found, &mut plan);
    extras::grants(wanted, found, &mut plan);
    plan
}

fn table(wanted: &Wanted, found: &Found, plan: &mut Plan) {
    let name = match &found.table {
        Some(shape) => shape.table(),
        None => wanted.config.mapping.table.clone(),
    };
    let mut mapping = wanted.config.mapping.clone();
    match &found.table {
        None if mapping.pending_where.is_some() => {
            plan.tell(Finding::fail(
                "table",
                format!("there is no table {name}, and nothing says which type and default its marks have"),
                "Make it, with a default that --pending-where finds: sent boolean NOT NULL DEFAULT false",
            ));
            return;
        }
        None => {
            let sequence = needs_sequence(wanted, None);
            plan.step(
                format!("the outbox {name}"),
                columns::create(&mapping, &name, sequence, wanted.partitions),
            );
            if sequence {
                mapping.order_by = vec![SEQUENCE_COLUMN.into()];
                plan.tell(run_with_sequence(SEQUENCE_COLUMN));
            }
        }
        Some(shape) => {
            plan.tell(Finding::ok("table", format!("{name} is there")));
            plan.report.findings.extend(check_columns(&mapping, shape));
            if wanted.config.order != Order::None {
                existing_sequence(wanted, found, shape, &mut mapping, plan);
            }
        }
    }
    partitions::plan(wanted, found, &name, plan);
    if wanted.config.source == Source::Poll {
        index::plan(&mapping, found, &name, plan);
    } else {
        plan.tell(Finding::ok("index", "rows are read from the log: no index is needed"));
    }
    extras::archive(wanted, found, &name, plan);
}

/// Two rows of one transaction have the same `now()`, and clocks of two writers differ: only a sequence is an order.
fn needs_sequence(wanted: &Wanted, shape: Option<&Shape>) -> bool {
    if wanted.config.order == Order::None {
        return false;
    }
    let first = wanted.config.mapping.order_by.first();
    match shape {
        // A column that is only ordered by is made as a sequence.
        None => first.is_none_or(|first| columns::role(&wanted.config.mapping, first).is_some()),
        Some(shape) => {
            !first.and_then(|first| shape.column(first)).is_some_and(|column| column.is_sequence)
        }
    }
}

fn existing_sequence(
    wanted: &Wanted,
    found: &Found,
    shape: &Shape,
    mapping: &mut Mapping,
    plan: &mut Plan,
) {
    if !needs_sequence(wanted, Some(shape)) {
        return;
    }
    if let Some(column) = shape.columns.iter().find(|column| column.is_sequence) {
        mapping.order_by = vec![column.name.clone()];
        plan.tell(run_with_sequence(&column.name));
        return;
    }
    let kind = columns::sequence_type(shape.is_partitioned());
    let name = shape.table().quoted();
    let sql = format!("ALTER TABLE {name} ADD COLUMN {} {kind}", quoted(SEQUENCE_COLUMN));
    let is_large = shape.rows > REWRITE_ROWS_MAX || shape.bytes > REWRITE_BYTES_MAX;
    if shape.column(SEQUENCE_COLUMN).is_some() || is_large {
        plan.tell(Finding::fail(
            "order",
            format!("{} has no sequence column to keep an order by", shape.label()),
            format!(
                "Adding one rewrites the table and stops its writers meanwhile, so it is left to you: {sql};\n\
                 then run `install` again"
            ),
        ));
        return;
    }
    plan.step("a number for each row, so that the order is exact", sql);
    if found.server.has_rows {
        plan.tell(Finding::warn(
            "order",
            "rows that are there already get their numbers as they lie in the table, not in the order of their times",
            "If the order of those that wait matters, let a relay publish them first, then install the column",
        ));
    }
    mapping.order_by = vec![SEQUENCE_COLUMN.into()];
    plan.tell(run_with_sequence(SEQUENCE_COLUMN));
}

fn run_with_sequence(column: &str) -> Finding {
    Finding::warn(
        "order",
        format!("the column {column} numbers rows; the mapping given orders by something else"),
        format!("Give `--order-by {column}` to `millrace relay run` (and to `doctor`, `status`)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::finding::Grade;
    use crate::admin::shape::Column;
    use crate::mapping::Preset;

    /// What is planned for a table without a sequence of so many rows (as ANALYZE knows them) and bytes.
    fn planned(rows: f64, bytes: i64, has_rows: bool) -> Plan {
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.key = Some("type".into());
        let mut config = Config::new("postgres://h/d", broker, mapping);
        config.order = Order::Key;
        let column = |name: &str| Column { name: name.into(), ..Column::default() };
        let names = ["id", "type", "content", "occurred_on_utc", "processed_on_utc", "error"];
        let columns = names.map(column).to_vec();
        let shape =
            Shape { name: "o".into(), kind: "r".into(), rows, bytes, columns, ..Shape::default() };
        let server = Server { has_rows, ..Server::default() };
        let found = Found { table: Some(shape), server, ..Found::default() };
        plan(&Wanted { config, partitions: None, grant_to: None }, &found)
    }

    fn rewrites(plan: &Plan) -> bool {
        plan.steps.iter().any(|step| step.sql.contains("ADD COLUMN \"seq\""))
    }

    #[test]
    fn a_large_table_is_not_rewritten_even_if_nobody_has_counted_its_rows() {
        for (rows, bytes, is_small) in
            [(0.0, 8192, true), (100_001.0, 8192, false), (0.0, 101 << 20, false)]
        {
            let plan = planned(rows, bytes, true);
            assert_eq!(rewrites(&plan), is_small, "{rows} rows, {bytes} bytes");
            let is_told = plan.report.of("order").any(|it| it.grade == Grade::Fail);
            assert_eq!(is_told, !is_small, "{}", plan.report);
        }
    }

    #[test]
    fn numbers_of_rows_that_are_there_are_said_to_have_no_order() {
        let says = |plan: &Plan| plan.report.of("order").any(|it| it.what.contains("as they lie"));
        assert!(says(&planned(10.0, 8192, true)));
        assert!(!says(&planned(0.0, 0, false)));
    }
}
