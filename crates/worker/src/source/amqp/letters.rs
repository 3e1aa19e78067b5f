//! Messages that have to be safe at the broker before their jobs are let go.
//!
//! ```text
//!            add               next                    confirmed
//!   job ───────────> due ───────────────> sent ──────────────────────> the job's last one: it is let go
//!                     ^ │ its need         │ refused, returned, unsure: again after a while
//!                     │ v                  │
//!                    waiting               │ the connection is lost: again
//!                     ^                    │
//!                     └────────────────────┘
//! ```
//!
//! A *need* is what has to be there first: an exchange (publishing to one that is missing closes the channel), or a
//! queue for delays. Such a queue goes when it was not declared for long, and messages in it go with it, so a confirm
//! only counts if it came while the queue was sure to outlive the message.
//!
//! A message at which the broker closes the channel is found by sending each of those that were out alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{PublishSeq, Run};

use crate::job::Receipt;

/// How long a need counts as met.
const MET_FOR: Duration = Duration::from_secs(60);
/// A queue for delays stays so much longer than its messages, after it was declared.
pub const BUCKET_OUTLIVES: Duration = Duration::from_secs(600);
/// A confirm that comes later than this after the declaration does not count.
const CONFIRM_WITHIN: Duration = Duration::from_secs(300);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(MET_FOR.as_secs() < CONFIRM_WITHIN.as_secs());
const _: () = assert!(CONFIRM_WITHIN.as_secs() < BUCKET_OUTLIVES.as_secs());

/// A message to publish before a job is let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The job.
    pub receipt: Receipt,
    pub to: To,
    /// As on the wire.
    pub properties: Bytes,
    pub body: Bytes,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Through the default exchange.
    Queue(String),
    Exchange {
        exchange: String,
        routing_key: String,
    },
    /// It waits there, and goes on.
    Bucket(Bucket),
}

/// A queue whose messages go on after a while.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    /// Where they go then.
    pub exchange: String,
    pub routing_key: String,
    /// After so many milliseconds.
    pub ms: u64,
}

impl Bucket {
    /// The queue's name.
    pub fn queue(&self) -> String {
        let Self { exchange, routing_key, ms } = self;
        if exchange.is_empty() {
            format!("{routing_key}.retry.{ms}")
        } else {
            format!("{exchange}/{routing_key}.retry.{ms}")
        }
    }
}

/// What has to be there before a message can be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Exchange(String),
    Bucket(Bucket),
}

/// Names a letter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LetterId(u64);

/// Something that an operator should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub receipt: Receipt,
    pub to: To,
    pub why: String,
    pub failures: u32,
    pub again_in: Duration,
}

#[derive(Debug)]
struct Entry {
    letter: Letter,
    failures: u32,
    /// It may be one that closes the channel.
    is_suspect: bool,
    /// A confirm after this does not count.
    confirm_by: Option<Instant>,
}

/// All that are on their way.
#[derive(Debug, Default)]
pub struct Letters {
    last: u64,
    entries: BTreeMap<LetterId, Entry>,
    due: BTreeSet<(Instant, LetterId)>,
    waiting: BTreeMap<Need, Vec<LetterId>>,
    met: BTreeMap<Need, Instant>,
    sent: BTreeMap<PublishSeq, LetterId>,
    /// How many each job still has.
    open: BTreeMap<Receipt, usize>,
}

