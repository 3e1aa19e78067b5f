//! Writing down how a batch ended, in its own transaction.
//!
//! Everything is written with as few statements as possible. If the data of some row makes one of them fail (a trigger
//! or constraint of the table refuses that row), nothing is written; then the same is done once more *apart*: under
//! savepoints, in halves, until the failing rows stand alone and all others are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use client::Chance;
use service::Next;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error as PgError, Transaction};

use super::fetch::Tid;
use super::written::{Unwritten, Written};
use super::{Prepared, Shared};
use crate::attempts::{Fault, Reason};
use crate::batch::{Batch, Failed};
use crate::config::{OnSuccess, Order};
use crate::error::Error;
use crate::io::postgres::{database, is_of_a_row, words};
use crate::limits::shortened;
use crate::poll::halves::Halves;

/// Under an order a fetch waits for a locked row for a while only. What the broker has taken is marked, however long
/// somebody has locked the table: given back, it would be published again.
const PATIENT: &str = "SET LOCAL lock_timeout = 0";
/// Why a row is not marked although the database says no word.
const KEPT: &str = "a trigger, rule or policy of the table keeps it as it is";

/// Writes down how `batch` ended. The commit is the caller's.
pub(super) struct Writer<'a, 't> {
    pub(super) shared: &'a Shared,
    pub(super) prepared: &'a mut Prepared,
    pub(super) transaction: &'a Transaction<'t>,
    pub(super) batch: &'a Batch,
    pub(super) chance: &'a mut Chance,
    /// There were failures before the batch began.
    pub(super) had_failures: bool,
    /// Find rows that the database refuses, until then at most; None: all or nothing.
    pub(super) apart_until: Option<Instant>,
}

/// Failures as they are written.
#[derive(Default)]
struct Failures {
    rows: Vec<usize>,
    ids: Vec<String>,
    keys: Vec<Option<String>>,
    attempts: Vec<i32>,
    reasons: Vec<&'static str>,
    errors: Vec<String>,
    after: Vec<Option<f64>>,
}

impl Failures {
    /// Those at `places`, in that order.
    fn only(&self, places: &[usize]) -> Self {
        fn pick<T: Clone>(from: &[T], places: &[usize]) -> Vec<T> {
            places.iter().map(|&at| from[at].clone()).collect()
        }
        Self {
            rows: pick(&self.rows, places),
            ids: pick(&self.ids, places),
            keys: pick(&self.keys, places),
            attempts: pick(&self.attempts, places),
            reasons: pick(&self.reasons, places),
            errors: pick(&self.errors, places),
            after: pick(&self.after, places),
        }
    }
}

