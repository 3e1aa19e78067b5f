//! How long the oldest ready message of each queue has waited, at least.
//!
//! Nothing in memory says when a message came. But the messages of a queue have numbers that grow, and each look at a
//! queue says which number the next one gets: what is below has come by then. So the time of the first look that knew of
//! the first ready message is a time at which that message was there. It came up to one look earlier; or long before, if
//! the node leads the queue only since then.

use std::collections::BTreeMap;
use std::sync::Arc;

use machine::QueueId;
use serde::{Deserialize, Serialize};

use crate::limits::{ARRIVALS_KEPT, FRONTS_MS, FRONTS_OLD_MS};

/// The front of a queue, as nodes tell it each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) queue: u64,
    /// The oldest ready message was there at this time, in milliseconds since 1970.
    pub(crate) oldest_ready_ms: Option<u64>,
    /// Of those that count them.
    pub(crate) ready_bytes: Option<u64>,
}

/// The fronts of queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fronts {
    queues: BTreeMap<QueueId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    arrivals: Arrivals,
    row: Row,
}

/// Numbers below which all messages had come at a time: both grow.
#[derive(Clone, Debug, Default)]
struct Arrivals(Vec<(u64, u64)>);

impl Fronts {
    /// Looks at the queues that are led here. Of one in which nothing is ready nothing is kept.
    pub(crate) fn look(&mut self, now_ms: u64, led: &[(QueueId, machine::Front)]) {
        let mut before = std::mem::take(&mut self.queues);
        for (queue, front) in led {
            let mut arrivals = before.remove(queue).map(|known| known.arrivals).unwrap_or_default();
            let oldest_ready_ms = match front.first_ready {
                Some(first) => arrivals.take(first, front.next, now_ms),
                None => None,
            };
            if oldest_ready_ms.is_none() && front.ready_bytes.is_none() {
                continue;
            }
            if oldest_ready_ms.is_none() {
                arrivals = Arrivals::default();
            }
            let row = Row { queue: queue.0, oldest_ready_ms, ready_bytes: front.ready_bytes };
            self.queues.insert(*queue, Known { arrivals, row });
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.queues.values().map(|known| known.row).collect()
    }
}

impl Arrivals {
    /// Takes a look, and says when it was known first that the message `first` is there.
    fn take(&mut self, first: u64, next: u64, now_ms: u64) -> Option<u64> {
        match self.0.last() {
            // The queue is another: it was emptied and made anew, or an older leader's.
            Some((end, _)) if *end > next => self.0.clear(),
            Some(_) | None => {}
        }
        if self.0.last().is_none_or(|(end, _)| *end < next) {
            self.0.push((next, now_ms));
        }
        // What is below the first ready message says nothing any more.
        let past = self.0.partition_point(|(end, _)| *end <= first);
        self.0.drain(..past);
        if self.0.len() > ARRIVALS_KEPT {
            self.thin();
        }
        self.0.first().map(|(_, at_ms)| *at_ms)
    }

    /// Every second of the older half goes: what it said of its messages, the next says with a later time.
    fn thin(&mut self) {
        let older = self.0.len() / 2;
        let mut place = 0;
        self.0.retain(|_| {
            place += 1;
            // The first one has said how old the oldest message is: it stays.
            place == 1 || place > older || place % 2 == 0
        });
    }
}

/// What all nodes say of fronts: of a queue that two say they lead, the one that has seen it longer counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merged {
    queues: BTreeMap<QueueId, Front>,
    /// Of queues with several partitions, those of each partition.
    parts: BTreeMap<QueueId, Front>,
}

/// The front of a queue with all its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) oldest_ready_ms: Option<u64>,
    pub(crate) ready_bytes: Option<u64>,
}

impl Merged {
    /// `partitions` says which queues some are of that nodes tell of.
    pub(crate) fn new(
        told: impl IntoIterator<Item = Row>,
        partitions: &BTreeMap<QueueId, QueueId>,
    ) -> Self {
        let mut each = BTreeMap::<QueueId, Front>::new();
        for Row { queue, oldest_ready_ms, ready_bytes } in told {
            let known = each.entry(QueueId(queue)).or_default();
            known.oldest_ready_ms = earlier(known.oldest_ready_ms, oldest_ready_ms);
            known.ready_bytes = known.ready_bytes.max(ready_bytes);
        }
        let mut parts = BTreeMap::new();
        for (partition, whole) in partitions {
            // The first partition has the number of the queue.
            if let (false, Some(first)) = (parts.contains_key(whole), each.get(whole)) {
                parts.insert(*whole, *first);
            }
            let Some(part) = each.remove(partition) else { continue };
            parts.insert(*partition, part);
            let whole = each.entry(*whole).or_default();
            whole.oldest_ready_ms = earlier(whole.oldest_ready_ms, part.oldest_ready_ms);
            whole.ready_bytes = match (whole.ready_bytes, part.ready_bytes) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            };
        }
        Self { queues: each, parts }
    }

    /// Of a queue with so many ready messages: a front is up to a look older than that count.
    pub(crate) fn of(&self, queue: QueueId, ready: u64) -> Front {
        now(self.queues.get(&queue), ready)
    }

    /// The same of one of the partitions of a queue that has several.
    pub(crate) fn of_partition(&self, partition: QueueId, ready: u64) -> Front {
        now(self.parts.get(&partition), ready)
    }
}

