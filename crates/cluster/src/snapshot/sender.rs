//! The leader's side: makes chunks of a checkpoint, as they are wanted.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use machine::{GroupId, QueueId, QueueMachine, Ranges};
use wal::segments::{Merged, Reader};
use wal::{Checkpoint, Disk, Error};

use super::chunk::{Chunk, Transfer};
use super::{DATA_BYTES, Refused, message_head};
use crate::checkpoint::State;

/// A checkpoint with its segments, which stay readable as long as they are open.
pub struct Source<D: Disk> {
    pub checkpoint: Checkpoint,
    pub segments: Vec<Reader<D>>,
}

/// What the receiver said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It waits for the chunks.
    Wants,
    /// It is over: the receiver has installed the snapshot, or it has not and will not.
    Done { installed: bool },
    /// Of another attempt.
    Stale,
}

/// A snapshot on its way out.
pub(crate) struct Sender<D: Disk> {
    transfer: Transfer,
    source: Source<D>,
    /// Queues whose messages were not sent yet, and what of them is alive.
    queues: VecDeque<(QueueId, Ranges)>,
    have: BTreeMap<u64, u64>,
    queue: Option<(QueueId, Ranges, Merged<D>)>,
    /// The next part of the stream.
    buffer: BytesMut,
    offset: u64,
    checksum: u32,
    is_ended: bool,
}

impl<D: Disk> Sender<D> {
    /// `number` is to differ from those of earlier attempts.
    pub(crate) fn new(source: Source<D>, number: u64) -> Result<Self, Refused> {
        let Checkpoint { group, index, term, state, .. } = &source.checkpoint;
        let transfer = Transfer { group: GroupId(*group), number, index: *index, term: *term };
        let queues = live(transfer.group, state)?;
        let mut buffer = BytesMut::with_capacity(state.len() + 8);
        buffer.put_u64_le(state.len() as u64);
        buffer.put_slice(state);
        Ok(Self {
            transfer,
            source,
            queues: queues.into(),
            have: BTreeMap::new(),
            queue: None,
            buffer,
            offset: 0,
            checksum: 0,
            is_ended: false,
        })
    }

    pub(crate) fn transfer(&self) -> Transfer {
        self.transfer
    }

    /// What begins the transfer: the receiver answers it.
    pub(crate) fn offer(&self) -> Bytes {
        Chunk::Offer.encode(&self.transfer)
    }

    /// Takes what the receiver said in a chunk of its own.
    pub(crate) fn answer(&mut self, chunk: &Bytes) -> Answer {
        match Chunk::decode(chunk) {
            Ok((transfer, _)) if transfer != self.transfer => Answer::Stale,
            Ok((_, Chunk::Want(have))) if self.offset == 0 => {
                self.have = have.into_iter().collect();
                Answer::Wants
            }
            Ok((_, Chunk::Done { installed })) => Answer::Done { installed },
            Ok(_) | Err(_) => Answer::Stale,
        }
    }

    /// Bytes of the stream that were handed out.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next chunk. `None`: that was the last.
    pub(crate) fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.is_ended {
            return Ok(None);
        }
        let offset = self.offset;
        let chunk = match self.next_bytes(DATA_BYTES)? {
            Some(bytes) => Chunk::Data { offset, bytes },
            None => {
                self.is_ended = true;
                Chunk::End { offset, checksum: self.checksum }
            }
        };
        Ok(Some(chunk.encode(&self.transfer)))
    }

    /// The next part of the stream, of at most so many bytes. `None`: it is over.
    pub(crate) fn next_bytes(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Error> {
        while self.buffer.len() < bytes_max && self.read()? {}
        let length = self.buffer.len().min(bytes_max);
        if length == 0 {
            return Ok(None);
        }
        let bytes = self.buffer.split_to(length).freeze();
        self.offset += length as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
        Ok(Some(bytes))
    }

    /// Adds a message to the stream. False: there are no more.
    fn read(&mut self) -> Result<bool, Error> {
        loop {
            let Some((queue, live, messages)) = &mut self.queue else {
                let Some((queue, live)) = self.queues.pop_front() else { return Ok(false) };
                let first = self.have.get(&queue.0).copied().unwrap_or(0);
                let messages = Merged::new(&self.source.segments, queue.0, first);
                self.queue = Some((queue, live, messages));
                continue;
            };
            match messages.next()? {
                Some((seq, message)) if live.contains(seq) => {
                    self.buffer.put_slice(&message_head(queue.0, seq, &message));
                    self.buffer.put_slice(&message);
                    return Ok(true);
                }
                Some(_) => {}
                None => self.queue = None,
            }
        }
    }
}

/// What is alive in a group whose checkpoint has this state, by queue.
pub(super) fn live(group: GroupId, state: &Bytes) -> Result<Vec<(QueueId, Ranges)>, Refused> {
    let state = State::decode(state).ok_or(Refused("another version wrote the state"))?;
    if group == GroupId::CATALOG {
        machine::Catalog::restore(&state.machine)
            .map_err(|_| Refused("the catalog cannot be read"))?;
        return Ok(Vec::new());
    }
    let machine = QueueMachine::restore(&state.machine)
        .map_err(|_| Refused("the state of the queues cannot be read"))?;
    let live = |queue| Some((queue, machine.kept(queue)?.to_ranges()));
    let mut queues: Vec<(QueueId, Ranges)> = machine.stores().filter_map(live).collect();
    queues.sort_unstable_by_key(|(queue, _)| *queue);
    queues.retain(|(_, live)| !live.is_empty());
    Ok(queues)
}
