//! What an AMQP source does with settlements: the copies that they need, and then the acknowledgements.

use std::time::Instant;

use amqp::Properties;
use client::{Outcome, Publisher, Verdict};

use super::super::errand;
use super::{Task, UNCONFIRMED_BYTES_MAX, now_ms};
use crate::io::source::News;
use crate::job::Receipt;
use crate::settlement::{Cause, Settled};
use crate::source::amqp::letters::{Complaint, Letter, To};
use crate::source::amqp::plan::{self, End};

impl Task {
    pub(super) fn settle(&mut self, settled: Vec<Settled>) {
        let (now, now_ms) = (Instant::now(), now_ms());
        let mut done = Vec::with_capacity(settled.len());
        for settled in settled {
            // One that is lost was said to be.
            let Some(held) = self.held.get(&settled.receipt) else { continue };
            let mut letters = Vec::new();
            for publish in &settled.publishes {
                match plan::publish(self.places.broker, settled.receipt, publish, now_ms) {
                    Ok(letter) => letters.push(letter),
                    Err(why) => {
                        tracing::error!(
                            id = held.original.id,
                            to = publish.routing_key,
                            why,
                            "a message that follows a job cannot be published; the job is set aside"
                        );
                        letters.push(plan::dead(
                            &self.places,
                            &held.original,
                            Cause::Malformed,
                            &why,
                            now_ms,
                        ));
                    }
                }
            }
            let (copy, end) =
                plan::settle(&self.places, &held.original, &settled.settlement, now_ms);
            letters.extend(copy);
            if letters.is_empty() {
                done.extend(self.let_go(settled.receipt, end));
            } else {
                self.ends.insert(settled.receipt, end);
                self.letters.add(now, letters);
            }
        }
        self.say_settled(done);
    }

    /// Tells the broker; gives the receipt if the worker knows it.
    pub(super) fn let_go(&mut self, receipt: Receipt, end: End) -> Option<Receipt> {
        let held = self.held.remove(&receipt)?;
        let outcome = match end {
            End::Ack => Outcome::Done,
            End::Requeue => Outcome::Requeue,
        };
        if let Some(consumer) = &mut self.consumer
            && let Err(error) = consumer.settle(held.tag, outcome)
        {
            tracing::error!(%error, id = held.original.id, "a job cannot be let go; it will come again");
        }
        held.is_given.then_some(receipt)
    }

    pub(super) fn say_settled(&mut self, receipts: Vec<Receipt>) {
        if receipts.is_empty() {
            return;
        }
        if let Some(News::Settled(last)) = self.news.back_mut() {
            last.extend(receipts);
        } else {
            self.news.push_back(News::Settled(receipts));
        }
    }

    pub(super) fn publish(&mut self) {
        let now = Instant::now();
        self.looked_at = now;
        let Some(publisher) = &mut self.publisher else { return };
        while publisher.has_room() && publisher.unconfirmed_bytes() < UNCONFIRMED_BYTES_MAX {
            let Some((id, letter)) = self.letters.next(now) else { break };
            match publish_one(publisher, letter) {
                Ok(Some(seq)) => self.letters.sent(id, seq),
                Ok(None) => {
                    self.letters.unsent(id, now);
                    break;
                }
                Err(error) => {
                    self.letters.unsent(id, now);
                    self.publisher_lost(&error);
                    return;
                }
            }
        }
    }

    pub(super) fn verdicts(&mut self, verdicts: Vec<Verdict>) {
        let now = Instant::now();
        let (mut finished, mut complaints) = (Vec::new(), Vec::new());
        for verdict in verdicts {
            match verdict {
                Verdict::Confirmed(run) => self.letters.confirmed(run, now, &mut finished),
                Verdict::Refused(run) => {
                    let why = "the broker refused it (basic.nack): the queue may be full";
                    self.letters.refused(run, now, why, &mut complaints);
                }
                Verdict::Returned { seq, code, text } => {
                    let why = format!("no queue was found for it: {code} {text}");
                    let run = client::Run { first: seq, last: seq };
                    self.letters.refused(run, now, &why, &mut complaints);
                }
            }
        }
        let mut done = Vec::with_capacity(finished.len());
        for receipt in finished {
            if let Some(end) = self.ends.remove(&receipt) {
                done.extend(self.let_go(receipt, end));
            }
        }
        self.say_settled(done);
        self.complain(&complaints);
    }

    pub(super) fn found(&mut self, found: errand::Found) {
        let now = Instant::now();
        let mut complaints = Vec::new();
        for (need, seen) in found {
            match seen {
                Ok(at) => self.letters.met(&need, at, now),
                Err(why) => self.letters.unmet(&need, now, &why, &mut complaints),
            }
        }
        self.complain(&complaints);
    }

    pub(super) fn complain(&self, complaints: &[Complaint]) {
        for Complaint { receipt, to, why, failures, again_in } in complaints {
            let id = self.held.get(receipt).map(|held| held.original.id.as_str());
            tracing::warn!(
                id,
                ?to,
                why,
                failures,
                retry_in_ms = again_in.as_millis() as u64,
                "a copy of a job or a message that follows it cannot be published; the job is kept until it can"
            );
        }
    }

    pub(super) fn publisher_lost(&mut self, error: &client::Error) {
        let mut last = Vec::new();
        if let Some(mut publisher) = self.publisher.take() {
            publisher.take_verdicts(&mut last);
        }
        self.verdicts(last);
        let is_refusal = match error {
            client::Error::ChannelClosed { .. } => true,
            client::Error::ConnectionClosed { .. } => !error.is_temporary(),
            client::Error::Unreachable { .. }
            | client::Error::Tls { .. }
            | client::Error::Lost { .. }
            | client::Error::NoAnswer { .. }
            | client::Error::ConsumerCancelled { .. }
            | client::Error::Protocol { .. }
            | client::Error::Invalid { .. } => false,
        };
        let refusal = is_refusal.then(|| error.to_string());
        let mut complaints = Vec::new();
        self.letters.lost(Instant::now(), refusal.as_deref(), &mut complaints);
        self.complain(&complaints);
        self.publishing.failed(Instant::now());
    }
}

fn publish_one(
    publisher: &mut Publisher,
    letter: &Letter,
) -> Result<Option<client::PublishSeq>, client::Error> {
    let properties = Properties::decode(&letter.properties)?;
    let queue;
    let address = match &letter.to {
        To::Queue(name) => client::Address::queue(name),
        To::Exchange { exchange, routing_key } => {
            client::Address { exchange, routing_key, mandatory: true }
        }
        To::Bucket(bucket) => {
            queue = bucket.queue();
            client::Address::queue(&queue)
        }
    };
    publisher.try_publish(address, &properties, &letter.body)
}
