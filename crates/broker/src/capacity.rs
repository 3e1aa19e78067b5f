//! Messages for queues that refuse what they have no room for, or have a rate for what comes in: they wait until the
//! queue's leader has said which of them it takes. With a rate it says so when their time has come.
//!
//! One question for each queue is on its way at a time, for all that had come when it was asked; so what goes
//! into a queue keeps its order, and a slow answer makes the next question larger, not more questions.

use std::collections::VecDeque;

use cluster::Request;
use machine::{Attributes, GroupId, QueueId, Target};

use crate::attributes::Asked;
use crate::connection::tickets::{ChannelRef, Groups, Tickets, Waiting};
use crate::limits;
use crate::route_cache::Route;

/// A message for one queue, which may take it or not.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) level: QueueId,
    pub(crate) attributes: Attributes,
    pub(crate) head: Box<[u8]>,
    pub(crate) body: Box<[u8]>,
    pub(crate) then: Then,
    /// How many messages its queue is asked about at once: what the queue's rate lets in at once.
    pub(crate) asked_max: usize,
}

impl Candidate {
    /// A message for a queue that is asked first.
    pub(crate) fn new(
        target: &Target,
        asked: &Asked,
        head: &[&[u8]],
        body: &[u8],
        then: Then,
    ) -> Self {
        let head: Vec<u8> = head.concat();
        let asked_max = match target.asked_max as usize {
            0 => limits::ADMIT_MESSAGES,
            max => max.min(limits::ADMIT_MESSAGES),
        };
        Self {
            level: asked.level(target),
            attributes: asked.attributes(target.dedups),
            head: head.into(),
            body: body.into(),
            then,
            asked_max,
        }
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.head.len() + self.body.len()
    }
}

/// What becomes of a message that is let in, and who is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is stored; the run of the channel's confirms counts it.
    Append(Option<(ChannelRef, u64)>),
    /// It goes into the transaction that this channel commits.
    Commit(ChannelRef),
}

/// One queue.
#[derive(Debug)]
struct Check {
    group: GroupId,
    queue: QueueId,
    /// Oldest first, with their numbers.
    waiting: VecDeque<(u64, Candidate)>,
    /// So many of the first have been asked about.
    asked: usize,
}

/// All queues that something waits for.
#[derive(Debug, Default)]
pub(crate) struct CapacityChecks {
    checks: Vec<Check>,
    /// Messages that ever waited: they are numbered by it.
    added: u64,
    /// Bytes of the messages that wait.
    pub(crate) bytes: usize,
}

impl CapacityChecks {
    pub(crate) fn add(&mut self, group: GroupId, message: Candidate) {
        let queue = message.level.base();
        self.added += 1;
        self.bytes += message.bytes();
        let place = match self.checks.iter().position(|check| check.queue == queue) {
            Some(place) => place,
            None => {
                self.checks.push(Check { group, queue, waiting: VecDeque::new(), asked: 0 });
                self.checks.len() - 1
            }
        };
        self.checks[place].waiting.push_back((self.added, message));
    }

    /// The route of a message that is not to overtake what waits: for the queues of which something does, it waits
    /// behind that, also if a changed policy has made the queue take everything meanwhile. None: nothing is in its way.
    #[inline]
    pub(crate) fn behind(&self, route: &Route) -> Option<Route> {
        if self.checks.is_empty() {
            return None;
        }
        route.asking(|queue| self.checks.iter().any(|check| check.queue == queue))
    }

    /// Whether nothing waits for a queue of one of `groups`.
    pub(crate) fn is_empty(&self, groups: Groups) -> bool {
        !self.checks.iter().any(|check| groups.contain(check.group))
    }

    /// The number of the message that came last.
    pub(crate) fn last(&self) -> u64 {
        self.added
    }

    /// Whether no message up to this number waits any more for a queue of one of `groups`.
    pub(crate) fn is_past(&self, number: u64, groups: Groups) -> bool {
        let awaited = self.checks.iter().filter(|check| groups.contain(check.group));
        let mut oldest = awaited.filter_map(|check| check.waiting.front());
        oldest.all(|(first, _)| *first > number)
    }

    /// Asks about what nobody has asked about.
    pub(crate) fn flush(&mut self, tickets: &mut Tickets, requests: &mut Vec<Request>) {
        for check in self.checks.iter_mut().filter(|check| check.asked == 0) {
            let size = |(_, message): &(u64, Candidate)| message.body.len() as u32;
            let last = check.waiting.back();
            let max = last.map_or(limits::ADMIT_MESSAGES, |(_, message)| message.asked_max);
            let sizes: Vec<u32> = check.waiting.iter().take(max).map(size).collect();
            check.asked = sizes.len();
            let (group, queue) = (check.group, check.queue);
            let ticket = tickets.issue(Waiting::Capacity { queue });
            requests.push(Request::Admit { ticket, group, queue, sizes });
        }
    }

