//! Somebody who consumes from a queue or holds messages of it: how it wants messages, and which it has.

use std::cmp::Reverse;

use super::weight::{ConsumerChange, Weight};
use crate::ranges::Ranges;

/// How a consumer wants its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// How many messages it may be given before more credit comes.
    pub credit: u32,
    /// Messages are settled as they are handed out.
    pub no_ack: bool,
    /// Nobody else may consume.
    pub exclusive: bool,
    /// Higher ones are served while they have credit.
    pub priority: i32,
    /// Of a stream: where it begins.
    pub start: Option<StreamOffset>,
    /// How many partitions it is to have beside the others, where partitions are assigned.
    pub weight: Weight,
    /// Of a queue with one active consumer for all partitions: with which generation it was elected. 0: it was not.
    pub generation: u64,
    /// An operator has paused it: it keeps its credit and what it holds, and is given nothing.
    pub is_paused: bool,
}

impl ConsumerSpec {
    /// As it is from now on.
    pub fn change(&mut self, change: ConsumerChange) {
        match change {
            ConsumerChange::Pause(is_paused) => self.is_paused = is_paused,
            ConsumerChange::Weigh(weight) => self.weight = weight,
        }
    }
}

/// Where in a stream somebody begins to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOffset {
    /// The oldest message that is kept.
    First,
    /// The messages that came together last.
    Last,
    /// What comes from now on.
    Next,
    /// The message with this sequence number, or the first behind it that is kept.
    At(u64),
    /// The first that came then or later, in ms since 1970; never one behind it.
    Since(u64),
    /// The first that came no longer ago than so many ms; never one behind it.
    Ago(u64),
}

impl StreamOffset {
    /// As it is written: which kind, and its number, or 0.
    pub const fn to_parts(self) -> (u8, u64) {
        match self {
            Self::First => (0, 0),
            Self::Last => (1, 0),
            Self::Next => (2, 0),
            Self::At(seq) => (3, seq),
            Self::Since(time_ms) => (4, time_ms),
            Self::Ago(ms) => (5, ms),
        }
    }

    /// `None`: there is no such kind.
    pub const fn from_parts(kind: u8, number: u64) -> Option<Self> {
        Some(match kind {
            0 => Self::First,
            1 => Self::Last,
            2 => Self::Next,
            3 => Self::At(number),
            4 => Self::Since(number),
            5 => Self::Ago(number),
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    pub(crate) spec: ConsumerSpec,
    pub(crate) credit: u32,
    pub(crate) held: Held,
    pub(super) is_attached: bool,
    /// When it came, among all.
    pub(super) arrival: u64,
    /// Its place in the line.
    pub(super) place: Option<Place>,
    /// The generation that it was told last, or said itself.
    pub(crate) told: u64,
}

impl Holder {
    /// The least is to be the single active consumer: who holds messages, or has the highest priority, or came first.
    pub(crate) fn precedence(&self) -> impl Ord + use<> {
        (self.held.is_empty(), Reverse(self.spec.priority), self.arrival)
    }
}

/// The messages that somebody holds, by the level they are in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    main: Ranges,
    /// Of levels from 1 on, as far as there were any.
    levels: Vec<Ranges>,
}

impl Held {
    pub(crate) fn of(&mut self, level: u8) -> &mut Ranges {
        let Some(place) = usize::from(level).checked_sub(1) else { return &mut self.main };
        if self.levels.len() <= place {
            self.levels.resize_with(place + 1, Ranges::new);
        }
        &mut self.levels[place]
    }

    /// Of one level, if there was any.
    pub(crate) fn at(&self, level: u8) -> Option<&Ranges> {
        match usize::from(level).checked_sub(1) {
            None => Some(&self.main),
            Some(place) => self.levels.get(place),
        }
    }

    /// By level.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u8, &Ranges)> {
        (0..=u8::MAX).zip(std::iter::once(&self.main).chain(&self.levels))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.main.is_empty() && self.levels.iter().all(Ranges::is_empty)
    }

    pub(crate) fn len(&self) -> u64 {
        self.main.len() + self.levels.iter().map(Ranges::len).sum::<u64>()
    }

    pub(super) fn insert_all(&mut self, other: &Self) {
        for (level, held) in other.all() {
            self.of(level).insert_all(held);
        }
    }
}

/// Highest priority first, then who has waited longest.
pub(super) type Place = (Reverse<i32>, u64);
