//! Questions to the cluster that are not answered yet.

use std::collections::VecDeque;

use cluster::Ticket;
use machine::QueueId;

/// A channel in one of its lives: a number may be closed and opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelRef {
    pub(crate) number: u16,
    pub(crate) life: u32,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// Published messages: which runs of which channels' confirms, and how many bytes.
    Append { runs: Vec<(ChannelRef, u64)>, bytes: usize },
    /// A part of a channel's transaction, and how many bytes.
    Commit { at: ChannelRef, bytes: usize },
    /// Messages for a queue that says which of them it takes.
    Admit { queue: QueueId },
    /// A channel, for its own next step.
    Channel(ChannelRef),
    /// A consumer of a closed channel to be forgotten.
    Forget { consumer: u64 },
    /// The end of the session.
    End,
}

/// All open questions. Tickets count up, so this is a window over them.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    first: u64,
    waiting: VecDeque<Option<Waiting>>,
    /// The appends among them, oldest first; answered ones are dropped when they reach the front.
    appends: VecDeque<u64>,
}

impl Tickets {
    pub(crate) fn issue(&mut self, waiting: Waiting) -> Ticket {
        let ticket = self.first + self.waiting.len() as u64;
        if matches!(waiting, Waiting::Append { .. }) {
            self.appends.push_back(ticket);
        }
        self.waiting.push_back(Some(waiting));
        Ticket(ticket)
    }

    /// Who asked. None: the ticket was never issued, or is answered already.
    pub(crate) fn answer(&mut self, ticket: Ticket) -> Option<Waiting> {
        let place = usize::try_from(ticket.0.checked_sub(self.first)?).ok()?;
        let waiting = self.waiting.get_mut(place)?.take();
        while matches!(self.waiting.front(), Some(None)) {
            self.waiting.pop_front();
            self.first += 1;
        }
        while let Some(&oldest) = self.appends.front()
            && !self.is_open(oldest)
        {
            self.appends.pop_front();
        }
        waiting
    }

    /// The newest append, if any append is unanswered: who waits for it waits for all.
    pub(crate) fn last_append(&self) -> Option<Ticket> {
        self.appends.back().map(|&ticket| Ticket(ticket))
    }

    /// Whether every append up to and with `mark` is answered.
    pub(crate) fn is_past(&self, mark: Ticket) -> bool {
        self.appends.front().is_none_or(|&oldest| oldest > mark.0)
    }

    fn is_open(&self, ticket: u64) -> bool {
        ticket
            .checked_sub(self.first)
            .and_then(|place| self.waiting.get(usize::try_from(place).ok()?))
            .is_some_and(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append() -> Waiting {
        Waiting::Append { runs: Vec::new(), bytes: 0 }
    }

    #[test]
    fn a_ticket_is_answered_once() {
        let mut tickets = Tickets::default();
        let (one, two) = (tickets.issue(append()), tickets.issue(Waiting::End));
        assert!(matches!(tickets.answer(two), Some(Waiting::End)));
        assert!(tickets.answer(two).is_none());
        assert!(tickets.answer(one).is_some());
        assert!(tickets.answer(one).is_none());
        assert!(tickets.answer(Ticket(99)).is_none());
    }

    #[test]
    fn a_mark_is_past_when_all_appends_before_it_are_answered() {
        let mut tickets = Tickets::default();
        let one = tickets.issue(append());
        let two = tickets.issue(append());
        assert_eq!(tickets.last_append(), Some(two));
        tickets.answer(two);
        assert!(!tickets.is_past(two), "the first is still open");
        tickets.answer(one);
        assert!(tickets.is_past(two));
        assert_eq!(tickets.last_append(), None);
    }
}
