//! Who keeps which group: the catalog wants it, and the group's leader brings Raft's own members
//! there, one change after the other.
//!
//! ```text
//! as wanted ──the catalog wants others──> learners added ──near for a while──> joint: old and new voters
//!     ^                                                                             │ applied
//!     └─────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A leader that is to leave its group hands leadership over first. The data of a replica that has left stays on its
//! disk: Millrace deletes nothing that could be the last copy.

use std::collections::{BTreeMap, BTreeSet};

use machine::{GroupId, NodeId, QueueMachine, Version};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, HardState,
    MessageType,
};
use wal::{CommitBatch, Item};

use super::{Gathered, Shard};
use crate::counted::{Counted, Voting, who_votes};
use crate::exchange::{Input, Now, Output, Placement};
use crate::group::queues::QueueGroup;
use crate::queues::Queues;
use crate::raft_log::RaftLog;
use crate::replica::Replica;

/// Entries that a learner may lack and still become a voter: they are on their way.
const LEARNER_NEAR: u64 = 128;
/// Ticks for which that must be so.
const NEAR_TICKS: u32 = 3;
/// Announcements of a leader, without a word to the replica here, after which it is let go. A leader
/// that counts on a replica says more than ten times as much to it.
const UNHEARD_MAX: u32 = 3;
/// Ticks after which a leader that is not to keep its group is asked to hand over, and again by the next: it does so by
/// itself if it knows.
const MISLED_TICKS: u32 = 20;

/// What a shard knows of that.
#[derive(Debug)]
pub(super) struct Members {
    /// Of the catalog's membership and agreement that were handed out; in shard 0.
    version: Option<(u64, Version)>,
    /// The version that the cluster has agreed on, as far as the catalog is known.
    pub(super) agreed: Version,
    wanted: BTreeMap<GroupId, Vec<NodeId>>,
    /// All nodes of the cluster, as far as the catalog is known.
    nodes: Vec<NodeId>,
    /// For how many ticks all learners of a group were near.
    near: BTreeMap<GroupId, u32>,
    /// How often a leader announced itself since it last spoke to the replica here.
    unheard: BTreeMap<GroupId, u32>,
    /// For how many ticks a group was led by one that is not to keep it.
    misled: BTreeMap<GroupId, u32>,
    /// Who votes in the groups of this shard, as was said last.
    said: Option<Voting>,
    /// What all shards have said; in shard 0.
    pub(super) counted: Counted,
    /// Whether the groups are still being held against the catalog.
    pub(super) is_reconciling: bool,
}

impl Members {
    /// Of a node with so many shards.
    pub(super) fn new(shards: usize) -> Self {
        Self {
            version: None,
            agreed: Version::FIRST,
            wanted: BTreeMap::new(),
            nodes: Vec::new(),
            near: BTreeMap::new(),
            unheard: BTreeMap::new(),
            misled: BTreeMap::new(),
            said: None,
            counted: Counted::new(shards),
            is_reconciling: false,
        }
    }

    /// The voters that the catalog wants, by group.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (GroupId, &[NodeId])> {
        self.wanted.iter().map(|(group, voters)| (*group, voters.as_slice()))
    }

    /// All nodes of the cluster, as far as the catalog is known.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().copied()
    }

    /// The voters of `group` that the catalog wants, as far as it is known.
    pub(super) fn voters(&self, group: GroupId) -> Option<&[NodeId]> {
        self.wanted.get(&group).map(Vec::as_slice).filter(|voters| !voters.is_empty())
    }

    /// The voter that is to lead `group`, as far as the catalog is known.
    pub(super) fn preferred(&self, group: GroupId) -> Option<NodeId> {
        self.wanted.get(&group)?.first().copied()
    }
}

/// What is to be done next for the members of a group.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Nothing,
    Transfer(u64),
    Change(ConfChangeV2),
    /// Once it was due for a while.
    Join(ConfChangeV2),
}

