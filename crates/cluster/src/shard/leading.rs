//! A group's leadership on this node: taken up, given up, handed on.

use std::collections::{BTreeMap, BTreeSet};

use machine::{GroupId, NodeId, ProducerId, SessionId};
use raft::eraftpb::Entry;

use super::{Gathered, Shard};
use crate::exchange::{Input, Now, Output};
use crate::group::queues::QueueGroup;
use crate::limits::{LAG_NEAR, SETTLED_IN_MS, SLOW_TICKS};
use crate::peer::message::Message;
use crate::remote::Route;
use crate::replica::Harvest;
use crate::waiter::Waiter;

impl Shard {
    /// Everything that a data group has to do in a step.
    pub(super) fn finish_group(
        &mut self,
        now: Now,
        group: GroupId,
        gathered: &mut Gathered,
        outputs: &mut Vec<Output>,
    ) {
        let Some(found) = self.groups.get_mut(&group) else { return };
        if found.group.is_frozen() {
            return;
        }
        let rides = found.group.inbox.is_waiting();
        let at_once = self.closing.is_some() || rides;
        found.keep_time(&mut self.group_effects);
        found.flush_settles(now, at_once);
        found.flush_locks(now, &mut self.group_effects);
        found.group.note_leader(now.wall_ms);
        let committed = self.harvest(group, gathered, outputs);
        // Confirms hang on the commit alone; what follows from applying comes after.
        self.confirm(group, outputs);
        if let Some(found) = self.groups.get_mut(&group) {
            for entry in &committed {
                if let Err(why) = found.commit(entry, &mut self.group_effects) {
                    return self.stop_outdated(group, entry.index, why, outputs);
                }
            }
        }
        self.answer_digest(group, outputs);
        self.review_leadership(now, group, outputs);
        self.confirm(group, outputs);
        self.grant(group, outputs);
        self.begin_dispatch(now, group, outputs);
        let Some(found) = self.groups.get_mut(&group) else { return };
        if let Some(job) = found.due_checkpoint() {
            outputs.push(Output::Checkpoint(job));
        }
        self.cut(group, outputs);
        self.help_followers(group, outputs);
    }

    /// Moves what the group wants written into `gathered`, and sends what its replica has to say. What is
    /// committed is to be applied.
    pub(super) fn harvest(
        &mut self,
        group: GroupId,
        gathered: &mut Gathered,
        outputs: &mut Vec<Output>,
    ) -> Vec<Entry> {
        let number = self.appends.next_number();
        let Some(replica) = self.replica(group) else { return Vec::new() };
        let mut harvest = Harvest::default();
        let Gathered { batch, written, bytes } = gathered;
        *bytes += replica.ready(number, batch, written, &mut harvest);
        let Harvest { committed, mut messages } = harvest;
        self.send_raft(group, &mut messages, outputs);
        committed
    }

    /// Followers need entries that are on the disk only, or more than the log has.
    pub(super) fn help_followers(&mut self, group: GroupId, outputs: &mut Vec<Output>) {
        let Some(replica) = self.replica(group) else { return };
        let reads = replica.take_reads();
        let behind = replica.take_behind();
        for (number, entries) in reads {
            outputs.push(Output::ReadEntries { group, number, entries });
        }
        self.send_snapshots(group, &behind, outputs);
    }

    /// The process stood still for so long that others may lead what this node led: it must not deliver
    /// as if nothing had happened.
    pub(super) fn was_away(&mut self, now: Now, outputs: &mut Vec<Output>) {
        for group in self.with_replicas() {
            let Some(replica) = self.replica(group) else { continue };
            if replica.log().is_alone() || !replica.is_leader() {
                continue;
            }
            replica.step_down();
            if group != GroupId::CATALOG {
                self.review_leadership(now, group, outputs);
            }
        }
        // A leader may have given up what sessions of this node were sent meanwhile, and others may have it: they are told
        // nothing of it, and get again what is still theirs.
        for out in self.out.values_mut() {
            if matches!(out.remote.route, Route::There { .. }) {
                out.remote.route = Route::Nowhere;
            }
        }
        self.route_all(now, outputs);
    }

