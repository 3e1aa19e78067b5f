//! Every bound between nodes, with its unit.

/// Bytes of a frame. The largest batch of one entry fits (`limits::Sizes`).
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Bytes of a frame before the other side has proved that it belongs to the cluster.
pub const FRAME_BYTES_MAX_UNPROVED: usize = 1024;

/// Bytes after which requests and answers go on in the next frame.
pub const FRAME_BYTES_FILLED: usize = 1 << 20;

/// Payloads shorter than this are copied: a slice of them would cost more, and keep a frame in memory.
pub const SLICE_BYTES_MIN: usize = 2048;

/// Things in one list. With the bytes of the largest frame they bound what a frame turns into.
pub const COUNT_MAX: usize = 1 << 20;

/// Bytes of a sentence of refusal.
pub const REFUSAL_BYTES_MAX: usize = 512;

const _: () = assert!(REFUSAL_BYTES_MAX + 64 <= FRAME_BYTES_MAX_UNPROVED);
