//! Frames on their way out: small fields copied into one buffer, payloads referenced where they are.
//!
//! ```text
//! frame   length u32 (of what follows it), crc32c u32 (of what follows it), version u8, kind u8, body
//! ```
//!
//! Little-endian. Several frames share one [`Gather`], which is written with vectored writes.

use std::io::IoSlice;

use bytes::Bytes;
use machine::Ranges;

use super::Error;
use super::frame::{FRAME_HEAD_BYTES, Kind, VERSION};
use super::limits::{FRAME_BYTES_MAX, SLICE_BYTES_MIN};

/// Frames to be written, in order.
#[derive(Debug, Default)]
pub struct Gather {
    /// Everything but the payloads.
    head: Vec<u8>,
    /// Payloads, each with its place in `head`.
    slices: Vec<(usize, Bytes)>,
    slice_bytes: usize,
    /// Where the open frame begins, in `head` and in `slices`, and the bytes of slices before it.
    open: (usize, usize, usize),
}

impl Gather {
    /// Bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.slice_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Forgets what was written, and keeps the room.
    pub fn clear(&mut self) {
        self.head.clear();
        self.slices.clear();
        self.slice_bytes = 0;
    }

    pub(super) fn begin(&mut self, kind: Kind) {
        self.open = (self.head.len(), self.slices.len(), self.slice_bytes);
        self.head.extend_from_slice(&[0; FRAME_HEAD_BYTES - 2]);
        self.head.push(VERSION);
        self.head.push(kind.number());
    }

    /// Bytes of the open frame so far.
    pub(super) fn open_bytes(&self) -> usize {
        self.head.len() - self.open.0 + self.slice_bytes - self.open.2
    }

    /// Closes the frame: its length and checksum are known. A frame that is too large is taken back.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        let bytes = self.open_bytes() - 4;
        let (start, first_slice, slice_bytes) = self.open;
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= FRAME_BYTES_MAX);
        let Some(length) = length else {
            self.head.truncate(start);
            self.slices.truncate(first_slice);
            self.slice_bytes = slice_bytes;
            return Err(Error::TooLarge { bytes });
        };
        let mut checksum = 0;
        let mut at = start + FRAME_HEAD_BYTES - 2;
        for (place, slice) in &self.slices[first_slice..] {
            checksum = crc32c::crc32c_append(checksum, &self.head[at..*place]);
            checksum = crc32c::crc32c_append(checksum, slice);
            at = *place;
        }
        checksum = crc32c::crc32c_append(checksum, &self.head[at..]);
        self.head[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self.head[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.head.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.head.push(u8::from(value));
    }

    /// Seven bits a byte, the lowest first.
    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.head.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.head.push(value as u8);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    pub(super) fn array(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    pub(super) fn ranges(&mut self, ranges: &Ranges) {
        ranges.encode(&mut self.head);
    }

    /// Length and bytes. Only what is short is copied.
    pub(super) fn payload(&mut self, bytes: &Bytes) {
        self.count(bytes.len());
        if bytes.len() < SLICE_BYTES_MIN {
            self.head.extend_from_slice(bytes);
        } else {
            self.slice_bytes += bytes.len();
            self.slices.push((self.head.len(), bytes.clone()));
        }
    }

    /// Bytes of our own making: copied.
    pub(super) fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.head.extend_from_slice(bytes);
    }

    /// What is left to be written after `written` bytes: up to as many slices as `into` has room for.
    /// Returns how many there are.
    pub fn slices<'a>(&'a self, written: usize, into: &mut [IoSlice<'a>]) -> usize {
        let mut skip = written;
        let mut count = 0;
        let mut add = |part: &'a [u8]| {
            let rest = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            if !rest.is_empty() && count < into.len() {
                into[count] = IoSlice::new(rest);
                count += 1;
            }
        };
        let mut at = 0;
        for (place, slice) in &self.slices {
            add(&self.head[at..*place]);
            add(slice);
            at = *place;
        }
        add(&self.head[at..]);
        count
    }
}
