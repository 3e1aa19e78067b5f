//! Deliveries of one queue that the machine decided, in that order, their bytes to be found.

use std::collections::VecDeque;
use std::ops::Range;

use machine::{ConsumerId, Effect, Position, QueueId, Ranges, SessionId};

use crate::request::Ticket;

/// A delivery that the machine decided.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    /// Given when it is put behind the others.
    pub(crate) turn: u64,
    pub(crate) consumer: ConsumerId,
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
    pub(crate) redelivered: bool,
    /// Settled already: nobody gives it back if it does not leave.
    pub(crate) no_ack: bool,
    pub(crate) returns: u32,
    /// It leaves when the log has heard that it does.
    pub(crate) waits: bool,
    /// Asked for by `basic.get`: answered by number, not as a consumer's delivery.
    pub(crate) got: Option<Got>,
    /// `Answer::Detached`s that follow the last message.
    pub(crate) detached: Vec<Ticket>,
}

impl Outgoing {
    /// What `effect` delivers, and from which queue. None: it delivers nothing.
    pub(crate) fn of(effect: &Effect, got: Option<Got>) -> Option<(QueueId, Self)> {
        let Effect::Deliver {
            queue,
            consumer,
            first_seq,
            count,
            redelivered,
            no_ack,
            returns,
            waits,
        } = *effect
        else {
            return None;
        };
        Some((
            queue,
            Self {
                turn: 0,
                consumer,
                first_seq,
                count,
                redelivered,
                no_ack,
                returns,
                // Planted: it goes out before the log has heard of it.
                waits: waits && !planted::is("delivered_unmarked"),
                got,
                detached: Vec::new(),
            },
        ))
    }

    pub(super) fn span(&self) -> Range<u64> {
        self.first_seq..self.first_seq + u64::from(self.count)
    }
}

/// What a `Got` answer needs besides the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Got {
    pub(crate) ticket: Ticket,
    pub(crate) ready: u64,
    /// The message that was asked for, if one was.
    pub(crate) at: Option<Position>,
}

/// What is taken out of the way to a consumer that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// All that somebody would give back: what is settled already leaves.
    Unsettled,
    Nothing,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    all: VecDeque<Outgoing>,
    /// The numbers of all that waits, once that is much. None: to be looked for one by one.
    wanted: Option<Ranges>,
}

/// Deliveries from which on it pays to know their numbers.
const MANY: usize = 16;

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// First message and count of the delivery that leaves next.
    pub(super) fn front(&self) -> Option<(u64, u32)> {
        self.all.front().map(|outgoing| (outgoing.first_seq, outgoing.count))
    }

    /// The same of what may leave now. What waits for the log has been heard of below `marked_to`.
    #[inline]
    pub(super) fn due(&self, marked_to: u64) -> Option<(u64, u32)> {
        let front = self.all.front()?;
        if !front.waits {
            return Some((front.first_seq, front.count));
        }
        let heard = u32::try_from(marked_to.saturating_sub(front.first_seq)).unwrap_or(u32::MAX);
        (heard > 0).then_some((front.first_seq, front.count.min(heard)))
    }

    /// Whether what leaves next waits for the log.
    pub(super) fn is_unmarked(&self, marked_to: u64) -> bool {
        !self.is_empty() && self.due(marked_to).is_none()
    }

    /// The number of the delivery that leaves next, among those of all queues.
    pub(super) fn turn(&self) -> Option<u64> {
        self.all.front().map(|outgoing| outgoing.turn)
    }

    /// The lowest message that waits; `u64::MAX` without one.
    pub(super) fn first(&self) -> u64 {
        match &self.wanted {
            Some(wanted) => wanted.first(),
            None => self.all.iter().map(|outgoing| outgoing.first_seq).min(),
        }
        .unwrap_or(u64::MAX)
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.all.iter().map(Outgoing::span)
    }

    /// Whether a message of `span` waits.
    pub(super) fn wants(&self, span: Range<u64>) -> bool {
        match &self.wanted {
            Some(wanted) => wanted.intersects(span),
            None => self.spans().any(|waits| waits.start < span.end && span.start < waits.end),
        }
    }

    pub(super) fn push(&mut self, outgoing: Outgoing) {
        if let Some(wanted) = &mut self.wanted {
            wanted.insert(outgoing.span());
        }
        self.all.push_back(outgoing);
        if self.wanted.is_none() && self.all.len() >= MANY {
            self.wanted = Some(self.spans().collect());
        }
    }

    /// The first `count` messages of the front leave: what is told of them.
    pub(super) fn sent(&mut self, count: u32) -> Outgoing {
        let front = self.all.front_mut().expect("something was due");
        assert!(count <= front.count, "no more leaves than was due");
        if let Some(wanted) = &mut self.wanted {
            wanted.remove(front.first_seq..front.first_seq + u64::from(count));
        }
        if count == front.count {
            let sent = self.all.pop_front().expect("it was looked at");
            if self.all.is_empty() {
                self.wanted = None;
            }
            return sent;
        }
        let sent = Outgoing { count, detached: Vec::new(), ..front.clone() };
        front.first_seq += u64::from(count);
        front.count -= count;
        sent
    }

    /// Takes out what waits for `consumer`, as far as `what` says. If something is left, `ticket` is answered after the
    /// last of it, and this says so.
    pub(super) fn withdraw(
        &mut self,
        consumer: ConsumerId,
        what: Withdrawn,
        ticket: Option<Ticket>,
    ) -> (Ranges, bool) {
        let mut withdrawn = Ranges::new();
        let is_its = |outgoing: &Outgoing| outgoing.consumer == consumer && outgoing.got.is_none();
        if what == Withdrawn::Unsettled {
            self.wanted = None;
            self.all.retain(|outgoing| {
                let stays = !is_its(outgoing) || outgoing.no_ack;
                if !stays {
                    withdrawn.insert(outgoing.span());
                }
                stays
            });
        }
        let last = self.all.iter_mut().rev().find(|outgoing| is_its(outgoing));
        let Some(last) = last else { return (withdrawn, false) };
        last.detached.extend(ticket);
        (withdrawn, true)
    }

    /// Takes out what waits for `consumer`, settled or not, but for what it fetched itself.
    pub(super) fn cancel(&mut self, consumer: ConsumerId) -> Vec<Outgoing> {
        self.take_out(|it| it.consumer == consumer && it.got.is_none())
    }

    /// Takes out everything for these sessions.
    pub(super) fn end_sessions(&mut self, is_over: &impl Fn(SessionId) -> bool) -> Vec<Outgoing> {
        self.take_out(|it| is_over(it.consumer.session))
    }

    fn take_out(&mut self, goes: impl Fn(&Outgoing) -> bool) -> Vec<Outgoing> {
        self.wanted = None;
        let all = std::mem::take(&mut self.all);
        let (gone, others) = all.into_iter().partition::<Vec<_>, _>(goes);
        self.all = others.into();
        gone
    }

    /// Takes out everything.
    pub(super) fn take_all(&mut self) -> Vec<Outgoing> {
        self.wanted = None;
        std::mem::take(&mut self.all).into()
    }

    pub(super) fn into_all(self) -> Vec<Outgoing> {
        self.all.into()
    }
}
