//! Every bound of the client, with its unit.

use std::time::Duration;

/// Bytes asked of the socket by one read.
pub const RECEIVE_BYTES: usize = 64 * 1024;
/// Encoded publishes are handed to the socket once this many bytes wait, in bytes.
pub const SEND_BYTES: usize = 64 * 1024;
/// Frame size the client proposes, in bytes. The server may lower it.
pub const FRAME_BYTES_MAX: u32 = 128 * 1024;
/// Smallest frame size AMQP 0-9-1 allows to agree on (4.2.3, frame-min-size), in bytes.
pub const FRAME_BYTES_MIN: u32 = 4096;
/// Highest channel number the client proposes.
pub const CHANNEL_MAX: u16 = 2047;
/// Largest message body the client will gather, in bytes; more closes the connection.
pub const BODY_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Largest window of unconfirmed messages a publisher may have, in messages.
pub const WINDOW_MAX: u32 = 1 << 20;
/// Largest prefetch a consumer may ask for, in messages (the wire has 16 bits).
pub const PREFETCH_MAX: u16 = u16::MAX;
/// Longest URL that is read, in bytes.
pub const URL_BYTES_MAX: usize = 4096;
/// Longest name AMQP can carry in a short string, in bytes.
pub const SHORT_STRING_BYTES_MAX: usize = 255;
/// Heartbeat interval the client asks for when the URL does not say, in seconds.
pub const HEARTBEAT_SECONDS: u16 = 60;
/// How long a connect with its handshake, or one request, may take before it is given up.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);

const _: () = assert!(FRAME_BYTES_MAX >= FRAME_BYTES_MIN, "the proposal is below AMQP's minimum");
