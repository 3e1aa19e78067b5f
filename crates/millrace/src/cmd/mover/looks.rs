//! Whether the source's queue is empty: asked when nothing has come for a while.

use std::time::{Duration, Instant};

use client::{Connection, Error, Options, Url};

/// Nothing has come for so long: it is time for a look.
const QUIET: Duration = Duration::from_millis(300);
/// Longest pause between two looks.
const LOOK_LAST: Duration = Duration::from_secs(5);

/// Looks whether the source's queue has anything left.
pub(super) struct Looks {
    quiet_since: Instant,
    /// For how long the source may have messages and deliver none.
    give_up_after: Duration,
    /// When the next look is due.
    pub(super) due: Instant,
    pause: Duration,
    was_empty: bool,
}

impl Looks {
    /// Nothing has come since then.
    pub(super) fn new(quiet_since: Instant, give_up_after: Duration) -> Self {
        let due = quiet_since + QUIET;
        let due = due.max(Instant::now());
        Self { quiet_since, give_up_after, due, pause: QUIET, was_empty: false }
    }

    /// True: it was empty at two looks, and nothing came in between.
    ///
    /// # Errors
    /// In words: the queue has messages, and delivers none.
    pub(super) async fn look(
        &mut self,
        from: &Url,
        options: &Options,
        queue: &str,
    ) -> Result<bool, String> {
        match ready(from, options, queue).await {
            Ok(0) if self.was_empty => return Ok(true),
            Ok(0) => (self.was_empty, self.pause) = (true, QUIET),
            Ok(ready) if self.quiet_since.elapsed() >= self.give_up_after => {
                return Err(format!(
                    "the source has {ready} messages ready and has delivered none for {} s: is another consumer its \
                     single active one?",
                    self.give_up_after.as_secs_f64()
                ));
            }
            // The consumer finds out what is wrong with the connection.
            Ok(_) | Err(_) => {
                self.was_empty = false;
                self.pause = (self.pause * 2).min(LOOK_LAST);
            }
        }
        self.due = Instant::now() + self.pause;
        Ok(false)
    }
}

async fn ready(from: &Url, options: &Options, queue: &str) -> Result<u32, Error> {
    let mut connection = Connection::open(from, &options.clone().without_retry()).await?;
    let declared = connection.look_up_queue(queue).await?;
    connection.close().await?;
    Ok(declared.message_count)
}
