//! Redis lists, crash-safe.
//!
//! A job is one element: an envelope, or any other bytes ([`crate::source::redis`]). A fetch moves elements to the list
//! `NAME:taken:WORKER` in the same step, so that a worker that dies leaves them there. Workers give a sign of life in
//! `NAME:workers` each quarter of `lease`; what a worker holds that gave none for a whole one, any other puts back at the
//! head of the queue. So long jobs that live are never taken away. A worker that was only away finds out, tells that
//! its jobs are lost, and settles none of them: an element is settled only while it lies in the worker's own list.
//!
//! Settlements are one script per batch, all or nothing, publishes and delayed or dead copies among them; a batch whose
//! answer was lost is not carried out twice. What is returned goes back to the head of the queue. An element that was in
//! the hands of more than [`DELIVERIES_MAX`] workers that died is dead: it may end its worker.
//!
//! Where the answer to a fetch was lost with its connection, what it had moved is put back once there is another
//! connection.
//!
//! An element without an id gets one when it is taken: it keeps it over its attempts, but not over a worker's death.
//! Safety against power cuts needs `appendonly yes` and `appendfsync always`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Script, Value};
use tokio::sync::{Mutex, RwLock};

use super::backoff::chance;
use super::driver::{self, Batch, Pace, Queue, Renewal, Taken, Upkept, Verdict};
use super::redis::{
    Lines, Side, WAIT, bytes, failure, list, number, strange, text, warn_of_durability, worker_name,
};
use super::redis_stream::{move_due, verdicts};
use super::{BoxFuture, Link, Source};
use crate::error::Error;
use crate::job::{Message, Receipt};
use crate::limits::{DELIVERIES_MAX, REDIS_MOVE_MAX};
use crate::settlement::{Cause, Settled, Settlement};
use crate::source::envelope::{self, Envelope};
use crate::source::ledger::Work;
use crate::source::redis::operations::{self, Element, Operations};
use crate::source::redis::{Keys, scripts};

pub use super::redis::Settings;

/// The lines: settlements, upkeep, then two per fetcher: one that takes, one that waits.
const SETTLING: usize = 0;
const UPKEEP: usize = 1;
const FETCHING: usize = 2;

/// A list as a source.
#[derive(Debug)]
pub struct RedisList {
    queue: Arc<List>,
    pace: Pace,
}

impl RedisList {
    /// A source of a list's jobs.
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
        Ok(Self { queue: Arc::new(List::new(settings)?), pace })
    }
}

impl Source for RedisList {
    fn run(self: Box<Self>, link: Link) -> BoxFuture<Result<(), Error>> {
        Box::pin(driver::run(self.queue, self.pace, link))
    }
}

#[derive(Debug)]
struct List {
    keys: Keys,
    worker: String,
    lease: Duration,
    side: Side,
    lines: Lines,
    settle: Script,
    take: Script,
    alive: Script,
    move_due: Script,
    leave: Script,
    put_back: Script,
    upkeep: Mutex<UpkeepState>,
    /// The elements in hand, and how often each.
    known: std::sync::Mutex<BTreeMap<Bytes, usize>>,
    /// Read by fetches that are under way.
    fetches: RwLock<()>,
    /// A fetch failed: it may have moved what nobody knows of.
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct UpkeepState {
    alive_at: Instant,
    was_warned: bool,
}

impl List {
    fn new(settings: Settings) -> Result<Self, Error> {
        let worker = worker_name();
        Ok(Self {
            keys: Keys::new(&settings.queue, &worker),
            lines: Lines::new(settings.server().client()?, FETCHING + 2 * settings.fetchers),
            worker,
            lease: settings.lease.0,
            side: settings.take_from,
            settle: Script::new(scripts::SETTLE_LIST),
            take: Script::new(scripts::TAKE),
            alive: Script::new(scripts::ALIVE),
            move_due: Script::new(scripts::MOVE_DUE),
            leave: Script::new(scripts::LEAVE),
            put_back: Script::new(scripts::PUT_BACK),
            known: std::sync::Mutex::default(),
            fetches: RwLock::new(()),
            has_failed: AtomicBool::new(false),
            upkeep: Mutex::new(UpkeepState { alive_at: Instant::now(), was_warned: false }),
        })
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} list {}", self.keys.queue)
    }

