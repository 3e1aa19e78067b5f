//! The shell of the log source: a replication slot, a connection to the broker, the failures.
//!
//! One relay uses a slot at a time; others wait for an advisory lock and then for the slot itself, and take over.
//! A session ends with whatever connection to the database ends, and begins again from what was written down as done:
//! what was unconfirmed is published again. The broker may come and go within a session.

mod connection;
mod failures;
mod log;
mod records;
mod scan;
mod tunnel;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_postgres::Client;

use super::broker::Broker;
use super::poll::refuse_pooler;
use super::postgres::Database;
use super::session::{Again, Ended, From, Session, pause};
use super::table::{find_table, prepare_companion, warn_of_row_security};
use crate::config::{Config, Source};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::progress::{CommitTime, Reached};
use crate::slot::{self, History, Plan, check_name};
use crate::sql::Table;
use crate::stream::{Start, Stream};
use connection::Connection;
use failures::Failures;
use log::Log;
use records::Names;
use scan::Scan;

/// How often a waiting relay looks whether the slot is free.
const STANDBY_LOOK: Duration = Duration::from_millis(500);
/// How much of the table is read again before the last commit that is known to be done: clocks and long transactions.
const MARGIN: Duration = Duration::from_secs(3600);

/// How much of the table a new slot has read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// From an hour before the last transaction that is known to be done.
    LastConfirmed,
    /// Every row that is not processed.
    Beginning,
}

/// How a resync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resynced {
    Done,
    /// It was told to stop before every row was published.
    Stopped,
}

/// Gives the slot its name where nobody has ([`Config::has_default_slot`]).
///
/// # Errors
/// The database cannot be asked.
pub async fn name_slot(client: &Client, config: &mut Config) -> Result<(), Error> {
    records::name_slot(client, config).await
}

/// What one relay of a slot knows.
struct Relay {
    config: Config,
    metrics: Metrics,
    database: Database,
    names: Names,
    stop: watch::Receiver<bool>,
    seed: u64,
    /// The log was open before.
    has_read: bool,
}

