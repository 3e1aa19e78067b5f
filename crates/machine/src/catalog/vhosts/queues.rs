//! Queues come, change and go: each in a group or in the memory of a node, and in the indexes.

use std::collections::BTreeMap;

use super::super::history_names::{PREFIX as HISTORIES, exchange_of};
use super::super::nodes::WIDE_SINCE;
use super::super::queues::{NewQueue, Partition, Queue, QueueSpec};
use super::super::refusal::{Kind, Refusal};
use super::super::routing::Dest;
use super::super::target::Target;
use super::super::{
    Catalog, CatalogEffect, CatalogReply, Destination, Event, check_name, not_found,
};
use super::operations::{tell_changed, tell_created};
use crate::ids::{GroupId, NodeId, QueueId, SessionOwner};
use crate::limits::{DEPARTED_QUEUES_MAX, REPLICAS_MAX};
use crate::settings::Features;
use crate::value::Arguments;

impl Catalog {
    /// Whether a queue can be stored. What a client may ask for is the broker's to judge: `broker::arguments`. It has
    /// done so before this is proposed, and compares its declaration with the queue that it finds. `reads`: the stream
    /// of a subscription.
    pub(in crate::catalog) fn check_create_queue(
        &self,
        vhost_name: &str,
        name: &str,
        arguments: &Arguments,
        reads: Option<QueueId>,
        partitions: u16,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        if vhost.queues.contains_key(name) {
            return Ok(());
        }
        check_name(Kind::Queue, name)?;
        let stream = |id: QueueId| self.queue_by_id(id).filter(|it| it.settings().is_stream());
        if reads.is_some_and(|id| stream(id).is_none_or(|stream| stream.vhost != vhost_name)) {
            // Deleted since the broker found it by its name.
            return Err(not_found(Kind::Queue, "x-stream", vhost_name));
        }
        self.check_arguments(vhost, arguments)?;
        if let Some(max) = vhost.limits.max_queues {
            let histories = vhost.queues.range(HISTORIES.to_owned()..);
            let histories = histories.take_while(|(name, _)| exchange_of(name).is_some()).count();
            if vhost.queues.len() - histories >= max as usize {
                let (queue, vhost) = (name.to_owned(), vhost_name.to_owned());
                return Err(Refusal::QueueLimit { queue, vhost, max });
            }
        }
        // A subscription gets as many partitions as its stream has.
        let of_stream = reads.and_then(stream).map_or(0, Queue::partition_count);
        self.check_queue_count(partitions.max(u16::try_from(of_stream).unwrap_or(u16::MAX)))
    }

    /// Whether there may be so many more.
    pub(in crate::catalog) fn check_queue_count(&self, more: u16) -> Result<(), Refusal> {
        let max = self.bounds.queues;
        if self.queue_names.len() + usize::from(more) > max {
            return Err(Refusal::LimitReached { kind: Kind::Queue, max });
        }
        Ok(())
    }

    /// Makes the queue, or finds that there is one of its name.
    pub(in crate::catalog) fn declare_queue(
        &mut self,
        new: NewQueue,
        effects: &mut Vec<CatalogEffect>,
    ) -> (CatalogReply, bool) {
        if let Some(queue) = self.queue(&new.vhost, &new.name) {
            let Queue { id: queue, group, .. } = *queue;
            return (CatalogReply::QueueDeclared { queue, group, created: false }, false);
        }
        let Target { queue, group, .. } = self.create_queue(new, effects);
        (CatalogReply::QueueDeclared { queue, group, created: true }, true)
    }

    /// Into its vhost, which must exist.
    pub(in crate::catalog) fn create_queue(
        &mut self,
        new: NewQueue,
        effects: &mut Vec<CatalogEffect>,
    ) -> Target {
        let stream = new.spec.settings.subscription().and_then(|it| self.queue_by_id(it.stream));
        let streams = stream.map_or_else(Vec::new, |stream| stream.partitions().collect());
        let (node, members) = (new.home.node(), self.members_of(&new.spec));
        let group = match (node, streams.first()) {
            (_, Some(stream)) => stream.group,
            (Some(node), None) => GroupId::local(node),
            (None, None) => self.emptiest_group(members, &[]),
        };
        let partitions =
            if streams.is_empty() { new.spec.partitions.into() } else { streams.len() };
        let mut queue = Queue::new(self.draw_queue(), group, new);
        queue.spec.partitions = u16::try_from(partitions).expect("the stream has at most so many");
        self.partition(&mut queue, &streams, partitions);
        self.govern_new(&mut queue);
        tell_created(&queue, 0, effects);
        let target = queue.target();
        self.insert_queue(queue);
        target
    }

