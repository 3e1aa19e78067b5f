//! What appends do to the logs of groups, as far as the watcher asks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use machine::{Command, EntryReader};
use wal::Item;

use super::heads::{copy_of, id_of, retries_of};

/// An entry, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) term: u64,
    /// The leader's clock, as it stamped it.
    pub(super) time_ms: u64,
    pub(super) hash: u64,
    /// The messages in it, and copies of messages that somebody has sent on.
    pub(super) ids: Vec<String>,
}

/// What an append does to a group's log.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    Entry { index: u64, record: Rc<Record> },
    Truncated { from: u64 },
    Voted { term: u64, vote: u64 },
}

/// What writing an item does to its group's log.
pub(super) fn mark(item: &Item) -> Mark {
    match item {
        Item::Entry { index, term, data } => {
            Mark::Entry { index: *index, record: record(*term, data) }
        }
        Item::TruncateFrom(from) => Mark::Truncated { from: *from },
        // Only after damage: not simulated yet.
        Item::Reset(_) | Item::Rejoined => Mark::Truncated { from: u64::MAX },
        Item::HardState(state) => {
            let (term, vote) = voted(state);
            Mark::Voted { term, vote }
        }
    }
}

impl Mark {
    /// Whether writing it, or some of it, leaves `now` at `index`.
    pub(super) fn explains(&self, index: u64, now: Option<&Rc<Record>>) -> bool {
        match self {
            Self::Entry { index: at, record } if *at == index => Some(record) == now,
            Self::Entry { index: at, .. } => *at < index && now.is_none(),
            Self::Truncated { from } => *from <= index && now.is_none(),
            Self::Voted { .. } => false,
        }
    }
}

/// Term and vote of a hard state: version, term, vote, commit.
pub(super) fn voted(state: &[u8]) -> (u64, u64) {
    let field = |at: usize| {
        let bytes = state.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    (field(1), field(9))
}

pub(super) fn record(term: u64, data: &[u8]) -> Rc<Record> {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    let mut ids = Vec::new();
    for (_, command) in EntryReader::new(data).into_iter().flatten().flatten() {
        if let Command::Enqueue(enqueue) = command {
            let (id, retries) = (id_of(enqueue.head), retries_of(enqueue.head));
            if retries > 0 {
                ids.extend(enqueue.queues.iter().map(|queue| copy_of(&id, retries, queue)));
            }
            ids.push(id);
        }
    }
    let time_ms = EntryReader::new(data).map_or(0, |entry| entry.time_ms());
    Rc::new(Record { term, time_ms, hash: hasher.finish(), ids })
}
