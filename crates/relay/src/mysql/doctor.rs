//! What may be wrong with an outbox in MariaDB or MySQL, judged from facts. The runbook is that of PostgreSQL where a check
//! has the same name.

use super::binlog::server::Binlog;
use super::install::check_columns;
use super::shape::{Shape, wanted_index};
use super::{sql, version};
use crate::admin::doctor::{self as postgres, Failure, Pending};
use crate::admin::words::in_words;
use crate::admin::{Finding, Report};
use crate::config::{Config, Order, Source};

/// A difference of clocks that is told, and one that is wrong.
const CLOCK_WARN_S: f64 = 2.0;
const CLOCK_FAIL_S: f64 = 60.0;
/// A transaction that is older keeps old versions of rows: each fetch reads past them.
const TRANSACTION_WARN_S: f64 = 300.0;

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the server calls itself.
    pub version: String,
    pub is_remote: bool,
    pub uses_tls: bool,
    /// The server takes no writes.
    pub is_read_only: bool,
    pub flush_log_at_commit: i64,
    /// None: it writes no binlog.
    pub sync_binlog: Option<i64>,
    pub connections: i64,
    pub connections_max: i64,
    /// The database's clock less ours, and the half of the time the question took, in seconds.
    pub clock: Option<(f64, f64)>,
    /// None: there is no such table.
    pub shape: Option<Shape>,
    pub has_companion: bool,
    /// Statements of the relay that this user may not run, and what the server says of them.
    pub refused: Vec<(String, String)>,
    pub pending: Option<Pending>,
    pub failures: Vec<Failure>,
    /// Workers that are connected.
    pub relays: i64,
    /// Age of the oldest transaction of anybody, in seconds.
    pub oldest_transaction: Option<f64>,
    /// What the server says of its binlog, where that is the source.
    pub binlog: Option<Binlog>,
    /// There is a table of places.
    pub has_places: bool,
    /// What could not be read, and why.
    pub unread: Vec<(String, String)>,
}

/// Everything there is to say.
pub fn judge(config: &Config, facts: &Facts) -> Report {
    let mut findings = Vec::new();
    for (what, why) in &facts.unread {
        findings.push(Finding::warn(
            "unread",
            format!("{what} could not be read: {why}"),
            "Run `doctor` as a user that may (with the privilege PROCESS)",
        ));
    }
    server(facts, &mut findings);
    postgres::broker_tls(config, &mut findings);
    clock(facts, &mut findings);
    table(config, facts, &mut findings);
    if let Some(binlog) = &facts.binlog {
        findings.extend(binlog.findings());
        findings.push(match facts.has_places {
            true => Finding::ok("companion", format!("the table {} is there", sql::PLACES)),
            false => Finding::fail(
                "companion",
                format!("the table {} is missing", sql::PLACES),
                "`millrace relay install --source wal` makes it",
            ),
        });
    }
    let known = postgres::Facts {
        pending: facts.pending.clone(),
        failures: facts.failures.clone(),
        server: postgres::Server { relays: facts.relays, ..Default::default() },
        ..Default::default()
    };
    postgres::judge_rows(config, &known, &mut findings);
    match facts.oldest_transaction {
        Some(age) if age > TRANSACTION_WARN_S => findings.push(Finding::warn(
            "xmin-horizon",
            format!("a transaction is open for {}: old versions of rows stay, and each fetch reads past them", in_words(age)),
            "SELECT * FROM information_schema.innodb_trx ORDER BY trx_started; then end it",
        )),
        Some(_) | None => (),
    }
    Report { findings }
}

fn server(facts: &Facts, findings: &mut Vec<Finding>) {
    findings.push(match version::check(&facts.version) {
        Ok(()) if facts.is_read_only => Finding::fail(
            "server",
            format!("{} is read-only: a replica", facts.version),
            "Give the primary's URL",
        ),
        Ok(()) => Finding::ok("server", facts.version.clone()),
        Err(why) => Finding::fail("server", why, "Upgrade the server"),
    });
    let mut is_durable = true;
    if facts.flush_log_at_commit != 1 {
        is_durable = false;
        findings.push(Finding::warn(
            "durability",
            format!(
                "innodb_flush_log_at_trx_commit is {}: a crash can lose committed rows",
                facts.flush_log_at_commit
            ),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's file",
        ));
    }
    if facts.sync_binlog.is_some_and(|every| every != 1) {
        is_durable = false;
        findings.push(Finding::warn(
            "durability",
            "sync_binlog is not 1: after a crash a replica may lack committed rows, or have others",
            "SET GLOBAL sync_binlog = 1, and in the server's file",
        ));
    }
    if is_durable {
        findings.push(Finding::ok("durability", "every commit is synced"));
    }
    findings.push(match (facts.is_remote, facts.uses_tls) {
        (_, true) => Finding::ok("tls", "the connection to the database is encrypted and verified"),
        (false, false) => Finding::ok("tls", "the database is on this machine; no TLS is used"),
        (true, false) => Finding::fail(
            "tls",
            "the database is on another machine, and rows and password travel in the clear",
            "Use sslmode=verify-full (with sslrootcert=FILE for an authority of your own)",
        ),
    });
}

