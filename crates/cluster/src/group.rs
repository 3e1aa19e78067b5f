//! A group on this node: its consensus, and a machine that its entries are for.
//!
//! Here is what all replicated groups share, whatever their entries mean: the replica, what its leader took
//! into the log, how far the log is applied, and which part this node plays. [`catalog::CatalogGroup`] and
//! [`queues::QueueGroup`] each put a machine on top.

pub mod catalog;
pub mod queues;
mod role;
mod settling;

use bytes::Bytes;
use machine::{Batch, GroupId, NodeId, ProducerId};
use raft::Storage;
use raft::eraftpb::ConfState;

use crate::inbox::{Inbox, Taken, Verdict};
use crate::leadership::Leadership;
use crate::peer::message::Message;
use crate::replica::{NotLeader, Replica};
pub(crate) use role::{Awaiting, Role};

/// What every replicated group has on this node.
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) replica: Replica,
    pub(crate) inbox: Inbox,
    /// Messages that came before this leader could serve. Only a leader keeps messages here: a node that sends to a
    /// replica that does not lead is told so, and sends the message again.
    pub(crate) early: Vec<(NodeId, Message)>,
    pub(crate) leadership: Leadership,
    /// The last entry that the machine has applied; never above what is committed.
    applied: u64,
    checkpoint: Progress,
    role: Role,
}

impl Group {
    /// The group as recovered up to `applied`.
    pub(crate) fn new(id: GroupId, replica: Replica, applied: u64) -> Self {
        Self {
            id,
            replica,
            inbox: Inbox::default(),
            early: Vec::new(),
            leadership: Leadership::default(),
            applied,
            checkpoint: Progress::default(),
            role: Role::Follows,
        }
    }

    /// This node leads the group from here on. `awaiting`: who is to join before anything is delivered.
    pub(crate) fn lead(&mut self, awaiting: Option<Awaiting>) {
        let term = self.replica.term();
        assert!(matches!(self.role, Role::Follows), "it leads already, or waits for a snapshot");
        self.role = match awaiting {
            Some(awaiting) => Role::Gathers { term, awaiting },
            None => Role::Leads { term },
        };
        self.inbox.clear();
    }

    /// Nobody is waited for any more.
    pub(crate) fn end_gathering(&mut self) {
        if let Role::Gathers { term, .. } = self.role {
            self.role = Role::Leads { term };
        }
    }

    /// Notes who leads after a step.
    pub(crate) fn note_leader(&mut self, wall_ms: u64) {
        self.leadership.look(self.replica.leader(), self.replica.term(), wall_ms);
    }

    /// Another leads, or nobody does.
    pub(crate) fn follow(&mut self) {
        self.role = Role::Follows;
        self.inbox.clear();
        self.early.clear();
    }

    /// A snapshot takes the place of everything here before long: nothing is touched until then.
    pub(crate) fn freeze(&mut self) {
        assert!(matches!(self.role, Role::Follows), "only a follower takes a snapshot");
        self.role = Role::Frozen;
    }

    /// This node does not know with which voters the group began. A change of voters that is applied to a wrong
    /// beginning gives wrong voters, so the group applies nothing and takes no part in Raft until [`Group::founded`].
    pub(crate) fn await_founders(&mut self) {
        assert!(self.replica.log().members().voters.is_empty(), "it is known who votes");
        assert_eq!(self.applied, 0, "entries were applied by voters that are not known");
        self.role = Role::Unfounded;
    }

    /// The catalog says that the group began with these voters. A group that waits for them goes on with the log that
    /// it has; any other group is left as it is.
    pub(crate) fn founded(&mut self, founders: &[NodeId]) {
        if matches!(self.role, Role::Unfounded) && !founders.is_empty() {
            self.replica.begin_with(founders);
            self.role = Role::Follows;
        }
    }

    /// The snapshot is installed.
    pub(crate) fn thaw(&mut self) {
        if let Role::Frozen = self.role {
            self.role = Role::Follows;
        }
    }

    /// A snapshot at `index` took the place of the log.
    pub(crate) fn restore(&mut self, index: u64, term: u64, members: ConfState) {
        self.follow();
        self.replica.restore(index, term, members);
        self.applied = index;
    }

    /// Takes a numbered batch into the log. `last`: the last numbered batch of its producer that the machine has
    /// applied; None: that life of the node is over. `entry`: the whole of it, if there is one ready made, with the
    /// right time. `Err`: not now, because leadership is about to move.
    pub(crate) fn take(
        &mut self,
        numbered: Taken,
        last: Option<u64>,
        time_ms: u64,
        commands: &Bytes,
        entry: Option<Bytes>,
    ) -> Result<Verdict, Taken> {
        // Of a life that is over it would be skipped: it must not be confirmed.
        let Some(last) = last else { return Ok(Verdict::Ignore) };
        let verdict = self.inbox.judge(numbered.producer, numbered.seq, last);
        if verdict != Verdict::Propose {
            return Ok(verdict);
        }
        let entry =
            entry.unwrap_or_else(|| stamp(time_ms, numbered.producer, numbered.seq, commands));
        match self.replica.propose(entry) {
            Ok(index) => {
                self.inbox.proposed(index, numbered);
                Ok(verdict)
            }
            Err(NotLeader) => Err(numbered),
        }
    }

