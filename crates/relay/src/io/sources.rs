//! The sources of one relay, side by side. Each runs by itself, and one that fails is tried again while the others go on.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use client::{Backoff, Chance};
use service::io::pauses::Pauses;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument as _;

use super::drain::run;
use crate::config::Config;
use crate::metrics::{Board, Metrics};
use crate::sources::{Sources, Steps};

/// How soon a source that failed is tried again.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// How long a source that has not begun to work may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a source works again.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the sources that `wanted` has, as it changes, until `stop` says so. `whole` is the pause of all of them.
pub async fn run_sources(
    mut wanted: watch::Receiver<Sources>,
    board: Board,
    whole: Pauses,
    mut stop: watch::Receiver<bool>,
) {
    let mut crew = Crew {
        board,
        whole,
        running: Sources::new(),
        ends: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    loop {
        let is_stopping = *stop.borrow();
        if is_stopping {
            crew.arrange(&Sources::new());
        } else {
            let wanted = wanted.borrow_and_update().clone();
            crew.arrange(&wanted);
            let running = &crew.running;
            crew.board.keep(|name| wanted.contains_key(name) || running.contains_key(name));
        }
        if is_stopping && crew.tasks.is_empty() {
            return;
        }
        tokio::select! {
            Some(ended) = crew.tasks.join_next() => crew.ended(ended),
            () = changed(&mut wanted), if !is_stopping => (),
            () = said(&mut stop), if !is_stopping => (),
        }
    }
}

/// The sources that run.
struct Crew {
    board: Board,
    whole: Pauses,
    /// With the settings that they have, until they have ended.
    running: Sources,
    ends: BTreeMap<String, watch::Sender<bool>>,
    tasks: JoinSet<String>,
}

impl Crew {
    /// Tells those to end that are not wanted so, and begins those that are missing.
    fn arrange(&mut self, wanted: &Sources) {
        let steps = Steps::between(&self.running, wanted);
        for end in steps.end.iter().filter_map(|name| self.ends.get(name)) {
            end.send_replace(true);
        }
        for name in steps.begin {
            if let Some(config) = wanted.get(&name) {
                self.begin(name, config.clone());
            }
        }
    }

    fn begin(&mut self, name: String, config: Config) {
        let (metrics, own) = self.board.add(&name);
        let (end, ended) = watch::channel(false);
        self.ends.insert(name.clone(), end);
        self.running.insert(name.clone(), config.clone());
        // Its lines have the name, also where only errors are logged.
        let span = tracing::error_span!("source", %name);
        let whole = self.whole.clone();
        let source = async move {
            tracing::info!(table = %config.mapping.table, broker = %config.broker, "the source begins");
            let work = async |end: watch::Receiver<bool>| {
                metrics.paused.set(0);
                try_over_and_over(&config, &metrics, end).await;
                metrics.paused.set((own.is_wanted() || whole.is_wanted()).into());
                Ok::<(), Infallible>(())
            };
            let Ok(()) = own.run(ended, work).await;
            tracing::info!(confirmed = metrics.confirmed.get(), "the source has ended");
            name
        };
        self.tasks.spawn(source.instrument(span));
    }

    fn ended(&mut self, ended: Result<String, JoinError>) {
        match ended {
            Ok(name) => {
                self.running.remove(&name);
                self.ends.remove(&name);
            }
            // A bug is not for the next attempt.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => (),
        }
    }
}

/// Runs a source until `end` says so. What is wrong with it is told, and may be right the next time: a table, a password
/// and a slot can be mended while the relay runs.
async fn try_over_and_over(config: &Config, metrics: &Metrics, mut end: watch::Receiver<bool>) {
    let mut chance = Chance::new(seed());
    let mut attempt = 0;
    while !*end.borrow() {
        let start = Instant::now();
        let ended = tokio::select! {
            ended = run(config.clone(), metrics.clone(), end.clone()) => ended,
            () = await_start(metrics, end.clone()) => break,
        };
        metrics.close();
        let Err(error) = ended else { break };
        attempt = if start.elapsed() > BACKOFF.longest { 0 } else { attempt + 1 };
        let delay = BACKOFF.delay(attempt, chance.next_bits()).max(BACKOFF.first / 2);
        tracing::warn!(
            %error,
            "the source cannot go on; it is tried again in {} ms, and the other sources go on",
            delay.as_millis()
        );
        metrics.set_failing(Some(error.to_string()));
        tokio::select! {
            () = said(&mut end) => (),
            () = tokio::time::sleep(delay) => (),
        }
    }
    metrics.set_failing(None);
}

/// Chance, so that sources of one server do not all come back at once.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Takes back that a source fails when it works. Comes back only if the source is told to end before it works, and does
/// not end by itself: it waits for a server that does not answer, and has nothing in hand.
async fn await_start(metrics: &Metrics, mut end: watch::Receiver<bool>) {
    let works = async {
        while !metrics.is_at_work() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let is_over = async {
        said(&mut end).await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        () = works => (),
        () = is_over => return,
    }
    metrics.set_failing(None);
    std::future::pending().await
}

/// Until it changes. What nobody can change any more never does.
async fn changed(wanted: &mut watch::Receiver<Sources>) {
    if wanted.changed().await.is_err() {
        std::future::pending::<()>().await;
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
    use super::*;
    use crate::mapping::{Mapping, Preset};

    /// Longer than anything here takes.
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Sources whose database is nowhere.
    fn sources(names: &[&str]) -> Sources {
        let broker: client::Url = "amqp://127.0.0.1:1".parse().expect("a URL");
        let mapping = Mapping::preset(Preset::OutboxMessages);
        let config = Config::new("postgres://u@127.0.0.1:1/d", broker, mapping);
        names.iter().map(|name| ((*name).to_owned(), config.clone())).collect()
    }

    async fn until(mut is_so: impl FnMut() -> bool) {
        let looked = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, looked).await.expect("it comes to that");
    }

    #[tokio::test]
    async fn sources_that_fail_say_so_are_forgotten_when_they_are_removed_and_end_when_told() {
        let (sender, wanted) = watch::channel(sources(&["a", "b"]));
        let (stop, stopped) = watch::channel(false);
        let board = Board::default();
        let running = tokio::spawn(run_sources(wanted, board.clone(), Pauses::default(), stopped));
        let problem = || board.total().problem.unwrap_or_default();
        until(|| problem().contains("a: database: ") && problem().contains("b: database: ")).await;
        sender.send_replace(sources(&["b", "c"]));
        until(|| problem().contains("c: database: ") && !problem().contains("a: ")).await;
        assert!(problem().contains("b: database: "), "{}", problem());
        assert!(!board.pauses().borrow().contains_key("a"));
        stop.send_replace(true);
        tokio::time::timeout(TIMEOUT, running).await.expect("it ends").expect("it is no bug");
    }
}
