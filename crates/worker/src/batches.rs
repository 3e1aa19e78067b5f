//! Batches: jobs that belong together, and one job that is published when all of them are over.
//!
//! Every job of a batch that is over, done or dead, publishes a *note* to [`QUEUE`]. A note is a set of ended jobs
//! (one, at first), and two notes of a batch merge by union, so it does no harm if a note comes twice, in any
//! order, or merged with others. The tracker ([`Tracker`]) holds notes unacknowledged, merges them when there are
//! many (publishes the union, then acknowledges the parts), publishes the completion once the union has as many
//! jobs as the batch, and acknowledges its notes after that. So a crash loses nothing; one between the publish of
//! the completion and the acknowledgements publishes it again, with the same message-id `batch:ID`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::chain::{self, Next, derived_id};
use crate::job::{Header, Message};
use crate::limits::{BATCH_JOBS_MAX, CHAIN_BYTES_MAX, NAME_BYTES_MAX};
use crate::settlement::Publish;

mod tracker;

pub use tracker::{Action, Held, Note, Tracker};

/// Where notes go: an AMQP queue, a Redis list.
pub const QUEUE: &str = "millrace.work.batches";
/// The type of notes.
pub const NOTE_KIND: &str = "millrace.batch";

/// How a job of a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Done,
    Dead,
}

/// What `x-job-batch` says: the batch that a job belongs to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Of the publisher's choice, never used for two batches.
    pub id: String,
    /// How many jobs it has.
    pub size: u32,
    /// The job to publish when all are over: as in a chain. Its headers get `batch-id`, `batch-size`,
    /// `batch-done` and `batch-dead`.
    pub completion: Box<RawValue>,
}

impl Batch {
    /// Reads the header.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > CHAIN_BYTES_MAX {
            return Err(format!("a batch of {} bytes; at most {CHAIN_BYTES_MAX}", text.len()));
        }
        let batch = Self::shape(text)?;
        chain::parse(&format!("[{}]", batch.completion.get()))?;
        Ok(batch)
    }

    /// The same, without a look at what follows the completion.
    pub(crate) fn shape(text: &str) -> Result<Self, String> {
        let batch: Self =
            serde_json::from_str(text).map_err(|error| format!("it is no batch: {error}"))?;
        check_names(&batch.id, batch.size)?;
        Ok(batch)
    }

    /// The completion.
    pub(crate) fn completion(&self) -> Result<Next, String> {
        let next = serde_json::from_str(self.completion.get());
        next.map_err(|error| format!("a batch's completion is no job: {error}"))
    }
}

fn check_names(id: &str, size: u32) -> Result<(), String> {
    if id.is_empty() || id.len() > NAME_BYTES_MAX - 6 {
        return Err(format!("a batch's id has 1 to {} bytes", NAME_BYTES_MAX - 6));
    }
    if !(1..=BATCH_JOBS_MAX).contains(&size) {
        return Err(format!("a batch has 1 to {BATCH_JOBS_MAX} jobs, not {size}"));
    }
    Ok(())
}

/// A job's name inside its batch: 64 bits of a hash of its id. Two jobs of one batch have the same one with a
/// chance of one in 10^11 for the largest batch.
fn job_hash(id: &str) -> u64 {
    let digest = Sha256::digest(id.as_bytes());
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}

/// The jobs of a batch that are over. Union is all that happens to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended(BTreeMap<u64, End>);

impl Ended {
    /// One job.
    pub fn one(id: &str, end: End) -> Self {
        Self(BTreeMap::from([(job_hash(id), end)]))
    }

    /// Adds those of another; says how many are new. A job that was dead and then done (after a replay) is done.
    pub fn merge(&mut self, other: &Self) -> usize {
        let before = self.0.len();
        for (&job, &end) in &other.0 {
            self.0.entry(job).and_modify(|known| *known = (*known).min(end)).or_insert(end);
        }
        self.0.len() - before
    }

    /// As if these were other jobs: for a bug that is planted.
    fn salted(&self, salt: u64) -> Self {
        Self(self.0.iter().map(|(job, end)| (job ^ salt.rotate_left(32), *end)).collect())
    }

    pub fn count(&self, end: End) -> usize {
        self.0.values().filter(|&&known| known == end).count()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn encode(&self, end: End) -> String {
        let of = self.0.iter().filter(|(_, known)| **known == end);
        BASE64.encode(of.flat_map(|(job, _)| job.to_be_bytes()).collect::<Vec<u8>>())
    }

    fn decode(&mut self, text: &str, end: End) -> Result<(), String> {
        let bytes =
            BASE64.decode(text).map_err(|error| format!("it is no list of jobs: {error}"))?;
        let jobs = bytes.as_chunks::<8>();
        if !jobs.1.is_empty() || jobs.0.len() > BATCH_JOBS_MAX as usize {
            return Err("it is no list of jobs".into());
        }
        let one = |bytes: &[u8; 8]| (u64::from_be_bytes(*bytes), end);
        self.merge(&Self(jobs.0.iter().map(one).collect()));
        Ok(())
    }
}

/// A note's body.
#[derive(Deserialize, Serialize)]
struct Body {
    id: String,
    size: u32,
    /// Hashes of job ids, 8 bytes each, base64.
    #[serde(default)]
    done: String,
    #[serde(default)]
    dead: String,
    completion: Box<RawValue>,
    /// Of a union: when its first note was seen, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_ms: Option<i64>,
}

/// The note of one job that is over.
pub fn note(batch: &Batch, job: &str, end: End) -> Publish {
    let body = body(batch, &Ended::one(job, end), None);
    publish(derived_id(&format!("note:{}:{job}", batch.id)), body)
}

fn body(batch: &Batch, ended: &Ended, since_ms: Option<i64>) -> String {
    let body = Body {
        id: batch.id.clone(),
        size: batch.size,
        done: ended.encode(End::Done),
        dead: ended.encode(End::Dead),
        completion: batch.completion.clone(),
        since_ms,
    };
    serde_json::to_string(&body).expect("text, numbers and JSON are JSON")
}

fn publish(id: String, body: String) -> Publish {
    Publish {
        exchange: String::new(),
        routing_key: QUEUE.to_owned(),
        message: Message {
            id,
            kind: NOTE_KIND.to_owned(),
            content_type: Some("application/json".to_owned()),
            body: body.into(),
            attempt: 1,
            ..Message::default()
        },
        key: None,
        delay: None,
    }
}

/// The job that a batch is completed by.
///
/// # Errors
/// The completion is none.
pub fn completion_job(batch: &Batch, done: usize, dead: usize) -> Result<Publish, String> {
    let next = batch.completion()?;
    let mut publish = next.publish(format!("batch:{}", batch.id), &Message::default());
    let numbers = [
        ("batch-id", batch.id.clone()),
        ("batch-size", batch.size.to_string()),
        ("batch-done", done.to_string()),
        ("batch-dead", dead.to_string()),
    ];
    let headers = numbers.map(|(name, value)| Header { name: name.to_owned(), value });
    publish.message.headers.extend(headers);
    Ok(publish)
}

#[cfg(test)]
mod tests;
