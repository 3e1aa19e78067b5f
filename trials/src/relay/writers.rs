//! Applications: they change aggregates and write outbox rows in the same transaction, many at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::history::{Ending, Row, Transaction};
use super::plan::{self, Plan, Planned};
use super::truth::Source;
use crate::postgres;

/// What the writers know, shared with whoever judges.
#[derive(Debug, Default)]
pub struct Book {
    pages: Mutex<(Vec<Row>, Vec<Transaction>)>,
    /// Rows of transactions that were seen to commit.
    pub committed: AtomicUsize,
}

impl Book {
    /// Notes a transaction before any of it is sent, and numbers its rows.
    fn begin(&self, seed: u64, planned: &Planned) -> (usize, Vec<(plan::Columns, u32)>) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, transactions) = &mut *pages;
        let first = rows.len();
        let mut columns = Vec::new();
        for row in &planned.rows {
            let (text, remembered) = plan::write(seed, rows.len(), *row);
            columns.push((text, row.key));
            rows.push(remembered);
        }
        let rows = (first..rows.len()).collect();
        transactions.push(Transaction { rows, ending: Ending::Unknown });
        (transactions.len() - 1, columns)
    }

    fn end(&self, transaction: usize, ending: Ending) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = &mut pages.1[transaction];
        transaction.ending = ending;
        if ending == Ending::Committed {
            self.committed.fetch_add(transaction.rows.len(), Ordering::Relaxed);
        }
    }

    /// All rows and transactions so far.
    pub fn read(&self) -> (Vec<Row>, Vec<Transaction>) {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Writers at work. They come back by themselves when PostgreSQL does.
#[derive(Debug)]
pub struct Writers {
    tasks: JoinSet<()>,
    stop: Arc<AtomicBool>,
}

/// Pause before the next attempt to connect.
const RETRY: Duration = Duration::from_millis(50);
/// How long a long transaction waits for others to commit before it.
const LONG: Duration = Duration::from_millis(300);
/// How many rows of others that is.
const OVERTAKEN: usize = 15;

impl Writers {
    pub fn start(plan: &Plan, source: Source, url: &str, book: &Arc<Book>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for number in 0..plan.writers {
            let writer = Writer {
                number,
                plan: plan.clone(),
                source,
                url: url.to_owned(),
                book: book.clone(),
                stop: stop.clone(),
            };
            tasks.spawn(writer.run());
        }
        Self { tasks, stop }
    }

    /// No more transactions than those that have begun.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all have written what was planned.
    pub fn are_done(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.is_empty()
    }
}

struct Writer {
    number: u32,
    plan: Plan,
    source: Source,
    url: String,
    book: Arc<Book>,
    stop: Arc<AtomicBool>,
}

/// A connection and what is prepared on it.
struct Session {
    client: Client,
    lock: Statement,
    insert: Statement,
    journal: Statement,
}

impl Writer {
    async fn run(self) {
        let mut session = None;
        for number in 0..self.plan.transactions {
            let planned = self.plan.transaction(self.number, number);
            let open = loop {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(open) = session.take() {
                    break open;
                }
                match Session::open(&self.url, self.source).await {
                    Ok(open) => session = Some(open),
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
            };
            let (transaction, columns) = self.book.begin(self.plan.seed, &planned);
            if let Ok(ending) = self.write(&open, transaction, &planned, &columns).await {
                self.book.end(transaction, ending);
                session = Some(open);
            }
        }
    }

    async fn write(
        &self,
        session: &Session,
        transaction: usize,
        planned: &Planned,
        columns: &[(plan::Columns, u32)],
    ) -> Result<Ending, tokio_postgres::Error> {
        let client = &session.client;
        client.batch_execute("BEGIN").await?;
        for (row, key) in columns {
            client.execute(&session.lock, &[&i64::from(*key)]).await?;
            let (id, kind) = (&row.id, row.message_type);
            let key = key.to_string();
            client.execute(&session.insert, &[id, &kind, &row.content, &key, &row.headers]).await?;
        }
        client.execute(&session.journal, &[&(transaction as i64)]).await?;
        if planned.is_long {
            self.linger().await;
        }
        if planned.is_rolled_back {
            client.batch_execute("ROLLBACK").await?;
            return Ok(Ending::RolledBack);
        }
        client.batch_execute("COMMIT").await?;
        Ok(Ending::Committed)
    }

    /// Lets others commit first.
    async fn linger(&self) {
        let enough = self.book.committed.load(Ordering::Relaxed) + OVERTAKEN;
        let begun = Instant::now();
        while begun.elapsed() < LONG && self.book.committed.load(Ordering::Relaxed) < enough {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Session {
    async fn open(url: &str, source: Source) -> Result<Self, tokio_postgres::Error> {
        let client = postgres::connect(&format!("{url}?application_name=trials")).await?;
        let lock = client.prepare("UPDATE aggregates SET turn = turn + 1 WHERE key = $1").await?;
        let insert = client.prepare(source.insert()).await?;
        let journal = client.prepare("INSERT INTO journal VALUES ($1)").await?;
        Ok(Self { client, lock, insert, journal })
    }
}
