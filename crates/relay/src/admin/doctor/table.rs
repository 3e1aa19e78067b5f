//! The table: columns, privileges, indexes, partitions, triggers.

use super::{Facts, is_poll};
use crate::admin::finding::Finding;
use crate::admin::install::{check_columns, index, partitions};
use crate::admin::shape::index_columns;
use crate::admin::words::grouped;
use crate::config::{Config, OnSuccess, Order, Source};
use crate::sql::BYTES;

/// Longest entry of a B-tree (version 4), with its header and all of its columns.
const INDEX_ENTRY_BYTES_MAX: i64 = 2704;
/// A largest row of so much of it is a failure that is near.
const NEAR_BYTES: i64 = INDEX_ENTRY_BYTES_MAX / 2;
const DAY_SECONDS: i64 = 86_400;

pub(super) fn exists(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    if matches!(config.source, Source::Messages { .. }) {
        return;
    }
    match &facts.shape {
        None => findings.push(Finding::fail(
            "table",
            format!("there is no table {}", config.mapping.table),
            "`millrace relay install` makes it; or name another with --table",
        )),
        Some(shape) => findings.extend(check_columns(&config.mapping, shape)),
    }
}

pub(super) fn bytes(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(shape) = facts.shape.as_ref().filter(|_| is_poll(config)) else { return };
    let is_bytes = |name: &&str| shape.column(name).is_some_and(|column| column.kind == "bytea");
    for name in config.compared().filter(is_bytes) {
        let advice = "The relay does not start with it";
        findings.push(Finding::fail("columns", format!("{name} {BYTES}"), advice));
    }
}

pub(super) fn privileges(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let role = &facts.server.role;
    let grant = "`millrace relay install --grant-to ROLE` (as the table's owner) gives them";
    let mut missing: Vec<String> = Vec::new();
    if let Some(held) = &facts.privileges {
        let mut need = |has: bool, what: &str| {
            if !has {
                missing.push(what.to_owned());
            }
        };
        if let Some(shape) = &facts.shape {
            let label = shape.label();
            need(held.may_select, &format!("SELECT on {label}"));
            if is_poll(config) {
                need(
                    held.may_lock,
                    &format!("UPDATE of some column of {label} (FOR UPDATE asks for it)"),
                );
                if config.on_success == OnSuccess::Update {
                    need(
                        held.may_mark,
                        &format!("UPDATE of the processed and error columns of {label}"),
                    );
                } else {
                    need(held.may_delete, &format!("DELETE on {label}"));
                }
            }
        }
        if held.companion_tables < 2 {
            findings.push(Finding::fail(
                "companion",
                "the schema millrace is not there: failures and slots cannot be remembered",
                "`millrace relay install` makes it",
            ));
        } else {
            need(
                held.may_remember,
                "SELECT, INSERT, UPDATE, DELETE on the tables of the schema millrace",
            );
        }
    }
    if !is_poll(config) && !facts.server.may_replicate {
        missing.push(format!("the attribute REPLICATION (ALTER ROLE {role} REPLICATION)"));
    }
    findings.push(if missing.is_empty() {
        Finding::ok("privileges", format!("{role} may do what the relay does"))
    } else {
        Finding::fail("privileges", format!("{role} lacks {}", missing.join("; ")), grant)
    });
    let is_hidden = facts.shape.as_ref().is_some_and(|shape| shape.has_row_security);
    if is_hidden && !facts.server.bypasses_row_security {
        findings.push(Finding::warn(
            "privileges",
            "the table has row-level security: rows that a policy hides from this role are never published",
            "Give the relay's role a policy that shows all rows, or BYPASSRLS",
        ));
    }
}

pub(super) fn index(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(shape) = facts.shape.as_ref().filter(|_| is_poll(config)) else { return };
    let mapping = &config.mapping;
    for index in shape.indexes.iter().filter(|index| !index.is_valid) {
        findings.push(Finding::warn(
            "index",
            format!("{} is invalid: it costs writes and is not used", index.name),
            format!(
                "DROP INDEX CONCURRENTLY {}.{}; then `millrace relay install`",
                crate::sql::quoted(&shape.schema),
                crate::sql::quoted(&index.name)
            ),
        ));
    }
    if !index::is_needed(mapping) {
        findings
            .push(Finding::ok("index", "rows are deleted and have no order: no index is needed"));
        return;
    }
    findings.push(match shape.serving_index(mapping) {
        Some(index) => Finding::ok("index", format!("{} finds pending rows in order", index.name)),
        None => Finding::fail(
            "index",
            format!(
                "no index begins with ({}){}: every fetch reads the table, processed rows too",
                index_columns(mapping).join(", "),
                match (&mapping.pending_where, &mapping.processed) {
                    (Some(condition), _) => format!(" WHERE {condition}"),
                    (None, Some(name)) => format!(" WHERE {name} IS NULL"),
                    (None, None) => String::new(),
                }
            ),
            format!("`millrace relay install`, or: {};", index::recommended(mapping, shape)),
        ),
    });
}

