//! `basic.get`: one message on request.

use amqp::{Method, basic};
use bytes::BytesMut;
use cluster::{Delivery, Request};
use machine::{Messages, Partition, QueueType};

use super::caller::Caller;
use super::deliver::with_delivery_count;
use super::offset;
use super::topology::{Topology, usable_queue};
use super::unacked::{Source, Unacked};
use crate::auth::Verb;
use crate::connection::ack_timeout::AckTimeout;
use crate::connection::consumers::Consumers;
use crate::errors::{Failure, not_of_streams};
use crate::passing::Passing;
use crate::stored::{destination_texts, split_head};
use crate::tap::{self, Handed};

/// A `basic.get` that waits for its message.
#[derive(Debug)]
pub(crate) struct Fetch {
    no_ack: bool,
    /// Its queue is one of those of which RabbitMQ always tells the count.
    is_counted: bool,
    /// Of a queue with several partitions those that are asked next.
    left: Vec<(Partition, u16)>,
    /// The one that was asked, if its queue has several.
    partition: Option<u16>,
    has_several: bool,
}

/// Asks the queue for a message.
pub(crate) fn get(
    caller: &mut Caller<'_, '_>,
    unacked: &mut Unacked,
    topology: &Topology,
    consumers: &mut Consumers,
    ack_timeout: &mut AckTimeout,
    get: &basic::Get<'_>,
) -> Result<Fetch, Failure> {
    let queue = topology.queue_name(get.queue)?;
    caller.allow(Verb::Read { queue: &queue })?;
    let queue = usable_queue(caller, &queue)?;
    if queue.queue_type() == QueueType::Stream {
        return Err(not_of_streams("basic.get", &queue.name, &caller.client.vhost));
    }
    ack_timeout.expect(&caller.client.config, queue);
    let mut left: Vec<(Partition, u16)> = queue.partitions().zip(0..).collect();
    // Each message moves the partition on with which the next one begins.
    let turn = unacked.next_tag() as usize % left.len();
    left.rotate_left(turn);
    left.reverse();
    let is_counted = queue.queue_type() == QueueType::Quorum;
    let number = unacked.fetcher(|| consumers.draw());
    let (no_ack, has_several) = (get.no_ack, left.len() > 1);
    let mut fetch = Fetch { no_ack, is_counted, left, partition: None, has_several };
    fetch.ask(caller, number);
    Ok(fetch)
}

impl Fetch {
    /// Asks the next partition. False: there is none.
    fn ask(&mut self, caller: &mut Caller<'_, '_>, fetcher: u64) -> bool {
        let Some((Partition { queue, group, .. }, index)) = self.left.pop() else { return false };
        self.partition = self.has_several.then_some(index);
        let (consumer, no_ack) = (caller.client.consumer_id(fetcher), self.no_ack);
        caller.ask_after_appends(group, |ticket| Request::Get {
            ticket,
            group,
            queue,
            consumer,
            no_ack,
            at: None,
        });
        true
    }

    /// `basic.get-ok` or `basic.get-empty`. RabbitMQ tells of a quorum queue's messages how often they came
    /// back even if they never did, but only here.
    ///
    /// An empty partition is not the end while there are others: gives what is waited for then.
    pub(crate) fn got(
        mut self,
        caller: &mut Caller<'_, '_>,
        unacked: &mut Unacked,
        ack_timeout: &mut AckTimeout,
        delivery: Option<&Delivery>,
        ready: u64,
    ) -> Option<Self> {
        let Self { no_ack, is_counted, .. } = self;
        let fetcher = unacked.fetcher(|| unreachable!("it was drawn for the question"));
        let found = delivery.and_then(|delivery| {
            let (head, body) = Messages::of(delivery.store, &delivery.bytes).next()?;
            let (destination, properties) = split_head(head)?;
            Some((delivery, destination, properties, body))
        });
        let Some((delivery, destination, properties, body)) = found else {
            if self.ask(caller, fetcher) {
                return Some(self);
            }
            caller.counts.got_none += 1;
            caller.send(&Method::BasicGetEmpty(basic::GetEmpty));
            return None;
        };
        let source = Source {
            group: delivery.group,
            queue: delivery.queue,
            consumer: delivery.consumer.number,
        };
        let delivery_tag = match no_ack {
            true => unacked.pass(1),
            false => unacked.add(source, delivery.first_seq, 1),
        };
        ack_timeout.holds_unacked |= !no_ack;
        let (exchange, routing_key) = destination_texts(destination);
        let method = Method::BasicGetOk(basic::GetOk {
            delivery_tag,
            redelivered: delivery.redelivered,
            exchange,
            routing_key,
            message_count: u32::try_from(ready).unwrap_or(u32::MAX),
        });
        let mut numbered = BytesMut::new();
        let properties = match delivery.store == delivery.queue {
            true => properties,
            false => offset::told(&mut numbered, properties, delivery.first_seq, self.partition),
        };
        let counted = match is_counted || delivery.returns > 0 {
            true => with_delivery_count(properties, delivery.returns),
            false => None,
        };
        let properties = counted.as_deref().unwrap_or(properties);
        if caller.step.is_tapped {
            let passing = Passing { destination, properties, body };
            let handed = Handed {
                is_asked: true,
                queue: delivery.queue,
                tag: delivery_tag,
                no_ack,
                redelivered: delivery.redelivered,
            };
            tap::handed(caller, handed, passing);
        }
        let number = caller.at.number;
        let mut encoder = caller.encoder();
        encoder.method(number, &method);
        encoder.header(number, body.len() as u64, properties);
        encoder.body(number, body);
        caller.counts.got(no_ack, delivery.redelivered);
        None
    }
}
