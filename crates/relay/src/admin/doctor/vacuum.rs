//! What keeps dead rows from being removed, and how many there are.

use super::{Facts, Holder};
use crate::admin::finding::Finding;
use crate::admin::words::{grouped, in_words};
use crate::config::Config;

/// A transaction that is older keeps every row that has died since.
const HELD_WARN_SECONDS: f64 = 60.0;
const HELD_FAIL_SECONDS: f64 = 3600.0;
/// For holders without a time: transactions since.
const HELD_TRANSACTIONS: i64 = 100_000;
const DEAD_ROWS: i64 = 50_000;

pub(super) fn horizon(_: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let mut is_free = true;
    let masked: Vec<&Holder> = facts.holders.iter().filter(|holder| holder.is_masked).collect();
    if let [first, ..] = masked.as_slice() {
        is_free = false;
        findings.push(Finding::warn(
            "unread",
            format!(
                "{} sessions of other roles hold a snapshot (such as {} of {}), and this role may not see for how long: \
                 an old one keeps dead rows from being removed",
                masked.len(),
                first.name,
                first.who
            ),
            format!("GRANT pg_monitor TO {};", crate::sql::quoted(&facts.server.role)),
        ));
    }
    for holder in &facts.holders {
        let (is_old, is_very_old) = match holder.seconds {
            Some(seconds) => (seconds >= HELD_WARN_SECONDS, seconds >= HELD_FAIL_SECONDS),
            None => (holder.transactions >= HELD_TRANSACTIONS, false),
        };
        if !is_old {
            continue;
        }
        is_free = false;
        let mut what = format!("{} {}", holder.kind, holder.name);
        for (word, value) in [("of", &holder.who), ("as", &holder.application)] {
            if !value.is_empty() {
                what += &format!(" {word} {value}");
            }
        }
        if let Some(seconds) = holder.seconds {
            what += &format!(", for {}", in_words(seconds));
        }
        what += &format!(
            ", {}: no row that died in the last {} transactions can be removed",
            holder.state,
            grouped(holder.transactions)
        );
        if !holder.detail.is_empty() {
            what += &format!(". {}", holder.detail);
        }
        let advice = match holder.kind.as_str() {
            "session" => format!(
                "End it if nobody needs it: SELECT pg_terminate_backend({}); and give its role an \
                 idle_in_transaction_session_timeout",
                holder.name.trim_start_matches("pid ")
            ),
            "prepared transaction" => {
                format!(
                    "COMMIT PREPARED {0}; or ROLLBACK PREPARED {0};",
                    crate::sql::literal(&holder.name)
                )
            }
            "slot" => format!(
                "Start its reader, or: SELECT pg_drop_replication_slot({});",
                crate::sql::literal(&holder.name)
            ),
            _ => "End the long query on the standby, or switch hot_standby_feedback off there"
                .to_owned(),
        };
        findings.push(match is_very_old {
            true => Finding::fail("xmin-horizon", what, advice),
            false => Finding::warn("xmin-horizon", what, advice),
        });
    }
    if is_free {
        findings
            .push(Finding::ok("xmin-horizon", "nothing old keeps dead rows from being removed"));
    }
}

pub(super) fn dead_rows(_: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    if !facts.server.autovacuum {
        findings.push(Finding::fail(
            "dead-rows",
            "autovacuum is off: an outbox only grows",
            "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();",
        ));
    }
    let mut is_clean = facts.server.autovacuum;
    for vacuum in &facts.vacuums {
        let name = &vacuum.name;
        if vacuum.is_off {
            is_clean = false;
            findings.push(Finding::fail(
                "dead-rows",
                format!("autovacuum is off for {name}"),
                "ALTER TABLE … RESET (autovacuum_enabled);",
            ));
        }
        if vacuum.dead >= DEAD_ROWS && vacuum.dead > vacuum.live {
            is_clean = false;
            let last =
                vacuum.seconds.map_or("never".to_owned(), |s| format!("{} ago", in_words(s)));
            findings.push(Finding::warn(
                "dead-rows",
                format!(
                    "{name} has {} dead rows and {} live ones; the last vacuum was {last}",
                    grouped(vacuum.dead), grouped(vacuum.live)
                ),
                format!(
                    "If `xmin-horizon` above is clear: VACUUM it, and let autovacuum come sooner: ALTER TABLE … SET \
                     (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = {DEAD_ROWS}, \
                     autovacuum_vacuum_cost_delay = 0);"
                ),
            ));
        }
    }
    if is_clean {
        let dead: i64 = facts.vacuums.iter().map(|vacuum| vacuum.dead).sum();
        findings.push(Finding::ok("dead-rows", format!("{} dead rows", grouped(dead))));
    }
}
