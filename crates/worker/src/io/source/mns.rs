//! Aliyun MNS.
//!
//! A message's body is an envelope ([`crate::source::envelope`]) or any other text, which is then the job's body; with
//! `base64` (the convention of the SDKs) it is encoded once more. The attempt is what the envelope says plus the times
//! that the message came out before: a worker's death and a return charge an attempt
//! ([`crate::source::visibility`]).
//!
//! The lease is MNS' own invisibility, counted from before the call. A receipt handle is valid until then; a renewal
//! brings a new one. What is done is deleted by separate deleters, up to 16 in one call. What comes later becomes
//! visible later, or is sent again; what is dead is sent to `dead_queue`, as an envelope with the headers
//! `x-job-dead-cause` and `x-job-dead-why`, and then deleted. A copy and its delete are two calls: a worker that dies
//! between them, or an answer that is lost, repeats the job or the copy; none is ever lost.
//!
//! A long poll that is under way when the source is closed may still take messages: they come back after their
//! invisibility. MNS limits the number of long polls: few fetchers are enough.

mod calls;
mod settings;
mod settle;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::sync::Mutex;

use super::driver::{self, Batch, Pace, Queue, Renewal, Taken, Upkept, Verdict};
use super::{BoxFuture, Link, Source};
use crate::error::Error;
use crate::job::{Message, Receipt};
use crate::limits::DELIVERIES_MAX;
use crate::settlement::{Cause, Settled, Settlement};
use crate::source::envelope::{self, Envelope};
use crate::source::ledger::Work;
use crate::source::mns::{Received, read_moved, read_queue_visibility, read_received};
use crate::source::visibility;

use calls::{Calls, Refusal};
pub use settings::Settings;

/// There is nothing to look after.
const UPKEEP_EVERY: Duration = Duration::from_secs(3600);

/// A queue of MNS as a source.
#[derive(Debug)]
pub struct Mns {
    queue: Arc<MnsQueue>,
    pace: Pace,
}

impl Mns {
    /// A source of a queue's jobs.
    ///
    /// # Errors
    /// The settings are wrong.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let pace = settings.pace();
        Ok(Self { queue: Arc::new(MnsQueue::new(settings)?), pace })
    }
}

impl Source for Mns {
    fn run(self: Box<Self>, link: Link) -> BoxFuture<Result<(), Error>> {
        Box::pin(driver::run(self.queue, self.pace, link))
    }
}

#[derive(Debug)]
struct MnsQueue {
    settings: Settings,
    calls: Calls,
    /// How long a poll waits: shorter than half of the queue's invisibility.
    wait: Mutex<Duration>,
}

/// A message in hand.
#[derive(Clone, Debug)]
struct Handle {
    receipt_handle: String,
    deliveries: u32,
    priority: u32,
    envelope: Arc<Envelope>,
}

impl MnsQueue {
    fn new(settings: Settings) -> Result<Self, Error> {
        let calls = Calls::new(&settings)?;
        Ok(Self { wait: Mutex::new(settings.wait.0), calls, settings })
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} MNS queue {}", self.settings.queue)
    }

    fn messages(&self) -> String {
        format!("/queues/{}/messages", self.settings.queue)
    }

    fn body(&self, text: String) -> Result<Bytes, String> {
        if !self.settings.base64 {
            return Ok(Bytes::from(text));
        }
        let decoded = STANDARD.decode(text.trim()).map_err(|error| format!("base64: {error}"))?;
        Ok(Bytes::from(decoded))
    }

    /// A message as a job, or why it is none.
    fn job(&self, message: &Received) -> Result<Envelope, String> {
        let mut envelope = envelope::read(&self.body(message.message_body.clone())?)?;
        if envelope.message.id.is_empty() {
            envelope.message.id.clone_from(&message.message_id);
        }
        envelope.published_ms = envelope.published_ms.or(Some(message.enqueue_time));
        let said = envelope.message.attempt;
        envelope.message.attempt = visibility::number(said, message.dequeue_count);
        Ok(envelope)
    }

    /// Settles at once what is given to nobody.
    async fn bury(&self, handle: Handle, cause: Cause, why: String) -> Result<(), Error> {
        let (queue, id) = (&self.settings.queue, &handle.envelope.message.id);
        tracing::warn!(queue, id, why, "a message is no job for anybody; it is dead");
        let settlement = Settlement::Dead { cause, why };
        let settled = Settled { receipt: Receipt(0), settlement, publishes: Vec::new() };
        let mut batch = Batch {
            number: 0,
            works: vec![driver::Entry { work: Work::of(handle, settled), is_over: false }],
        };
        self.carry_out(&mut batch).await.map(|_| ())
    }
}