    /// A queue that comes is as policies say.
    pub(in crate::catalog) fn govern_new(&self, queue: &mut Queue) {
        if let Some(vhost) = self.vhosts.get(&queue.vhost) {
            let governed = vhost.policies.govern_queue(queue.queue_type(), &queue.name);
            queue.govern(queue.spec.clone(), governed);
        }
    }

    /// How many voters the group of a new queue is to have at least, as far as there can be so many.
    pub(super) fn members_of(&self, spec: &QueueSpec) -> usize {
        // Older programs do not look at it: all replicas must choose the same group.
        let asked = spec.members.filter(|_| self.agreed >= WIDE_SINCE);
        usize::from(asked.unwrap_or(0)).min(REPLICAS_MAX).min(self.membership.nodes.len())
    }

    /// The group with the fewest queues, of those that have `members` voters if there is one; of several the one
    /// whose leader-to-be leads the fewest, so that a few queues use all nodes; then the first.
    ///
    /// The partitions of a queue, of which some are in the groups `taken`, go to as many groups and to as many leaders
    /// as there are.
    pub(super) fn emptiest_group(&self, members: usize, taken: &[GroupId]) -> GroupId {
        let counts = || (1..).map(GroupId).zip(self.group_queues.iter().copied());
        let mut led: BTreeMap<Option<NodeId>, u64> = BTreeMap::new();
        for (group, count) in counts() {
            *led.entry(self.preferred_leader(group)).or_default() += u64::from(count);
        }
        let emptiest = counts().min_by_key(|(group, count)| {
            let is_short = self.voters(*group).len() < members;
            let leader = self.preferred_leader(*group);
            let here = taken.iter().filter(|other| *other == group).count();
            let beside = taken.iter().filter(|other| self.preferred_leader(**other) == leader);
            (is_short, here, beside.count(), *count, led.get(&leader), *group)
        });
        emptiest.map_or(GroupId(1), |(group, _)| group)
    }

    pub(super) fn group_count_mut(&mut self, group: GroupId) -> Option<&mut u32> {
        self.group_queues.get_mut((group.0 as usize).checked_sub(1)?)
    }

    /// Puts it into its vhost, which must exist, and into the indexes.
    pub(in crate::catalog) fn insert_queue(&mut self, queue: Queue) {
        for Partition { queue: id, group, .. } in queue.partitions() {
            if let Some(count) = self.group_count_mut(group) {
                *count += 1;
            }
            self.queue_names.insert(id, (queue.vhost.clone(), queue.name.clone()));
            if id != queue.id {
                self.partitions.insert(id, queue.id);
            }
        }
        if let Some(owner) = queue.exclusive {
            self.exclusive.insert((owner, queue.id));
        }
        if let Some(node) = queue.node {
            self.local.insert((node, queue.id));
        }
        if let Some(vhost) = self.vhosts.get_mut(&queue.vhost) {
            vhost.note_history(&queue.name, queue.target());
            vhost.weight += queue.arguments.weight();
            vhost.queues.insert(queue.name.clone(), queue);
        }
    }

    /// Takes it out of the indexes.
    pub(in crate::catalog) fn forget_queue(
        &mut self,
        queue: &Queue,
        effects: &mut Vec<CatalogEffect>,
    ) {
        for Partition { queue: id, group, .. } in queue.partitions() {
            if let Some(count) = self.group_count_mut(group) {
                *count -= 1;
            }
            self.queue_names.remove(&id);
            self.partitions.remove(&id);
        }
        if let Some(owner) = queue.exclusive {
            self.exclusive.remove(&(owner, queue.id));
        }
        if let Some(node) = queue.node {
            self.local.remove(&(node, queue.id));
        }
        if let Some(gone) = self.gone.as_mut().filter(|gone| gone.len() < DEPARTED_QUEUES_MAX) {
            gone.push(Event::new("queue.deleted", &queue.vhost, &queue.name));
        }
        let dies = |it: &Features| it.dead_letters || it.delivery_limit.is_some();
        // What a changed queue was like before, nobody knows any more.
        if queue.revision > 0 || queue.features().is_some_and(dies) {
            if self.departed.len() >= DEPARTED_QUEUES_MAX {
                self.departed.pop_front();
            }
            self.departed.push_back(queue.clone());
        }
        let node = queue.node;
        effects.extend(queue.partitions().map(|Partition { queue, group, .. }| {
            CatalogEffect::QueueDeleted { queue, group, node }
        }));
    }

