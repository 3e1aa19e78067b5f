//! `basic.qos`, `consume` and `cancel`.

use amqp::{Method, ReplyCode, basic};
use cluster::Request;
use machine::limits::CONSUMER_WEIGHT_MAX;
use machine::{AttachError, ConsumerSpec, Partition, Queue, QueueType, StreamOffset, Weight};

use super::caller::Caller;
use super::deliver::Deliveries;
use super::direct_reply_to::{REPLY_TO, Replies};
use super::topology::{Topology, usable_queue};
use super::unacked::Source;
use super::{offset, partition};
use crate::auth::Verb;
use crate::connection::ReplyAddresses;
use crate::connection::ack_timeout::AckTimeout;
use crate::connection::consumers::Consumers;
use crate::connection::events::tell_consumer;
use crate::connection::names::Names;
use crate::connection::tickets::Waiting;
use crate::errors::{
    Failure, exclusive_use, invalid_argument, no_queue, not_done, not_of_streams, precondition,
};
use crate::values::type_name;

/// Of a consumer of partitions that are assigned.
const WEIGHT: &str = "x-weight";

/// A consumer whose queue is asked to serve it, one partition after another.
#[derive(Debug)]
pub(crate) struct Attaching {
    /// The consumer that leads.
    number: u64,
    queue: String,
    no_wait: bool,
    spec: ConsumerSpec,
    /// The consumers of partitions: those before `next` were asked for.
    members: Vec<u64>,
    next: usize,
}

/// A consumer whose queue is told to serve it no more, one partition after another.
#[derive(Debug)]
pub(crate) struct Detaching {
    number: u64,
    tag: String,
    no_wait: bool,
    /// The consumers of partitions that are not told yet.
    left: Vec<u64>,
}

/// What `basic.consume` may touch beside its caller and its own part.
pub(crate) struct Shared<'a> {
    pub(crate) names: &'a mut Names,
    pub(crate) addresses: &'a mut ReplyAddresses,
    pub(crate) consumers: &'a mut Consumers,
    pub(crate) ack_timeout: &'a mut AckTimeout,
}

impl Deliveries {
    pub(crate) fn qos(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        qos: &basic::Qos,
    ) -> Result<(), Failure> {
        if qos.prefetch_size != 0 {
            let text = format!("prefetch_size!=0 ({})", qos.prefetch_size);
            return Err(Failure::connection(ReplyCode::NotImplemented, text));
        }
        if qos.global {
            self.prefetch_global = qos.prefetch_count.into();
            self.mark_all(consumers);
        } else {
            self.prefetch = qos.prefetch_count.into();
            // As in RabbitMQ, a limit for consumers lifts that of the channel: whoever wants both
            // asks for the channel's last.
            if std::mem::take(&mut self.prefetch_global) > 0 {
                self.mark_all(consumers);
            }
        }
        caller.send(&Method::BasicQosOk(basic::QosOk));
        Ok(())
    }