impl Shard {
    /// Tells every shard what the catalog wants, if that is new.
    pub(super) fn hand_out_membership(&mut self, outputs: &mut Vec<Output>) {
        let Some(catalog) = self.catalog.as_ref().map(super::CatalogGroup::catalog) else { return };
        let agreed = catalog.agreed();
        let version = Some((catalog.membership_version(), agreed));
        if self.members.version == version {
            return;
        }
        self.members.version = version;
        let nodes: Vec<NodeId> = catalog.nodes().map(|info| info.node).collect();
        let placement = |group| Placement {
            group,
            voters: catalog.voters(group).to_vec(),
            founders: catalog.founders(group).to_vec(),
        };
        let all: Vec<_> = (0..=catalog.group_count()).map(GroupId).map(placement).collect();
        for shard in 0..self.shards {
            let is_theirs = |it: &&Placement| Self::of(it.group, self.shards) == shard;
            let groups = all.iter().filter(is_theirs).cloned().collect();
            let nodes = nodes.clone();
            self.forward(shard, Input::Membership { nodes, groups, agreed }, outputs);
        }
    }

    /// The catalog wants this.
    pub(super) fn place(&mut self, now: Now, nodes: &[NodeId], groups: Vec<Placement>) {
        self.peers.keep_known(nodes);
        self.members.nodes = nodes.to_vec();
        for Placement { group, voters, founders } in groups {
            let is_new = group != GroupId::CATALOG && !self.groups.contains_key(&group);
            if is_new && voters.contains(&self.me.node) {
                self.begin_replica(now, group, &founders);
            } else if let Some(found) = self.groups.get_mut(&group) {
                found.group.founded(&founders);
            }
            self.members.wanted.insert(group, voters);
        }
    }

    /// An empty replica. Unless the group is as new, its leader brings it where the others are.
    fn begin_replica(&mut self, now: Now, group: GroupId, founders: &[NodeId]) {
        let voters = founders.iter().map(|node| node.0).collect();
        let members = ConfState { voters, ..ConfState::default() };
        let log = RaftLog::new(HardState::default(), members, 0, 0);
        let mut replica = Replica::new(group, self.me.node, log, 0, self.me.seed);
        replica.bound_messages(self.sizes.append_bytes);
        if replica.log().is_alone() && replica.is_voter() {
            replica.campaign();
        }
        let machine = QueueMachine::new().reading(self.me.speaks);
        let queues = Queues::new(group, machine);
        let mut found = QueueGroup::new(replica, queues, group, 0);
        found.set_now(now);
        self.groups.insert(group, found);
        self.outbound(group);
    }

    /// At every tick: the groups that are led here get nearer to what is wanted.
    pub(super) fn bring_members(&mut self, outputs: &mut Vec<Output>) {
        let up: BTreeSet<u64> = self.peers.up().chain([self.me.node]).map(|node| node.0).collect();
        let me = self.me.node.0;
        for group in self.with_replicas() {
            self.let_go_of_replica(group, outputs);
            self.ask_for_the_lead(group, &up);
            let Some(wanted) = self.members.wanted.get(&group) else { continue };
            let wanted: Vec<u64> = wanted.iter().map(|node| node.0).collect();
            let Some(replica) = self.replica(group) else { continue };
            if !replica.is_leader() || replica.is_transferring() || replica.is_changing_members() {
                continue;
            }
            let near = |node| {
                let lag = replica.lag(NodeId(node));
                node == me || (up.contains(&node) && lag.is_some_and(|lag| lag <= LEARNER_NEAR))
            };
            let step = next_step(replica.log().members(), &wanted, me, &up, near);
            let ticks = match step {
                Step::Join(_) => self.members.near.get(&group).map_or(1, |ticks| ticks + 1),
                Step::Nothing | Step::Transfer(_) | Step::Change(_) => 0,
            };
            self.members.near.insert(group, ticks);
            let Some(replica) = self.replica(group) else { continue };
            match step {
                Step::Nothing => {}
                Step::Transfer(node) => replica.transfer(NodeId(node)),
                Step::Join(_) if ticks < NEAR_TICKS => {}
                // Refused: the next tick tries again.
                Step::Change(change) | Step::Join(change) => {
                    replica.propose_members(change);
                }
            }
        }
    }

