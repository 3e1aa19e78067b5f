//! What a shard leads, for metrics: piece by piece, so that a node with many queues goes on meanwhile. And where in
//! streams that it leads somebody would begin to read, and who waits for a lock.

use machine::{Balance, Front, GroupId, NodeId, QueueId, QueueStatus, StreamOffset};

use super::{GroupReport, Shard};
use crate::limits::LOCK_WAITERS_TOLD;
use crate::locked::LockLine;
use crate::queues::Queues;

/// A queue that is led here. A queue in this node's memory is, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedQueue {
    pub group: GroupId,
    pub queue: QueueId,
    pub status: QueueStatus,
    pub balance: Balance,
    pub front: Front,
}

/// Where the next piece begins: behind this queue.
pub type Behind = Option<(GroupId, QueueId)>;

/// A part of what a shard leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    pub queues: Vec<LedQueue>,
    /// There may be more queues.
    pub is_cut: bool,
    /// How the replicas on this node stand, with digests of 0. Only the first piece has them.
    pub groups: Vec<GroupReport>,
    /// Nodes that can be reached. Only the first piece has them.
    pub up: Vec<NodeId>,
    /// Queues that came to be and went while this node led them, since its start. Only the first piece has them.
    pub created: u64,
    pub deleted: u64,
}

/// A stream, or a partition of one, and from where on somebody would read it.
pub type WantedPlace = (GroupId, QueueId, StreamOffset);

/// A lock, and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedLine {
    pub group: GroupId,
    pub vhost: String,
    pub name: String,
}

/// Where in a stream somebody would begin to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPlace {
    pub queue: QueueId,
    /// The first message that would be read: it is kept, or comes yet.
    pub seq: u64,
    /// The next message that comes.
    pub end: u64,
}

impl Shard {
    /// Where that is in those of these streams that are led here.
    pub fn places(&self, wanted: &[WantedPlace]) -> Vec<StreamPlace> {
        let mut found = Vec::new();
        for (group, queues) in self.led() {
            let of_group = wanted.iter().filter(|(of, _, _)| *of == group);
            found.extend(of_group.filter_map(|(_, queue, offset)| {
                let seq = queues.machine().seq_at(*queue, *offset)?;
                let end = queues.machine().seq_at(*queue, StreamOffset::Next)?;
                Some(StreamPlace { queue: *queue, seq, end })
            }));
        }
        found
    }

    /// Who waits for a lock of this group. `None`: the group is not led here.
    pub fn lock_line(&self, wanted: &WantedLine) -> Option<LockLine> {
        let WantedLine { group, vhost, name } = wanted;
        let (_, queues) = self.led().find(|(led, _)| led == group)?;
        Some(queues.lock_line(vhost, name, LOCK_WAITERS_TOLD))
    }

    /// What this shard leads behind that queue, at most so many queues.
    pub fn tally(&self, behind: Behind, queues_max: usize) -> Piece {
        let mut piece = match behind {
            None => self.tally_groups(),
            Some(_) => Piece::default(),
        };
        for (group, queues) in self.led() {
            let after = match behind {
                Some((last, _)) if group < last => continue,
                Some((last, queue)) if group == last => Some(queue),
                Some(_) | None => None,
            };
            for (queue, status, balance, front) in queues.statuses(after) {
                if piece.queues.len() == queues_max {
                    piece.is_cut = true;
                    return piece;
                }
                piece.queues.push(LedQueue { group, queue, status, balance, front });
            }
        }
        piece
    }

    fn tally_groups(&self) -> Piece {
        let local = self.local.as_ref().map(|local| &local.queues);
        let all = self.groups.values().map(|found| &found.queues).chain(local);
        let (created, deleted) = all.fold((0, 0), |(created, deleted), queues| {
            let (more, less) = queues.came_and_went();
            (created + more, deleted + less)
        });
        Piece {
            groups: self.report_groups(false),
            up: self.peers.up().collect(),
            created,
            deleted,
            ..Piece::default()
        }
    }

    /// The queues of the groups that are led here, by group.
    fn led(&self) -> impl Iterator<Item = (GroupId, &Queues)> {
        let logged = self.groups.iter().filter(|(_, found)| found.group.serves());
        let logged = logged.map(|(group, found)| (*group, &found.queues));
        // The numbers of groups in memory are above all others.
        logged.chain(self.local.iter().map(|local| (local.group, &local.queues)))
    }
}