    /// The machine applies the committed entry `index` next.
    pub(crate) fn apply_next(&mut self, index: u64) {
        assert!(self.applied < index, "an entry is applied again");
        self.applied = index;
    }

    /// The log below is not needed for long: a checkpoint is due as soon as there is something for it.
    pub(crate) fn want_checkpoint(&mut self) {
        self.checkpoint.is_wanted = true;
    }

    /// Whether a checkpoint is to be written now.
    pub(crate) fn begins_checkpoint(&mut self) -> bool {
        let (compacted, _) = self.replica.log().checkpoint();
        self.checkpoint.begin(self.applied > compacted)
    }

    /// A checkpoint of what is applied is to be written now, whether or not one is wanted. False: the newest checkpoint
    /// has it already.
    pub(crate) fn begins_cut(&mut self) -> bool {
        assert!(!self.is_checkpointing(), "a group writes one checkpoint at a time");
        let (compacted, _) = self.replica.log().checkpoint();
        self.checkpoint.is_wanted |= self.applied > compacted;
        self.checkpoint.begin(self.applied > compacted)
    }

    /// The checkpoint at `index` is synced.
    pub(crate) fn checkpointed(&mut self, index: u64) {
        self.checkpoint.end();
        self.replica.compact(index);
    }

    /// There was no room for the checkpoint: the log stays as it is until another is wanted.
    pub(crate) fn checkpoint_failed(&mut self) {
        self.checkpoint.end();
    }

    /// The last entry that the machine has applied.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether it leads and has applied everything of earlier terms.
    pub(crate) fn serves(&self) -> bool {
        self.replica.is_leader() && self.role.term() == Some(self.replica.term())
    }

    /// Whether it serves and an entry would be taken now.
    pub(crate) fn can_log(&self) -> bool {
        self.serves() && self.replica.can_propose()
    }

    /// Whether it serves, or has served and is not handed over yet.
    pub(crate) fn is_in_charge(&self) -> bool {
        self.role.term().is_some()
    }

    /// Whether this replica became able to lead: everything of earlier terms is applied.
    pub(crate) fn begins_to_lead(&self) -> bool {
        let term = self.replica.term();
        matches!(self.role, Role::Follows)
            && self.replica.is_leader()
            && self.replica.log().term(self.applied).is_ok_and(|at| at == term)
    }

    /// Whether it led in a term that is over.
    pub(crate) fn ceases_to_lead(&self) -> bool {
        self.is_in_charge() && !self.serves()
    }

    /// Who is to join before anything is delivered.
    pub(crate) fn awaiting(&self) -> Option<&Awaiting> {
        self.role.awaiting()
    }

    pub(crate) fn awaiting_mut(&mut self) -> Option<&mut Awaiting> {
        self.role.awaiting_mut()
    }

    /// Whether it applies nothing and takes no part in Raft: until a snapshot is installed, or until it is known with
    /// which voters the group began.
    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self.role, Role::Frozen | Role::Unfounded)
    }

    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_under_way()
    }
}

/// The entry of a numbered batch that comes from elsewhere, or again.
fn stamp(time_ms: u64, producer: ProducerId, seq: u64, commands: &[u8]) -> Bytes {
    let mut batch = Batch::new();
    batch.append_numbered(producer, seq, commands);
    Bytes::from(batch.stamp(time_ms))
}

/// Whether a checkpoint is wanted or under way. One that is wanted comes, if not now then later:
/// who wants it asks once.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    is_wanted: bool,
    is_under_way: bool,
}

impl Progress {
    /// Whether one is to be begun now, `is_useful` telling whether it would hold anything new.
    fn begin(&mut self, is_useful: bool) -> bool {
        let begins = self.is_wanted && !self.is_under_way && is_useful;
        if begins {
            *self = Self { is_wanted: false, is_under_way: true };
        }
        begins
    }

    fn is_under_way(self) -> bool {
        self.is_under_way
    }

    fn end(&mut self) {
        self.is_under_way = false;
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry, HardState};
    use wal::Place;

    use super::*;
    use crate::raft_log::RaftLog;

    #[test]
    fn a_group_that_does_not_know_who_voted_first_waits_for_that_and_keeps_its_log() {
        let hard_state = HardState { term: 4, commit: 2, ..HardState::default() };
        let mut log = RaftLog::new(hard_state, ConfState::default(), 0, 0);
        for index in 1..=3 {
            let entry = Entry { index, term: 4, data: vec![1].into(), ..Entry::default() };
            log.recover_tail(entry, Place { file: 1, offset: index, bytes: 1, checksum: 0 });
        }
        let replica = Replica::new(GroupId(9), NodeId(1), log, 0, 1);
        let mut group = Group::new(GroupId(9), replica, 0);
        group.await_founders();

        group.founded(&[]);
        assert!(group.is_frozen(), "the catalog does not know it either");

        group.founded(&[NodeId(1), NodeId(2)]);
        assert!(!group.is_frozen());
        let replica = &group.replica;
        assert_eq!(replica.log().members().voters, [1, 2]);
        assert_eq!((replica.last_index(), replica.committed(), replica.term()), (3, 2, 4));

        group.founded(&[NodeId(3)]);
        assert_eq!(group.replica.log().members().voters, [1, 2], "it knows its beginning");
    }
}