    /// Says who votes in this shard's groups, if that is new: the replicas here know it, and the leaders of groups that
    /// are kept elsewhere have said so.
    pub(super) fn say_counted(&mut self, outputs: &mut Vec<Output>) {
        let mut voting = Voting::default();
        for group in self.all_groups().filter(|group| !self.is_dismissed(group.id)) {
            voting.nodes.extend(who_votes(group.replica.log().members()));
            voting.add(self.counted(group), self.is_silent(group.replica.leader()));
        }
        for group in self.report_elsewhere() {
            voting.add(group.counted, self.is_silent(group.leader));
        }
        if self.members.said.as_ref() != Some(&voting) {
            self.members.said = Some(voting.clone());
            self.forward(0, Input::Counted { shard: self.number, voting: voting.clone() }, outputs);
            outputs.push(Output::CountsOn { voting });
        }
    }

    /// Whether a leader's program is from before leaders say who votes.
    fn is_silent(&self, leader: Option<NodeId>) -> bool {
        let speaks = leader.and_then(|leader| self.peers.speaks().get(&leader).copied());
        speaks.is_some_and(|version| version < Version::VOTERS_SAID)
    }

    /// A leader that was removed may never hear of it: it is no voter of the catalog any more. Those that are to keep
    /// the group ask it in turn to hand over.
    fn ask_for_the_lead(&mut self, group: GroupId, up: &BTreeSet<u64>) {
        let Some(wanted) = self.members.wanted.get(&group).cloned() else { return };
        let Some(replica) = self.replica(group) else { return };
        let is_misled = replica.leader().is_some_and(|leader| !wanted.contains(&leader));
        if !is_misled {
            self.members.misled.remove(&group);
            return;
        }
        let (voters, may_lead) = (replica.voters().to_vec(), replica.may_lead());
        let ticks = self.members.misled.entry(group).or_default();
        *ticks += 1;
        let (turn, is_time) = (*ticks / MISLED_TICKS, ticks.is_multiple_of(MISLED_TICKS));
        let me = self.me.node;
        if is_time
            && may_lead
            && asks_for_the_lead(turn as usize, &wanted, &voters, up) == Some(me)
            && let Some(replica) = self.replica(group)
        {
            replica.transfer(me);
        }
    }

    /// A leader speaks to a replica here.
    pub(super) fn hears_leader(&mut self, group: GroupId, kind: MessageType) {
        use MessageType::{MsgAppend, MsgHeartbeat, MsgSnapshot};
        if !matches!(kind, MsgAppend | MsgHeartbeat | MsgSnapshot) {
            return;
        }
        self.members.unheard.remove(&group);
        if let Some(found) = self.groups.get_mut(&group) {
            found.is_dismissed = false;
        }
    }

    /// A leader says to everybody that it leads.
    pub(super) fn hears_announcement(&mut self, group: GroupId) {
        *self.members.unheard.entry(group).or_default() += 1;
    }

    /// Whether a replica is there that its group does not count on.
    pub(super) fn is_dismissed(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|found| found.is_dismissed)
    }

    /// A replica that neither the catalog nor its leader counts on rests: it runs for no election, and
    /// what it was never told to be committed does not keep the log from being recycled.
    fn let_go_of_replica(&mut self, group: GroupId, outputs: &mut Vec<Output>) {
        let Some(wanted) = self.members.wanted.get(&group) else { return };
        let unheard = self.members.unheard.get(&group).copied().unwrap_or(0);
        let is_wanted = wanted.contains(&self.me.node);
        let is_writing = self.appends.has(group);
        let Some(found) = self.groups.get_mut(&group) else { return };
        let (applied, is_frozen) = (found.group.applied(), found.group.is_frozen());
        let replica = &mut found.group.replica;
        if is_wanted || replica.is_leader() || is_frozen || unheard < UNHEARD_MAX {
            return;
        }
        found.is_dismissed = true;
        replica.forget_leader();
        let has_tail = replica.last_index() > applied;
        let is_still = replica.is_quiet() && !is_writing && replica.committed() == applied;
        if has_tail && is_still {
            replica.cut_tail(applied);
            let mut batch = CommitBatch::default();
            batch.add(group.0, Item::TruncateFrom(applied + 1));
            self.hand_out(Gathered { batch, ..Gathered::default() }, outputs);
        }
    }
}

