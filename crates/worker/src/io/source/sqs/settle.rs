//! Carries out settlements at SQS: copies first, then visibility in one call, then deletes in one call.

use std::time::Duration;

use super::{Handle, SqsQueue, now_ms};
use crate::error::Error;
use crate::io::source::driver::{Batch, Verdict};
use crate::job::Header;
use crate::settlement::Settlement;
use crate::source::envelope::Envelope;
use crate::source::ledger::Work;
use crate::source::sqs::{
    self, Change, ChangeEntry, Changed, DELAY_MAX_SECONDS, Meaning, Send, meaning, url_of,
};
use crate::source::visibility::{Again, Attempt, VISIBILITY_MAX, again, seconds};

/// What is left to do with a message once its publishes and its copy are safe.
enum Then {
    Delete,
    Show(Duration),
    Refused(Verdict),
}

impl SqsQueue {
    /// One verdict for each place of a batch.
    pub(super) async fn carry_out(&self, batch: &mut Batch<Handle>) -> Result<Vec<Verdict>, Error> {
        let doing = self.doing("settling messages of");
        let mut verdicts = vec![Verdict::Lost; batch.works.len()];
        let (mut deletes, mut shows) = (Vec::new(), Vec::new());
        for (place, entry) in batch.works.iter_mut().enumerate() {
            if entry.is_over {
                continue;
            }
            match self.prepare(&doing, &mut entry.work).await? {
                Then::Delete => deletes.push(place),
                Then::Show(after) => shows.push((place, after)),
                Then::Refused(verdict) => verdicts[place] = verdict,
            }
        }
        let handle = |place: usize| &batch.works[place].work.handle;
        let changed = self.change(shows.iter().map(|(place, after)| (handle(*place), *after)));
        for ((place, _), verdict) in shows.iter().zip(changed.await?) {
            verdicts[*place] = verdict;
        }
        let deleted = self.delete(&doing, deletes.iter().map(|place| handle(*place))).await?;
        for (place, verdict) in deletes.into_iter().zip(deleted) {
            verdicts[place] = verdict;
        }
        Ok(verdicts)
    }

    /// Publishes, and makes the copy that the settlement may need.
    async fn prepare(&self, doing: &str, work: &mut Work<Handle>) -> Result<Then, Error> {
        for publish in &work.publishes[work.published..] {
            let envelope = Envelope {
                message: publish.message.clone(),
                key: publish.key.clone(),
                ..Envelope::default()
            };
            let to = url_of(&self.settings.queue_url, &publish.routing_key);
            let delay = publish.delay.unwrap_or_default();
            if let Some(refused) = self.send(doing, &to, envelope, delay).await? {
                return Ok(Then::Refused(refused));
            }
            work.published += 1;
        }
        let Work { handle, settlement, is_copied, .. } = work;
        let mut copy = Envelope::clone(&handle.envelope);
        let (to, delay) = match settlement {
            Settlement::Done => return Ok(Then::Delete),
            Settlement::Return => return Ok(Then::Show(Duration::ZERO)),
            Settlement::Later { after, attempt, why: _, rest } => {
                let now = Attempt {
                    number: copy.message.attempt,
                    deliveries: handle.deliveries,
                    is_fixed: false,
                };
                match again(now, *attempt, *after, rest.is_some()) {
                    Again::Visible { after } => return Ok(Then::Show(after)),
                    Again::Copy { after } => {
                        copy.message.attempt = *attempt;
                        if let Some(rest) = rest {
                            copy.message.body = rest.clone();
                        }
                        (&self.settings.queue_url, after)
                    }
                }
            }
            Settlement::Dead { cause, why } => {
                let header = |name: &str, value: &str| Header {
                    name: name.to_owned(),
                    value: value.to_owned(),
                };
                copy.message.headers.push(header("x-job-dead-cause", cause.name()));
                copy.message.headers.push(header("x-job-dead-why", why));
                (&self.settings.dead_queue_url, Duration::ZERO)
            }
        };
        if !*is_copied {
            if let Some(refused) = self.send(doing, to, copy, delay).await? {
                return Ok(Then::Refused(refused));
            }
            *is_copied = true;
        }
        Ok(Then::Delete)
    }

