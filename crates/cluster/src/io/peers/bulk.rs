//! Bulk connections: snapshots, throttled, and slower than everything else if need be.
//!
//! Each [`Bulk`] is a connection of its own from the sender to the receiver. What the receiver has to
//! say to it goes back among the other messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use machine::NodeId;
use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, mpsc};

use super::Shared;
use super::line::{Broken, Line, name, write};
use super::link::{Inbox, take};
use super::member::Member;
use crate::peer::codec::encode;
use crate::peer::gather::Gather;
use crate::peer::handshake::Purpose;
use crate::peer::message::Message;

/// Messages that wait for the socket. One is a chunk.
const WAITING_MAX: usize = 2;

/// A bulk connection on which nothing comes for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// A write that takes longer than this never ends.
const STALLED: Duration = Duration::from_secs(30);

/// Bytes of room that a read begins with.
const READ_BYTES: usize = 64 << 10;

/// The sender's end. Dropping it closes the connection once everything is written.
#[derive(Debug)]
pub struct Bulk {
    messages: mpsc::Sender<Message>,
}

/// The connection is gone, and with it what was not received. Begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkBroken;

impl Bulk {
    /// Sends `message` after those before it; waits while the connection or the throttle is busy. From
    /// threads only, not from tasks.
    pub fn send(&self, message: Message) -> Result<(), BulkBroken> {
        self.messages.blocking_send(message).map_err(|_| BulkBroken)
    }

    /// The same, from a task.
    pub async fn send_async(&self, message: Message) -> Result<(), BulkBroken> {
        self.messages.send(message).await.map_err(|_| BulkBroken)
    }

    /// Whether the other side has gone.
    pub fn is_broken(&self) -> bool {
        self.messages.is_closed()
    }
}

/// A handle, and the task behind it.
pub(super) fn open(
    member: Arc<Member>,
    shared: Arc<Shared>,
) -> (Bulk, impl Future<Output = ()> + Send) {
    let (messages, waiting) = mpsc::channel(WAITING_MAX);
    let task = async move {
        if let Err(why) = send(&member, &shared, waiting).await {
            tracing::warn!(
                "bulk connection to {} lost; a snapshot on it begins again: {why}",
                name(member.node)
            );
        }
    };
    (Bulk { messages }, task)
}

async fn send(
    member: &Member,
    shared: &Shared,
    mut waiting: mpsc::Receiver<Message>,
) -> Result<(), Broken> {
    let (mut line, _) = member.dial(shared, Purpose::Bulk).await?;
    let mut gather = Gather::default();
    loop {
        let next = tokio::select! {
            next = waiting.recv() => next,
            // Nothing is said on this side: it can only be closed.
            _ = line.socket.read_u8() => return Err(Broken::Closed),
        };
        let Some(message) = next else { return Ok(()) };
        encode(&mut gather, &message).map_err(Broken::Output)?;
        shared.throttle.pass(gather.bytes()).await;
        shared.counters.bytes_out.fetch_add(gather.bytes() as u64, Ordering::Relaxed);
        let written = tokio::time::timeout(STALLED, write(&mut line.socket, &mut gather)).await;
        written.unwrap_or(Err(Broken::Silent(STALLED)))?;
    }
}

/// Hands over what comes, waiting for the shards: that is what slows the sender down.
pub(super) async fn receive(mut line: Line, node: NodeId, shared: &Shared) -> Broken {
    let mut inbox = Inbox::new(node, shared);
    loop {
        let taken = take(&mut line.read, &mut inbox);
        inbox.deliver_patiently().await;
        if let Err(why) = taken {
            return why;
        }
        line.read.reserve(READ_BYTES);
        match tokio::time::timeout(IDLE, line.socket.read_buf(&mut line.read)).await {
            Err(_) => return Broken::Silent(IDLE),
            Ok(Err(error)) => return error.into(),
            Ok(Ok(0)) => return Broken::Closed,
            Ok(Ok(bytes)) => {
                shared.counters.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }
}

/// So many bytes a second, on all bulk connections together.
#[derive(Debug)]
pub(super) struct Throttle {
    bytes_per_second: u64,
    /// When everything that has passed is paid for.
    paid: Mutex<Instant>,
}

impl Throttle {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid: Mutex::new(Instant::now()) }
    }

    /// Returns when `bytes` may pass.
    async fn pass(&self, bytes: usize) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let due = {
            let mut paid = self.paid.lock().await;
            let due = (*paid).max(Instant::now());
            *paid = due + cost;
            due
        };
        tokio::time::sleep_until(due.into()).await;
    }
}
