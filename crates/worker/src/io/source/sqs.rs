//! Amazon SQS.
//!
//! A job is a message: [`crate::source::sqs`] says how. Its attempt is what the attribute `x-job-attempt` says (1 without)
//! plus the times that the message came out before (`ApproximateReceiveCount`): a worker's death and a return charge
//! an attempt ([`crate::source::visibility`]).
//!
//! The lease is the visibility timeout, `lease`, counted from before the call; a renewal sets it again. What is done is
//! deleted by separate deleters, up to ten in one call, each judged by its own entry of the answer. What comes later
//! becomes visible later (up to 12 h), or is sent again. A copy can be delayed by 15 minutes only: one that has to wait
//! longer says `x-job-due-ms`, and is hidden again by whichever worker gets it too early. What is dead is sent to
//! `dead_queue_url` with the attributes `x-job-dead-cause` and `x-job-dead-why`, and then deleted. A copy and its delete are
//! two calls: what happens between them repeats the job or the copy; none is ever lost.
//!
//! A long poll that is under way when the source is closed may still take messages: they come back after their
//! visibility timeout. FIFO queues: the group is the key where a job says none, and copies take their place at the end.

mod calls;
mod settings;
mod settle;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::driver::{self, Batch, Entry, Pace, Queue, Renewal, Taken, Upkept, Verdict};
use super::{BoxFuture, Link, Source};
use crate::error::Error;
use crate::job::{Message, Receipt};
use crate::limits::DELIVERIES_MAX;
use crate::settlement::{Cause, Settled, Settlement};
use crate::source::envelope::Envelope;
use crate::source::ledger::Work;
use crate::source::sqs::{self, Describe, Messages, Receive, Received};
use crate::source::visibility::{self, VISIBILITY_MAX};

use calls::Calls;
pub use settings::Settings;

/// There is nothing to look after.
const UPKEEP_EVERY: Duration = Duration::from_secs(3600);

/// A queue of SQS as a source.
#[derive(Debug)]
pub struct Sqs {
    queue: Arc<SqsQueue>,
    pace: Pace,
}

impl Sqs {
    /// A source of a queue's jobs.
    ///
    /// # Errors
    /// The settings are wrong.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let pace = settings.pace();
        let calls = Calls::new(&settings)?;
        Ok(Self { queue: Arc::new(SqsQueue { settings, calls }), pace })
    }
}

impl Source for Sqs {
    fn run(self: Box<Self>, link: Link) -> BoxFuture<Result<(), Error>> {
        Box::pin(driver::run(self.queue, self.pace, link))
    }
}

#[derive(Debug)]
struct SqsQueue {
    settings: Settings,
    calls: Calls,
}

/// A message in hand.
#[derive(Clone, Debug)]
struct Handle {
    receipt_handle: String,
    deliveries: u32,
    envelope: Arc<Envelope>,
}

impl SqsQueue {
    fn doing(&self, what: &str) -> String {
        format!("{what} SQS queue {}", self.settings.queue_url)
    }

    /// A message as a job; none: it is not for a target, and was settled at once.
    async fn job(&self, message: Received, until: Instant) -> Result<Option<Taken<Handle>>, Error> {
        let deliveries = message.attributes.get("ApproximateReceiveCount");
        let deliveries = deliveries.and_then(|count| count.parse().ok()).unwrap_or(1);
        let handle = |envelope: Envelope| Handle {
            receipt_handle: message.receipt_handle.clone(),
            deliveries,
            envelope: Arc::new(envelope),
        };
        let mut envelope = match sqs::read(&message) {
            Ok(envelope) => envelope,
            Err(why) => {
                let whole = Message {
                    id: message.message_id.clone(),
                    body: Bytes::from(message.body.clone()),
                    attempt: 1,
                    ..Message::default()
                };
                let envelope = Envelope { message: whole, ..Envelope::default() };
                let dead = Settlement::Dead { cause: Cause::Malformed, why };
                self.settle_at_once(handle(envelope), dead).await?;
                return Ok(None);
            }
        };
        if let Some(due_ms) = envelope.due_ms.take() {
            let left = Duration::from_millis(due_ms.saturating_sub(now_ms()));
            if !left.is_zero() {
                self.hide(&handle(envelope), left.min(VISIBILITY_MAX)).await?;
                return Ok(None);
            }
            // How often it came out says nothing of its attempts: a fresh message does.
            if deliveries > 1 {
                let attempt = envelope.message.attempt;
                let again = Settlement::Later {
                    after: Duration::ZERO,
                    attempt,
                    why: String::new(),
                    rest: None,
                };
                self.settle_at_once(handle(envelope), again).await?;
                return Ok(None);
            }
        }
        if deliveries > DELIVERIES_MAX {
            let times = deliveries - 1;
            let why =
                format!("it came out {times} times and was never settled: it may end its worker");
            let dead = Settlement::Dead { cause: Cause::Exhausted, why };
            self.settle_at_once(handle(envelope), dead).await?;
            return Ok(None);
        }
        envelope.message.attempt = visibility::number(envelope.message.attempt, deliveries);
        let handle = handle(envelope.clone());
        Ok(Some(Taken { handle, lease_until: Some(until), envelope }))
    }