    /// Gives a sign of life. Whether this worker's own lease had run out.
    async fn alive(&self, is_open: bool) -> Result<bool, Error> {
        let doing = self.doing("giving a sign of life at");
        let args = [
            self.worker.clone(),
            self.lease.as_millis().to_string(),
            self.side.word().to_owned(),
            REDIS_MOVE_MAX.to_string(),
            DELIVERIES_MAX.to_string(),
            self.keys.taken_prefix.clone(),
            if is_open { "open" } else { "" }.to_owned(),
        ];
        let args = args.map(Bytes::from);
        let Keys { queue, dead, workers, deliveries, .. } = &self.keys;
        let keys = [queue.as_str(), dead, workers, deliveries];
        let answer = self.lines.run(UPKEEP, &self.alive, &keys, &args).await;
        let answer = answer.map_err(|error| failure(&doing, &error))?;
        let seen = answer.clone();
        let numbers: Vec<i64> =
            list(answer).unwrap_or_default().iter().filter_map(number).collect();
        let [has_lapsed, back, died] = numbers[..] else { return Err(strange(&doing, &seen)) };
        if has_lapsed == 1 || back > 0 || died > 0 {
            let list = &self.keys.queue;
            tracing::warn!(list, has_lapsed, back, died, "jobs of silent workers are back or dead");
        }
        if has_lapsed == 1 {
            self.known(BTreeMap::clear);
        }
        Ok(has_lapsed == 1)
    }

