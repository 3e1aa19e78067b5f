//! The connection beside the binlog: it holds the lock, and keeps the failures and the place.

use std::pin::pin;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use super::failures::Failures;
use super::places;
use super::reader::Log;
use super::scan::Scan;
use crate::error::Error;
use crate::io::mysql::connection::database;
use crate::io::session::{LOOK_EVERY, Looked, Records};
use crate::mysql::binlog::place::Place;
use crate::progress::Reached;
use crate::stream::{Input, Output};

pub(super) struct Connection {
    pub(super) conn: Conn,
    pub(super) slot: String,
    pub(super) failures: Failures,
}

impl Records for Connection {
    type Log = Log;
    type Scan = Box<Scan>;

    /// The driver says so only to whoever asks it something.
    fn watch(&self) -> Box<dyn Fn() -> bool + Send + Sync> {
        Box::new(|| false)
    }

    async fn apply(&mut self, orders: Vec<Output>) -> Result<Vec<Input>, Error> {
        self.failures.apply(&mut self.conn, orders).await
    }

    async fn record(
        &mut self,
        (place, ids): (Place, String),
        reached: Reached,
    ) -> Result<(), Error> {
        places::confirm(&mut self.conn, &self.slot, &place, &ids, reached).await
    }

    async fn look(&mut self, place: Option<(Place, String)>) -> Result<Looked, Error> {
        let lag = match place {
            Some((place, _)) => places::lag(&mut self.conn, &place).await?,
            None => 0,
        };
        Ok(Looked { lag, failures: self.failures.count(&mut self.conn).await? })
    }

    /// The table is read over another connection, and this one must not be silent meanwhile: it has the lock.
    async fn read(&mut self, scan: Box<Scan>) -> Result<(Box<Scan>, Vec<Input>), Error> {
        let mut reading = pin!(scan.next());
        loop {
            tokio::select! {
                read = &mut reading => return read.map(|(scan, rows)| (Box::new(scan), rows)),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    self.conn.ping().await.map_err(|error| database("keeping the lock", &error))?;
                }
            }
        }
    }
}
