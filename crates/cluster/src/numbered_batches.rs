//! What this node's sessions append to one group, in numbered batches.
//!
//! Many appends become one numbered batch. A numbered batch is kept until the group's leader says that a majority has
//! it, and is sent again to every new leader: machines apply each number of a producer once.
//!
//! ```text
//!   gathering ──closed: it has its number──> unsent ──> sent ──a majority has it──> gone: its waiters are answered
//!                                              ^         │
//!                                              └─────────┘ a new leader, or the leader did not take it
//! ```
//!
//! Where no leader is found for long, the waiters of all numbered batches are refused. What of a numbered batch must be
//! done all the same stays under its number.

use std::collections::VecDeque;

use bytes::Bytes;
use machine::{Batch, ENTRY_HEAD_BYTES, NUMBERED_HEAD_BYTES, ProducerId, SessionId};

use crate::request::Held;
use crate::waiter::Waiter;

/// The numbered batches of one producer for one group that are not known to be committed.
///
/// Every shard keeps one for each group that its sessions append to, whoever leads the group.
#[derive(Debug)]
pub(crate) struct NumberedBatches {
    /// This node and its present boot. It never changes.
    producer: ProducerId,
    /// The size up to which several batches are joined into one numbered batch. A larger batch is a numbered batch of
    /// its own.
    entry_bytes: usize,
    /// What the next numbered batch will hold. It has no number that anybody else knows, so nothing of it is lost with
    /// a leader.
    gathering: Option<Gathering>,
    /// The numbered batches that are not known to be committed. Their numbers ascend without a gap, and the last one is
    /// `next_seq - 1`. A numbered batch that is lost on its way stays here and is sent again to the next leader that is
    /// joined.
    closed: VecDeque<NumberedBatch>,
    /// The number of the next numbered batch to close. It goes back only over numbers from `unseen` on.
    next_seq: u64,
    /// The first numbered batch that the present leader was not sent; at most `next_seq`. Every new leader, and every
    /// new connection to the old one, sets it back to the first numbered batch that is kept.
    unsent: u64,
    /// The first numbered batch that no leader was ever sent; at least `unsent`, at most `next_seq`. Below it a leader
    /// may have the numbered batch in its log, so its number must stay.
    unseen: u64,
    /// The last numbered batch that was given up and that a leader may have all the same; 0: there was none.
    given_up: u64,
    /// The sum of the commands in `closed`.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Gathering {
    batch: Batch,
    /// The commands of `batch` that stay when the waiting sessions are answered that the batch failed.
    lasting: Batch,
    waiters: Vec<Waiter>,
    settles: Vec<Held>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct NumberedBatch {
    pub(crate) seq: u64,
    /// Without the head that numbers it.
    pub(crate) commands: Bytes,
    /// The whole entry, if it was never sent: head, time and number included.
    pub(crate) entry: Option<Bytes>,
    /// What consumers let go of once it is applied.
    pub(crate) settles: Vec<Held>,
    /// It is answered when the leader has applied it, not as soon as it is committed.
    pub(crate) needs_apply: bool,
    /// The commands that stay in the numbered batch when its waiting sessions are answered that it failed.
    lasting: Bytes,
    waiters: Vec<Waiter>,
}

impl NumberedBatches {
    pub(crate) fn new(producer: ProducerId, entry_bytes: usize) -> Self {
        Self {
            producer,
            entry_bytes,
            gathering: None,
            closed: VecDeque::new(),
            next_seq: 1,
            unsent: 1,
            unseen: 1,
            given_up: 0,
            bytes: 0,
        }
    }

    pub(crate) fn producer(&self) -> ProducerId {
        self.producer
    }