/// Who asks a leader that is not to keep its group for the lead, the `turn`th time. Whoever is to keep it and has no
/// vote yet cannot have the lead: it is that leader who would have to take it in.
fn asks_for_the_lead(
    turn: usize,
    wanted: &[NodeId],
    voters: &[u64],
    up: &BTreeSet<u64>,
) -> Option<NodeId> {
    let is_fit = |node: &&NodeId| up.contains(&node.0) && voters.contains(&node.0);
    let fit: Vec<&NodeId> = wanted.iter().filter(is_fit).collect();
    fit.get(turn.checked_sub(1)? % fit.len().max(1)).map(|node| **node)
}

/// What brings `members` nearer to `wanted`, seen by the leader `me`.
fn next_step(
    members: &ConfState,
    wanted: &[u64],
    me: u64,
    up: &BTreeSet<u64>,
    is_near: impl Fn(u64) -> bool,
) -> Step {
    let voters = &members.voters;
    let heir = |among: &[u64]| {
        let fit = |node: &&u64| **node != me && voters.contains(node) && is_near(**node);
        among.iter().find(fit).copied()
    };
    if !members.voters_outgoing.is_empty() {
        // Who does not belong to the new voters does not lead them out.
        return match (voters.contains(&me), heir(voters)) {
            (true, _) => Step::Change(ConfChangeV2::default()),
            (false, Some(node)) => Step::Transfer(node),
            (false, None) => Step::Nothing,
        };
    }
    if !voters.contains(&me) {
        // It was elected by those who did not know yet that it is to go.
        return heir(voters).map_or(Step::Nothing, Step::Transfer);
    }
    let is_member = |node: &u64| voters.contains(node) || members.learners.contains(node);
    if let Some(node) = wanted.iter().find(|node| !is_member(node)) {
        return Step::Change(change(&[(ConfChangeType::AddLearnerNode, *node)]));
    }
    if let Some(node) = members.learners.iter().find(|node| !wanted.contains(node)) {
        return Step::Change(change(&[(ConfChangeType::RemoveNode, *node)]));
    }
    let joining = wanted.iter().filter(|node| !voters.contains(node));
    let leaving = voters.iter().filter(|node| !wanted.contains(node));
    let mut changes: Vec<_> = joining.map(|node| (ConfChangeType::AddNode, *node)).collect();
    let are_near = changes.iter().all(|(_, node)| is_near(*node));
    changes.extend(leaving.map(|node| (ConfChangeType::RemoveNode, *node)));
    let reached = wanted.iter().filter(|node| up.contains(node)).count();
    if changes.is_empty() || !are_near || reached * 2 <= wanted.len() {
        return Step::Nothing;
    }
    if !wanted.contains(&me)
        && let Some(node) = heir(wanted)
    {
        return Step::Transfer(node);
    }
    let mut joint = change(&changes);
    joint.set_transition(ConfChangeTransition::Explicit);
    Step::Join(joint)
}