    pub(crate) fn consume(
        &mut self,
        caller: &mut Caller<'_, '_>,
        topology: &Topology,
        replies: &mut Replies,
        shared: Shared<'_>,
        consume: &basic::Consume<'_>,
    ) -> Result<Option<Attaching>, Failure> {
        let Shared { names, addresses, consumers, ack_timeout } = shared;
        let tag = match consume.consumer_tag {
            "" => names.draw("amq.ctag-"),
            tag => tag.to_owned(),
        };
        if consume.queue == REPLY_TO {
            replies.consume(caller, names, addresses, consume, &tag)?;
            return Ok(None);
        }
        if replies.has_tag(&tag) || self.tags.contains_key(&tag) {
            let text = format!("attempt to reuse consumer tag '{tag}'");
            return Err(Failure::connection(ReplyCode::NotAllowed, text));
        }
        let queue = topology.queue_name(consume.queue)?;
        caller.allow(Verb::Read { queue: &queue })?;
        let found = usable_queue(caller, &queue)?;
        let partitions = partitions(caller, found, consume)?;
        let start = match found.queue_type() {
            QueueType::Stream => Some(self.check_stream(caller, found, &partitions, consume)?),
            QueueType::Classic | QueueType::Quorum | QueueType::Subscription => {
                self.check(caller, found, consume)?;
                None
            }
        };
        let max = caller.client.config.consumers_per_channel_max;
        if self.tags.len() >= max {
            let text = format!("reached maximum ({max}) of consumers per channel");
            return Err(precondition(text));
        }
        let priority = if start.is_some() { 0 } else { priority(caller, &queue, consume)? };
        ack_timeout.expect(&caller.client.config, found);
        let weight = weight(caller, found, consume)?;
        let how = How { priority, start, weight };
        let has_several = found.partition_count() > 1;
        Ok(Some(match has_several {
            false => self.attach(caller, consumers, found, tag, how, consume),
            true => self.attach_all(caller, consumers, (found, &partitions), tag, how, consume),
        }))
    }

    /// Asks the queue to serve a new consumer.
    fn attach(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        queue: &Queue,
        tag: String,
        how: How,
        consume: &basic::Consume<'_>,
    ) -> Attaching {
        let may_grow = matches!(queue.queue_type(), QueueType::Stream | QueueType::Subscription);
        let number = if may_grow { consumers.draw_row() } else { consumers.draw() };
        let source = Source { group: queue.group, queue: queue.id, consumer: number };
        let room = self.room();
        let credit = consumers.add(caller.at, &tag, source, consume.no_ack, self.prefetch, room);
        self.tags.insert(tag, number);
        let spec = spec_of(credit, how, consume);
        if let Some(consumer) = consumers.find_mut(number) {
            consumer.is_single_active = is_single_active(queue);
            consumer.is_one_of_all = is_one_of_all(queue);
            consumer.is_reading = how.start.is_some();
            consumer.spec = spec;
            consumer.takes_all = consume.arguments.find(partition::NAME).is_none();
        }
        if is_measured(queue, how, consume) {
            consumers.measure(number, caller.step.now);
        }
        ask_to_attach(caller, source, spec);
        let (queue, no_wait) = (queue.name.clone(), consume.no_wait);
        Attaching { number, queue, no_wait, spec, members: vec![number], next: 1 }
    }

    /// Asks the first of several partitions to serve a new consumer. It gets credit once all of them do.
    fn attach_all(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        (queue, partitions): (&Queue, &[(Partition, u16)]),
        tag: String,
        how: How,
        consume: &basic::Consume<'_>,
    ) -> Attaching {
        let (no_ack, limit) = (consume.no_ack, self.prefetch);
        let number = consumers.add_partitions(caller.at, &tag, partitions, no_ack, limit);
        let spec = spec_of(0, how, consume);
        let takes_all = consume.arguments.find(partition::NAME).is_none();
        self.tags.insert(tag, number);
        let members = consumers.members(number);
        for member in &members {
            if let Some(consumer) = consumers.find_mut(*member) {
                consumer.is_single_active = is_single_active(queue);
                consumer.is_one_of_all = is_one_of_all(queue);
                consumer.is_reading = how.start.is_some();
                (consumer.spec, consumer.takes_all) = (spec, takes_all);
            }
        }
        if is_measured(queue, how, consume) {
            consumers.measure(number, caller.step.now);
        }
        if let Some(first) = consumers.find(number) {
            ask_to_attach(caller, first.source, spec);
        }
        let queue = queue.name.clone();
        Attaching { number, queue, no_wait: consume.no_wait, spec, members, next: 1 }
    }

