//! A job: what its publisher wrote, and what its source knows of it.

use std::time::{Duration, Instant};

use bytes::Bytes;

/// Names a job at its source until it is settled. Sources count them up from 1 and never use one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub u64);

/// A header of a job, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: String,
}

/// What a target is given. The same at every attempt, but for `attempt`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Message {
    /// Stable over all attempts, and so the idempotency key. Sources make one where the publisher gave none.
    pub id: String,
    /// The job's type: it chooses the handler. May be empty.
    pub kind: String,
    pub content_type: Option<String>,
    /// Headers of the publisher, without Millrace's own (`x-job-…`).
    pub headers: Vec<Header>,
    pub body: Bytes,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What few jobs have.
    pub extras: Option<Box<Extras>>,
}

/// What few jobs have, from the headers `x-job-…`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Extras {
    /// `x-job-timeout-ms`: overrides the pipeline's timeout.
    pub timeout: Option<Duration>,
    /// `x-job-attempts-max`: overrides the pipeline's.
    pub attempts_max: Option<u32>,
    /// `x-job-then`: JSON, what to publish after success. Judged by `chain`.
    pub then: Option<String>,
    /// `x-job-batch`: JSON, the batch it belongs to. Judged by `batches`.
    pub batch: Option<String>,
}

/// A job in the hands of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub receipt: Receipt,
    pub message: Message,
    /// The order and fairness key (`x-job-key`), hashed; none: the job has no key.
    pub key: Option<u64>,
    /// Jobs with the same group may go to the target in one request, where the target takes several. Set by
    /// [`Target::group`](crate::io::target::Target::group); none: it goes alone.
    pub group: Option<u64>,
    /// Until when no other process gets it; none: for as long as the connection lives (AMQP).
    pub lease_until: Option<Instant>,
    /// When the publisher published it, in milliseconds since 1970, where the source knows that.
    pub published_ms: Option<u64>,
}
