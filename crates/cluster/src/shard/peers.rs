//! The other nodes: which can be reached, and what they say.

use std::collections::{BTreeMap, BTreeSet};

use machine::{GroupId, NodeId, ProducerId, SessionId, Version};

use super::Shard;
use super::outbound::Denial;
use crate::counted::who_votes;
use crate::exchange::{Input, Now, Output};
use crate::group::Group;
use crate::group::queues;
use crate::inbox::{Taken, Verdict};
use crate::limits::{LOST_MS, REJOIN_MS, TICK_MS};
use crate::peer::message::Message;
use crate::remote::Route;
use crate::request::Ticket;

/// An election that is not left to a timeout.
#[derive(Clone, Copy, Debug)]
struct Campaign {
    at_ms: u64,
    /// Until the next attempt; it grows. The others may have to find out first that the leader is gone.
    timeout_ms: u64,
}

/// Who votes in a group, as its leader of a term said.
#[derive(Debug)]
struct Said {
    term: u64,
    voters: Vec<NodeId>,
    /// When that was heard, in `Now::mono_ms`.
    at_ms: u64,
}

/// What a shard knows of other nodes.
#[derive(Debug, Default)]
pub(super) struct Peers {
    up: BTreeMap<NodeId, u64>,
    /// The newest version that each of them reads.
    speaks: BTreeMap<NodeId, Version>,
    /// Every node that could ever be reached.
    known: BTreeSet<NodeId>,
    /// Since when a node cannot be reached that could be.
    lost: BTreeMap<NodeId, u64>,
    /// Since when a node cannot be reached whose loss the catalog has not heard of yet.
    missing: BTreeMap<NodeId, u64>,
    /// Who leads groups that this node has no replica of, and in which term.
    leaders: BTreeMap<GroupId, (u64, NodeId)>,
    /// Who votes in a group, as its leader said last, and in which term. One that leads since then has not said it yet.
    voters: BTreeMap<GroupId, Said>,
    /// Groups whose leader cannot be reached: when this node runs for election.
    campaigns: BTreeMap<GroupId, Campaign>,
    /// Snapshots on their way.
    snapshots: BTreeSet<(GroupId, NodeId)>,
    /// Questions of other nodes' sessions that are not answered yet, and the group they are about.
    pub(super) asked: BTreeMap<(SessionId, Ticket), GroupId>,
}

impl Peers {
    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.up.contains_key(&node)
    }

    /// Since when a node can be reached, in `Now::mono_ms`.
    pub(super) fn up_since(&self, node: NodeId) -> Option<u64> {
        self.up.get(&node).copied()
    }

    pub(super) fn up(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.up.keys().copied()
    }

    /// Whether most nodes can be reached, this one among them: of the members that are others, and of those
    /// that were reached before the catalog told of any.
    pub(super) fn has_most(&self, others: impl Iterator<Item = NodeId>) -> bool {
        let unreached = others.filter(|node| !self.known.contains(node)).count();
        (self.up.len() + 1) * 2 > self.known.len() + unreached + 1
    }

    /// There are no other nodes than these.
    pub(super) fn keep_known(&mut self, nodes: &[NodeId]) {
        self.known.retain(|node| nodes.contains(node));
    }

    /// Whether there never was another node.
    pub(super) fn is_empty(&self) -> bool {
        self.up.is_empty() && self.lost.is_empty()
    }

    /// The newest version that each node reads which can be reached.
    pub(super) fn speaks(&self) -> &BTreeMap<NodeId, Version> {
        &self.speaks
    }

    /// Nodes that cannot be reached any more, and may be again in a moment, with since when.
    pub(super) fn lost(&self) -> &BTreeMap<NodeId, u64> {
        &self.lost
    }

    pub(super) fn leader(&self, group: GroupId) -> Option<(u64, NodeId)> {
        self.leaders.get(&group).copied()
    }

    /// Who votes in a group, as its leader says. None: no leader in reach has said so lately. One that has ceased to
    /// lead falls silent, and what it said may be over.
    pub(super) fn voters(&self, group: GroupId, now_ms: u64) -> Option<&[NodeId]> {
        let (of, leader) = self.leader(group)?;
        let Said { term, voters, at_ms } = self.voters.get(&group)?;
        let is_new = *term == of && now_ms <= at_ms + SAID_FOR_MS;
        (is_new && self.is_up(leader)).then_some(voters)
    }

    /// Those of `nodes` that cannot be reached are missing, if they were not before.
    pub(super) fn miss(&mut self, nodes: impl Iterator<Item = NodeId>, now_ms: u64) {
        for node in nodes.filter(|node| !self.up.contains_key(node)) {
            self.missing.entry(node).or_insert(now_ms);
        }
    }

    /// Nodes that cannot be reached for so long; each is named once.
    pub(super) fn take_gone(&mut self, now_ms: u64, after_ms: u64) -> Vec<NodeId> {
        let is_gone = |_: &NodeId, since: &mut u64| now_ms >= *since + after_ms;
        self.missing.extract_if(.., is_gone).map(|(node, _)| node).collect()
    }

    /// False: one is on its way.
    pub(super) fn begin_snapshot(&mut self, group: GroupId, to: NodeId) -> bool {
        self.snapshots.insert((group, to))
    }

    pub(super) fn end_snapshot(&mut self, group: GroupId, to: NodeId) {
        self.snapshots.remove(&(group, to));
    }

    pub(super) fn next_campaign_ms(&self) -> Option<u64> {
        self.campaigns.values().map(|campaign| campaign.at_ms).min()
    }
}

