//! The calls that a driver has under way, each in a task of its own that ends with one [`Event`].

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Batch, Queue, Renewal, Taken, Upkept, Verdict};
use crate::error::Error;
use crate::job::Receipt;

/// A call is over.
#[derive(Debug)]
pub(super) enum Event<H> {
    Opened(Result<(), Error>),
    Fetched { fetcher: usize, granted: usize, result: Result<Vec<Taken<H>>, Error> },
    Settled { settler: usize, batch: Batch<H>, result: Result<Vec<Verdict>, Error> },
    Renewed { receipts: Vec<Receipt>, result: Result<Vec<Renewal<H>>, Error> },
    Upkept(Result<Upkept, Error>),
}

/// The calls under way. Dropping them ends them.
#[derive(Debug)]
pub(super) struct Calls<Q: Queue> {
    queue: Arc<Q>,
    tasks: JoinSet<Event<Q::Handle>>,
}

impl<Q: Queue> Calls<Q> {
    pub(super) fn new(queue: Arc<Q>) -> Self {
        Self { queue, tasks: JoinSet::new() }
    }

    pub(super) fn open(&mut self) {
        let queue = Arc::clone(&self.queue);
        self.tasks.spawn(async move { Event::Opened(queue.open().await) });
    }

    pub(super) fn fetch(&mut self, fetcher: usize, granted: usize) {
        let queue = Arc::clone(&self.queue);
        self.tasks.spawn(async move {
            let result = queue.fetch(fetcher, granted).await;
            Event::Fetched { fetcher, granted, result }
        });
    }

    pub(super) fn settle(&mut self, settler: usize, mut batch: Batch<Q::Handle>) {
        let queue = Arc::clone(&self.queue);
        self.tasks.spawn(async move {
            let result = queue.settle(settler, &mut batch).await;
            Event::Settled { settler, batch, result }
        });
    }

    pub(super) fn renew(&mut self, jobs: Vec<(Receipt, Q::Handle)>) {
        let queue = Arc::clone(&self.queue);
        self.tasks.spawn(async move {
            let receipts = jobs.iter().map(|(receipt, _)| *receipt).collect();
            Event::Renewed { receipts, result: queue.renew(jobs).await }
        });
    }

    pub(super) fn upkeep(&mut self) {
        let queue = Arc::clone(&self.queue);
        self.tasks.spawn(async move { Event::Upkept(queue.upkeep().await) });
    }

    /// The next call that is over; none: no call is under way.
    pub(super) async fn next(&mut self) -> Option<Event<Q::Handle>> {
        // A task that panics has a bug in it: the process ends with it.
        self.tasks.join_next().await.map(|ended| ended.expect("no call panics, none is aborted"))
    }
}