    /// Adds `batch` to the numbered batch that is being gathered, or begins one if both would be too large.
    pub(crate) fn add(&mut self, wall_ms: u64, batch: Batch, waiter: Waiter, settles: Vec<Held>) {
        let gathered = self.gathering.as_ref().map_or(0, |it| it.batch.bytes());
        if gathered > 0 && gathered + batch.bytes() > self.entry_bytes {
            self.close(wall_ms);
        }
        let gathering = self.gathering.get_or_insert_with(|| {
            let mut gathering = Gathering::default();
            gathering.batch.begin_numbered(self.producer, self.next_seq);
            gathering
        });
        if waiter.lasts() {
            gathering.lasting.join(batch.clone());
        }
        if planted::is("tx_torn") {
            for held in &settles {
                gathering.lasting.settle(held.queue, held.outcome, &held.ranges);
            }
        }
        gathering.batch.fill(batch);
        gathering.waiters.push(waiter);
        gathering.settles.extend(settles);
    }

    /// Closes what was gathered, with this node's time in case it leads.
    pub(crate) fn close(&mut self, wall_ms: u64) {
        let Some(gathering) = self.gathering.take() else { return };
        let Gathering { batch, lasting, waiters, settles } = gathering;
        let entry = Bytes::from(batch.stamp(wall_ms));
        let commands = entry.slice(ENTRY_HEAD_BYTES + NUMBERED_HEAD_BYTES..);
        self.bytes += commands.len();
        let needs_apply = !settles.is_empty() || waiters.iter().any(Waiter::needs_apply);
        let (entry, lasting) = (Some(entry), Bytes::from(lasting.into_commands()));
        let seq = self.next_seq;
        self.next_seq += 1;
        let follows = self.closed.back().is_none_or(|last| last.seq + 1 == seq);
        assert!(follows, "the numbers of numbered batches have a gap");
        let numbered =
            NumberedBatch { seq, commands, entry, settles, needs_apply, lasting, waiters };
        self.closed.push_back(numbered);
    }

    /// The number of the last that is closed; 0: none was.
    pub(crate) fn last(&self) -> u64 {
        self.next_seq - 1
    }

    /// What consumers let go of with what is not known to be committed.
    pub(crate) fn settles(&self) -> impl Iterator<Item = &Held> {
        let closed = self.closed.iter().flat_map(|numbered| &numbered.settles);
        closed.chain(self.gathering.iter().flat_map(|gathering| &gathering.settles))
    }

    /// Everything is to be sent again, to a leader that is new: it hears of consumers as they are after
    /// that.
    pub(crate) fn rewind(&mut self) {
        self.closed.iter_mut().for_each(|numbered| numbered.settles.clear());
        self.gathering.iter_mut().for_each(|gathering| gathering.settles.clear());
        self.unsent = self.closed.front().map_or(self.next_seq, |numbered| numbered.seq);
    }

    /// The next one to send; it counts as sent.
    pub(crate) fn next_to_send(&mut self) -> Option<&mut NumberedBatch> {
        let first = self.closed.front()?.seq;
        let next = self.unsent.max(first);
        let numbered = self.closed.get_mut((next - first) as usize)?;
        assert_eq!(numbered.seq, next, "a numbered batch is kept under another's number");
        self.unsent = numbered.seq + 1;
        self.unseen = self.unseen.max(self.unsent);
        assert!(self.unseen <= self.next_seq, "a numbered batch was sent before it was closed");
        Some(numbered)
    }

    /// It was not taken: it is the next one to send.
    pub(crate) fn unsend(&mut self, seq: u64) {
        assert_eq!(self.unsent, seq + 1, "only the last one that was sent can be taken back");
        self.unsent = seq;
    }

    /// Numbered batches up to `seq` are on a majority's disks. Who waited for them.
    pub(crate) fn committed(&mut self, seq: u64) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        while self.closed.front().is_some_and(|numbered| numbered.seq <= seq) {
            let Some(numbered) = self.closed.pop_front() else { break };
            self.bytes -= numbered.commands.len();
            if waiters.is_empty() {
                waiters = numbered.waiters;
            } else {
                waiters.extend(numbered.waiters);
            }
        }
        waiters
    }

