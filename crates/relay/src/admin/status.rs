//! How an outbox stands: backlog, failures, blocked keys, relays, slots.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::admin::doctor::{Failure, KnownSlot};
use crate::admin::shape::Shape;
use crate::admin::words::{grouped, in_words, size};
use crate::mapping::Mapping;
use crate::sql::quoted;

/// Rows are counted up to here; beyond, the planner's estimate is told as such.
pub const BACKLOG_EXACT_MAX: i64 = 1_000_000;
/// The reason of a row that has not failed itself.
pub(crate) const BEHIND: &str = "waiting";
/// Keys that are named; the rest is counted.
const KEYS_SHOWN: usize = 20;

/// Reads [`RelaySession`]s.
pub const READ_RELAYS: &str = include_str!("../sql/admin/relays.sql");
/// Reads [`BlockedKey`]s of an outbox: one more than are shown.
pub const READ_BLOCKED_KEYS: &str = include_str!("../sql/admin/blocked_keys.sql");

/// All of it, at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    pub outbox: String,
    /// None: the source is the log, see `slots`.
    pub backlog: Option<Backlog>,
    pub failures: Vec<FailureLine>,
    pub blocked_keys: Vec<BlockedKey>,
    pub relays: Vec<RelaySession>,
    pub slots: Vec<SlotLine>,
}

/// Rows that wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Backlog {
    pub rows: i64,
    /// False: the planner's estimate.
    pub is_exact: bool,
    pub oldest_seconds: Option<f64>,
    /// How fast it has changed since the last look (`--watch`).
    pub per_second: Option<f64>,
}

/// Failures of one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureLine {
    pub reason: String,
    pub is_dead: bool,
    pub count: i64,
    pub attempts_max: i32,
    pub next_seconds: Option<f64>,
    pub example: String,
    pub error: String,
}

/// A key whose rows wait for one that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockedKey {
    pub key: String,
    pub failed: i64,
    pub is_dead: bool,
    pub next_seconds: Option<f64>,
    pub row_id: String,
    pub reason: String,
}

/// A connection of a relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelaySession {
    pub pid: i32,
    pub name: String,
    pub address: String,
    pub state: String,
    pub transaction_seconds: Option<f64>,
    /// Advisory locks: its lanes, or its turn at the slot.
    pub locks: i64,
}

/// A slot that a relay has used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlotLine {
    pub name: String,
    pub is_there: bool,
    pub is_active: bool,
    /// The table was not read to its end yet.
    pub is_begun: bool,
    pub wal_status: String,
    pub lag_bytes: Option<i64>,
    pub last_commit_seconds: Option<f64>,
}

impl From<Failure> for FailureLine {
    fn from(failure: Failure) -> Self {
        let Failure { reason, is_dead, count, attempts_max, next_seconds, error, example, .. } =
            failure;
        Self { reason, is_dead, count, attempts_max, next_seconds, example, error }
    }
}

impl From<KnownSlot> for SlotLine {
    fn from(slot: KnownSlot) -> Self {
        let KnownSlot {
            name,
            is_there,
            is_active,
            is_begun,
            wal_status,
            lag_bytes,
            last_commit_seconds,
            ..
        } = slot;
        Self { name, is_there, is_active, is_begun, wal_status, lag_bytes, last_commit_seconds }
    }
}

/// Age of the oldest pending row in seconds, as an expression.
fn oldest(mapping: &Mapping, shape: &Shape) -> String {
    let Some(column) = mapping.occurred.as_ref().and_then(|name| shape.column(name)) else {
        return "NULL::float8".into();
    };
    let name = quoted(&column.name);
    let age = match column.kind.starts_with("timestamp") {
        true => format!("extract(epoch FROM now() - o.{name})"),
        false => format!("extract(epoch FROM now()) - o.{name}"),
    };
    let table = shape.table().quoted();
    let pending = mapping.is_pending("o");
    format!(
        "(SELECT ({age})::float8 FROM {table} o WHERE {pending} AND o.{name} IS NOT NULL ORDER BY o.{name} LIMIT 1)"
    )
}

/// Counts pending rows up to `bound`, as `rows` and `oldest_seconds`.
pub fn backlog(mapping: &Mapping, shape: &Shape, bound: i64) -> String {
    format!(
        "SELECT (SELECT count(*) FROM (SELECT FROM {} o WHERE {} LIMIT {bound}) p) AS rows, {} AS oldest_seconds",
        shape.table().quoted(),
        mapping.is_pending("o"),
        oldest(mapping, shape)
    )
}

/// The planner's estimate of the same, as EXPLAIN's JSON.
pub fn estimate(mapping: &Mapping, shape: &Shape) -> String {
    format!(
        "EXPLAIN (FORMAT JSON) SELECT FROM {} o WHERE {}",
        shape.table().quoted(),
        mapping.is_pending("o")
    )
}

/// Rows that EXPLAIN expects.
pub fn plan_rows(explained: &str) -> Option<i64> {
    let value: serde_json::Value = serde_json::from_str(explained).ok()?;
    let rows = value.get(0)?.get("Plan")?.get("Plan Rows")?.as_f64()?;
    Some(rows as i64)
}

