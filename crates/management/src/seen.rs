//! What a node has seen of itself, look by look.

use machine::{QueueId, QueueStatus};

use crate::history::History;
use crate::looks::Looks;
use crate::problems::{Around, Watch};

/// What the looks have shown.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When the last look was, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    looks: Looks,
    pub(crate) history: History,
    pub(crate) watch: Watch,
}

impl Seen {
    /// Looks at the queues that are led here, and at all else.
    pub(crate) fn look(
        &mut self,
        now_ms: u64,
        led: Vec<(QueueId, QueueStatus)>,
        around: &Around<'_>,
    ) {
        self.at_ms = now_ms;
        let now_s = now_ms / 1000;
        self.looks.look(now_s, led);
        let is_there = |queue| around.catalog.queue_by_id(queue).is_some();
        self.history.add(now_s, around.facts, &self.looks, is_there);
        self.watch.look(now_s, around, &self.looks);
    }
}