fn clock(facts: &Facts, findings: &mut Vec<Finding>) {
    let Some((offset, half_trip)) = facts.clock else { return };
    let least = (offset.abs() - half_trip).max(0.0);
    let how = if offset > 0.0 { "ahead of" } else { "behind" };
    let what = format!("the database's clock is {} {how} this machine's", in_words(offset.abs()));
    let advice = "Ages and timestamps of messages come from the database; run NTP (chrony) on both";
    findings.push(match least {
        least if least < CLOCK_WARN_S => Finding::ok("clock", "as here, within a second or two"),
        least if least < CLOCK_FAIL_S => Finding::warn("clock", what, advice),
        _ => Finding::fail("clock", what, advice),
    });
}

fn table(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let needed = i64::from(config.workers) + 2;
    if facts.relays == 0 && facts.connections_max - facts.connections < needed {
        findings.push(Finding::fail(
            "connections",
            format!(
                "{} of {} connections are used: a relay with {} workers needs {needed}",
                facts.connections, facts.connections_max, config.workers
            ),
            "Raise max_connections, or give --workers less",
        ));
    }
    let mapping = &config.mapping;
    let Some(shape) = &facts.shape else {
        findings.push(Finding::fail(
            "table",
            format!("there is no table {}", mapping.table),
            "`millrace relay install` makes it, or name another with --table",
        ));
        return;
    };
    findings.extend(check_columns(mapping, shape));
    findings.push(match facts.has_companion {
        true => Finding::ok("companion", format!("the table {} is there", sql::FAILURES)),
        false => Finding::fail(
            "companion",
            format!("the table {} is missing", sql::FAILURES),
            "`millrace relay install` makes it",
        ),
    });
    for (doing, why) in &facts.refused {
        findings.push(Finding::fail(
            "privileges",
            format!("{doing} is refused: {why}"),
            "`millrace relay install --grant-to USER@HOST`, run by an owner",
        ));
    }
    if facts.refused.is_empty() && facts.has_companion {
        findings.push(Finding::ok("privileges", "this user may do all that the relay does"));
    }
    if config.source != Source::Poll {
        // The table is read once, and the log has its own order.
        let unreadable = shape.unreadable(mapping);
        if !unreadable.is_empty() {
            findings.push(Finding::fail(
                "columns",
                format!("the binlog cannot be read as text: {}", unreadable.join("; ")),
                "Use --source poll, or change the columns",
            ));
        }
        return;
    }
    match wanted_index(mapping) {
        Some(_) if shape.serving_index(mapping).is_none() => findings.push(Finding::fail(
            "index",
            "no index finds rows that wait, in order: a fetch reads and locks all of them, so that one worker works at a time",
            "`millrace relay install`",
        )),
        Some(_) => findings.push(Finding::ok("index", "an index finds rows that wait, in order")),
        None => (),
    }
    let first = mapping.order_by.first().and_then(|name| shape.column(name));
    if config.order != Order::None && !first.is_some_and(|column| column.is_counted) {
        findings.push(Finding::warn(
            "order",
            "an order was asked for, of a column that does not number rows: two rows of one moment have no order",
            "`millrace relay install --order key`, then `--order-by seq`",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Grade;
    use crate::mapping::{Mapping, Preset};

    #[test]
    fn what_can_lose_rows_or_stop_the_relay_is_found() {
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let config = Config::new("mysql://h/d", broker, Mapping::preset(Preset::OutboxMessages));
        let facts = Facts {
            version: "10.5.1-MariaDB".into(),
            is_remote: true,
            flush_log_at_commit: 2,
            connections_max: 10,
            connections: 8,
            clock: Some((-120.0, 0.1)),
            oldest_transaction: Some(4000.0),
            ..Facts::default()
        };
        let report = judge(&config, &facts);
        for (check, grade) in [
            ("server", Grade::Fail),
            ("durability", Grade::Warn),
            ("tls", Grade::Fail),
            ("clock", Grade::Fail),
            ("connections", Grade::Fail),
            ("table", Grade::Fail),
            ("xmin-horizon", Grade::Warn),
        ] {
            assert_eq!(report.of(check).map(|it| it.grade).max(), Some(grade), "{check}: {report}");
        }
    }
}
