//! The rows: ids twice, old ones, failed ones.

use super::{Facts, is_poll};
use crate::admin::finding::Finding;
use crate::admin::status::BEHIND;
use crate::admin::words::{grouped, in_words};
use crate::config::{Config, OnDead, Order};

/// A pending row that is older has been forgotten by somebody.
const OLD_WARN_SECONDS: f64 = 300.0;
const OLD_FAIL_SECONDS: f64 = 3600.0;

pub(super) fn duplicates(_: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    if !facts.duplicates.is_empty() {
        findings.push(Finding::fail(
            "unique-id",
            format!("ids that are there twice: {}", facts.duplicates.join(", ")),
            "Two rows with one id have one message-id: consumers drop the second, and a failure of one holds both",
        ));
    }
}

pub(super) fn pending(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(pending) = facts.pending.as_ref().filter(|_| is_poll(config)) else { return };
    let relays = facts.server.relays;
    let parked: i64 = facts.failures.iter().filter(|f| !f.is_dead).map(|f| f.count).sum();
    let connected = match relays {
        0 => "no relay is connected".to_owned(),
        count => format!("relays have {count} connections"),
    };
    let oldest = pending.oldest_seconds.unwrap_or(0.0);
    let what = format!(
        "{} rows wait, the oldest for {}; {connected}; {} of them have failed and wait for their next attempt",
        grouped(pending.rows),
        in_words(oldest),
        grouped(parked)
    );
    let advice = match relays {
        0 => "Start `millrace relay run`",
        _ => {
            "See `millrace relay status` and the relay's log: broker away, failures, a blocked key, or too few workers"
        }
    };
    let is_explained = relays > 0 && parked >= pending.rows;
    findings.push(match oldest {
        oldest if oldest < OLD_WARN_SECONDS || pending.rows == 0 || is_explained => {
            Finding::ok("pending", what)
        }
        oldest if oldest < OLD_FAIL_SECONDS => Finding::warn("pending", what, advice),
        _ => Finding::fail("pending", what, advice),
    });
}

pub(super) fn failures(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    if facts.failures.is_empty() {
        findings.push(Finding::ok("failures", "no row waits for another attempt, none is dead"));
    }
    for failure in facts.failures.iter().filter(|failure| failure.reason != BEHIND) {
        let count = grouped(failure.count);
        let reason = &failure.reason;
        let example = format!("for example {}: {}", failure.example, failure.error);
        findings.push(if failure.is_dead {
            let blocks = match (config.order, config.on_dead) {
                (Order::Key | Order::Strict, OnDead::Block) => "; later rows of their keys wait",
                (Order::None, _) | (_, OnDead::Skip) => "",
            };
            Finding::fail(
                "failures",
                format!("{count} rows are dead ({reason}){blocks}; {example}"),
                format!(
                    "Mend the cause, then `millrace relay replay --reason {reason}`; or drop them: `millrace relay \
                     purge --dead --older-than 0s`"
                ),
            )
        } else {
            Finding::warn(
                "failures",
                format!("{count} rows wait for another attempt ({reason}, up to {} made); {example}", failure.attempts_max),
                "They are tried again by themselves; after mending the cause: `millrace relay replay --waiting`",
            )
        });
    }
}
