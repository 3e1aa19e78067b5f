//! The queues of a run: always the same plain ones, and those with arguments that the seed draws.

use std::rc::Rc;

use machine::{Arguments, Attributes, Value};

use crate::history::Marks;
use crate::sim::Size;
use crate::workload::Chance;
use crate::workload::special::{self, Argument, Special};

/// A queue of the load.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Plan {
    pub(in crate::sim) name: &'static str,
    /// Consumers while there is load; 0 is a backlog.
    pub(in crate::sim) consumers: usize,
    pub(in crate::sim) kind: Kind,
    /// None: it is plain.
    pub(super) special: Option<Special>,
    /// Its clients speak AMQP.
    pub(super) is_over_amqp: bool,
    /// Consumers give back and refuse so many of a hundred.
    pub(super) back_percent: u64,
    pub(super) reject_percent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Kind {
    /// Replicated: it must not lose anything without a reason.
    Durable,
    /// In the memory of the node that declared it: it goes with it.
    Transient,
    /// As well, and it goes with the session of its only consumer.
    Exclusive,
}

/// Where each publisher's messages go.
pub(super) const PUBLISHERS: [&[usize]; 6] = [&[0], &[1, 2], &[3], &[3, 0], &[4], &[5, 6, 3]];
/// In seeds with changes: the queues that are purged, that nobody consumes and that some do, and two where messages
/// are moved to.
const CHANGED: [(&str, usize); 4] = [("swept", 0), ("stirred", 2), ("moved-a", 1), ("moved-b", 1)];
/// In runs with AMQP sessions: the queues of those, with one consumer at a time and with several.
const OVER_AMQP: [(&str, usize); 2] = [("wire-sole", 1), (WIRE_SHARED, 3)];
pub(in crate::sim) const WIRE_SHARED: &str = "wire-shared";
/// The queue that messages are moved from.
const MOVED: &str = "work";

/// Purges and transactions, which some seeds have: the others keep the stories that they once failed with.
pub(super) struct Changes {
    /// Queues that are purged, each with a publisher.
    pub(super) purged: Vec<usize>,
    /// From which queue messages are moved, and to which.
    pub(super) moved: Option<(usize, Vec<usize>)>,
}

/// Whether a seed has purges and transactions.
pub(super) fn has_changes(seed: u64) -> bool {
    seed % 7 == 2
}

impl Changes {
    pub(super) fn of(plans: &[Plan]) -> Self {
        let place = |name: &str| plans.iter().position(|plan| plan.name == name);
        let all: Vec<usize> = CHANGED.iter().filter_map(|(name, _)| place(name)).collect();
        match (&all[..], place(MOVED)) {
            ([swept, stirred, moved @ ..], Some(from)) => {
                Self { purged: vec![*swept, *stirred], moved: Some((from, moved.to_vec())) }
            }
            _ => Self { purged: Vec::new(), moved: None },
        }
    }
}

/// Publishers to queues with arguments; each sends now to this one, now to that.
pub(super) const ROVERS: usize = 2;

fn plain(name: &'static str, consumers: usize, kind: Kind) -> Plan {
    let single = consumers <= 1;
    let (back_percent, reject_percent) = if single { (0, 0) } else { (20, 4) };
    let (special, is_over_amqp) = (None, false);
    Plan { name, consumers, kind, special, is_over_amqp, back_percent, reject_percent }
}

/// The queues of the run with this seed; `cold` is a backlog.
pub(in crate::sim) fn draw(seed: u64, size: &Size) -> Rc<[Plan]> {
    let mut plans = vec![
        plain("orders", 1, Kind::Durable),
        plain("fan-a", 1, Kind::Durable),
        plain("fan-b", 1, Kind::Durable),
        plain("work", 3, Kind::Durable),
        plain("cold", 0, Kind::Durable),
        plain("mist", 2, Kind::Transient),
        plain("mine", 1, Kind::Exclusive),
    ];
    let retried = if size.has_operations { special::retried().to_vec() } else { Vec::new() };
    plans.extend(special::draw(seed).into_iter().chain(retried).map(|special| {
        let (back_percent, reject_percent) = (special.back_percent, special.reject_percent);
        let base = plain(special.name, special.consumers, Kind::Durable);
        Plan { special: Some(special), back_percent, reject_percent, ..base }
    }));
    if has_changes(seed) {
        let durable = |(name, consumers)| plain(name, consumers, Kind::Durable);
        plans.extend(CHANGED.into_iter().map(durable));
    }
    if size.has_sessions {
        let durable = |(name, consumers)| plain(name, consumers, Kind::Durable);
        plans.extend(
            OVER_AMQP.into_iter().map(durable).map(|plan| Plan { is_over_amqp: true, ..plan }),
        );
    }
    plans.into()
}

impl Plan {
    pub(super) fn is_plain(&self) -> bool {
        self.special.is_none()
    }

    /// Whether it is purged, or moved to.
    pub(super) fn is_changed(&self) -> bool {
        CHANGED.iter().any(|(name, _)| *name == self.name)
    }

    /// Where its dead letters go.
    pub(super) fn dead(&self) -> Option<&'static str> {
        self.special.as_ref()?.dead
    }

    /// How the queue is declared.
    pub(super) fn arguments(&self) -> Arguments {
        let Some(special) = &self.special else { return Arguments::new() };
        let mut arguments = Arguments::new();
        for (name, value) in special.arguments() {
            let value = match value {
                Argument::Number(number) => Value::I64(number),
                Argument::Text(text) => Value::LongStr(text.into_bytes()),
                Argument::Truth(truth) => Value::Bool(truth),
            };
            arguments = arguments.with(name, value);
        }
        arguments
    }

    /// What the next message says of itself.
    pub(super) fn marks(&self, chance: &mut Chance) -> Marks {
        self.special.as_ref().map_or_else(Marks::default, |special| special.marks(chance))
    }

    /// The level that a message of this priority is in.
    pub(super) fn level(&self, priority: u8) -> u8 {
        self.special.as_ref().map_or(0, |special| priority.min(special.traits.max_priority))
    }

    /// Whether it refuses what it has no room for.
    pub(super) fn refuses(&self) -> bool {
        let traits = self.special.as_ref().map(|special| &special.traits);
        traits.is_some_and(|traits| traits.max_length.is_some() && traits.refuses)
    }
}

/// What a queue is told of a message.
pub(super) fn attributes(marks: &Marks) -> Attributes {
    Attributes { ttl_ms: marks.ttl_ms, delay_ms: marks.delay_ms, key: marks.key.map(u128::from) }
}