    /// Sends a job. Gives a verdict where it was refused.
    async fn send(
        &self,
        doing: &str,
        queue_url: &str,
        mut envelope: Envelope,
        delay: Duration,
    ) -> Result<Option<Verdict>, Error> {
        if delay > Duration::from_secs(DELAY_MAX_SECONDS) {
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            envelope.due_ms = Some(now_ms().saturating_add(delay_ms));
        }
        let is_fifo = queue_url.ends_with(".fifo");
        let group = envelope.key.clone().unwrap_or_else(|| envelope.message.id.clone());
        // Another attempt is another message, and the same one sent again is not.
        let name = format!("{}-{}", envelope.message.id, envelope.message.attempt);
        let name = format!("{:016x}{:016x}", crate::source::key_hash(&name), now_ms() / 300_000);
        let (message_body, message_attributes) = sqs::write(&envelope);
        let call = Send {
            queue_url,
            message_body,
            // FIFO queues know no delay of one message.
            delay_seconds: (!is_fifo).then(|| seconds(delay).min(DELAY_MAX_SECONDS)),
            message_attributes,
            message_group_id: is_fifo.then_some(group),
            message_deduplication_id: is_fifo.then_some(name),
        };
        Ok(match self.calls.try_ask(doing, "SendMessage", &call, Duration::ZERO).await? {
            Ok(_) => None,
            Err((_, text)) => {
                Some(Verdict::Again { why: format!("sending to {queue_url}: {text}") })
            }
        })
    }

    /// Hides a message that came too early.
    pub(super) async fn hide(&self, handle: &Handle, left: Duration) -> Result<(), Error> {
        self.change(std::iter::once((handle, left))).await.map(|_| ())
    }

    /// Sets the visibility of up to ten messages.
    pub(super) async fn change<'a>(
        &self,
        handles: impl Iterator<Item = (&'a Handle, Duration)>,
    ) -> Result<Vec<Verdict>, Error> {
        let doing = self.doing("changing visibility in");
        let entries = handles.enumerate().map(|(place, (handle, after))| ChangeEntry {
            id: place.to_string(),
            receipt_handle: handle.receipt_handle.clone(),
            visibility_timeout: Some(seconds(after.min(VISIBILITY_MAX))),
        });
        self.batch(&doing, "ChangeMessageVisibilityBatch", entries.collect()).await
    }

    async fn delete<'a>(
        &self,
        doing: &str,
        handles: impl Iterator<Item = &'a Handle>,
    ) -> Result<Vec<Verdict>, Error> {
        let entries = handles.enumerate().map(|(place, handle)| ChangeEntry {
            id: place.to_string(),
            receipt_handle: handle.receipt_handle.clone(),
            visibility_timeout: None,
        });
        self.batch(doing, "DeleteMessageBatch", entries.collect()).await
    }

    async fn batch(
        &self,
        doing: &str,
        action: &str,
        entries: Vec<ChangeEntry>,
    ) -> Result<Vec<Verdict>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut verdicts = vec![Verdict::Settled; entries.len()];
        let call = Change { queue_url: &self.settings.queue_url, entries };
        let answer = self.calls.ask(doing, action, &call, Duration::ZERO).await?;
        let changed: Changed = serde_json::from_slice(&answer)
            .map_err(|why| Error::away(doing, format!("SQS answered in a strange way: {why}")))?;
        for failed in changed.failed {
            let place = failed.id.parse::<usize>().ok();
            let Some(verdict) = place.and_then(|place| verdicts.get_mut(place)) else { continue };
            *verdict = match meaning(200, &failed.code, &failed.message) {
                Meaning::HandleOver => Verdict::Lost,
                Meaning::Passes | Meaning::Setup { .. } => {
                    Verdict::Again { why: format!("{}: {}", failed.code, failed.message) }
                }
            };
        }
        Ok(verdicts)
    }
}
