//! What an outbox needs in MariaDB or MySQL, what of it is there, and the statements that make the rest.
//!
//! A statement that changes a table commits by itself there, so the steps run one by one. A second run plans nothing.

use super::binlog::server::Binlog;
use super::shape::{Kind, Shape, wanted_index};
use super::sql::{
    ADD_POSITION, COMPANION, FAILURES, PLACES, PLACES_TABLE, archive_of, quoted, quoted_table,
};
use crate::admin::Finding;
use crate::admin::install::{Plan, Role, SEQUENCE_COLUMN, Wanted, names, role};
use crate::config::{OnSuccess, Order, Source};
use crate::mapping::{Mapping, TableName};

/// Tables with more do not get a column by `install`: that may rewrite the table and stop its writers meanwhile.
const REWRITE_ROWS_MAX: u64 = 100_000;
/// The index that rows are found by.
const PENDING_INDEX: &str = "millrace_pending";

/// What is there.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub table: Option<Shape>,
    pub archive: Option<Shape>,
    pub has_companion: bool,
    /// The table of failures has an order for rows of the log.
    pub has_position: bool,
    pub has_places: bool,
    /// What the server says of its binlog, where that is the source.
    pub binlog: Option<Binlog>,
}

/// What remains to be done.
pub fn plan(wanted: &Wanted, found: &Found) -> Plan {
    let mut plan = Plan::default();
    if wanted.partitions.is_some() {
        plan.tell(Finding::fail(
            "partitions",
            "--partitions makes partitions of PostgreSQL",
            "Leave it out, and delete old rows with `millrace relay purge`",
        ));
    }
    let mut mapping = wanted.config.mapping.clone();
    match &found.table {
        None => new_table(wanted, &mut mapping, &mut plan),
        Some(shape) => old_table(wanted, shape, &mut mapping, &mut plan),
    }
    archive(wanted, found, &mut plan);
    match found.has_companion {
        true => plan.tell(Finding::ok("companion", format!("the table {FAILURES} is there"))),
        false => plan.alone("what the relay remembers of failures", COMPANION.trim_end()),
    }
    log(wanted, found, &mut plan);
    grants(wanted, found, &mut plan);
    plan
}

/// What the binlog as a source needs.
fn log(wanted: &Wanted, found: &Found, plan: &mut Plan) {
    if wanted.config.source == Source::Poll {
        return;
    }
    if found.has_companion && !found.has_position {
        plan.alone("the order of failures that come from the log", ADD_POSITION);
    }
    match found.has_places {
        true => plan.tell(Finding::ok("companion", format!("the table {PLACES} is there"))),
        false => plan.alone("how far the binlog is read", PLACES_TABLE.trim_end()),
    }
    if let Some(binlog) = &found.binlog {
        plan.report.findings.extend(binlog.findings());
    }
}

fn needs_sequence(wanted: &Wanted, shape: Option<&Shape>) -> bool {
    if wanted.config.order == Order::None {
        return false;
    }
    let first = wanted.config.mapping.order_by.first();
    match shape {
        // A column that is only ordered by is made as a sequence.
        None => first.is_none_or(|first| role(&wanted.config.mapping, first).is_some()),
        Some(shape) => !first.and_then(|first| shape.column(first)).is_some_and(|it| it.is_counted),
    }
}

fn new_table(wanted: &Wanted, mapping: &mut Mapping, plan: &mut Plan) {
    let name = &wanted.config.mapping.table;
    if mapping.pending_where.is_some() {
        return plan.tell(Finding::fail(
            "table",
            format!("there is no table {name}, and nothing says which type and default its marks have"),
            "Make it, with a default that --pending-where finds: sent boolean NOT NULL DEFAULT false",
        ));
    }
    let has_sequence = needs_sequence(wanted, None);
    plan.alone(format!("the outbox {name}"), create(mapping, name, has_sequence));
    if has_sequence {
        mapping.order_by = vec![SEQUENCE_COLUMN.into()];
        plan.tell(run_with_sequence(SEQUENCE_COLUMN));
    }
}

/// The statement that makes the table, with its index.
fn create(mapping: &Mapping, table: &TableName, has_sequence: bool) -> String {
    let sequence = "bigint unsigned NOT NULL AUTO_INCREMENT UNIQUE";
    let mut lines: Vec<String> = Vec::new();
    for name in names(mapping) {
        let kind = match role(mapping, &name) {
            Some(Role::Id) => "char(36) CHARACTER SET ascii NOT NULL",
            Some(Role::MessageType | Role::Routing) => "varchar(255) NOT NULL",
            Some(Role::Payload) => "json NOT NULL",
            // The time of the statement: rows of one transaction have times of their own.
            Some(Role::Occurred) => "datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
            Some(Role::Headers) => "json",
            Some(Role::Processed) => "datetime(6)",
            Some(Role::Error) => "text",
            Some(Role::Key | Role::Status | Role::Property) => "varchar(255)",
            None => sequence,
        };
        lines.push(format!("    {} {kind}", quoted(&name)));
    }
    let mut mapping = mapping.clone();
    if has_sequence {
        lines.push(format!("    {} {sequence}", quoted(SEQUENCE_COLUMN)));
        mapping.order_by = vec![SEQUENCE_COLUMN.into()];
    }
    lines.push(format!("    PRIMARY KEY ({})", quoted(&mapping.id)));
    if let Some(columns) = wanted_index(&mapping) {
        lines.push(format!("    KEY {PENDING_INDEX} ({})", list(&columns)));
    }
    format!(
        "CREATE TABLE {} (\n{}\n) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4",
        quoted_table(table),
        lines.join(",\n")
    )
}

