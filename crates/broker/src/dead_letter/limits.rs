//! Every bound of the dead-letter worker, with its unit.

use std::time::Duration;

/// Entries of `x-death` that a letter carries: of more, the oldest are left out.
pub const DEATHS_MAX: usize = 64;

/// Bytes of headers up to which a letter's are made to tell of its death: they fit into a frame of the usual size
/// with the other properties.
pub const LETTER_HEADERS_BYTES_MAX: usize = amqp::limits::FRAME_BYTES_DEFAULT as usize - 8 * 1024;

/// Entries of `x-death` that are looked at, whoever wrote them.
pub const DEATHS_READ_MAX: usize = 256;

/// Bytes of letters that are gathered or sent and not known to be logged: past it no more are made.
pub const LETTER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of letters for groups that did not take some: past it no more are made.
pub const LETTER_BYTES_HELD_MAX: usize = 64 * 1024 * 1024;

/// Messages that one step sends on: the catalog is held for as long as that takes.
pub const STEP_MESSAGES: u32 = 1024;

/// What a group did not take is sent again after this time.
pub const RETRY: Duration = Duration::from_millis(250);

/// What the catalog does not know yet is looked up again after this time.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How often the log tells of messages of one fate.
pub const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// Requests to let letters go that wait while a backup is cut: with more, nothing new is taken until then.
pub const LET_GO_HELD: usize = 16 << 10;

/// How long letters that are on their way may take when the node stops. What is not settled by then is
/// sent once more when it starts.
pub const STOP: Duration = Duration::from_secs(2);

/// Messages that one look of a retry shows.
pub const RETRY_LOOK_MESSAGES: u32 = 100;

/// Messages that a retry has taken and not let go of, or asked for.
pub const RETRY_MESSAGES_MAX: usize = 256;

/// Bytes of those, as far as more than one is taken.
pub const RETRY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Targets that a retry counts apart.
pub const RETRY_TARGETS_MAX: usize = 100;

/// Retries that run on one node at a time.
pub const RETRIES_MAX: usize = 4;

/// Messages a second that a retry may be held to.
pub const RETRY_RATE_MAX: u32 = 1_000_000;

/// How much of its rate a retry may make up for after it could not keep it.
pub const RETRY_BURST: Duration = Duration::from_millis(100);

const _: () = assert!(DEATHS_MAX <= DEATHS_READ_MAX);
