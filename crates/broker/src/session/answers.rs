//! What the cluster says, for the channel that asked.

use amqp::{Method, connection};
use cluster::{Answer, Delivery};
use machine::{AttachError, Outcome, Overflow, QueueId};

use super::boundary::Reply;
use super::{Phase, Session, find};
use crate::capacity::{Candidate, Then};
use crate::channel::State;
use crate::connection::ConnectionState;
use crate::connection::step::Step;
use crate::connection::tickets::{ChannelRef, Waiting};
use crate::dead_letter::{self, Forwarded};
use crate::route_cache::Route;

impl Session {
    /// Takes an answer, or holds it until the socket has taken what is before it.
    #[inline]
    pub(super) fn answered_in_turn(&mut self, step: &mut Step<'_>, answer: Answer) {
        let outbound = &mut self.connection.outbound;
        match outbound.holds_back(&answer, step.out.bytes.len()) {
            true => outbound.hold(answer),
            false => self.answered(step, answer),
        }
    }

    pub(super) fn answered(&mut self, step: &mut Step<'_>, answer: Answer) {
        let tickets = &mut self.connection.requests.tickets;
        match answer {
            Answer::Delivered(delivery) => self.delivered(step, &delivery),
            Answer::Appended { ticket } => match tickets.answer(ticket) {
                Some(Waiting::Append { runs, bytes, sent_at, .. }) => {
                    if let Some(sent_at) = sent_at {
                        let took = step.now.saturating_duration_since(sent_at);
                        self.connection.counts.committed(took);
                    }
                    self.logged(step, &runs, bytes, true);
                }
                waiting => self.told(step, waiting, Answer::Appended { ticket }),
            },
            Answer::AppendFailed { ticket } => match tickets.answer(ticket) {
                Some(Waiting::Append { runs, bytes, .. }) => {
                    let is_logged = planted::is("refused_confirmed");
                    self.logged(step, &runs, bytes, is_logged);
                }
                Some(Waiting::Capacity { queue }) => self.capacity_checked(step, queue, None),
                waiting => self.told(step, waiting, Answer::AppendFailed { ticket }),
            },
            Answer::Cancelled { queue, consumer } => {
                let found = self.connection.consumers.find(consumer.number);
                if let Some(at) = found.map(|consumer| consumer.channel)
                    && let Some(channel) = find(&mut self.channels, at)
                {
                    channel.cancelled(&mut self.connection, step, queue, consumer.number);
                }
            }
            Answer::Elected { consumer, generation, .. } => {
                self.connection.consumers.elected(consumer.number, generation);
            }
            Answer::Alarms(_) => {} // The view has them.
            Answer::Admitted { ticket, refused } => {
                if let Some(Waiting::Capacity { queue }) = tickets.answer(ticket) {
                    self.capacity_checked(step, queue, Some(&refused));
                }
            }
            Answer::Leaving(_) => {} // The dead-letter worker's.
            // An operator's.
            Answer::Described { .. } | Answer::Peeked { .. } | Answer::Locked { .. } => {}
            Answer::Withheld { .. } => {}
            Answer::Stopping => {
                let reason = "broker forced connection closure with reason 'shutdown'";
                self.close_forced(step, reason);
            }
            Answer::Catalog { ticket, .. }
            | Answer::Attached { ticket, .. }
            | Answer::Detached { ticket }
            | Answer::Got { ticket, .. }
            | Answer::Purged { ticket, .. }
            | Answer::Status { ticket, .. }
            | Answer::Closed { ticket, .. }
            | Answer::SessionEnded { ticket } => {
                let waiting = tickets.answer(ticket);
                self.told(step, waiting, answer);
            }
        }
    }

    fn logged(
        &mut self,
        step: &mut Step<'_>,
        runs: &[(ChannelRef, u64)],
        bytes: usize,
        is_logged: bool,
    ) {
        self.connection.requests.appends.answered(bytes);
        for &(at, run) in runs {
            self.confirm(step, at, run, is_logged);
        }
    }

    /// A part of a run of publishes is logged, or will not be.
    fn confirm(&mut self, step: &mut Step<'_>, at: ChannelRef, run: u64, is_logged: bool) {
        let Some(channel) = find(&mut self.channels, at) else { return };
        channel.logged(&mut self.connection.publishers.touched, run, is_logged);
        if let Some(spans) = &mut self.connection.spans
            && let Some(is_stored) = channel.outcome(run)
        {
            spans.confirmed(step.now, at, run, is_stored, &mut step.out.spans);
        }
    }

