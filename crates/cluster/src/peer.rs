//! What nodes tell each other, and how it is written on the wire.
//!
//! A codec and a handshake; sockets are in `io::peers`. Every message has its own fixed layout, which
//! is judged field by field: what cannot be read closes the connection, and nothing on the peer port
//! asks for more than Raft, forwarding and snapshots.

pub mod admission;
mod answers;
pub mod codec;
pub mod frame;
pub mod gather;
pub mod handshake;
pub mod limits;
mod locks;
pub mod message;
mod peeks;
mod raft_message;
mod reader;
mod requests;
#[cfg(test)]
pub(crate) mod tests;

/// Why bytes of a peer, or a message to one, are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A frame longer than may be.
    TooLarge { bytes: usize },
    /// The bytes are not those that were sent, or never were a frame.
    Checksum,
    /// A version of the protocol that is not known here.
    Version(u8),
    /// A kind of frame that is not known here.
    Kind(u8),
    /// Fields that do not fit what the frame is.
    Malformed(&'static str),
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { bytes } => write!(out, "a frame of {bytes} bytes is too large"),
            Self::Checksum => out.write_str("the checksum of a frame is wrong"),
            Self::Version(version) => {
                write!(
                    out,
                    "a frame has version {version}, and this node reads version {}",
                    frame::VERSION
                )
            }
            Self::Kind(kind) => write!(out, "a frame has the unknown kind {kind}"),
            Self::Malformed(what) => write!(out, "{what} is malformed or not expected here"),
        }
    }
}

impl std::error::Error for Error {}
