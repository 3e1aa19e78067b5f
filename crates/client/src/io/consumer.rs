//! A consumer: deliveries one by one, acknowledgements in batches, over a connection that comes back by
//! itself.
//!
//! Driven by its caller, as the publisher is: whoever handles a message for longer than a heartbeat
//! keeps awaiting [`Consumer::next`] beside it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use amqp::{FieldTable, Method, Properties, TableRef, basic};
use bytes::Bytes;

use super::connection::unexpected;
use super::line::Line;
use super::retry::Retry;
use crate::acks::{Acks, Outcome, Tell};
use crate::channel::Content;
use crate::connection::Event;
use crate::error::Error;
use crate::options::Options;
use crate::url::Url;

const CHANNEL: u16 = 1;

/// How a queue is consumed.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerOptions {
    /// How many messages may be out with this consumer; 0 is no limit.
    pub prefetch: u16,
    /// The server forgets a message when it is sent, before anybody has handled it.
    pub no_ack: bool,
    /// Acknowledge once so many are done ...
    pub ack_every: usize,
    /// ... or once the first of them has waited so long.
    pub ack_wait: Duration,
    /// Empty: the server chooses.
    pub tag: String,
    pub exclusive: bool,
    pub arguments: FieldTable,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            prefetch: 1000,
            no_ack: false,
            ack_every: 100,
            ack_wait: Duration::from_millis(10),
            tag: String::new(),
            exclusive: false,
            arguments: FieldTable::new(),
        }
    }
}

/// Names a delivery until it is settled. One of a connection that is lost meanwhile stays valid and means
/// nothing: the server delivers the message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryTag {
    /// Counts the connections of the consumer.
    life: u32,
    tag: u64,
}

impl DeliveryTag {
    /// The number on the wire.
    pub fn number(self) -> u64 {
        self.tag
    }
}

/// A message for this consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub tag: DeliveryTag,
    /// It was delivered before, to somebody, who did not settle it.
    pub redelivered: bool,
    pub body: Bytes,
    method: Bytes,
    properties: Bytes,
}

impl Delivery {
    pub(super) fn decode(life: u32, content: Content) -> Result<Self, Error> {
        let (tag, redelivered) = match Method::decode(&content.method)? {
            Method::BasicDeliver(deliver) => (deliver.delivery_tag, deliver.redelivered),
            Method::BasicGetOk(got) => (got.delivery_tag, got.redelivered),
            other => return Err(unexpected("basic.consume", &other)),
        };
        let Content { method, properties, body } = content;
        Ok(Self { tag: DeliveryTag { life, tag }, redelivered, body, method, properties })
    }

    /// The exchange it was published to; empty for the default exchange.
    pub fn exchange(&self) -> &str {
        self.address().0
    }

    pub fn routing_key(&self) -> &str {
        self.address().1
    }

    /// Messages that the queue had left when this one was fetched; 0 for what a consumer gets.
    pub fn message_count(&self) -> u32 {
        match Method::decode(&self.method) {
            Ok(Method::BasicGetOk(got)) => got.message_count,
            Ok(_) | Err(_) => 0,
        }
    }

    /// The message's properties.
    ///
    /// # Errors
    /// The server sent properties that are not AMQP.
    pub fn properties(&self) -> Result<Properties<'_>, Error> {
        Ok(Properties::decode(&self.properties)?)
    }

    /// Property flags and values, as on the wire.
    pub fn raw_properties(&self) -> &Bytes {
        &self.properties
    }

    fn address(&self) -> (&str, &str) {
        match Method::decode(&self.method) {
            Ok(Method::BasicDeliver(deliver)) => (deliver.exchange, deliver.routing_key),
            Ok(Method::BasicGetOk(got)) => (got.exchange, got.routing_key),
            Ok(_) | Err(_) => unreachable!("it was decoded when it came"),
        }
    }
}

/// Takes messages from one queue.
pub struct Consumer {
    url: Url,
    options: Options,
    queue: String,
    how: ConsumerOptions,
    line: Option<Line>,
    /// Counts connections: deliveries of earlier ones cannot be settled any more.
    life: u32,
    acks: Acks,
    ack_due: Option<Instant>,
    ready: VecDeque<Delivery>,
    is_held_back: bool,
    retry: Retry,
}