impl Queue for MnsQueue {
    type Handle = Handle;

    fn name(&self) -> &str {
        &self.settings.queue
    }

    async fn open(&self) -> Result<(), Error> {
        let doing = self.doing("opening");
        let path = format!("/queues/{}", self.settings.queue);
        let answer = self.calls.ask(&doing, "GET", &path, None, Duration::ZERO).await?;
        let answer = answer.map_err(|refusal| refusal.error(&doing))?;
        let seconds = read_queue_visibility(&answer.body)
            .map_err(|why| Error::away(&doing, format!("MNS answered in a strange way: {why}")))?;
        let half = Duration::from_secs(seconds / 2);
        *self.wait.lock().await = self.settings.wait.0.min(half);
        Ok(())
    }

    async fn fetch(&self, _: usize, max: usize) -> Result<Vec<Taken<Handle>>, Error> {
        let doing = self.doing("receiving from");
        let wait = *self.wait.lock().await;
        let path =
            format!("{}?numOfMessages={max}&waitseconds={}", self.messages(), wait.as_secs());
        let before = Instant::now();
        let answer = match self.calls.ask(&doing, "GET", &path, None, wait).await? {
            Ok(answer) => answer,
            // An empty queue is no error.
            Err(Refusal::NoMessage) => return Ok(Vec::new()),
            Err(refusal) => return Err(refusal.error(&doing)),
        };
        let messages = read_received(&answer.body)
            .map_err(|why| Error::away(&doing, format!("MNS answered in a strange way: {why}")))?;
        let mut taken = Vec::with_capacity(messages.len());
        for message in messages {
            let left = message.next_visible_time.saturating_sub(answer.server_ms);
            let lease_until = Some(before + Duration::from_millis(left));
            let job = self.job(&message);
            let envelope = match &job {
                Ok(envelope) => envelope.clone(),
                Err(_) => Envelope {
                    message: Message {
                        id: message.message_id.clone(),
                        body: Bytes::from(message.message_body.clone()),
                        attempt: 1,
                        ..Message::default()
                    },
                    ..Envelope::default()
                },
            };
            let handle = Handle {
                receipt_handle: message.receipt_handle,
                deliveries: message.dequeue_count,
                priority: message.priority,
                envelope: Arc::new(envelope.clone()),
            };
            match job {
                Err(why) => self.bury(handle, Cause::Malformed, why).await?,
                Ok(_) if message.dequeue_count > DELIVERIES_MAX => {
                    let times = message.dequeue_count - 1;
                    let why = format!(
                        "it came out {times} times and was never settled: it may end its worker"
                    );
                    self.bury(handle, Cause::Exhausted, why).await?;
                }
                Ok(_) => taken.push(Taken { handle, lease_until, envelope }),
            }
        }
        Ok(taken)
    }

    async fn settle(&self, _: usize, batch: &mut Batch<Handle>) -> Result<Vec<Verdict>, Error> {
        self.carry_out(batch).await
    }

    async fn renew(&self, jobs: Vec<(Receipt, Handle)>) -> Result<Vec<Renewal<Handle>>, Error> {
        let doing = self.doing("renewing leases of");
        let seconds = visibility::seconds(self.settings.lease.0);
        let mut renewals = Vec::with_capacity(jobs.len());
        let mut is_away = false;
        for (receipt, mut handle) in jobs {
            if is_away {
                renewals.push(Renewal::Unknown { receipt });
                continue;
            }
            let before = Instant::now();
            // The new handles of the jobs before are kept, whatever happens to this call.
            let answer = self.change_visibility(&doing, &handle, seconds).await;
            is_away = answer.is_err();
            let renewal = match answer {
                Ok(Ok(answer)) => match read_moved(&answer.body) {
                    Ok(moved) => {
                        handle.receipt_handle = moved.receipt_handle;
                        let left = moved.next_visible_time.saturating_sub(answer.server_ms);
                        let left = Duration::from_millis(left).min(self.settings.lease.0);
                        Renewal::Longer { receipt, handle, until: before + left }
                    }
                    Err(_) => Renewal::Unknown { receipt },
                },
                Ok(Err(Refusal::NoMessage | Refusal::HandleOver)) => Renewal::Lost { receipt },
                Ok(Err(_)) | Err(_) => Renewal::Unknown { receipt },
            };
            renewals.push(renewal);
        }
        Ok(renewals)
    }

    async fn upkeep(&self) -> Result<Upkept, Error> {
        Ok(Upkept { is_all_lost: false, next: UPKEEP_EVERY })
    }

    async fn close(&self) {}
}