/// `FOR UPDATE` reads the row itself, so a copy of the content in the index buys nothing; and it has a longest length,
/// past which the *application's* INSERT fails.
pub(super) fn covering_index(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(shape) = &facts.shape else { return };
    let payload = &config.mapping.payload;
    for index in shape.indexes.iter().filter(|index| index.holds(payload)) {
        let largest = facts.content.as_ref().map_or(String::new(), |content| {
            format!(
                "; the largest of {} rows looked at has {} bytes (id {})",
                grouped(content.rows),
                grouped(content.bytes),
                content.id
            )
        });
        let what = format!(
            "{} holds a copy of {payload}: an INSERT whose entry has more than {} bytes (compressed) fails{largest}. {}",
            index.name,
            grouped(INDEX_ENTRY_BYTES_MAX),
            index.definition
        );
        let advice = format!(
            "It makes the relay no faster. Run `millrace relay install` for one without the content, then: \
             DROP INDEX CONCURRENTLY {}.{};",
            crate::sql::quoted(&shape.schema),
            crate::sql::quoted(&index.name)
        );
        let is_near = facts.content.as_ref().is_some_and(|content| content.bytes >= NEAR_BYTES);
        findings.push(match is_near {
            true => Finding::fail("covering-index", what, advice),
            false => Finding::warn("covering-index", what, advice),
        });
    }
}

pub(super) fn order(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(shape) = facts.shape.as_ref().filter(|_| is_poll(config)) else { return };
    if config.order == Order::None {
        return;
    }
    let first = config.mapping.order_by.first();
    let is_sequence =
        first.and_then(|first| shape.column(first)).is_some_and(|column| column.is_sequence);
    findings.push(if is_sequence {
        Finding::ok("order", format!("rows are numbered by {}", first.map_or("", String::as_str)))
    } else {
        Finding::warn(
            "order",
            format!(
                "an order was asked for, and rows are ordered by {}: two rows of one transaction can have the same \
                 time, and writers' clocks differ",
                first.map_or("nothing", String::as_str)
            ),
            "`millrace relay install --order key` adds a sequence column; then --order-by seq",
        )
    });
}

pub(super) fn partitions(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(shape) = facts.shape.as_ref().filter(|shape| shape.is_partitioned()) else { return };
    let bounds = shape.leaves.iter().filter_map(|leaf| partitions::range(leaf.bound.as_deref()?));
    let last = bounds.map(|(_, to)| to).max();
    let advice = "Run `millrace relay install --partitions day` (or month) daily: it makes those that are missing";
    findings.push(match last {
        Some(last) if last.saturating_sub(facts.now_seconds) >= DAY_SECONDS => Finding::ok(
            "partitions",
            format!("{} partitions, with a day ahead", shape.leaves.len()),
        ),
        _ => Finding::warn("partitions", "the last partition ends within a day", advice),
    });
    if facts.default_rows > 0 {
        findings.push(Finding::warn(
            "partitions",
            format!(
                "{} rows lie in the default partition: it cannot be dropped, and no partition can be made for their time",
                grouped(facts.default_rows)
            ),
            format!("Once they are processed: `millrace relay purge`. {advice}"),
        ));
    }
    if config.mapping.occurred.is_none() {
        findings.push(Finding::warn(
            "partitions",
            "the mapping names no column with the time of a row",
            "--occurred-column: `purge --drop-partitions` needs it",
        ));
    }
}

pub(super) fn triggers(_: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    for trigger in &facts.triggers {
        let name = &trigger.name;
        if trigger.notifies && trigger.is_per_row {
            findings.push(Finding::warn(
                "triggers",
                format!("{name} ({}) notifies for each row: commits of many writers wait for one another", trigger.function),
                "Polling finds rows within milliseconds; else FOR EACH STATEMENT, or one NOTIFY by the application",
            ));
        } else if trigger.is_per_row && trigger.fires_on_mark {
            findings.push(Finding::warn(
                "triggers",
                format!(
                    "{name} ({}) runs for each row that is marked or deleted",
                    trigger.function
                ),
                "Narrow it (UPDATE OF columns that the relay does not write), or drop it",
            ));
        }
    }
}
