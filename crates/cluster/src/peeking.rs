//! Reads the messages that somebody looks at, within the bound of a read for deliveries and beside those: what is read
//! here goes into no window, and no delivery waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use machine::{EntryReader, Messages, QueueId};
use wal::{Disk, Error, Place, segments};

use crate::bodies::Source;
use crate::exchange::{Located, Peek};
use crate::limits::{PEEKED_BYTES, SEARCHED_BYTES};
use crate::peeked::{PeekSpec, Peeked, PeekedMessage};

/// Reads for one look.
pub(crate) struct PeekReader<'a, D: Disk, F> {
    log: &'a wal::Reader<D>,
    /// Finds an open segment of the group by its number.
    find: F,
    peek: &'a Peek,
    seen: Seen<'a>,
    /// The entry that was read last: the next part may be in it, too.
    entry: Option<(Place, Bytes)>,
    /// Segments of which all that is wanted was read.
    done: BTreeSet<u64>,
    bytes_left: u64,
}

impl<'a, D: Disk, F: Fn(u64) -> Option<segments::Reader<D>>> PeekReader<'a, D, F> {
    /// Reads until `bytes_max` are read, and at least one part.
    pub(crate) fn new(log: &'a wal::Reader<D>, find: F, peek: &'a Peek, bytes_max: u64) -> Self {
        Self {
            log,
            find,
            peek,
            seen: Seen::new(peek.found.store, &peek.spec),
            entry: None,
            done: BTreeSet::new(),
            bytes_left: bytes_max,
        }
    }

    /// The first messages that were found up to the bound, and none from the first on that a checkpoint has moved.
    pub(crate) fn read(mut self) -> Result<Peeked, Error> {
        let peek = self.peek;
        for located in &peek.parts {
            if self.bytes_left == 0 || self.seen.is_full() {
                break;
            }
            match self.read_part(located) {
                Ok(()) => {}
                // Whoever asks again is told of the new place.
                Err(Error::Gone) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.seen.into_peeked(peek))
    }

    fn read_part(&mut self, located: &Located) -> Result<(), Error> {
        match &located.part.source {
            Source::Memory(run) => {
                self.seen.add_run(located, run, None);
                self.count(run.len());
            }
            Source::Entry { range, .. } => {
                let entry = self.entry(located.place.ok_or(Error::Gone)?)?;
                let enqueued_ms = EntryReader::new(&entry).ok().map(|entry| entry.time_ms());
                let run = &entry[range.start as usize..range.end as usize];
                self.seen.add_run(located, run, enqueued_ms);
            }
            Source::Segment { segment } => self.segment(*segment)?,
        }
        Ok(())
    }

    fn entry(&mut self, place: Place) -> Result<Bytes, Error> {
        if let Some((_, entry)) = self.entry.as_ref().filter(|(known, _)| *known == place) {
            return Ok(entry.clone());
        }
        let entry = self.log.read(place)?;
        self.count(entry.len());
        self.entry = Some((place, entry.clone()));
        Ok(entry)
    }

    /// Everything that is wanted of it, so that its index is looked at once.
    fn segment(&mut self, segment: u64) -> Result<(), Error> {
        if !self.done.insert(segment) {
            return Ok(());
        }
        let open = (self.find)(segment).ok_or(Error::Gone)?;
        let parts = self.peek.parts.iter().filter(|it| it.part.is_of(segment));
        let wanted: Vec<Range<u64>> = parts.flat_map(|it| it.part.wanted.ranges()).collect();
        let store = self.peek.found.store;
        let (found, bytes) = open.read_spans(store.0, &wanted, self.bytes_left)?;
        for (seq, command) in found {
            if let Some((head, body)) = Messages::of(store, &command).next() {
                self.seen.add(seq, head, body, None);
            }
        }
        self.count(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
    }
}

/// What was read of the messages that were found.
struct Seen<'a> {
    store: QueueId,
    spec: &'a PeekSpec,
    /// By their numbers. `None`: nobody wants to see it.
    read: BTreeMap<u64, Option<Read>>,
    bytes: usize,
}

/// What is shown of one message.
struct Read {
    enqueued_ms: Option<u64>,
    head: Bytes,
    body: Bytes,
    body_bytes: u64,
}

impl<'a> Seen<'a> {
    fn new(store: QueueId, spec: &'a PeekSpec) -> Self {
        Self { store, spec, read: BTreeMap::new(), bytes: 0 }
    }

    /// What comes now is not taken any more.
    fn is_full(&self) -> bool {
        self.bytes >= PEEKED_BYTES
    }

    /// The wanted messages of a run that lies together.
    fn add_run(&mut self, located: &Located, run: &[u8], enqueued_ms: Option<u64>) {
        let part = &located.part;
        // Planted: each message is shown with what its neighbour says.
        let first_seq = part.first_seq + u64::from(planted::is("peek_beside"));
        for (seq, (head, body)) in (first_seq..).zip(Messages::of(self.store, run)) {
            if part.wanted.contains(seq) {
                self.add(seq, head, body, enqueued_ms);
            }
        }
    }

    /// Copies, so that no large buffer is kept for a part of it.
    fn add(&mut self, seq: u64, head: &[u8], body: &[u8], enqueued_ms: Option<u64>) {
        if self.is_full() {
            return;
        }
        let shown = (self.spec.body_bytes_max as usize).min(PEEKED_BYTES).min(body.len());
        let read = self.is_wanted(head, body).then(|| Read {
            enqueued_ms,
            head: Bytes::copy_from_slice(head),
            body: Bytes::copy_from_slice(&body[..shown]),
            body_bytes: body.len() as u64,
        });
        self.bytes += read.as_ref().map_or(0, |read| read.head.len() + read.body.len());
        self.read.insert(seq, read);
    }

    fn is_wanted(&self, head: &[u8], body: &[u8]) -> bool {
        let wanted = &self.spec.contains[..];
        let is_in = |bytes: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
        wanted.is_empty() || is_in(head) || is_in(&body[..body.len().min(SEARCHED_BYTES)])
    }

    /// The messages of `peek`, up to the first that was not read.
    fn into_peeked(mut self, peek: &Peek) -> Peeked {
        let mut messages = Vec::new();
        for is in &peek.found.messages {
            let read = self.read.remove(&is.position.seq);
            let is_enough = messages.len() >= self.spec.count as usize;
            let Some(read) = read.filter(|_| !is_enough) else {
                let ends = peek.found.ends.clone();
                return Peeked { messages, next: Some(is.position), ends };
            };
            if let Some(Read { enqueued_ms, head, body, body_bytes }) = read {
                messages.push(PeekedMessage { is: *is, enqueued_ms, head, body, body_bytes });
            }
        }
        Peeked { messages, next: peek.found.next, ends: peek.found.ends.clone() }
    }
}