    /// What was asked about has been answered: gives its group and the messages.
    pub(crate) fn answered(&mut self, queue: QueueId) -> Option<(GroupId, Vec<Candidate>)> {
        let place = self.checks.iter().position(|check| check.queue == queue)?;
        let check = &mut self.checks[place];
        let group = check.group;
        let asked = std::mem::take(&mut check.asked);
        let messages: Vec<_> = check.waiting.drain(..asked).map(|(_, message)| message).collect();
        if check.waiting.is_empty() {
            self.checks.remove(place);
        }
        let bytes: usize = messages.iter().map(Candidate::bytes).sum();
        assert!(bytes <= self.bytes, "what is answered waited");
        self.bytes -= bytes;
        assert!(
            !self.checks.is_empty() || self.bytes == 0,
            "nothing waits, so nothing takes memory"
        );
        Some((group, messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(queue: u64, body: &[u8]) -> Candidate {
        let attributes = Attributes::default();
        let (head, body) = (b"head"[..].into(), body.into());
        let (level, then) = (QueueId(queue), Then::Append(None));
        Candidate { level, attributes, head, body, then, asked_max: limits::ADMIT_MESSAGES }
    }

    fn asked(checks: &mut CapacityChecks, tickets: &mut Tickets) -> Vec<(u64, Vec<u32>)> {
        let mut requests = Vec::new();
        checks.flush(tickets, &mut requests);
        let sizes = |request| match request {
            Request::Admit { queue, sizes, .. } => (queue.0, sizes),
            other => panic!("{other:?}"),
        };
        requests.into_iter().map(sizes).collect()
    }

    #[test]
    fn what_comes_while_a_question_is_open_waits_for_the_next() {
        let (mut checks, mut tickets) = (CapacityChecks::default(), Tickets::default());
        checks.add(GroupId(1), message(7, b"a"));
        checks.add(GroupId(1), message(7, b"bb"));
        checks.add(GroupId(2), message(8, b"c"));
        assert_eq!(asked(&mut checks, &mut tickets), [(7, vec![1, 2]), (8, vec![1])]);
        checks.add(GroupId(1), message(7, b"ddd"));
        assert!(asked(&mut checks, &mut tickets).is_empty());
        let (group, first) = checks.answered(QueueId(7)).unwrap();
        assert_eq!((group, first.len()), (GroupId(1), 2));
        assert_eq!(asked(&mut checks, &mut tickets), [(7, vec![3])]);
        let bytes = message(7, b"ddd").bytes() + message(8, b"c").bytes();
        assert_eq!(checks.bytes, bytes);
    }

    #[test]
    fn a_queue_with_a_rate_is_asked_about_no_more_than_it_lets_in_at_once() {
        let (mut checks, mut tickets) = (CapacityChecks::default(), Tickets::default());
        for body in [b"a".as_slice(), b"bb", b"ccc"] {
            checks.add(GroupId(1), Candidate { asked_max: 2, ..message(7, body) });
        }
        assert_eq!(asked(&mut checks, &mut tickets), [(7, vec![1, 2])]);
        assert_eq!(checks.answered(QueueId(7)).unwrap().1.len(), 2);
        assert_eq!(asked(&mut checks, &mut tickets), [(7, vec![3])]);
    }

    #[test]
    fn a_mark_is_past_when_nothing_before_it_waits() {
        let (mut checks, mut tickets) = (CapacityChecks::default(), Tickets::default());
        checks.add(GroupId(1), message(7, b"a"));
        checks.add(GroupId(2), message(8, b"b"));
        let mark = checks.last();
        asked(&mut checks, &mut tickets);
        checks.add(GroupId(1), message(7, b"later"));
        checks.answered(QueueId(8));
        assert!(
            !checks.is_past(mark, Groups::All) && checks.is_past(mark, Groups::One(GroupId(2)))
        );
        checks.answered(QueueId(7));
        assert!(checks.is_past(mark, Groups::All) && !checks.is_empty(Groups::All));
        assert!(checks.is_empty(Groups::One(GroupId(2))));
        asked(&mut checks, &mut tickets);
        checks.answered(QueueId(7));
        assert!(checks.is_empty(Groups::All));
        assert_eq!(checks.bytes, 0);
    }
}
