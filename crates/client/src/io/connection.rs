//! A connection for topology and single messages: declare, bind, delete, purge, get.
//!
//! One request at a time. A refusal ends AMQP's channel, not the connection: the next request opens
//! another channel by itself.

use amqp::{FieldTable, FieldValue, Method, TableRef, basic, exchange, queue};
use bytes::{Bytes, BytesMut};
use tokio::net::UnixStream;

use super::consumer::{Delivery, DeliveryTag};
use super::line::Line;
use super::socket::Socket;
use crate::acks::Outcome;
use crate::connection::Event;
use crate::error::Error;
use crate::options::Options;
use crate::url::Url;

/// An open AMQP connection.
pub struct Connection {
    line: Line,
    /// None after a refusal, until the next request.
    channel: Option<u16>,
}

/// What a queue is declared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueSpec {
    /// Empty: the server chooses a name.
    pub name: String,
    pub durable: bool,
    pub exclusive: bool,
    pub auto_delete: bool,
    pub arguments: FieldTable,
}

impl QueueSpec {
    /// A queue that survives a restart, without arguments.
    pub fn durable(name: impl Into<String>) -> Self {
        Self { name: name.into(), durable: true, ..Self::default() }
    }
}

/// What an exchange is declared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExchangeSpec {
    pub name: String,
    /// `direct`, `fanout`, `topic`, `headers` or another that the server knows.
    pub kind: String,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: FieldTable,
}

/// The server's answer to a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDeclared {
    pub name: String,
    /// Messages that are ready.
    pub message_count: u32,
    pub consumer_count: u32,
}

