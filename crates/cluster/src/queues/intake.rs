//! Publishers that wait until a queue's rate lets their messages come in.
//!
//! A session asks before it appends ([`crate::Request::Admit`]), and has one question for each queue on its way. So who
//! waits here is bounded by the sessions that publish to the queue. First come, first served. Leader-local: who is not
//! answered asks the next leader.

use std::collections::{BTreeMap, VecDeque};

use machine::{QueueId, SessionId};

use crate::request::Ticket;

/// A line is looked at so often at least, ms: its queue may have another rate meanwhile, or be gone.
const LOOK_MS: u64 = 1_000;

/// A question that is not answered yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: SessionId,
    pub(super) ticket: Ticket,
    /// Bytes of the bodies of the messages that it is about.
    pub(super) sizes: Vec<u32>,
}

/// Who waits for one queue.
#[derive(Debug)]
struct Line {
    asked: VecDeque<Asked>,
    /// When the first may be answered, by the group's time.
    due_ms: u64,
}

/// Everybody who waits, by queue.
#[derive(Debug, Default)]
pub(super) struct Intake {
    lines: BTreeMap<QueueId, Line>,
}

impl Intake {
    /// Whether somebody waits for this queue.
    pub(super) fn has_line(&self, queue: QueueId) -> bool {
        self.lines.contains_key(&queue)
    }

    /// One more waits for a queue. `due_ms` counts if nobody waited before.
    pub(super) fn wait(&mut self, queue: QueueId, asked: Asked, due_ms: u64) {
        let line =
            self.lines.entry(queue).or_insert_with(|| Line { asked: VecDeque::new(), due_ms });
        line.asked.push_back(asked);
    }

    /// When somebody is to be looked at next.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.lines.values().map(|line| line.due_ms).min()
    }

    /// A line that is due, and how many messages its first question is about.
    pub(super) fn due(&self, now_ms: u64) -> Option<(QueueId, usize)> {
        let (queue, line) = self.lines.iter().find(|(_, line)| line.due_ms <= now_ms)?;
        Some((*queue, line.asked.front().map_or(0, |asked| asked.sizes.len())))
    }

    /// The first of a line has to wait until then.
    pub(super) fn put_off(&mut self, queue: QueueId, now_ms: u64, due_ms: u64) {
        if let Some(line) = self.lines.get_mut(&queue) {
            line.due_ms = due_ms.clamp(now_ms + 1, now_ms + LOOK_MS);
        }
    }

    /// The first of a line is answered.
    pub(super) fn take_first(&mut self, queue: QueueId) -> Option<Asked> {
        let line = self.lines.get_mut(&queue)?;
        let first = line.asked.pop_front();
        if line.asked.is_empty() {
            self.lines.remove(&queue);
        }
        first
    }

    /// Messages that wait for a queue.
    pub(super) fn publishes(&self, queue: QueueId) -> u64 {
        let line = self.lines.get(&queue);
        line.map_or(0, |line| line.asked.iter().map(|asked| asked.sizes.len() as u64).sum())
    }

    /// These sessions wait for nothing any more.
    pub(super) fn end_sessions(&mut self, is_over: impl Fn(SessionId) -> bool) {
        for line in self.lines.values_mut() {
            let first = line.asked.front().map(|asked| asked.session);
            line.asked.retain(|asked| !is_over(asked.session));
            if line.asked.front().map(|asked| asked.session) != first {
                // Another is the first now, and may have to wait less.
                line.due_ms = 0;
            }
        }
        self.lines.retain(|_, line| !line.asked.is_empty());
    }

    /// Everybody, in the order in which they came to each queue.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (QueueId, Asked)> + use<> {
        let lines = std::mem::take(&mut self.lines).into_iter();
        lines.flat_map(|(queue, line)| line.asked.into_iter().map(move |asked| (queue, asked)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q: QueueId = QueueId(1);

    fn asked(session: u64, count: usize) -> Asked {
        Asked { session: SessionId(session), ticket: Ticket(session), sizes: vec![9; count] }
    }

    #[test]
    fn who_came_first_is_answered_first_and_whoever_ended_never() {
        let mut intake = Intake::default();
        for session in 1..=3 {
            intake.wait(Q, asked(session, session as usize), 50);
        }
        assert_eq!((intake.publishes(Q), intake.due(49)), (6, None));
        intake.end_sessions(|session| session == SessionId(1));
        assert_eq!(intake.due(50), Some((Q, 2)));
        assert_eq!(intake.take_first(Q).unwrap().session, SessionId(2));
        assert_eq!(intake.take_first(Q).unwrap().session, SessionId(3));
        assert!(!intake.has_line(Q) && intake.deadline_ms().is_none());
    }

    #[test]
    fn a_line_is_looked_at_within_a_second_however_slow_the_rate() {
        let mut intake = Intake::default();
        intake.wait(Q, asked(1, 1), 0);
        intake.put_off(Q, 10, 3_600_000);
        assert_eq!(intake.deadline_ms(), Some(1_010));
        intake.put_off(Q, 1_010, 1_000);
        assert_eq!(intake.deadline_ms(), Some(1_011), "never at once: that would be for ever");
    }
}
