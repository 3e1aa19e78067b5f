//! What changed about each queue that this node leads, from one look at it to the next: what the history and problems
//! are made of. Between two looks nothing is counted.

use machine::{QueueId, QueueStatus};

/// A queue at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) queue: QueueId,
    pub(crate) ready: u64,
    pub(crate) unacked: u64,
    pub(crate) consumers: u32,
    pub(crate) leaving: u64,
    enqueued: u64,
    settled: u64,
    /// Dead letters that are stored where they go, or that nobody wants.
    moved: u64,
    /// Since the look before.
    pub(crate) published: u32,
    pub(crate) acked: u32,
    /// What goes on in it: what came and went in the last ten minutes, roughly.
    pub(crate) busy: u64,
    pub(crate) since: Since,
}

/// Since when it is so, in seconds since 1970. 0: it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    /// Messages wait, and nobody consumes.
    pub(crate) unconsumed_s: u64,
    /// More wait at each look, though somebody consumes.
    pub(crate) growing_s: u64,
    /// Messages are out with consumers, and none is acked.
    pub(crate) unacked_s: u64,
    /// Dead letters wait, and none is stored.
    pub(crate) leaving_s: u64,
}

/// All of them, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    looks: Vec<Look>,
}

/// Which part of `busy` is forgotten at each look.
const FORGOTTEN: u64 = 64;

impl Looks {
    /// Looks at the queues that are led here.
    pub(crate) fn look(&mut self, now_s: u64, mut led: Vec<(QueueId, QueueStatus)>) {
        led.sort_unstable_by_key(|(queue, _)| *queue);
        let before = std::mem::take(&mut self.looks);
        let mut before = before.into_iter().peekable();
        self.looks.reserve_exact(led.len());
        for (queue, status) in led {
            while before.next_if(|look| look.queue < queue).is_some() {}
            let known = before.next_if(|look| look.queue == queue);
            self.looks.push(Look::of(now_s, queue, &status, known.as_ref()));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Look> {
        self.looks.iter()
    }

    pub(crate) fn find(&self, queue: QueueId) -> Option<&Look> {
        let found = self.looks.binary_search_by_key(&queue, |look| look.queue);
        found.ok().map(|place| &self.looks[place])
    }
}

impl Look {
    fn of(now_s: u64, queue: QueueId, status: &QueueStatus, before: Option<&Self>) -> Self {
        let QueueStatus { ready, unsettled, consumers, leaving, counters, .. } = *status;
        let moved = counters.dead_lettered + counters.dropped;
        let (published, acked) = before.map_or((0, 0), |before| {
            let grown = |now: u64, before: u64| {
                u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX)
            };
            (grown(counters.enqueued, before.enqueued), grown(counters.settled, before.settled))
        });
        let busy = before.map_or(0, |before| before.busy);
        let busy = busy - busy.div_ceil(FORGOTTEN) + u64::from(published) + u64::from(acked);
        let since = |is_so: bool, before: Option<u64>| match (is_so, before) {
            (false, _) => 0,
            (true, None | Some(0)) => now_s,
            (true, Some(since)) => since,
        };
        let was = before.map(|before| before.since);
        let grows = before.is_some_and(|before| ready > before.ready);
        let is_moving = before.is_some_and(|before| moved > before.moved);
        let since = Since {
            unconsumed_s: since(consumers == 0 && ready > 0, was.map(|it| it.unconsumed_s)),
            growing_s: since(grows && consumers > 0, was.map(|it| it.growing_s)),
            unacked_s: since(unsettled > 0 && acked == 0, was.map(|it| it.unacked_s)),
            leaving_s: since(leaving > 0 && !is_moving, was.map(|it| it.leaving_s)),
        };
        Self {
            queue,
            ready,
            unacked: unsettled,
            consumers,
            leaving,
            enqueued: counters.enqueued,
            settled: counters.settled,
            moved,
            published,
            acked,
            busy,
            since,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A queue with so much in it.
    pub(crate) fn status(enqueued: u64, settled: u64, ready: u64, consumers: u32) -> QueueStatus {
        let counters = machine::Counters { enqueued, settled, ..Default::default() };
        let unsettled = enqueued - settled - ready;
        let held_back = machine::HeldBack::default();
        QueueStatus { ready, unsettled, consumers, delayed: 0, leaving: 0, counters, held_back }
    }

    #[test]
    fn a_look_says_what_came_since_the_look_before() {
        let mut looks = Looks::default();
        looks.look(10, vec![(QueueId(2), status(50, 40, 10, 1)), (QueueId(1), status(5, 0, 5, 0))]);
        assert_eq!(looks.find(QueueId(2)).unwrap().published, 0, "nothing is known of before");
        looks.look(20, vec![(QueueId(2), status(70, 45, 25, 1)), (QueueId(3), status(9, 9, 0, 0))]);
        let look = *looks.find(QueueId(2)).unwrap();
        assert_eq!((look.published, look.acked, look.busy), (20, 5, 25));
        assert_eq!(looks.iter().map(|look| look.queue.0).collect::<Vec<_>>(), [2, 3]);
        looks.look(30, vec![(QueueId(2), status(7, 5, 2, 1))]);
        assert_eq!(looks.find(QueueId(2)).unwrap().published, 0, "it is another count");
        assert_eq!(looks.find(QueueId(2)).unwrap().busy, 24);
    }

    #[test]
    fn what_lasts_has_its_beginning_and_what_ends_has_none() {
        let mut looks = Looks::default();
        let queue = QueueId(1);
        let mut since = |now_s, status| {
            looks.look(now_s, vec![(queue, status)]);
            looks.find(queue).unwrap().since
        };
        assert_eq!(since(10, status(9, 0, 9, 0)).unconsumed_s, 10);
        assert_eq!(since(20, status(9, 0, 9, 0)).unconsumed_s, 10);
        let consumed = since(30, status(9, 0, 4, 1));
        assert_eq!((consumed.unconsumed_s, consumed.unacked_s), (0, 30));
        assert_eq!(since(40, status(9, 0, 4, 1)).unacked_s, 30);
        assert_eq!(since(50, status(20, 1, 14, 1)), Since { growing_s: 50, ..Since::default() });
        assert_eq!(since(60, status(30, 2, 23, 1)).growing_s, 50);
        let dead = |moved| {
            let mut status = status(30, 2, 23, 1);
            status.leaving = 5;
            status.counters.dead_lettered = moved;
            status
        };
        assert_eq!(since(70, dead(0)).leaving_s, 70);
        assert_eq!(since(80, dead(0)).leaving_s, 70);
        assert_eq!(since(90, dead(1)).leaving_s, 0);
    }
}
