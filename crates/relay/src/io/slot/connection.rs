//! The connection beside a slot's log: it holds the lock, and keeps the failures and how far the slot is done.

use std::sync::Arc;

use tokio_postgres::Client;

use super::failures::Failures;
use super::log::Log;
use super::records::{self, Names};
use super::scan::Scan;
use crate::error::Error;
use crate::io::session::{Looked, Records};
use crate::lsn::Lsn;
use crate::progress::Reached;
use crate::slot::{self, History};
use crate::stream::{Input, Output};

pub(super) struct Connection {
    pub(super) client: Arc<Client>,
    pub(super) names: Names,
    /// Whose log it is.
    pub(super) history: History,
    pub(super) failures: Failures,
}

impl Connection {
    fn lost(&self, what: &str) -> Error {
        slot::lost(&self.names.slot, &self.names.outbox, None, what)
    }
}

impl Records for Connection {
    type Log = Log;
    type Scan = Scan;

    fn watch(&self) -> Box<dyn Fn() -> bool + Send + Sync> {
        let client = Arc::clone(&self.client);
        Box::new(move || client.is_closed())
    }

    async fn apply(&mut self, orders: Vec<Output>) -> Result<Vec<Input>, Error> {
        self.failures.apply(orders).await
    }

    async fn record(&mut self, _: Lsn, reached: Reached) -> Result<(), Error> {
        records::confirm(&self.client, &self.names.slot, reached, &self.history).await
    }

    async fn look(&mut self, _: Option<Lsn>) -> Result<Looked, Error> {
        let slot = &self.names.slot;
        let found = records::lag(&self.client, slot).await?;
        if records::published(&self.client, &self.names).await? != self.names.published {
            return Err(self.lost(slot::UNPUBLISHED));
        }
        let Some((lag, wal_status)) = found else { return Err(self.lost("is gone")) };
        match &*wal_status {
            "lost" => return Err(self.lost("is invalidated: it needed more log than is kept")),
            "unreserved" => tracing::warn!(
                slot,
                lag,
                "PostgreSQL is about to invalidate the slot: it keeps more log than max_slot_wal_keep_size"
            ),
            _ => (),
        }
        Ok(Looked { lag, failures: self.failures.count().await? })
    }

    async fn read(&mut self, mut scan: Scan) -> Result<(Scan, Vec<Input>), Error> {
        let rows = scan.next(&self.client).await?;
        Ok((scan, rows))
    }
}
