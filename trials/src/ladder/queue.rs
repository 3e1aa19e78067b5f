//! The queue that receives everything: declared before, and counted by the broker itself.

use std::time::{Duration, Instant};

use lapin::options::{
    ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use crate::chaos::Failure;

/// The exchange that everybody publishes to, and the queue behind it.
pub const NAME: &str = "outbox";
const PAUSE: Duration = Duration::from_millis(20);

/// A durable queue and a connection to look at it.
pub struct Queue {
    // The channel lives as long as its connection.
    _connection: Connection,
    channel: Channel,
}

impl Queue {
    pub async fn open(url: &str) -> Result<Self, Failure> {
        let connection = connect(url).await?;
        let channel = connection.create_channel().await.map_err(|error| failed(&error))?;
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        channel
            .exchange_declare(NAME.into(), ExchangeKind::Fanout, durable, FieldTable::default())
            .await
            .map_err(|error| failed(&error))?;
        Ok(Self { _connection: connection, channel })
    }

    /// An empty queue behind the exchange.
    pub async fn clear(&self) -> Result<(), Failure> {
        self.declare_anew().await.map_err(|error| failed(&error))
    }

    async fn declare_anew(&self) -> Result<(), lapin::Error> {
        let (channel, table) = (&self.channel, FieldTable::default);
        channel.queue_delete(NAME.into(), QueueDeleteOptions::default()).await?;
        channel.queue_declare(NAME.into(), QueueDeclareOptions::durable(), table()).await?;
        let options = QueueBindOptions::default();
        channel.queue_bind(NAME.into(), NAME.into(), "".into(), options, table()).await
    }

    /// How many messages are in it.
    pub async fn depth(&self) -> Result<u64, Failure> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
        let queue = self.channel.queue_declare(NAME.into(), passive, FieldTable::default()).await;
        queue.map(|queue| u64::from(queue.message_count())).map_err(|error| failed(&error))
    }

    /// Waits until so many messages are in it. Gives back how many there are.
    pub async fn wait(&self, messages: u64, within: Duration) -> Result<u64, Failure> {
        let begin = Instant::now();
        loop {
            let depth = self.depth().await?;
            if depth >= messages || begin.elapsed() > within {
                return Ok(depth);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

pub async fn connect(url: &str) -> Result<Connection, Failure> {
    Connection::connect(url, ConnectionProperties::default()).await.map_err(|error| failed(&error))
}

pub fn failed(error: &lapin::Error) -> Failure {
    Failure::Trial(format!("AMQP: {error}"))
}
