//! Sources: broker adapters. Each is one task that takes jobs, keeps their receipts, and carries out settlements.
//!
//! ```text
//!            Room, Settle, Renew, Stop
//!   worker ──────────────────────────────> source task ──> broker
//!          <────────────────────────────── (fetchers, deleter)
//!            Took, Settled, Renewed, Lost, Away, Back
//! ```
//!
//! A source connects again by itself, for as long as it is not stopped, and says [`News::Away`] and [`News::Back`].

pub mod amqp;
mod backoff;
mod driver;
pub mod mns;
pub mod redis;
pub mod redis_list;
pub mod redis_stream;
pub mod sqs;

use std::time::Instant;

use tokio::sync::mpsc;

use crate::error::Error;
use crate::job::{Job, Receipt};
use crate::settlement::Settled;

/// What a source is told.
#[derive(Debug)]
pub enum Order {
    /// It may take so many jobs more than before. A source with a prefetch of its own (AMQP) may take fewer.
    Room { jobs: usize },
    /// Carry these out, soon, several at a time. Answered with [`News::Settled`] once the broker has taken them.
    Settle(Vec<Settled>),
    /// Make these leases longer. Answered with [`News::Renewed`].
    Renew(Vec<Receipt>),
    /// Take nothing more. Settlements still come.
    Drain,
    /// Everything is settled: flush, and end. `run` returns.
    Close,
}

/// What a source tells.
#[derive(Debug)]
pub enum News {
    Took(Vec<Job>),
    Settled(Vec<Receipt>),
    Renewed(Vec<(Receipt, Instant)>),
    /// Somebody else gets these: the connection or the lease is lost.
    Lost(Vec<Receipt>),
    /// The broker is away; the source tries again.
    Away {
        why: String,
    },
    /// The broker is there: for the first time, or again.
    Back,
}

/// A source's two ends to the worker.
#[derive(Debug)]
pub struct Link {
    pub orders: mpsc::UnboundedReceiver<Order>,
    pub news: mpsc::Sender<News>,
}

/// A broker adapter.
pub trait Source: Send + 'static {
    /// Runs until it is closed, or until it cannot go on as it is set up.
    ///
    /// # Errors
    /// [`Error::Setup`]: the queue does not exist, the password is wrong. What is only away is waited for.
    fn run(self: Box<Self>, link: Link) -> BoxFuture<Result<(), Error>>;
}

/// A future on the heap.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
