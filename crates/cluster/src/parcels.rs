//! What this node's sessions append to one group, in numbered parcels.
//!
//! Many appends become one parcel. A parcel is kept until the group's leader says that a majority has
//! it, and is sent again to every new leader: machines apply each number of an origin once.
//!
//! ```text
//!   gathering ──closed: it has its number──> unsent ──> sent ──a majority has it──> gone: its waiters are answered
//!                                              ^         │
//!                                              └─────────┘ a new leader, or the leader did not take it
//! ```
//!
//! Where no leader is found for long, the waiters of all parcels are refused. What of a parcel must be done all the
//! same stays under its number.

use std::collections::VecDeque;

use bytes::Bytes;
use machine::{Batch, ENTRY_HEAD_BYTES, Origin, PARCEL_HEAD_BYTES, SessionId};

use crate::request::Held;
use crate::waiter::Waiter;

/// The parcels of one origin for one group that are not known to be committed.
///
/// Every shard keeps one for each group that its sessions append to, whoever leads the group.
#[derive(Debug)]
pub(crate) struct Parcels {
    /// This node and its present boot. It never changes.
    origin: Origin,
    /// The size up to which several batches are joined into one parcel. A larger batch is a parcel of its own.
    entry_bytes: usize,
    /// What the next parcel will hold. It has no number that anybody else knows, so nothing of it is lost with a
    /// leader.
    gathering: Option<Gathering>,
    /// The parcels that are not known to be committed. Their numbers ascend without a gap, and the last one is
    /// `next_seq - 1`. A parcel that is lost on its way stays here and is sent again to the next leader that is
    /// joined.
    closed: VecDeque<Parcel>,
    /// The number of the next parcel to close. It goes back only over numbers from `unseen` on.
    next_seq: u64,
    /// The first parcel that the present leader was not sent; at most `next_seq`. Every new leader, and every new
    /// connection to the old one, sets it back to the first parcel that is kept.
    unsent: u64,
    /// The first parcel that no leader was ever sent; at least `unsent`, at most `next_seq`. Below it a leader may
    /// have the parcel in its log, so its number must stay.
    unseen: u64,
    /// The last parcel that was given up and that a leader may have all the same; 0: there was none.
    given_up: u64,
    /// The sum of the commands in `closed`.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Gathering {
    batch: Batch,
    /// Of that, what is not given up with those who wait.
    lasting: Batch,
    waiters: Vec<Waiter>,
    settles: Vec<Held>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) seq: u64,
    /// Without the head that numbers it.
    pub(crate) commands: Bytes,
    /// The whole entry, if it was never sent: head, time and number included.
    pub(crate) entry: Option<Bytes>,
    /// What consumers let go of once it is applied.
    pub(crate) settles: Vec<Held>,
    /// It is answered when the leader has applied it, not as soon as it is committed.
    pub(crate) needs_apply: bool,
    /// What stays of the commands if who waits for the others is told that they failed.
    lasting: Bytes,
    waiters: Vec<Waiter>,
}