    pub(in crate::catalog) fn check_change_queue(
        &self,
        vhost_name: &str,
        name: &str,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        match vhost.queues.contains_key(name) {
            true => Ok(()),
            false => Err(not_found(Kind::Queue, name, vhost_name)),
        }
    }

    /// The queue is as declared, or as it was, and as policies say now. Whether it is declared differently.
    pub(in crate::catalog) fn change_queue(
        &mut self,
        vhost: &str,
        name: &str,
        only: QueueId,
        declared: Option<QueueSpec>,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let revision = self.version + 1;
        let Some(vhost) = self.vhosts.get_mut(vhost) else { return false };
        let Some(queue) = vhost.queues.get(name).filter(|queue| queue.id == only) else {
            return false;
        };
        let governed = vhost.policies.govern_queue(queue.queue_type(), name);
        let Some(queue) = vhost.queues.get_mut(name) else { return false };
        let declared = match declared {
            Some(declared) => queue.spec.changed_to(declared),
            None => queue.spec.clone(),
        };
        let has_changed = declared != queue.spec;
        let (before, settings) = (queue.target, queue.settings().clone());
        queue.govern(declared, governed);
        let now = queue.target;
        if settings == *queue.settings() && now == before {
            // What only the catalog looks at may be another: where dead letters go.
            return has_changed;
        }
        queue.revision = revision;
        tell_changed(queue, effects);
        vhost.retarget(&Destination::Queue(name.to_owned()), before, now);
        true
    }

    pub(in crate::catalog) fn check_delete_queue(
        &self,
        vhost_name: &str,
        name: &str,
        by: Option<SessionOwner>,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        let Some(queue) = vhost.queues.get(name) else { return Ok(()) };
        queue.check_access(vhost_name, by)?;
        if let Some(subscription) = vhost.subscriptions_of(queue).next() {
            let (name, vhost) = (name.to_owned(), vhost_name.to_owned());
            let subscription = subscription.name.clone();
            return Err(Refusal::HasSubscriptions { name, vhost, subscription });
        }
        self.check_no_history(queue)
    }

    pub(in crate::catalog) fn delete_queue(
        &mut self,
        vhost: &str,
        name: &str,
        only: Option<QueueId>,
        effects: &mut Vec<CatalogEffect>,
    ) -> (CatalogReply, bool) {
        let Some(queue) = self.queue(vhost, name) else { return (CatalogReply::Done, false) };
        let Queue { id: queue, group, .. } = *queue;
        if only.is_some_and(|only| only != queue) {
            return (CatalogReply::Done, false);
        }
        self.delete_queues_by_id(&[queue], effects);
        (CatalogReply::QueueDeleted { queue, group }, true)
    }

    /// With their bindings, and the auto-delete exchanges whose last binding goes with them.
    pub(in crate::catalog) fn delete_queues_by_id(
        &mut self,
        queues: &[QueueId],
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let mut all = queues.to_vec();
        let mut next = 0;
        while let Some(id) = all.get(next) {
            next += 1;
            let Some((vhost_name, name)) = self.queue_names.get(id).cloned() else { continue };
            let Some(vhost) = self.vhosts.get_mut(&vhost_name) else { continue };
            let Some(queue) = vhost.queues.remove(&name) else { continue };
            vhost.weight -= queue.arguments.weight();
            vhost.forget_history(&name);
            let dest = Dest::Queue(queue.target());
            let unused = vhost.unbind_destination(&Destination::Queue(name), &dest);
            all.extend(vhost.delete_exchanges(unused));
            self.forget_queue(&queue, effects);
        }
        !queues.is_empty()
    }
}
