//! Redis streams, with a consumer group.
//!
//! A job is one entry (its fields: [`crate::source::redis`]). Its lease is the time that it has been idle: XREADGROUP
//! begins it, a renewal begins it again, and after `lease` any worker takes the entry over. So long jobs that live are
//! never taken away, and those of a worker that died come back after one lease.
//!
//! Settlements are one script per batch, all or nothing: what is done is acknowledged and deleted; what comes later is
//! copied to `NAME:delayed` with its new attempt, what is dead to `NAME:dead`; what is published goes in the same
//! script. A settlement counts only while the entry is this worker's, and a batch whose answer was lost is not carried
//! out twice. Streams have no way back: what is returned is added again at the end, uncharged, and loses its place.
//!
//! An entry that came out [`DELIVERIES_MAX`] times without a settlement is dead: it may end its worker. Safety against
//! power cuts needs `appendonly yes` and `appendfsync always`; without, Redis may forget its last second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Script, Value};
use tokio::sync::Mutex;

use super::backoff::chance;
use super::driver::{self, Batch, Pace, Queue, Renewal, Taken, Upkept, Verdict};
use super::redis::{
    Lines, MOVE_EVERY, WAIT, entry, failure, list, number, strange, text, warn_of_durability,
    worker_name,
};
use super::{BoxFuture, Link, Source};
use crate::error::Error;
use crate::job::Receipt;
use crate::limits::{DELIVERIES_MAX, REDIS_MOVE_MAX};
use crate::settlement::{Cause, Settled, Settlement};
use crate::source::ledger::Work;
use crate::source::redis::operations::{self, Entry, Operations};
use crate::source::redis::{Keys, entry_ms, fields, scripts};

pub use super::redis::Settings;

/// Consumers of other workers that have been idle for so long, and hold nothing, are forgotten.
const CONSUMER_IDLE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The lines: settlements, upkeep, renewals, then one per fetcher.
const SETTLING: usize = 0;
const UPKEEP: usize = 1;
const RENEWING: usize = 2;
const FETCHING: usize = 3;

/// A stream as a source.
#[derive(Debug)]
pub struct RedisStream {
    queue: Arc<Stream>,
    pace: Pace,
}

impl RedisStream {
    /// A source of a stream's jobs.
    ///
    /// # Errors
    /// The settings are wrong.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let pace = Pace {
            fetchers: settings.fetchers,
            fetch_max: settings.batch,
            settlers: 1,
            settle_max: settings.batch,
            settle_after: settings.settle_after.0,
            is_synchronous: false,
        };
        Ok(Self { queue: Arc::new(Stream::new(settings)?), pace })
    }
}

impl Source for RedisStream {
    fn run(self: Box<Self>, link: Link) -> BoxFuture<Result<(), Error>> {
        Box::pin(driver::run(self.queue, self.pace, link))
    }
}

#[derive(Debug)]
struct Stream {
    keys: Keys,
    group: String,
    consumer: String,
    lease: Duration,
    lines: Lines,
    settle: Script,
    renew: Script,
    reclaim: Script,
    move_due: Script,
    forget: Script,
    upkeep: Mutex<UpkeepState>,
}

/// Where the look for leases that have run out goes on, and when.
#[derive(Debug)]
struct UpkeepState {
    cursor: String,
    reclaim_at: Instant,
    was_warned: bool,
}