    /// An answer for whoever asked.
    fn told(&mut self, step: &mut Step<'_>, waiting: Option<Waiting>, answer: Answer) {
        if let Some(Waiting::Commit { bytes, .. }) = waiting {
            self.connection.requests.appends.answered(bytes);
        }
        match waiting {
            Some(Waiting::Channel(at) | Waiting::Commit { at, .. }) => {
                let Some(channel) = find(&mut self.channels, at) else { return };
                let result = channel.answered(&mut self.connection, step, answer);
                if channel.state == State::Gone {
                    self.forget(at.number);
                }
                if let Err(failure) = result {
                    self.fail(step, &failure);
                }
            }
            Some(Waiting::Partition { consumer }) => {
                let is_attached = matches!(answer, Answer::Attached { result: Ok(()), .. });
                self.connection.consumers.grown(consumer, is_attached);
                let error = AttachError::NoQueue;
                if matches!(answer, Answer::Attached { result: Err(it), .. } if it == error) {
                    // Its group knows it a moment later: it is asked again at the end of the step.
                    self.catalog_seen = 0;
                }
            }
            Some(Waiting::Elected { consumer, generation }) => {
                let knows = matches!(answer, Answer::Attached { result: Ok(()), .. });
                self.connection.consumers.told(consumer, generation, knows, step.now);
            }
            Some(Waiting::Forget { consumer }) => {
                self.connection.consumers.forget(consumer);
            }
            Some(Waiting::End) => {
                if matches!(self.phase, Phase::Leaving { .. }) {
                    let answer = Method::ConnectionCloseOk(connection::CloseOk);
                    self.connection.client.send(step, 0, &answer);
                    self.over(step);
                }
            }
            Some(Waiting::Append { .. } | Waiting::Capacity { .. }) | None => {}
        }
    }

    fn delivered(&mut self, step: &mut Step<'_>, delivery: &Delivery) {
        let found = self.connection.consumers.find(delivery.consumer.number);
        // Of a consumer that nobody knows the queue is gone, or the whole session.
        let Some(consumer) = found else { return };
        let (at, source) = (consumer.channel, consumer.source);
        let is_wanted = !consumer.is_over;
        match find(&mut self.channels, at) {
            Some(channel) if is_wanted => channel.deliver(&mut self.connection, step, delivery),
            Some(_) | None if consumer.no_ack => {}
            Some(_) | None => {
                let level = source.level(delivery.queue);
                self.connection.requests.hand_back(level, delivery.first_seq, delivery.count);
            }
        }
    }

    pub(super) fn replied(&mut self, step: &mut Step<'_>, reply: &Reply) {
        let mut addresses = self.connection.reply_addresses.iter();
        let Some(&(_, at)) = addresses.find(|(address, _)| *address == reply.address) else {
            return;
        };
        if let Some(channel) = find(&mut self.channels, at) {
            channel.deliver_reply(&mut self.connection, step, reply);
        }
    }

    /// The queue has room for all that was asked about but those at the places in `refused`. None: it cannot
    /// say, and takes none.
    fn capacity_checked(&mut self, step: &mut Step<'_>, queue: QueueId, refused: Option<&[u32]>) {
        let answered = self.connection.requests.capacity.answered(queue);
        let Some((group, messages)) = answered else { return };
        let mut is_refused = vec![refused.is_none(); messages.len()];
        for place in refused.unwrap_or_default() {
            if let Some(is_refused) = is_refused.get_mut(*place as usize) {
                *is_refused = true;
            }
        }
        let found = step.catalog().queue_by_id(queue);
        let overflow = found
            .and_then(machine::Queue::features)
            .map_or(Overflow::RejectPublish, |features| features.overflow);
        for (message, is_refused) in messages.into_iter().zip(is_refused) {
            if is_refused {
                self.connection.counts.refused += 1;
                if overflow == Overflow::RejectPublishDlx && refused.is_some() {
                    forward(&mut self.connection, step, &message);
                }
            }
            match (message.then, is_refused) {
                (Then::Append(run), false) => {
                    let out = &mut step.out.requests;
                    self.connection.requests.append_reserved(out, group, &message, run);
                }
                (Then::Append(Some((at, run))), true) => self.confirm(step, at, run, false),
                (Then::Append(None), true) => {}
                (Then::Commit(at), _) => {
                    let Some(channel) = find(&mut self.channels, at) else { continue };
                    let message = (!is_refused).then_some(&message);
                    let result = channel.reserved(&mut self.connection, step, group, message);
                    if let Err(failure) = result {
                        self.fail(step, &failure);
                    }
                }
            }
        }
    }
}

/// A refused message goes where its queue sends what is dead. Its publisher is told that it was refused,
/// whatever comes of this.
fn forward(connection: &mut ConnectionState, step: &mut Step<'_>, message: &Candidate) {
    let (catalog, time_ms) = (step.catalog(), connection.client.since.ms_at(step.now));
    let mut letter = Forwarded::default();
    let (queue, head) = (message.level.base(), &message.head);
    dead_letter::forward(catalog, queue, Outcome::Overflowed, time_ms, head, &mut letter);
    let (route, out) = (Route::of(&letter.targets), &mut step.out.requests);
    connection.requests.put(out, &route, &letter.asked, &[&letter.head], &message.body, None);
}
