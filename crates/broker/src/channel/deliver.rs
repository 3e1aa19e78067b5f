//! The hot way out: messages to the client, and its acks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use amqp::{Method, ReplyCode, basic, encode_deliver};
use bytes::BytesMut;
use cluster::Delivery;
use machine::{Catalog, Messages, Outcome, QueueId};

use super::ack_timeout::Marks;
use super::caller::Caller;
use super::offset;
use super::publish::Mode;
use super::unacked::{Run, Unacked};
use crate::config::Config;
use crate::connection::ack_timeout::{AckTimeout, timeout_of};
use crate::connection::consumers::{ChannelRoom, Consumers};
use crate::connection::events::tell_consumer;
use crate::errors::{Failure, not_of_streams, unknown_tag};
use crate::headers::{self, Number};
use crate::limits;
use crate::passing::Passing;
use crate::stored::split_head;
use crate::tap::{self, Handed};

/// How often a message came back to a queue that counts that.
const DELIVERY_COUNT: &str = "x-delivery-count";

/// A channel as a consumer.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// Consumer tags and the session's numbers for them.
    pub(super) tags: BTreeMap<String, u64>,
    pub(crate) unacked: Unacked,
    ages: Marks,
    /// For the next consumers; 0 is no limit.
    pub(super) prefetch: u32,
    /// For all consumers together; 0 is no limit.
    pub(super) prefetch_global: u32,
    has_said_full: bool,
}

/// The properties of a message that came back so often before, as RabbitMQ sends them.
pub(super) fn with_delivery_count(properties: &[u8], returns: u32) -> Option<BytesMut> {
    headers::with_number(properties, DELIVERY_COUNT, Number::I64(returns.into()), true)
}