impl Connection {
    /// Connects and logs in, once.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, Error> {
        Ok(Self { line: Line::open(url, options).await?, channel: None })
    }

    /// Logs in over a socket that is there already: user, password and vhost are the URL's.
    ///
    /// # Errors
    /// The server refuses, or goes.
    pub async fn over(socket: UnixStream, url: &Url, options: &Options) -> Result<Self, Error> {
        let options = options.with(url);
        Ok(Self { line: Line::over(Socket::Local(socket), url, &options).await?, channel: None })
    }

    /// What the server says of itself: product, version, platform, capabilities.
    pub fn server_properties(&self) -> &FieldTable {
        self.line.core.server_properties()
    }

    /// Declares a queue, or checks that it is there with the same properties.
    ///
    /// # Errors
    /// 406 if it is there with others, 405 if it is another connection's, 403, and as for every request.
    pub async fn declare_queue(&mut self, spec: &QueueSpec) -> Result<QueueDeclared, Error> {
        let arguments = spec.arguments.to_bytes();
        let declare = queue::Declare {
            queue: &spec.name,
            passive: false,
            durable: spec.durable,
            exclusive: spec.exclusive,
            auto_delete: spec.auto_delete,
            no_wait: false,
            arguments: TableRef::validate(&arguments)?,
        };
        self.declared(&declare).await
    }

    /// Looks whether a queue is there, and how many messages it has ready.
    ///
    /// # Errors
    /// 404 if it is not there, and as for every request.
    pub async fn look_up_queue(&mut self, name: &str) -> Result<QueueDeclared, Error> {
        let declare = queue::Declare { queue: name, passive: true, ..queue::Declare::default() };
        self.declared(&declare).await
    }

    /// The same for one partition of a stream or a subscription. Brokers that know no partitions tell of the queue.
    ///
    /// # Errors
    /// 404 if there is no such queue, 406 if it has no such partition, and as for every request.
    pub async fn look_up_partition(
        &mut self,
        name: &str,
        partition: u16,
    ) -> Result<QueueDeclared, Error> {
        let arguments: FieldTable =
            [("x-partition", FieldValue::I32(partition.into()))].into_iter().collect();
        let arguments = arguments.to_bytes();
        let arguments = TableRef::validate(&arguments)?;
        let declare =
            queue::Declare { queue: name, passive: true, arguments, ..queue::Declare::default() };
        self.declared(&declare).await
    }

    async fn declared(&mut self, declare: &queue::Declare<'_>) -> Result<QueueDeclared, Error> {
        let answer = self.call(&Method::QueueDeclare(*declare)).await?;
        match Method::decode(&answer)? {
            Method::QueueDeclareOk(ok) => Ok(QueueDeclared {
                name: ok.queue.to_owned(),
                message_count: ok.message_count,
                consumer_count: ok.consumer_count,
            }),
            other => Err(unexpected("queue.declare", &other)),
        }
    }

    /// Declares an exchange, or checks that it is there with the same properties.
    ///
    /// # Errors
    /// 406 if it is there with others, 403, and as for every request.
    pub async fn declare_exchange(&mut self, spec: &ExchangeSpec) -> Result<(), Error> {
        let arguments = spec.arguments.to_bytes();
        let declare = exchange::Declare {
            exchange: &spec.name,
            kind: &spec.kind,
            passive: false,
            durable: spec.durable,
            auto_delete: spec.auto_delete,
            internal: spec.internal,
            no_wait: false,
            arguments: TableRef::validate(&arguments)?,
        };
        self.call(&Method::ExchangeDeclare(declare)).await.map(drop)
    }

    /// Binds a queue to an exchange.
    ///
    /// # Errors
    /// 404 if either is missing, 403, and as for every request.
    pub async fn bind_queue(
        &mut self,
        queue: &str,
        exchange: &str,
        routing_key: &str,
        arguments: &FieldTable,
    ) -> Result<(), Error> {
        let arguments = arguments.to_bytes();
        let arguments = TableRef::validate(&arguments)?;
        let bind = queue::Bind { queue, exchange, routing_key, no_wait: false, arguments };
        self.call(&Method::QueueBind(bind)).await.map(drop)
    }

    /// Takes a binding away; one that is not there is taken away already.
    ///
    /// # Errors
    /// As for every request.
    pub async fn unbind_queue(
        &mut self,
        queue: &str,
        exchange: &str,
        routing_key: &str,
        arguments: &FieldTable,
    ) -> Result<(), Error> {
        let arguments = arguments.to_bytes();
        let arguments = TableRef::validate(&arguments)?;
        let unbind = queue::Unbind { queue, exchange, routing_key, arguments };
        self.call(&Method::QueueUnbind(unbind)).await.map(drop)
    }

    /// Deletes a queue, whatever is in it and whoever uses it; gives how many messages went with it.
    ///
    /// # Errors
    /// As for every request; a queue that is not there is no error.
    pub async fn delete_queue(&mut self, name: &str) -> Result<u32, Error> {
        let delete = queue::Delete { queue: name, ..queue::Delete::default() };
        let answer = self.call(&Method::QueueDelete(delete)).await?;
        match Method::decode(&answer)? {
            Method::QueueDeleteOk(ok) => Ok(ok.message_count),
            other => Err(unexpected("queue.delete", &other)),
        }
    }

    /// Deletes an exchange with its bindings.
    ///
    /// # Errors
    /// As for every request; an exchange that is not there is no error.
    pub async fn delete_exchange(&mut self, name: &str) -> Result<(), Error> {
        let delete = exchange::Delete { exchange: name, if_unused: false, no_wait: false };
        self.call(&Method::ExchangeDelete(delete)).await.map(drop)
    }

    /// Drops the ready messages of a queue; gives how many.
    ///
    /// # Errors
    /// 404 if it is not there, and as for every request.
    pub async fn purge_queue(&mut self, name: &str) -> Result<u32, Error> {
        let purge = queue::Purge { queue: name, no_wait: false };
        let answer = self.call(&Method::QueuePurge(purge)).await?;
        match Method::decode(&answer)? {
            Method::QueuePurgeOk(ok) => Ok(ok.message_count),
            other => Err(unexpected("queue.purge", &other)),
        }
    }

    /// Takes one message, if the queue has one. Unless `no_ack`, it is to be settled.
    ///
    /// # Errors
    /// 404 if the queue is not there, and as for every request.
    pub async fn get(&mut self, queue: &str, no_ack: bool) -> Result<Option<Delivery>, Error> {
        let channel = self.channel().await?;
        self.line.core.send(channel, &Method::BasicGet(basic::Get { queue, no_ack }));
        let answer = self.line.answer(channel, "basic.get").await;
        match self.heard(answer)? {
            Event::Content { content, .. } => Delivery::decode(0, content).map(Some),
            Event::Opened
            | Event::Method { .. }
            | Event::Confirmed { .. }
            | Event::ChannelClosed { .. }
            | Event::Blocked { .. }
            | Event::Unblocked
            | Event::Closed => Ok(None),
        }
    }

    /// Says what became of a message that [`Connection::get`] took.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn settle(&mut self, tag: DeliveryTag, outcome: Outcome) -> Result<(), Error> {
        let Some(channel) = self.channel else { return Ok(()) };
        let delivery_tag = tag.number();
        let method = match outcome {
            Outcome::Done => Method::BasicAck(basic::Ack { delivery_tag, multiple: false }),
            Outcome::Requeue => Method::BasicReject(basic::Reject { delivery_tag, requeue: true }),
            Outcome::DeadLetter => {
                Method::BasicReject(basic::Reject { delivery_tag, requeue: false })
            }
        };
        self.line.core.send(channel, &method);
        self.line.flush().await
    }

    /// Sends any request that has one answer, and gives the answer's payload (`Method::decode`).
    ///
    /// # Errors
    /// [`Error::ChannelClosed`] with the server's words if it refuses; the connection is good for the next.
    pub async fn call(&mut self, method: &Method<'_>) -> Result<Bytes, Error> {
        let channel = self.channel().await?;
        let answer = self.line.call(channel, method).await;
        self.heard(answer)
    }

    /// Publishes one message and waits until the server has taken it: for occasional messages. A
    /// [`super::Publisher`] is hundreds of times faster for many.
    ///
    /// # Errors
    /// The server refused the message or found no queue for it.
    pub async fn publish(
        &mut self,
        to: crate::Address<'_>,
        properties: &amqp::Properties<'_>,
        body: &[u8],
    ) -> Result<(), Error> {
        let channel = self.line.open_channel().await?;
        let select = Method::ConfirmSelect(amqp::confirm::Select { no_wait: false });
        self.line.call(channel, &select).await?;
        let mut raw = BytesMut::new();
        properties.encode(&mut raw);
        let mut outstanding = crate::publisher::Outstanding::new(1);
        let frame_max = self.line.core.agreed().frame_max;
        let output = self.line.core.output();
        outstanding.publish(frame_max, channel, to, &raw, body, output)?;
        loop {
            self.line.turn().await?;
            if super::publisher::take_verdict_events(&mut self.line, channel, &mut outstanding)? {
                break;
            }
        }
        let closing = amqp::channel::Close { reply_code: 200, ..amqp::channel::Close::default() };
        self.line.core.close_channel(channel);
        self.line.answer(channel, Method::ChannelClose(closing).name()).await?;
        match outstanding.verdicts().first() {
            Some(crate::Verdict::Confirmed(_)) => Ok(()),
            Some(crate::Verdict::Returned { code, text, .. }) => {
                Err(Error::ChannelClosed { code: *code, text: text.clone() })
            }
            Some(crate::Verdict::Refused(_)) | None => {
                Err(Error::protocol("the server answered basic.nack"))
            }
        }
    }

    /// Closes the connection in order.
    ///
    /// # Errors
    /// The server did not answer; the connection is gone all the same.
    pub async fn close(self) -> Result<(), Error> {
        self.line.close().await
    }

    async fn channel(&mut self) -> Result<u16, Error> {
        if let Some(channel) = self.channel {
            return Ok(channel);
        }
        let channel = self.line.open_channel().await?;
        self.channel = Some(channel);
        Ok(channel)
    }

    /// Notices that a refusal took the channel with it.
    fn heard<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::ChannelClosed { .. }) = answer {
            self.channel = None;
        }
        answer
    }
}

pub(super) fn unexpected(request: &str, answer: &Method<'_>) -> Error {
    Error::protocol(format!("{request} was answered with {}", answer.name()))
}