    /// What some kinds of queues do not let be consumed.
    fn check(
        &self,
        caller: &Caller<'_, '_>,
        queue: &Queue,
        consume: &basic::Consume<'_>,
    ) -> Result<(), Failure> {
        let (name, vhost) = (queue.name.as_str(), &caller.client.vhost);
        if consume.arguments.find(offset::NAME).is_some() {
            return Err(not_of_type(caller, queue, offset::NAME));
        }
        if self.prefetch_global > 0 && queue.queue_type() == QueueType::Quorum {
            let text = format!("queue '{name}' in vhost '{vhost}' does not support global qos");
            return Err(Failure::connection(ReplyCode::NotImplemented, text));
        }
        if consume.exclusive && is_single_active(queue) {
            return Err(exclusive_use(name, vhost));
        }
        Ok(())
    }

    /// What a stream does not let be consumed, in RabbitMQ's order. Gives where it begins.
    fn check_stream(
        &self,
        caller: &Caller<'_, '_>,
        queue: &Queue,
        partitions: &[(Partition, u16)],
        consume: &basic::Consume<'_>,
    ) -> Result<StreamOffset, Failure> {
        let vhost = &caller.client.vhost;
        let named = format!("queue '{}' in vhost '{vhost}'", queue.name);
        let start = match consume.arguments.find(offset::NAME) {
            None => StreamOffset::Next,
            Some(value) => offset::of(&value).map_err(|told| {
                let problem = format!(": {{invalid_stream_offset_arg,{told}}}");
                invalid(caller, &queue.name, offset::NAME, &problem)
            })?,
        };
        for argument in ["x-priority", "x-cancel-on-ha-failover"] {
            if consume.arguments.find(argument).is_some() {
                return Err(not_of_type(caller, queue, argument));
            }
        }
        if self.prefetch == 0 {
            return Err(precondition(format!("consumer prefetch count is not set for '{named}'")));
        }
        if self.prefetch_global > 0 {
            let text = format!("{named} does not support global qos");
            return Err(Failure::connection(ReplyCode::NotImplemented, text));
        }
        if partitions.len() > 1 && matches!(start, StreamOffset::At(_)) {
            let problem = ": an offset is of one partition, which x-partition names";
            return Err(invalid(caller, &queue.name, offset::NAME, problem));
        }
        if (self.prefetch as usize) < partitions.len() {
            let count = partitions.len();
            let text =
                format!("{named} has {count} partitions: the prefetch count is to be no less");
            return Err(precondition(text));
        }
        if consume.no_ack {
            return Err(not_of_streams("automatic acknowledgement", &queue.name, vhost));
        }
        Ok(start)
    }

    /// A partition serves the consumer, or does not. Gives what is waited for next.
    pub(crate) fn attached(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        mut attaching: Attaching,
        result: Result<(), AttachError>,
    ) -> Result<Option<Attaching>, Failure> {
        if let Err(error) = result {
            return Err(self.not_attached(caller, consumers, &attaching, error));
        }
        let Attaching { number, no_wait, spec, ref members, next, .. } = attaching;
        let source = members.get(next).and_then(|member| consumers.find(*member));
        if let Some(source) = source.map(|consumer| consumer.source) {
            ask_to_attach(caller, source, spec);
            attaching.next += 1;
            return Ok(Some(attaching));
        }
        consumers.attached(number);
        if let Some(consumer) = consumers.find(number) {
            tell_consumer(caller.step, caller.client, "consumer.created", consumer);
            let answer = basic::ConsumeOk { consumer_tag: consumer.tag() };
            caller.answer(no_wait, &Method::BasicConsumeOk(answer));
        }
        Ok(None)
    }

    /// The partitions that serve it already are told not to.
    fn not_attached(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        attaching: &Attaching,
        error: AttachError,
    ) -> Failure {
        let Attaching { number, queue, members, next, .. } = attaching;
        self.tags.retain(|_, known| known != number);
        for member in members.iter().take(next.saturating_sub(1)) {
            let consumer = *member;
            end_consumer(caller, consumers, consumer, Waiting::Forget { consumer });
        }
        consumers.remove(*number);
        match error {
            AttachError::NoQueue => no_queue(queue, &caller.client.vhost),
            AttachError::ExclusiveUse => exclusive_use(queue, &caller.client.vhost),
            AttachError::NotLeading => not_done("the consumer"),
        }
    }

