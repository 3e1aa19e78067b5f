//! `basic.qos`, `consume`, `cancel` and `get`.

use amqp::{Method, ReplyCode, basic};
use cluster::Request;
use machine::{AttachError, ConsumerSpec, Queue, QueueType};

use crate::attributes::integer;
use crate::auth::{self, Verb};
use crate::channel::deliver::Fetch;
use crate::channel::direct_reply_to::REPLY_TO;
use crate::channel::unacked::Source;
use crate::channel::{Channel, Doing};
use crate::connection::{Trunk, Turn};
use crate::errors::{Failure, exclusive_use, no_queue, not_done, precondition};
use crate::values::type_name;

impl Channel {
    pub(crate) fn qos(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        qos: &basic::Qos,
    ) -> Result<(), Failure> {
        if qos.prefetch_size != 0 {
            let text = format!("prefetch_size!=0 ({})", qos.prefetch_size);
            return Err(Failure::connection(ReplyCode::NotImplemented, text));
        }
        if qos.global {
            self.prefetch_global = qos.prefetch_count.into();
            self.consumers.values().for_each(|&number| trunk.consumers.mark(number));
        } else {
            self.prefetch = qos.prefetch_count.into();
            // As in RabbitMQ, a limit for consumers lifts that of the channel: whoever wants both
            // asks for the channel's last.
            if std::mem::take(&mut self.prefetch_global) > 0 {
                self.consumers.values().for_each(|&number| trunk.consumers.mark(number));
            }
        }
        trunk.send(turn, self.at.number, &Method::BasicQosOk(basic::QosOk));
        Ok(())
    }