/// Milliseconds between the replicas of a group that run for election after its leader is gone.
const STAGGER_MS: u64 = 40;
/// Milliseconds until it is tried again; doubled each time, up to the larger one.
const TIMEOUT_MS: u64 = 80;
const TIMEOUT_MAX_MS: u64 = 400;
/// Ticks after which a leader says again that it leads.
const TICKS_PER_ANNOUNCEMENT: u64 = 20;
/// For so long it counts who votes as a leader has said: three announcements.
const SAID_FOR_MS: u64 = 3 * TICKS_PER_ANNOUNCEMENT * TICK_MS;

impl Shard {
    /// Says something to a node, if it can be reached.
    pub(super) fn send(&self, to: NodeId, message: Message, outputs: &mut Vec<Output>) {
        if self.peers.is_up(to) {
            outputs.push(Output::Send { to, message });
        }
    }

    pub(super) fn send_raft(
        &mut self,
        group: GroupId,
        messages: &mut Vec<raft::eraftpb::Message>,
        outputs: &mut Vec<Output>,
    ) {
        for message in messages.drain(..) {
            let to = NodeId(message.to);
            self.send(to, Message::Raft { group, message }, outputs);
        }
    }

    pub(super) fn peer_up(
        &mut self,
        now: Now,
        node: NodeId,
        speaks: Version,
        outputs: &mut Vec<Output>,
    ) {
        self.peers.up.insert(node, now.mono_ms);
        self.peers.speaks.insert(node, speaks);
        self.peers.known.insert(node);
        self.peers.lost.remove(&node);
        self.peers.missing.remove(&node);
        self.reach.peer_up(node);
        // What was said over the connection before is void, whoever said it.
        for out in self.out.values_mut() {
            if matches!(out.remote.route, Route::There { node: at, .. } if at == node) {
                out.remote.route = Route::Nowhere;
            }
        }
        // Its queues in memory have to hear what of an earlier life of this node is over.
        if self.number == 0 {
            self.outbound(GroupId::local(node));
        }
        for found in self.groups.values_mut() {
            found.is_in_reach(node);
        }
        // A cluster that starts need not wait for a timeout.
        for group in self.with_replicas() {
            if self.has_majority(group)
                && self.replica(group).is_some_and(|replica| replica.leader().is_none())
            {
                self.campaign_soon(now, group, None);
            }
        }
        self.announce(now, &[node], outputs);
        self.route_all(now, outputs);
    }