impl Consumer {
    /// Connects and consumes `queue`, which must be there.
    ///
    /// # Errors
    /// The server cannot be reached for as long as `options.retry_for`, or refuses.
    pub async fn open(
        url: &Url,
        options: &Options,
        queue: &str,
        how: ConsumerOptions,
    ) -> Result<Self, Error> {
        let mut consumer = Self {
            url: url.clone(),
            options: options.clone(),
            queue: queue.to_owned(),
            how,
            line: None,
            life: 0,
            acks: Acks::default(),
            ack_due: None,
            ready: VecDeque::new(),
            is_held_back: false,
            retry: Retry::new(options),
        };
        consumer.connected().await?;
        Ok(consumer)
    }

    /// The next message. Sends acknowledgements that are due and keeps the connection alive meanwhile. A
    /// cancelled wait loses nothing.
    ///
    /// # Errors
    /// The queue is gone, the server refuses, or `options.retry_for` has passed without a connection.
    pub async fn next(&mut self) -> Result<Delivery, Error> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            self.turn().await?;
        }
    }

    /// A message that is here already. Costs no call to the system: with it a consumer is drained in batches.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.ready.pop_front()
    }

    /// Sends what is due and waits until something happens: made to be one arm of a `select!`, for who takes
    /// deliveries with [`Consumer::try_next`] only. A cancelled wait loses nothing.
    ///
    /// # Errors
    /// As [`Consumer::next`].
    pub async fn drive(&mut self) -> Result<(), Error> {
        self.turn().await
    }

    /// Says what became of a delivery. It is told to the server with others, by [`Consumer::next`] or
    /// [`Consumer::flush`].
    ///
    /// # Errors
    /// The delivery was settled before.
    pub fn settle(&mut self, tag: DeliveryTag, outcome: Outcome) -> Result<(), Error> {
        if tag.life != self.life || self.how.no_ack {
            return Ok(());
        }
        self.acks.settle(tag.tag, outcome).map_err(|unknown| {
            Error::invalid(format!("delivery {} is settled already, or never was", unknown.0))
        })?;
        if self.acks.waiting() >= self.how.ack_every {
            self.tell();
        }
        Ok(())
    }

    /// While it is held back, a consumer takes nothing from its socket: what the server sends waits in the kernel, and
    /// behind that at the server. A prefetch bounds how many messages are here, this bounds their bytes: what is here, 64
    /// KiB and one message at most. Outcomes and heartbeats go out all the same. A server may cut a client that reads
    /// nothing for long (Millrace does after 30 seconds); its deliveries come again then.
    pub fn hold_back(&mut self, is_held_back: bool) {
        self.is_held_back = is_held_back;
    }

    /// How many connections were lost so far. What was delivered before the last loss comes again, and to settle it means
    /// nothing.
    pub fn lost_connections(&self) -> u32 {
        self.life
    }

    /// How many deliveries are out and not settled, those that wait for `next` included.
    pub fn held(&self) -> usize {
        self.acks.held()
    }

    /// Tells the server every outcome so far.
    ///
    /// # Errors
    /// As [`Consumer::next`].
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.tell();
        while self.line.as_ref().is_some_and(Line::has_output) {
            self.turn().await?;
        }
        Ok(())
    }

    /// Stops deliveries. What came until then is still given by [`Consumer::try_next`], and may be
    /// settled.
    ///
    /// # Errors
    /// As [`Consumer::next`].
    pub async fn cancel(&mut self) -> Result<(), Error> {
        let Some(line) = self.line.as_mut() else { return Ok(()) };
        let cancel = basic::Cancel { consumer_tag: &self.how.tag, no_wait: false };
        let answered = line.call(CHANNEL, &Method::BasicCancel(cancel)).await.map(drop);
        answered.and_then(|()| self.take_events())
    }

    /// Tells every outcome and closes the connection. What is not settled goes back to the queue.
    ///
    /// # Errors
    /// The connection was lost before the server answered: outcomes told last may not have arrived.
    pub async fn close(mut self) -> Result<(), Error> {
        self.tell();
        match self.line.take() {
            Some(line) => line.close().await,
            None => Ok(()),
        }
    }

    fn tell(&mut self) {
        let mut frames = Vec::new();
        self.acks.tell(&mut frames);
        self.ack_due = None;
        let Some(line) = self.line.as_mut() else { return };
        for frame in frames {
            let method = match frame {
                Tell::Ack { tag: delivery_tag, multiple } => {
                    Method::BasicAck(basic::Ack { delivery_tag, multiple })
                }
                Tell::Reject { tag: delivery_tag, requeue } => {
                    Method::BasicReject(basic::Reject { delivery_tag, requeue })
                }
            };
            line.core.send(CHANNEL, &method);
        }
    }

    async fn turn(&mut self) -> Result<(), Error> {
        if self.line.is_none() {
            // The first deliveries may have come with the answer to basic.consume.
            return self.connected().await;
        }
        if self.acks.waiting() > 0 {
            let due = *self.ack_due.get_or_insert_with(|| Instant::now() + self.how.ack_wait);
            if Instant::now() >= due {
                self.tell();
            }
        }
        let (due, reads) = (self.ack_due, !self.is_held_back);
        let line = self.line.as_mut().expect("it was just connected");
        let turned = match due {
            None => line.turn_if(reads).await,
            Some(due) => match tokio::time::timeout_at(due.into(), line.turn_if(reads)).await {
                Ok(turned) => turned,
                Err(_) => return Ok(()), // The next turn tells.
            },
        };
        match turned.and_then(|()| self.take_events()) {
            Ok(()) => {
                self.retry.succeeded();
                Ok(())
            }
            Err(error) => {
                self.forget();
                self.retry.lost(error)
            }
        }
    }

    fn take_events(&mut self) -> Result<(), Error> {
        let Some(line) = self.line.as_mut() else { return Ok(()) };
        for event in line.events.drain(..) {
            match event {
                Event::Content { content, .. } => {
                    let delivery = Delivery::decode(self.life, content)?;
                    if !self.how.no_ack && !self.acks.delivered(delivery.tag.tag) {
                        return Err(Error::protocol("delivery tags do not count up by one"));
                    }
                    self.ready.push_back(delivery);
                }
                Event::ChannelClosed { code, text, .. } => {
                    return Err(Error::ChannelClosed { code, text });
                }
                Event::Method { payload, .. } => {
                    if let Method::BasicCancel(_) = Method::decode(&payload)? {
                        return Err(Error::ConsumerCancelled { queue: self.queue.clone() });
                    }
                }
                Event::Opened
                | Event::Closed
                | Event::Confirmed { .. }
                | Event::Blocked { .. }
                | Event::Unblocked => (),
            }
        }
        Ok(())
    }

    /// The connection is gone, and with it every delivery that was out.
    fn forget(&mut self) {
        self.line = None;
        self.life += 1;
        self.acks = Acks::default();
        self.ack_due = None;
        self.ready.clear();
    }

    async fn connected(&mut self) -> Result<(), Error> {
        while self.line.is_none() {
            self.retry.wait().await;
            match self.connect().await {
                Ok(line) => {
                    self.line = Some(line);
                    self.take_events()?;
                }
                Err(error) => self.retry.failed(error)?,
            }
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<Line, Error> {
        let mut line = Line::open(&self.url, &self.options).await?;
        let channel = line.open_channel().await?;
        assert_eq!(channel, CHANNEL, "the first channel of a connection is 1");
        let qos = basic::Qos { prefetch_size: 0, prefetch_count: self.how.prefetch, global: false };
        line.call(channel, &Method::BasicQos(qos)).await?;
        let arguments = self.how.arguments.to_bytes();
        let consume = basic::Consume {
            queue: &self.queue,
            consumer_tag: &self.how.tag,
            no_local: false,
            no_ack: self.how.no_ack,
            exclusive: self.how.exclusive,
            no_wait: false,
            arguments: TableRef::validate(&arguments)?,
        };
        let answer = line.call(channel, &Method::BasicConsume(consume)).await?;
        match Method::decode(&answer)? {
            Method::BasicConsumeOk(ok) => self.how.tag = ok.consumer_tag.to_owned(),
            other => return Err(unexpected("basic.consume", &other)),
        }
        Ok(line)
    }
}