impl Deliveries {
    /// Sends what a queue delivered to one of this channel's consumers.
    pub(crate) fn deliver(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        ack_timeout: &mut AckTimeout,
        delivery: &Delivery,
    ) {
        let number = delivery.consumer.number;
        let Some(consumer) = consumers.find(number) else { return };
        let (source, is_auto_ack) = (consumer.source.level(delivery.queue), consumer.no_ack);
        let (is_reading, takes_all) = (consumer.is_reading, consumer.no_ack || consumer.is_reading);
        let is_of_stream = is_reading || delivery.store != delivery.queue;
        let taken = match takes_all {
            true => delivery.count,
            false if consumer.is_returning() => 0,
            false => delivery.count.min(self.room().of(consumer)).min(consumers.room_of(consumer)),
        };
        let tag = match consumer.no_ack {
            true => self.unacked.pass(taken),
            false if taken == 0 => 0,
            false => self.unacked.add(source, delivery.first_seq, taken),
        };
        ack_timeout.holds_unacked |= !consumer.no_ack;
        let before = caller.step.out.bytes.len();
        let is_tapped = caller.step.is_tapped;
        let mut sent = 0;
        let mut numbered = BytesMut::new();
        for (head, body) in Messages::of(delivery.store, &delivery.bytes).take(taken as usize) {
            let Some((destination, properties)) = split_head(head) else { break };
            let counted;
            let properties = if is_of_stream {
                let seq = delivery.first_seq + u64::from(sent);
                offset::told(&mut numbered, properties, seq, consumer.partition)
            } else {
                properties
            };
            let properties = match delivery.returns {
                0 => properties,
                returns => {
                    counted = with_delivery_count(properties, returns);
                    counted.as_deref().unwrap_or(properties)
                }
            };
            if is_tapped {
                let passing = Passing { destination, properties, body };
                let handed = Handed {
                    is_asked: false,
                    queue: delivery.queue,
                    tag: tag + u64::from(sent),
                    no_ack: is_auto_ack,
                    redelivered: delivery.redelivered,
                };
                tap::handed(caller, handed, passing);
            }
            encode_deliver(
                &mut caller.step.out.bytes,
                caller.client.frame_bytes_max,
                caller.at.number,
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
        let bytes = caller.step.out.bytes.len() - before;
        consumers.delivered(number, delivery.count, taken, bytes as u64);
        caller.counts.delivered(taken, is_auto_ack, delivery.redelivered);
        if taken < delivery.count {
            let first_seq = delivery.first_seq + u64::from(taken);
            caller.requests.hand_back(source, first_seq, delivery.count - taken);
        }
    }

    /// `basic.ack`, `basic.nack`, `basic.reject`.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        mode: &mut Mode,
        (tag, multiple): (u64, bool),
        outcome: Outcome,
    ) -> Result<(), Failure> {
        if outcome != Outcome::Done {
            self.check_refusable(caller, tag, multiple)?;
        }
        if let Mode::Tx(tx) = mode {
            return tx.settle(&mut self.unacked, tag, multiple, outcome);
        }
        let was_full = self.unacked.count();
        let counted = |caller: &mut Caller<'_, '_>, consumers: &mut Consumers, run: Run| {
            caller.counts.settled(run.count, outcome);
            caller.settle(consumers, &run, outcome);
        };
        match (tag, multiple) {
            (0, true) => self.unacked.take_all(|run| counted(caller, consumers, run)),
            (_, true) => {
                if !self.unacked.take_through(tag, |run| counted(caller, consumers, run)) {
                    return Err(unknown_tag(tag));
                }
            }
            (_, false) => {
                let run = self.unacked.take(tag).ok_or_else(|| unknown_tag(tag))?;
                counted(caller, consumers, run);
            }
        }
        self.room_came(consumers, was_full);
        Ok(())
    }

    /// What a stream gave is not given back or thrown away.
    fn check_refusable(
        &self,
        caller: &Caller<'_, '_>,
        tag: u64,
        multiple: bool,
    ) -> Result<(), Failure> {
        let is_meant = |run: &&Run| match (tag, multiple) {
            (0, true) => true,
            (_, true) => run.first_tag <= tag,
            (_, false) => (run.first_tag..run.first_tag + u64::from(run.count)).contains(&tag),
        };
        let mut meant = self.unacked.runs().filter(is_meant);
        match meant.find(|run| caller.is_of_stream(run)) {
            None => Ok(()),
            Some(run) => Err(refused_by_stream(caller, "basic.nack and basic.reject", run)),
        }
    }

    /// Something was settled: who shares a limit with it may be given more.
    fn room_came(&self, consumers: &mut Consumers, was_out: u32) {
        if self.prefetch_global > 0 || was_out >= limits::UNACKED_MAX / 2 {
            self.mark_all(consumers);
        }
    }

    /// The credit of all consumers of the channel is looked at again.
    pub(super) fn mark_all(&self, consumers: &mut Consumers) {
        self.tags.values().for_each(|&number| consumers.mark(number));
    }

    /// Gives everything that is out back to its queues: `Requeue` for `basic.recover`, `Returned` at the
    /// channel's end.
    pub(crate) fn requeue_all(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        outcome: Outcome,
    ) {
        self.unacked.take_all(|run| caller.settle(consumers, &run, outcome));
    }

    /// `basic.recover` and `basic.recover-async`.
    pub(crate) fn recover(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        requeue: bool,
    ) -> Result<(), Failure> {
        if !requeue {
            return Err(Failure::connection(ReplyCode::NotImplemented, "requeue=false"));
        }
        if let Some(run) = self.unacked.runs().find(|run| caller.is_of_stream(run)) {
            return Err(refused_by_stream(caller, "basic.recover", run));
        }
        let was_out = self.unacked.count();
        self.requeue_all(caller, consumers, Outcome::Requeue);
        self.room_came(consumers, was_out);
        Ok(())
    }

    /// The queue of a consumer is gone: the client is told, if it understands.
    pub(crate) fn cancelled(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        queue: QueueId,
        number: u64,
    ) {
        let Some(consumer) = consumers.find(number) else { return };
        if consumer.source.queue != queue || consumer.is_over {
            return;
        }
        let (lead, tag) = (consumer.lead, consumer.tag().to_owned());
        for member in consumers.members(lead) {
            if let Some(consumer) = consumers.find_mut(member) {
                consumer.is_over = true;
            }
        }
        self.tags.remove(tag.as_str());
        if caller.client.capabilities.consumer_cancel_notify {
            let cancel = basic::Cancel { consumer_tag: &tag, no_wait: true };
            caller.send(&Method::BasicCancel(cancel));
        }
        if let Some(consumer) = consumers.remove(lead) {
            tell_consumer(caller.step, caller.client, "consumer.deleted", &consumer);
        }
    }

    /// What this channel's consumers may still be given.
    pub(crate) fn room(&self) -> ChannelRoom {
        ChannelRoom {
            prefetch: self.prefetch_global,
            consumed: self.unacked.consumed(),
            unacked: self.unacked.count(),
        }
    }

    /// Says once that a consumer without a prefetch gets nothing more until it acknowledges.
    pub(crate) fn say_if_full(&mut self, peer: SocketAddr, number: u16) {
        let is_full = self.unacked.count() >= limits::UNACKED_MAX && self.prefetch_global == 0;
        if is_full && !self.has_said_full {
            self.has_said_full = true;
            tracing::warn!(
                %peer,
                channel = number,
                unacknowledged = self.unacked.count(),
                "a channel holds as many unacknowledged messages as it may: its consumers without \
                 a prefetch get no more until some are acknowledged. Let the client acknowledge, \
                 or set a prefetch (basic.qos)"
            );
        }
    }

    /// Looks how long messages are out, and gives the time that one has exceeded. `now` counts from when the
    /// connection began.
    pub(crate) fn exceeded(
        &mut self,
        now: Duration,
        config: &Config,
        catalog: &Catalog,
    ) -> Option<Duration> {
        let timeout = |queue| timeout_of(config, catalog.queue_by_id(queue));
        self.ages.look(now, &self.unacked, timeout)
    }

    /// Since when consumers hold their oldest messages at least, by their numbers. `None`: since the last look, or for
    /// longer than is looked for. Times count from when the connection began.
    pub(crate) fn held_since(&self) -> BTreeMap<u64, Option<Duration>> {
        let mut oldest = BTreeMap::new();
        for run in self.unacked.runs().take(limits::DESCRIBED_RUNS_MAX) {
            oldest.entry(run.source.consumer).or_insert_with(|| self.ages.out_since(run.first_tag));
        }
        oldest
    }

    /// Since when each of these messages is out with this consumer, or was fetched in its name: by queue and number, in
    /// order. As for [`Self::held_since`]; what is not found in time is not told.
    pub(crate) fn messages_held_since(
        &self,
        consumer: u64,
        messages: &BTreeSet<(QueueId, u64)>,
        mut told: impl FnMut((QueueId, u64), Duration),
    ) {
        let runs = self.unacked.runs().take(limits::DESCRIBED_RUNS_MAX);
        for run in runs.filter(|run| run.source.consumer == consumer) {
            // What came since the last mark is behind all that came before.
            if self.ages.out_since(run.first_tag).is_none() {
                return;
            }
            let (queue, first) = (run.source.queue, run.first_seq);
            for (queue, seq) in
                messages.range((queue, first)..(queue, first + u64::from(run.count)))
            {
                if let Some(since) = self.ages.out_since(run.first_tag + (seq - first)) {
                    told((*queue, *seq), since);
                }
            }
        }
    }

    /// The consumers of a channel at its end: those that go before what it holds is given back, and those that go
    /// after.
    ///
    /// None of them is to get again what is given back, so they go first. Only where one consumer is served
    /// at a time its messages go before it: or the next would begin with those behind them. Those of its channel that
    /// are to be served after it go first all the same: they hold nothing, and must not be that next one.
    pub(crate) fn take_consumers(&mut self, consumers: &Consumers) -> (Vec<u64>, Vec<u64>) {
        let all = std::mem::take(&mut self.tags).into_values();
        let all = all.flat_map(|lead| consumers.members(lead));
        let holders: BTreeSet<u64> = self.unacked.runs().map(|run| run.source.consumer).collect();
        let is_first = |number: &u64| {
            let found = consumers.find(*number);
            let is_single = found.filter(|consumer| consumer.is_single_active && !consumer.no_ack);
            is_single.is_none_or(|consumer| !holders.contains(&consumer.source.consumer))
        };
        all.partition(is_first)
    }

    /// Consumers of the channel, as the client counts them.
    pub(crate) fn consumer_count(&self) -> usize {
        self.tags.len()
    }

    /// The session's numbers for them, in the order of their tags.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = u64> {
        self.tags.values().copied()
    }

    /// The session's number for the consumer with that tag.
    pub(crate) fn consumer(&self, tag: &str) -> Option<u64> {
        self.tags.get(tag).copied()
    }

    /// For each of the next consumers, and for all together.
    pub(crate) fn prefetch(&self) -> (u32, u32) {
        (self.prefetch, self.prefetch_global)
    }
}

/// What cannot be done with a message of a stream.
fn refused_by_stream(caller: &Caller<'_, '_>, what: &str, run: &Run) -> Failure {
    let queue = caller.catalog().queue_by_id(run.source.queue);
    let name = queue.map_or("", |queue| queue.name.as_str());
    not_of_streams(what, name, &caller.client.vhost)
}
