//! A service that is paused for a while: it comes to rest as if it were stopped, and begins again when it is resumed.

use std::future::Future;

use tokio::sync::watch;

/// Who has a service rest, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub by: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// Whether a service, or a part of one, is to rest, and whether it does. Clones are of the same.
#[derive(Clone, Debug)]
pub struct Pauses {
    wanted: watch::Sender<Option<Pause>>,
    resting: watch::Sender<bool>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { wanted: watch::Sender::new(None), resting: watch::Sender::new(false) }
    }
}

impl Pauses {
    /// The service is to rest, or to go on. What it does until then is finished first. One that is to rest already is
    /// paused by whoever paused it first.
    pub fn want(&self, pause: Option<Pause>) {
        self.wanted.send_if_modified(|wanted| {
            let changes = wanted.is_some() != pause.is_some();
            if changes {
                *wanted = pause;
            }
            changes
        });
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted.borrow().is_some()
    }

    /// Who has it rest; nobody: it is to go on.
    pub fn pause(&self) -> Option<Pause> {
        self.wanted.borrow().clone()
    }

    /// Whether nothing is being done.
    pub fn is_resting(&self) -> bool {
        *self.resting.borrow()
    }

    /// Until it rests, or does not.
    pub async fn until(&self, rests: bool) {
        // The sender is here: it does not go away.
        let _ = self.resting.subscribe().wait_for(|it| *it == rests).await;
    }

    /// Has a service that can pause by itself do what is wanted, for ever.
    pub async fn follow<F: Future<Output = ()>>(self, mut act: impl FnMut(bool) -> F) {
        let mut wanted = self.wanted.subscribe();
        loop {
            let rests = self.is_resting();
            // The sender is here: it does not go away.
            let _ = wanted.wait_for(|wanted| wanted.is_some() != rests).await;
            act(!rests).await;
            self.resting.send_replace(!rests);
        }
    }

    /// Runs `work` until `stop` says so, each time until it is paused. `work` is given what tells it to stop, and ends then.
    ///
    /// # Errors
    /// That of the work.
    pub async fn run<E, W>(
        &self,
        mut stop: watch::Receiver<bool>,
        mut work: impl FnMut(watch::Receiver<bool>) -> W,
    ) -> Result<(), E>
    where
        W: Future<Output = Result<(), E>>,
    {
        let mut wanted = self.wanted.subscribe();
        loop {
            let (end, ended) = watch::channel(false);
            let working = work(ended);
            tokio::pin!(working);
            let is_pause = tokio::select! {
                // Who is told to stop and to rest at once stops.
                biased;
                () = said(&mut stop) => false,
                // The sender is here: it does not go away.
                _ = wanted.wait_for(Option::is_some) => true,
                ended = &mut working => return ended,
            };
            end.send_replace(true);
            working.await?;
            if !is_pause {
                return Ok(());
            }
            self.resting.send_replace(true);
            tracing::info!(
                "paused by PUT /pause: connections are closed, and nothing is done until DELETE /pause or a restart"
            );
            let goes_on = tokio::select! {
                biased;
                () = said(&mut stop) => false,
                _ = wanted.wait_for(Option::is_none) => true,
            };
            self.resting.send_replace(false);
            if !goes_on {
                return Ok(());
            }
            tracing::info!("resumed by DELETE /pause");
        }
    }
}

/// Until it says so. One that nobody can say any more never does.
async fn said(asked: &mut watch::Receiver<bool>) {
    if asked.wait_for(|is_asked| *is_asked).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn by(who: &str) -> Option<Pause> {
        Some(Pause { by: who.to_owned(), at_ms: 7 })
    }

    #[test]
    fn what_is_paused_stays_paused_by_whoever_was_first() {
        let pauses = Pauses::default();
        pauses.want(by("ann"));
        pauses.want(by("bob"));
        assert_eq!(pauses.pause(), by("ann"));
        pauses.want(None);
        assert_eq!((pauses.pause(), pauses.is_wanted()), (None, false));
        pauses.want(by("bob"));
        assert_eq!((pauses.pause(), pauses.is_wanted()), (by("bob"), true));
    }

    #[tokio::test]
    async fn it_rests_while_it_is_wanted_and_begins_again_and_stops_in_either() {
        let pauses = Pauses::default();
        let begun = AtomicUsize::new(0);
        let (stop, stopped) = watch::channel(false);
        let work = async |mut end: watch::Receiver<bool>| {
            begun.fetch_add(1, Ordering::SeqCst);
            said(&mut end).await;
            Ok::<(), ()>(())
        };
        let orders = async {
            pauses.want(by("ann"));
            pauses.until(true).await;
            assert_eq!(begun.load(Ordering::SeqCst), 1);
            pauses.want(None);
            pauses.until(false).await;
            pauses.want(by("ann"));
            pauses.until(true).await;
            assert_eq!(begun.load(Ordering::SeqCst), 2);
            stop.send_replace(true);
        };
        let (ran, ()) = tokio::join!(pauses.run(stopped, work), orders);
        assert_eq!((ran, pauses.is_resting()), (Ok(()), false));
    }

    #[tokio::test]
    async fn an_error_ends_it_also_while_it_comes_to_rest() {
        let pauses = Pauses::default();
        let (_stop, stopped) = watch::channel(false);
        pauses.want(by("ann"));
        let ran = pauses.run(stopped, async |mut end: watch::Receiver<bool>| {
            said(&mut end).await;
            Err("broken")
        });
        assert_eq!(ran.await, Err("broken"));
    }
}