/// What is done to rows together.
#[derive(Clone, Copy)]
enum What<'a> {
    /// Rows of the batch are marked.
    Mark,
    /// Failures are written: their places in the list.
    Fail(&'a Failures),
    /// The same, whose rows are dead, leave the outbox.
    MoveToDead(&'a Failures),
}

/// What a statement did to rows.
enum Did {
    All,
    /// Nothing: some row is to blame, in words.
    Nothing(String),
}

impl Writer<'_, '_> {
    pub(super) async fn write(self) -> Result<Written, Unwritten> {
        if self.shared.config.order == Order::None {
            return self.write_down().await;
        }
        let transaction = self.transaction;
        // Sent together: it costs no round trip.
        let (set, written) = tokio::join!(transaction.batch_execute(PATIENT), self.write_down());
        set.map_err(failed)?;
        written
    }

    async fn write_down(mut self) -> Result<Written, Unwritten> {
        let mut confirmed = self.batch.confirmed().to_vec();
        confirmed.sort_unstable();
        let mut failed_rows = self.batch.failed().to_vec();
        let mut written = Written::default();
        if !confirmed.is_empty() {
            let count = confirmed.len();
            let (marked, refused, rest) = self.run(What::Mark, confirmed).await?;
            if count > 1 && refused.len() == count && self.is_setup(&refused) {
                return Err(Unwritten::Failed(Error::setup(format!(
                    "no row of {} can be marked, and nothing was committed: {KEPT}",
                    self.shared.table.label()
                ))));
            }
            failed_rows.extend(refused.into_iter().map(|(row, words)| {
                let text = format!("it was published, but its row cannot be marked: {words}");
                Failed { row, fault: Fault { reason: Reason::Unmarked, text }, is_charged: true }
            }));
            if self.had_failures || self.shared.failures.has_some() {
                let ids: Vec<&str> = marked.iter().map(|&row| id(&self, row)).collect();
                let clear = self.shared.statements.clear_failures();
                self.execute(&clear, &[&ids]).await.map_err(failed)?;
            }
            written = Written { marked, rest, writing: None };
        }
        if !failed_rows.is_empty() {
            written.writing = Some(self.shared.failures.write());
            self.fail(&failed_rows).await?;
        }
        Ok(written)
    }

    /// Nothing could ever be marked, so that it is not these rows' fault.
    fn is_setup(&self, refused: &[(usize, String)]) -> bool {
        !self.shared.has_marked.load(Ordering::Relaxed)
            && refused.iter().all(|(_, words)| words == KEPT)
    }

    async fn fail(&mut self, rows: &[Failed]) -> Result<(), Unwritten> {
        let failures = self.judge(rows).await.map_err(failed)?;
        let all: Vec<usize> = (0..failures.rows.len()).collect();
        let (noted, refused, _) = self.run(What::Fail(&failures), all).await?;
        for (at, words) in refused {
            let id = &failures.ids[at];
            tracing::error!(
                id,
                words,
                "the database refuses to record a failure; the row is published again and again"
            );
        }
        let is_kept = self.shared.config.on_success != OnSuccess::Update;
        let mut dead: Vec<usize> =
            noted.into_iter().filter(|&at| failures.after[at].is_none()).collect();
        // What leaves the outbox is kept among the failures, by its id.
        dead.retain(|&at| !is_kept || !failures.ids[at].is_empty());
        if !dead.is_empty() && self.shared.statements.moves_dead() {
            let (_, refused, _) = self.run(What::MoveToDead(&failures), dead).await?;
            for (at, words) in refused {
                let id = &failures.ids[at];
                tracing::warn!(
                    id,
                    words,
                    "the database refuses to move a dead row out of the outbox; the row stays there and waits"
                );
            }
        }
        Ok(())
    }

    /// What comes next for each row that failed.
    async fn judge(&mut self, rows: &[Failed]) -> Result<Failures, PgError> {
        let ids: Vec<&str> = rows.iter().map(|failed| id(self, failed.row)).collect();
        let sql = self.shared.statements.attempts();
        let statement = self.prepared.get(self.transaction, &sql).await?;
        let earlier = self.transaction.query(&statement, &[&ids]).await?;
        let earlier: BTreeMap<&str, i32> =
            earlier.iter().map(|row| (row.get::<_, &str>(0), row.get(1))).collect();
        let mut failures = Failures::default();
        let mut seen = BTreeSet::new();
        let mut told: BTreeMap<Reason, (usize, usize, &str)> = BTreeMap::new();
        for Failed { row, fault: Fault { reason, text }, is_charged } in rows {
            let id = id(self, *row);
            told.entry(*reason).or_insert((0, *row, text)).0 += 1;
            // Two rows without an id, say, are written down as one.
            if !seen.insert(id) {
                continue;
            }
            let before = earlier.get(id).copied().unwrap_or(0);
            let (attempts, bits) = (&self.shared.config.attempts, self.chance.next_bits());
            let (made, next) = reason.after(attempts, before.unsigned_abs(), *is_charged, bits);
            failures.rows.push(*row);
            failures.ids.push(id.to_owned());
            failures.keys.push(self.key(*row));
            failures.attempts.push(i32::try_from(made).unwrap_or(i32::MAX));
            failures.reasons.push(reason.name());
            failures.errors.push(shortened(text));
            failures.after.push(match next {
                Next::Retry { after } => Some(after.as_secs_f64()),
                Next::Dead => None,
            });
            self.shared.metrics.failed(*reason, next == Next::Dead);
        }
        for (reason, (count, row, text)) in told {
            let (id, error) = (id(self, row), shortened(text));
            self.shared.metrics.note_failure(reason, id, self.key(row).as_deref(), &error);
            tracing::warn!(
                reason = reason.name(),
                id,
                error,
                advice = reason.advice(),
                "the broker or the relay refused {count} rows, such as this one"
            );
        }
        Ok(failures)
    }

    /// Does it to all of `rows`; apart, to all that the database lets it, and says of the others why not. The last are
    /// those for which there was no time.
    async fn run(
        &mut self,
        what: What<'_>,
        rows: Vec<usize>,
    ) -> Result<(Vec<usize>, Vec<(usize, String)>, Vec<usize>), Unwritten> {
        let Some(until) = self.apart_until else {
            return match self.attempt(what, &rows).await? {
                Did::All => Ok((rows, Vec::new(), Vec::new())),
                Did::Nothing(words) => Err(Unwritten::ByRow(words)),
            };
        };
        let mut halves = Halves::of(rows);
        while let Some(rows) = halves.take_next() {
            self.execute_text("SAVEPOINT apart").await?;
            let outcome = match self.attempt(what, &rows).await? {
                Did::All => self.fire_deferred().await?,
                nothing @ Did::Nothing(_) => nothing,
            };
            let outcome = match outcome {
                Did::All => {
                    self.execute_text("RELEASE apart").await?;
                    Ok(())
                }
                Did::Nothing(words) => {
                    self.execute_text("ROLLBACK TO apart; RELEASE apart").await?;
                    Err(words)
                }
            };
            halves.tried(rows, outcome);
            // Something is known each time, so that it comes to an end.
            if halves.has_some() && Instant::now() > until {
                break;
            }
        }
        Ok(halves.end())
    }

    /// Triggers and constraints that were put off to the commit have their say now.
    async fn fire_deferred(&mut self) -> Result<Did, Unwritten> {
        let fired = self.transaction.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await;
        self.judged(fired)
    }

    fn judged(&self, done: Result<(), PgError>) -> Result<Did, Unwritten> {
        match done {
            Ok(()) => Ok(Did::All),
            Err(error) if is_of_a_row(&error) => Ok(Did::Nothing(words(&error))),
            Err(error) => Err(failed(error)),
        }
    }

    /// Does it to `rows` with one statement.
    async fn attempt(&mut self, what: What<'_>, rows: &[usize]) -> Result<Did, Unwritten> {
        match what {
            What::Mark => self.mark(rows).await,
            What::Fail(all) => {
                let Failures { ids, keys, attempts, reasons, errors, after, .. } = &all.only(rows);
                let sql = self.shared.statements.fail();
                let done = self.execute(&sql, &[ids, keys, attempts, reasons, errors, after]).await;
                self.judged(done.map(drop))
            }
            What::MoveToDead(all) => {
                let all = all.only(rows);
                let texts = all.reasons.iter().zip(&all.errors);
                let texts: Vec<String> =
                    texts.map(|(reason, error)| format!("{reason}: {error}")).collect();
                let names = Names::of(self, &all.rows);
                let sql = self.shared.statements.move_to_dead();
                let statement = self.prepared.get(self.transaction, &sql).await.map_err(failed)?;
                let parameters: [&(dyn ToSql + Sync); 2] = [names.parameter(), &texts];
                let more = if self.shared.statements.dead_stay_in_place() {
                    let buried = self.transaction.execute(&statement, &parameters).await;
                    buried.map(|buried| buried as i64 - all.rows.len() as i64)
                } else {
                    let told = self.transaction.query_one(&statement, &parameters).await;
                    told.map(|row| row.get(0))
                };
                if let Ok(more @ 1..) = more {
                    return Err(self.not_unique(format!(
                        "{} rows of {} are dead, and {more} more would leave it",
                        all.rows.len(),
                        self.shared.table.label()
                    )));
                }
                self.judged(more.map(drop))
            }
        }
    }

    async fn mark(&mut self, rows: &[usize]) -> Result<Did, Unwritten> {
        let names = Names::of(self, rows);
        let sql = self.shared.statements.mark();
        let (marked, waiting) = match self.marked(&sql, names.parameter()).await {
            Ok(counts) => counts,
            Err(error) if is_of_a_row(&error) => return Ok(Did::Nothing(words(&error))),
            Err(error) => return Err(Unwritten::Failed(database("marking rows", &error))),
        };
        if waiting > 0 {
            return Err(Unwritten::Failed(Error::setup(self.shared.config.mapping.still_waits())));
        }
        if marked > rows.len() as u64 {
            return Err(self.not_unique(format!(
                "{} rows of {} were confirmed and {marked} would be marked",
                rows.len(),
                self.shared.table.label()
            )));
        }
        if marked < rows.len() as u64 {
            return Ok(Did::Nothing(KEPT.into()));
        }
        Ok(Did::All)
    }

    /// How many rows were marked, and how many of them still wait.
    async fn marked(
        &mut self,
        sql: &str,
        names: &(dyn ToSql + Sync),
    ) -> Result<(u64, u64), PgError> {
        if !self.shared.statements.counts_marks() {
            return Ok((self.execute(sql, &[names]).await?, 0));
        }
        let statement = self.prepared.get(self.transaction, sql).await?;
        let row = self.transaction.query_one(&statement, &[names]).await?;
        Ok((row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs()))
    }

    fn not_unique(&self, what: String) -> Unwritten {
        Unwritten::Failed(Error::setup(format!(
            "{what}. Nothing was committed, because that would lose rows: column `{}` is not unique",
            self.shared.config.mapping.id
        )))
    }

    async fn execute(
        &mut self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PgError> {
        let statement = self.prepared.get(self.transaction, sql).await?;
        self.transaction.execute(&statement, parameters).await
    }

    async fn execute_text(&self, sql: &str) -> Result<(), Unwritten> {
        self.transaction.batch_execute(sql).await.map_err(failed)
    }

    fn key(&self, row: usize) -> Option<String> {
        match self.shared.config.order {
            Order::None => None,
            Order::Strict => Some(String::new()),
            Order::Key => {
                let key = self.shared.layout().key;
                let key = key.and_then(|key| self.batch.rows()[row].fields.text(key));
                Some(key.unwrap_or_else(|| id(self, row)).to_owned())
            }
        }
    }
}

fn failed(error: PgError) -> Unwritten {
    Unwritten::Failed(database("writing down how a batch ended", &error))
}

fn id<'b>(writer: &Writer<'b, '_>, row: usize) -> &'b str {
    // A NULL id cannot be published; it is written down under the empty text.
    writer.batch.rows()[row].fields.text(writer.shared.layout().id).unwrap_or_default()
}

/// How rows are named to the database.
enum Names<'b> {
    Places(Vec<Tid>),
    Ids(Vec<&'b str>),
}

impl<'b> Names<'b> {
    fn of(writer: &Writer<'b, '_>, rows: &[usize]) -> Self {
        match writer.shared.table.is_plain {
            true => {
                let place = |&row: &usize| Tid(writer.batch.rows()[row].place);
                Self::Places(rows.iter().map(place).collect())
            }
            false => Self::Ids(rows.iter().map(|&row| id(writer, row)).collect()),
        }
    }

    fn parameter(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Places(places) => places,
            Self::Ids(ids) => ids,
        }
    }
}
