//! Where in a queue somebody begins to look at messages, who does not name a position: at the first message of a time, or
//! so many messages before the end. Both are found by questions that any leader answers: what lies at this position and
//! behind it? They are cores: `io::peek_pages` asks.
//!
//! Positions go by priority first, so the messages of a time lie together in each priority, and not in the whole queue.

use std::collections::VecDeque;

use machine::Position;

use crate::limits::PEEKED_MESSAGES_MAX;

/// What a search wants to see next: so many messages from there on, without their bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) from: Position,
    pub(crate) count: u64,
}

/// A message, as far as a search looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) position: Position,
    /// `None`: it does not say.
    pub(crate) enqueued_ms: Option<u64>,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// In the order of their positions.
    pub(crate) seen: Vec<Seen>,
    /// Where to go on. `None`: there are no more.
    pub(crate) next: Option<Position>,
    /// For each priority from 0 on: all messages are below.
    pub(crate) ends: Vec<u64>,
}

/// What messages count as that do not say when they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untold {
    /// As older than all that say it: in a queue the oldest messages are the ones that do not.
    Older,
    /// As new enough: the search begins at a place that is known to be near.
    New,
}

/// Looks for the first message from a position on that came at a time or later: of the first priority that has one.
///
/// ```text
///   First ──older──> Within ──none in this priority──> First, one priority lower
///     └── new enough ──> Over <── found ──┘
/// ```
#[derive(Debug)]
pub(crate) struct Since {
    time_ms: u64,
    untold: Untold,
    course: Course,
    /// Whether messages beside the place say when they came: of this priority, and of the higher ones.
    is_exact: bool,
    was_exact: bool,
}

#[derive(Clone, Copy, Debug)]
enum Course {
    /// Is the first message from here on new enough already?
    First(Position),
    /// Messages below `low` are older, those from `high` on are not. `found` is the first of these, if there is one.
    Within {
        priority: u8,
        low: u64,
        high: u64,
        found: Option<Position>,
    },
    Over(Option<Position>),
}

impl Since {
    pub(crate) fn new(from: Position, time_ms: u64, untold: Untold) -> Self {
        Self { time_ms, untold, course: Course::First(from), is_exact: true, was_exact: true }
    }

    /// `None`: it is over.
    pub(crate) fn question(&self) -> Option<Question> {
        let from = match self.course {
            Course::First(from) => from,
            Course::Within { priority, low, high, .. } => {
                Position { priority, seq: low.midpoint(high) }
            }
            Course::Over(_) => return None,
        };
        Some(Question { from, count: 1 })
    }

    pub(crate) fn answered(&mut self, answer: &Answer) {
        let first = answer.seen.first().copied();
        self.course = match self.course {
            Course::First(_) => self.behind_first(first, &answer.ends),
            Course::Within { priority, low, high, found } => {
                let middle = low.midpoint(high);
                match first.filter(|seen| seen.position.priority == priority) {
                    Some(seen) if self.is_new(seen) => {
                        Course::Within { priority, low, high: middle, found: Some(seen.position) }
                    }
                    Some(seen) => {
                        self.is_exact = seen.enqueued_ms.is_some();
                        let low = seen.position.seq.saturating_add(1);
                        Course::Within { priority, low, high, found }
                    }
                    None => Course::Within { priority, low, high: middle, found },
                }
            }
            Course::Over(found) => Course::Over(found),
        };
        if let Course::Within { priority, low, high, found } = self.course
            && low >= high
        {
            self.course = match (found, priority.checked_sub(1)) {
                (None, Some(priority)) => {
                    self.was_exact &= self.is_exact;
                    Course::First(Position { priority, seq: 0 })
                }
                (Some(_), _) | (None, None) => Course::Over(found),
            };
        }
    }

    /// The place, once there is no question. `None`: no message is new enough.
    pub(crate) fn found(&self) -> Option<Position> {
        match self.course {
            Course::Over(found) => found,
            Course::First(_) | Course::Within { .. } => None,
        }
    }

    /// False: messages beside the place do not say when they came.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact && self.was_exact
    }

    fn behind_first(&mut self, first: Option<Seen>, ends: &[u64]) -> Course {
        let Some(seen) = first else { return Course::Over(None) };
        self.is_exact = seen.enqueued_ms.is_some();
        let Position { priority, seq } = seen.position;
        if self.is_new(seen) {
            return Course::Over(Some(seen.position));
        }
        let high = ends.get(usize::from(priority)).copied().unwrap_or(u64::MAX);
        Course::Within { priority, low: seq.saturating_add(1), high, found: None }
    }

    fn is_new(&self, seen: Seen) -> bool {
        match seen.enqueued_ms {
            Some(ms) => ms >= self.time_ms,
            None => self.untold == Untold::New,
        }
    }
}

