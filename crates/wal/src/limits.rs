//! Every bound of the log, with its unit.

/// Where the first batch of a log file lies: after the header block, on a page of its own.
pub const DATA_START: u64 = 4096;

/// Batches begin at multiples of this, so that a torn write never shares a sector with a batch
/// that was synced before.
pub const SECTOR_BYTES: u64 = 512;

/// Default size of one log file.
pub const FILE_BYTES: u64 = 64 << 20;

/// Smallest log file: a header and a few sectors. Only tests go that low.
pub const FILE_BYTES_MIN: u64 = 8 << 10;

/// Largest log file: offsets and lengths inside a batch are 32 bits wide.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// Log file made on the spot when none is prepared: at first start, or when a file filled before
/// the next was ready. Small, because somebody waits for it.
pub const URGENT_FILE_BYTES: u64 = 4 << 20;

/// Bytes zero-filled by one write while a log file is prepared.
pub const FILL_STEP_BYTES: usize = 256 << 10;

/// Largest file that says whose data directory it is.
pub const IDENTITY_BYTES_MAX: usize = 4096;

/// Largest note beside the log (starts, members, founding): far more than the largest cluster needs.
pub const NOTE_BYTES_MAX: u64 = 1 << 20;

/// Parts that one write gathers: `IOV_MAX` of Linux.
pub const WRITE_PARTS_MAX: usize = 1024;

/// Bytes that a start reads at once while it scans the log.
pub const SCAN_STEP_BYTES: usize = 1 << 20;

/// Records of one batch.
pub const BATCH_RECORDS_MAX: usize = 1 << 20;

/// Bytes between two entries of a segment's position index.
pub const INDEX_STRIDE_BYTES: u64 = 64 << 10;

/// Largest message in a segment.
pub const MESSAGE_BYTES_MAX: u32 = 512 << 20;

/// Messages of one segment that are remembered while it is written, so that other queues may refer to
/// them; further ones are stored once per queue.
pub const SHARED_MESSAGES_MAX: usize = 256 << 10;

/// Bytes gathered before a segment writer writes.
pub const SEGMENT_BUFFER_BYTES: usize = 1 << 20;

/// Bytes of a segment that may wait for a sync, so that a commit never waits behind more.
pub const SEGMENT_SYNC_BYTES: u64 = 4 << 20;

/// Largest checkpoint file that is read, and by default the largest that is written: far beyond what a
/// group holds in memory, so that memory, which the alarm watches, is the bound.
pub const CHECKPOINT_BYTES_MAX: u64 = 1 << 40;

/// A merge is not planned when its result would be larger.
pub const MERGED_BYTES_MAX: u64 = 256 << 20;

/// So many neighbours of like size are merged even when all of them are live.
pub const LIKE_SIZED_MAX: usize = 4;

/// Log files that nothing needs any more, kept to be recycled; more are removed. As many as one round
/// of checkpoints frees: the owner keeps four files that hold entries, and the next.
pub const SPARE_FILES_MAX: usize = 5;

/// Default size of the ballast file: what compaction may use when the disk is full.
pub const BALLAST_BYTES: u64 = 64 << 20;

const _: () = assert!(DATA_START.is_multiple_of(SECTOR_BYTES), "the first batch is aligned");
const _: () = assert!(URGENT_FILE_BYTES <= FILE_BYTES, "an urgent file is a small file");
const _: () = assert!(FILE_BYTES_MAX < u32::MAX as u64, "offsets in a file fit 32 bits");
