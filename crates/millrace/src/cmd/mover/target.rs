//! The connection to the target: a publisher that comes back after a loss, and says that it was lost.
//!
//! The client's publisher would send everything unconfirmed again by itself. Here that is for the caller: what is sent
//! again is marked.
//!
//! ```text
//!       lost, or without its exchange: Lost       connected: Back
//!  Open ──────────────────────────> Away ──────────────────────────> Open
//!     └── a refusal ──> Over <────────┘ given up, or refused
//! ```

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use client::{Chance, Error, Options, Publisher, Url, Verdict};

/// Reply code for an exchange that is not there.
pub(super) const NO_EXCHANGE: u16 = 404;

/// What happened at the target.
#[derive(Debug)]
pub(super) enum News {
    /// There are verdicts.
    Verdicts,
    /// The connection is gone, or [`NO_EXCHANGE`] has closed its channel. What has no verdict is unknown.
    Lost(Error),
    /// There is a connection again, on which nothing was published.
    Back,
}

/// How to connect.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) url: Url,
    /// Without another attempt.
    pub(super) options: Options,
    pub(super) window: u32,
    /// For how long to try.
    pub(super) give_up_after: Duration,
}

type Opening = Pin<Box<dyn Future<Output = Result<Publisher, Error>> + Send>>;

enum State {
    Open(Box<Publisher>),
    Away(Opening),
    Over(Error),
}

/// The target of one queue.
pub(super) struct Target {
    way: Way,
    state: State,
    /// Attempts since the last verdict: a target that dies of each message is not asked all the time.
    attempts: u32,
    chance: Chance,
}

impl Target {
    /// Begins to connect: [`Target::drive`] says when it is done.
    pub(super) fn new(way: Way, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let state = State::Away(opening(way.clone(), 0, chance.clone()));
        chance.next_bits();
        Self { way, state, attempts: 0, chance }
    }

    /// The publisher, while there is a connection.
    pub(super) fn publisher(&mut self) -> Option<&mut Publisher> {
        match &mut self.state {
            State::Open(publisher) => Some(publisher),
            State::Away(_) | State::Over(_) => None,
        }
    }

    /// The target has stopped publishers.
    pub(super) fn is_blocked(&self) -> bool {
        match &self.state {
            State::Open(publisher) => publisher.is_blocked(),
            State::Away(_) | State::Over(_) => false,
        }
    }

    /// Waits for news; verdicts are added to `verdicts`, also those before a loss. A cancelled wait loses nothing.
    ///
    /// # Errors
    /// The target refuses, or could not be reached for as long as was said.
    pub(super) async fn drive(&mut self, verdicts: &mut Vec<Verdict>) -> Result<News, Error> {
        match &mut self.state {
            State::Open(publisher) => {
                let driven = publisher.drive(verdicts).await;
                publisher.take_verdicts(verdicts);
                match driven {
                    Ok(()) => {
                        self.attempts = 0;
                        Ok(News::Verdicts)
                    }
                    Err(error) if error.is_temporary() || error.code() == Some(NO_EXCHANGE) => {
                        self.chance.next_bits();
                        let opening = opening(self.way.clone(), self.attempts, self.chance.clone());
                        self.state = State::Away(opening);
                        self.attempts = self.attempts.saturating_add(1);
                        Ok(News::Lost(error))
                    }
                    Err(error) => self.end(error),
                }
            }
            State::Away(opening) => match opening.await {
                Ok(publisher) => {
                    self.state = State::Open(Box::new(publisher));
                    Ok(News::Back)
                }
                Err(error) => self.end(error),
            },
            State::Over(error) => Err(error.clone()),
        }
    }

    fn end(&mut self, error: Error) -> Result<News, Error> {
        self.state = State::Over(error.clone());
        Err(error)
    }

    /// Closes the connection, if there is one and the target answers soon. Nothing depends on it.
    pub(super) async fn close(self, within: Duration) {
        if let State::Open(publisher) = self.state
            && publisher.unconfirmed() == 0
        {
            let _ = tokio::time::timeout(within, publisher.close()).await;
        }
    }
}

/// Connects; attempt number `attempt` is not the first.
fn opening(way: Way, mut attempt: u32, mut chance: Chance) -> Opening {
    let give_up_at = Instant::now() + way.give_up_after;
    Box::pin(async move {
        loop {
            if attempt > 0 {
                let delay = way.options.backoff.delay(attempt - 1, chance.next_bits());
                tokio::time::sleep(delay).await;
            }
            match Publisher::open(&way.url, &way.options, way.window).await {
                Ok(publisher) => return Ok(publisher),
                Err(error) if !error.is_temporary() || Instant::now() >= give_up_at => {
                    return Err(error);
                }
                Err(_) => attempt = attempt.saturating_add(1),
            }
        }
    })
}
