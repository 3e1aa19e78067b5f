//! Questions to the cluster that are not answered yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cluster::Ticket;
use machine::{GroupId, QueueId};

/// A channel in one of its lives: a number may be closed and opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChannelRef {
    pub(crate) number: u16,
    pub(crate) life: u32,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// Published messages for a group: which runs of which channels' confirms, how many bytes, and since when.
    Append { group: GroupId, runs: Vec<(ChannelRef, u64)>, bytes: usize, sent_at: Option<Instant> },
    /// A part of a channel's transaction, and how many bytes.
    Commit { at: ChannelRef, bytes: usize },
    /// Messages for a queue that says which of them it takes.
    Capacity { queue: QueueId },
    /// A channel, for its own next step.
    Channel(ChannelRef),
    /// The consumer of a partition that its queue has got meanwhile.
    Partition { consumer: u64 },
    /// The consumer of a partition that is told its generation.
    Elected { consumer: u64, generation: u64 },
    /// A consumer of a closed channel to be forgotten.
    Forget { consumer: u64 },
    /// The end of the session.
    End,
}

/// Whose appends a question waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    All,
    One(GroupId),
}

impl Groups {
    pub(crate) fn contain(self, group: GroupId) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == group,
        }
    }
}

/// All open questions. Tickets count up, so this is a window over them.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    first: u64,
    waiting: VecDeque<Option<Waiting>>,
    /// The appends among them and their groups, oldest first; answered ones are dropped when they reach the
    /// front.
    appends: VecDeque<(u64, GroupId)>,
}

impl Tickets {
    pub(crate) fn issue(&mut self, waiting: Waiting) -> Ticket {
        let ticket = self.first + self.waiting.len() as u64;
        if let Waiting::Append { group, .. } = waiting {
            self.appends.push_back((ticket, group));
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
        while let Some(&(oldest, _)) = self.appends.front()
            && !self.is_open(oldest)
        {
            self.appends.pop_front();
        }
        waiting
    }

    /// The newest unanswered append for one of `groups`: who waits for it waits for all of them.
    pub(crate) fn last_append(&self, groups: Groups) -> Option<Ticket> {
        let mut newest_first = self.appends.iter().rev();
        let is_awaited =
            |&&(ticket, group): &&(u64, GroupId)| groups.contain(group) && self.is_open(ticket);
        newest_first.find(is_awaited).map(|&(ticket, _)| Ticket(ticket))
    }

    /// Groups that have not answered an append for so long at `now`: those without a leader, for one. In the usual case
    /// this looks at the oldest append alone.
    pub(crate) fn silent_groups(&self, now: Instant, after: Duration, out: &mut Vec<GroupId>) {
        out.clear();
        for &(ticket, group) in &self.appends {
            let place = ticket.checked_sub(self.first).and_then(|it| usize::try_from(it).ok());
            let waiting = place.and_then(|place| self.waiting.get(place)?.as_ref());
            let Some(Waiting::Append { sent_at: Some(sent_at), .. }) = waiting else { continue };
            if now.saturating_duration_since(*sent_at) < after {
                return;
            }
            if !out.contains(&group) {
                out.push(group);
            }
        }
    }

    /// Whether every append for one of `groups` up to and with `mark` is answered.
    pub(crate) fn is_past(&self, mark: Ticket, groups: Groups) -> bool {
        let up_to_mark = self.appends.iter().take_while(|(ticket, _)| *ticket <= mark.0);
        !up_to_mark
            .into_iter()
            .any(|&(ticket, group)| groups.contain(group) && self.is_open(ticket))
    }

    fn is_open(&self, ticket: u64) -> bool {
        ticket
            .checked_sub(self.first)
            .and_then(|place| self.waiting.get(usize::try_from(place).ok()?))
            .is_some_and(Option::is_some)
    }
}

#[cfg(test)]
mod tests;
