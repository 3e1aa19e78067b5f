//! Deliveries that are not acknowledged in time: when a connection looks for them.
//!
//! The channel that holds one is closed, and what it holds goes back. `channel::ack_timeout` knows how long each is out.

use std::time::{Duration, Instant};

use machine::Queue;

use crate::config::Config;
use crate::limits;

/// Whether and when a connection looks at what is out.
#[derive(Debug, Default)]
pub(crate) struct AckTimeout {
    /// Something may be out that has to be acked.
    pub(crate) holds_unacked: bool,
    /// The shortest time that a queue of this connection lets its messages be out. None: for ever.
    shortest: Option<Duration>,
    /// When it looks for messages that are out for too long.
    pub(crate) look_at: Option<Instant>,
}

impl AckTimeout {
    /// A message of this queue may be held from now on.
    pub(crate) fn expect(&mut self, config: &Config, queue: &Queue) {
        let timeout = timeout_of(config, Some(queue));
        if !timeout.is_zero() {
            self.shortest = Some(self.shortest.map_or(timeout, |known| known.min(timeout)));
        }
    }

    /// Plans a look at what is out, if something may be: also where it may be for ever, it is said since when it is.
    #[inline]
    pub(crate) fn plan(&mut self, now: Instant) {
        if let (None, true) = (self.look_at, self.holds_unacked) {
            let pause = self.shortest.map_or(limits::LOOK_LONGEST, |shortest| shortest / 4);
            self.look_at = Some(now + pause.clamp(limits::LOOK_SHORTEST, limits::LOOK_LONGEST));
        }
    }

    /// The look is taken now. Whoever still holds something says so again.
    pub(crate) fn begin_look(&mut self) {
        self.look_at = None;
        self.holds_unacked = false;
    }
}

/// How long messages of a queue may be out; zero is for ever.
pub(crate) fn timeout_of(config: &Config, queue: Option<&Queue>) -> Duration {
    let own = queue.and_then(Queue::consumer_timeout_ms);
    own.map_or(config.consumer_timeout, Duration::from_millis)
}
