//! The group without a log: queues that live in this node's memory and go with it.

use std::collections::BTreeMap;

use bytes::Bytes;
use machine::{Applied, Batch, GroupId, NodeId, ProducerId, QueueMachine};

use super::Shard;
use crate::exchange::{Now, Output};
use crate::group_time::GroupTime;
use crate::queues::{Origin, Queues};
use crate::request::Held;
use crate::waiter::Waiter;

pub(super) struct Local {
    pub(super) group: GroupId,
    pub(super) queues: Queues,
    pub(super) time: GroupTime,
    /// Nodes whose sessions have joined, and under which epoch.
    pub(super) joined: BTreeMap<NodeId, u64>,
    index: u64,
    /// Boot and number of the last numbered batch of each node. They begin anywhere: what came before was taken
    /// by this node's earlier life, and went with it.
    taken: BTreeMap<NodeId, (u64, u64)>,
}

impl Local {
    /// Whether this numbered batch is new.
    pub(super) fn takes(&mut self, producer: ProducerId, seq: u64) -> bool {
        let numbered = (producer.boot, seq);
        let is_new = self.taken.get(&producer.node).is_none_or(|last| *last < numbered);
        if is_new {
            self.taken.insert(producer.node, numbered);
        }
        is_new
    }

    /// Tells the time; it begins with the first that is told.
    pub(super) fn set_now(&mut self, now: Now) {
        if !self.time.is_known() {
            self.time.lead(now, 0);
        }
        self.queues.set_now(now.mono_ms, self.time.at(now));
    }

    /// When a message falls due, in `Now::mono_ms`.
    pub(super) fn time_deadline_ms(&self, now: Now) -> Option<u64> {
        self.queues.time_deadline_ms().map(|due| self.time.when(now, due))
    }

    pub(super) fn new(node: NodeId) -> Self {
        let group = GroupId::local(node);
        let mut queues = Queues::new(group, QueueMachine::new());
        queues.lead(0);
        queues.start_dispatch(&mut Vec::new());
        Self {
            group,
            queues,
            time: GroupTime::default(),
            joined: BTreeMap::new(),
            index: 0,
            taken: BTreeMap::new(),
        }
    }
}

impl Shard {
    pub(super) fn is_local_here(&self, group: GroupId) -> bool {
        group == GroupId::local(self.me.node)
    }

    pub(super) fn apply_local(
        &mut self,
        now: Now,
        batch: Batch,
        settles: &[Held],
        waiter: Waiter,
        outputs: &mut Vec<Output>,
    ) {
        let Some(local) = &mut self.local else { return };
        local.queues.settled_by_entry(settles, &mut self.group_effects);
        let entry = Bytes::from(batch.stamp(local.time.at(now)));
        self.apply_local_entry(now, entry);
        outputs.extend(waiter.committed());
        self.grant(GroupId::local(self.me.node), outputs);
    }

    /// What it brings is still to be granted.
    pub(super) fn apply_local_entry(&mut self, now: Now, entry: Bytes) {
        let Some(local) = &mut self.local else { return };
        local.index += 1;
        let at = Applied { index: local.index, time_ms: local.time.at(now) };
        let applied = local.queues.apply(at, &entry, Origin::Memory, &mut self.group_effects);
        assert!(applied.is_ok(), "a batch of our own making cannot be read");
    }

    /// Does what is due. Settles of queues that have no log need not wait for anything.
    pub(super) fn settle_local(&mut self, now: Now, outputs: &mut Vec<Output>) {
        if let Some(local) = &mut self.local {
            local.queues.keep_time(&mut self.group_effects);
        }
        while let Some(local) = &mut self.local
            && local.queues.settle_deadline_ms().is_some()
        {
            let mut batch = Batch::new();
            local.queues.take_settled(&mut batch);
            if batch.is_empty() {
                break;
            }
            let entry = Bytes::from(batch.stamp(local.time.at(now)));
            self.apply_local_entry(now, entry);
        }
        if self.local.is_some() {
            self.grant(GroupId::local(self.me.node), outputs);
        }
    }
}
