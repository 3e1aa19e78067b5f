//! Old rows go away: statements that cannot touch a row that was not confirmed, and the pace at which they run.
//!
//! A heap is walked once, some blocks at a time, so that neither an index on the processed column is needed nor dead
//! rows are read again and again; each step is a short transaction of its own.

use std::time::Duration;

use crate::config::{Config, OnSuccess, Source};
use crate::mapping::TableName;
use crate::sql::{literal, quoted};

/// Blocks of one step at first, and at most where steps find little.
const BLOCKS_MIN: u64 = 64;
const BLOCKS_MAX: u64 = 8192;

/// Which rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Confirmed rows of the outbox.
    Processed,
    /// Rows of the archive.
    Archived,
    /// Dead rows, with what is known of their failure.
    Dead,
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    pub scope: Scope,
    pub older_than: Duration,
    /// Rows of one transaction.
    pub batch: u32,
    /// Between two transactions.
    pub pause: Duration,
    /// Rows per second at most. None: as fast as it goes.
    pub rate_max: Option<u32>,
}

/// What was done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub rows: u64,
    /// Blocks walked, of all; for dead rows: 0.
    pub blocks: (u64, u64),
    /// Keys whose dead rows went, and whose later rows go on.
    pub keys: u64,
    /// Partitions dropped.
    pub partitions: Vec<String>,
    /// Partitions that are old and were kept, and why.
    pub kept: Vec<(String, String)>,
}

impl Purge {
    /// How long to wait after `rows` rows and `elapsed` since the start.
    pub fn wait(&self, rows: u64, elapsed: Duration) -> Duration {
        let Some(rate) = self.rate_max else { return self.pause };
        let due = Duration::from_secs_f64(rows as f64 / f64::from(rate.max(1)));
        due.saturating_sub(elapsed).max(self.pause)
    }
}

/// Which rows are old, and surely done with. `$1` is the time, as text; `$2` a transaction id, for rows that are read
/// from the log.
///
/// # Errors
/// Nothing in such a table says that a row was confirmed: why, in words.
pub fn condition(config: &Config, scope: Scope, label: &str, row: &str) -> Result<String, String> {
    let mapping = &config.mapping;
    let id = quoted(&mapping.id);
    let failed = format!(
        "NOT EXISTS (SELECT FROM millrace.relay_failures f WHERE f.outbox = {} \
           AND f.row_id = coalesce({row}.{id}::text, ''))",
        literal(label)
    );
    let before = |column: &str| {
        format!("{row}.{0} IS NOT NULL AND {row}.{0} < $1::text::timestamptz", quoted(column))
    };
    match (scope, &config.source, &mapping.processed, &mapping.occurred) {
        (Scope::Archived, _, _, _) => Ok(format!("{} AND $2::text IS NULL", before("archived_at"))),
        (Scope::Processed, Source::Poll, Some(_), _) if config.on_success == OnSuccess::Update => {
            let marked = mapping.is_marked(row).unwrap_or_default();
            let at = mapping.marked_at().ok_or(
                "nothing says when a row was published, nor when it occurred: name a column (--occurred-column)",
            )?;
            Ok(format!("{marked} AND {} AND $2::text IS NULL AND {failed}", before(at)))
        }
        (Scope::Processed, Source::Poll, _, _) => Err(
            "confirmed rows leave the outbox by themselves under --on-success delete and archive: there is nothing to \
             purge in it (`--archived` purges the archive)"
                .into(),
        ),
        // Committed before a place in the log that the slot has confirmed, so published.
        (Scope::Processed, Source::Wal { .. }, _, Some(occurred)) => {
            Ok(format!("{} AND age({row}.xmin) > age($2::text::xid)", before(occurred)))
        }
        (Scope::Processed, Source::Wal { .. }, _, None) => {
            Err("the mapping names no column with the time of a row (--occurred-column)".into())
        }
        (Scope::Processed | Scope::Dead, Source::Messages { .. }, _, _) | (Scope::Dead, _, _, _) => {
            Err("these rows are in no table".into())
        }
    }
}

