//! A disk with a volatile cache: what was not flushed is lost, or torn, at a power cut.
//!
//! ```text
//! data directory <- ext4 <- loop device <- FUSE file `disk` <- image
//!                                          FUSE file `ctl`:  drop | tear SEED | eio on|off | delay MS
//! ```
//!
//! Writes stay in memory, in sectors, until the block layer flushes; a flush writes them to the
//! image. After `drop` or `tear` every handle that was open is dead for good, so nothing that the
//! kernel still holds for the old mount can reach the image: a new handle sees the disk as it is
//! after the cut.

mod fuse;
pub(super) mod mounted;
mod sectors;

pub(super) use fuse::serve;