impl Status {
    /// Fills in how fast the backlog changes, from the look before.
    pub fn since(&mut self, before: &Self, seconds: f64) {
        let (Some(now), Some(then)) = (&mut self.backlog, &before.backlog) else { return };
        if seconds > 0.0 && now.is_exact && then.is_exact {
            now.per_second = Some((now.rows - then.rows) as f64 / seconds);
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "outbox    {}", self.outbox)?;
        if let Some(backlog) = &self.backlog {
            let about = if backlog.is_exact { "" } else { "about " };
            write!(out, "backlog   {about}{} rows", grouped(backlog.rows))?;
            if let Some(oldest) = backlog.oldest_seconds.filter(|_| backlog.rows > 0) {
                write!(out, ", the oldest for {}", in_words(oldest))?;
            }
            match backlog.per_second {
                Some(rate) if rate <= -0.5 => {
                    write!(out, ", falling by {}/s", grouped(-rate as i64))?
                }
                Some(rate) if rate >= 0.5 => {
                    write!(out, ", growing by {}/s", grouped(rate as i64))?
                }
                Some(_) | None => (),
            }
            writeln!(out)?;
        }
        self.show_failures(out)?;
        self.show_relays(out)
    }
}

impl Status {
    fn show_failures(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.failures.is_empty() {
            writeln!(out, "failures  none")?;
        }
        for (index, failure) in self.failures.iter().enumerate() {
            let head = if index == 0 { "failures" } else { "" };
            let count = grouped(failure.count);
            let (reason, attempts) = (&failure.reason, failure.attempts_max);
            write!(out, "{head:<8}  {count} ")?;
            match (failure.is_dead, reason.as_str()) {
                (true, _) => write!(out, "dead ({reason}, after {attempts} attempts)")?,
                (false, BEHIND) => write!(out, "waiting behind another row of their key")?,
                (false, _) => {
                    let next = in_words(failure.next_seconds.unwrap_or(0.0));
                    write!(
                        out,
                        "waiting ({reason}, {attempts} attempts made, the next in {next})"
                    )?;
                }
            }
            writeln!(out, ", for example {}: {}", failure.example, failure.error)?;
        }
        for (index, key) in self.blocked_keys.iter().take(KEYS_SHOWN).enumerate() {
            let head = if index == 0 { "keys" } else { "" };
            let until = match key.next_seconds {
                Some(seconds) if !key.is_dead => {
                    format!("its next attempt in {}", in_words(seconds))
                }
                Some(_) | None => "it is dead: replay or purge it".into(),
            };
            writeln!(
                out,
                "{head:<8}  `{}` waits for {} ({}): {until}",
                key.key, key.row_id, key.reason
            )?;
        }
        if self.blocked_keys.len() > KEYS_SHOWN {
            writeln!(out, "{:10}and more", "")?;
        }
        Ok(())
    }

    fn show_relays(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.relays.is_empty() {
            writeln!(out, "relays    none is connected")?;
        }
        for (index, relay) in self.relays.iter().enumerate() {
            let head = if index == 0 { "relays" } else { "" };
            write!(
                out,
                "{head:<8}  {} from {} (pid {}), {}",
                relay.name, relay.address, relay.pid, relay.state
            )?;
            if let Some(seconds) = relay.transaction_seconds {
                write!(out, ", its transaction is {} old", in_words(seconds))?;
            }
            match relay.locks {
                0 => writeln!(out)?,
                1 => writeln!(out, ", 1 advisory lock")?,
                count => writeln!(out, ", {count} advisory locks")?,
            }
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let head = if index == 0 { "slots" } else { "" };
            write!(out, "{head:<8}  {}: ", slot.name)?;
            match (slot.is_there, slot.wal_status.as_str(), slot.is_active) {
                (false, _, _) if slot.is_begun => write!(
                    out,
                    "not made yet: `millrace relay run` makes it when open transactions have ended"
                )?,
                (false, _, _) => write!(out, "GONE: run `millrace relay resync`")?,
                (_, "lost", _) => write!(out, "LOST: run `millrace relay resync`")?,
                (_, status, true) => write!(out, "read, {status}")?,
                (_, status, false) => write!(out, "no reader, {status}")?,
            }
            if let Some(lag) = slot.lag_bytes {
                write!(out, ", {} behind", size(lag as f64))?;
            }
            if let Some(seconds) = slot.last_commit_seconds {
                write!(out, ", the last commit published is {} old", in_words(seconds))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlogs_change_is_told_only_between_exact_counts() {
        let of = |rows, is_exact| Status {
            backlog: Some(Backlog { rows, is_exact, ..Backlog::default() }),
            ..Status::default()
        };
        let mut now = of(4000, true);
        now.since(&of(10_000, true), 2.0);
        assert!(now.to_string().contains("4,000 rows, falling by 3,000/s"), "{now}");
        let mut now = of(1_500_000, false);
        now.since(&of(10_000, true), 2.0);
        assert!(now.to_string().contains("about 1,500,000 rows\n"), "{now}");
    }

    #[test]
    fn a_slot_that_was_never_made_is_not_called_gone() {
        let of = |is_begun| Status {
            slots: vec![SlotLine {
                name: "s".into(),
                is_there: false,
                is_active: false,
                is_begun,
                wal_status: String::new(),
                lag_bytes: None,
                last_commit_seconds: None,
            }],
            ..Status::default()
        };
        assert!(of(false).to_string().contains("s: GONE: run `millrace relay resync`"));
        let text = of(true).to_string();
        assert!(text.contains("s: not made yet") && !text.contains("resync"), "{text}");
    }

    #[test]
    fn the_planners_estimate_is_found() {
        let text =
            r#"[{"Plan": {"Node Type": "Seq Scan", "Plan Rows": 2500000, "Plan Width": 0}}]"#;
        assert_eq!(plan_rows(text), Some(2_500_000));
        assert_eq!(plan_rows("[]"), None);
    }
}
