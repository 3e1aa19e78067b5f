//! Finds the messages that a plan means, by looking at the queue piece by piece.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use cluster::{NotPeeked, PeekSpec, Peeked, PeekedMessage, Request, Ticket};
use machine::{PeekFilter, Position};

use super::super::limits::{LOOK_AGAIN, RETRY, RETRY_LOOK_MESSAGES};
use super::plan::{Plan, Which};

/// Where the next look goes.
#[derive(Debug)]
enum Course {
    /// From here on, up to where the queue ended when the first look was answered.
    From(Position),
    /// At each of these.
    At(VecDeque<Position>),
    Over,
}

/// Looks at a queue from its front on, or at the places that are named.
#[derive(Debug)]
pub(super) struct Looking {
    course: Course,
    /// For each priority, where the queue ended at first.
    ends: Option<Vec<u64>>,
    asked: Option<Ticket>,
    again_at: Option<Duration>,
}

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Messages(Vec<PeekedMessage>),
    /// The message at the place that is named is not there.
    Nothing,
    /// It looks again later: why.
    Later(&'static str),
    NoQueue,
}

impl Looking {
    pub(super) fn new(plan: &Plan) -> Self {
        let course = match &plan.which {
            Which::At(places) => Course::At(places.iter().copied().collect()),
            Which::All(_) => Course::From(Position::FIRST),
        };
        Self { course, ends: None, asked: None, again_at: None }
    }

    /// Nothing is to come.
    pub(super) fn is_over(&self) -> bool {
        let is_over = match &self.course {
            Course::Over => true,
            Course::At(places) => places.is_empty(),
            Course::From(_) => false,
        };
        is_over && self.asked.is_none()
    }

    pub(super) fn end(&mut self) {
        self.course = Course::Over;
        self.again_at = None;
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.again_at
    }

    /// The next question, if it is time for one.
    pub(super) fn ask(&mut self, now: Duration, plan: &Plan, ticket: Ticket) -> Option<Request> {
        if self.asked.is_some() || self.again_at.is_some_and(|at| now < at) {
            return None;
        }
        let contains = match &plan.which {
            Which::At(_) => Bytes::new(),
            Which::All(filter) => filter.contains.clone(),
        };
        let (from, count) = match &self.course {
            Course::From(from) => (*from, RETRY_LOOK_MESSAGES),
            Course::At(places) => (*places.front()?, 1),
            Course::Over => return None,
        };
        self.again_at = None;
        self.asked = Some(ticket);
        let filter = PeekFilter::Ready;
        let spec = Box::new(PeekSpec { from, filter, count, body_bytes_max: 0, contains });
        let (group, queue) = plan.place;
        Some(Request::Peek { ticket, group, queue, spec })
    }

    pub(super) fn is_asked(&self, ticket: Ticket) -> bool {
        self.asked == Some(ticket)
    }

    pub(super) fn answered(&mut self, now: Duration, said: Result<Peeked, NotPeeked>) -> Found {
        self.asked = None;
        let peeked = match said {
            Ok(peeked) => peeked,
            Err(NotPeeked::NoQueue) => return Found::NoQueue,
            Err(why) => return self.later(now, why),
        };
        match &mut self.course {
            Course::At(places) => {
                let Some(place) = places.pop_front() else { return Found::Nothing };
                let found = peeked.messages.into_iter().find(|it| it.is.position == place);
                found.map_or(Found::Nothing, |message| Found::Messages(vec![message]))
            }
            Course::From(from) => {
                let from = *from;
                self.go_on(now, from, peeked)
            }
            Course::Over => Found::Messages(Vec::new()),
        }
    }

    /// Goes on behind what was found, and leaves out what has come since the beginning.
    fn go_on(&mut self, now: Duration, from: Position, peeked: Peeked) -> Found {
        let Peeked { mut messages, next, ends } = peeked;
        let ends = self.ends.get_or_insert(ends);
        let is_new =
            |at: &Position| ends.get(usize::from(at.priority)).is_none_or(|end| at.seq >= *end);
        messages.retain(|message| !is_new(&message.is.position));
        // What follows in this level is newer still.
        let next = next.and_then(|next| match is_new(&next) && next.seq > 0 {
            true => next.priority.checked_sub(1).map(|priority| Position { priority, seq: 0 }),
            false => Some(next),
        });
        if messages.is_empty() && next == Some(from) {
            self.again_at = Some(now + LOOK_AGAIN);
        }
        self.course = next.map_or(Course::Over, Course::From);
        Found::Messages(messages)
    }

    fn later(&mut self, now: Duration, why: NotPeeked) -> Found {
        let (wait, why) = match why {
            NotPeeked::Busy => (LOOK_AGAIN, "others look at the queue's messages"),
            NotPeeked::NotYet { .. } => (RETRY, "the cluster is being upgraded"),
            NotPeeked::NoLeader => (RETRY, "the queue's group has no leader"),
            NotPeeked::Late | NotPeeked::NoQueue => (RETRY, "the queue's leader does not answer"),
            NotPeeked::Unreadable => {
                (RETRY, "the disk of the queue's leader does not give the messages: see its log")
            }
        };
        self.again_at = Some(now + wait);
        Found::Later(why)
    }
}
