//! The other end of the AMQP 0-9-1 conversation: connection, publisher with a window of confirms,
//! consumer with batched acknowledgements, and how to come back after a loss.
//!
//! Speaks to any AMQP 0-9-1 server. Everything but `io` is without a clock, a socket or chance:
//! [`Core`] is a connection's conversation, [`Window`] the unconfirmed messages, [`Acks`] what a consumer
//! holds, [`Backoff`] when to try again. The handles ([`Publisher`], [`Consumer`], [`Connection`]) are
//! driven by who awaits them; there are no tasks behind the caller's back.
//!
//! ```no_run
//! use client::{Address, Consumer, ConsumerOptions, Options, Outcome, Publisher, Url};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let url: Url = "amqp://guest:guest@localhost:5672/%2F".parse()?;
//! let options = Options::named("example");
//!
//! let mut publisher = Publisher::open(&url, &options, 1000).await?;
//! let persistent = amqp::Properties { delivery_mode: Some(2), ..Default::default() };
//! for order in 0..10_000 {
//!     let body = format!("order {order}");
//!     publisher.publish(Address::queue("orders"), &persistent, body.as_bytes()).await?;
//! }
//! let settled = publisher.close().await?;
//! assert!(settled.is_clean(), "{settled:?}");
//!
//! let how = ConsumerOptions { prefetch: 100, ..ConsumerOptions::default() };
//! let mut consumer = Consumer::open(&url, &options, "orders", how).await?;
//! for _ in 0..10_000 {
//!     let delivery = consumer.next().await?;
//!     consumer.settle(delivery.tag, Outcome::Done)?;
//! }
//! consumer.close().await?;
//! # Ok(())
//! # }
//! ```

mod acks;
mod backoff;
mod channel;
mod connection;
mod error;
pub mod io;
pub mod limits;
mod options;
mod publisher;
mod url;
mod window;

pub use acks::{Acks, Outcome, Tell, UnknownTag};
pub use backoff::{Backoff, Chance};
pub use channel::Content;
pub use connection::{Agreed, Core, Event, Input};
pub use error::Error;
pub use io::{
    Connection, Consumer, ConsumerOptions, Delivery, DeliveryTag, ExchangeSpec, Publisher,
    QueueDeclared, QueueSpec, Settled,
};
pub use options::Options;
pub use publisher::{Address, Verdict};
pub use url::{BadUrl, Tls, Url};
pub use window::{PublishSeq, Run, UnknownSeq, Window};
