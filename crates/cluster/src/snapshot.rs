//! How a replica that the log cannot help any more gets the leader's newest checkpoint.
//!
//! The log is compacted only up to a checkpoint, so the checkpoint and the entries above it are
//! everything. The leader offers it. The receiver says, queue by queue, from which sequence number on
//! messages are new to it: its own segments hold the others. Then come the state and those messages
//! that are alive and new, sorted by queue and number, in chunks of which every one is checked. They
//! are written to segments as they come. When all are there, the group's core is asked, and what it
//! accepts becomes the group's checkpoint; what it had above in its log is void.
//!
//! A transfer that breaks is begun anew. The segments that are sent stay open, so a checkpoint that
//! the leader makes meanwhile takes nothing away from it.

mod chunk;
mod incoming;
mod outgoing;
mod receiver;
mod sender;
mod stored;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use machine::NodeId;

pub(crate) use chunk::Chunk;
pub use chunk::Transfer;
pub use incoming::{Event, Incoming, Installed};
pub use outgoing::{Outgoing, Sending};
#[cfg(test)]
pub(crate) use sender::Answer;
pub(crate) use sender::Sender;
pub use sender::Source;
pub(crate) use stored::{StoredGroup, Taken};

use crate::exchange::Input;
use crate::peer::message::Message;

/// Bytes of the stream in one chunk.
pub const DATA_BYTES: usize = 256 << 10;

/// Bytes that may be on their way before the receiver has said that it took some.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// A segment of a snapshot that is larger is followed by another.
const SEGMENT_BYTES: u64 = 256 << 20;

/// Largest message that is taken.
const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// Queues of which a receiver says what it has. With more it takes everything.
const HAVE_MAX: usize = 16 << 10;

/// Milliseconds without a chunk after which a half of a snapshot is thrown away.
const STALE_MS: u64 = 60_000;

/// Whether a chunk is for the sender of a snapshot; others are for the receiver.
pub fn is_answer(chunk: &Bytes) -> bool {
    Chunk::is_answer(chunk)
}

/// Takes out of `inputs` what belongs here and not to a shard.
pub fn divert(inputs: &mut [Input]) -> Vec<(NodeId, Message)> {
    let is_ours = |message: &mut Message| {
        matches!(message, Message::Snapshot { .. } | Message::SnapshotTaken { .. })
    };
    let mut ours = Vec::new();
    for input in inputs {
        if let Input::Peers { from, messages } = input {
            ours.extend(messages.extract_if(.., is_ours).map(|message| (*from, message)));
        }
    }
    ours
}

/// Why a chunk, and the transfer with it, was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub(crate) &'static str);

impl std::fmt::Display for Refused {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.0)
    }
}

/// What begins a message in the stream: queue, sequence number, length, checksum.
const MESSAGE_HEAD_BYTES: usize = 24;

fn message_head(queue: u64, seq: u64, message: &Bytes) -> [u8; MESSAGE_HEAD_BYTES] {
    let mut head = [0; MESSAGE_HEAD_BYTES];
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    head[..8].copy_from_slice(&queue.to_le_bytes());
    head[8..16].copy_from_slice(&seq.to_le_bytes());
    head[16..20].copy_from_slice(&length.to_le_bytes());
    head[20..].copy_from_slice(&crc32c::crc32c(message).to_le_bytes());
    head
}
