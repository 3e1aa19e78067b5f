//! One data connection while it lives: what comes is handed to the shards, what waits is written, and
//! both sides show that they are there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use machine::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

use super::Shared;
use super::line::{Broken, Line, write};
use super::outbox::Outbox;
use crate::exchange::Input;
use crate::peer::codec::{decode, encode, encode_ping};
use crate::peer::frame;
use crate::peer::gather::Gather;
use crate::peer::limits::FRAME_BYTES_MAX;
use crate::peer::message::Message;
use crate::shard::Shard;

/// After so long without anything else to say a node says that it is there.
pub(super) const PING: Duration = Duration::from_millis(200);

/// Whoever says nothing for so long is taken for gone.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// Bytes that are gathered for one write; what is urgent waits no longer than that.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes of room that a read begins with.
const READ_BYTES: usize = 64 << 10;

/// Serves the connection until it breaks.
pub(super) async fn run(line: Line, node: NodeId, outbox: &Outbox, shared: &Shared) -> Broken {
    let protocol = line.protocol;
    let (reader, writer) = tokio::io::split(line.socket);
    tokio::select! {
        why = read(reader, line.read, node, shared) => why,
        why = send(writer, protocol, outbox, shared) => why,
    }
}

async fn read(
    mut socket: impl AsyncRead + Unpin,
    mut buffer: BytesMut,
    node: NodeId,
    shared: &Shared,
) -> Broken {
    let mut inbox = Inbox::new(node, shared);
    loop {
        let taken = take(&mut buffer, &mut inbox);
        inbox.deliver();
        if let Err(why) = taken {
            return why;
        }
        if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
            buffer.reserve(READ_BYTES);
        }
        match timeout(SILENCE, socket.read_buf(&mut buffer)).await {
            Err(_) => return Broken::Silent(SILENCE),
            Ok(Err(error)) => return error.into(),
            Ok(Ok(0)) => return Broken::Closed,
            Ok(Ok(bytes)) => {
                shared.counters.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }
}

/// Takes all whole frames.
pub(super) fn take(buffer: &mut BytesMut, inbox: &mut Inbox<'_>) -> Result<(), Broken> {
    while let Some(frame) = frame::take(buffer, FRAME_BYTES_MAX).map_err(Broken::Input)? {
        if let Some(message) = decode(frame).map_err(Broken::Input)? {
            inbox.add(message);
        }
    }
    Ok(())
}

/// Messages on their way to the shards.
pub(super) struct Inbox<'a> {
    node: NodeId,
    shared: &'a Shared,
    shards: Vec<Vec<Message>>,
}

impl<'a> Inbox<'a> {
    pub(super) fn new(node: NodeId, shared: &'a Shared) -> Self {
        Self { node, shared, shards: shared.shards.iter().map(|_| Vec::new()).collect() }
    }

    fn add(&mut self, message: Message) {
        if let Message::Renewed { boot, stamp } = message {
            self.shared.note_stamp(self.node, boot, stamp);
            return;
        }
        let message = match message {
            Message::Question { number, body } => {
                return self.shared.asked(self.node, number, body);
            }
            Message::Told { number, part } => {
                return self.shared.questions.told(self.node, number, &part);
            }
            other => other,
        };
        if let Message::Raft { message, .. } = &message
            && (message.from != self.node.0 || message.to != self.shared.hello.node.0)
        {
            // Neither from who sends it nor for us: nothing that a member does.
            self.shared.counters.misdirected.fetch_add(1, Ordering::Relaxed);
            let (node, from, to) = (self.node.0, message.from, message.to);
            self.shared.warn_of_stranger(&format!(
                "dropped a message of node {node}: it is addressed from node {from} to node {to}"
            ));
            return;
        }
        let shard = Shard::of(message.group(), self.shards.len());
        self.shards[shard].push(message);
    }

    /// One push per shard, whatever there is.
    fn deliver(&mut self) {
        for (shard, messages) in self.shared.shards.iter().zip(&mut self.shards) {
            if !messages.is_empty() {
                let messages = std::mem::take(messages);
                shard.push(Input::Peers { from: self.node, messages });
            }
        }
    }

    /// The same, waiting while a shard has too much before it.
    pub(super) async fn deliver_patiently(&mut self) {
        for (shard, messages) in self.shared.shards.iter().zip(&mut self.shards) {
            if !messages.is_empty() {
                let messages = std::mem::take(messages);
                let weight = messages.iter().map(Message::weight).sum();
                shard.send(Input::Peers { from: self.node, messages }, weight).await;
            }
        }
    }
}

async fn send(
    mut socket: impl AsyncWrite + Unpin,
    protocol: u16,
    outbox: &Outbox,
    shared: &Shared,
) -> Broken {
    let mut messages = Vec::new();
    let mut gather = Gather::default();
    // At once: the other side may be waiting to hear from us.
    encode_ping(&mut gather);
    loop {
        shared.counters.bytes_out.fetch_add(gather.bytes() as u64, Ordering::Relaxed);
        if let Err(why) = write(&mut socket, &mut gather).await {
            return why;
        }
        match next(outbox, &mut messages).await {
            Err(why) => return why,
            Ok(()) if messages.is_empty() => encode_ping(&mut gather),
            Ok(()) => {
                // Messages of a later version than the other side's are nothing to it.
                for message in messages.drain(..).filter(|message| message.since() <= protocol) {
                    if let Err(error) = encode(&mut gather, &message) {
                        return Broken::Output(error);
                    }
                }
            }
        }
    }
}

/// What is to be written next; nothing if there was nothing for as long as one may be silent.
async fn next(outbox: &Outbox, messages: &mut Vec<Message>) -> Result<(), Broken> {
    loop {
        if outbox.take(messages, WRITE_BYTES).map_err(|_| Broken::Overflow)? {
            return Ok(());
        }
        if timeout(PING, outbox.filled()).await.is_err() {
            return Ok(());
        }
    }
}
