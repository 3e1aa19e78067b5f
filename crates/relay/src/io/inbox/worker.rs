//! One worker of an inbox: its connection to the database, and what it was given.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use client::DeliveryTag;

use super::links::Link;
use super::store::{Failed, Store};
use crate::inbox::Row;

/// A batch on its way.
type Storing = Pin<Box<dyn Future<Output = Result<u64, Failed>>>>;

/// What happened at the database.
pub(super) enum News {
    /// A new connection.
    Open(Store),
    /// How the batch ended, after so many nanoseconds.
    Stored(Result<u64, Failed>, u64),
}

/// One of those that store.
pub(super) struct Worker {
    to_database: Link<Store>,
    /// None while the database is away.
    pub(super) store: Option<Store>,
    storing: Option<(Storing, Instant)>,
    /// What the consumer was given for this worker and has not settled, oldest first.
    pub(super) tags: VecDeque<DeliveryTag>,
    /// The table refuses a message of it.
    pub(super) is_stuck: bool,
}

impl Worker {
    /// Without a connection.
    pub(super) fn new(to_database: Link<Store>) -> Self {
        Self { to_database, store: None, storing: None, tags: VecDeque::new(), is_stuck: false }
    }

    /// Begins to store a batch.
    pub(super) fn begin(&mut self, rows: Arc<Vec<Row>>) {
        let store = self.store.clone().expect("the core was told that the database is there");
        let storing = Box::pin(async move { store.insert(&rows).await });
        self.storing = Some((storing, Instant::now()));
    }

    /// A batch is stored.
    pub(super) fn works(&mut self) {
        self.to_database.works();
        self.is_stuck = false;
    }

    /// A wait that is cancelled goes on with the next.
    async fn next(&mut self) -> News {
        match &mut self.storing {
            Some((storing, since)) => {
                let result = storing.await;
                let nanos = since.elapsed().as_nanos() as u64;
                self.storing = None;
                News::Stored(result, nanos)
            }
            None if self.store.is_none() => News::Open(self.to_database.next().await),
            None => std::future::pending().await,
        }
    }
}

/// What happens first, and to whom.
pub(super) async fn any(workers: &mut [Worker]) -> (usize, News) {
    let mut waits: Vec<_> = workers.iter_mut().map(|worker| Box::pin(worker.next())).collect();
    poll_fn(|context| {
        for (number, wait) in waits.iter_mut().enumerate() {
            if let Poll::Ready(news) = wait.as_mut().poll(context) {
                return Poll::Ready((number, news));
            }
        }
        Poll::Pending
    })
    .await
}
