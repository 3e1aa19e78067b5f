//! The one consumer of the queue: writes down every delivery in the order of the queue, and comes back
//! by itself when the broker does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::message::Delivery as Message;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ErrorKind, ExchangeKind};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;

use super::history::{Delivery, Id};
use super::plan;
use crate::workload::crc32;

/// What has been taken so far.
#[derive(Debug, Default)]
pub struct Basket {
    inside: Mutex<(Vec<Delivery>, Vec<bool>)>,
    /// Different rows among them.
    pub rows: AtomicUsize,
}

impl Basket {
    fn put(&self, delivery: Delivery) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let (deliveries, known) = &mut *inside;
        // A number above any that a trial writes is nobody's row.
        if let Some(row) = delivery.row.filter(|row| *row < 10_000_000) {
            if known.len() <= row {
                known.resize(row + 1, false);
            }
            if !std::mem::replace(&mut known[row], true) {
                self.rows.fetch_add(1, Ordering::Relaxed);
            }
        }
        deliveries.push(delivery);
    }

    /// Everything so far.
    pub fn read(&self) -> Vec<Delivery> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub fn count(&self) -> usize {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).0.len()
    }
}

/// Where messages go: an exchange with a queue that wants every type but one.
#[derive(Clone, Debug)]
pub struct Place {
    pub broker: SocketAddr,
    pub exchange: String,
    pub queue: String,
}

/// The consumer at work.
#[derive(Debug)]
pub struct Taker {
    task: JoinHandle<()>,
}

const PREFETCH: u16 = 1000;
/// Messages that one ack is for, at most.
const TOGETHER: usize = 200;
/// After this long without a delivery, what waits for company is acked.
const IDLE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(50);
/// A client may wait for ever for a broker that was killed while it connected; it is tried again after this, long before
/// a run is taken for stuck.
const ANSWER: Duration = Duration::from_secs(10);

impl Taker {
    pub fn start(place: &Place, basket: &Arc<Basket>) -> Self {
        let (place, basket) = (place.clone(), basket.clone());
        let task = tokio::spawn(async move {
            loop {
                // Whatever it was, the broker has what was not acked and gives it again.
                let _ = take(&place, &basket).await;
                tokio::time::sleep(RETRY).await;
            }
        });
        Self { task }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect(place: &Place) -> Result<Connection, lapin::Error> {
    let uri = format!("amqp://guest:guest@{}/%2f?heartbeat=10", place.broker);
    let properties = ConnectionProperties::default().with_connection_name("taker".into());
    answered(Connection::connect(&uri, properties)).await
}

async fn answered<T>(
    what: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, lapin::Error> {
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
    tokio::time::timeout(ANSWER, what).await.unwrap_or_else(|_| Err(late()))
}

/// Makes exchange, queue and bindings.
pub async fn declare(place: &Place) -> Result<(), lapin::Error> {
    let connection = connect(place).await?;
    let channel = answered(connection.create_channel()).await?;
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let (exchange, queue) = (place.exchange.as_str(), place.queue.as_str());
    let none = FieldTable::default();
    let kind = ExchangeKind::Topic;
    answered(channel.exchange_declare(exchange.into(), kind, durable, none.clone())).await?;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    answered(channel.queue_declare(queue.into(), durable, none.clone())).await?;
    for key in plan::TYPES {
        let (queue, exchange, key) = (queue.into(), exchange.into(), key.into());
        let options = QueueBindOptions::default();
        answered(channel.queue_bind(queue, exchange, key, options, none.clone())).await?;
    }
    answered(connection.close(200, "declared".into())).await
}

/// How many messages the queue has for somebody.
pub async fn ready(place: &Place) -> Result<u32, lapin::Error> {
    let connection = connect(place).await?;
    let channel = answered(connection.create_channel()).await?;
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let queue = place.queue.as_str().into();
    let found = answered(channel.queue_declare(queue, passive, FieldTable::default())).await?;
    answered(connection.close(200, "asked".into())).await?;
    Ok(found.message_count())
}

async fn take(place: &Place, basket: &Basket) -> Result<(), lapin::Error> {
    let connection = connect(place).await?;
    let channel = answered(connection.create_channel()).await?;
    answered(channel.basic_qos(PREFETCH, BasicQosOptions::default())).await?;
    let options = BasicConsumeOptions::default();
    let (queue, tag) = (place.queue.as_str().into(), "taker".into());
    let consuming = channel.basic_consume(queue, tag, options, FieldTable::default());
    let mut messages = answered(consuming).await?;
    let mut held = 0;
    let mut last = 0;
    loop {
        match tokio::time::timeout(IDLE, messages.next()).await {
            Ok(Some(message)) => {
                let message = message?;
                basket.put(seen(&message));
                last = message.delivery_tag;
                held += 1;
                if held == TOGETHER {
                    ack(&channel, last, &mut held).await?;
                }
            }
            Ok(None) => {
                let closed = lapin::ConnectionState::Closed;
                return Err(ErrorKind::InvalidConnectionState(closed).into());
            }
            Err(_) => ack(&channel, last, &mut held).await?,
        }
    }
}

async fn ack(channel: &Channel, last: u64, held: &mut usize) -> Result<(), lapin::Error> {
    if std::mem::take(held) > 0 {
        answered(channel.basic_ack(last, BasicAckOptions { multiple: true })).await?;
    }
    Ok(())
}

fn seen(message: &Message) -> Delivery {
    let properties = &message.properties;
    let text = |text: &Option<lapin::types::ShortString>| {
        text.as_ref().map_or(String::new(), |text| text.as_str().to_owned())
    };
    let headers = properties.headers().as_ref();
    let header = match headers.and_then(|headers| headers.inner().get("row")) {
        Some(AMQPValue::LongLongInt(number)) => Some(*number),
        Some(AMQPValue::LongInt(number)) => Some(i64::from(*number)),
        _ => None,
    };
    let is_persistent = *properties.delivery_mode() == Some(2);
    let (key, kind) = (message.routing_key.as_str(), text(properties.kind()));
    Delivery {
        row: plan::row_of(&message.data),
        id: Id::read(&text(properties.message_id())),
        body: crc32(&message.data),
        dress: plan::dress(key, &kind, is_persistent, header),
    }
}
