//! What a node has seen of itself, look by look.

use machine::{Front, QueueId, QueueStatus};

use crate::fronts::Fronts;
use crate::history::History;
use crate::looks::Looks;
use crate::marks::{Mark, Marks};
use crate::problems::{Around, Watch};

/// What the looks have shown.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When the last look was, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    looks: Looks,
    pub(crate) history: History,
    pub(crate) fronts: Fronts,
    pub(crate) marks: Marks,
    /// That the node has started. `None`: it has not looked yet.
    own: Option<Mark>,
    pub(crate) watch: Watch,
}

impl Seen {
    /// Looks at the queues that are led here, and at all else. `boot`: when the node started.
    pub(crate) fn look(
        &mut self,
        now_ms: u64,
        led: Vec<(QueueId, QueueStatus, Front)>,
        around: &Around<'_>,
        boot: u64,
    ) {
        self.at_ms = now_ms;
        let own = *self.own.get_or_insert(Mark::start(around.facts.node, boot));
        self.marks.look(now_ms, own, around.groups, around.peers);
        let now_s = now_ms / 1000;
        let fronts: Vec<_> = led.iter().map(|(queue, _, front)| (*queue, *front)).collect();
        self.fronts.look(now_ms, &fronts);
        self.looks.look(now_s, led.into_iter().map(|(queue, status, _)| (queue, status)).collect());
        let is_there = |queue| around.catalog.queue_by_id(queue).is_some();
        self.history.add(now_s, around.facts, &self.looks, is_there);
        self.watch.look(now_s, around, &self.looks);
    }
}