    /// No leader can be reached. Returns the sessions that wait, to be answered that their commands failed. The
    /// numbered batches stay without these commands, so that their numbers have no gap. A numbered batch that was
    /// sent may be committed all the same. Commands of the node itself stay.
    pub(crate) fn give_up(&mut self, wall_ms: u64) -> Vec<Waiter> {
        self.close(wall_ms);
        let mut waiters = Vec::new();
        for numbered in &mut self.closed {
            waiters.append(&mut numbered.waiters);
            numbered.settles.clear();
            numbered.entry = None;
            self.bytes -= numbered.commands.len();
            numbered.commands = numbered.lasting.clone();
            self.bytes += numbered.commands.len();
        }
        // A number that nobody knows of can be given again.
        let is_void = |numbered: &NumberedBatch, unseen| {
            numbered.seq >= unseen && numbered.commands.is_empty()
        };
        while self.closed.back().is_some_and(|numbered| is_void(numbered, self.unseen)) {
            self.next_seq -= 1;
            self.closed.pop_back();
        }
        assert!(self.unseen <= self.next_seq, "a number that a leader may know is given again");
        self.unsent = self.unsent.min(self.next_seq);
        self.given_up = self.closed.back().map_or(self.given_up, |numbered| numbered.seq);
        waiters
    }

    /// Bytes that were gathered or sent and are not known to be committed.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.gathering.as_ref().map_or(0, |it| it.batch.bytes())
    }

    /// Whether nothing waits to be committed.
    pub(crate) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.gathering.is_none()
    }

    /// Whether something that `session` asked for is not committed yet, or may be though it was given up.
    pub(crate) fn may_bring(&self, session: SessionId) -> bool {
        let gathering = self.gathering.iter().flat_map(|it| &it.waiters);
        let closed = self.closed.iter().flat_map(|numbered| &numbered.waiters);
        self.closed.front().is_some_and(|numbered| numbered.seq <= self.given_up)
            || gathering.chain(closed).any(|waiter| waiter.session() == Some(session))
    }
}

#[cfg(test)]
mod tests {
    use machine::{NodeId, QueueId};

    use super::*;
    use crate::request::Ticket;

    fn batches() -> NumberedBatches {
        NumberedBatches::new(ProducerId { node: NodeId(1), boot: 3 }, 1 << 20)
    }

    fn dropped(queue: u64) -> Batch {
        let mut batch = Batch::new();
        batch.drop_queue(QueueId(queue));
        batch
    }

    fn publisher() -> Waiter {
        Waiter::Appended { session: SessionId(1), ticket: Ticket(1) }
    }

    #[test]
    fn what_the_node_itself_has_to_say_is_not_given_up_with_those_who_wait() {
        let mut batches = batches();
        batches.add(0, dropped(1), publisher(), Vec::new());
        batches.add(0, dropped(2), Waiter::Nobody, Vec::new());
        for _ in 0..2 {
            assert!(batches.give_up(0).len() <= 2);
            batches.rewind();
            let numbered = batches.next_to_send().unwrap();
            assert_eq!(
                (numbered.seq, &numbered.commands[..]),
                (1, &dropped(2).into_commands()[..])
            );
        }
        assert_eq!(batches.committed(1).len(), 0, "nobody waits any more");
        assert_eq!(batches.bytes(), 0);
    }

    #[test]
    fn a_number_that_was_sent_stays_and_one_that_was_not_is_given_again() {
        let mut batches = batches();
        batches.add(0, dropped(1), publisher(), Vec::new());
        batches.close(0);
        assert_eq!(batches.next_to_send().unwrap().seq, 1);
        for _ in 0..3 {
            batches.add(0, dropped(2), publisher(), Vec::new());
            batches.give_up(0);
        }
        batches.add(0, dropped(3), publisher(), Vec::new());
        batches.close(0);
        batches.rewind();
        let first = batches.next_to_send().unwrap();
        assert_eq!((first.seq, first.commands.len()), (1, 0), "a leader may have it");
        let second = batches.next_to_send().unwrap();
        assert_eq!((second.seq, &second.commands[..]), (2, &dropped(3).into_commands()[..]));
        assert!(batches.next_to_send().is_none());
    }
}
