//! What not every relay needs: archive, publication, a role's privileges.

use super::{Found, Plan, Wanted, archive_of};
use crate::admin::finding::Finding;
use crate::config::{OnSuccess, Source};
use crate::mapping::TableName;
use crate::sql::quoted;

pub(super) fn archive(wanted: &Wanted, found: &Found, table: &TableName, plan: &mut Plan) {
    if wanted.config.on_success != OnSuccess::Archive {
        return;
    }
    let archive = archive_of(table);
    let Some(there) = &found.archive else {
        // No key: a row that is replayed comes here a second time.
        plan.step(
            "where confirmed rows go",
            format!(
                "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS, archived_at timestamptz NOT NULL DEFAULT clock_timestamp())",
                archive.quoted(),
                table.quoted()
            ),
        );
        return;
    };
    let outbox = found.table.as_ref().map_or(&[][..], |shape| &shape.columns);
    let fits = outbox
        .iter()
        .all(|column| there.column(&column.name).is_some_and(|other| other.kind == column.kind));
    plan.tell(match fits && there.column("archived_at").is_some() {
        true => Finding::ok("archive", format!("{archive} is there")),
        false => Finding::fail(
            "archive",
            format!("{archive} lacks a column of {table}, has it with another type, or has no archived_at"),
            "Rename it and run `install` again: a new one is made, the old one keeps its rows",
        ),
    });
}

pub(super) fn publication(wanted: &Wanted, found: &Found, plan: &mut Plan) {
    let (publication, table) = match &wanted.config.source {
        Source::Poll => return,
        Source::Wal { publication, .. } => (publication, Some(&wanted.config.mapping.table)),
        Source::Messages { publication, .. } => (publication, None),
    };
    if found.server.wal_level != "logical" {
        plan.tell(Finding::fail(
            "wal-level",
            format!("wal_level is {}", found.server.wal_level),
            "ALTER SYSTEM SET wal_level = 'logical'; and restart PostgreSQL",
        ));
    }
    let name = quoted(publication);
    // Partitions publish under the name of their table, so that the relay sees one table.
    let with = "WITH (publish = 'insert', publish_via_partition_root = true)";
    let Some(there) = &found.publication else {
        let of = table.map_or(String::new(), |table| format!(" FOR TABLE {}", table.quoted()));
        plan.step(
            "what logical replication sends",
            format!("CREATE PUBLICATION {name}{of} {with}"),
        );
        return;
    };
    if let Some(table) = table
        && !there.has_table
    {
        let sql = format!("ALTER PUBLICATION {name} ADD TABLE {}", table.quoted());
        plan.step("the publication is there, and the outbox is not in it", sql);
    } else if !there.publishes_insert || !there.via_root {
        plan.step(
            "the publication is there, and does not publish inserts of partitions under the table's name",
            format!("ALTER PUBLICATION {name} SET (publish = 'insert', publish_via_partition_root = true)"),
        );
    } else {
        plan.tell(Finding::ok("publication", format!("{publication} publishes inserts")));
    }
}

/// The least that `millrace relay run` needs.
pub(super) fn grants(wanted: &Wanted, found: &Found, plan: &mut Plan) {
    let Some(role) = &wanted.grant_to else { return };
    let role = quoted(role);
    let mapping = &wanted.config.mapping;
    let table = found.table.as_ref().map_or_else(|| mapping.table.clone(), |shape| shape.table());
    let name = table.quoted();
    let why = "what the relay's role needs, and no more";
    let mut grant = |sql: String| plan.step(why, sql);
    if !matches!(wanted.config.source, Source::Messages { .. }) {
        if let Some(schema) = &table.schema {
            grant(format!("GRANT USAGE ON SCHEMA {} TO {role}", quoted(schema)));
        }
        grant(format!("GRANT SELECT ON {name} TO {role}"));
    }
    if wanted.config.source == Source::Poll {
        let marks = [&mapping.processed, &mapping.error];
        let marks: Vec<String> = marks.into_iter().flatten().map(|name| quoted(name)).collect();
        // FOR UPDATE asks for UPDATE of some column, whatever becomes of the row.
        let columns = if marks.is_empty() { vec![quoted(&mapping.id)] } else { marks };
        grant(format!("GRANT UPDATE ({}) ON {name} TO {role}", columns.join(", ")));
        if wanted.config.on_success != OnSuccess::Update {
            grant(format!("GRANT DELETE ON {name} TO {role}"));
        }
        if wanted.config.on_success == OnSuccess::Archive {
            grant(format!("GRANT INSERT ON {} TO {role}", archive_of(&table).quoted()));
        }
    }
    grant(format!("GRANT USAGE ON SCHEMA millrace TO {role}"));
    grant(format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA millrace TO {role}"
    ));
    if wanted.config.source != Source::Poll {
        plan.tell(Finding::warn(
            "privileges",
            "a replication slot needs the attribute REPLICATION, which only a superuser gives",
            format!("ALTER ROLE {role} REPLICATION;"),
        ));
    }
}