/// Deletes old rows of one heap between two blocks (`$3`, `$4`), at most `$5`. `inner` chooses among rows `c`; `outer` is
/// the same condition on `o`, said once more where it counts.
pub fn delete(inner: &str, outer: &str, heap: &TableName) -> String {
    let heap = heap.quoted();
    format!(
        "DELETE FROM ONLY {heap} o WHERE o.ctid = ANY(ARRAY(SELECT c.ctid FROM ONLY {heap} c \
           WHERE c.ctid >= $3::text::tid AND c.ctid < $4::text::tid AND {inner} LIMIT $5::int8 \
           FOR UPDATE OF c SKIP LOCKED)) AND {outer}"
    )
}

/// Whether a heap holds any row that is not old and done with.
pub fn keeps_any(condition: &str, heap: &TableName) -> String {
    format!("SELECT EXISTS (SELECT FROM ONLY {} o WHERE NOT ({condition}))", heap.quoted())
}

/// A walk over the blocks of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    next: u64,
    end: u64,
    span: u64,
}

impl Walk {
    /// Over `blocks` blocks; what is added meanwhile is too young anyway.
    pub fn over(blocks: u64) -> Self {
        Self { next: 0, end: blocks, span: BLOCKS_MIN }
    }

    /// The next blocks: the first, and the one behind the last. None: it is over.
    pub fn range(&self) -> Option<(u64, u64)> {
        (self.next < self.end).then_some((self.next, self.next + self.span))
    }

    /// That many rows were deleted there, of `batch` at most: a full batch may have left some.
    pub fn step(&mut self, deleted: u64, batch: u32) {
        if deleted >= u64::from(batch) {
            self.span = (self.span / 2).max(1);
            return;
        }
        self.next += self.span;
        if deleted < u64::from(batch) / 4 {
            self.span = (self.span * 2).min(BLOCKS_MAX);
        }
    }

    /// Blocks that are done, of all.
    pub fn progress(&self) -> (u64, u64) {
        (self.next.min(self.end), self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Preset};

    #[test]
    fn a_walk_leaves_no_block_out_whatever_it_finds() {
        for found in [0_u64, 1, 10, 39, 40] {
            let mut walk = Walk::over(10_000);
            let mut covered = 0;
            let mut steps = 0_u64;
            while let Some((from, to)) = walk.range() {
                assert!(from <= covered, "blocks {covered} to {from} are left out");
                // Every third step finds what it looks for.
                let deleted = if steps.is_multiple_of(3) { found } else { 0 };
                if deleted < 40 {
                    covered = to;
                }
                walk.step(deleted, 40);
                steps += 1;
                assert!(steps < 100_000, "it does not end");
            }
            assert!(covered >= 10_000);
        }
    }

    #[test]
    fn the_pace_is_kept_over_the_whole_run() {
        let purge = Purge {
            scope: Scope::Processed,
            older_than: Duration::ZERO,
            batch: 1000,
            pause: Duration::from_millis(5),
            rate_max: Some(10_000),
        };
        assert_eq!(purge.wait(5000, Duration::from_millis(100)), Duration::from_millis(400));
        assert_eq!(purge.wait(5000, Duration::from_secs(2)), Duration::from_millis(5));
    }

    #[test]
    fn no_condition_lets_an_unprocessed_row_go() {
        let mapping = Mapping::preset(Preset::OutboxMessages);
        let config =
            Config::new("postgres://h/d", "amqp://h".parse().expect("it is a URL"), mapping);
        let condition = condition(&config, Scope::Processed, "public.outbox_messages", "o")
            .expect("it can be purged");
        assert!(condition.starts_with("o.\"processed_on_utc\" IS NOT NULL AND "), "{condition}");
        let mut own = config.clone();
        own.mapping.processed = Some("status".into());
        own.mapping.processed_value = Some("sent".into());
        let of_own = super::condition(&own, Scope::Processed, "x", "o").expect("it can be purged");
        assert!(of_own.starts_with("o.\"status\" = 'sent' AND o.\"occurred_on_utc\""), "{of_own}");
        own.mapping.occurred = None;
        assert!(super::condition(&own, Scope::Processed, "x", "o").is_err());
        let deleting = Config { on_success: OnSuccess::Delete, ..config };
        assert!(super::condition(&deleting, Scope::Processed, "x", "o").is_err());
    }
}