fn list(columns: &[String]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
    columns.join(", ")
}

fn old_table(wanted: &Wanted, shape: &Shape, mapping: &mut Mapping, plan: &mut Plan) {
    plan.tell(Finding::ok("table", format!("{} is there", shape.name)));
    plan.report.findings.extend(check_columns(mapping, shape));
    if needs_sequence(wanted, Some(shape)) {
        sequence(shape, mapping, plan);
    }
    let Some(columns) = wanted_index(mapping) else {
        return plan.tell(Finding::ok(
            "index",
            "rows are read as they lie in the table, or by a condition of your own: an index for it is yours to choose",
        ));
    };
    if shape.serving_index(mapping).is_some() {
        return plan.tell(Finding::ok("index", "an index finds rows that wait, in order"));
    }
    let sql = format!(
        "CREATE INDEX {PENDING_INDEX} ON {} ({})",
        quoted_table(&shape.name),
        list(&columns)
    );
    plan.alone("an index that finds rows that wait, in order", sql);
}

fn sequence(shape: &Shape, mapping: &mut Mapping, plan: &mut Plan) {
    if let Some(column) = shape.columns.iter().find(|column| column.is_counted) {
        mapping.order_by = vec![column.name.clone()];
        return plan.tell(run_with_sequence(&column.name));
    }
    let sql = format!(
        "ALTER TABLE {} ADD COLUMN {} bigint unsigned NOT NULL AUTO_INCREMENT UNIQUE",
        quoted_table(&shape.name),
        quoted(SEQUENCE_COLUMN)
    );
    if shape.column(SEQUENCE_COLUMN).is_some() || shape.rows > REWRITE_ROWS_MAX {
        return plan.tell(Finding::fail(
            "order",
            format!("{} has no AUTO_INCREMENT column to keep an order by", shape.name),
            format!(
                "Adding one rewrites the table and stops its writers meanwhile, so it is left to you: {sql};\n\
                 then run `install` again"
            ),
        ));
    }
    plan.alone("a number for each row, so that the order is exact", sql);
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

/// What is wrong with a table that is there: one finding for each difference, or one that says there is none.
pub fn check_columns(mapping: &Mapping, shape: &Shape) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in shape.missing(mapping) {
        findings.push(Finding::fail(
            "columns",
            format!("{} has no column {name}", shape.name),
            "Name the right one (the --…-column options), or add it",
        ));
    }
    if !shape.engine.eq_ignore_ascii_case("InnoDB") {
        findings.push(Finding::fail(
            "table",
            format!("the engine of {} is {}, which locks no rows", shape.name, shape.engine),
            format!("ALTER TABLE {} ENGINE = InnoDB;", quoted_table(&shape.name)),
        ));
    }
    if shape.unique_index(&mapping.id).is_none() {
        findings.push(Finding::fail(
            "unique-id",
            format!("no unique index of {} is on {} alone", shape.name, mapping.id),
            "The id is the message-id, and the relay finds rows by it: make it the primary key, or a unique index",
        ));
    }
    for (name, what) in [(&mapping.occurred, "the time of a row"), (&mapping.processed, "the mark")]
    {
        let column = name.as_deref().and_then(|name| shape.column(name));
        let is_mark_of_time = what != "the mark" || mapping.processed_value.is_none();
        if let Some(column) = column.filter(|column| is_mark_of_time && column.kind != Kind::Time) {
            findings.push(Finding::warn(
                "columns",
                format!("{} is {}: {what} is a datetime(6) elsewhere", column.name, column.type_text),
                "A row's time may also be seconds since 1970; the mark of time needs a column of time",
            ));
        }
    }
    let processed = mapping.processed.as_deref().and_then(|name| shape.column(name));
    if mapping.pending_where.is_none() && processed.is_some_and(|column| !column.is_nullable) {
        findings.push(Finding::fail(
            "columns",
            "the processed column is NOT NULL, and a row waits while it is NULL",
            "Make it NULL, or say with --pending-where which rows wait",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("columns", "all columns are there, of fitting types"));
    }
    findings
}

fn archive(wanted: &Wanted, found: &Found, plan: &mut Plan) {
    if wanted.config.on_success != OnSuccess::Archive {
        return;
    }
    let table = &wanted.config.mapping.table;
    let archive = archive_of(table);
    match (&found.archive, &found.table) {
        (Some(shape), _) if shape.column("archived_at").is_some() => {
            plan.tell(Finding::ok("archive", format!("{archive} is there")));
        }
        (Some(_), _) => plan.tell(Finding::fail(
            "archive",
            format!("{archive} has no column archived_at"),
            format!(
                "ALTER TABLE {} ADD COLUMN archived_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6);",
                quoted_table(&archive)
            ),
        )),
        (None, _) => {
            let (new, old) = (quoted_table(&archive), quoted_table(table));
            plan.alone("where confirmed rows are kept", format!("CREATE TABLE {new} LIKE {old}"));
            plan.alone(
                "when a row was put there",
                format!(
                    "ALTER TABLE {new} ADD COLUMN archived_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), \
                     ADD INDEX millrace_archived (archived_at)"
                ),
            );
        }
    }
}

/// An account as GRANT has it: `relay` or `relay@host`.
fn account(text: &str) -> String {
    let quoted = |part: &str| format!("'{}'", part.replace('\\', "\\\\").replace('\'', "''"));
    match text.rsplit_once('@') {
        Some((user, host)) => format!("{}@{}", quoted(user), quoted(host)),
        None => format!("{}@'%'", quoted(text)),
    }
}

fn grants(wanted: &Wanted, found: &Found, plan: &mut Plan) {
    let Some(role) = &wanted.grant_to else { return };
    let to = account(role);
    let table = &wanted.config.mapping.table;
    let schema = table.schema.clone().or_else(|| found.table.as_ref()?.name.schema.clone());
    // The companion is in the database of the connection, where a name without a schema leads.
    let of_outbox = quoted_table(&TableName { schema, name: table.name.clone() });
    let is_log = wanted.config.source != Source::Poll;
    let rights = match wanted.config.on_success {
        _ if is_log => "SELECT",
        OnSuccess::Update if wanted.config.mapping.processed.is_some() => "SELECT, UPDATE",
        OnSuccess::Update | OnSuccess::Delete | OnSuccess::Archive => "SELECT, UPDATE, DELETE",
    };
    plan.alone(
        format!("what {role} needs of the outbox"),
        format!("GRANT {rights} ON {of_outbox} TO {to}"),
    );
    plan.alone(
        format!("what {role} needs of failures"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {FAILURES} TO {to}"),
    );
    if is_log {
        plan.alone(
            format!("what {role} needs of places"),
            format!("GRANT SELECT, INSERT, UPDATE ON {PLACES} TO {to}"),
        );
        plan.alone(
            format!("that {role} may read the binlog"),
            format!("GRANT REPLICATION SLAVE ON *.* TO {to}"),
        );
    }
    if wanted.config.on_success == OnSuccess::Archive {
        let archive = quoted_table(&archive_of(table));
        plan.alone(
            format!("what {role} needs of the archive"),
            format!("GRANT INSERT ON {archive} TO {to}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::mapping::Preset;

    fn wanted(preset: Preset, change: impl FnOnce(&mut Config)) -> Wanted {
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut config = Config::new("mysql://h/d", broker, Mapping::preset(preset));
        change(&mut config);
        Wanted { config, partitions: None, grant_to: None }
    }

    #[test]
    fn a_new_table_has_the_index_that_finds_its_rows() {
        let plan = plan(&wanted(Preset::OutboxMessages, |_| ()), &Found::default());
        let sql = &plan.steps[0].sql;
        assert!(
            sql.contains("KEY millrace_pending (`processed_on_utc`, `occurred_on_utc`, `id`)"),
            "{sql}"
        );
        assert!(sql.contains("PRIMARY KEY (`id`)"), "{sql}");
        // The binlog is read as UTF-8, whatever a server has for tables that do not say.
        assert!(sql.contains("DEFAULT CHARACTER SET utf8mb4"), "{sql}");
        assert_eq!(plan.steps.len(), 2, "the table, and that of failures");
    }

    #[test]
    fn an_order_gets_a_column_that_numbers_rows() {
        let plan =
            plan(&wanted(Preset::Debezium, |config| config.order = Order::Key), &Found::default());
        let sql = &plan.steps[0].sql;
        assert!(sql.contains("`seq` bigint unsigned NOT NULL AUTO_INCREMENT UNIQUE"), "{sql}");
        assert!(
            plan.report.of("order").any(|it| it.what.contains("seq numbers rows")),
            "{}",
            plan.report
        );
    }

    #[test]
    fn accounts_are_quoted() {
        assert_eq!(account("relay"), "'relay'@'%'");
        assert_eq!(account("re'lay@10.0.0.%"), "'re''lay'@'10.0.0.%'");
    }
}
