//! Every committed outbox row is confirmed by the broker, at least once, with the same message-id each time, in
//! order per key if that was asked for.
//!
//! A row's way: a source reads it (polling, or logical replication), [`Composer`] makes a message of it by the
//! [`Mapping`], the broker confirms it, the row is marked. Everything but `io` is without a clock, a socket or chance.
//!
//! ```
//! use relay::{Config, Mapping, Preset};
//!
//! let broker = "amqp://guest:guest@localhost".parse().expect("it is a URL");
//! let mapping = Mapping::preset(Preset::OutboxMessages);
//! let config = Config::new("postgres://app@localhost/shop", broker, mapping);
//! assert!(config.problems().is_empty());
//! ```

pub mod admin;
mod attempts;
mod batch;
mod cloudevents;
mod compose;
mod config;
mod error;
mod fields;
mod headers;
pub mod inbox;
pub mod io;
mod label;
pub mod lanes;
pub mod limits;
mod lsn;
mod mapping;
mod metrics;
pub mod mysql;
#[doc(hidden)]
pub mod pgoutput;
pub mod poll;
mod progress;
pub mod publisher;
mod settings;
mod slot;
mod sources;
pub mod sql;
mod stored;
pub mod stream;
mod template;
mod timestamp;

pub use attempts::{Fault, Reason};
pub use batch::{Batch, Failed, OutboxRow};
pub use cloudevents::{CloudEvents, Mode};
pub use compose::{Composer, Outgoing};
pub use config::{Config, OnDead, OnSuccess, Order, Pipeline, Source};
pub use error::Error;
pub use fields::Fields;
pub use lsn::Lsn;
pub use mapping::{HeaderColumn, Layout, Mapping, Preset, TableName};
pub use metrics::{Board, Metrics, Step, Total};
pub use progress::{CommitTime, Partial, Reached};
pub use settings::SETTINGS;
pub use sources::{Changes, SOURCES, Sources, clashes};
pub use template::{BadTemplate, Template};