impl Stream {
    fn new(settings: Settings) -> Result<Self, Error> {
        let consumer = worker_name();
        let state =
            UpkeepState { cursor: "0-0".into(), reclaim_at: Instant::now(), was_warned: false };
        Ok(Self {
            keys: Keys::new(&settings.queue, &consumer),
            lines: Lines::new(settings.server().client()?, FETCHING + settings.fetchers),
            group: settings.group,
            consumer,
            lease: settings.lease.0,
            settle: Script::new(scripts::SETTLE_STREAM),
            renew: Script::new(scripts::RENEW),
            reclaim: Script::new(scripts::RECLAIM),
            move_due: Script::new(scripts::MOVE_DUE),
            forget: Script::new(scripts::FORGET),
            upkeep: Mutex::new(state),
        })
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} stream {}", self.keys.queue)
    }

    fn owner(&self) -> [Bytes; 2] {
        [Bytes::from(self.group.clone()), Bytes::from(self.consumer.clone())]
    }

    /// Jobs of entries. One that is no job goes to the dead at once.
    async fn jobs(&self, entries: Vec<Value>, until: Instant) -> Result<Vec<Taken<Entry>>, Error> {
        let mut taken = Vec::with_capacity(entries.len());
        let mut malformed = Vec::new();
        for value in entries {
            let seen = value.clone();
            let Some((id, values)) = entry(value) else {
                return Err(strange(&self.doing("fetching from"), &seen));
            };
            let published = entry_ms(&id);
            match fields::read(values) {
                Ok(mut envelope) => {
                    envelope.published_ms = envelope.published_ms.or(published);
                    if envelope.message.id.is_empty() {
                        envelope.message.id = format!("{}/{id}", self.keys.queue);
                    }
                    let job_id = envelope.message.id.clone();
                    let handle = Entry { id, job_id, published_ms: envelope.published_ms };
                    taken.push(Taken { handle, lease_until: Some(until), envelope });
                }
                Err(why) => malformed.push((id, why)),
            }
        }
        if !malformed.is_empty() {
            self.bury(malformed).await?;
        }
        Ok(taken)
    }

    async fn bury(&self, entries: Vec<(String, String)>) -> Result<(), Error> {
        let count = entries.len();
        let mut operations = Operations::default();
        for (place, (id, why)) in entries.into_iter().enumerate() {
            tracing::warn!(stream = self.keys.queue, id, why, "an entry is no job; it is dead");
            let job_id = format!("{}/{id}", self.keys.queue);
            let published_ms = entry_ms(&id);
            let settled = Settled {
                receipt: Receipt(0),
                settlement: Settlement::Dead { cause: Cause::Malformed, why },
                publishes: Vec::new(),
            };
            let work = Work::of(Entry { id, job_id, published_ms }, settled);
            operations::add_stream(&mut operations, place, &work, "");
        }
        let answer = format!("{}:bury", self.keys.answer);
        self.send(UPKEEP, &answer, chance(), operations, count).await.map(|_| ())
    }

    async fn send(
        &self,
        line: usize,
        answer: &str,
        number: u64,
        operations: Operations,
        count: usize,
    ) -> Result<Vec<Verdict>, Error> {
        let doing = self.doing("settling jobs of");
        let (operations, places) = operations.finish();
        let mut args = self.owner().to_vec();
        args.push(Bytes::from(number.to_string()));
        args.extend(operations);
        let Keys { queue, delayed, dead, .. } = &self.keys;
        let keys = [queue.as_str(), delayed, dead, answer];
        let answer = self.lines.run(line, &self.settle, &keys, &args).await;
        let letters = text(answer.map_err(|error| failure(&doing, &error))?).unwrap_or_default();
        verdicts(&letters, &places, count).ok_or_else(|| Error::away(doing, letters))
    }

    /// Takes over what nobody has renewed, when it is time to look.
    async fn take_over(&self, line: usize, room: usize) -> Result<Vec<Taken<Entry>>, Error> {
        let doing = self.doing("taking over jobs of");
        let mut state = self.upkeep.lock().await;
        let now = Instant::now();
        if state.reclaim_at > now {
            return Ok(Vec::new());
        }
        let mut args = self.owner().to_vec();
        let numbers = [self.lease.as_millis().to_string(), state.cursor.clone()];
        args.extend(numbers.into_iter().map(Bytes::from));
        args.push(Bytes::from(room.min(REDIS_MOVE_MAX).to_string()));
        args.push(Bytes::from(DELIVERIES_MAX.to_string()));
        let keys = [self.keys.queue.as_str(), &self.keys.dead];
        let answer = self.lines.run(line, &self.reclaim, &keys, &args).await;
        let answer = answer.map_err(|error| failure(&doing, &error))?;
        let seen = answer.clone();
        let mut parts = list(answer).unwrap_or_default().into_iter();
        let (Some(cursor), Some(entries), Some(died)) = (
            parts.next().and_then(text),
            parts.next().and_then(list),
            parts.next().as_ref().and_then(number),
        ) else {
            return Err(strange(&doing, &seen));
        };
        if died > 0 {
            tracing::warn!(
                stream = self.keys.queue,
                died,
                "jobs that may end their worker are dead"
            );
        }
        // Elsewhere it goes on with the next fetch.
        if cursor == "0-0" {
            state.reclaim_at = now + (self.lease / 4).min(Duration::from_secs(30));
        }
        state.cursor = cursor;
        drop(state);
        self.jobs(entries, now + self.lease).await
    }
}

/// What an answer's letters say, by place.
pub(super) fn verdicts(letters: &str, places: &[usize], count: usize) -> Option<Vec<Verdict>> {
    if letters.len() != places.len() {
        return None;
    }
    // A place that was left out is over.
    let mut verdicts = vec![Verdict::Lost; count];
    for (letter, place) in letters.chars().zip(places) {
        if letter == 's' {
            verdicts[*place] = Verdict::Settled;
        }
    }
    Some(verdicts)
}

impl Queue for Stream {
    type Handle = Entry;

    fn name(&self) -> &str {
        &self.keys.queue
    }