    pub(super) fn peer_down(&mut self, now: Now, node: NodeId, outputs: &mut Vec<Output>) {
        self.peers.speaks.remove(&node);
        if self.peers.up.remove(&node).is_some() {
            self.peers.lost.insert(node, now.mono_ms);
            self.peers.missing.insert(node, now.mono_ms);
        }
        self.reach.peer_down(node, now.mono_ms);
        for group in self.with_replicas() {
            if let Some(found) = self.groups.get_mut(&group) {
                found.is_out_of_reach(now, node);
            }
            let has_majority = self.has_majority(group);
            let Some(replica) = self.replica(group) else { continue };
            replica.unreachable(node);
            if !has_majority {
                // Others may have another leader at once, and this one would go on delivering.
                replica.step_down();
            }
            if replica.leader() != Some(node) || !replica.is_voter() {
                continue;
            }
            replica.forget_leader();
            self.campaign_soon(now, group, Some(node));
        }
        self.route_all(now, outputs);
    }

    /// The replicas of a group that has no leader run for election one after the other, the one that is
    /// to lead first. `gone` led until now.
    fn campaign_soon(&mut self, now: Now, group: GroupId, gone: Option<NodeId>) {
        let preferred = self.preferred_leader(group);
        let me = self.me.node;
        let Some(replica) = self.replica(group).filter(|replica| replica.is_voter()) else {
            return;
        };
        let mut voters: Vec<NodeId> = replica.voters().iter().map(|voter| NodeId(*voter)).collect();
        voters.retain(|voter| Some(*voter) != gone);
        voters.sort_unstable();
        let first = voters.iter().position(|voter| Some(*voter) == preferred);
        let turn = first.unwrap_or(group.0 as usize % voters.len().max(1));
        voters.rotate_left(turn);
        let mut place = voters.iter().position(|voter| *voter == me).unwrap_or(voters.len());
        if !self.knows_time(group) && !self.peers.up.is_empty() {
            // It has just started, and would lead by its own clock: those who know better come first.
            place += voters.len();
        }
        let at_ms = now.mono_ms + place as u64 * STAGGER_MS;
        self.peers.campaigns.insert(group, Campaign { at_ms, timeout_ms: TIMEOUT_MS });
    }

    /// Whether this node has heard what time it is in the group. The catalog needs none.
    fn knows_time(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_none_or(|found| found.time.is_known())
    }

    pub(super) fn campaign_where_due(&mut self, now: Now) {
        if self.peers.campaigns.is_empty() {
            return;
        }
        let is_due = |_: &GroupId, it: &mut Campaign| it.at_ms <= now.mono_ms;
        let due: Vec<_> = self.peers.campaigns.extract_if(.., is_due).collect();
        for (group, Campaign { timeout_ms, .. }) in due {
            let Some(replica) = self.replica(group) else { continue };
            if replica.leader().is_some() || replica.is_candidate() {
                continue;
            }
            replica.campaign();
            if timeout_ms <= TIMEOUT_MAX_MS {
                let at_ms = now.mono_ms + timeout_ms;
                let next = Campaign { at_ms, timeout_ms: timeout_ms * 2 };
                self.peers.campaigns.insert(group, next);
            }
        }
    }

    pub(super) fn route_all(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let groups: Vec<GroupId> = self.out.keys().copied().collect();
        for group in groups {
            self.route(now, group, outputs);
        }
    }

    /// Raft's time, and what is looked at now and then.
    pub(super) fn tick(&mut self, now: Now, outputs: &mut Vec<Output>) {
        self.clock.count_tick();
        for group in self.with_replicas() {
            if !self.is_frozen(group)
                && !self.is_dismissed(group)
                && let Some(replica) = self.replica(group)
            {
                replica.tick();
            }
        }
        self.say_counted(outputs);
        self.raise_version(now, outputs);
        if self.peers.is_empty() && self.is_alone() {
            return;
        }
        self.say_reach(outputs);
        self.say_digests(now, outputs);
        self.balance(now);
        self.bring_members(outputs);
        self.let_go_of_lost(now, outputs);
        self.give_up_where_stuck(now, outputs);
        self.expire_gone_nodes(now, outputs);
        self.route_all(now, outputs);
        if self.clock.is_each(TICKS_PER_ANNOUNCEMENT) {
            let nodes: Vec<NodeId> = self.peers.up().collect();
            self.announce(now, &nodes, outputs);
        }
    }

    pub(super) fn is_frozen(&self, group: GroupId) -> bool {
        self.group(group).is_some_and(Group::is_frozen)
    }