fn now(found: Option<&Front>, ready: u64) -> Front {
    let found = found.copied().unwrap_or_default();
    match ready {
        0 => Front { oldest_ready_ms: None, ..found },
        _ => found,
    }
}

/// What the nodes said last, and when their answers were there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Option<(u64, Arc<Merged>)>);

impl Told {
    pub(crate) fn at(now_ms: u64, merged: Arc<Merged>) -> Self {
        Self(Some((now_ms, merged)))
    }

    /// Whether it is time to ask again.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.0.as_ref().is_none_or(|(at_ms, _)| now_ms.abs_diff(*at_ms) >= FRONTS_MS)
    }

    /// What they said, unless it is so old that queues may have been emptied and filled again since.
    pub(crate) fn known(&self, now_ms: u64) -> Option<Arc<Merged>> {
        let (at_ms, merged) = self.0.as_ref()?;
        (now_ms.abs_diff(*at_ms) < FRONTS_OLD_MS).then(|| Arc::clone(merged))
    }
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(first_ready: Option<u64>, next: u64) -> machine::Front {
        machine::Front { first_ready, next, ready_bytes: None }
    }

    fn oldest(
        fronts: &mut Fronts,
        now_ms: u64,
        first_ready: Option<u64>,
        next: u64,
    ) -> Option<u64> {
        fronts.look(now_ms, &[(QueueId(1), front(first_ready, next))]);
        fronts.rows().first().and_then(|row| row.oldest_ready_ms)
    }

    #[test]
    fn the_oldest_ready_message_was_there_at_the_first_look_that_knew_of_it() {
        let mut fronts = Fronts::default();
        assert_eq!(oldest(&mut fronts, 100, None, 7), None);
        assert_eq!(oldest(&mut fronts, 110, Some(7), 9), Some(110));
        assert_eq!(oldest(&mut fronts, 120, Some(7), 20), Some(110));
        assert_eq!(oldest(&mut fronts, 130, Some(8), 30), Some(110), "8 was there then, too");
        assert_eq!(oldest(&mut fronts, 140, Some(25), 30), Some(130));
        assert_eq!(oldest(&mut fronts, 150, Some(5), 30), Some(130), "one that comes back");
        assert_eq!(oldest(&mut fronts, 160, None, 30), None);
        assert!(fronts.rows().is_empty(), "nothing is kept of a queue with nothing ready");
        assert_eq!(oldest(&mut fronts, 170, Some(2), 3), Some(170), "its numbers begin again");
    }

    #[test]
    fn a_queue_that_grows_for_long_keeps_so_many_times_and_is_never_said_to_be_older_than_it_is() {
        let mut fronts = Fronts::default();
        let came_ms = |seq: u64| 1_000 + seq / 10 * 10;
        for look in 0..5_000_u64 {
            let now_ms = 1_000 + look * 10;
            // Half as fast as they come they go: ten come between two looks.
            let (first, next) = (look * 5, look * 10 + 10);
            let at_ms = oldest(&mut fronts, now_ms, Some(first), next).unwrap();
            let came_ms = came_ms(first);
            assert!(came_ms <= at_ms && at_ms <= now_ms, "{came_ms} {at_ms} {now_ms}");
            let (said, age) = (now_ms - at_ms, now_ms - came_ms);
            assert!(said * 2 + 100 >= age, "said {said} of {age}");
            assert!(fronts.queues[&QueueId(1)].arrivals.0.len() <= ARRIVALS_KEPT);
        }
    }

    #[test]
    fn what_was_told_is_asked_for_again_and_counts_meanwhile_until_it_is_old() {
        let never = Told::default();
        assert!(never.is_due(0) && never.known(0).is_none());
        let told = Told::at(100_000, Arc::default());
        let stands = |now_ms| (told.is_due(now_ms), told.known(now_ms).is_some());
        assert_eq!(stands(100_000), (false, true));
        assert_eq!(stands(100_000 + FRONTS_MS - 1), (false, true));
        assert_eq!(stands(100_000 + FRONTS_MS), (true, true));
        assert_eq!(stands(100_000 + FRONTS_OLD_MS), (true, false));
        assert_eq!(stands(0), (true, false), "the clock was set back");
    }

    #[test]
    fn partitions_are_one_queue_and_what_has_no_ready_message_has_no_age() {
        let row = |queue, at, bytes| Row { queue, oldest_ready_ms: at, ready_bytes: bytes };
        let partitions = BTreeMap::from([(QueueId(2), QueueId(1))]);
        let told =
            [row(1, Some(50), Some(3)), row(2, Some(40), Some(4)), row(1, Some(60), Some(3))];
        let merged = Merged::new(told, &partitions);
        let whole = Front { oldest_ready_ms: Some(40), ready_bytes: Some(7) };
        assert_eq!(merged.of(QueueId(1), 9), whole);
        assert_eq!(merged.of(QueueId(1), 0), Front { oldest_ready_ms: None, ..whole });
        assert_eq!(merged.of(QueueId(2), 9), Front::default());
        let oldest = |id, ready| merged.of_partition(QueueId(id), ready).oldest_ready_ms;
        assert_eq!((oldest(1, 9), oldest(2, 9)), (Some(50), Some(40)));
        assert_eq!((oldest(2, 0), oldest(3, 9)), (None, None));
    }
}
