//! How a connection behaves, beyond where it goes: what a URL cannot say, and what overrides it.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::limits::{ANSWER_WAIT, CHANNEL_MAX, FRAME_BYTES_MAX, HEARTBEAT_SECONDS};
use crate::url::Url;

/// Settings of a connection. The URL's query overrides the first four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seconds between heartbeats to propose; 0 turns them off.
    pub heartbeat: u16,
    pub channel_max: u16,
    /// Largest frame to propose, in bytes.
    pub frame_max: u32,
    /// How long a connect with its handshake, or one request, may take.
    pub answer_wait: Duration,
    /// What the server's management shows as the connection's name.
    pub name: Option<String>,
    /// Delays between attempts to connect again.
    pub backoff: Backoff,
    /// For how long to try again after a connection is lost. Zero: the loss is an error at once.
    pub retry_for: Duration,
    /// Where jitter starts. None: different for every connection.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            heartbeat: HEARTBEAT_SECONDS,
            channel_max: CHANNEL_MAX,
            frame_max: FRAME_BYTES_MAX,
            answer_wait: ANSWER_WAIT,
            name: None,
            backoff: Backoff::default(),
            retry_for: Duration::from_secs(60),
            seed: None,
        }
    }
}

impl Options {
    /// Defaults under a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Without another attempt when a connection is lost: nothing is sent twice, and the handle that lost
    /// it is over. Who wants another opens another.
    pub fn without_retry(mut self) -> Self {
        self.retry_for = Duration::ZERO;
        self
    }

    /// These, with what the URL says in their place.
    pub(crate) fn with(&self, url: &Url) -> Self {
        Self {
            heartbeat: url.heartbeat.unwrap_or(self.heartbeat),
            channel_max: url.channel_max.unwrap_or(self.channel_max),
            frame_max: url.frame_max.unwrap_or(self.frame_max),
            answer_wait: url.connection_timeout.map_or(self.answer_wait, Duration::from_millis),
            ..self.clone()
        }
    }
}
