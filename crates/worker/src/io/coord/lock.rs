//! One of many, by an exclusive queue: whoever's connection declares it has the lock, for as long as the
//! connection lives.
//!
//! Everything that the holder does goes over the same connection. So when the broker has given up the connection,
//! and the lock with it, nothing that the former holder still sends is carried out.

use client::{Connection, QueueSpec};

/// AMQP's reply to somebody else's exclusive queue: RESOURCE_LOCKED.
const LOCKED: u16 = 405;
/// ACCESS_REFUSED: what brokers say of an exclusive consumer.
pub(super) const REFUSED: u16 = 403;

/// A connection that has the lock.
pub(super) struct Lock {
    pub(super) connection: Connection,
    queue: String,
}

impl Lock {
    /// Tries to take the lock: the lock, or the connection back for the next attempt.
    pub(super) async fn take(
        mut connection: Connection,
        queue: &str,
    ) -> Result<Result<Self, Connection>, client::Error> {
        let spec = QueueSpec { name: queue.to_owned(), exclusive: true, ..QueueSpec::default() };
        match connection.declare_queue(&spec).await {
            Ok(_) => Ok(Ok(Self { connection, queue: queue.to_owned() })),
            Err(client::Error::ChannelClosed { code: LOCKED, .. }) => Ok(Err(connection)),
            Err(error) => Err(error),
        }
    }

    /// Whether the connection, and so the lock, is still there.
    pub(super) async fn check(&mut self) -> Result<(), client::Error> {
        self.connection.look_up_queue(&self.queue).await.map(drop)
    }
}