/// Publishes what is committed until `stop` says so.
///
/// # Errors
/// What is wrong at the start, or no waiting can mend; [`Error::SlotLost`] where changes may be missing.
pub(super) async fn run_slot(
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

/// Makes a new slot in the place of one that is lost, and publishes the rows of the table again. A slot that still
/// works is kept: nothing of it is lost by reading the table once more.
///
/// # Errors
/// As [`run_slot`]; a relay is running.
pub(super) async fn resync(
    config: Config,
    metrics: Metrics,
    since: Since,
    stop: watch::Receiver<bool>,
) -> Result<Resynced, Error> {
    let mut relay = Relay::new(config, metrics, stop).await?;
    let client = relay.connect().await?;
    relay.name_slot(&client).await?;
    if !records::lock(&client, &relay.names.slot).await? {
        return Err(Error::setup(format!(
            "a relay is using slot `{}`: stop it first",
            relay.names.slot
        )));
    }
    let table = relay.prepare(&client).await?;
    let slot = relay.names.slot.clone();
    let recorded = records::recorded(&client, &slot).await?;
    let found = records::found(&client, &slot).await?;
    let last_commit = recorded.as_ref().and_then(|recorded| recorded.last_commit);
    // From here on a relay that starts would read the table too.
    records::begin(&client, &relay.names, since == Since::LastConfirmed).await?;
    let published = relay.names.published.as_deref();
    let is_unpublished = recorded.as_ref().is_some_and(|it| it.is_unpublished(published));
    if found.is_some_and(|found| is_unpublished || !found.is_usable(recorded.as_ref())) {
        records::remove(&client, &slot).await?;
    }
    if records::found(&client, &slot).await?.is_none() {
        tokio::select! {
            made = records::make(&client, &slot) => made?,
            // It waits for transactions that are open, perhaps for hours.
            _ = relay.stop.wait_for(|stop| *stop) => return Ok(Resynced::Stopped),
        }
    }
    let since = match since {
        Since::LastConfirmed => last_commit,
        Since::Beginning => None,
    };
    let history = records::server(&client).await?.history;
    let read = relay.read_table(client, table.as_ref(), since, &history).await?;
    Ok(read.map_or(Resynced::Stopped, |_| Resynced::Done))
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
        let (slot, publication) = match &config.source {
            Source::Wal { slot, publication } | Source::Messages { slot, publication, .. } => {
                (slot.clone(), publication.clone())
            }
            Source::Poll => return Err(Error::setup("the source is no replication slot")),
        };
        check_name("replication slot", &slot)?;
        check_name("publication", &publication)?;
        let outbox = match &config.source {
            Source::Messages { prefix, .. } => format!("{slot}/{prefix}"),
            Source::Poll | Source::Wal { .. } => config.mapping.table.to_string(),
        };
        let database = Database::parse(&config.database)?;
        if database.has_several_hosts() {
            // The log could be another server's than everything else: changes would be missing.
            return Err(Error::setup(
                "the database URL names several hosts, and a slot is of one: give one name that leads to the primary, \
                 also after a fail-over",
            ));
        }
        // A wrong certificate or login is told at once.
        database.check("millrace-relay-slot").await?;
        drop(super::broker::open(&config.broker, "millrace relay", 1).await?);
        let seed = {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(&slot)
        };
        let names = Names { slot, publication, outbox, table: None, published: None };
        Ok(Self { config, metrics, database, names, stop, seed, has_read: false })
    }

    async fn connect(&self) -> Result<Arc<Client>, Error> {
        let client = Arc::new(self.database.connect("millrace-relay-slot").await?);
        // It holds the lock: that of a host that is gone must not be held for hours. It is used every few seconds.
        client
            .batch_execute("SET idle_session_timeout = '60s'")
            .await
            .map_err(|error| super::postgres::database("setting up", &error))?;
        // Whoever is stopped while a slot is made leaves nobody behind who waits on, with the lock. Not every server can.
        let _ = client.batch_execute("SET client_connection_check_interval = '1s'").await;
        Ok(client)
    }

    /// The slot's name, if nobody has given one; it stays the same from then on.
    async fn name_slot(&mut self, client: &Client) -> Result<(), Error> {
        records::name_slot(client, &mut self.config).await?;
        if let Source::Wal { slot, .. } | Source::Messages { slot, .. } = &self.config.source {
            self.names.slot.clone_from(slot);
        }
        if let Source::Messages { slot, prefix, .. } = &self.config.source {
            self.names.outbox = format!("{slot}/{prefix}");
        }
        Ok(())
    }

    /// Finds the table and what belongs to it. Messages have none.
    async fn prepare(&mut self, client: &Client) -> Result<Option<Table>, Error> {
        if !self.has_read {
            refuse_pooler(&self.database, client).await?;
        }
        prepare_companion(client).await?;
        self.name_slot(client).await?;
        let table = match self.config.source {
            Source::Messages { .. } => None,
            Source::Poll | Source::Wal { .. } => {
                Some(find_table(client, &self.config.mapping).await?)
            }
        };
        if let Some(table) = &table {
            self.names.outbox = table.label();
        }
        records::prepare(client, &self.names, table.as_ref()).await?;
        self.names.table = table.as_ref().map(|table| table.oid);
        self.names.published = records::published(client, &self.names).await?;
        Ok(table)
    }

    /// Nothing is marked here: whoever expects that must be told that the table only grows.
    async fn tell_what_stays(&self, client: &Client, table: &Table) -> Result<(), Error> {
        let Some(processed) = &self.config.mapping.processed else { return Ok(()) };
        let name = table.name.quoted();
        let row = client.query_one(&format!("SELECT EXISTS (SELECT FROM {name})"), &[]).await;
        let row =
            row.map_err(|error| super::postgres::database("looking into the table", &error))?;
        if row.get(0) {
            tracing::warn!(
                table = %table.name,
                "rows stay in the table, and nothing sets `{processed}`: published rows are known by their place in the \
                 log. Either the application deletes them in the transaction that inserts them, or `millrace relay purge \
                 --source wal --older-than 7d` does, now and then. With --source poll all of them would be published again"
            );
        }
        Ok(())
    }

    /// From the lock to the end of a connection.
    async fn session(&mut self) -> Result<(), Error> {
        let client = self.connect().await?;
        let table = self.prepare(&client).await?;
        if let Some(table) = table.as_ref().filter(|_| !self.has_read) {
            self.tell_what_stays(&client, table).await?;
            warn_of_row_security(&client, table).await?;
        }
        let taken = self.take_slot(&client).await;
        self.metrics.standby.set(0);
        let Some(found) = taken? else { return Ok(()) };
        let slot = self.names.slot.clone();
        if let Some(other) = records::rival(&client, &self.names).await?.filter(|_| !self.has_read)
        {
            tracing::warn!(
                slot,
                other,
                "another slot reads the same outbox. What the relay of one cannot publish, that of the other tries, and \
                 with its own broker: drop the slot that is not needed"
            );
        }
        let recorded = records::recorded(&client, &slot).await?;
        let server = records::server(&client).await?;
        let plan =
            slot::plan(&slot, &self.names.outbox, recorded.as_ref(), found.as_ref(), &server)?;
        let recorded = recorded.unwrap_or_default();
        let (client, reached) = match plan {
            Plan::Stream(reached) => {
                if recorded.is_unpublished(self.names.published.as_deref()) {
                    let (outbox, what) = (&self.names.outbox, slot::UNPUBLISHED);
                    return Err(slot::lost(&slot, outbox, Some(&recorded), what));
                }
                if recorded.published.is_none() {
                    records::note_published(&client, &self.names).await?;
                }
                // A record that is not believed must not be left: this server's log may grow to its place.
                records::confirm(&client, &slot, reached, &server.history).await?;
                (client, reached)
            }
            Plan::Begin { make_slot } => {
                records::begin(&client, &self.names, true).await?;
                if make_slot {
                    tokio::select! {
                        made = records::make(&client, &slot) => made?,
                        _ = self.stop.wait_for(|stop| *stop) => return Ok(()),
                    }
                }
                let since = recorded.last_commit;
                match self.read_table(client, table.as_ref(), since, &server.history).await? {
                    Some(read) => read,
                    None => return Ok(()),
                }
            }
        };
        let confirmed = reached.confirmed;
        if recorded.confirmed.is_some_and(|recorded| recorded > confirmed) {
            tracing::warn!(
                slot,
                %confirmed,
                "the relay's record belongs to another timeline or server: reading from the slot's place, and publishing \
                 some rows again"
            );
        }
        let log =
            Log::open(&self.database, &self.config, &self.names, confirmed, !self.has_read).await;
        let log = match log {
            Ok(log) => log,
            Err(error) => return Err(self.noted(&client, error).await),
        };
        self.has_read = true;
        tracing::info!(slot, %confirmed, "reading the log");
        let from = From::Log(log);
        let (own, history) = (Arc::clone(&client), server.history);
        let session = self.begin(own, table.as_ref(), reached, history, from).await?;
        match session.run(&mut self.stop).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.noted(&client, error).await),
        }
    }

    /// The error, which is written down if it says that the slot's log cannot be read on: a resync must know.
    async fn noted(&self, client: &Client, error: Error) -> Error {
        if let Error::SlotLost { text } = &error
            && let Err(failed) = records::note_lost(client, &self.names.slot, text).await
        {
            tracing::warn!(%failed, "the lost slot cannot be recorded; `millrace relay resync` may keep the slot");
        }
        error
    }

    /// Waits until no other relay uses the slot. None: it is to stop.
    async fn take_slot(&mut self, client: &Client) -> Result<Option<Option<slot::Found>>, Error> {
        let slot = self.names.slot.clone();
        let mut is_told = false;
        loop {
            let is_locked = records::lock(client, &slot).await?;
            let found = records::found(client, &slot).await?;
            // One of something else never becomes ours, however long it is waited for.
            found.as_ref().map_or(Ok(()), |found| slot::check(&slot, found))?;
            if is_locked && !found.as_ref().is_some_and(|found| found.is_active) {
                return Ok(Some(found));
            }
            if !is_told {
                let holder = records::holder(client, &slot).await?;
                let holder = holder.unwrap_or_else(|| "another session".into());
                tracing::info!(slot, holder, "another relay uses the slot: waiting to take over");
                self.metrics.standby.set(1);
                is_told = true;
            }
            if pause(&mut self.stop, STANDBY_LOOK).await {
                return Ok(None);
            }
        }
    }

    /// Publishes the rows of the table, then writes down that the slot's log is all that is left. None: stopped.
    async fn read_table(
        &mut self,
        client: Arc<Client>,
        table: Option<&Table>,
        since: Option<i64>,
        history: &History,
    ) -> Result<Option<(Arc<Client>, Reached)>, Error> {
        let slot = self.names.slot.clone();
        if let Some(table) = table {
            let since = since.map(|since| since.saturating_sub(MARGIN.as_micros() as i64));
            tracing::info!(table = %table.name, "publishing the rows that are in the table already");
            let scan = Scan::begin(&client, &self.config, table, since).await?;
            let (own, nowhere) = (Arc::clone(&client), Reached::default());
            let from = From::Scan(Some(scan));
            let session = self.begin(own, Some(table), nowhere, history.clone(), from).await?;
            match session.run(&mut self.stop).await {
                Ok((Ended::Stopped, _)) => return Ok(None),
                Ok((Ended::Scanned, _)) => (),
                Err(error) => return Err(self.noted(&client, error).await),
            }
        }
        let found = records::found(&client, &slot).await?;
        let Some(confirmed) = found.and_then(|found| found.confirmed) else {
            let text = "is gone again while the table was read";
            return Err(slot::lost(&slot, &self.names.outbox, None, text));
        };
        let recorded = records::recorded(&client, &slot).await?;
        let last_commit = recorded.and_then(|recorded| recorded.last_commit).map(CommitTime);
        let reached = Reached { confirmed, last_commit, partial: None };
        records::confirm(&client, &slot, reached, history).await?;
        Ok(Some((client, reached)))
    }

    async fn begin(
        &self,
        client: Arc<Client>,
        table: Option<&Table>,
        reached: Reached,
        history: History,
        from: From<Connection>,
    ) -> Result<Session<Connection>, Error> {
        let failures = Failures {
            client: Arc::clone(&client),
            outbox: self.names.outbox.clone(),
            on_dead: self.config.on_dead,
        };
        let parked = failures.sweep().await?.into_iter().collect();
        let position = failures.next_position().await?;
        let start = Start { reached, parked, position, seed: self.seed };
        let name =
            table.map_or_else(|| self.config.mapping.table.clone(), |table| table.name.clone());
        let mut stream = Stream::new(&self.config, &name, start, Instant::now());
        let (config, name) = (&self.config, "millrace relay, log".to_owned());
        let broker = Broker::new(config, &self.metrics, name, config.window, self.seed);
        if let Some(table) = table {
            stream = stream.knowing(table);
        }
        let connection = Connection { client, names: self.names.clone(), history, failures };
        Ok(Session::new(connection, from, (stream, broker), reached, self.metrics.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Preset};

    #[tokio::test]
    async fn a_log_of_several_hosts_is_refused_before_any_is_asked() {
        for hosts in
            ["a.invalid,b.invalid:5433/shop", "a.invalid/shop?hostaddr=127.0.0.1,127.0.0.2"]
        {
            let broker = "amqp://broker.invalid".parse().expect("it is a URL");
            let mapping = Mapping::preset(Preset::OutboxMessages);
            let mut config = Config::new(format!("postgres://app@{hosts}"), broker, mapping);
            config.source = Source::Wal { slot: "s".into(), publication: "p".into() };
            let (_stopper, stop) = watch::channel(false);
            let refused = run_slot(config, Metrics::default(), stop).await.unwrap_err();
            assert!(
                !refused.is_temporary() && refused.to_string().contains("several hosts"),
                "{refused}"
            );
        }
    }
}
