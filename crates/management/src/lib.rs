//! RabbitMQ's management API over HTTP: what its tools ask a broker, answered with its paths, names and codes.
//!
//! A request is decided without waiting: [`routes`] says which path is whose, [`access`] whether its user may ask, and
//! a route's function what is to be done ([`work::Work`]). [`io`] does that: it changes the catalog, asks leaders of
//! queues, connections of all nodes, or opens an AMQP session of the user. Whatever a client could do is done by such a
//! session: so it meets the rules that clients meet, and there is no second writing of them.
//!
//! ```text
//!   request ──no user, wrong password──> 401
//!      │ user known
//!      v
//!   route ──none──> 404        access ──no──> 401        function ──Problem──> 400, 404
//!      │
//!      v
//!   Work: Answer │ Change (catalog) │ Queues, Connections (asked) │ Client (an AMQP session) ──> Reply
//! ```
//!
//! Sources: RabbitMQ's documentation of the HTTP API (3.10), and what `rabbitmqadmin`, rabbit-hole and KEDA read.

mod access;
mod arguments;
mod asked;
mod at;
mod audit;
mod begin;
mod books;
mod companions;
mod console;
mod fronts;
mod groups;
mod history;
mod import;
pub mod io;
pub mod limits;
mod lines;
mod live;
mod looks;
mod marks;
mod metrics;
mod neighbour;
mod node;
mod page;
mod picture;
mod places;
mod problems;
mod rates;
mod reply;
mod routes;
mod seen;
mod sessions;
mod work;

pub use metrics::Metrics;
pub use node::{cluster_name, name_of};
pub use routes::{ERLANG_VERSION, RABBITMQ_VERSION, paths};
