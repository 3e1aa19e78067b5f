//! Group 0 on this node, and what its entries mean for the other groups.

use std::collections::BTreeSet;

use machine::{
    Batch, Catalog, CatalogCommand, Corrupt, GroupId, NodeId, QueueId, SessionId, Version,
};

use super::{Gathered, Shard};
use crate::exchange::{Input, Now, Output, Then, WantedQueue};
use crate::group::queues::QueueGroup;
use crate::limits::GONE_MS;
use crate::peer::message::Message;
use crate::request::{Answer, Ticket};
use crate::waiter::Waiter;

impl Shard {
    /// Everything that the catalog has to do in a step.
    pub(super) fn finish_catalog(
        &mut self,
        now: Now,
        gathered: &mut Gathered,
        outputs: &mut Vec<Output>,
    ) {
        let Some(catalog) = &mut self.catalog else { return };
        if catalog.group.is_frozen() {
            return;
        }
        catalog.group.note_leader(now.wall_ms);
        let committed = self.harvest(GroupId::CATALOG, gathered, outputs);
        for entry in &committed {
            if let Err(why) = self.apply_catalog(entry, outputs) {
                return self.stop_outdated(GroupId::CATALOG, entry.index, why, outputs);
            }
        }
        self.delete_heard();
        self.hand_out_membership(outputs);
        if self.is_too_old() {
            self.raise_version(now, outputs);
        } else {
            self.hand_out_reconciliation(outputs);
        }
        let Some(catalog) = &mut self.catalog else { return };
        if !catalog.group.replica.is_leader() {
            catalog.group.early.clear();
        }
        if catalog.review_leadership() {
            self.own.push_back(Input::TimePassed);
            self.raise_version(now, outputs);
        }
        self.confirm_catalog(outputs);
        self.route(now, GroupId::CATALOG, outputs);
        let Some(catalog) = &mut self.catalog else { return };
        if let Some(job) = catalog.due_checkpoint() {
            outputs.push(Output::Checkpoint(job));
        }
        self.cut(GroupId::CATALOG, outputs);
        self.help_followers(GroupId::CATALOG, outputs);
    }