    pub(crate) fn consume(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        consume: &basic::Consume<'_>,
    ) -> Result<(), Failure> {
        let tag = match consume.consumer_tag {
            "" => trunk.names.draw("amq.ctag-"),
            tag => tag.to_owned(),
        };
        let is_reply_tag = self.replies.as_ref().is_some_and(|replies| replies.tag() == tag);
        if consume.queue == REPLY_TO {
            return self.consume_replies(trunk, turn, consume, &tag);
        }
        if is_reply_tag || self.consumers.contains_key(&tag) {
            let text = format!("attempt to reuse consumer tag '{tag}'");
            return Err(Failure::connection(ReplyCode::NotAllowed, text));
        }
        let queue = self.queue_name(consume.queue)?;
        let verb = Verb::Read { queue: &queue };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)?;
        let found = self.usable_queue(trunk, turn, &queue)?;
        self.check_consume(trunk, found, consume)?;
        if self.consumers.len() >= trunk.config.consumers_per_channel_max {
            let max = trunk.config.consumers_per_channel_max;
            let text = format!("reached maximum ({max}) of consumers per channel");
            return Err(precondition(text));
        }
        let priority = priority(trunk, &queue, consume)?;
        trunk.expect_acks(found);
        let (id, group) = (found.id, found.group);
        let number = trunk.consumers.draw();
        let source = Source { group, queue: id, consumer: number };
        let credit =
            trunk.consumers.add(self.at, &tag, source, consume.no_ack, self.prefetch, self.room());
        self.consumers.insert(tag, number);
        if let Some(consumer) = trunk.consumers.find_mut(number) {
            consumer.is_single_active = is_single_active(found);
        }
        let consumer = trunk.consumer_id(number);
        let spec =
            ConsumerSpec { credit, no_ack: consume.no_ack, exclusive: consume.exclusive, priority };
        // As in RabbitMQ it finds what was published before it, and of several priorities the highest first.
        trunk.ask_after_appends(turn, self.at, group, |ticket| Request::Attach {
            ticket,
            group,
            queue: id,
            consumer,
            spec,
        });
        self.doing = Some(Doing::Attach { number, queue, no_wait: consume.no_wait });
        Ok(())
    }

    /// What some kinds of queues do not let be consumed.
    fn check_consume(
        &self,
        trunk: &Trunk,
        queue: &Queue,
        consume: &basic::Consume<'_>,
    ) -> Result<(), Failure> {
        let name = queue.name.as_str();
        if consume.arguments.find("x-stream-offset").is_some() {
            let queue_type = match queue.queue_type() {
                QueueType::Classic => "classic",
                QueueType::Quorum => "quorum",
                QueueType::Stream => "stream",
            };
            let problem = format!(" of queue type rabbit_{queue_type}_queue");
            return Err(invalid(trunk, name, "x-stream-offset", &problem));
        }
        if self.prefetch_global > 0 && queue.queue_type() == QueueType::Quorum {
            let text =
                format!("queue '{name}' in vhost '{}' does not support global qos", trunk.vhost);
            return Err(Failure::connection(ReplyCode::NotImplemented, text));
        }
        if consume.exclusive && is_single_active(queue) {
            return Err(exclusive_use(name, &trunk.vhost));
        }
        Ok(())
    }

    pub(crate) fn attached(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        number: u64,
        queue: &str,
        no_wait: bool,
        result: Result<(), AttachError>,
    ) -> Result<(), Failure> {
        match result {
            Ok(()) => {
                trunk.consumers.attached(number);
                if let (false, Some(consumer)) = (no_wait, trunk.consumers.find(number)) {
                    let answer = basic::ConsumeOk { consumer_tag: consumer.tag() };
                    trunk.send(turn, self.at.number, &Method::BasicConsumeOk(answer));
                }
                Ok(())
            }
            Err(error) => {
                self.consumers.retain(|_, known| *known != number);
                trunk.consumers.remove(number);
                Err(match error {
                    AttachError::NoQueue => no_queue(queue, &trunk.vhost),
                    AttachError::ExclusiveUse => exclusive_use(queue, &trunk.vhost),
                    AttachError::NotLeading => not_done("the consumer"),
                })
            }
        }
    }

    pub(crate) fn cancel(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        cancel: &basic::Cancel<'_>,
    ) -> Result<(), Failure> {
        let tag = cancel.consumer_tag;
        let found = self.consumers.get(tag).copied();
        let known = found.and_then(|number| Some((number, trunk.consumers.find(number)?.source)));
        let Some((number, source)) = known else {
            if self.replies.as_ref().is_some_and(|replies| replies.tag() == tag) {
                self.drop_replies(trunk, turn);
            }
            self.tell_cancelled(trunk, turn, tag, cancel.no_wait);
            return Ok(());
        };
        let consumer = trunk.consumer_id(number);
        trunk.ask(turn, self.at, |ticket| Request::Detach {
            ticket,
            group: source.group,
            queue: source.queue,
            consumer,
        });
        let tag = tag.to_owned();
        self.doing = Some(Doing::Detach { number, tag, no_wait: cancel.no_wait });
        Ok(())
    }

    pub(crate) fn detached(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        number: u64,
        tag: &str,
        no_wait: bool,
    ) {
        if self.consumers.get(tag) == Some(&number) {
            self.consumers.remove(tag);
        }
        trunk.consumers.remove(number);
        self.tell_cancelled(trunk, turn, tag, no_wait);
    }

    fn tell_cancelled(&self, trunk: &Trunk, turn: &mut Turn<'_>, tag: &str, no_wait: bool) {
        if !no_wait {
            let answer = basic::CancelOk { consumer_tag: tag };
            trunk.send(turn, self.at.number, &Method::BasicCancelOk(answer));
        }
    }

    pub(crate) fn get(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        get: &basic::Get<'_>,
    ) -> Result<(), Failure> {
        let queue = self.queue_name(get.queue)?;
        let verb = Verb::Read { queue: &queue };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)?;
        let queue = self.usable_queue(trunk, turn, &queue)?;
        trunk.expect_acks(queue);
        let (id, group) = (queue.id, queue.group);
        let is_counted = queue.queue_type() == QueueType::Quorum;
        let number = self.unacked.fetcher(|| trunk.consumers.draw());
        let consumer = trunk.consumer_id(number);
        let no_ack = get.no_ack;
        trunk.ask_after_appends(turn, self.at, group, |ticket| Request::Get {
            ticket,
            group,
            queue: id,
            consumer,
            no_ack,
        });
        self.doing = Some(Doing::Get(Fetch { no_ack, is_counted }));
        Ok(())
    }
}

/// Whether one consumer at a time is served.
fn is_single_active(queue: &Queue) -> bool {
    queue.settings().features.is_some_and(|features| features.single_active)
}

/// `x-priority`: any integer; what does not fit counts as the nearest that does.
fn priority(trunk: &Trunk, queue: &str, consume: &basic::Consume<'_>) -> Result<i32, Failure> {
    let Some(value) = consume.arguments.find("x-priority") else { return Ok(0) };
    let Some(number) = integer(&value) else {
        let problem = format!(": \"expected integer, got {}\"", type_name(&value));
        return Err(invalid(trunk, queue, "x-priority", &problem));
    };
    let nearest = number.clamp(i32::MIN.into(), i32::MAX.into());
    Ok(i32::try_from(nearest).expect("it was clamped"))
}

fn invalid(trunk: &Trunk, queue: &str, argument: &str, problem: &str) -> Failure {
    let vhost = &trunk.vhost;
    precondition(format!(
        "invalid arg '{argument}' for queue '{queue}' in vhost '{vhost}'{problem}"
    ))
}
