//! Publishers that write down every confirm, and a drain that knows every message.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

use super::gaps::{Outcome, Publish};
use crate::chaos::Failure;
use crate::chaos::broker::Kind;
use crate::workload::io::now;

/// Publishes per second of one publisher.
pub const RATE: u64 = 1000;
/// Unconfirmed publishes of one publisher.
pub const WINDOW: usize = 1000;
const BODY_BYTES: usize = 1024;
/// What a rate is cut into.
const TICK: Duration = Duration::from_millis(5);
/// Longest wait for a confirm.
const CONFIRM: Duration = Duration::from_secs(60);
/// Longest wait for anything else.
const ANSWER: Duration = Duration::from_secs(10);
/// A queue that gives nothing for so long is empty, if it says so.
const IDLE: Duration = Duration::from_millis(300);
const DRAIN: Duration = Duration::from_secs(120);

/// A message: who published it, and the how manieth it was.
pub type Id = (u32, u64);

/// What one publisher saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub publishes: BTreeMap<Id, Publish>,
    /// Lost connections and channels.
    pub errors: u64,
}

/// Publishers at work.
pub struct Probes {
    go_on: watch::Sender<bool>,
    tasks: Vec<JoinHandle<Seen>>,
}

fn broken(error: &lapin::Error) -> Failure {
    Failure::Broken(error.to_string())
}

async fn connect(address: SocketAddr) -> Result<Connection, lapin::Error> {
    let uri = format!("amqp://guest:guest@{address}/%2f?heartbeat=60");
    let opening = Connection::connect(&uri, ConnectionProperties::default());
    let late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    tokio::time::timeout(ANSWER, opening).await.unwrap_or_else(|_| late())
}

/// Declares a durable queue; a quorum queue where that is a kind of its own.
pub fn declare(
    runtime: &Runtime,
    address: SocketAddr,
    kind: Kind,
    queue: &str,
) -> Result<(), Failure> {
    runtime
        .block_on(async {
            let connection = connect(address).await?;
            let channel = connection.create_channel().await?;
            let mut arguments = FieldTable::default();
            if kind == Kind::Rabbitmq {
                arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
            }
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(queue.into(), durable, arguments).await?;
            connection.close(200, "declared".into()).await
        })
        .map_err(|error: lapin::Error| broken(&error))
}

impl Probes {
    /// One publisher for each address, with numbers from `first`.
    pub fn start(runtime: &Runtime, addresses: &[SocketAddr], queue: &str, first: u32) -> Self {
        let (go_on, told) = watch::channel(true);
        let tasks = (first..)
            .zip(addresses)
            .map(|(number, address)| {
                let prober = Prober {
                    number,
                    address: *address,
                    queue: queue.to_owned(),
                    go_on: told.clone(),
                };
                runtime.spawn(prober.run())
            })
            .collect();
        Self { go_on, tasks }
    }

    /// Stops them, and waits for what they are still to hear.
    pub fn end(self, runtime: &Runtime) -> Vec<Seen> {
        self.go_on.send_replace(false);
        let all = async {
            let mut seen = Vec::new();
            for task in self.tasks {
                seen.push(task.await.unwrap_or_default());
            }
            seen
        };
        runtime.block_on(all)
    }
}

struct Prober {
    number: u32,
    address: SocketAddr,
    queue: String,
    go_on: watch::Receiver<bool>,
}

struct Sent {
    id: Id,
    sent: u64,
    confirm: lapin::PublisherConfirm,
    _place: OwnedSemaphorePermit,
}

