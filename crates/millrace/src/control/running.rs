//! A node that runs, as its control socket sees it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use broker::io::broker::Broker;
use cluster::ClusterHandle;

/// What can be asked at the socket. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) cluster: ClusterHandle,
    pub(crate) broker: Arc<Broker>,
    pub(crate) start: Arc<Start>,
}

/// How the node was started.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) at: Instant,
    pub(crate) data_dir: PathBuf,
    /// Where AMQP clients connect, once they can.
    pub(crate) amqp: OnceLock<SocketAddr>,
    /// Where the metrics are.
    pub(crate) metrics: Option<String>,
    /// Where the other nodes connect.
    pub(crate) peers: Option<String>,
}