    pub(crate) fn cancel(
        &mut self,
        caller: &mut Caller<'_, '_>,
        replies: &mut Replies,
        addresses: &mut ReplyAddresses,
        consumers: &mut Consumers,
        cancel: &basic::Cancel<'_>,
    ) -> Option<Detaching> {
        let tag = cancel.consumer_tag;
        let found = self.tags.get(tag).copied();
        let known = found.and_then(|number| Some((number, consumers.find(number)?.source)));
        let Some((number, source)) = known else {
            if replies.has_tag(tag) {
                replies.end(caller, addresses);
            }
            tell_cancelled(caller, tag, cancel.no_wait);
            return None;
        };
        let waiting = Waiting::Channel(caller.at);
        consumers.end_telling(number);
        ask_to_detach(caller, source, waiting, false);
        let mut left = consumers.members(number);
        left.retain(|member| *member != number);
        Some(Detaching { number, tag: tag.to_owned(), no_wait: cancel.no_wait, left })
    }

    pub(crate) fn detached(
        &mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        mut detaching: Detaching,
    ) -> Option<Detaching> {
        while let Some(member) = detaching.left.pop() {
            if let Some(consumer) = consumers.find(member) {
                ask_to_detach(caller, consumer.source, Waiting::Channel(caller.at), false);
                return Some(detaching);
            }
        }
        let Detaching { number, tag, no_wait, left: _ } = detaching;
        if self.tags.get(&tag) == Some(&number) {
            self.tags.remove(&tag);
        }
        if let Some(consumer) = consumers.remove(number) {
            tell_consumer(caller.step, caller.client, "consumer.deleted", &consumer);
        }
        tell_cancelled(caller, &tag, no_wait);
        None
    }
}

/// Its queue is to serve a consumer no more, and its channel wants no more of it. `waiting` is told of its end.
pub(crate) fn end_consumer(
    caller: &mut Caller<'_, '_>,
    consumers: &mut Consumers,
    number: u64,
    waiting: Waiting,
) {
    if let Some(consumer) = consumers.find_mut(number) {
        consumer.is_over = true;
        ask_to_detach(caller, consumer.source, waiting, true);
    }
}

fn ask_to_attach(caller: &mut Caller<'_, '_>, source: Source, spec: ConsumerSpec) {
    let Source { group, queue, consumer } = source;
    let consumer = caller.client.consumer_id(consumer);
    // As in RabbitMQ it finds what was published before it, and of several priorities the highest first.
    caller.ask_after_appends(group, |ticket| Request::Attach {
        ticket,
        group,
        queue,
        consumer,
        spec,
    });
}

/// What a consumer's arguments say.
#[derive(Clone, Copy)]
struct How {
    priority: i32,
    /// Of a stream: where it begins.
    start: Option<StreamOffset>,
    weight: Weight,
}

fn spec_of(
    credit: u32,
    How { priority, start, weight }: How,
    consume: &basic::Consume<'_>,
) -> ConsumerSpec {
    let (no_ack, exclusive) = (consume.no_ack, consume.exclusive);
    ConsumerSpec {
        credit,
        no_ack,
        exclusive,
        priority,
        start,
        weight,
        generation: 0,
        is_paused: false,
    }
}

/// The partitions that a consumer wants: all, or the one that it names.
fn partitions(
    caller: &Caller<'_, '_>,
    queue: &Queue,
    consume: &basic::Consume<'_>,
) -> Result<Vec<(Partition, u16)>, Failure> {
    let all = || queue.partitions().zip(0u16..).collect();
    let Some(one) = partition::named(caller, queue, consume.arguments)? else { return Ok(all()) };
    if is_one_of_all(queue) && queue.partition_count() > 1 {
        let problem = ": the queue has one active consumer for all partitions";
        return Err(invalid(caller, &queue.name, partition::NAME, problem));
    }
    if is_assigned(queue) {
        let problem = ": the queue assigns its partitions to its consumers";
        return Err(invalid(caller, &queue.name, partition::NAME, problem));
    }
    Ok(vec![one])
}