/// Looks for the message with which the last so many begin: from the end of the lowest priority on, window by window
/// backwards. A window grows as long as there is room in its answer: most of a queue's numbers may be of messages that are
/// gone.
#[derive(Debug)]
pub(crate) struct Last {
    wanted: usize,
    ends: Vec<u64>,
    /// The last messages, as far as they are known.
    found: VecDeque<Position>,
    step: Step,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Where does each priority end?
    Ends,
    /// Which is the first message of this priority?
    Floor {
        priority: u8,
    },
    /// Which are in this window? What is from `high` on is known.
    Window {
        priority: u8,
        floor: u64,
        low: u64,
        high: u64,
    },
    Over,
}

impl Last {
    pub(crate) fn new(wanted: u64) -> Self {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        Self { wanted, ends: Vec::new(), found: VecDeque::new(), step: Step::Ends }
    }

    /// `None`: it is over.
    pub(crate) fn question(&self) -> Option<Question> {
        Some(match self.step {
            Step::Ends => Question { from: Position::FIRST, count: 1 },
            Step::Floor { priority } => Question { from: Position { priority, seq: 0 }, count: 1 },
            Step::Window { priority, low, high, .. } => {
                let count = (high - low).min(PEEKED_MESSAGES_MAX);
                Question { from: Position { priority, seq: low }, count }
            }
            Step::Over => return None,
        })
    }

    pub(crate) fn answered(&mut self, answer: &Answer) {
        self.step = match self.step {
            Step::Ends if answer.seen.is_empty() => Step::Over,
            Step::Ends => {
                self.ends.clone_from(&answer.ends);
                self.level(0)
            }
            Step::Floor { priority } => {
                let first = answer.seen.first().map(|seen| seen.position);
                match first.filter(|first| first.priority == priority) {
                    Some(first) => self.window(priority, first.seq, self.end(priority), 0),
                    None => self.above(priority),
                }
            }
            Step::Window { priority, floor, low, high } => {
                let next = answer.next.filter(|next| next.priority == priority);
                if next.is_some_and(|next| next.seq < high) {
                    // There is more in it than an answer holds.
                    let low = high - ((high - low) / 2).max(1);
                    Step::Window { priority, floor, low, high }
                } else {
                    self.take(answer, priority, low..high);
                    match self.found.len() >= self.wanted || low == floor {
                        true => self.above(priority),
                        false => self.window(priority, floor, low, (high - low).saturating_mul(2)),
                    }
                }
            }
            Step::Over => Step::Over,
        };
    }

    /// The place, or as far as it has come. `None`: no message is found.
    pub(crate) fn found(&self) -> Option<Position> {
        self.found.front().copied()
    }

    fn end(&self, priority: u8) -> u64 {
        self.ends.get(usize::from(priority)).copied().unwrap_or(0)
    }

    /// What is to be asked of a priority, if more is wanted and there is such a one.
    fn level(&self, priority: u8) -> Step {
        let is_there = usize::from(priority) < self.ends.len();
        match is_there && self.found.len() < self.wanted {
            true => Step::Floor { priority },
            false => Step::Over,
        }
    }

    /// The window below `high`: as wide as what is missing, at least.
    fn window(&self, priority: u8, floor: u64, high: u64, width: u64) -> Step {
        let missing = self.wanted.saturating_sub(self.found.len()) as u64;
        let low = high.saturating_sub(width.max(missing).max(1)).max(floor);
        match low < high {
            true => Step::Window { priority, floor, low, high },
            false => self.above(priority),
        }
    }

    fn above(&self, priority: u8) -> Step {
        priority.checked_add(1).map_or(Step::Over, |priority| self.level(priority))
    }

