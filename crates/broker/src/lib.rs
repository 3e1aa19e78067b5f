//! An AMQP conversation: methods in, commands to the cluster; answers in, methods out.
//!
//! [`session::Session`] is the core: one connection with its channels, told the time, fed bytes and answers. The
//! shell around it is in [`io`]: a listener, one task for each connection, password checks, and the node's
//! registry of reply addresses. Where a group's replicas are is not known here, nor is HTTP.
//!
//! ```no_run
//! # async fn example(cluster: cluster::ClusterHandle) -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:5672").await?;
//! let (stop, stopped) = tokio::sync::watch::channel(false);
//! let broker = broker::io::broker::Broker::new(cluster, broker::Config::default())?;
//! broker::io::listener::serve(listener, None, broker, stopped).await;
//! # drop(stop);
//! # Ok(())
//! # }
//! ```

mod arguments;
mod attributes;
mod auth;
mod capacity;
mod channel;
mod config;
mod connection;
mod connection_id;
pub mod dead_letter;
mod door;
mod errors;
mod events;
mod exchange_counts;
mod first_user;
mod headers;
pub mod io;
pub mod limits;
mod logins;
mod metrics;
mod notices;
pub mod operator;
mod own;
mod pace;
mod partitions;
mod passing;
pub mod password;
pub mod policy;
pub mod population;
mod refusals;
mod rights;
mod route_cache;
pub mod session;
mod spans;
pub mod stored;
mod tap;
mod trace;
mod values;

pub use arguments::queue::Declaration as QueueDeclaration;
pub use arguments::{filter, rate};
pub use config::Config;
pub use connection_id::ConnectionId;
pub use exchange_counts::ExchangeTotals;
pub use metrics::{Metrics, SIZE_BOUNDS, Traffic};
