//! One priority level of a queue, or all of a queue without priorities: a store and its one reader.
//!
//! What the reader has settled is not kept. A snapshot has both as one.

use super::context::Context;
use super::open::OpenEnded;
use super::reader::delivered::Delivered;
use super::reader::{MessageAttributes, Reader, Reading, WithheldMessages};
use super::reconcile::Moves;
use super::seqs::Seqs;
use super::store::Store;
use super::{Counters, Effect};
use crate::command::Attributes;
use crate::encoding::{self, Corrupt, put_u64};
use crate::ids::QueueId;
use crate::ranges::Ranges;

/// What is stored of a level, and who reads it.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) store: Store,
    pub(crate) reader: Reader,
}

impl Level {
    pub(crate) fn new(id: QueueId) -> Self {
        Self { store: Store::new(id), reader: Reader::new(id) }
    }

    pub(crate) fn id(&self) -> QueueId {
        self.store.id
    }

    /// Which messages are kept: what checkpoints, compaction and snapshots ask. Here what the reader has
    /// not settled.
    pub(crate) fn kept(&self) -> Seqs<'_> {
        self.reader.open.at(self.store.end())
    }

    /// The reader at its store.
    #[inline]
    pub(crate) fn reading(&mut self) -> Reading<'_> {
        Reading { end: self.store.end(), reader: &mut self.reader }
    }

    /// Notes what the last message of the run has beyond its place.
    pub(crate) fn note(&mut self, attributes: &Attributes, body_bytes: usize, cx: Context<'_>) {
        if let Some(seq) = self.store.last_of_run() {
            self.reader.note(seq, attributes, body_bytes, cx);
        }
    }

    /// Ends the run that is being gathered: its messages are in the queue now.
    pub(crate) fn end_run(&mut self, cx: Context<'_>, effects: &mut Vec<Effect>) {
        if let Some(range) = self.store.end_run(cx.time_ms, effects)
            && self.reader.attributes.is_some()
        {
            self.reading().take_in(range, cx.is_leading);
        }
    }

    /// The first message that waits for a consumer, or comes next.
    #[inline]
    pub(crate) fn front(&self) -> u64 {
        self.waiting().first().unwrap_or(self.store.next_seq)
    }

    /// When something falls due next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.reader.next_due(self.store.end())
    }

    /// What waits for a consumer: leader only.
    #[inline]
    pub(crate) fn waiting(&self) -> Seqs<'_> {
        self.reader.ready.waiting(self.store.end())
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters::of(self.store.end(), &self.store.came_in, &self.reader.books)
    }

    /// As a snapshot of this version has it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, version: u8) {
        let counters = self.counters();
        assert_eq!(counters.open(), Some(self.kept().len()), "the books of what a snapshot keeps");
        assert!(self.store.run.is_none(), "a snapshot is of what whole entries did");
        put_u64(out, self.store.next_seq);
        counters.encode(out);
        self.kept().encode(out);
        let attributes = &self.reader.attributes;
        out.push(u8::from(attributes.is_some()));
        if let Some(attributes) = attributes {
            attributes.encode(out);
        }
        self.reader.delivered.encode(out, version);
    }

    /// As a snapshot has it, which has everything else of the level already. False: these cannot be withheld.
    pub(crate) fn withhold(&mut self, withheld: WithheldMessages) -> bool {
        let open = self.kept().intersect(withheld.all());
        // There are attributes where there is anything withheld.
        let Some(attributes) = &mut self.reader.attributes else { return false };
        let is_right = open == *withheld.all()
            && attributes.withheld.is_empty()
            && attributes.leaving.within(&open).is_empty()
            && attributes.delayed.within_all(&open).is_empty();
        if !planted::is("withheld_not_restored") {
            attributes.withheld = withheld;
        }
        is_right
    }

    /// As a snapshot of this version has it: 3 knows attributes, 4 what was delivered, 5 that deliveries
    /// wait for that.
    pub(crate) fn read(
        id: QueueId,
        bytes: &mut encoding::Reader<'_>,
        version: u8,
        moves: Moves,
    ) -> Result<Self, Corrupt> {
        let Self { mut store, mut reader } = Self::new(id);
        store.next_seq = bytes.u64()?;
        let counters = Counters::read(bytes, version < 3)?;
        (store.came_in, reader.books) = counters.parts();
        let books = &mut reader.books;
        books.dropped = books
            .dropped
            .checked_sub(moves.dropped().ok_or_else(|| bytes.corrupt())?)
            .ok_or_else(|| bytes.corrupt())?;
        books.moves = moves;
        let open = Ranges::read(bytes)?;
        if version >= 3 && bytes.bool()? {
            reader.attributes = Some(Box::new(MessageAttributes::read(bytes)?));
        }
        if version >= 4 {
            reader.delivered = Delivered::read(bytes, version)?;
        }
        let is_right = store.next_seq > 0
            && reader.books.open(store.end()) == Some(open.len())
            && counters.open() == Some(open.len())
            && open.first() != Some(0)
            && open.last().is_none_or(|last| last < store.next_seq)
            && reader.attributes.as_ref().is_none_or(|attributes| attributes.is_of(&open));
        if !is_right {
            return Err(Corrupt::new("the books of a queue"));
        }
        reader.open = OpenEnded::of(open, store.end());
        Ok(Self { store, reader })
    }
}
