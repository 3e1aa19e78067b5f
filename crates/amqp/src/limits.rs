//! Every bound of the codec, with its unit. All are checked before anything is allocated or waited for.

/// Bytes around a frame's payload: type (1), channel (2), size (4), and the end octet (1).
pub const FRAME_OVERHEAD_BYTES: u32 = 8;

/// Smallest frame, in bytes with overhead, that a peer may insist on (AMQP 0-9-1 4.2.3, `frame-min-size`).
pub const FRAME_BYTES_MIN: u32 = 4096;

/// Largest frame, in bytes with overhead, that is accepted until `connection.tune-ok`.
pub const FRAME_BYTES_BEFORE_TUNE: u32 = 8192;

/// What a server proposes in `connection.tune`, in bytes with overhead.
pub const FRAME_BYTES_DEFAULT: u32 = 131_072;

/// Largest frame, in bytes with overhead, whatever was negotiated.
pub const FRAME_BYTES_MAX: u32 = 1_048_576;

/// Bytes of a short string: its length is one octet.
pub const SHORTSTR_BYTES_MAX: usize = 255;

/// Bytes of a field table or array, with all it holds, without its length: as many as a frame holds.
pub const TABLE_BYTES_MAX: usize = 1_048_576;

/// Fields of tables and elements of arrays, all levels of one table together.
pub const TABLE_ENTRIES_MAX: usize = 65_536;

/// Levels of a table: one that holds only plain values has one.
pub const TABLE_DEPTH_MAX: usize = 256;

/// Levels of a table that are looked at without an allocation.
pub(crate) const TABLE_DEPTH_USUAL: usize = 8;

const _: () = assert!(FRAME_BYTES_MIN > FRAME_OVERHEAD_BYTES, "a frame has room for a payload");
const _: () = assert!(FRAME_BYTES_MIN <= FRAME_BYTES_BEFORE_TUNE);
const _: () = assert!(FRAME_BYTES_BEFORE_TUNE <= FRAME_BYTES_DEFAULT);
const _: () = assert!(FRAME_BYTES_DEFAULT <= FRAME_BYTES_MAX);
const _: () = assert!(TABLE_DEPTH_USUAL <= TABLE_DEPTH_MAX);
