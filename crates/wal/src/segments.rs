//! Segments: what a group still needs of a log file that is to be recycled, sorted by queue.
//!
//! A segment is immutable and describes itself: records sorted by (queue, sequence number), a
//! sparse position index, a footer with one extent per queue. Opening reads the footer only; a
//! read is one or two calls. A message is opaque here.

pub(crate) mod format;
mod merged;
mod reader;
mod writer;

pub use format::{Extent, RECORD_HEADER_BYTES, SegmentMeta};
pub use merged::Merged;
pub use reader::Reader;
pub use writer::{Sharing, Writer};

#[cfg(test)]
mod tests;