    /// Tells nodes which groups this one leads, for they may have no replica that would know, and what
    /// time it is there.
    pub(super) fn announce(&self, now: Now, nodes: &[NodeId], outputs: &mut Vec<Output>) {
        for (group, found) in self.groups.iter().filter(|(_, found)| found.group.serves()) {
            for node in nodes {
                let (group, term) = (*group, found.group.replica.term());
                let time_ms = found.time.at(now);
                self.send(*node, Message::Leads { group, term, time_ms }, outputs);
                // What a change will come to is said when it is over.
                if !found.group.replica.is_changing_members() {
                    let voters = who_votes(found.group.replica.log().members());
                    self.send(*node, Message::Voters { group, term, voters }, outputs);
                }
            }
        }
    }

    /// What nodes held that are gone for too long is ready again.
    pub(super) fn let_go_of_lost(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let is_gone = |_: &NodeId, since: &mut u64| now.mono_ms >= *since + LOST_MS;
        let gone: Vec<NodeId> =
            self.peers.lost.extract_if(.., is_gone).map(|(node, _)| node).collect();
        for node in gone {
            self.peers.asked.retain(|(session, _), _| Self::node_of(*session) != Some(node));
            let mut groups: Vec<GroupId> = self.groups.keys().copied().collect();
            groups.extend(self.local.iter().map(|local| local.group));
            for group in groups {
                if let Some(found) = self.groups.get_mut(&group) {
                    found.joined.remove(&node);
                    found.early_asked.retain(|it| Self::node_of(it.session) != Some(node));
                }
                if let Some(local) = &mut self.local {
                    local.joined.remove(&node);
                }
                let is_theirs = |session| Self::node_of(session) == Some(node);
                self.in_queues(group, outputs, |queues, group_effects| {
                    queues.join(is_theirs, Vec::new(), group_effects);
                });
            }
        }
    }

    /// What another node says.
    pub(super) fn peer(
        &mut self,
        now: Now,
        from: NodeId,
        message: Message,
        outputs: &mut Vec<Output>,
    ) {
        match message {
            Message::Raft { group, message }
                if message.from == from.0
                    && message.to == self.me.node.0
                    && !self.is_frozen(group) =>
            {
                self.hears_leader(group, message.get_msg_type());
                let Some(replica) = self.replica(group) else { return };
                let bytes = message.entries.iter().map(|entry| entry.data.len()).sum();
                replica.step(message);
                self.gathered(now, bytes, outputs);
            }
            Message::Leads { group, term, time_ms } => {
                self.hears_announcement(group);
                let known = self.peers.leaders.get(&group).map_or(0, |(term, _)| *term);
                if term >= known {
                    self.peers.leaders.insert(group, (term, from));
                    if let Some(found) = self.groups.get_mut(&group)
                        && found.group.replica.term() <= term
                        && !found.group.replica.is_leader()
                    {
                        found.time.heard(now, term, time_ms);
                    }
                    self.route(now, group, outputs);
                }
            }
            Message::Voters { group, term, voters } => {
                if self.peers.leader(group) == Some((term, from)) {
                    let said = Said { term, voters, at_ms: now.mono_ms };
                    self.peers.voters.insert(group, said);
                }
            }
            Message::Digest { group, index, chain, is_answer } => {
                self.hears_digest(from, group, (index, chain), is_answer);
            }
            Message::Borrow { group, queue, by, ask } => {
                self.lend(from, (group, queue), by, ask, outputs);
            }
            Message::Lent { group, queue, number, loan } => {
                self.in_queues(group, outputs, |queues, group_effects| {
                    queues.lent(queue, (number, loan), group_effects);
                });
            }
            Message::Reaches { group, nodes } => self.hears_reach(now, from, group, &nodes),
            Message::Answers { group, epoch, answers } => {
                let Some(out) = self.out.get_mut(&group) else { return };
                for (session, answer) in answers {
                    if out.remote.answer(epoch, session, &answer) {
                        outputs.push(Output::Answer { session, answer });
                    }
                }
            }
            Message::Committed { group, boot, seq, .. } if boot == self.me.boot => {
                self.numbered_committed(group, seq, outputs);
            }
            Message::NotLeader { group, epoch } => {
                let Some(out) = self.out.get_mut(&group) else { return };
                if let (by @ Route::There { .. }, true) =
                    (out.remote.route, out.remote.epoch() == epoch)
                {
                    out.remote.route = Route::Nowhere;
                    let until_ms = now.mono_ms + REJOIN_MS;
                    out.denial = Some(Denial { by, until_ms });
                    self.route(now, group, outputs);
                }
            }
            Message::Join { group, .. }
            | Message::Requests { group, .. }
            | Message::SessionGone { group, .. }
            | Message::NumberedBatch { group, .. } => {
                self.ask_of_leader(now, from, group, message, outputs);
            }
            // For another node, for a replica that stands still, or for a process of before.
            Message::Raft { .. } | Message::Committed { .. } => {}
            // The flusher takes these.
            Message::Snapshot { .. } | Message::SnapshotTaken { .. } => {}
            // The connection took note of these.
            Message::Renewed { .. } | Message::Question { .. } | Message::Told { .. } => {}
        }
    }

