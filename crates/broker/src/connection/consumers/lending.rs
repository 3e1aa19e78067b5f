//! One prefetch for several partitions: who may be sent how much of it.
//!
//! Each partition is led by a node of its own, which sends what it has credit for without asking. So the prefetch is
//! lent: every partition has a share of what the client does not hold. One that was sent nothing while others were
//! sent much is taken to be empty, and its share is lent once more. Should it have something after all, the client may
//! be sent more than its prefetch: what is too much goes back to its partition, and the client never sees it.

use std::collections::BTreeMap;

use super::{ChannelRoom, Consumer};
use crate::channel::unacked::Source;
use crate::limits;

/// Messages that others are sent, in prefetches, until a partition that was sent none counts as empty.
const IDLE_PREFETCHES: u64 = 2;

/// What the consumers of one queue's partitions share.
#[derive(Debug)]
pub(super) struct Lending {
    /// The number that its consumer of partition 0 has or would have: see `Consumers::draw_row`.
    row: u64,
    /// By partition; the first leads.
    members: Vec<Member>,
    /// Messages that the client holds of all of them.
    held: u32,
    /// Messages that it was sent.
    sent: u64,
    /// Who is looked at first when credit is scarce.
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// The session's number for the consumer.
    number: u64,
    /// `Lending::sent` when it was sent something last.
    sent_at: u64,
}

impl Lending {
    pub(super) fn new(row: u64, numbers: &[u64]) -> Self {
        let mut lending = Self { row, members: Vec::new(), held: 0, sent: 0, turn: 0 };
        lending.add(numbers);
        lending
    }

    /// Of a consumer that was alone, and for which the client holds messages.
    pub(super) fn of_one(row: u64, number: u64, held: u32) -> Self {
        Self { held, ..Self::new(row, &[number]) }
    }

    pub(super) fn row(&self) -> u64 {
        self.row
    }

    pub(super) fn add(&mut self, numbers: &[u64]) {
        let sent_at = self.sent;
        self.members.extend(numbers.iter().map(|number| Member { number: *number, sent_at }));
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.members.retain(|member| member.number != number);
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// The session's numbers for them, the one that leads first.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.number).collect()
    }

    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// The client was sent `taken` messages by one of them, and holds them if that `counts`.
    pub(super) fn delivered(&mut self, number: u64, taken: u32, counts: bool) {
        self.sent += u64::from(taken);
        if counts {
            self.held += taken;
        }
        if let Some(member) = self.members.iter_mut().find(|member| member.number == number) {
            member.sent_at = self.sent;
        }
    }

    pub(super) fn settled(&mut self, count: u32) {
        self.held = self.held.saturating_sub(count);
    }

    /// Gives credit to partitions. Without a prefetch each has a window of its own, as if it were alone.
    pub(super) fn grant(
        &mut self,
        all: &mut BTreeMap<u64, Consumer>,
        room: ChannelRoom,
        window_bytes: u64,
        granted: &mut impl FnMut(Source, u32),
    ) {
        let Some(lead) = self.members.first().and_then(|lead| all.get(&lead.number)) else {
            return;
        };
        let (limit, is_reading) = (lead.limit, lead.is_reading);
        if limit == 0 || lead.no_ack {
            for member in &self.members {
                let able = |it: &&mut Consumer| it.is_attached && !it.is_returning;
                let consumer = all.get_mut(&member.number).filter(able);
                let Some(consumer) = consumer else { continue };
                let credit = consumer.grant(room.of(consumer), window_bytes);
                if credit > 0 {
                    granted(consumer.source, credit);
                }
            }
            return;
        }
        let idle_after = IDLE_PREFETCHES * u64::from(limit);
        let (mut lent, mut active) = (0, 0);
        for member in &self.members {
            let consumer = all.get(&member.number).filter(|it| it.is_attached);
            let Some(consumer) = consumer else { continue };
            // What a reader of a stream is sent does not go back, so its credit is lent once.
            let is_idle =
                !is_reading && consumer.granted > 0 && self.sent - member.sent_at > idle_after;
            if !is_idle {
                (lent, active) = (lent + consumer.granted, active + 1);
            }
        }
        let unheld = limit.saturating_sub(self.held).min(room.of(lead));
        let mut free = unheld.saturating_sub(lent);
        let share = (unheld / active.max(1)).max(1);
        let count = self.members.len();
        for step in 0..count {
            let place = (self.turn + step) % count;
            let Some(consumer) = all.get_mut(&self.members[place].number) else { continue };
            let credit = consumer.share(share, free);
            if credit > 0 {
                free -= credit;
                granted(consumer.source, credit);
            }
        }
        self.turn = (self.turn + 1) % count;
        if self.held == 0 && !is_reading {
            self.grant_to_all(all, granted);
        }
    }

    /// The client holds nothing, so nothing that it does will bring credit. Each partition that has none is lent one: one
    /// of those that have may be empty.
    fn grant_to_all(
        &self,
        all: &mut BTreeMap<u64, Consumer>,
        granted: &mut impl FnMut(Source, u32),
    ) {
        for member in &self.members {
            let Some(consumer) = all.get_mut(&member.number) else { continue };
            let credit = consumer.share(1, 1);
            if credit > 0 {
                granted(consumer.source, credit);
            }
        }
    }
}

impl Consumer {
    /// Takes what it lacks of its share, of `free` that there is.
    fn share(&mut self, share: u32, free: u32) -> u32 {
        let is_window = share >= limits::WINDOW_MESSAGES_WHOLE;
        if self.is_returning
            || !self.is_attached
            || share <= self.granted
            || (is_window && self.granted > share / 2)
            || free == 0
        {
            return 0;
        }
        let more = (share - self.granted).min(free);
        self.granted += more;
        more
    }
}

#[cfg(test)]
mod tests;