fn ask_to_detach(caller: &mut Caller<'_, '_>, source: Source, waiting: Waiting, takes_back: bool) {
    let consumer = caller.client.consumer_id(source.consumer);
    caller.ask_as(waiting, |ticket| Request::Detach {
        ticket,
        group: source.group,
        queue: source.queue,
        consumer,
        takes_back,
    });
}

fn tell_cancelled(caller: &mut Caller<'_, '_>, tag: &str, no_wait: bool) {
    let answer = basic::CancelOk { consumer_tag: tag };
    caller.answer(no_wait, &Method::BasicCancelOk(answer));
}

/// An argument that this type of queue does not know.
fn not_of_type(caller: &Caller<'_, '_>, queue: &Queue, argument: &str) -> Failure {
    let queue_type = queue.queue_type().name();
    let problem = format!(" of queue type rabbit_{queue_type}_queue");
    invalid(caller, &queue.name, argument, &problem)
}

/// Whether one consumer at a time is served, by each of its partitions if there are several.
fn is_single_active(queue: &Queue) -> bool {
    let features = queue.features();
    features.is_some_and(|features| features.single_active || features.assignment.is_some())
}

/// Whether one consumer is active for all partitions that there are or will be.
fn is_one_of_all(queue: &Queue) -> bool {
    let features = queue.features();
    features.is_some_and(|features| features.single_active && features.assignment.is_some())
}

/// `x-priority`: any integer; what does not fit counts as the nearest that does.
fn priority(
    caller: &Caller<'_, '_>,
    queue: &str,
    consume: &basic::Consume<'_>,
) -> Result<i32, Failure> {
    let Some(value) = consume.arguments.find("x-priority") else { return Ok(0) };
    let Some(number) = value.integer() else {
        let problem = format!(": \"expected integer, got {}\"", type_name(&value));
        return Err(invalid(caller, queue, "x-priority", &problem));
    };
    let nearest = number.clamp(i32::MIN.into(), i32::MAX.into());
    Ok(i32::try_from(nearest).expect("it was clamped"))
}

/// Whether it is found out what a consumer can do: it does not say so, and what it is given it has to settle.
fn is_measured(queue: &Queue, how: How, consume: &basic::Consume<'_>) -> bool {
    is_assigned(queue) && how.weight == Weight::Unknown && !consume.no_ack
}

/// Whether a partition of the queue is one consumer's at a time.
fn is_assigned(queue: &Queue) -> bool {
    queue.features().is_some_and(|it| it.assignment.is_some() && !it.single_active)
}

/// `x-weight`, of who consumes a subscription whose partitions are assigned.
fn weight(
    caller: &Caller<'_, '_>,
    queue: &Queue,
    consume: &basic::Consume<'_>,
) -> Result<Weight, Failure> {
    let said = consume.arguments.find(WEIGHT).filter(|_| is_assigned(queue));
    let Some(value) = said else { return Ok(Weight::Unknown) };
    let weight = value.integer().and_then(|number| u16::try_from(number).ok());
    let weight = weight.filter(|weight| (1..=CONSUMER_WEIGHT_MAX).contains(weight));
    weight.map(Weight::Said).ok_or_else(|| {
        let problem = format!(": \"expected 1 to {CONSUMER_WEIGHT_MAX}\"");
        invalid(caller, &queue.name, WEIGHT, &problem)
    })
}

fn invalid(caller: &Caller<'_, '_>, queue: &str, argument: &str, problem: &str) -> Failure {
    invalid_argument(&caller.client.vhost, queue, argument, problem)
}
