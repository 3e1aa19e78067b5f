//! What may be wrong with an outbox and its database, judged from facts.
//!
//! Each check is a function from the configuration and the facts to findings; the runbook for each finding is in
//! `docs/relay.md` under the check's name. A fact that could not be read is a finding too.

mod facts;
mod replication;
mod rows;
mod server;
mod table;
mod vacuum;

pub use facts::{
    Content, Facts, Failure, Holder, Identity, KnownSlot, Pending, Privileges, Server, Slot,
    Trigger, Vacuum,
};

use crate::admin::finding::{Finding, Report};
use crate::config::{Config, Source};

/// All checks, in the order in which they are told.
const CHECKS: &[fn(&Config, &Facts, &mut Vec<Finding>)] = &[
    server::version,
    server::durability,
    server::tls,
    server::clock,
    server::timeouts,
    server::connections,
    table::exists,
    table::bytes,
    table::privileges,
    table::index,
    table::covering_index,
    table::order,
    table::partitions,
    table::triggers,
    rows::duplicates,
    rows::pending,
    rows::failures,
    vacuum::horizon,
    vacuum::dead_rows,
    replication::wal_level,
    replication::slots,
    replication::known_slots,
    replication::identity,
];

/// Statements whose answers are [`Facts`]; those with a parameter take the table's oid.
pub mod sql {
    pub const SERVER: &str = include_str!("../sql/admin/server.sql");
    pub const HORIZON: &str = include_str!("../sql/admin/horizon.sql");
    pub const VACUUM: &str = include_str!("../sql/admin/vacuum.sql");
    pub const SLOTS: &str = include_str!("../sql/admin/slots.sql");
    pub const KNOWN_SLOTS: &str = include_str!("../sql/admin/known_slots.sql");
    pub const TRIGGERS: &str = include_str!("../sql/admin/triggers.sql");
    pub const IDENTITY: &str = include_str!("../sql/admin/identity.sql");
    /// The table's oid, and the columns that are written.
    pub const PRIVILEGES: &str = include_str!("../sql/admin/privileges.sql");
    /// The outbox' label.
    pub const FAILURES: &str = include_str!("../sql/admin/failures.sql");
}

/// Everything there is to say.
pub fn judge(config: &Config, facts: &Facts) -> Report {
    let mut findings = Vec::new();
    for (what, why) in &facts.unread {
        findings.push(Finding::warn(
            "unread",
            format!("{what} could not be read: {why}"),
            "Run `doctor` as a role that may (a superuser, or a member of pg_monitor)",
        ));
    }
    for check in CHECKS {
        check(config, facts, &mut findings);
    }
    Report { findings }
}

/// What there is to say of rows that wait or have failed, whichever database they are in.
pub(crate) fn judge_rows(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    rows::pending(config, facts, findings);
    rows::failures(config, facts, findings);
}

pub(crate) use server::broker_tls;

fn is_poll(config: &Config) -> bool {
    config.source == Source::Poll
}

#[cfg(test)]
mod tests;
