//! What bounds the spans on their way to a collector.

use std::time::Duration;

/// Spans that wait for the collector: what comes then is dropped and counted.
pub const SPANS_WAITING_MAX: usize = 10_000;

/// Their bytes.
pub const SPANS_WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Spans of one request: so many, or the first that bring the bytes above that.
pub const REQUEST_SPANS_MAX: usize = 512;
pub const REQUEST_BYTES: usize = 1024 * 1024;

/// How long a request waits for more spans.
pub const GATHER: Duration = Duration::from_secs(1);

/// How long a request may take, connecting included.
pub const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// Pauses between attempts: the first one, and the longest that the node waits of its own accord. Each is twice the one
/// before it.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The longest pause that a collector may ask for.
pub const PAUSE_ASKED_MAX: Duration = Duration::from_secs(300);

/// Bytes of the head and of the body of an answer.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a `tracestate` that are passed on (W3C Trace Context 3.3.1.5): a longer one is left out.
pub const STATE_BYTES_MAX: usize = 512;

const _: () = assert!(REQUEST_SPANS_MAX <= SPANS_WAITING_MAX);
const _: () = assert!(PAUSE_MIN.as_millis() < PAUSE_MAX.as_millis());