    /// Takes up or gives up leadership where that is due.
    fn review_leadership(&mut self, now: Now, group: GroupId, outputs: &mut Vec<Output>) {
        let Some(found) = self.groups.get_mut(&group) else { return };
        if !found.group.replica.is_leader() {
            found.group.early.clear();
        }
        if found.group.ceases_to_lead() {
            self.cease_to_lead(now, group, outputs);
        }
        let Some(found) = self.groups.get_mut(&group) else { return };
        if found.group.begins_to_lead() {
            let nodes = self.expected(now, group);
            let Some(found) = self.groups.get_mut(&group) else { return };
            found.lead(now, nodes, self.peers.lost());
            // Its own sessions' numbered batches, and what others sent early.
            self.own.push_back(Input::TimePassed);
            let nodes: Vec<NodeId> = self.reachable().into_iter().collect();
            for node in nodes {
                let Some(found) = self.groups.get(&group) else { return };
                let (term, time_ms) = (found.group.replica.term(), found.time.at(now));
                self.send(node, Message::Leads { group, term, time_ms }, outputs);
            }
        }
        self.route(now, group, outputs);
    }

    /// What this node's sessions have in the group is its leader's business now.
    pub(super) fn take_over(&mut self, now: Now, group: GroupId, outputs: &mut Vec<Output>) {
        let out = self.outbound(group);
        let (consumers, asked) = out.remote.take_over();
        out.batches.rewind();
        out.log_settles_again(now);
        if group == GroupId::CATALOG {
            return;
        }
        out.batches.close(now.wall_ms);
        let (producer, last) = (out.batches.producer(), out.batches.last());
        if let Some(found) = self.groups.get_mut(&group) {
            found.has_taken_over(producer, last);
        }
        let me = self.me.node;
        let is_ours = |session| Self::is_ours(me, session);
        self.in_queues(group, outputs, |queues, group_effects| {
            queues.join(is_ours, consumers, group_effects)
        });
        for (session, request) in asked {
            self.request_here(now, session, group, request, outputs);
        }
    }

    fn cease_to_lead(&mut self, now: Now, group: GroupId, outputs: &mut Vec<Output>) {
        let me = self.me.node;
        let is_ours = |session: SessionId| Self::is_ours(me, session);
        self.peers.asked.retain(|_, of| *of != group);
        let Some(found) = self.groups.get_mut(&group) else { return };
        let mut left = found.queues.follow(is_ours);
        let early_asked = std::mem::take(&mut found.early_asked);
        let joined = std::mem::take(&mut found.joined);
        left.settled.extend(found.follow());
        // Who waits for an answer of this leader is to wait for the next, or to hear that there is none.
        for (node, epoch) in joined {
            self.send(node, Message::NotLeader { group, epoch }, outputs);
        }
        let early_asked = early_asked.into_iter().map(|asked| (asked.session, asked.request));
        left.asked.extend(early_asked.filter(|(session, _)| is_ours(*session)));
        let out = self.outbound(group);
        out.remote.hand_over(left.consumers, left.asked);
        // The next leader is told what they hold without what their transactions settle.
        for held in out.batches.settles() {
            out.remote.let_go(held.queue, held.consumer, &held.ranges);
            out.remote.add_credit(held.queue, held.consumer, held.credit);
        }
        for batch in left.settled {
            out.batches.add(now.wall_ms, batch, Waiter::Nobody, Vec::new());
        }
        for (session, ticket) in left.detached {
            let answer = crate::request::Answer::Detached { ticket };
            outputs.push(Output::Answer { session, answer });
        }
    }

    /// Tells producers what is on a majority's disks.
    fn confirm(&mut self, group: GroupId, outputs: &mut Vec<Output>) {
        if self.is_stopped(group) {
            return;
        }
        let Some(found) = self.groups.get_mut(&group) else { return };
        if !found.group.serves() {
            return;
        }
        let committed = committed_by(found);
        let mut last: BTreeMap<ProducerId, u64> = BTreeMap::new();
        while let Some((producer, seq)) =
            found.group.inbox.confirm(committed, found.group.applied())
        {
            last.insert(producer, seq);
        }
        for (producer, seq) in last {
            if producer == self.producer() {
                self.numbered_committed(group, seq, outputs);
            } else if producer.node != self.me.node {
                let epoch = self.joined(group, producer.node).unwrap_or(0);
                let message = Message::Committed { group, epoch, boot: producer.boot, seq };
                self.send(producer.node, message, outputs);
            }
        }
    }

