//! Acks and rejects of one socket read, gathered: one request for each queue and consumer.

use std::cmp::Reverse;

use cluster::Request;
use machine::{ConsumerId, Outcome, Ranges, SessionId};

use crate::channel::unacked::{Run, Source};

/// How far back a match is looked for before a new entry is made.
const LOOK_BACK: usize = 16;

#[derive(Debug)]
struct Gathered {
    source: Source,
    outcome: Outcome,
    ranges: Ranges,
    credit: u32,
}

/// What is gathered and not sent.
#[derive(Debug, Default)]
pub(crate) struct Settles {
    gathered: Vec<Gathered>,
}

impl Settles {
    #[inline]
    pub(crate) fn add(&mut self, run: &Run, outcome: Outcome) {
        let range = run.first_seq..run.first_seq + u64::from(run.count);
        let recent = self.gathered.iter_mut().rev().take(LOOK_BACK);
        for found in recent {
            if found.source == run.source && found.outcome == outcome {
                found.ranges.insert(range);
                return;
            }
        }
        self.gathered.push(Gathered {
            source: run.source,
            outcome,
            ranges: Ranges::from(range),
            credit: 0,
        });
    }

    /// Lets a consumer's `credit` go with a settle that is on its way, of whichever level. `false`: there is
    /// none.
    pub(crate) fn add_credit(&mut self, source: Source, credit: u32) -> bool {
        let is_of_it = |one: &&mut Gathered| one.source.level(source.queue) == source;
        let found = self.gathered.iter_mut().rev().take(LOOK_BACK).find(is_of_it);
        if let Some(found) = found {
            found.credit += credit;
            return true;
        }
        false
    }

    pub(crate) fn flush(&mut self, session: SessionId, requests: &mut Vec<Request>) {
        if self.gathered.iter().any(|one| one.source.queue.priority() > 0) {
            self.put_urgent_first();
        }
        for Gathered { source, outcome, ranges, credit } in self.gathered.drain(..) {
            requests.push(Request::Settle {
                group: source.group,
                queue: source.queue,
                consumer: ConsumerId { session, number: source.consumer },
                ranges,
                outcome,
                credit,
            });
        }
    }
}

impl Settles {
    /// What comes back of several levels may be served as it comes: the highest level has to come first, and
    /// credit last.
    fn put_urgent_first(&mut self) {
        let before = self.credit();
        self.gathered.sort_by_key(|one| Reverse(one.source.queue.priority()));
        for place in 0..self.gathered.len() {
            let credit = std::mem::take(&mut self.gathered[place].credit);
            let source = self.gathered[place].source;
            let is_of_it = |one: &Gathered| one.source.level(source.queue) == source;
            let last = self.gathered.iter().rposition(is_of_it).unwrap_or(place);
            self.gathered[last].credit += credit;
        }
        assert_eq!(self.credit(), before, "credit goes with another settle, and none is lost");
    }

    /// Of all consumers together.
    fn credit(&self) -> u64 {
        self.gathered.iter().map(|one| u64::from(one.credit)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{GroupId, QueueId};

    #[test]
    fn acks_of_one_consumer_are_one_request() {
        let source = Source { group: GroupId(1), queue: QueueId(7), consumer: 1 };
        let run = |first_seq, count| Run { first_tag: 1, first_seq, count, source };
        let mut settles = Settles::default();
        settles.add(&run(10, 5), Outcome::Done);
        settles.add(&run(15, 5), Outcome::Done);
        settles.add(&run(20, 1), Outcome::Requeue);
        assert!(settles.add_credit(source, 10));
        let mut requests = Vec::new();
        settles.flush(SessionId(3), &mut requests);
        assert_eq!(requests.len(), 2);
        let Request::Settle { ranges, credit: 0, .. } = &requests[0] else { panic!() };
        assert_eq!(*ranges, Ranges::from(10..20));
        assert!(!settles.add_credit(source, 1));
    }

    #[test]
    fn what_comes_back_of_the_highest_level_comes_first_and_credit_last() {
        let queue = QueueId(7);
        let source =
            |level, consumer| Source { group: GroupId(1), queue: queue.level(level), consumer };
        let run = |source| Run { first_tag: 1, first_seq: 1, count: 1, source };
        let mut settles = Settles::default();
        for (level, consumer) in [(0, 1), (5, 1), (0, 2), (3, 1)] {
            settles.add(&run(source(level, consumer)), Outcome::Requeue);
        }
        assert!(settles.add_credit(source(0, 1), 3));
        assert!(settles.add_credit(source(0, 2), 1));
        let mut requests = Vec::new();
        settles.flush(SessionId(3), &mut requests);
        let levels = requests.iter().map(|request| match request {
            Request::Settle { queue, consumer, credit, .. } => {
                (queue.priority(), consumer.number, *credit)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(levels.collect::<Vec<_>>(), [(5, 1, 0), (3, 1, 0), (0, 1, 3), (0, 2, 1)]);
    }
}
