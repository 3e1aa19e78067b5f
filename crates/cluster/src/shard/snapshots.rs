//! Replicas that the log cannot help any more: they get the leader's newest checkpoint.

use machine::{Catalog, GroupId, NodeId, QueueMachine};
use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::Shard;
use crate::checkpoint::{State, Stored};
use crate::exchange::{Now, Output};
use crate::queues::Queues;
use crate::waiter::Waiter;

impl Shard {
    pub(super) fn send_snapshots(
        &mut self,
        group: GroupId,
        behind: &[u64],
        outputs: &mut Vec<Output>,
    ) {
        for &node in behind {
            let to = NodeId(node);
            if self.peers.is_up(to) && self.peers.begin_snapshot(group, to) {
                outputs.push(Output::SendSnapshot { group, to });
            }
        }
    }

    /// Everything of a snapshot is here: says whether it may be installed.
    pub(super) fn snapshot_arrived(
        &mut self,
        now: Now,
        group: GroupId,
        index: u64,
        outputs: &mut Vec<Output>,
    ) {
        // What came just before is no reason to send it all again.
        self.finish_once(now, outputs);
        let accept = self.accepts_snapshot(group, index);
        if accept && let Some(group) = self.group_mut(group) {
            group.freeze();
        }
        outputs.push(Output::InstallSnapshot { group, index, accept });
    }

    /// A snapshot that was accepted is the group's checkpoint now: its replica begins there.
    pub(super) fn snapshot_installed(
        &mut self,
        group: GroupId,
        (index, term): (u64, u64),
        state: &State,
        stored: &[Stored],
        outputs: &mut Vec<Output>,
    ) {
        if let Some(group) = self.group_mut(group) {
            group.thaw();
        }
        if group == GroupId::CATALOG {
            self.install_catalog(index, term, state, outputs);
        } else if let Some(found) = self.groups.get_mut(&group) {
            // Checked when it was sent and when it was received.
            let machine = QueueMachine::restore(&state.machine)
                .expect("a snapshot that passed its checksums");
            let mut queues = Queues::new(group, machine.reading(self.me.speaks));
            let left_out = usize::from(planted::is("snapshot_first_extent"));
            for Stored { queue, first_seq, last_seq, segment } in stored.iter().skip(left_out) {
                queues.stored(*queue, *first_seq, *last_seq, *segment);
            }
            found.restore(index, term, state.members(), queues);
        }
        self.acknowledge_snapshot(group, index, outputs);
    }

    fn accepts_snapshot(&self, group: GroupId, index: u64) -> bool {
        let is_writing = self.appends.has(group);
        let Some(group) = self.group(group) else { return false };
        let is_busy = group.is_checkpointing() || group.is_frozen() || group.is_in_charge();
        let replica = &group.replica;
        !is_writing
            && !is_busy
            && group.applied() < index
            && !replica.is_leader()
            && replica.is_quiet()
    }

    /// The catalog jumps: sessions route by the new one, and the groups are held against it.
    fn install_catalog(&mut self, index: u64, term: u64, state: &State, outputs: &mut Vec<Output>) {
        let catalog =
            Catalog::restore(&state.machine).expect("a snapshot that passed its checksums");
        if catalog.agreed() > self.me.speaks {
            let why = machine::Corrupt::newer("a catalog");
            return self.stop_outdated(GroupId::CATALOG, index, why, outputs);
        }
        let last = catalog.last_numbered(self.producer());
        let Some(group) = &mut self.catalog else { return };
        group.restore(index, term, state.members(), catalog.clone());
        // This node's start is the first thing that it says.
        group.reconcile_again(last > 0);
        // Before sessions may route to a queue, its group hears of it.
        self.hand_out_reconciliation(outputs);
        outputs.push(Output::CatalogReplaced { catalog: Box::new(catalog) });
        // What of this node's is in there is answered nowhere else.
        let waiters = self.outbound(GroupId::CATALOG).batches.committed(last);
        outputs.extend(waiters.into_iter().filter_map(Waiter::refused));
    }

    /// The leader goes on from there.
    fn acknowledge_snapshot(&mut self, group: GroupId, index: u64, outputs: &mut Vec<Output>) {
        let me = self.me.node.0;
        let Some(replica) = self.replica(group) else { return };
        let Some(leader) = replica.last_leader() else { return };
        let mut message = RaftMessage::default();
        message.set_msg_type(MessageType::MsgAppendResponse);
        (message.from, message.to) = (me, leader.0);
        (message.term, message.index) = (replica.term(), index);
        self.send_raft(group, &mut vec![message], outputs);
    }
}
