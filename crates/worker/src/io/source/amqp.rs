//! The AMQP source: Millrace and RabbitMQ.
//!
//! One task, two connections: one takes jobs and lets them go, the other publishes what has to be safe before that
//! (retries, dead jobs, chains). It is opened when there is something to publish. Brokers stop publishers when memory
//! is short, so neither waits for the other. Queues and exchanges are looked up over short connections beside them.
//!
//! A job of a connection that is lost is lost here too: the broker gives it to somebody else.

mod connect;
pub(in crate::io) mod errand;
mod task;

use client::Url;

use crate::error::Error;
use crate::io::secret;
use crate::io::source::{BoxFuture, Link, Source};
use crate::source::amqp::Settings;

/// A source over AMQP.
#[derive(Debug)]
pub struct Amqp {
    settings: Settings,
    url: Url,
}

impl Amqp {
    /// A source that is not connected yet.
    ///
    /// # Errors
    /// The settings are wrong, or the URL cannot be read.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let text = secret::read(&settings.url)?;
        let url = text.parse().map_err(|bad: client::BadUrl| Error::setup(bad.to_string()))?;
        Ok(Self { settings, url })
    }
}

impl Source for Amqp {
    fn run(self: Box<Self>, link: Link) -> BoxFuture<Result<(), Error>> {
        let Self { settings, url } = *self;
        Box::pin(task::run(settings, url, link))
    }
}

/// The settings of every connection to a broker: nothing is tried again behind the caller's back.
pub(in crate::io) fn options(what: &str) -> client::Options {
    client::Options::named(format!("millrace work: {what}")).without_retry()
}

/// What the client's error means for a worker.
pub(in crate::io) fn error(doing: String, error: &client::Error) -> Error {
    // A queue whose node is down, or a virtual host that is not up yet, comes back.
    let text = error.to_string();
    let is_starting = text.contains("is down") || text.contains("inaccessible");
    let is_over =
        matches!(error, client::Error::ConsumerCancelled { .. } | client::Error::Protocol { .. });
    if error.is_temporary() || is_starting || is_over {
        Error::away(doing, text)
    } else {
        Error::setup(format!("{doing}: {text}"))
    }
}
