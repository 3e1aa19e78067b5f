//! How a channel ends: the client closes it, or is told why it has to.

use amqp::{Frame, Method, channel};
use machine::Outcome;

use super::caller::{Parts, split};
use super::consume::end_consumer;
use super::publish::Mode;
use super::waiting::Pending;
use super::{CLOSE_OK, Channel, State};
use crate::connection::ConnectionState;
use crate::connection::events::{tell_channel, tell_consumer};
use crate::connection::step::Step;
use crate::connection::tickets::{Groups, Waiting};
use crate::errors::{Failure, Scope};

/// Class and method of `channel.close`.
const CLOSE: (u16, u16) = (20, 40);

impl Channel {
    /// A refusal: of the channel, which is then closed here, or of the connection, which is the
    /// session's to close.
    pub(super) fn refused(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        failure: Failure,
        ids: (u16, u16),
    ) -> Result<(), Failure> {
        match failure.scope {
            Scope::Connection => Err(Failure { ids, ..failure }),
            Scope::Channel => {
                self.fail(connection, step, &failure, ids);
                Ok(())
            }
        }
    }

    /// Closes the channel with an error: `channel.close`, and nothing more until it is answered.
    pub(crate) fn fail(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        failure: &Failure,
        ids: (u16, u16),
    ) {
        connection.counts.channel_errors += 1;
        let close = channel::Close {
            reply_code: failure.error.code.number(),
            reply_text: &failure.error.reply_text(),
            class_id: ids.0,
            method_id: ids.1,
        };
        connection.client.send(step, self.at.number, &Method::ChannelClose(close));
        _ = self.wind_up(connection, step, |consumer| Waiting::Forget { consumer });
        self.state = State::Closing;
    }

    /// The client closes the channel: answered when no delivery can come any more, and what it
    /// published is in its queues.
    pub(super) fn leave(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
    ) -> Option<Pending> {
        let at = self.at;
        let mut unanswered = self.wind_up(connection, step, |_| Waiting::Channel(at));
        connection.requests.flush_appends(&mut step.out.requests);
        if connection.requests.has_unlogged(Groups::All) {
            split(connection, at, step).0.wait_for_appends();
            unanswered += 1;
        }
        if unanswered > 0 {
            return Some(Pending::Leave { unanswered });
        }
        self.left(connection, step);
        None
    }

    pub(super) fn left(&mut self, connection: &mut ConnectionState, step: &mut Step<'_>) {
        connection.consumers.forget_channel(self.at);
        let answer = Method::ChannelCloseOk(channel::CloseOk);
        connection.client.send(step, self.at.number, &answer);
        self.state = State::Gone;
    }

    /// Ends the channel's consumers and gives back what it holds; `waiting` says who is told of a consumer's
    /// end. Gives how many there are, each partition's counted.
    fn wind_up(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        waiting: impl Fn(u64) -> Waiting,
    ) -> usize {
        let (mut caller, parts) = split(connection, self.at, step);
        let caller = &mut caller;
        let Parts { consumers, publishers, reply_addresses, .. } = parts;
        self.publishing.end(publishers);
        self.replies.end(caller, reply_addresses);
        if let Some(tx) = self.work.take_open_tx(&mut self.publishing.mode) {
            tx.roll_back(&mut self.deliveries.unacked, &mut publishers.unfinished);
        }
        let (first, last) = self.deliveries.take_consumers(consumers);
        let count = first.len() + last.len();
        let all = first.iter().chain(&last).filter_map(|number| consumers.find(*number));
        for consumer in all.filter(|consumer| consumer.lead == consumer.source.consumer) {
            tell_consumer(caller.step, caller.client, "consumer.deleted", consumer);
        }
        tell_channel(caller.step, caller.client, "channel.closed", self.at.number);
        for number in first {
            end_consumer(caller, consumers, number, waiting(number));
        }
        self.deliveries.requeue_all(caller, consumers, Outcome::Returned);
        for number in last {
            end_consumer(caller, consumers, number, waiting(number));
        }
        self.publishing.mode = Mode::Plain;
        if let Some(spans) = caller.spans {
            spans.channel_ended(caller.step.now, self.at, &mut caller.step.out.spans);
        }
        self.work.end(&mut publishers.unfinished);
        count
    }

    pub(super) fn frame_while_closing(
        &mut self,
        connection: &ConnectionState,
        step: &mut Step<'_>,
        frame: &Frame<'_>,
    ) {
        let Frame::Method { payload, .. } = frame else { return };
        let ids = Method::peek_ids(payload);
        if ids == Some(CLOSE_OK) {
            self.state = State::Gone;
        } else if ids == Some(CLOSE) {
            // Both closed at once: the other's answer is still to come.
            let answer = Method::ChannelCloseOk(channel::CloseOk);
            connection.client.send(step, self.at.number, &answer);
        }
    }
}
