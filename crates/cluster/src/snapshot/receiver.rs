//! The follower's side of one transfer: checks the stream and writes its messages to segments.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use machine::{NodeId, Ranges};
use wal::limits::CHECKPOINT_BYTES_MAX;
use wal::segments::{SegmentMeta, Writer};
use wal::{Disk, Error, Keeper};

use super::chunk::{Transfer, u32_at, u64_at};
use super::sender::live;
use super::{MESSAGE_BYTES_MAX, MESSAGE_HEAD_BYTES, Refused, SEGMENT_BYTES};

/// Why a transfer ends here.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The sender's fault, or the network's.
    Refused(Refused),
    Disk(Error),
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Disk(error)
    }
}

/// A snapshot on its way in.
pub(super) struct Receiver<D: Disk> {
    pub(super) transfer: Transfer,
    pub(super) from: NodeId,
    /// First new sequence number of queues of which this node has segments.
    have: BTreeMap<u64, u64>,
    offset: u64,
    checksum: u32,
    /// What was taken and is not a whole message yet.
    pending: BytesMut,
    state: Option<Bytes>,
    live: BTreeMap<u64, Ranges>,
    /// Messages that are still to come.
    missing: u64,
    /// Messages that have come.
    taken: u64,
    last: Option<(u64, u64)>,
    writer: Option<Writer<D>>,
    segments: Vec<SegmentMeta>,
}

/// Everything of a snapshot, in segments that no checkpoint names yet.
#[derive(Debug)]
pub(super) struct Complete {
    pub(super) transfer: Transfer,
    pub(super) from: NodeId,
    pub(super) state: Bytes,
    pub(super) live: BTreeMap<u64, Ranges>,
    /// Whether this node's own segments hold the rest.
    pub(super) has_rest: bool,
    pub(super) messages: u64,
    pub(super) segments: Vec<SegmentMeta>,
}

impl<D: Disk> Receiver<D> {
    pub(super) fn new(transfer: Transfer, from: NodeId, have: BTreeMap<u64, u64>) -> Self {
        Self {
            transfer,
            from,
            have,
            offset: 0,
            checksum: 0,
            pending: BytesMut::new(),
            state: None,
            live: BTreeMap::new(),
            missing: 0,
            taken: 0,
            last: None,
            writer: None,
            segments: Vec::new(),
        }
    }

    /// Bytes of the stream so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes a part of the stream. Without a `keeper` it is only checked.
    pub(super) fn data(
        &mut self,
        mut keeper: Option<&mut Keeper<D>>,
        offset: u64,
        bytes: &Bytes,
    ) -> Result<(), Trouble> {
        if offset != self.offset {
            return Err(Refused("a part of the stream is missing or came twice").into());
        }
        self.offset += bytes.len() as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.pending.extend_from_slice(bytes);
        if self.state.is_none() && !self.take_state(keeper.as_deref())? {
            return Ok(());
        }
        while self.take_message(keeper.as_deref_mut())? {}
        Ok(())
    }

    pub(super) fn end(mut self, offset: u64, checksum: u32) -> Result<Complete, Trouble> {
        if (offset, checksum) != (self.offset, self.checksum) {
            return Err(Refused("the stream is not what was sent").into());
        }
        let Some(state) = self.state.take() else {
            return Err(Refused("the stream ends before the state").into());
        };
        if !self.pending.is_empty() || self.missing > 0 {
            return Err(Refused("the stream ends before the last message").into());
        }
        if let Some(writer) = self.writer.take() {
            self.segments.push(writer.finish()?);
        }
        Ok(Complete {
            transfer: self.transfer,
            from: self.from,
            state,
            live: self.live,
            has_rest: !self.have.is_empty(),
            messages: self.taken,
            segments: self.segments,
        })
    }

    /// True once the state is there as a whole. One that could not be installed is refused before it comes.
    fn take_state(&mut self, keeper: Option<&Keeper<D>>) -> Result<bool, Trouble> {
        let Some(length) = self.pending.get(..8).map(|bytes| u64_at(bytes, 0)) else {
            return Ok(false);
        };
        if length > keeper.map_or(CHECKPOINT_BYTES_MAX, Keeper::checkpoint_bytes_max) {
            return Err(Refused("the state is too large").into());
        }
        let length = length as usize;
        if self.pending.len() < 8 + length {
            return Ok(false);
        }
        self.pending.advance(8);
        // A copy: the rest of the buffer is not to be kept for it.
        let state = Bytes::copy_from_slice(&self.pending.split_to(length));
        for (queue, live) in live(self.transfer.group, &state)? {
            let new = self.have.get(&queue.0).map_or(0, |first| *first);
            self.missing += live.within(new..u64::MAX).len();
            self.live.insert(queue.0, live);
        }
        self.state = Some(state);
        Ok(true)
    }

    /// False: the next one is not there as a whole.
    fn take_message(&mut self, keeper: Option<&mut Keeper<D>>) -> Result<bool, Trouble> {
        let Some(head) = self.pending.get(..MESSAGE_HEAD_BYTES) else { return Ok(false) };
        let (queue, seq) = (u64_at(head, 0), u64_at(head, 8));
        let (length, checksum) = (u32_at(head, 16), u32_at(head, 20));
        if length > MESSAGE_BYTES_MAX {
            return Err(Refused("a message is too large").into());
        }
        let end = MESSAGE_HEAD_BYTES + length as usize;
        if self.pending.len() < end {
            return Ok(false);
        }
        let message = &self.pending[MESSAGE_HEAD_BYTES..end];
        if crc32c::crc32c(message) != checksum {
            return Err(Refused("a message's checksum is wrong").into());
        }
        if self.last.is_some_and(|last| last >= (queue, seq)) {
            return Err(Refused("the messages are not in order").into());
        }
        let is_new = self.have.get(&queue).is_none_or(|first| seq >= *first);
        if !is_new || !self.live.get(&queue).is_some_and(|live| live.contains(seq)) {
            return Err(Refused("the stream holds a message that was not asked for").into());
        }
        if let Some(keeper) = keeper {
            let mut writer = match self.writer.take() {
                Some(writer) if writer.bytes() < SEGMENT_BYTES => writer,
                full => {
                    if let Some(writer) = full {
                        self.segments.push(writer.finish()?);
                    }
                    keeper.segment(self.transfer.group.0)?
                }
            };
            writer.add(queue, seq, message)?;
            self.writer = Some(writer);
        }
        self.taken += 1;
        self.missing = self.missing.saturating_sub(1);
        self.last = Some((queue, seq));
        self.pending.advance(end);
        Ok(true)
    }
}
