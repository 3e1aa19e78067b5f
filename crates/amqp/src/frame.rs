//! One frame: what travels between the peers (AMQP 0-9-1 4.2.3). Views into the read buffer, nothing owned.

/// What a client sends first (AMQP 0-9-1 4.2.2), and what a server answers to anything else before it hangs up.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";

/// The octet that ends every frame.
pub(crate) const FRAME_END: u8 = 0xCE;

pub(crate) const TYPE_METHOD: u8 = 1;
pub(crate) const TYPE_HEADER: u8 = 2;
pub(crate) const TYPE_BODY: u8 = 3;
pub(crate) const TYPE_HEARTBEAT: u8 = 8;

/// The only class with content: `basic`.
pub const CLASS_BASIC: u16 = 60;

/// A whole frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// At least four bytes: the ids of class and method. The rest is for `Method::decode`.
    Method { channel: u16, payload: &'a [u8] },
    /// Announces a message's body. `properties` are flags and values, not looked at yet: `Properties::decode`.
    Header { channel: u16, class_id: u16, body_bytes: u64, properties: &'a [u8] },
    /// A part of a message's body; may be empty.
    Body { channel: u16, payload: &'a [u8] },
    /// "I am alive." Channel 0 is the only right one.
    Heartbeat { channel: u16 },
}

impl Frame<'_> {
    /// The channel in the frame's header.
    pub fn channel(&self) -> u16 {
        match self {
            Self::Method { channel, .. }
            | Self::Header { channel, .. }
            | Self::Body { channel, .. }
            | Self::Heartbeat { channel } => *channel,
        }
    }
}