fn change(changes: &[(ConfChangeType, u64)]) -> ConfChangeV2 {
    let single = |(kind, node): &(ConfChangeType, u64)| {
        let mut single = ConfChangeSingle { node_id: *node, ..ConfChangeSingle::default() };
        single.set_change_type(*kind);
        single
    };
    let mut change = ConfChangeV2::default();
    change.set_changes(changes.iter().map(single).collect::<Vec<_>>().into());
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(voters: &[u64], learners: &[u64], outgoing: &[u64]) -> ConfState {
        ConfState {
            voters: voters.to_vec(),
            learners: learners.to_vec(),
            voters_outgoing: outgoing.to_vec(),
            ..ConfState::default()
        }
    }

    fn step(members: &ConfState, wanted: &[u64], me: u64, near: &[u64]) -> Step {
        let up = (1..=9).collect();
        next_step(members, wanted, me, &up, |node| node == me || near.contains(&node))
    }

    fn kinds(step: &Step) -> Vec<(ConfChangeType, u64)> {
        let (Step::Change(change) | Step::Join(change)) = step else { return Vec::new() };
        change.changes.iter().map(|it| (it.get_change_type(), it.node_id)).collect()
    }

    #[test]
    fn a_new_voter_is_a_learner_first_and_waits_until_it_is_near() {
        use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
        let wanted = [2, 3, 4];
        let first = step(&members(&[1, 2, 3], &[], &[]), &wanted, 2, &[1, 3]);
        assert_eq!(kinds(&first), [(AddLearnerNode, 4)]);
        let learning = members(&[1, 2, 3], &[4], &[]);
        assert_eq!(step(&learning, &wanted, 2, &[1, 3]), Step::Nothing);
        let joint = step(&learning, &wanted, 2, &[1, 3, 4]);
        assert!(matches!(joint, Step::Join(_)));
        assert_eq!(kinds(&joint), [(AddNode, 4), (RemoveNode, 1)]);
        let leave = step(&members(&[2, 3, 4], &[], &[1, 2, 3]), &wanted, 2, &[3, 4]);
        assert_eq!(leave, Step::Change(ConfChangeV2::default()));
        assert_eq!(step(&members(&[2, 3, 4], &[], &[]), &wanted, 2, &[3, 4]), Step::Nothing);
    }

    #[test]
    fn a_leader_that_is_to_go_hands_over_first() {
        let learning = members(&[1, 2, 3], &[4], &[]);
        assert_eq!(step(&learning, &[2, 3, 4], 1, &[3, 4]), Step::Transfer(3));
        // Nobody is left of the old ones: both lead together, and then one of the new.
        let apart = members(&[1], &[2], &[]);
        assert!(matches!(step(&apart, &[2], 1, &[2]), Step::Join(_)));
        assert_eq!(step(&members(&[2], &[], &[1]), &[2], 1, &[2]), Step::Transfer(2));
        assert_eq!(step(&members(&[2], &[], &[1]), &[2], 1, &[]), Step::Nothing);
        assert_eq!(step(&members(&[2, 3], &[], &[]), &[2, 3], 1, &[3]), Step::Transfer(3));
    }

    #[test]
    fn those_that_vote_already_ask_in_turn_for_a_lead_that_is_to_go() {
        let (wanted, up) = ([4, 5, 1].map(NodeId), BTreeSet::from([1, 2, 4, 5]));
        let asks = |turn, voters: &[u64]| asks_for_the_lead(turn, &wanted, voters, &up);
        assert_eq!(asks(1, &[1, 2, 5]), Some(NodeId(5)), "node 4 is not taken in yet");
        assert_eq!(asks(2, &[1, 2, 5]), Some(NodeId(1)));
        assert_eq!(asks(3, &[1, 2, 5]), Some(NodeId(5)));
        assert_eq!(asks(1, &[2, 3]), None);
        assert_eq!(asks(1, &[3, 4]), Some(NodeId(4)));
    }

    #[test]
    fn no_change_is_made_that_would_leave_a_minority() {
        let up = BTreeSet::from([1]);
        let all = members(&[1, 2, 3], &[], &[]);
        assert_eq!(next_step(&all, &[1, 2], 1, &up, |_| true), Step::Nothing);
        let up = BTreeSet::from([1, 2]);
        assert!(matches!(next_step(&all, &[1, 2], 1, &up, |_| true), Step::Join(_)));
    }

    #[test]
    fn a_learner_that_is_not_wanted_any_more_goes() {
        let learning = members(&[1, 2, 3], &[4], &[]);
        let step = step(&learning, &[1, 2, 3], 1, &[2, 3, 4]);
        assert_eq!(kinds(&step), [(ConfChangeType::RemoveNode, 4)]);
    }
}
