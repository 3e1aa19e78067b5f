//! Every bound on what others send, with its unit.

use std::time::Duration;

/// Bytes of a token. RabbitMQ takes 8 KiB with all that stands around it, and HTTP servers take heads of 8 to 16 KiB, so
/// no token is larger that anybody uses.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Scopes of a token that are about this node.
pub const SCOPES_MAX: usize = 1024;

/// Bytes of a user's name: AMQP carries no longer one.
pub const USER_BYTES_MAX: usize = 255;

/// Keys of a set. An identity server has one or two, and the ones before them.
pub const KEYS_MAX: usize = 64;

/// Bytes of a set of keys, certificates that stand beside them included.
pub const KEY_SET_BYTES_MAX: usize = 256 * 1024;

/// Bits of an RSA key at least: shorter ones can be broken.
pub const RSA_BITS_MIN: usize = 2048;

/// Bits of an RSA key at most: what a longer one has signed is not checked.
pub const RSA_BITS_MAX: usize = 4096;

/// How long a server may take to send its keys.
pub const FETCH_WAIT: Duration = Duration::from_secs(5);

/// Codes that are turned into tokens at a time: whoever sends one more is refused, so that nobody makes the node besiege an
/// identity server.
pub const REDEEMED_AT_ONCE_MAX: usize = 16;

/// Bytes of the head of its answer.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How long a token with an unknown key waits at least after the keys were asked for last: anybody can send one.
pub const RELOAD_PAUSE: Duration = Duration::from_secs(10);

/// How often a server is asked for its keys, so that one it has withdrawn counts no more.
pub const RELOAD_EVERY: Duration = Duration::from_secs(300);

/// How far the clock of whoever signs may be ahead of this one. A token that has expired has no such grace.
pub const CLOCK_SKEW_S: u64 = 30;
