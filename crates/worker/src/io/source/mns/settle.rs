//! Carries out settlements at MNS: copies first, then one delete for all that is over.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::calls::{Answer, Refusal};
use super::{Handle, MnsQueue};
use crate::error::Error;
use crate::io::source::driver::{Batch, Verdict};
use crate::job::Header;
use crate::settlement::Settlement;
use crate::source::envelope::{self, Envelope};
use crate::source::ledger::Work;
use crate::source::mns::{MESSAGE_BYTES_MAX, ToSend, write_handles, write_message};
use crate::source::visibility::{Again, Attempt, again, seconds};

/// Shortest invisibility.
const VISIBILITY_MIN_SECONDS: u64 = 1;
/// Longest delay of a message, in seconds: 7 days.
const DELAY_MAX_SECONDS: u64 = 604_800;

/// What is left to do with a message once its publishes and its copy are safe.
enum Then {
    Delete,
    /// It was made visible, or somebody else has it, or it was refused.
    Over(Verdict),
}

impl MnsQueue {
    /// One verdict for each place of a batch.
    pub(super) async fn carry_out(&self, batch: &mut Batch<Handle>) -> Result<Vec<Verdict>, Error> {
        let doing = self.doing("settling messages of");
        let mut verdicts = vec![Verdict::Lost; batch.works.len()];
        let mut deletes = Vec::new();
        for (place, entry) in batch.works.iter_mut().enumerate() {
            if entry.is_over {
                continue;
            }
            match self.prepare(&doing, &mut entry.work).await? {
                Then::Delete => deletes.push((place, entry.work.handle.receipt_handle.clone())),
                Then::Over(verdict) => verdicts[place] = verdict,
            }
        }
        for (place, verdict) in self.delete(&doing, deletes).await? {
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
            let delay = publish.delay.unwrap_or_default();
            if let Some(refused) =
                self.send(doing, &publish.routing_key, &envelope, delay, 0).await?
            {
                return Ok(Then::Over(refused));
            }
            work.published += 1;
        }
        let Work { handle, settlement, is_copied, .. } = work;
        if *is_copied && is_shown(settlement, handle) {
            return Ok(Then::Over(Verdict::Settled));
        }
        let mut copy = Envelope::clone(&handle.envelope);
        let (to, delay) = match settlement {
            Settlement::Done => return Ok(Then::Delete),
            Settlement::Return => return self.show(doing, handle, Duration::ZERO, is_copied).await,
            Settlement::Later { after, attempt, why: _, rest } => {
                match again(attempt_of(handle), *attempt, *after, rest.is_some()) {
                    Again::Visible { after } => {
                        return self.show(doing, handle, after, is_copied).await;
                    }
                    Again::Copy { after } => {
                        copy.message.attempt = *attempt;
                        if let Some(rest) = rest {
                            copy.message.body = rest.clone();
                        }
                        (&self.settings.queue, after)
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
                (&self.settings.dead_queue, Duration::ZERO)
            }
        };
        if !*is_copied {
            if let Some(refused) = self.send(doing, to, &copy, delay, handle.priority).await? {
                return Ok(Then::Over(refused));
            }
            *is_copied = true;
        }
        Ok(Then::Delete)
    }

    /// Makes a message visible after this long.
    async fn show(
        &self,
        doing: &str,
        handle: &Handle,
        after: Duration,
        is_shown: &mut bool,
    ) -> Result<Then, Error> {
        let seconds = seconds(after).max(VISIBILITY_MIN_SECONDS);
        Ok(Then::Over(match self.change_visibility(doing, handle, seconds).await? {
            Ok(_) => {
                *is_shown = true;
                Verdict::Settled
            }
            Err(refusal) => verdict(refusal, doing)?,
        }))
    }

    pub(super) async fn change_visibility(
        &self,
        doing: &str,
        handle: &Handle,
        seconds: u64,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let resource = format!(
            "{}?ReceiptHandle={}&VisibilityTimeout={seconds}",
            self.messages(),
            handle.receipt_handle
        );
        self.calls.ask(doing, "PUT", &resource, None, Duration::ZERO).await
    }

    /// Sends a job. Gives a verdict where it was refused.
    async fn send(
        &self,
        doing: &str,
        queue: &str,
        envelope: &Envelope,
        delay: Duration,
        priority: u32,
    ) -> Result<Option<Verdict>, Error> {
        let mut text = envelope::write(envelope);
        if self.settings.base64 {
            text = STANDARD.encode(text);
        }
        if text.len() > MESSAGE_BYTES_MAX {
            let why = format!("a copy for {queue} has {} bytes: MNS takes 65536", text.len());
            return Ok(Some(Verdict::Again { why }));
        }
        let message = ToSend {
            message_body: text,
            delay_seconds: seconds(delay).min(DELAY_MAX_SECONDS),
            priority: if priority == 0 { 8 } else { priority },
            ..ToSend::default()
        };
        let resource = format!("/queues/{queue}/messages");
        let body = Some(write_message(&message));
        Ok(match self.calls.ask(doing, "POST", &resource, body, Duration::ZERO).await? {
            Ok(_) => None,
            Err(Refusal::Passes { text } | Refusal::Setup { text }) => {
                Some(Verdict::Again { why: format!("sending to {queue}: {text}") })
            }
            Err(other) => Some(verdict(other, doing)?),
        })
    }

    async fn delete(
        &self,
        doing: &str,
        mut deletes: Vec<(usize, String)>,
    ) -> Result<Vec<(usize, Verdict)>, Error> {
        let (resource, body) = match deletes.len() {
            0 => return Ok(Vec::new()),
            1 => (format!("{}?ReceiptHandle={}", self.messages(), deletes[0].1), None),
            _ => {
                let handles = deletes.iter().map(|(_, handle)| handle.clone()).collect();
                (self.messages(), Some(write_handles(handles)))
            }
        };
        let answer = self.calls.ask(doing, "DELETE", &resource, body, Duration::ZERO).await?;
        let all = |verdict: Verdict, deletes: Vec<(usize, String)>| {
            deletes.into_iter().map(|(place, _)| (place, verdict.clone())).collect()
        };
        let problems = match answer {
            Ok(_) => return Ok(all(Verdict::Settled, deletes)),
            Err(Refusal::Some(problems)) => problems,
            Err(refusal) => return Ok(all(verdict(refusal, doing)?, deletes)),
        };
        let judge = |(place, handle): (usize, String)| {
            let problem = problems.iter().find(|problem| problem.receipt_handle == handle);
            let verdict = match problem.map(|problem| problem.error_code.as_str()) {
                None => Verdict::Settled,
                Some("MessageNotExist" | "ReceiptHandleError") => Verdict::Lost,
                Some(code) => Verdict::Again { why: code.to_owned() },
            };
            (place, verdict)
        };
        Ok(deletes.drain(..).map(judge).collect())
    }
}

fn attempt_of(handle: &Handle) -> Attempt {
    let number = handle.envelope.message.attempt;
    Attempt { number, deliveries: handle.deliveries, is_fixed: false }
}

/// Whether a settlement needs nothing but another visibility.
fn is_shown(settlement: &Settlement, handle: &Handle) -> bool {
    match settlement {
        Settlement::Return => true,
        Settlement::Later { after, attempt, why: _, rest } => {
            let again = again(attempt_of(handle), *attempt, *after, rest.is_some());
            matches!(again, Again::Visible { .. })
        }
        Settlement::Done | Settlement::Dead { .. } => false,
    }
}

/// What a refusal means for one message.
fn verdict(refusal: Refusal, doing: &str) -> Result<Verdict, Error> {
    match refusal {
        Refusal::NoMessage | Refusal::HandleOver => Ok(Verdict::Lost),
        refusal @ (Refusal::Some(_) | Refusal::Passes { .. } | Refusal::Setup { .. }) => {
            Err(refusal.error(doing))
        }
    }
}
