//! One connection of an operator's command, to whichever database the URL names.

use std::time::Duration;

use tokio_postgres::Client;

use crate::admin::Report;
use crate::admin::install::{Plan, Step, Wanted, plan};
use crate::admin::purge::{Purge, Purged};
use crate::admin::replay::{Among, Choice, Counted, Replayed};
use crate::admin::status::Status;
use crate::config::Config;
use crate::error::Error;
use crate::io::mysql::admin as mysql;
use crate::mysql::is_mysql;

/// A connection.
#[derive(Debug)]
pub struct Session(Kind);

#[derive(Debug)]
enum Kind {
    Postgres(Box<Client>),
    MySql(mysql::Admin),
}

/// A replay that was counted and not done yet.
#[derive(Debug)]
pub struct Replay(Replaying);

#[derive(Debug)]
enum Replaying {
    Postgres(Box<super::replay::Replay>),
    MySql(Box<mysql::Replay>),
}

impl Session {
    /// Connects to the database of `config` under `name`, where connections have names, and names the slot.
    ///
    /// # Errors
    /// The URL is wrong, the database cannot be reached, or it has not what the settings ask for.
    pub async fn open(config: &mut Config, name: &str) -> Result<Self, Error> {
        if is_mysql(&config.database) {
            return mysql::Admin::open(&config.database).await.map(Kind::MySql).map(Self);
        }
        let client = crate::io::connect(&config.database, name).await?;
        crate::io::name_slot(&client, config).await?;
        Ok(Self(Kind::Postgres(Box::new(client))))
    }

    /// What an installation has left to do.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub async fn plan(&self, wanted: &Wanted) -> Result<Plan, Error> {
        match &self.0 {
            Kind::Postgres(client) => Ok(plan(wanted, &super::find(client, wanted).await?)),
            Kind::MySql(admin) => admin.plan(wanted).await,
        }
    }

    /// Runs the steps of a plan; `told` hears of each before it runs.
    ///
    /// # Errors
    /// A statement fails. The same plan can be made again.
    pub async fn install(&self, plan: &Plan, told: impl FnMut(&Step)) -> Result<(), Error> {
        match &self.0 {
            Kind::Postgres(client) => super::install(client, plan, told).await,
            Kind::MySql(admin) => admin.install(plan, told).await,
        }
    }

    /// Examines the outbox and its database; changes nothing.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub async fn examine(&self, config: &Config) -> Result<Report, Error> {
        match &self.0 {
            Kind::Postgres(client) => super::examine(client, config).await,
            Kind::MySql(admin) => admin.examine(config).await,
        }
    }

    /// How the outbox stands; changes nothing.
    ///
    /// # Errors
    /// The database cannot be asked, or has no such table.
    pub async fn look(&self, config: &Config) -> Result<Status, Error> {
        match &self.0 {
            Kind::Postgres(client) => super::look(client, config).await,
            Kind::MySql(admin) => admin.look(config).await,
        }
    }

    /// The time `ago`, as the database has it.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub async fn ago(&self, ago: Duration) -> Result<String, Error> {
        match &self.0 {
            Kind::Postgres(client) => super::ago(client, ago).await,
            Kind::MySql(admin) => admin.ago(ago).await,
        }
    }

    /// What the database takes `text` for.
    ///
    /// # Errors
    /// It is no time.
    pub async fn time(&self, text: &str) -> Result<String, Error> {
        match &self.0 {
            Kind::Postgres(client) => super::time(client, text).await,
            Kind::MySql(admin) => admin.time(text).await,
        }
    }

    /// Prepares a replay of what `choice` takes among `among`.
    ///
    /// # Errors
    /// There is no such table, or no such rows under this configuration.
    pub async fn replay(
        &self,
        config: &Config,
        among: Among,
        choice: Choice,
    ) -> Result<Replay, Error> {
        Ok(Replay(match &self.0 {
            Kind::Postgres(client) => Replaying::Postgres(Box::new(
                super::replay::Replay::of(client, config, among, choice).await?,
            )),
            Kind::MySql(admin) => {
                Replaying::MySql(Box::new(admin.replay(config, among, choice).await?))
            }
        }))
    }

    /// Deletes the rows of `purge`, batch by batch; `told` hears how far it is.
    ///
    /// # Errors
    /// There are no such rows under this configuration, or a statement fails: what was told is done.
    pub async fn purge(
        &self,
        config: &Config,
        purge: &Purge,
        told: impl FnMut(&Purged),
    ) -> Result<Purged, Error> {
        match &self.0 {
            Kind::Postgres(client) => super::purge(client, config, purge, told).await,
            Kind::MySql(admin) => admin.purge(config, purge, told).await,
        }
    }

    /// Drops old partitions.
    ///
    /// # Errors
    /// There are none under this configuration, or a statement fails: what was told is done.
    pub async fn drop_partitions(
        &self,
        config: &Config,
        purge: &Purge,
        told: impl FnMut(&Purged),
    ) -> Result<Purged, Error> {
        match &self.0 {
            Kind::Postgres(client) => super::drop_partitions(client, config, purge, told).await,
            Kind::MySql(_) => Err(Error::setup(
                "--drop-partitions drops partitions of PostgreSQL: leave it out, and rows are deleted in batches",
            )),
        }
    }
}

impl Replay {
    /// How many rows were chosen.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub async fn count(&self, session: &Session) -> Result<Counted, Error> {
        match (&self.0, &session.0) {
            (Replaying::Postgres(replay), Kind::Postgres(client)) => replay.count(client).await,
            (Replaying::MySql(replay), Kind::MySql(admin)) => replay.count(admin).await,
            _ => Err(Error::setup("the replay was prepared by another session")),
        }
    }

    /// Brings them back; `told` hears how many so far.
    ///
    /// # Errors
    /// A statement fails: what was told is done, and the same can be asked for again.
    pub async fn run(
        &self,
        session: &Session,
        told: impl FnMut(Replayed),
    ) -> Result<Replayed, Error> {
        match (&self.0, &session.0) {
            (Replaying::Postgres(replay), Kind::Postgres(client)) => replay.run(client, told).await,
            (Replaying::MySql(replay), Kind::MySql(admin)) => replay.run(admin, told).await,
            _ => Err(Error::setup("the replay was prepared by another session")),
        }
    }
}
