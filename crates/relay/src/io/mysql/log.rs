//! The shell of MariaDB's binlog as a source: the log, a connection to the broker, the failures, the place.
//!
//! One relay of a place works at a time; others wait for its lock and take over. A session ends with whatever connection
//! to the database ends, and begins again from what was written down as done.

mod connection;
mod failures;
pub(super) mod places;
mod reader;
mod scan;

use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::watch;

use super::connection::{Database, database};
use super::seats;
use super::table::{find_table, prepare_companion};
use crate::config::{Config, Source};
use crate::error::Error;
use crate::io::broker::Broker;
use crate::io::session::{Again, Ended, FROZEN_FOR, From, Session, pause};
use crate::io::slot::{Resynced, Since};
use crate::limits::NAME_BYTES_MAX;
use crate::metrics::Metrics;
use crate::mysql::binlog::gtid::State as Ids;
use crate::mysql::binlog::start::{self, Plan};
use crate::mysql::shape::Shape;
use crate::mysql::sql::{Statements, hex};
use crate::progress::Reached;
use crate::stream::{Start, Stream};
use connection::Connection;
use failures::Failures;
use reader::{From as LogFrom, Log};
use scan::Scan;

/// How often a waiting relay looks whether the lock is free.
const STANDBY_LOOK: Duration = Duration::from_millis(500);
/// How much of the table is read again before the last commit that is known to be done: clocks and long transactions.
const MARGIN: Duration = Duration::from_secs(3600);
/// The server ends a session that is silent for so long: longer than a relay may stand still.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

const _: () =
    assert!(SESSION_TIMEOUT.as_secs() > FROZEN_FOR.as_secs(), "a frozen relay ends first");

/// What one relay of a place knows.
struct Relay {
    config: Config,
    metrics: Metrics,
    database: Database,
    slot: String,
    stop: watch::Receiver<bool>,
    seed: u64,
    /// The log was open before.
    has_read: bool,
}

/// Publishes what is committed until `stop` says so.
///
/// # Errors
/// As [`run_slot`](crate::io::run_slot).
pub(in crate::io) async fn run_log(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let mut relay = Relay::new(config, metrics, stop).await?;
    let mut again = Again::new(relay.seed);
    loop {
        let start = Instant::now();
        let Err(error) = relay.session().await else { return Ok(()) };
        let delay = again.after(start, error, &relay.metrics)?;
        if pause(&mut relay.stop, delay).await {
            return Ok(());
        }
    }
}

/// Publishes the rows of the table again, and begins with the log from there on.
///
/// # Errors
/// As [`run_log`]; a relay is running.
pub(in crate::io) async fn resync_log(
    config: Config,
    metrics: Metrics,
    since: Since,
    stop: watch::Receiver<bool>,
) -> Result<Resynced, Error> {
    let mut relay = Relay::new(config, metrics, stop).await?;
    let mut conn = relay.connect().await?;
    let (shape, statements) = relay.prepare(&mut conn).await?;
    let name = lock_name(&shape.name.to_string(), &relay.slot);
    if !seats::run(&mut conn, "GET_LOCK(?, 0)", &name).await? {
        return Err(Error::setup(format!(
            "a relay is using the place `{}`: stop it first",
            relay.slot
        )));
    }
    let recorded = places::recorded(&mut conn, &relay.slot).await?;
    let since = match since {
        Since::LastConfirmed => recorded.and_then(|it| it.reached.last_commit).map(|at| at.0),
        Since::Beginning => None,
    };
    let read = relay.read_table(conn, &shape, &statements, since).await?;
    Ok(read.map_or(Resynced::Stopped, |_| Resynced::Done))
}

/// The lock of whoever reads for an outbox. Locks are the server's, and there is room for 64 characters.
pub(super) fn lock_name(outbox: &str, slot: &str) -> String {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(format!("{outbox}\0{slot}"));
    format!("millrace:log:{}", hex(&hash[..12]))
}