    fn apply_catalog(
        &mut self,
        entry: &raft::eraftpb::Entry,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Corrupt> {
        self.outbound(GroupId::CATALOG);
        let Some(catalog) = &mut self.catalog else { return Ok(()) };
        let Some(out) = self.out.get_mut(&GroupId::CATALOG) else { return Ok(()) };
        let (mut inputs, mut told) = (Vec::new(), Vec::new());
        let at = catalog.commit(entry, &mut out.batches, &mut inputs, &mut told)?;
        let mut forwards = Vec::new();
        for (group, input) in inputs {
            let shard = Self::of(group, self.shards);
            if shard == self.number {
                self.own.push_back(input);
            } else {
                forwards.push((shard, input));
            }
        }
        if let Some(at) = at {
            let leads = catalog.group.replica.is_leader();
            let entry = entry.data.clone();
            outputs.push(Output::CatalogApplied { at, entry, forwards, leads });
        }
        outputs.append(&mut told);
        Ok(())
    }

    /// Producers resend what a leader does not confirm; they answer their sessions when they apply.
    fn confirm_catalog(&mut self, outputs: &mut Vec<Output>) {
        let Some(catalog) = &mut self.catalog else { return };
        let (committed, applied) = (catalog.group.replica.committed(), catalog.group.applied());
        let mut confirmed = Vec::new();
        while let Some(done) = catalog.group.inbox.confirm(committed, applied) {
            confirmed.push(done);
        }
        for (producer, seq) in confirmed {
            if producer.node != self.me.node {
                let (group, boot) = (GroupId::CATALOG, producer.boot);
                let message = Message::Committed { group, epoch: 0, boot, seq };
                self.send(producer.node, message, outputs);
            }
        }
    }

    /// A node that is alone asks nobody before it agrees on the newest version that it reads, and is not ready before: what
    /// its first client declares may need that.
    fn is_too_old(&self) -> bool {
        self.catalog.as_ref().is_some_and(|catalog| {
            let is_alone = catalog.group.replica.log().is_alone();
            is_alone && catalog.catalog().agreed() < self.me.speaks
        })
    }

    /// Once, after this node's start is in the catalog: what each shard's groups should have.
    pub(super) fn hand_out_reconciliation(&mut self, outputs: &mut Vec<Output>) {
        let Some(catalog) = &mut self.catalog else { return };
        if !catalog.is_started() {
            return;
        }
        let (next_queue, agreed) = (catalog.catalog().next_queue(), catalog.catalog().agreed());
        let Some(queues) = catalog.take_reconciliation() else { return };
        for shard in 0..self.shards {
            let queues = queues
                .iter()
                .filter(|wanted| Self::of(wanted.group, self.shards) == shard)
                .cloned()
                .collect();
            self.forward(shard, Input::Reconcile { queues, next_queue, agreed }, outputs);
        }
    }

    /// The groups are held against the catalog: what it has is created, what it had is dropped. A
    /// queue that it has not heard of yet is left alone.
    pub(super) fn reconcile(
        &mut self,
        now: Now,
        queues: &[WantedQueue],
        next_queue: u64,
        agreed: Version,
        outputs: &mut Vec<Output>,
    ) {
        let wanted: BTreeSet<(GroupId, QueueId)> =
            queues.iter().map(|wanted| (wanted.group, wanted.queue)).collect();
        let mut have = BTreeSet::new();
        for (&group, found) in &self.groups {
            have.extend(found.queues.machine().queues().map(|queue| (group, queue.base())));
        }
        // What lived in a node's memory, here or elsewhere: who uses it here is to hear that it is gone.
        if let Some(local) = &self.local {
            let queues = local.queues.machine().queues();
            have.extend(queues.map(|queue| (local.group, queue.base())));
        }
        for (&group, out) in self.out.iter().filter(|(group, _)| group.is_local()) {
            have.extend(out.remote.queues().map(|queue| (group, queue)));
        }
        for &(group, queue) in &have {
            if !wanted.contains(&(group, queue)) && queue.0 < next_queue {
                self.drop_queue(now, group, queue, None, outputs);
            }
        }
        for wanted in queues {
            let WantedQueue { group, queue, .. } = *wanted;
            let is_elsewhere = group.is_local() && !self.is_local_here(group);
            if is_elsewhere {
                continue;
            }
            if !have.contains(&(group, queue)) {
                let batch = creation(wanted, agreed);
                self.create_queue(now, group, batch, None, outputs);
            } else if self.revision(group, queue).is_some_and(|has| has < wanted.revision) {
                self.create_queue(now, group, change(wanted), None, outputs);
            }
        }
        self.members.is_reconciling = true;
    }

    /// Once what it has to say is on its way to the groups' leaders, the node may serve.
    pub(super) fn answer_reconciled(&mut self, outputs: &mut Vec<Output>) {
        let is_ready = |found: &QueueGroup| {
            !found.group.replica.log().is_alone()
                || (found.group.serves() && !found.group.inbox.is_waiting())
        };
        if self.members.is_reconciling && self.groups.values().all(is_ready) {
            self.members.is_reconciling = false;
            outputs.push(Output::Reconciled);
        }
    }

    /// Which change of the catalog the replica on this node has heard of last.
    fn revision(&self, group: GroupId, queue: QueueId) -> Option<u64> {
        let local = self.local.as_ref().filter(|local| local.group == group);
        let queues = local.map(|local| &local.queues);
        let queues = queues.or_else(|| self.groups.get(&group).map(|found| &found.queues));
        queues?.machine().revision(queue)
    }

    /// Puts what `creation` or `change` made into this node's next numbered batch for the group.
    pub(super) fn create_queue(
        &mut self,
        now: Now,
        group: GroupId,
        batch: Batch,
        then: Option<Then>,
        outputs: &mut Vec<Output>,
    ) {
        let waiter = created(then);
        if group.is_local() && !self.is_local_here(group) {
            // Its own node makes it, and is the only one that may have asked for it.
            return outputs.extend(waiter.committed());
        }
        self.append(now, group, batch, Vec::new(), waiter, outputs);
    }

    pub(super) fn drop_queue(
        &mut self,
        now: Now,
        group: GroupId,
        queue: QueueId,
        then: Option<Then>,
        outputs: &mut Vec<Output>,
    ) {
        let waiter = created(then);
        if !self.is_local_here(group) {
            self.outbound(group).remote.deleted(queue);
        }
        if group.is_local() && !self.is_local_here(group) {
            let (consumers, asked) = self.outbound(group).remote.dropped(queue);
            for consumer in consumers {
                let answer = Answer::Cancelled { queue, consumer };
                outputs.push(Output::Answer { session: consumer.session, answer });
            }
            for (session, request) in asked {
                let answer = request.answer_without_queue();
                outputs.extend(answer.map(|answer| Output::Answer { session, answer }));
            }
            return outputs.extend(waiter.committed());
        }
        let mut batch = Batch::new();
        batch.drop_queue(queue);
        self.append(now, group, batch, Vec::new(), waiter, outputs);
    }

    /// Whether the queue was in the memory of another node, and the catalog has deleted it. A session that asks may not
    /// have heard of that yet, and the other node may never hear of it.
    pub(super) fn is_gone_elsewhere(&self, group: GroupId, queue: QueueId) -> bool {
        let queue = queue.base();
        let is_deleted = |catalog: &Catalog| {
            queue.0 < catalog.next_queue() && catalog.queue_by_id(queue).is_none()
        };
        group.is_local() && !self.is_local_here(group) && self.catalog().is_some_and(is_deleted)
    }

    /// The last consumer of an auto-delete queue went, or nobody has used a queue for long: it goes, too.
    pub(super) fn unused(
        &mut self,
        now: Now,
        queue: QueueId,
        detached: Option<(SessionId, Ticket)>,
        outputs: &mut Vec<Output>,
    ) {
        let waiter = match detached {
            Some((session, ticket)) => Waiter::Detached { session, ticket },
            None => Waiter::Nobody,
        };
        if let Some(waiter) = self.delete_unused(now, queue, waiter, outputs) {
            outputs.extend(waiter.committed());
        }
    }

    /// What was of no use before the catalog had heard of it goes now that it has.
    fn delete_heard(&mut self) {
        let Some(catalog) = self.catalog.as_ref().filter(|_| !self.node_wide.unheard.is_empty())
        else {
            return;
        };
        let later = self.node_wide.unheard.split_off(&QueueId(catalog.catalog().next_queue()));
        for queue in std::mem::replace(&mut self.node_wide.unheard, later) {
            self.own.push_back(Input::DeleteUnused { queue, detached: None });
        }
    }

    /// Deletes the queue `queue`, which is of no use any more. If it is not there any more, the waiter is handed back.
    pub(super) fn delete_unused(
        &mut self,
        now: Now,
        queue: QueueId,
        waiter: Waiter,
        outputs: &mut Vec<Output>,
    ) -> Option<Waiter> {
        let Some(catalog) = self.catalog.as_ref().map(|it| it.catalog()) else {
            return Some(waiter);
        };
        let Some(found) = catalog.queue_by_id(queue) else {
            if queue.0 >= catalog.next_queue() {
                // Its group has heard of it sooner than group 0 here, and takes no consumer any more.
                self.node_wide.unheard.insert(queue);
            }
            return Some(waiter);
        };
        let (vhost, name, queue) = (found.vhost.clone(), found.name.clone(), Some(found.id));
        let command = CatalogCommand::DeleteQueue { vhost, name, queue, by: None };
        self.change(now, &command, waiter, outputs);
        None
    }

    /// What lives in the memory of a node that is gone for long is gone.
    pub(super) fn expire_gone_nodes(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let Some(catalog) = self.catalog.as_ref().filter(|catalog| catalog.group.serves()) else {
            return;
        };
        // Another may have led when it went, or this node may have started after that.
        let me = self.me.node;
        let there = catalog.catalog().nodes_with_memory().filter(|node| *node != me);
        self.peers.miss(there, now.mono_ms);
        let gone: Vec<NodeId> = self.peers.take_gone(now.mono_ms, GONE_MS);
        for node in gone {
            self.change(now, &CatalogCommand::NodeGone { node }, Waiter::Nobody, outputs);
        }
    }
}

/// What creates a queue in its group, in a cluster that has agreed on a version.
pub(super) fn creation(wanted: &WantedQueue, agreed: Version) -> Batch {
    let WantedQueue { group, queue, settings, revision } = wanted;
    let mut batch = Batch::new();
    batch.create_queue(*queue, settings);
    // What lives in memory has no other leader ever.
    if !group.is_local() && agreed >= Version::KEPT_MARKS {
        batch.keep_marks(*queue);
    } else if !group.is_local() {
        batch.mark_delivered(*queue, 1);
    }
    if *revision > 0 {
        batch.set_settings(*queue, *revision, settings);
    }
    batch
}

/// What changes a queue in its group.
pub(super) fn change(wanted: &WantedQueue) -> Batch {
    let mut batch = Batch::new();
    batch.set_settings(wanted.queue, wanted.revision, &wanted.settings);
    batch
}

/// Who waits for a queue to be created in its group, or dropped from it.
fn created(then: Option<Then>) -> Waiter {
    match then {
        Some(Then { session, ticket, reply }) => Waiter::Created { session, ticket, reply },
        None => Waiter::Nobody,
    }
}
