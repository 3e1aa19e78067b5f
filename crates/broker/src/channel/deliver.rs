//! Messages to the client, and its acks: the hot way out.

use amqp::{Method, ReplyCode, basic, encode_deliver};
use bytes::BytesMut;
use cluster::Delivery;
use machine::{Messages, Outcome, QueueId};

use crate::channel::unacked::{Run, Source};
use crate::channel::{Channel, Mode};
use crate::connection::{Trunk, Turn};
use crate::errors::{Failure, unknown_tag};
use crate::headers::{self, Number};
use crate::stored::{destination_texts, split_head};

/// How often a message came back to a queue that counts that.
const DELIVERY_COUNT: &str = "x-delivery-count";

/// A `basic.get` that waits for its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) no_ack: bool,
    /// Its queue is one of those of which RabbitMQ always tells the count.
    pub(crate) is_counted: bool,
}

/// The properties of a message that came back so often before, as RabbitMQ sends them.
fn with_delivery_count(properties: &[u8], returns: u32) -> Option<BytesMut> {
    headers::with_number(properties, DELIVERY_COUNT, Number::I64(returns.into()), true)
}

impl Channel {
    /// Sends what a queue delivered to one of this channel's consumers.
    pub(crate) fn deliver(&mut self, trunk: &mut Trunk, turn: &mut Turn<'_>, delivery: &Delivery) {
        let number = delivery.consumer.number;
        let room = self.room();
        let Some(consumer) = trunk.consumers.find_mut(number) else { return };
        let source = consumer.source.lane(delivery.queue);
        let taken =
            if consumer.no_ack { delivery.count } else { delivery.count.min(room.of(consumer)) };
        let tag = match consumer.no_ack {
            true => self.unacked.pass(taken),
            false if taken == 0 => 0,
            false => self.unacked.add(source, delivery.first_seq, taken),
        };
        trunk.holds_unacked |= !consumer.no_ack;
        let before = turn.out.bytes.len();
        let mut sent = 0;
        for (head, body) in Messages::of(delivery.queue, &delivery.bytes).take(taken as usize) {
            let Some((destination, properties)) = split_head(head) else { break };
            let counted;
            let properties = match delivery.returns {
                0 => properties,
                returns => {
                    counted = with_delivery_count(properties, returns);
                    counted.as_deref().unwrap_or(properties)
                }
            };
            encode_deliver(
                &mut turn.out.bytes,
                trunk.frame_bytes_max,
                self.at.number,
                &consumer.tag_wire,
                tag + u64::from(sent),
                delivery.redelivered,
                destination,
                properties,
                body,
            );
            sent += 1;
        }
        assert_eq!(sent, taken, "a delivery holds as many messages as it says");
        let bytes = turn.out.bytes.len() - before;
        consumer.delivered(delivery.count, taken, bytes as u64);
        trunk.counts.delivered += u64::from(taken);
        trunk.consumers.mark(number);
        if taken < delivery.count {
            let first_seq = delivery.first_seq + u64::from(taken);
            trunk.hand_back(source, first_seq, delivery.count - taken);
        }
    }

