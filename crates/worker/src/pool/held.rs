//! The jobs in hand, each at a fixed place while it is here.

use std::time::Instant;

use super::PipelineId;
use crate::job::{Message, Receipt};
use crate::settlement::Publish;

/// A job's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldId(u32);

/// What a job in hand is doing.
///
/// ```text
///      ┌── waits again ──┐
///      v                 │
///   Waiting ──────────> Running ───────> Settling ──> gone: counted as `End` says
///      └─> Leaving ───────┼────────────────^ │
///             │ lost      v lost             │ lost
///             │      RunningLost ──┐         │
///             └────────────────────┴─────────┴──────> gone: counted as lost
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Running,
    /// It runs, and somebody else has it: it is not settled when it ends.
    RunningLost,
    /// The source was told, and has not answered.
    Settling(End),
    /// It leaves before it was started, and is about to be taken out of its queue.
    Leaving,
}

/// How a job leaves this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    /// Goes back uncharged.
    Returned,
    /// Goes back with an attempt charged.
    Retried,
    Dead,
}

/// A job in hand.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) pipeline: PipelineId,
    pub(super) receipt: Receipt,
    pub(super) state: State,
    /// Without its content once it settles.
    pub(super) message: Message,
    /// Counted in the process's bytes until it settles.
    pub(super) bytes: usize,
    pub(super) key: Option<u64>,
    pub(super) group: Option<u64>,
    pub(super) taken_at: Instant,
    pub(super) lease_until: Option<Instant>,
    /// When to ask for a longer lease.
    pub(super) renew_at: Option<Instant>,
    /// Its attempt was charged here, and the source does not know.
    pub(super) is_charged: bool,
    /// The body is what is left to do, and not what the source has.
    pub(super) is_rest: bool,
    /// What earlier attempts here want published when the job leaves.
    pub(super) publishes: Vec<Publish>,
}

impl Held {
    /// True if another process may have it by now.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.lease_until.is_some_and(|until| until <= now)
    }
}

/// All jobs in hand.
#[derive(Debug, Default)]
pub(super) struct Slab {
    places: Vec<Option<Held>>,
    free: Vec<HeldId>,
}

impl Slab {
    pub(super) fn insert(&mut self, held: Held) -> HeldId {
        if let Some(id) = self.free.pop() {
            self.places[id.0 as usize] = Some(held);
            return id;
        }
        let id = HeldId(u32::try_from(self.places.len()).expect("far fewer jobs than 2^32"));
        self.places.push(Some(held));
        id
    }

    pub(super) fn remove(&mut self, id: HeldId) -> Held {
        self.free.push(id);
        self.places[id.0 as usize].take().expect("a job in hand has its place")
    }

    pub(super) fn at(&self, id: HeldId) -> &Held {
        self.places[id.0 as usize].as_ref().expect("a job in hand has its place")
    }

    pub(super) fn at_mut(&mut self, id: HeldId) -> &mut Held {
        self.places[id.0 as usize].as_mut().expect("a job in hand has its place")
    }
}
