//! An operator looks at messages of queues while they are used: each is shown with the place that it has for good, and
//! what is settled is not shown as ready.

use std::collections::BTreeSet;

use cluster::{NotPeeked, PeekSpec, Peeked};
use machine::{GroupId, MessageState, PeekFilter, Position, QueueId};

use super::{Home, Kind, Outside, Plan, id_of};
use crate::workload::Chance;

const PERCENT: u64 = 60;
/// Seeds in which somebody looks. The others keep their stories.
const OF: u64 = 7;
const LOOKS: u64 = 4;

pub(super) struct Peeker {
    chance: Chance,
    asked: Option<Asked>,
    /// Where to go on.
    next: Option<(QueueId, Position)>,
    /// Messages that were shown.
    pub(super) shown: u64,
}

struct Asked {
    queue: QueueId,
    takes_dead: bool,
    /// What was settled before it asked.
    settled: BTreeSet<(QueueId, u64)>,
}

impl Peeker {
    /// `None`: in this seed nobody looks.
    pub(super) fn new(seed: u64) -> Option<Self> {
        let chance = Chance::named(seed, "peeker");
        (seed % OF == LOOKS).then_some(Self { chance, asked: None, next: None, shown: 0 })
    }

    /// A look at a queue that is there, now and then.
    pub(super) fn next(
        &mut self,
        plans: &[Plan],
        home: Home,
        outside: &Outside<'_>,
    ) -> Option<(GroupId, QueueId, PeekSpec)> {
        if !self.chance.percent(PERCENT) {
            return None;
        }
        let plan = &plans[self.chance.within(0, plans.len() as u64) as usize];
        let (queue, group) =
            outside.queue(home, plan.name).filter(|_| plan.kind == Kind::Durable)?;
        let going_on = self.next.take().filter(|(of, _)| *of == queue);
        let filters = [
            PeekFilter::All,
            PeekFilter::Ready,
            PeekFilter::Held,
            PeekFilter::Delayed,
            PeekFilter::Dead,
        ];
        let spec = PeekSpec {
            from: going_on.map_or(Position::FIRST, |(_, position)| position),
            filter: filters[self.chance.within(0, filters.len() as u64) as usize],
            count: self.chance.within(1, 40) as u32,
            body_bytes_max: 16,
            contains: bytes::Bytes::new(),
        };
        let takes_dead = plans.iter().any(|other| other.dead() == Some(plan.name));
        let settled = outside.watch.holds.settled_of(queue);
        self.asked = Some(Asked { queue, takes_dead, settled });
        Some((group, queue, spec))
    }

    pub(super) fn answered(
        &mut self,
        result: Result<Box<Peeked>, NotPeeked>,
        outside: &mut Outside<'_>,
    ) {
        let Some(Asked { queue, takes_dead, settled }) = self.asked.take() else { return };
        // Why not is the cluster's affair: it is being upgraded, a disk is damaged.
        let Ok(peeked) = result else { return };
        for message in &peeked.messages {
            let Position { priority, seq } = message.is.position;
            let (level, id) = (queue.level(priority), id_of(&message.head));
            outside.watch.delivered(level, seq, &id, takes_dead);
            if message.is.state == MessageState::Ready {
                outside.watch.holds.shown_ready((level, seq), &id, &settled);
            }
            self.shown += 1;
        }
        self.next = peeked.next.map(|position| (queue, position));
    }
}
