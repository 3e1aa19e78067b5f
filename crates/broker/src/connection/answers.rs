//! What the cluster says, for the channel that asked.

use amqp::{Method, connection};
use cluster::{Answer, Delivery};

use crate::channel::State;
use crate::connection::Turn;
use crate::connection::tickets::{ChannelRef, Waiting};
use crate::session::{Phase, Reply, Session, find};

impl Session {
    pub(crate) fn answered(&mut self, turn: &mut Turn<'_>, answer: Answer) {
        match answer {
            Answer::Delivered(delivery) => self.delivered(turn, &delivery),
            Answer::Appended { ticket } => match self.trunk.tickets.answer(ticket) {
                Some(Waiting::Append { runs, bytes, .. }) => self.logged(&runs, bytes, true),
                waiting => self.told(turn, waiting, Answer::Appended { ticket }),
            },
            Answer::AppendFailed { ticket } => match self.trunk.tickets.answer(ticket) {
                Some(Waiting::Append { runs, bytes, .. }) => self.logged(&runs, bytes, false),
                Some(Waiting::Admit { queue }) => self.admitted(turn, queue, None),
                waiting => self.told(turn, waiting, Answer::AppendFailed { ticket }),
            },
            Answer::Cancelled { queue, consumer } => {
                let found = self.trunk.consumers.find(consumer.number);
                if let Some(at) = found.map(|consumer| consumer.channel)
                    && let Some(channel) = find(&mut self.channels, at)
                {
                    channel.cancelled(&mut self.trunk, turn, queue, consumer.number);
                }
            }
            Answer::Alarms(_) => {} // The view has them.
            Answer::Admitted { ticket, refused } => {
                if let Some(Waiting::Admit { queue }) = self.trunk.tickets.answer(ticket) {
                    self.admitted(turn, queue, Some(&refused));
                }
            }
            Answer::Leaving(_) => {} // The dead-letter worker's.
            Answer::Stopping => {
                let reason = "broker forced connection closure with reason 'shutdown'";
                self.close_forced(turn, reason);
            }
            Answer::Catalog { ticket, .. }
            | Answer::Attached { ticket, .. }
            | Answer::Detached { ticket }
            | Answer::Got { ticket, .. }
            | Answer::Purged { ticket, .. }
            | Answer::Status { ticket, .. }
            | Answer::Closed { ticket, .. }
            | Answer::SessionEnded { ticket } => {
                let waiting = self.trunk.tickets.answer(ticket);
                self.told(turn, waiting, answer);
            }
        }
    }

    fn logged(&mut self, runs: &[(ChannelRef, u64)], bytes: usize, is_logged: bool) {
        self.trunk.appends.unlogged_bytes -= bytes;
        for &(at, run) in runs {
            self.confirm(at, run, is_logged);
        }
    }

    /// An answer for whoever asked.
    fn told(&mut self, turn: &mut Turn<'_>, waiting: Option<Waiting>, answer: Answer) {
        if let Some(Waiting::Commit { bytes, .. }) = waiting {
            self.trunk.appends.unlogged_bytes -= bytes;
        }
        match waiting {
            Some(Waiting::Channel(at) | Waiting::Commit { at, .. }) => {
                let Some(channel) = find(&mut self.channels, at) else { return };
                let result = channel.answered(&mut self.trunk, turn, answer);
                if channel.state == State::Gone {
                    self.forget(at.number);
                }
                if let Err(failure) = result {
                    self.fail(turn, &failure);
                }
            }
            Some(Waiting::Forget { consumer }) => {
                self.trunk.consumers.remove(consumer);
            }
            Some(Waiting::End) => {
                if matches!(self.phase, Phase::Leaving { .. }) {
                    let answer = Method::ConnectionCloseOk(connection::CloseOk);
                    self.trunk.send(turn, 0, &answer);
                    self.over(turn);
                }
            }
            Some(Waiting::Append { .. } | Waiting::Admit { .. }) | None => {}
        }
    }

    fn delivered(&mut self, turn: &mut Turn<'_>, delivery: &Delivery) {
        let found = self.trunk.consumers.find(delivery.consumer.number);
        // Of a consumer that nobody knows the queue is gone, or the whole session.
        let Some(consumer) = found else { return };
        let (at, source) = (consumer.channel, consumer.source);
        let is_wanted = !consumer.is_over;
        match find(&mut self.channels, at) {
            Some(channel) if is_wanted => channel.deliver(&mut self.trunk, turn, delivery),
            Some(_) | None if consumer.no_ack => {}
            Some(_) | None => {
                let lane = source.lane(delivery.queue);
                self.trunk.hand_back(lane, delivery.first_seq, delivery.count);
            }
        }
    }

    pub(crate) fn replied(&mut self, turn: &mut Turn<'_>, reply: &Reply) {
        let mut addresses = self.trunk.reply_addresses.iter();
        let Some(&(_, at)) = addresses.find(|(address, _)| *address == reply.address) else {
            return;
        };
        if let Some(channel) = find(&mut self.channels, at) {
            channel.deliver_reply(&mut self.trunk, turn, reply);
        }
    }
}
