//! What the sources share whose jobs are fetched by asking: Redis, SQS, MNS. A [`Queue`] is asked to fetch, to settle,
//! to make leases longer and to look after itself; this task decides when, and speaks with the worker.
//!
//! ```text
//!   Room ──> fetchers ──> ledger ──> Took            one call per fetcher at a time
//!   Settle ──> due ──> settlers ──> Settled          a batch goes when a settler is free and the batch is
//!                                                    full, or `settle_after` has passed
//!   Renew ──> one call at a time ──> Renewed         settlements of these jobs wait for the answer
//! ```
//!
//! When a call fails because the broker is away, nothing is asked until a delay with full jitter has passed and the
//! queue was opened again. A batch of settlements that was not answered is sent again as it was, with its number, so
//! that a broker with scripts (Redis) can tell that it has carried it out already.

mod calls;
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::io::source::Link;
use crate::job::Receipt;
use crate::source::envelope::Envelope;
use crate::source::ledger::Work;

use state::Driver;

/// How much is asked at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Fetch calls that run at the same time.
    pub(crate) fetchers: usize,
    /// Jobs per fetch call.
    pub(crate) fetch_max: usize,
    /// Settle calls that run at the same time.
    pub(crate) settlers: usize,
    /// Jobs per settle call.
    pub(crate) settle_max: usize,
    /// How long a settlement waits for company.
    pub(crate) settle_after: Duration,
    /// A fetcher asks again only when everything that it took is settled.
    pub(crate) is_synchronous: bool,
}

/// A job as a queue gives it out.
#[derive(Debug)]
pub(crate) struct Taken<H> {
    pub(crate) handle: H,
    pub(crate) lease_until: Option<Instant>,
    pub(crate) envelope: Envelope,
}

/// What became of one settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Settled,
    /// Somebody else has the job.
    Lost,
    /// The broker refused it for now.
    Again {
        why: String,
    },
}

/// What became of one lease.
#[derive(Debug)]
pub(crate) enum Renewal<H> {
    Longer {
        receipt: Receipt,
        handle: H,
        until: Instant,
    },
    Lost {
        receipt: Receipt,
    },
    /// Nobody knows: the old end holds.
    Unknown {
        receipt: Receipt,
    },
}

/// What a look after the queue brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upkept {
    /// Everything in hand is somebody else's now.
    pub(crate) is_all_lost: bool,
    /// When to look again.
    pub(crate) next: Duration,
}

/// Works to carry out in one call.
#[derive(Debug)]
pub(crate) struct Batch<H> {
    /// Counts up per settler. A batch that is sent again keeps its number and its places.
    pub(crate) number: u64,
    pub(crate) works: Vec<Entry<H>>,
}

/// A place in a batch.
#[derive(Debug)]
pub(crate) struct Entry<H> {
    pub(crate) work: Work<H>,
    /// Its lease has run out: not to be touched.
    pub(crate) is_over: bool,
}

/// A broker's queue, as the driver uses it. Every call may be dropped when the source is closed.
pub(crate) trait Queue: Send + Sync + 'static {
    type Handle: Clone + std::fmt::Debug + Send + Sync + 'static;

    /// How the log names it.
    fn name(&self) -> &str;

    /// Connects, and looks whether the queue is there. Again after every failure.
    fn open(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes up to `max` jobs; may wait for the first.
    fn fetch(
        &self,
        fetcher: usize,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Taken<Self::Handle>>, Error>> + Send;

    /// Carries out a batch; one verdict for each place.
    fn settle(
        &self,
        settler: usize,
        batch: &mut Batch<Self::Handle>,
    ) -> impl Future<Output = Result<Vec<Verdict>, Error>> + Send;

    /// Makes leases longer.
    fn renew(
        &self,
        jobs: Vec<(Receipt, Self::Handle)>,
    ) -> impl Future<Output = Result<Vec<Renewal<Self::Handle>>, Error>> + Send;

    /// Looks after delayed jobs, signs of life, and jobs of workers that are gone.
    fn upkeep(&self) -> impl Future<Output = Result<Upkept, Error>> + Send;

    /// Everything is settled: leaves nothing behind.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Runs a queue as a source.
///
/// # Errors
/// The queue cannot be used as it is set up.
pub(crate) async fn run<Q: Queue>(queue: Arc<Q>, pace: Pace, link: Link) -> Result<(), Error> {
    Driver::new(queue, pace, link.news).run(link.orders).await
}