    async fn open(&self) -> Result<(), Error> {
        let doing = self.doing("opening");
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&self.keys.queue).arg(&self.group).arg("0").arg("MKSTREAM");
        match self.lines.ask(UPKEEP, &command).await {
            Ok(_) => {}
            Err(error) if error.code() == Some("BUSYGROUP") => {}
            Err(error) => return Err(failure(&doing, &error)),
        }
        let mut args = self.owner().to_vec();
        args.push(Bytes::from(CONSUMER_IDLE_MAX.as_millis().to_string()));
        let keys = [self.keys.queue.as_str(), &self.keys.answer];
        let forgotten = self.lines.run(UPKEEP, &self.forget, &keys, &args).await;
        forgotten.map_err(|error| failure(&doing, &error))?;
        let mut state = self.upkeep.lock().await;
        if !std::mem::replace(&mut state.was_warned, true) {
            warn_of_durability(&self.lines, &self.keys.queue).await;
        }
        Ok(())
    }

    async fn fetch(&self, fetcher: usize, max: usize) -> Result<Vec<Taken<Entry>>, Error> {
        let orphans = self.take_over(FETCHING + fetcher, max).await?;
        if !orphans.is_empty() {
            return Ok(orphans);
        }
        let doing = self.doing("fetching from");
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(max);
        command.arg("BLOCK").arg(WAIT.min(self.lease / 4).as_millis() as u64);
        command.arg("STREAMS").arg(&self.keys.queue).arg(">");
        // The lease is counted from before the call: it never ends later here than at Redis.
        let until = Instant::now() + self.lease;
        let answer = self.lines.ask(FETCHING + fetcher, &command).await;
        let answer = answer.map_err(|error| failure(&doing, &error))?;
        let entries = match answer {
            Value::Nil => return Ok(Vec::new()),
            Value::Array(streams) => streams.into_iter().next().and_then(list),
            Value::Map(streams) => streams
                .into_iter()
                .next()
                .map(|(_, entries)| Value::Array(vec![Value::Nil, entries]))
                .and_then(list),
            _ => None,
        };
        let entries = entries.and_then(|mut stream| stream.pop()).and_then(list);
        let entries = entries.ok_or_else(|| Error::away(doing, "Redis answered with no stream"))?;
        self.jobs(entries, until).await
    }

    async fn settle(&self, _: usize, batch: &mut Batch<Entry>) -> Result<Vec<Verdict>, Error> {
        let mut operations = Operations::default();
        for (place, entry) in batch.works.iter().enumerate() {
            if !entry.is_over {
                let nonce = format!("{}-{}-{place}", self.consumer, batch.number);
                operations::add_stream(&mut operations, place, &entry.work, &nonce);
            }
        }
        let answer = &self.keys.answer;
        self.send(SETTLING, answer, batch.number, operations, batch.works.len()).await
    }

    async fn renew(&self, jobs: Vec<(Receipt, Entry)>) -> Result<Vec<Renewal<Entry>>, Error> {
        let doing = self.doing("renewing leases of");
        let mut args = self.owner().to_vec();
        args.extend(jobs.iter().map(|(_, entry)| Bytes::from(entry.id.clone())));
        let until = Instant::now() + self.lease;
        let keys = [self.keys.queue.as_str()];
        let answer = self.lines.run(RENEWING, &self.renew, &keys, &args).await;
        let answer = text(answer.map_err(|error| failure(&doing, &error))?).unwrap_or_default();
        if answer.len() != jobs.len() {
            return Err(Error::away(doing, answer));
        }
        let renewal = |((receipt, handle), letter)| match letter {
            '1' => Renewal::Longer { receipt, handle, until },
            _ => Renewal::Lost { receipt },
        };
        Ok(jobs.into_iter().zip(answer.chars()).map(renewal).collect())
    }

    async fn upkeep(&self) -> Result<Upkept, Error> {
        let next = move_due(&self.lines, UPKEEP, &self.move_due, &self.keys, "stream").await?;
        Ok(Upkept { is_all_lost: false, next })
    }

    async fn close(&self) {
        let mut args = self.owner().to_vec();
        args.push(Bytes::from_static(b"-1"));
        let keys = [self.keys.queue.as_str(), &self.keys.answer];
        // A consumer that stays is forgotten by another worker, a day later.
        let forgetting = self.lines.run(UPKEEP, &self.forget, &keys, &args);
        let _ = tokio::time::timeout(Duration::from_secs(2), forgetting).await;
    }
}

/// Puts back what is due. Gives when to look again.
pub(super) async fn move_due(
    lines: &Lines,
    line: usize,
    script: &Script,
    keys: &Keys,
    how: &'static str,
) -> Result<Duration, Error> {
    let doing = format!("looking after delayed jobs of {}", keys.queue);
    let args = [Bytes::from(REDIS_MOVE_MAX.to_string()), Bytes::from_static(how.as_bytes())];
    let names = [keys.queue.as_str(), &keys.delayed, &keys.dead];
    let answer = lines.run(line, script, &names, &args).await;
    let answer = list(answer.map_err(|error| failure(&doing, &error))?).unwrap_or_default();
    let numbers: Vec<i64> = answer.iter().filter_map(number).collect();
    let next = numbers.get(1).copied().unwrap_or(-1);
    Ok(match u64::try_from(next) {
        Ok(ms) => Duration::from_millis(ms.max(1)).min(MOVE_EVERY),
        Err(_) => MOVE_EVERY,
    })
}
