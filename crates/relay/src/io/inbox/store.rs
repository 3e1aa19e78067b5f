//! The table, wherever it is: what stores a batch in one transaction.

mod mysql;
mod postgres;

use self::mysql::Mysql;
use self::postgres::Postgres;
use crate::error::Error;
use crate::inbox::{Config, Row};
use crate::io::mysql::connection::Database as MysqlDatabase;
use crate::io::postgres::Database as PostgresDatabase;
use crate::mysql::is_mysql;

/// Why a batch was not stored.
#[derive(Debug)]
pub(super) enum Failed {
    /// The database does not take what is in it.
    Refused { why: String },
    /// The connection is gone, or the database cannot now.
    Lost { why: String },
}

/// Where the table is.
#[derive(Clone)]
pub(super) enum Place {
    Postgres(Box<PostgresDatabase>),
    Mysql(MysqlDatabase),
}

impl Place {
    /// Reads the database's URL.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        if is_mysql(url) {
            // What was there already is told from what is new by the count of changed rows.
            return Ok(Self::Mysql(MysqlDatabase::parse(url)?.counting_changes()));
        }
        Ok(Self::Postgres(Box::new(PostgresDatabase::parse(url)?)))
    }
}

/// A connection to a database that has the table.
#[derive(Clone)]
pub(super) enum Store {
    Postgres(Postgres),
    Mysql(Mysql),
}

impl Store {
    /// Connects, makes the table if that is wanted, and looks whether it is an inbox.
    pub(super) async fn open(place: &Place, config: &Config) -> Result<Self, Error> {
        match place {
            Place::Postgres(place) => Postgres::open(place, config).await.map(Self::Postgres),
            Place::Mysql(place) => Mysql::open(place, config).await.map(Self::Mysql),
        }
    }

    /// Stores the rows; says how many were not there before. When this says so, they are committed.
    pub(super) async fn insert(&self, rows: &[Row]) -> Result<u64, Failed> {
        match self {
            Self::Postgres(store) => store.insert(rows).await,
            Self::Mysql(store) => store.insert(rows).await,
        }
    }
}

fn no_table(config: &Config) -> Error {
    Error::setup(format!(
        "there is no table {}: --install makes it, or name another with --table",
        config.table
    ))
}

fn no_inbox(config: &Config, why: &str) -> Error {
    Error::setup(format!(
        "table {} is no inbox: {why}; --install with another --table makes one",
        config.table
    ))
}