    fn known<T>(&self, act: impl FnOnce(&mut BTreeMap<Bytes, usize>) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn forget(&self, element: &Bytes) {
        self.known(|known| match known.get_mut(element) {
            Some(1) => {
                known.remove(element);
            }
            Some(count) => *count -= 1,
            None => {}
        });
    }

    /// Puts back what a fetch has moved whose answer was lost.
    async fn put_back_unknown(&self) -> Result<(), Error> {
        let doing = self.doing("putting elements back into");
        let _no_fetch = self.fetches.write().await;
        let mut command = redis::cmd("LRANGE");
        command.arg(&self.keys.taken).arg(0).arg(-1);
        let taken = self.lines.ask(UPKEEP, &command).await;
        let taken = list(taken.map_err(|error| failure(&doing, &error))?).unwrap_or_default();
        let mut known = self.known(|known| known.clone());
        let mut args = vec![Bytes::from_static(self.side.word().as_bytes())];
        for element in taken.into_iter().filter_map(bytes) {
            match known.get_mut(&element) {
                Some(count) if *count > 0 => *count -= 1,
                Some(_) | None => args.push(element),
            }
        }
        // The oldest goes back last: it is the first to be taken again.
        args[1..].reverse();
        let keys = [self.keys.queue.as_str(), &self.keys.taken];
        let back = self.lines.run(UPKEEP, &self.put_back, &keys, &args).await;
        back.map_err(|error| failure(&doing, &error))?;
        self.has_failed.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn move_elements(
        &self,
        fetcher: usize,
        max: usize,
    ) -> Result<Vec<Taken<Element>>, Error> {
        let doing = self.doing("fetching from");
        let args = [self.worker.clone(), max.to_string(), self.side.word().to_owned()];
        let args = args.map(Bytes::from);
        let Keys { queue, taken, workers, .. } = &self.keys;
        let keys = [queue.as_str(), taken, workers];
        let line = FETCHING + 2 * fetcher;
        let answer = self.lines.run(line, &self.take, &keys, &args).await;
        let elements = match answer.map_err(|error| failure(&doing, &error))? {
            Value::Array(elements) => elements,
            Value::Nil => return Err(Error::away(doing, "Redis has forgotten this worker")),
            other => return Err(strange(&doing, &other)),
        };
        if !elements.is_empty() {
            return self.jobs(elements).await;
        }
        let mut command = redis::cmd("BLMOVE");
        command.arg(queue).arg(taken).arg(self.side.word()).arg("RIGHT").arg(WAIT.as_secs());
        let answer = self.lines.ask(line + 1, &command).await;
        match answer.map_err(|error| failure(&doing, &error))? {
            Value::Nil => Ok(Vec::new()),
            element => self.jobs(vec![element]).await,
        }
    }

    /// Jobs of elements. One that is no job goes to the dead at once.
    async fn jobs(&self, elements: Vec<Value>) -> Result<Vec<Taken<Element>>, Error> {
        let mut taken = Vec::with_capacity(elements.len());
        let mut malformed = Vec::new();
        for value in elements {
            let Some(element) = bytes(value) else { continue };
            match envelope::read(&element) {
                Ok(mut envelope) => {
                    if envelope.message.id.is_empty() {
                        envelope.message.id = format!("{:016x}{:016x}", chance(), chance());
                    }
                    let handle = Element { element, envelope: Arc::new(envelope.clone()) };
                    taken.push(Taken { handle, lease_until: None, envelope });
                }
                Err(why) => malformed.push((element, why)),
            }
        }
        if !malformed.is_empty() {
            self.bury(malformed).await?;
        }
        Ok(taken)
    }

    async fn bury(&self, elements: Vec<(Bytes, String)>) -> Result<(), Error> {
        let count = elements.len();
        let mut operations = Operations::default();
        for (place, (element, why)) in elements.into_iter().enumerate() {
            tracing::warn!(list = self.keys.queue, why, "an element is no job; it is dead");
            let message = Message { body: element.clone(), attempt: 1, ..Message::default() };
            let envelope = Arc::new(Envelope { message, ..Envelope::default() });
            let settled = Settled {
                receipt: Receipt(0),
                settlement: Settlement::Dead { cause: Cause::Malformed, why },
                publishes: Vec::new(),
            };
            let work = Work::of(Element { element, envelope }, settled);
            operations::add_list(&mut operations, place, &work, "");
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
        let mut args =
            vec![Bytes::from_static(self.side.word().as_bytes()), Bytes::from(number.to_string())];
        args.extend(operations);
        let Keys { queue, delayed, dead, taken, deliveries, .. } = &self.keys;
        let keys = [queue.as_str(), delayed, dead, answer, taken, deliveries];
        let answer = self.lines.run(line, &self.settle, &keys, &args).await;
        let letters = text(answer.map_err(|error| failure(&doing, &error))?).unwrap_or_default();
        verdicts(&letters, &places, count).ok_or_else(|| Error::away(doing, letters))
    }
}

impl Queue for List {
    type Handle = Element;

    fn name(&self) -> &str {
        &self.keys.queue
    }

    async fn open(&self) -> Result<(), Error> {
        self.alive(true).await?;
        if self.has_failed.load(Ordering::Relaxed) {
            self.put_back_unknown().await?;
        }
        let mut state = self.upkeep.lock().await;
        state.alive_at = Instant::now();
        if !std::mem::replace(&mut state.was_warned, true) {
            warn_of_durability(&self.lines, &self.keys.queue).await;
        }
        Ok(())
    }

    async fn fetch(&self, fetcher: usize, max: usize) -> Result<Vec<Taken<Element>>, Error> {
        let _fetch = self.fetches.read().await;
        let taken = self.move_elements(fetcher, max).await;
        match &taken {
            Ok(taken) => self.known(|known| {
                for taken in taken {
                    *known.entry(taken.handle.element.clone()).or_default() += 1;
                }
            }),
            Err(_) => self.has_failed.store(true, Ordering::Relaxed),
        }
        taken
    }

    async fn settle(&self, _: usize, batch: &mut Batch<Element>) -> Result<Vec<Verdict>, Error> {
        let mut operations = Operations::default();
        for (place, entry) in batch.works.iter().enumerate() {
            if !entry.is_over {
                let nonce = format!("{}-{}-{place}", self.worker, batch.number);
                operations::add_list(&mut operations, place, &entry.work, &nonce);
            }
        }
        let (answer, count) = (&self.keys.answer, batch.works.len());
        let verdicts = self.send(SETTLING, answer, batch.number, operations, count).await?;
        for entry in &batch.works {
            self.forget(&entry.work.handle.element);
        }
        Ok(verdicts)
    }

    /// Leases of lists are made longer by signs of life: nobody asks for it.
    async fn renew(&self, jobs: Vec<(Receipt, Element)>) -> Result<Vec<Renewal<Element>>, Error> {
        Ok(jobs.into_iter().map(|(receipt, _)| Renewal::Unknown { receipt }).collect())
    }

    async fn upkeep(&self) -> Result<Upkept, Error> {
        let mut state = self.upkeep.lock().await;
        let now = Instant::now();
        let mut is_all_lost = false;
        if state.alive_at <= now {
            is_all_lost = self.alive(false).await?;
            state.alive_at = now + (self.lease / 4).min(Duration::from_secs(15));
        }
        drop(state);
        let how = self.side.word();
        let next = move_due(&self.lines, UPKEEP, &self.move_due, &self.keys, how).await;
        // What was found out about this worker is not forgotten because the next call failed.
        let next = match next {
            Err(_) if is_all_lost => Duration::ZERO,
            other => other?,
        };
        Ok(Upkept { is_all_lost, next })
    }

    async fn close(&self) {
        let args = [self.worker.clone(), self.side.word().to_owned()].map(Bytes::from);
        let Keys { queue, taken, workers, answer, .. } = &self.keys;
        let keys = [queue.as_str(), taken, workers, answer];
        // What stays is put back by another worker, a lease later.
        let leaving = self.lines.run(UPKEEP, &self.leave, &keys, &args);
        let _ = tokio::time::timeout(Duration::from_secs(2), leaving).await;
    }
}