    /// Settles what is given to nobody.
    async fn settle_at_once(&self, handle: Handle, settlement: Settlement) -> Result<(), Error> {
        if let Settlement::Dead { why, .. } = &settlement {
            let (queue, id) = (&self.settings.queue_url, &handle.envelope.message.id);
            tracing::warn!(queue, id, why, "a message is no job for anybody; it is dead");
        }
        let settled = Settled { receipt: Receipt(0), settlement, publishes: Vec::new() };
        let work = Work::of(handle, settled);
        let mut batch = Batch { number: 0, works: vec![Entry { work, is_over: false }] };
        self.carry_out(&mut batch).await.map(|_| ())
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Queue for SqsQueue {
    type Handle = Handle;

    fn name(&self) -> &str {
        &self.settings.queue_url
    }

    async fn open(&self) -> Result<(), Error> {
        for queue_url in [&self.settings.queue_url, &self.settings.dead_queue_url] {
            let doing = format!("opening SQS queue {queue_url}");
            let request = Describe { queue_url, attribute_names: ["VisibilityTimeout"] };
            self.calls.ask(&doing, "GetQueueAttributes", &request, Duration::ZERO).await?;
        }
        Ok(())
    }

    async fn fetch(&self, _: usize, max: usize) -> Result<Vec<Taken<Handle>>, Error> {
        let doing = self.doing("receiving from");
        let Settings { queue_url, wait, lease, .. } = &self.settings;
        let request = Receive {
            queue_url,
            max_number_of_messages: max,
            wait_time_seconds: wait.0.as_secs(),
            visibility_timeout: lease.0.as_secs(),
            attribute_names: ["All"],
            message_attribute_names: ["All"],
        };
        // Counted from before the call: the lease never ends later here than at SQS.
        let until = Instant::now() + lease.0;
        let answer = self.calls.ask(&doing, "ReceiveMessage", &request, wait.0).await?;
        let answer: Messages = serde_json::from_slice(&answer)
            .map_err(|why| Error::away(&doing, format!("SQS answered in a strange way: {why}")))?;
        let mut taken = Vec::with_capacity(answer.messages.len());
        for message in answer.messages {
            taken.extend(self.job(message, until).await?);
        }
        Ok(taken)
    }

    async fn settle(&self, _: usize, batch: &mut Batch<Handle>) -> Result<Vec<Verdict>, Error> {
        self.carry_out(batch).await
    }

    async fn renew(&self, jobs: Vec<(Receipt, Handle)>) -> Result<Vec<Renewal<Handle>>, Error> {
        let lease = self.settings.lease.0;
        let mut renewals = Vec::with_capacity(jobs.len());
        let mut is_away = false;
        for jobs in jobs.chunks(sqs::BATCH_MAX) {
            let until = Instant::now() + lease;
            let verdicts = match is_away {
                true => None,
                false => self.change(jobs.iter().map(|(_, handle)| (handle, lease))).await.ok(),
            };
            is_away |= verdicts.is_none();
            for (place, (receipt, handle)) in jobs.iter().enumerate() {
                let (receipt, handle) = (*receipt, handle.clone());
                let verdict = verdicts.as_ref().and_then(|verdicts| verdicts.get(place));
                renewals.push(match verdict {
                    Some(Verdict::Settled) => Renewal::Longer { receipt, handle, until },
                    Some(Verdict::Lost) => Renewal::Lost { receipt },
                    Some(Verdict::Again { .. }) | None => Renewal::Unknown { receipt },
                });
            }
        }
        Ok(renewals)
    }

    async fn upkeep(&self) -> Result<Upkept, Error> {
        Ok(Upkept { is_all_lost: false, next: UPKEEP_EVERY })
    }

    async fn close(&self) {}
}