    fn take(&mut self, answer: &Answer, priority: u8, window: std::ops::Range<u64>) {
        let is_in = |at: &Position| at.priority == priority && window.contains(&at.seq);
        let seen = answer.seen.iter().map(|seen| seen.position).filter(is_in);
        let missing = self.wanted.saturating_sub(self.found.len());
        let seen: Vec<Position> = seen.collect();
        for position in seen.into_iter().rev().take(missing) {
            self.found.push_front(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A queue: where its messages lie and when they came, in the order of positions, and how many it shows at once.
    #[derive(Clone, Debug)]
    struct Model {
        messages: Vec<Seen>,
        ends: Vec<u64>,
        shown_max: usize,
    }

    impl Model {
        fn answer(&self, Question { from, count }: Question) -> Answer {
            let is_behind = |seen: &&Seen| order(seen.position) >= order(from);
            let mut behind = self.messages.iter().filter(is_behind).copied();
            let count = (count as usize).min(self.shown_max);
            let seen: Vec<Seen> = behind.by_ref().take(count).collect();
            let next = behind.next().map(|seen| seen.position);
            Answer { seen, next, ends: self.ends.clone() }
        }

        fn since(&self, from: Position, time_ms: u64, untold: Untold) -> (Option<Position>, bool) {
            let mut search = Since::new(from, time_ms, untold);
            let mut questions = 0;
            while let Some(question) = search.question() {
                search.answered(&self.answer(question));
                questions += 1;
                assert!(questions <= 30 * self.ends.len(), "{search:?}");
            }
            (search.found(), search.is_exact())
        }

        fn last(&self, wanted: u64) -> (Option<Position>, usize) {
            let (mut search, mut questions) = (Last::new(wanted), 0);
            while let Some(question) = search.question() {
                search.answered(&self.answer(question));
                questions += 1;
                assert!(questions < 1_000, "{search:?}");
            }
            (search.found(), questions)
        }
    }

    /// Positions in their order.
    fn order(at: Position) -> (u8, u64) {
        (u8::MAX - at.priority, at.seq)
    }

    fn at(priority: u8, seq: u64) -> Position {
        Position { priority, seq }
    }

    /// So many messages of one priority, from number 1 on, each a second after the one before; the first so many do not
    /// say when they came.
    fn plain(count: u64, untold: u64) -> Model {
        let time = |seq| (seq > untold).then_some(seq * 1000);
        let seen = |seq| Seen { position: at(0, seq), enqueued_ms: time(seq) };
        let messages = (1..=count).map(seen).collect();
        Model { messages, ends: vec![count + 1], shown_max: 1_000 }
    }

    #[test]
    fn a_search_by_time_finds_the_first_message_of_it() {
        let queue = plain(100_000, 0);
        let from = Position::FIRST;
        assert_eq!(queue.since(from, 0, Untold::Older), (Some(at(0, 1)), true));
        assert_eq!(queue.since(from, 70_000_500, Untold::Older), (Some(at(0, 70_001)), true));
        assert_eq!(queue.since(at(0, 80_000), 70_000_500, Untold::Older).0, Some(at(0, 80_000)));
        assert_eq!(queue.since(from, 100_000_001, Untold::Older), (None, true));
        assert_eq!(plain(0, 0).since(from, 1, Untold::Older), (None, true));
    }

    #[test]
    fn messages_that_do_not_say_when_they_came_are_told_of() {
        let queue = plain(100, 60);
        let from = Position::FIRST;
        assert_eq!(queue.since(from, 30_000, Untold::Older), (Some(at(0, 61)), false));
        assert_eq!(queue.since(from, 61_001, Untold::Older), (Some(at(0, 62)), true));
        assert_eq!(queue.since(at(0, 31), 30_500, Untold::New), (Some(at(0, 31)), false));
        assert_eq!(plain(9, 9).since(from, 1, Untold::Older), (None, false));
    }

    #[test]
    fn the_last_messages_of_a_dense_queue_take_three_questions() {
        let queue = plain(100_000, 0);
        assert_eq!(queue.last(100), (Some(at(0, 99_901)), 3));
        assert_eq!(queue.last(1_000), (Some(at(0, 99_001)), 3));
        assert_eq!(plain(7, 0).last(100), (Some(at(0, 1)), 3));
        assert_eq!(plain(0, 0).last(100), (None, 1));
    }

    #[test]
    fn the_last_messages_are_found_behind_a_wide_gap() {
        let mut queue = plain(10, 0);
        let seen = |seq| Seen { position: at(0, seq), enqueued_ms: None };
        queue.messages.extend([seen(1_000_000_000), seen(1_000_000_001)]);
        queue.ends = vec![2_000_000_000];
        let (found, questions) = queue.last(5);
        assert_eq!(found, Some(at(0, 8)));
        assert!(questions < 100, "{questions}");
    }

    /// Priorities with gaps, in which time goes on and the oldest messages may not say when they came.
    fn model() -> impl Strategy<Value = Model> {
        let level = (prop::collection::vec((1_u64..50, 0_u64..5), 0..40), 0_usize..40, 1_u64..60);
        (prop::collection::vec(level, 1..4), 1_usize..20).prop_map(|(levels, shown_max)| {
            let (mut messages, mut ends) = (Vec::new(), Vec::new());
            for (priority, (steps, untold, beyond)) in (0..).zip(levels) {
                let (mut seq, mut ms) = (0, 0);
                for (index, (gap, later)) in steps.into_iter().enumerate() {
                    (seq, ms) = (seq + gap, ms + later);
                    let enqueued_ms = (index >= untold).then_some(ms);
                    messages.push(Seen { position: at(priority, seq), enqueued_ms });
                }
                ends.push(seq + beyond);
            }
            messages.sort_by_key(|seen| order(seen.position));
            Model { messages, ends, shown_max }
        })
    }

    proptest! {
        #[test]
        fn a_search_by_time_finds_what_a_walk_finds(
            queue in model(),
            from in (0_u8..4, 0_u64..200),
            time_ms in 0_u64..150,
        ) {
            let from = at(from.0, from.1);
            let is_it = |seen: &&Seen| {
                order(seen.position) >= order(from) && seen.enqueued_ms.is_some_and(|ms| ms >= time_ms)
            };
            let walked = queue.messages.iter().find(is_it).map(|seen| seen.position);
            prop_assert_eq!(queue.since(from, time_ms, Untold::Older).0, walked);
        }

        #[test]
        fn the_last_messages_are_those_that_a_walk_finds(queue in model(), wanted in 1_u64..60) {
            let first = queue.messages.len().saturating_sub(wanted as usize);
            let walked = queue.messages.get(first).map(|seen| seen.position);
            prop_assert_eq!(queue.last(wanted).0, walked);
        }
    }
}