    /// Something that only the group's leader can do.
    fn ask_of_leader(
        &mut self,
        now: Now,
        from: NodeId,
        group: GroupId,
        message: Message,
        outputs: &mut Vec<Output>,
    ) {
        if self.is_local_here(group) {
            return self.lead_peer(now, from, group, message, outputs);
        }
        let is_too_early = matches!(message, Message::Join { .. })
            && self.groups.get(&group).is_some_and(|it| it.joins_too_early(from, &message));
        if let Some(found) = self.group_mut(group) {
            if found.can_log() && found.early.is_empty() && !is_too_early {
                return self.lead_peer(now, from, group, message, outputs);
            }
            if found.replica.is_leader() {
                found.early.push((from, message));
                return;
            }
        }
        if let Message::Join { epoch, .. }
        | Message::NumberedBatch { epoch, .. }
        | Message::Requests { epoch, .. } = message
        {
            self.send(from, Message::NotLeader { group, epoch }, outputs);
        }
    }

    /// What came too early to be done, while leadership was about to move, while too much was under way, or
    /// before what its node had said was applied: it comes again, before anything that is still to come.
    pub(super) fn lead_early(&mut self) {
        let mut early = Vec::new();
        for found in self.groups.values_mut().filter(|found| found.may_lead_early()) {
            early.append(&mut found.group.early);
        }
        for catalog in self.catalog.iter_mut().filter(|catalog| catalog.group.can_log()) {
            early.append(&mut catalog.group.early);
        }
        for (from, message) in early {
            self.own.push_back(Input::Peers { from, messages: vec![message] });
        }
    }

    /// Serves another node's sessions in a group that is led here.
    fn lead_peer(
        &mut self,
        now: Now,
        from: NodeId,
        group: GroupId,
        message: Message,
        outputs: &mut Vec<Output>,
    ) {
        match message {
            Message::Join { epoch, attachments, .. } => {
                let is_theirs = |session| Self::node_of(session) == Some(from);
                self.peers.asked.retain(|(session, _), of| !is_theirs(*session) || *of != group);
                if let Some(found) = self.groups.get_mut(&group) {
                    found.has_joined(from, epoch);
                    found.early_asked.retain(|asked| !is_theirs(asked.session));
                } else if let Some(local) = &mut self.local {
                    local.joined.insert(from, epoch);
                }
                self.in_queues(group, outputs, |queues, group_effects| {
                    queues.join(is_theirs, attachments, group_effects);
                });
            }
            Message::Requests { epoch, session, requests, .. } => {
                if Self::node_of(session) != Some(from) || self.joined(group, from) != Some(epoch) {
                    return;
                }
                for request in requests {
                    if let Some(ticket) = request.ticket() {
                        self.peers.asked.insert((session, ticket), group);
                    }
                    self.request_here(now, session, group, request, outputs);
                }
            }
            Message::SessionGone { epoch, session, .. } => {
                if Self::node_of(session) != Some(from) || self.joined(group, from) != Some(epoch) {
                    return;
                }
                self.peers.asked.retain(|(by, _), of| *by != session || *of != group);
                if let Some(found) = self.groups.get_mut(&group) {
                    found.early_asked.retain(|asked| asked.session != session);
                }
                self.in_queues(group, outputs, |queues, group_effects| {
                    queues.end_session(session, group_effects);
                });
            }
            Message::NumberedBatch { epoch, boot, seq, commands, settles, needs_apply, .. } => {
                let is_catalog = group == GroupId::CATALOG;
                if let Err(why) = machine::check_commands(&commands, is_catalog, self.me.speaks) {
                    // It would stop every replica. A member proposes nothing that this leader cannot read: see
                    // `Catalog::check`.
                    tracing::error!(
                        from = from.0,
                        group = group.0,
                        "cannot read a command of another node: {why}. This node leads the group and leaves the \
                         command out of the log. Later commands of that node wait until a node with a newer program leads"
                    );
                    return;
                }
                let producer = ProducerId { node: from, boot };
                let taken = Taken { producer, seq, needs_apply, settles };
                self.take_numbered(now, group, epoch, taken, commands, outputs);
            }
            // Not for a leader: `peer` has seen to them.
            Message::Raft { .. }
            | Message::Answers { .. }
            | Message::Committed { .. }
            | Message::NotLeader { .. }
            | Message::Leads { .. }
            | Message::Reaches { .. }
            | Message::Voters { .. }
            | Message::Digest { .. }
            | Message::Borrow { .. }
            | Message::Lent { .. }
            | Message::Renewed { .. }
            | Message::Question { .. }
            | Message::Told { .. }
            | Message::Snapshot { .. }
            | Message::SnapshotTaken { .. } => {}
        }
    }