impl Letters {
    /// A job's letters: at least one.
    pub fn add(&mut self, now: Instant, letters: Vec<Letter>) {
        for letter in letters {
            *self.open.entry(letter.receipt).or_default() += 1;
            self.last += 1;
            let id = LetterId(self.last);
            let entry = Entry { letter, failures: 0, is_suspect: false, confirm_by: None };
            self.entries.insert(id, entry);
            self.due.insert((now, id));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many are on their way.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The next to be sent. What needs something first is put aside, and [`Letters::needs`] tells it.
    pub fn next(&mut self, now: Instant) -> Option<(LetterId, &Letter)> {
        // While a suspect is out, it is out alone.
        let is_alone = |entries: &BTreeMap<_, Entry>, id: &LetterId| {
            entries.get(id).is_some_and(|entry| entry.is_suspect)
        };
        if self.sent.len() == 1 && self.sent.values().all(|id| is_alone(&self.entries, id)) {
            return None;
        }
        while let Some(&(due, id)) = self.due.first().filter(|(due, _)| *due <= now) {
            let entry = self.entries.get_mut(&id).expect("what is due is kept");
            if let Some(need) = need_of(&entry.letter.to) {
                match self.met.get(&need).filter(|at| now < **at + MET_FOR) {
                    Some(at) => {
                        let is_bucket = matches!(need, Need::Bucket(_));
                        entry.confirm_by = is_bucket.then(|| *at + CONFIRM_WITHIN);
                    }
                    None => {
                        self.due.remove(&(due, id));
                        self.waiting.entry(need).or_default().push(id);
                        continue;
                    }
                }
            }
            if entry.is_suspect && !self.sent.is_empty() {
                return None;
            }
            self.due.remove(&(due, id));
            return self.entries.get(&id).map(|entry| (id, &entry.letter));
        }
        None
    }

    /// It went out under this number.
    pub fn sent(&mut self, id: LetterId, seq: PublishSeq) {
        self.sent.insert(seq, id);
    }

    /// It did not go out: the publisher has no room, or is gone.
    pub fn unsent(&mut self, id: LetterId, now: Instant) {
        self.due.insert((now, id));
    }

    /// The broker has these. Adds the jobs that have none left to `finished`.
    pub fn confirmed(&mut self, run: Run, now: Instant, finished: &mut Vec<Receipt>) {
        let later = self.sent.split_off(&PublishSeq(run.last.0 + 1));
        let confirmed = self.sent.split_off(&run.first);
        self.sent.extend(later);
        for id in confirmed.into_values() {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if entry.confirm_by.is_some_and(|by| now > by) {
                // Its queue may have gone, and the message with it.
                if let Some(need) = need_of(&entry.letter.to) {
                    self.met.remove(&need);
                }
                self.due.insert((now, id));
                continue;
            }
            let receipt = entry.letter.receipt;
            self.entries.remove(&id);
            if let Some(count) = self.open.get_mut(&receipt) {
                *count -= 1;
                if *count == 0 {
                    self.open.remove(&receipt);
                    finished.push(receipt);
                }
            }
        }
    }

    /// The broker did not take these.
    pub fn refused(&mut self, run: Run, now: Instant, why: &str, complaints: &mut Vec<Complaint>) {
        for seq in run.first.0..=run.last.0 {
            if let Some(id) = self.sent.remove(&PublishSeq(seq)) {
                self.failed(id, now, why, complaints);
            }
        }
    }

    /// The publisher's connection is gone. A refusal (`channel.close`) is for one of those that are out.
    pub fn lost(&mut self, now: Instant, refusal: Option<&str>, complaints: &mut Vec<Complaint>) {
        let out = std::mem::take(&mut self.sent);
        let is_found = out.len() == 1;
        for id in out.into_values() {
            match (refusal, self.entries.get_mut(&id)) {
                (_, None) => (),
                (Some(why), Some(entry)) => {
                    entry.is_suspect = true;
                    if is_found {
                        self.failed(id, now, why, complaints);
                    } else {
                        self.due.insert((now, id));
                    }
                }
                (None, Some(_)) => drop(self.due.insert((now, id))),
            }
        }
        // An exchange may have gone: that closes channels.
        self.met.retain(|need, _| matches!(need, Need::Bucket(_)));
    }

    /// What is needed and not there yet.
    pub fn needs(&self) -> Vec<Need> {
        self.waiting.keys().cloned().collect()
    }

    /// It is there, since before `at`.
    pub fn met(&mut self, need: &Need, at: Instant, now: Instant) {
        self.met.insert(need.clone(), at);
        // What is older than it counts is of no use.
        self.met.retain(|_, at| now < *at + MET_FOR);
        for id in self.waiting.remove(need).unwrap_or_default() {
            self.due.insert((now, id));
        }
    }

    /// It is not there.
    pub fn unmet(&mut self, need: &Need, now: Instant, why: &str, complaints: &mut Vec<Complaint>) {
        for id in self.waiting.remove(need).unwrap_or_default() {
            self.failed(id, now, why, complaints);
        }
    }

    /// When [`Letters::next`] has something again, as far as only time is missing.
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The jobs are lost: somebody else gets them, and settles them. What is sent is on its way.
    pub fn forget(&mut self) {
        let met = std::mem::take(&mut self.met);
        *self = Self { last: self.last, met, ..Self::default() };
    }

    fn failed(&mut self, id: LetterId, now: Instant, why: &str, complaints: &mut Vec<Complaint>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let doubled =
            BACKOFF_MIN.saturating_mul(1_u32.checked_shl(entry.failures).unwrap_or(u32::MAX));
        let again_in = doubled.min(BACKOFF_MAX);
        entry.failures = entry.failures.saturating_add(1);
        self.due.insert((now + again_in, id));
        // Often enough to be seen, seldom enough to be read.
        if entry.failures.is_power_of_two() {
            let Letter { receipt, to, .. } = entry.letter.clone();
            let (why, failures) = (why.to_owned(), entry.failures);
            complaints.push(Complaint { receipt, to, why, failures, again_in });
        }
    }
}

fn need_of(to: &To) -> Option<Need> {
    match to {
        To::Queue(_) => None,
        To::Exchange { exchange, .. } => Some(Need::Exchange(exchange.clone())),
        To::Bucket(bucket) => Some(Need::Bucket(bucket.clone())),
    }
}

#[cfg(test)]
mod tests;
