//! A snapshot that was kept as a file: the same stream, read for a new data directory or only checked.

use bytes::Bytes;
use machine::{GroupId, NodeId};
use wal::segments::SegmentMeta;
use wal::{Disk, Error, Keeper};

use super::Refused;
use super::chunk::Transfer;
use super::receiver::{Complete, Receiver, Trouble};
use crate::checkpoint::State;

/// A group's stream on its way from a file.
pub(crate) struct StoredGroup<D: Disk> {
    receiver: Receiver<D>,
    offset: u64,
    checksum: u32,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) state: State,
    pub(crate) messages: u64,
    /// Where the messages are now, if there was a keeper to write them.
    pub(crate) segments: Vec<SegmentMeta>,
}

impl<D: Disk> StoredGroup<D> {
    /// The stream of `group` at this index and term.
    pub(crate) fn new(group: GroupId, (index, term): (u64, u64)) -> Self {
        let transfer = Transfer { group, number: 0, index, term };
        let receiver = Receiver::new(transfer, NodeId(0), std::collections::BTreeMap::new());
        Self { receiver, offset: 0, checksum: 0 }
    }

    /// Takes the next part. Without a `keeper` it is only checked.
    pub(crate) fn take(
        &mut self,
        keeper: Option<&mut Keeper<D>>,
        bytes: &Bytes,
    ) -> Result<(), String> {
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.receiver.data(keeper, offset, bytes).map_err(words)
    }

    /// The stream has ended.
    pub(crate) fn end(self) -> Result<Taken, String> {
        let complete = self.receiver.end(self.offset, self.checksum).map_err(words)?;
        let Complete { state, segments, messages, .. } = complete;
        let state = State::decode(&state).ok_or("another version wrote the state")?;
        Ok(Taken { state, messages, segments })
    }
}

fn words(trouble: Trouble) -> String {
    match trouble {
        Trouble::Refused(Refused(why)) => why.to_owned(),
        Trouble::Disk(error) => full_or(&error),
    }
}

fn full_or(error: &Error) -> String {
    match error.is_full() {
        true => format!("the disk is full: {error}"),
        false => error.to_string(),
    }
}