impl Relay {
    async fn new(
        config: Config,
        metrics: Metrics,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, Error> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(Error::setup(problems.join("; ")));
        }
        let slot = match &config.source {
            Source::Wal { slot, .. } => slot.clone(),
            Source::Messages { .. } | Source::Poll => {
                return Err(Error::setup("the source is no binlog"));
            }
        };
        if slot.is_empty() || slot.len() > NAME_BYTES_MAX {
            return Err(Error::setup(format!(
                "the slot's name has {} bytes: 1 to {NAME_BYTES_MAX} are allowed",
                slot.len()
            )));
        }
        let database = Database::parse(&config.database)?;
        // A wrong certificate, login or address is told at once.
        let _ = database.connect().await?.disconnect().await;
        drop(crate::io::broker::open(&config.broker, "millrace relay", 1).await?);
        let seed = {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(&slot)
        };
        Ok(Self { config, metrics, database, slot, stop, seed, has_read: false })
    }

    /// A connection that holds the lock: that of a host that is gone must not be held for hours.
    async fn connect(&self) -> Result<Conn, Error> {
        let mut conn = self.database.connect().await?;
        let seconds = SESSION_TIMEOUT.as_secs();
        conn.query_drop(format!("SET wait_timeout = {seconds}"))
            .await
            .map_err(|error| database("setting up", &error))?;
        Ok(conn)
    }

    /// Finds the table and what belongs to it, and looks whether the log can be read.
    async fn prepare(&self, conn: &mut Conn) -> Result<(Shape, Statements), Error> {
        let binlog = places::binlog(conn).await?;
        let problems = binlog.problems();
        if !problems.is_empty() {
            let told: Vec<String> =
                problems.into_iter().map(|(what, advice)| format!("{what}. {advice}")).collect();
            return Err(Error::setup(format!("the binlog cannot be read: {}", told.join("; "))));
        }
        prepare_companion(conn).await?;
        failures::prepare(conn).await?;
        places::prepare(conn).await?;
        let shape = find_table(conn, &self.database, &self.config).await?;
        let unreadable = shape.unreadable(&self.config.mapping);
        if !unreadable.is_empty() {
            return Err(Error::setup(format!(
                "the log of {} cannot be read as text: {}. Use --source poll, or change the columns",
                shape.name,
                unreadable.join("; ")
            )));
        }
        let statements = Statements::new(&self.config, &shape).map_err(Error::setup)?;
        Ok((shape, statements))
    }

    /// Nothing is marked here: whoever expects that must be told that the table only grows.
    async fn tell_what_stays(&self, conn: &mut Conn, statements: &Statements) -> Result<(), Error> {
        let Some(processed) = &self.config.mapping.processed else { return Ok(()) };
        let rows: Option<u64> = conn
            .exec_first(statements.backlog(), (1,))
            .await
            .map_err(|error| database("looking into the table", &error))?;
        if rows.is_some_and(|rows| rows > 0) {
            tracing::warn!(
                table = %statements.name(),
                "rows stay in the table, and nothing sets `{processed}`: published rows are known by their place in the \
                 log. Let the application delete them in the transaction that inserts them. With --source poll all of \
                 them would be published again"
            );
        }
        Ok(())
    }

    /// From the lock to the end of a connection.
    async fn session(&mut self) -> Result<(), Error> {
        let mut conn = self.connect().await?;
        let (shape, statements) = self.prepare(&mut conn).await?;
        if !self.has_read {
            self.tell_what_stays(&mut conn, &statements).await?;
        }
        let taken = self.take_lock(&mut conn, &shape).await;
        self.metrics.standby.set(0);
        if !taken? {
            return Ok(());
        }
        let label = shape.name.to_string();
        let recorded = places::recorded(&mut conn, &self.slot).await?;
        let there = match recorded.as_ref().filter(|recorded| !recorded.is_begun) {
            Some(recorded) => places::ids_before(&mut conn, &recorded.place).await?,
            None => None,
        };
        let plan = start::plan(&self.slot, &label, recorded.as_ref(), there.as_deref())?;
        let (conn, reached, from, ids) = match plan {
            Plan::At { place, state, reached } => (conn, reached, LogFrom::Place(place), state),
            Plan::Behind { state, last } => {
                tracing::warn!(
                    slot = self.slot,
                    gtid = %state,
                    "this server does not have the place that was written down: another server, or another course of its \
                     log. Reading on behind the ids of what is done"
                );
                (conn, last, LogFrom::Ids, state)
            }
            Plan::Begin => {
                let since = recorded.and_then(|it| it.reached.last_commit).map(|at| at.0);
                match self.read_table(conn, &shape, &statements, since).await? {
                    Some((conn, reached, place, ids)) => {
                        (conn, reached, LogFrom::Place(place), ids)
                    }
                    None => return Ok(()),
                }
            }
        };
        let layout = self.config.mapping.layout();
        let log = Log::open(&self.database, &self.slot, &shape.name, layout, from.clone(), ids);
        let log = log.await?;
        self.has_read = true;
        tracing::info!(slot = self.slot, from = %from, "reading the binlog");
        let session = self.begin(conn, &shape, reached, From::Log(log)).await?;
        session.run(&mut self.stop).await.map(drop)
    }

    /// Waits until no other relay has the lock. False: it is to stop.
    async fn take_lock(&mut self, conn: &mut Conn, shape: &Shape) -> Result<bool, Error> {
        let name = lock_name(&shape.name.to_string(), &self.slot);
        let mut is_told = false;
        loop {
            if seats::run(conn, "GET_LOCK(?, 0)", &name).await? {
                return Ok(true);
            }
            if !is_told {
                tracing::info!(
                    slot = self.slot,
                    "another relay reads the log: waiting to take over"
                );
                self.metrics.standby.set(1);
                is_told = true;
            }
            if pause(&mut self.stop, STANDBY_LOOK).await {
                return Ok(false);
            }
        }
    }

    /// Publishes the rows of the table, then writes down where the log goes on. None: stopped.
    async fn read_table(
        &mut self,
        mut conn: Conn,
        shape: &Shape,
        statements: &Statements,
        since: Option<i64>,
    ) -> Result<Option<(Conn, Reached, crate::mysql::binlog::place::Place, Ids)>, Error> {
        let label = shape.name.to_string();
        places::begin(&mut conn, &self.slot, &label).await?;
        let since = since.map(|since| since.saturating_sub(MARGIN.as_micros() as i64));
        tracing::info!(table = %shape.name, "publishing the rows that are in the table already");
        let (scan, place) = Scan::begin(&self.database, statements.clone(), since).await?;
        let before = places::ids_before(&mut conn, &place).await?.unwrap_or_default();
        let ids = Ids::parse(&before).unwrap_or_default();
        let from = From::Scan(Some(Box::new(scan)));
        let session = self.begin(conn, shape, Reached::default(), from).await?;
        let (ended, connection) = session.run(&mut self.stop).await?;
        let (Ended::Scanned, Some(connection)) = (ended, connection) else { return Ok(None) };
        let mut conn = connection.conn;
        let recorded = places::recorded(&mut conn, &self.slot).await?;
        let last_commit = recorded.and_then(|it| it.reached.last_commit);
        let reached = Reached { confirmed: place.at, last_commit, partial: None };
        places::confirm(&mut conn, &self.slot, &place, &before, reached).await?;
        Ok(Some((conn, reached, place, ids)))
    }

    async fn begin(
        &self,
        mut conn: Conn,
        shape: &Shape,
        reached: Reached,
        from: From<Connection>,
    ) -> Result<Session<Connection>, Error> {
        let failures = Failures { outbox: shape.name.to_string(), on_dead: self.config.on_dead };
        let parked = failures.sweep(&mut conn).await?.into_iter().collect();
        let position = failures.next_position(&mut conn).await?;
        let start = Start { reached, parked, position, seed: self.seed };
        let stream = Stream::new(&self.config, &shape.name, start, Instant::now());
        let name = "millrace relay, log".to_owned();
        let broker = Broker::new(&self.config, &self.metrics, name, self.config.window, self.seed);
        let connection = Connection { conn, slot: self.slot.clone(), failures };
        Ok(Session::new(connection, from, (stream, broker), reached, self.metrics.clone()))
    }
}