    fn take_numbered(
        &mut self,
        now: Now,
        group: GroupId,
        epoch: u64,
        taken: Taken,
        commands: bytes::Bytes,
        outputs: &mut Vec<Output>,
    ) {
        let (producer, seq) = (taken.producer, taken.seq);
        let from = producer.node;
        let committed = Message::Committed { group, epoch, boot: producer.boot, seq };
        if group.is_local() {
            let Some(local) = &mut self.local else { return };
            if local.takes(producer, seq) {
                let entry = queues::stamp_alone(local.time.at(now), &commands);
                local.queues.settled_by_entry(&taken.settles, &mut self.group_effects);
                self.apply_local_entry(now, entry);
                self.grant(group, outputs);
            }
            return self.send(from, committed, outputs);
        }
        let bytes = commands.len();
        let (settles, needs_apply) = (taken.settles.clone(), taken.needs_apply);
        let verdict = match (&mut self.catalog, self.groups.get_mut(&group)) {
            (_, Some(found)) => found.take(now, taken, &commands, None),
            (Some(catalog), None) => catalog.take(now.wall_ms, taken, &commands, None),
            (None, None) => return,
        };
        match verdict {
            Ok(Verdict::Propose) => self.gathered(now, bytes, outputs),
            Ok(Verdict::Applied) => {
                if let Some(found) = self.groups.get_mut(&group) {
                    found.settled_before(&settles, &mut self.group_effects);
                }
                self.grant(group, outputs);
                self.send(from, committed, outputs);
            }
            Ok(Verdict::Ignore) => {}
            Err(_) => {
                // Leadership is about to move, or too much is under way: it is taken later.
                let boot = producer.boot;
                let message = Message::NumberedBatch {
                    group,
                    epoch,
                    boot,
                    seq,
                    commands,
                    settles,
                    needs_apply,
                };
                if let Some(found) = self.group_mut(group) {
                    found.early.push((from, message));
                }
            }
        }
    }

    /// Nodes whose sessions may hold something of a group that this node begins to lead: those that can be
    /// reached, and after a start those that have not been reached yet, until they would be lost.
    pub(super) fn expected(&mut self, now: Now, group: GroupId) -> BTreeSet<NodeId> {
        let mut nodes = self.reachable();
        let is_young = self.clock.started_ms().is_none_or(|start| now.mono_ms < start + LOST_MS);
        if !is_young || planted::is("young_leader_hurries") {
            return nodes;
        }
        let voters = self.replica(group).map(|it| it.voters().to_vec()).unwrap_or_default();
        let all = voters.into_iter().map(NodeId).chain(self.members.nodes());
        let known = &self.peers.known;
        nodes.extend(all.filter(|node| *node != self.me.node && !known.contains(node)));
        nodes
    }

    /// Nodes that can be reached now.
    pub(super) fn reachable(&self) -> BTreeSet<NodeId> {
        self.peers.up().collect()
    }
}
