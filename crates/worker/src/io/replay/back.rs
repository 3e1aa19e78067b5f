//! Dead jobs go back to their queue.

use std::time::{Duration, Instant};

use amqp::{Properties, ValueRef};
use client::{Address, Connection, Delivery, Outcome, Publisher, Url};

use super::{DeadJob, Replay, Replayed, SHOWN_MAX, connect, look_up, resting, url_of};
use crate::error::Error;
use crate::io::source::amqp::error;
use crate::source::amqp::envelope::{self, Change, copy, name};
use crate::source::amqp::settings::dead_queue_of;

/// Jobs that are published before their confirms are waited for.
const BATCH_MAX: usize = 256;

/// What a dead job's headers say of its death: a job that goes back has none of it.
const OF_ITS_DEATH: [Change<'static>; 7] = [
    Change::Without(name::DEAD_CAUSE),
    Change::Without(name::DEAD_WHY),
    Change::Without(name::DIED_MS),
    Change::Without(name::QUEUE),
    Change::Without(name::LAST_WHY),
    Change::Without(name::DELIVERIES),
    Change::Without(name::NOT_BEFORE),
];

/// Puts dead jobs back into their queue, with their first attempt before them.
///
/// Looks at each dead job that is there when it begins, once. Those that are not wanted stay where they are, but for
/// their place: other readers of the queue do not see them meanwhile. `url` is an `amqp://` or `amqps://` URL.
///
/// # Errors
/// The URL is none, the broker cannot be reached, or a queue is not there. What was confirmed until then is back.
pub(super) async fn replay(url: &str, what: &Replay) -> Result<Replayed, Error> {
    let url = url_of(url)?;
    let mut connection = connect(&url, "replay").await?;
    look_up(&mut connection, &what.queue).await?;
    let dead_queue = what.dead_queue.clone().unwrap_or_else(|| dead_queue_of(&what.queue));
    let count = look_up(&mut connection, &dead_queue).await?;
    let publisher = publisher(&url, what).await?;
    let mut run = Run { what, dead_queue, connection, publisher, done: Replayed::default() };
    run.all(u64::from(count)).await?;
    let Run { connection, done, .. } = run;
    // What was looked at and left goes back with this.
    let closed = connection.close().await;
    closed.map_err(|failure| error("closing the connection".into(), &failure))?;
    Ok(done)
}

async fn publisher(url: &Url, what: &Replay) -> Result<Option<Publisher>, Error> {
    if what.is_dry_run {
        return Ok(None);
    }
    let publisher = Publisher::open(url, &resting("replay"), BATCH_MAX as u32).await;
    publisher.map(Some).map_err(|failure| error(format!("connecting to {url}"), &failure))
}

struct Run<'a> {
    what: &'a Replay,
    dead_queue: String,
    connection: Connection,
    /// None: a dry run.
    publisher: Option<Publisher>,
    done: Replayed,
}

impl Run<'_> {
    async fn all(&mut self, count: u64) -> Result<(), Error> {
        let start = Instant::now();
        let limit = self.what.limit.unwrap_or(u64::MAX);
        while self.done.seen < count && self.done.replayed < limit {
            let left = usize::try_from(limit - self.done.replayed).unwrap_or(usize::MAX);
            let most = if self.what.rate.is_some() { 1 } else { BATCH_MAX.min(left) };
            let wanted = self.some(count, most).await?;
            if wanted.is_empty() {
                return Ok(());
            }
            self.put_back(wanted).await?;
            if let Some(rate) = self.what.rate.filter(|rate| *rate > 0.0) {
                let after = Duration::try_from_secs_f64(self.done.replayed as f64 / rate);
                tokio::time::sleep_until((start + after.unwrap_or_default()).into()).await;
            }
        }
        Ok(())
    }

    /// The next jobs that are wanted.
    async fn some(&mut self, count: u64, most: usize) -> Result<Vec<Delivery>, Error> {
        let mut wanted = Vec::new();
        while wanted.len() < most && self.done.seen < count {
            let got = self.connection.get(&self.dead_queue, false).await;
            let got = got.map_err(|failure| {
                error(format!("reading the queue `{}`", self.dead_queue), &failure)
            })?;
            let Some(delivery) = got else { break };
            self.done.seen += 1;
            if let Some(job) = wanted_job(self.what, &delivery) {
                if self.done.jobs.len() < SHOWN_MAX {
                    self.done.jobs.push(job);
                }
                wanted.push(delivery);
            }
        }
        Ok(wanted)
    }

    async fn put_back(&mut self, jobs: Vec<Delivery>) -> Result<(), Error> {
        let failed = |failure: client::Error| error("publishing dead jobs again".into(), &failure);
        if let Some(publisher) = &mut self.publisher {
            for job in &jobs {
                let raw = again(job);
                let properties = Properties::decode(&raw).expect("it was just written");
                let to = Address::queue(&self.what.queue);
                publisher.publish(to, &properties, &job.body).await.map_err(failed)?;
            }
            let settled = publisher.settle_all().await.map_err(failed)?;
            if !settled.is_clean() {
                let why = settled.reason.unwrap_or_else(|| "basic.nack".into());
                let text = format!(
                    "the queue `{}` did not take {} dead jobs ({why}); they stay in `{}`, and some may be in both",
                    self.what.queue,
                    settled.refused + settled.returned,
                    self.dead_queue
                );
                return Err(Error::setup(text));
            }
            for job in &jobs {
                self.connection.settle(job.tag, Outcome::Done).await.map_err(failed)?;
            }
        }
        self.done.replayed += jobs.len() as u64;
        Ok(())
    }
}

/// The properties with which a dead job goes back.
fn again(job: &Delivery) -> bytes::Bytes {
    let properties = job.properties().unwrap_or_default();
    let id = envelope::id(&properties, &job.body);
    let died = number(&properties, name::DIED_MS).unwrap_or_default();
    let once = format!("{id}/replay/{died}/{}", job.tag.number());
    let mut changes = OF_ITS_DEATH.to_vec();
    changes.push(Change::Number(name::ATTEMPT, 1));
    changes.push(Change::Text(name::DEDUPLICATION, &once));
    copy(&properties, &id, &changes)
}

/// What is known of a dead job, if it is wanted.
fn wanted_job(what: &Replay, delivery: &Delivery) -> Option<DeadJob> {
    let properties = delivery.properties().unwrap_or_default();
    let text = |name| text(&properties, name).unwrap_or_default();
    let job = DeadJob {
        id: envelope::id(&properties, &delivery.body),
        kind: envelope::kind(&properties).unwrap_or_default().to_owned(),
        cause: text(name::DEAD_CAUSE),
        why: text(name::DEAD_WHY),
        attempt: envelope::attempt(&properties),
        died_ms: number(&properties, name::DIED_MS),
    };
    let is = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    let from = text(name::QUEUE);
    let is_of_queue = from.is_empty() || from == what.queue;
    let is_wanted = is_of_queue
        && is(&what.cause, &job.cause)
        && is(&what.kind, &job.kind)
        && is(&what.id, &job.id);
    is_wanted.then_some(job)
}

fn text(properties: &Properties<'_>, name: &str) -> Option<String> {
    match properties.headers?.find(name)? {
        ValueRef::LongStr(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

fn number(properties: &Properties<'_>, name: &str) -> Option<u64> {
    match properties.headers?.find(name)? {
        ValueRef::I64(number) => u64::try_from(number).ok(),
        _ => None,
    }
}