impl Parcels {
    pub(crate) fn new(origin: Origin, entry_bytes: usize) -> Self {
        Self {
            origin,
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

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Adds `batch` to the parcel that is being gathered, or begins one if both would be too large.
    pub(crate) fn add(&mut self, wall_ms: u64, batch: Batch, waiter: Waiter, settles: Vec<Held>) {
        let gathered = self.gathering.as_ref().map_or(0, |it| it.batch.bytes());
        if gathered > 0 && gathered + batch.bytes() > self.entry_bytes {
            self.close(wall_ms);
        }
        let gathering = self.gathering.get_or_insert_with(|| {
            let mut gathering = Gathering::default();
            gathering.batch.parcel(self.origin, self.next_seq);
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
        let commands = entry.slice(ENTRY_HEAD_BYTES + PARCEL_HEAD_BYTES..);
        self.bytes += commands.len();
        let needs_apply = !settles.is_empty() || waiters.iter().any(Waiter::needs_apply);
        let (entry, lasting) = (Some(entry), Bytes::from(lasting.into_commands()));
        let seq = self.next_seq;
        self.next_seq += 1;
        let follows = self.closed.back().is_none_or(|last| last.seq + 1 == seq);
        assert!(follows, "the numbers of parcels have a gap");
        let parcel = Parcel { seq, commands, entry, settles, needs_apply, lasting, waiters };
        self.closed.push_back(parcel);
    }

    /// The number of the last that is closed; 0: none was.
    pub(crate) fn last(&self) -> u64 {
        self.next_seq - 1
    }

    /// What consumers let go of with what is not known to be committed.
    pub(crate) fn settles(&self) -> impl Iterator<Item = &Held> {
        let closed = self.closed.iter().flat_map(|parcel| &parcel.settles);
        closed.chain(self.gathering.iter().flat_map(|gathering| &gathering.settles))
    }

    /// Everything is to be sent again, to a leader that is new: it hears of consumers as they are after
    /// that.
    pub(crate) fn rewind(&mut self) {
        self.closed.iter_mut().for_each(|parcel| parcel.settles.clear());
        self.gathering.iter_mut().for_each(|gathering| gathering.settles.clear());
        self.unsent = self.closed.front().map_or(self.next_seq, |parcel| parcel.seq);
    }

    /// The next one to send; it counts as sent.
    pub(crate) fn next_to_send(&mut self) -> Option<&mut Parcel> {
        let first = self.closed.front()?.seq;
        let next = self.unsent.max(first);
        let parcel = self.closed.get_mut((next - first) as usize)?;
        assert_eq!(parcel.seq, next, "a parcel is kept under another's number");
        self.unsent = parcel.seq + 1;
        self.unseen = self.unseen.max(self.unsent);
        assert!(self.unseen <= self.next_seq, "a parcel was sent before it was closed");
        Some(parcel)
    }

    /// It was not taken: it is the next one to send.
    pub(crate) fn unsend(&mut self, seq: u64) {
        assert_eq!(self.unsent, seq + 1, "only the last one that was sent can be taken back");
        self.unsent = seq;
    }

    /// Parcels up to `seq` are on a majority's disks. Who waited for them.
    pub(crate) fn committed(&mut self, seq: u64) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        while self.closed.front().is_some_and(|parcel| parcel.seq <= seq) {
            let Some(parcel) = self.closed.pop_front() else { break };
            self.bytes -= parcel.commands.len();
            if waiters.is_empty() {
                waiters = parcel.waiters;
            } else {
                waiters.extend(parcel.waiters);
            }
        }
        waiters
    }

    /// No leader can be had: who waits is told, and the parcels go on without what was asked for, so
    /// that their numbers have no gap. One that was sent may be committed all the same. What the node
    /// itself has to say stays.
    pub(crate) fn give_up(&mut self, wall_ms: u64) -> Vec<Waiter> {
        self.close(wall_ms);
        let mut waiters = Vec::new();
        for parcel in &mut self.closed {
            waiters.append(&mut parcel.waiters);
            parcel.settles.clear();
            parcel.entry = None;
            self.bytes -= parcel.commands.len();
            parcel.commands = parcel.lasting.clone();
            self.bytes += parcel.commands.len();
        }
        // A number that nobody knows of can be given again.
        let is_void = |parcel: &Parcel, unseen| parcel.seq >= unseen && parcel.commands.is_empty();
        while self.closed.back().is_some_and(|parcel| is_void(parcel, self.unseen)) {
            self.next_seq -= 1;
            self.closed.pop_back();
        }
        assert!(self.unseen <= self.next_seq, "a number that a leader may know is given again");
        self.unsent = self.unsent.min(self.next_seq);
        self.given_up = self.closed.back().map_or(self.given_up, |parcel| parcel.seq);
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
        let closed = self.closed.iter().flat_map(|parcel| &parcel.waiters);
        self.closed.front().is_some_and(|parcel| parcel.seq <= self.given_up)
            || gathering.chain(closed).any(|waiter| waiter.session() == Some(session))
    }
}

#[cfg(test)]
mod tests {
    use machine::{NodeId, QueueId};

    use super::*;
    use crate::request::Ticket;

    fn parcels() -> Parcels {
        Parcels::new(Origin { node: NodeId(1), boot: 3 }, 1 << 20)
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
        let mut parcels = parcels();
        parcels.add(0, dropped(1), publisher(), Vec::new());
        parcels.add(0, dropped(2), Waiter::Nobody, Vec::new());
        for _ in 0..2 {
            assert!(parcels.give_up(0).len() <= 2);
            parcels.rewind();
            let parcel = parcels.next_to_send().unwrap();
            assert_eq!((parcel.seq, &parcel.commands[..]), (1, &dropped(2).into_commands()[..]));
        }
        assert_eq!(parcels.committed(1).len(), 0, "nobody waits any more");
        assert_eq!(parcels.bytes(), 0);
    }

    #[test]
    fn a_number_that_was_sent_stays_and_one_that_was_not_is_given_again() {
        let mut parcels = parcels();
        parcels.add(0, dropped(1), publisher(), Vec::new());
        parcels.close(0);
        assert_eq!(parcels.next_to_send().unwrap().seq, 1);
        for _ in 0..3 {
            parcels.add(0, dropped(2), publisher(), Vec::new());
            parcels.give_up(0);
        }
        parcels.add(0, dropped(3), publisher(), Vec::new());
        parcels.close(0);
        parcels.rewind();
        let first = parcels.next_to_send().unwrap();
        assert_eq!((first.seq, first.commands.len()), (1, 0), "a leader may have it");
        let second = parcels.next_to_send().unwrap();
        assert_eq!((second.seq, &second.commands[..]), (2, &dropped(3).into_commands()[..]));
        assert!(parcels.next_to_send().is_none());
    }
}
