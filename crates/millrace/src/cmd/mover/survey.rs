//! The brokers before, beside and after the move: what there is, what is made for it, what is taken away again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use client::{Connection, Error, Options, QueueDeclared, Url};
use serde_json::json;

use super::Args;
use super::counts::Counted;
use super::list::Wanted;
use super::place::Place;
use crate::cmd::terminal;
use crate::table::clean;

/// How often it is looked what is left at the source.
const LOOK: Duration = Duration::from_secs(2);
const NOT_FOUND: u16 = 404;

/// A queue as both brokers have it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) wanted: Wanted,
    /// Messages ready at the source.
    pub(super) ready: u32,
    source: Result<QueueDeclared, Error>,
    target: Result<QueueDeclared, Error>,
}

impl Found {
    fn is_missing_at_target(&self) -> bool {
        matches!(&self.target, Err(error) if error.code() == Some(NOT_FOUND))
    }

    /// Why it cannot be moved.
    pub(super) fn problem(&self, args: &Args) -> Option<String> {
        let name = &self.wanted.name;
        match (&self.source, &self.target) {
            (Err(error), _) => Some(format!("{name}: at the source: {error}")),
            (Ok(_), Ok(_)) => None,
            (Ok(_), Err(_)) if args.declare && self.is_missing_at_target() => None,
            (Ok(_), Err(error)) if self.is_missing_at_target() => Some(format!(
                "{name}: the target has no such queue ({error}): import the definitions there, or give --declare"
            )),
            (Ok(_), Err(error)) => Some(format!("{name}: at the target: {error}")),
        }
    }
}

/// Looks at all queues at both brokers.
///
/// # Errors
/// A broker cannot be reached, or does not let us in: that is told at once.
pub(super) async fn look(
    args: &Args,
    options: &Options,
    queues: Vec<Wanted>,
) -> Result<Vec<Found>, String> {
    let (mut source, mut target) = (
        open(&args.from, options).await.map_err(|error| format!("at the source: {error}"))?,
        open(&args.to, options).await.map_err(|error| format!("at the target: {error}"))?,
    );
    let mut found = Vec::with_capacity(queues.len());
    for wanted in queues {
        let at_source = asked(source.look_up_queue(&wanted.name).await, "source")?;
        let at_target = asked(target.look_up_queue(&wanted.name).await, "target")?;
        let ready = at_source.as_ref().map_or(0, |queue| queue.message_count);
        found.push(Found { wanted, ready, source: at_source, target: at_target });
    }
    close(source).await;
    close(target).await;
    Ok(found)
}

/// A refusal is an answer; the loss of the connection is not.
fn asked(
    answer: Result<QueueDeclared, Error>,
    side: &str,
) -> Result<Result<QueueDeclared, Error>, String> {
    match answer {
        Ok(_) | Err(Error::ChannelClosed { .. }) => Ok(answer),
        Err(error) => Err(format!("at the {side}: {error}")),
    }
}

/// Says what would be moved.
pub(super) fn tell(args: &Args, found: &[Found]) {
    for queue in found {
        let problem = queue.problem(args);
        let (name, ready) = (&queue.wanted.name, queue.ready);
        let there = queue.target.as_ref().map(|queue| queue.message_count);
        let consumers = queue.source.as_ref().map(|queue| queue.consumer_count);
        if args.json {
            let line = json!({
                "event": "would_move",
                "queue": name,
                "ready": ready,
                "consumers": consumers.ok(),
                "at_target": there.as_ref().ok(),
                "declares": queue.is_missing_at_target() && args.declare,
                "problem": problem,
            });
            terminal::say(&line.to_string());
            continue;
        }
        let line = match (problem, there) {
            (Some(problem), _) => format!("{problem} (would not be moved)"),
            (None, Ok(there)) => format!(
                "{name}: {ready} messages are ready at the source, which has {} consumers; the target has {there}",
                consumers.unwrap_or(0)
            ),
            (None, Err(_)) => format!(
                "{name}: {ready} messages are ready at the source, which has {} consumers; the target has no such \
                 queue, it would be declared",
                consumers.unwrap_or(0)
            ),
        };
        terminal::say(&clean(&line));
    }
    if !args.json {
        let ready: u64 = found.iter().map(|queue| u64::from(queue.ready)).sum();
        terminal::remark(&format!(
            "{ready} messages in {} queues; nothing was changed",
            found.len()
        ));
    }
}

/// Makes at the target what the move needs.
///
/// # Errors
/// In words: the target refuses.
pub(super) async fn prepare(args: &Args, options: &Options, found: &[Found]) -> Result<(), String> {
    let mut target =
        open(&args.to, options).await.map_err(|error| format!("at the target: {error}"))?;
    for queue in found {
        let name = &queue.wanted.name;
        let refused = |error: Error| match error.code() {
            Some(403) => format!(
                "{name}: at the target: {error} (to declare an exchange and bind it needs the permissions configure, \
                 read and write; --default-exchange needs write only)"
            ),
            Some(_) | None => format!("{name}: at the target: {error}"),
        };
        if queue.is_missing_at_target() {
            target.declare_queue(&queue.wanted).await.map_err(refused)?;
        }
        let place = Place::new(name, &args.from, args.default_exchange);
        place.prepare(&mut target).await.map_err(refused)?;
    }
    close(target).await;
    Ok(())
}

/// Takes away at the target what only the move needed. What stays does no harm: the next run uses it.
pub(super) async fn clear(args: &Args, options: &Options, found: &[Found]) {
    if args.default_exchange {
        return;
    }
    let Ok(mut target) = open(&args.to, options).await else {
        tracing::warn!(
            "the target is away: the exchanges millrace.move.* stay there until the next run"
        );
        return;
    };
    for queue in found {
        let place = Place::new(&queue.wanted.name, &args.from, args.default_exchange);
        match place.remove(&mut target).await {
            Ok(()) | Err(Error::ChannelClosed { code: NOT_FOUND, .. }) => (),
            Err(error) => {
                tracing::warn!(queue = queue.wanted.name, %error, "the exchange of the move stays at the target");
            }
        }
    }
    close(target).await;
}

/// Looks again and again how much is left at the source, for those who watch.
pub(super) async fn watch(from: Url, options: Options, queues: Arc<[Counted]>) {
    loop {
        tokio::time::sleep(LOOK).await;
        // Whoever moves the queues finds out, and tells, what is wrong with a connection.
        let Ok(mut source) = open(&from, &options).await else { continue };
        loop {
            let looked = look_once(&mut source, &queues).await;
            tokio::time::sleep(LOOK).await;
            if looked.is_err() {
                break;
            }
        }
    }
}

async fn look_once(source: &mut Connection, queues: &[Counted]) -> Result<(), Error> {
    for (name, counts) in queues {
        let has_ended = || counts.ended.load(Relaxed) == 1;
        if !has_ended() {
            let ready = source.look_up_queue(name).await?.message_count;
            counts.ready.store(if has_ended() { 0 } else { ready.into() }, Relaxed);
        }
    }
    Ok(())
}

async fn open(url: &Url, options: &Options) -> Result<Connection, Error> {
    Connection::open(url, &options.clone().without_retry()).await
}

/// Nothing depends on it.
async fn close(connection: Connection) {
    let _ = connection.close().await;
}