    /// `basic.get-ok` or `basic.get-empty`. RabbitMQ tells of a quorum queue's messages how often they came
    /// back even if they never did, but only here.
    pub(crate) fn got(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        delivery: Option<Delivery>,
        ready: u64,
        Fetch { no_ack, is_counted }: Fetch,
    ) {
        let found = delivery.as_ref().and_then(|delivery| {
            let (head, body) = Messages::of(delivery.queue, &delivery.bytes).next()?;
            let (destination, properties) = split_head(head)?;
            Some((delivery, destination, properties, body))
        });
        let Some((delivery, destination, properties, body)) = found else {
            let empty = Method::BasicGetEmpty(basic::GetEmpty);
            return trunk.send(turn, self.at.number, &empty);
        };
        let source = Source {
            group: delivery.group,
            queue: delivery.queue,
            consumer: delivery.consumer.number,
        };
        let delivery_tag = match no_ack {
            true => self.unacked.pass(1),
            false => self.unacked.add(source, delivery.first_seq, 1),
        };
        trunk.holds_unacked |= !no_ack;
        let (exchange, routing_key) = destination_texts(destination);
        let method = Method::BasicGetOk(basic::GetOk {
            delivery_tag,
            redelivered: delivery.redelivered,
            exchange,
            routing_key,
            message_count: u32::try_from(ready).unwrap_or(u32::MAX),
        });
        let counted = match is_counted || delivery.returns > 0 {
            true => with_delivery_count(properties, delivery.returns),
            false => None,
        };
        let properties = counted.as_deref().unwrap_or(properties);
        let mut encoder = trunk.encoder(turn);
        encoder.method(self.at.number, &method);
        encoder.header(self.at.number, body.len() as u64, properties);
        encoder.body(self.at.number, body);
        trunk.counts.got += 1;
    }

    /// `basic.ack`, `basic.nack`, `basic.reject`.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        trunk: &mut Trunk,
        tag: u64,
        multiple: bool,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        if let Mode::Tx(tx) = &mut self.mode {
            return tx.settle(&mut self.unacked, tag, multiple, outcome);
        }
        let was_full = self.unacked.count();
        let counted = |trunk: &mut Trunk, run: Run| {
            trunk.counts.settled += u64::from(run.count);
            trunk.settle(&run, outcome);
        };
        match (tag, multiple) {
            (0, true) => self.unacked.take_all(|run| counted(trunk, run)),
            (_, true) => {
                if !self.unacked.take_through(tag, |run| counted(trunk, run)) {
                    return Err(unknown_tag(tag));
                }
            }
            (_, false) => {
                let run = self.unacked.take(tag).ok_or_else(|| unknown_tag(tag))?;
                counted(trunk, run);
            }
        }
        self.room_came(trunk, was_full);
        Ok(())
    }

    /// Something was settled: who shares a limit with it may be given more.
    pub(crate) fn room_came(&self, trunk: &mut Trunk, was_out: u32) {
        let is_shared = self.prefetch_global > 0 || was_out >= crate::limits::UNACKED_MAX / 2;
        if is_shared {
            self.consumers.values().for_each(|&number| trunk.consumers.mark(number));
        }
    }

    /// Gives everything that is out back to its queues: `Requeue` for `basic.recover`, `Returned` at the
    /// channel's end.
    pub(crate) fn requeue_all(&mut self, trunk: &mut Trunk, outcome: Outcome) {
        self.unacked.take_all(|run| trunk.settle(&run, outcome));
    }

    /// `basic.recover` and `basic.recover-async`.
    pub(crate) fn recover(&mut self, trunk: &mut Trunk, requeue: bool) -> Result<(), Failure> {
        if !requeue {
            return Err(Failure::connection(ReplyCode::NotImplemented, "requeue=false"));
        }
        let was_out = self.unacked.count();
        self.requeue_all(trunk, Outcome::Requeue);
        self.room_came(trunk, was_out);
        Ok(())
    }

    /// The queue of a consumer is gone: the client is told, if it understands.
    pub(crate) fn cancelled(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        queue: QueueId,
        number: u64,
    ) {
        let Some(consumer) = trunk.consumers.find_mut(number) else { return };
        if consumer.source.queue != queue || consumer.is_over {
            return;
        }
        consumer.is_over = true;
        let tag = consumer.tag().to_owned();
        self.consumers.remove(tag.as_str());
        if trunk.capabilities.consumer_cancel_notify {
            let cancel = basic::Cancel { consumer_tag: &tag, no_wait: true };
            trunk.send(turn, self.at.number, &Method::BasicCancel(cancel));
        }
        trunk.consumers.remove(number);
    }
}
