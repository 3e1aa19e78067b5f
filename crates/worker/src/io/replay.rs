//! Jobs by hand, over AMQP or at a Redis: dead ones go back to their queue, and a new one is published.
//!
//! Both connect, do their work and disconnect. A dead job leaves its queue only after its copy is confirmed, so an
//! interrupted replay repeats jobs at worst, and never loses one.

mod back;
mod redis;
mod send;

use std::time::Duration;

use client::{Connection, Options, Url};

use crate::error::Error;
use crate::io::source::amqp::{error, options};
use crate::job::Header;

/// Puts dead jobs back into their queue, with their first attempt before them.
///
/// `url` is an `amqp://` or `amqps://` URL, or one of a Redis: `redis://`, `rediss://` or `unix://`, and then the queue is a
/// stream or a list.
///
/// # Errors
/// The URL is none, the broker cannot be reached, or a queue is not there. What was confirmed until then is back.
pub async fn replay(url: &str, what: &Replay) -> Result<Replayed, Error> {
    match redis::Place::of(url) {
        Some(place) => redis::replay(&place?, what).await,
        None => back::replay(url, what).await,
    }
}

/// Publishes one job, and gives its id once the broker has confirmed it. `url` is as for [`replay`].
///
/// # Errors
/// The URL is none, the broker cannot be reached, the queue is not there, or the broker cannot do what is asked.
pub async fn send(url: &str, job: &Send) -> Result<String, Error> {
    match redis::Place::of(url) {
        Some(place) => redis::send(&place?, job).await,
        None => send::send(url, job).await,
    }
}

/// Which dead jobs go back, and how fast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// The queue whose jobs died. They go back to it.
    pub queue: String,
    /// Where they lie; none: `QUEUE.dead`, at a Redis `QUEUE:dead`.
    pub dead_queue: Option<String>,
    /// Only jobs with this cause, as [`Cause::name`](crate::Cause::name) writes it.
    pub cause: Option<String>,
    /// Only jobs of this type.
    pub kind: Option<String>,
    /// Only the job with this id.
    pub id: Option<String>,
    /// So many at most.
    pub limit: Option<u64>,
    /// Jobs per second at most.
    pub rate: Option<f64>,
    /// Look, and leave everything where it is.
    pub is_dry_run: bool,
}

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Dead jobs that were looked at.
    pub seen: u64,
    /// Those that were wanted. They are in their queue again, unless it was a dry run.
    pub replayed: u64,
    /// The first of those that were wanted: at most [`SHOWN_MAX`].
    pub jobs: Vec<DeadJob>,
}

/// How many jobs [`Replayed::jobs`] has at most.
pub const SHOWN_MAX: usize = 1000;

/// A dead job, as its headers describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadJob {
    pub id: String,
    pub kind: String,
    /// `x-job-dead-cause`; empty: somebody else put it there.
    pub cause: String,
    /// `x-job-dead-why`.
    pub why: String,
    /// The attempt after which it died.
    pub attempt: u32,
    /// When it died, in milliseconds since 1970.
    pub died_ms: Option<u64>,
}

/// One job to publish.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Send {
    pub queue: String,
    /// The job's type. May be empty.
    pub kind: String,
    pub body: Vec<u8>,
    /// None: `application/json` where the body is JSON, else `application/octet-stream`.
    pub content_type: Option<String>,
    /// None: one is made.
    pub id: Option<String>,
    /// The order key.
    pub key: Option<String>,
    /// Not before this long from now.
    pub delay: Option<Duration>,
    pub timeout: Option<Duration>,
    pub attempts_max: Option<u32>,
    /// JSON, what to publish after success (`x-job-then`).
    pub then: Option<String>,
    /// The key of a unique job, for a queue of Millrace that drops repeated messages. With a window the queue is
    /// declared so, and has to be so if it is there.
    pub unique: Option<(String, Option<Duration>)>,
    /// More headers.
    pub headers: Vec<Header>,
}

/// A connection that may rest for long: a replay can be slow on purpose.
async fn connect(url: &Url, what: &str) -> Result<Connection, Error> {
    let opened = Connection::open(url, &resting(what)).await;
    opened.map_err(|failure| error(format!("connecting to {url}"), &failure))
}

fn resting(what: &str) -> Options {
    Options { heartbeat: 0, ..options(what) }
}

fn url_of(text: &str) -> Result<Url, Error> {
    text.parse().map_err(|bad: client::BadUrl| Error::setup(bad.to_string()))
}

/// How many messages a queue has ready.
async fn look_up(connection: &mut Connection, queue: &str) -> Result<u32, Error> {
    match connection.look_up_queue(queue).await {
        Ok(declared) => Ok(declared.message_count),
        Err(client::Error::ChannelClosed { code: 404, .. }) => {
            Err(Error::setup(format!("there is no queue `{queue}`: create it, or mend its name")))
        }
        Err(failure) => Err(error(format!("looking for the queue `{queue}`"), &failure)),
    }
}
