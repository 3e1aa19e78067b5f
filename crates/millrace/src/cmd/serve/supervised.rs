//! What the service manager hears of a node: it waits for others, it serves, it stops.
#![allow(clippy::disallowed_methods, reason = "a shell: a task that waits")]

use std::net::SocketAddr;
use std::time::Duration;

use service::io::supervisor::Supervisor;
use tokio::task::JoinHandle;

/// How long a node waits for the others of its cluster before the service manager hears that the start is over: what is
/// still missing is not on this machine, and an installation or an upgrade here must not wait for ever.
const OTHERS_AWAITED: Duration = Duration::from_secs(30);

const WAITING: &str =
    "Waiting until its groups can serve, which in a cluster takes a majority of the nodes";

/// A node whose groups cannot serve yet.
pub(super) struct Waiting {
    over_without_others: JoinHandle<()>,
}

impl Waiting {
    /// Wants a runtime.
    pub(super) fn begin() -> Self {
        let supervisor = Supervisor::of_process();
        supervisor.status(WAITING);
        let over_without_others = tokio::spawn(async move {
            tokio::time::sleep(OTHERS_AWAITED).await;
            supervisor.ready(WAITING);
        });
        Self { over_without_others }
    }

    /// Nothing more is said of it: what the service manager hears next is newer.
    pub(super) async fn end(self) {
        self.over_without_others.abort();
        let _ = self.over_without_others.await;
    }
}

/// The node serves clients.
pub(super) fn serving(address: SocketAddr) {
    Supervisor::of_process().ready(&format!("Serving AMQP 0-9-1 on {address}"));
}

/// The node was told to stop.
pub(super) fn stopping() {
    Supervisor::of_process().stopping("Closing client connections");
}