    /// Once it is known who holds what, the others may have the rest.
    fn begin_dispatch(&mut self, now: Now, group: GroupId, outputs: &mut Vec<Output>) {
        let Some(found) = self.groups.get_mut(&group) else { return };
        if !found.group.serves() {
            return;
        }
        if found.may_dispatch(now.mono_ms) {
            found.queues.start_dispatch(&mut self.group_effects);
            self.grant(group, outputs);
        }
        let Some(found) = self.groups.get_mut(&group) else { return };
        if found.early_asked.is_empty() {
            return;
        }
        for asked in found.take_asked() {
            self.request_now(now, asked.session, group, asked.request, outputs);
        }
    }

    /// The node that leads `group` when all is well.
    pub(super) fn preferred_leader(&mut self, group: GroupId) -> Option<NodeId> {
        if let Some(node) = self.members.preferred(group) {
            return Some(node);
        }
        // The catalog is not heard yet.
        let replica = self.replica(group)?;
        let mut voters = replica.voters().to_vec();
        voters.sort_unstable();
        let nth = (group.0 as usize).checked_rem(voters.len())?;
        voters.get(nth).copied().map(NodeId)
    }

    /// Leaders go where they belong, away from slow disks, and away from a node that stops.
    pub(super) fn balance(&mut self, now: Now) {
        let is_closing = self.closing.is_some();
        let is_review = self.clock.is_each(TICKS_PER_REVIEW);
        for group in self.with_replicas() {
            let preferred = self.preferred_leader(group);
            let me = self.me.node;
            let up: Vec<(NodeId, u64)> = self
                .peers
                .up()
                .filter_map(|node| Some((node, self.peers.up_since(node)?)))
                .collect();
            let is_slow = self.is_slow(group);
            let term = self.replica(group).filter(|it| it.is_leader()).map(|it| it.term());
            let Some(leading_ms) = self.reach.leads(group, term, now.mono_ms) else { continue };
            let may_get: BTreeSet<NodeId> = up
                .iter()
                .map(|(node, _)| *node)
                .filter(|node| self.reaches_no_less(now, group, *node, leading_ms))
                .collect();
            let wider: BTreeSet<NodeId> = up
                .iter()
                .map(|(node, _)| *node)
                .filter(|node| self.reaches_more(now, group, *node))
                .collect();
            let Some(replica) = self.replica(group) else { continue };
            if replica.is_transferring() || replica.log().is_alone() {
                continue;
            }
            let voters: Vec<NodeId> = replica.voters().iter().map(|voter| NodeId(*voter)).collect();
            let near = up
                .iter()
                .filter(|(node, _)| voters.contains(node))
                .filter_map(|(node, since)| {
                    Some((replica.lag_behind_majority(*node)?, *node, *since))
                })
                .filter(|(lag, _, _)| *lag <= LAG_NEAR);
            let target = if is_closing || is_slow {
                near.min().map(|(_, node, _)| node)
            } else if !wider.is_empty() {
                // A link between two others' is cut, or one to here: whoever is behind it goes on.
                near.filter(|(_, node, _)| wider.contains(node)).min().map(|(_, node, _)| node)
            } else if is_review && preferred != Some(me) {
                // It has been there for a while, so that nothing is moved to a node that comes and goes.
                near.filter(|(_, node, _)| Some(*node) == preferred && may_get.contains(node))
                    .find(|(_, _, since)| now.mono_ms >= since + SETTLED_IN_MS)
                    .map(|(_, node, _)| node)
            } else {
                None
            };
            let Some(node) = target else { continue };
            replica.transfer(node);
            if wider.contains(&node) {
                self.reach.hands_over(group, now.mono_ms);
            }
        }
    }

    /// Whether this leader's disk was behind the majority's for long.
    fn is_slow(&mut self, group: GroupId) -> bool {
        let Some(found) = self.groups.get_mut(&group) else { return false };
        found.note_slowness();
        found.slow_ticks >= SLOW_TICKS
    }
}

/// Ticks between two looks at who should lead.
const TICKS_PER_REVIEW: u64 = 10;

fn committed_by(found: &QueueGroup) -> u64 {
    if planted::is("confirm_before_majority") {
        return found.group.replica.persisted();
    }
    found.group.replica.committed()
}