impl Prober {
    async fn run(self) -> Seen {
        let (mut seen, mut seq) = (Seen::default(), 0);
        while *self.go_on.borrow() {
            if let Err(_lost) = self.life(&mut seen, &mut seq).await {
                seen.errors += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        seen
    }

    /// One connection's life.
    async fn life(&self, seen: &mut Seen, seq: &mut u64) -> Result<(), lapin::Error> {
        let connection = connect(self.address).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let (sent, waiting) = mpsc::channel(WINDOW);
        let (published, outcomes) =
            tokio::join!(self.publish(&channel, sent, seq), settle(waiting));
        seen.publishes.extend(outcomes);
        published?;
        let unknown = seen.publishes.values().any(|one| one.outcome == Outcome::Unknown);
        if unknown && *self.go_on.borrow() {
            return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
        }
        connection.close(200, "done".into()).await
    }

    async fn publish(
        &self,
        channel: &Channel,
        sent: mpsc::Sender<Sent>,
        seq: &mut u64,
    ) -> Result<(), lapin::Error> {
        let window = Arc::new(Semaphore::new(WINDOW));
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let burst = RATE * TICK.as_millis() as u64 / 1000;
        loop {
            tick.tick().await;
            for _ in 0..burst {
                let place = window.clone().acquire_owned().await;
                let place = place.expect("the window is never closed");
                if !*self.go_on.borrow() {
                    return Ok(());
                }
                let id = (self.number, *seq);
                *seq += 1;
                let at = now();
                let confirm = channel
                    .basic_publish(
                        "".into(),
                        self.queue.as_str().into(),
                        BasicPublishOptions::default(),
                        &body(id),
                        BasicProperties::default().with_delivery_mode(2),
                    )
                    .await?;
                let waiting = Sent { id, sent: at, confirm, _place: place };
                if sent.send(waiting).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits for every outcome, in the order of the publishes.
async fn settle(mut waiting: mpsc::Receiver<Sent>) -> Vec<(Id, Publish)> {
    let mut outcomes = Vec::new();
    while let Some(Sent { id, sent, confirm, _place }) = waiting.recv().await {
        let outcome = match tokio::time::timeout(CONFIRM, confirm).await {
            Ok(Ok(Confirmation::Ack(None))) => Outcome::Confirmed(now()),
            Ok(Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(_))) => Outcome::Refused,
            Ok(Ok(Confirmation::NotRequested) | Err(_)) | Err(_) => Outcome::Unknown,
        };
        outcomes.push((id, Publish { sent, outcome }));
    }
    outcomes
}

fn body((number, seq): Id) -> Vec<u8> {
    let mut body = vec![b'.'; BODY_BYTES];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body[4..12].copy_from_slice(&seq.to_be_bytes());
    body
}

fn id(body: &[u8]) -> Option<Id> {
    let (number, rest) = body.split_first_chunk::<4>()?;
    let seq = rest.first_chunk::<8>()?;
    Some((u32::from_be_bytes(*number), u64::from_be_bytes(*seq)))
}

/// Takes everything out of `queue`. Gives back how often each message was in it.
pub fn drain(
    runtime: &Runtime,
    address: SocketAddr,
    queue: &str,
) -> Result<BTreeMap<Id, u32>, Failure> {
    runtime.block_on(async {
        let found = tokio::time::timeout(DRAIN, take_all(address, queue)).await;
        match found {
            Ok(found) => found.map_err(|error| broken(&error)),
            Err(_) => Err(Failure::Broken(format!("{queue} is not empty after {DRAIN:?}"))),
        }
    })
}

async fn take_all(address: SocketAddr, queue: &str) -> Result<BTreeMap<Id, u32>, lapin::Error> {
    let connection = connect(address).await?;
    let channel = connection.create_channel().await?;
    let asking = connection.create_channel().await?;
    channel.basic_qos(1000, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let none = FieldTable::default();
    let consuming = channel.basic_consume(queue.into(), "drain".into(), options, none.clone());
    let mut deliveries = consuming.await?;
    let (mut found, mut unacked) = (BTreeMap::new(), None);
    loop {
        match tokio::time::timeout(IDLE, deliveries.next()).await {
            Ok(Some(delivery)) => {
                let delivery = delivery?;
                if let Some(id) = id(&delivery.data) {
                    *found.entry(id).or_insert(0) += 1;
                }
                if delivery.delivery_tag.is_multiple_of(200) {
                    delivery.ack(BasicAckOptions { multiple: true }).await?;
                    unacked = None;
                } else {
                    unacked = Some(delivery);
                }
            }
            Ok(None) => return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()),
            Err(_) => {
                if let Some(last) = unacked.take() {
                    last.ack(BasicAckOptions { multiple: true }).await?;
                }
                let passive =
                    QueueDeclareOptions { passive: true, durable: true, ..Default::default() };
                let left = asking.queue_declare(queue.into(), passive, none.clone()).await?;
                if left.message_count() == 0 {
                    connection.close(200, "done".into()).await?;
                    return Ok(found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_tells_who_published_it() {
        assert_eq!(id(&body((7, 1 << 40))), Some((7, 1 << 40)));
        assert_eq!(body((1, 1)).len(), BODY_BYTES);
        assert_eq!(id(b"short"), None);
    }
}
