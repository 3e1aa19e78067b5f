//! How long the deliveries of a channel have been out.
//!
//! Nothing is noted for a message. Now and then the session looks at its channels and marks how far their
//! delivery tags have come: what is still out and was out at a mark is at least as old as the mark.

use std::collections::VecDeque;
use std::time::Duration;

use machine::QueueId;

use super::unacked::Unacked;
use crate::limits;

/// How far the tags of a channel had come, and when: oldest first. Time counts from any moment on.
#[derive(Debug, Default)]
pub(crate) struct Marks(VecDeque<(Duration, u64)>);

impl Marks {
    /// Now every tag below `next` has been given; the tags below `oldest` are settled.
    fn note(&mut self, now: Duration, next: u64, oldest: u64) {
        while self.0.front().is_some_and(|(_, known)| *known <= oldest) {
            self.0.pop_front();
        }
        if self.0.back().is_none_or(|(_, known)| *known < next) {
            self.0.push_back((now, next));
        }
        if self.0.len() > limits::TAG_MARKS_MAX {
            // Half as fine: what lies between two marks counts as younger than it is.
            let mut is_kept = true;
            self.0.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// When it was out at the latest. None: it came since the last mark.
    pub(crate) fn out_since(&self, tag: u64) -> Option<Duration> {
        let place = self.0.partition_point(|(_, known)| *known <= tag);
        self.0.get(place).map(|(at, _)| *at)
    }

    /// Marks the tags, and gives the time that a delivery has exceeded, if one has. `timeout` says how long
    /// messages of a queue may be out; zero is for ever.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        unacked: &Unacked,
        mut timeout: impl FnMut(QueueId) -> Duration,
    ) -> Option<Duration> {
        let mut exceeded = None;
        let mut last = None;
        for run in unacked.runs() {
            let Some(since) = self.out_since(run.first_tag) else { break };
            let queue = run.source.queue.base();
            let allowed = match last {
                Some((known, allowed)) if known == queue => allowed,
                _ => timeout(queue),
            };
            last = Some((queue, allowed));
            if !allowed.is_zero() && now.saturating_sub(since) >= allowed {
                exceeded = Some(allowed);
                break;
            }
        }
        let oldest = unacked.runs().next().map_or(u64::MAX, |run| run.first_tag);
        self.note(now, unacked.next_tag(), oldest);
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::unacked::Source;
    use machine::GroupId;

    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);

    fn source(queue: u64) -> Source {
        Source { group: GroupId(1), queue: QueueId(queue), consumer: 1 }
    }

    #[test]
    fn what_was_out_at_a_mark_is_as_old_as_the_mark() {
        let (start, mut marks, mut unacked) = (HOUR, Marks::default(), Unacked::default());
        let mut look =
            |minutes, unacked: &Unacked| marks.look(start + MINUTE * minutes, unacked, |_| HOUR);
        unacked.add(source(7), 1, 2);
        assert_eq!(look(0, &unacked), None);
        unacked.add(source(7), 3, 1);
        assert_eq!(look(30, &unacked), None);
        assert_eq!(look(59, &unacked), None);
        unacked.take_through(2, |_| {});
        assert_eq!(look(60, &unacked), None, "the third came later");
        assert_eq!(look(90, &unacked), Some(HOUR));
    }

    #[test]
    fn each_queue_has_its_own_time_and_zero_is_for_ever() {
        let (start, mut marks, mut unacked) = (HOUR, Marks::default(), Unacked::default());
        unacked.add(source(7), 1, 1);
        unacked.add(source(8).level(QueueId(8).level(3)), 1, 1);
        let timeout = |queue: QueueId| if queue.0 == 8 { MINUTE } else { Duration::ZERO };
        assert_eq!(marks.look(start, &unacked, timeout), None);
        assert_eq!(marks.look(start + MINUTE, &unacked, timeout), Some(MINUTE));
        unacked.take(2);
        assert_eq!(marks.look(start + HOUR * 1000, &unacked, timeout), None);
    }

    #[test]
    fn marks_are_bounded_and_never_make_a_delivery_older() {
        let (start, mut marks) = (HOUR, Marks::default());
        for look in 0..1000 {
            marks.note(start + MINUTE * look, 10 + u64::from(look), 1);
            assert!(marks.0.len() <= limits::TAG_MARKS_MAX);
        }
        for tag in 10..1000 {
            let given = start + MINUTE * u32::try_from(tag - 10).unwrap();
            assert!(marks.out_since(tag).is_none_or(|since| since > given));
        }
        marks.note(start, 2000, 2000);
        assert_eq!(marks.0.len(), 1);
    }
}
