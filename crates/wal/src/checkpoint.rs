//! A group's checkpoint: everything up to an index, so that the log below it is not needed.
//!
//! ```text
//! header (64): magic, version, checksum of header, checksum of body, group, index, term, bytes
//! body: next segment number | segments that are no more | segments with their extents | state
//! ```
//!
//! Written under another name, synced, renamed. It names all segments of the group; a segment
//! file that no checkpoint names is either younger (an interrupted flush) or named as removed.

use bytes::Bytes;

use crate::error::Error;
use crate::identity::Identity;
use crate::limits::CHECKPOINT_BYTES_MAX;
use crate::record::{u32_at, u64_at};
use crate::segments::{Extent, SegmentMeta};

pub(crate) const MAGIC: [u8; 4] = *b"MRCP";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 64;

/// A group's state at an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The group.
    pub group: u32,
    /// Last index that is in it.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// The machine's and the consensus core's own bytes.
    pub state: Bytes,
    /// Segments with what the state refers to, oldest first.
    pub segments: Vec<SegmentMeta>,
}

/// A checkpoint with what only this crate needs of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) checkpoint: Checkpoint,
    /// Segment files from this number on belong to an unfinished flush.
    pub(crate) next_segment: u64,
    /// Segments that are no more, although their files may be there.
    pub(crate) removed: Vec<u64>,
}

impl Stored {
    /// Size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        let Checkpoint { segments, state, .. } = &self.checkpoint;
        let fields = |segment: &SegmentMeta| 4 + Extent::FIELDS * segment.extents.len();
        let fields = 3 + self.removed.len() + segments.iter().map(fields).sum::<usize>();
        (HEADER_BYTES + 8 * fields + state.len()) as u64
    }

    pub(crate) fn encode(&self, identity: &Identity) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        put(&mut out, self.next_segment);
        put(&mut out, self.removed.len() as u64);
        self.removed.iter().for_each(|number| put(&mut out, *number));
        put(&mut out, self.checkpoint.segments.len() as u64);
        for segment in &self.checkpoint.segments {
            put(&mut out, segment.number);
            put(&mut out, segment.bytes);
            put(&mut out, u64::from(segment.checksum));
            put(&mut out, segment.extents.len() as u64);
            for extent in &segment.extents {
                extent.fields().into_iter().for_each(|field| put(&mut out, field));
            }
        }
        out.extend_from_slice(&self.checkpoint.state);
        assert_eq!(out.len() as u64, self.bytes(), "a checkpoint has the size that was checked");
        let body_bytes = (out.len() - HEADER_BYTES) as u64;
        let body_checksum = crc32c::crc32c(&out[HEADER_BYTES..]);
        let state_bytes = self.checkpoint.state.len() as u64;
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&body_checksum.to_le_bytes());
        out[16..20].copy_from_slice(&self.checkpoint.group.to_le_bytes());
        out[24..32].copy_from_slice(&self.checkpoint.index.to_le_bytes());
        out[32..40].copy_from_slice(&self.checkpoint.term.to_le_bytes());
        out[40..48].copy_from_slice(&body_bytes.to_le_bytes());
        out[48..56].copy_from_slice(&state_bytes.to_le_bytes());
        let checksum = header_checksum(identity, &out[..HEADER_BYTES]);
        out[8..12].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a whole checkpoint file of `group`.
    pub(crate) fn decode(
        identity: &Identity,
        group: u32,
        path: &str,
        bytes: &Bytes,
    ) -> Result<Self, Error> {
        let damaged = |offset: usize, what: &str| Error::damaged(path, offset as u64, what);
        let header = bytes.get(..HEADER_BYTES).ok_or_else(|| damaged(0, "it is too short"))?;
        let mut plain = header.to_vec();
        plain[8..12].fill(0);
        if header[0..4] != MAGIC || u32_at(header, 8) != header_checksum(identity, &plain) {
            return Err(damaged(0, "the header's checksum is wrong"));
        }
        if header[4..6] != VERSION.to_le_bytes() {
            return Err(Error::refused(path, "a newer program wrote it: use that program"));
        }
        if u32_at(header, 16) != group {
            return Err(damaged(16, "it belongs to another group"));
        }
        let body = &bytes[HEADER_BYTES..];
        if body.len() as u64 != u64_at(header, 40) || crc32c::crc32c(body) != u32_at(header, 12) {
            return Err(damaged(HEADER_BYTES, "the checksum of the contents is wrong"));
        }
        let decoded = Fields { rest: body }.stored().ok_or_else(|| {
            damaged(HEADER_BYTES, "the contents are not valid, although the checksum is right")
        })?;
        let (next_segment, removed, segments, state_bytes) = decoded;
        if state_bytes as u64 != u64_at(header, 48) {
            return Err(damaged(48, "the state's length is wrong"));
        }
        let checkpoint = Checkpoint {
            group,
            index: u64_at(header, 24),
            term: u64_at(header, 32),
            state: bytes.slice(bytes.len() - state_bytes..),
            segments,
        };
        Ok(Self { checkpoint, next_segment, removed })
    }
}

/// Bound to the cluster, node and incarnation, as all checksums are.
fn header_checksum(identity: &Identity, header: &[u8]) -> u32 {
    crate::record::Seed::of(identity, u64::from_le_bytes(*b"checkpnt")).checksum(0, header)
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn next(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// A count of things that take at least `bytes` each: no more than are there.
    fn count(&mut self, bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.next()?).ok()?;
        (count <= self.rest.len() / bytes).then_some(count)
    }

    /// Next segment number, removed ones, segments, and how many bytes of state are left.
    fn stored(mut self) -> Option<(u64, Vec<u64>, Vec<SegmentMeta>, usize)> {
        let next_segment = self.next()?;
        let removed = (0..self.count(8)?).map(|_| self.next()).collect::<Option<Vec<u64>>>()?;
        let mut segments = Vec::new();
        for _ in 0..self.count(32)? {
            let number = self.next()?;
            let bytes = self.next()?;
            let checksum = u32::try_from(self.next()?).ok()?;
            let mut extents = Vec::new();
            for _ in 0..self.count(Extent::FIELDS * 8)? {
                let mut fields = [0; Extent::FIELDS];
                for field in &mut fields {
                    *field = self.next()?;
                }
                extents.push(Extent::from_fields(fields));
            }
            segments.push(SegmentMeta { number, bytes, checksum, extents });
        }
        Some((next_segment, removed, segments, self.rest.len()))
    }
}

const _: () = assert!(CHECKPOINT_BYTES_MAX <= usize::MAX as u64, "a checkpoint fits memory");
