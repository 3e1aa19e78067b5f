//! What is done to queues that are there: they are paused, and go on; subscriptions are set to another place of their
//! streams; streams and their subscriptions get partitions.

use super::super::queues::{Partition, Queue, QueuePause, QueueSpec};
use super::super::refusal::{Kind, Refusal};
use super::super::{Catalog, CatalogEffect, Destination, check_name, not_found};
use crate::ids::QueueId;
use crate::queue::StreamOffset;
use crate::value::{Arguments, Value};

/// The argument that says how many partitions a stream has.
const ARGUMENT: &str = "x-partitions";

impl Catalog {
    pub(in crate::catalog) fn check_pause_queue(
        &self,
        vhost_name: &str,
        name: &str,
        by: Option<&str>,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        let queue =
            vhost.queues.get(name).ok_or_else(|| not_found(Kind::Queue, name, vhost_name))?;
        by.map_or(Ok(()), |by| check_name(Kind::User, by))?;
        self.check_no_history(queue)
    }

    /// Says whether anything is different now. Who pauses a queue that is paused changes nothing: it stays paused by
    /// whoever was first.
    pub(in crate::catalog) fn pause_queue(
        &mut self,
        vhost: &str,
        name: &str,
        pause: Option<QueuePause>,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let revision = self.version + 1;
        let vhost = self.vhosts.get_mut(vhost);
        let Some(queue) = vhost.and_then(|vhost| vhost.queues.get_mut(name)) else { return false };
        if queue.pause().is_some() == pause.is_some() {
            return false;
        }
        queue.set_pause(pause);
        queue.revision = revision;
        tell_changed(queue, effects);
        true
    }

    pub(in crate::catalog) fn check_seek_queue(
        &self,
        vhost_name: &str,
        name: &str,
    ) -> Result<(), Refusal> {
        self.check_change_queue(vhost_name, name)?;
        let queue = self.queue(vhost_name, name);
        if queue.is_none_or(|queue| queue.settings().subscription().is_none()) {
            let (name, vhost) = (name.to_owned(), vhost_name.to_owned());
            return Err(Refusal::NoSubscription { name, vhost });
        }
        Ok(())
    }

    /// Its group hears of it as of any change. If it hears of several at once, the last one counts.
    pub(in crate::catalog) fn seek_queue(
        &mut self,
        vhost: &str,
        name: &str,
        to: StreamOffset,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let vhost_name = vhost;
        let Some(queue) = self.queue(vhost, name) else { return false };
        let (id, mut spec) = (queue.id, queue.declared().clone());
        let features = spec.settings.features.as_deref_mut();
        let Some(subscription) = features.and_then(|features| features.subscription.as_mut())
        else {
            return false;
        };
        (subscription.start, subscription.seeks) = (to, subscription.seeks.saturating_add(1));
        self.change_queue(vhost_name, name, id, Some(spec), effects)
    }

    /// A number that no queue had.
    pub(super) fn draw_queue(&mut self) -> QueueId {
        let id = QueueId(self.next_queue);
        self.next_queue += 1;
        id
    }

    /// Gives a queue, which is in no index, the partitions that it lacks of `count`. Those of a subscription are where
    /// the ones of its stream are, `streams`; all others go to as many groups as there are.
    pub(super) fn partition(&mut self, queue: &mut Queue, streams: &[Partition], count: usize) {
        let members = self.members_of(&queue.spec);
        while queue.partition_count() < count {
            let taken: Vec<_> = queue.partitions().map(|partition| partition.group).collect();
            let stream = streams.get(taken.len());
            let group =
                stream.map_or_else(|| self.emptiest_group(members, &taken), |stream| stream.group);
            let reads = stream.map(|stream| stream.queue);
            let id = self.draw_queue();
            queue.more.push(Partition { queue: id, group, reads });
        }
    }

    /// Whether a queue may have as many partitions as it is to have.
    pub(in crate::catalog) fn check_more_partitions(
        &self,
        vhost: &str,
        name: &str,
        spec: &QueueSpec,
    ) -> Result<(), Refusal> {
        let Some(queue) = self.queue(vhost, name) else { return Ok(()) };
        let more = usize::from(spec.partitions).saturating_sub(queue.partition_count());
        let readers = self.vhost(vhost).map_or(0, |it| it.subscriptions_of(queue).count());
        let all = more.saturating_mul(1 + readers);
        self.check_queue_count(u16::try_from(all).unwrap_or(u16::MAX))
    }

    /// A stream gets as many partitions as `spec` says, if it has fewer, and its subscriptions with it. Says whether
    /// there are more now.
    pub(in crate::catalog) fn add_partitions(
        &mut self,
        vhost: &str,
        name: &str,
        only: QueueId,
        spec: &QueueSpec,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let Some(stream) = self.queue(vhost, name).filter(|queue| queue.id == only) else {
            return false;
        };
        if !stream.settings().is_stream()
            || usize::from(spec.partitions) <= stream.partition_count()
        {
            return false;
        }
        let readers = self.vhost(vhost).map_or_else(Vec::new, |it| {
            it.subscriptions_of(stream).map(|queue| queue.name.clone()).collect()
        });
        let streams = self.grow(vhost, name, &[], spec.partitions, effects);
        for reader in readers {
            self.grow(vhost, &reader, &streams, spec.partitions, effects);
        }
        true
    }

    /// Gives a queue more partitions. Gives all that it has now.
    fn grow(
        &mut self,
        vhost: &str,
        name: &str,
        streams: &[Partition],
        count: u16,
        effects: &mut Vec<CatalogEffect>,
    ) -> Vec<Partition> {
        let revision = self.version + 1;
        let Some(mut queue) = self.queue(vhost, name).cloned() else { return Vec::new() };
        let (had, before) = (queue.partition_count(), queue.target());
        self.partition(&mut queue, streams, count.into());
        queue.spec.partitions = count;
        queue.revision = revision;
        let weight = queue.arguments.weight();
        if queue.settings().is_stream() {
            // As if it had been declared so: definitions are made of the arguments.
            let Arguments(all) = &mut queue.arguments;
            all.retain(|(name, _)| name != ARGUMENT);
            all.push((ARGUMENT.to_owned(), Value::I64(count.into())));
        }
        let more_weight = queue.arguments.weight() - weight;
        queue.govern(queue.spec.clone(), queue.governed.clone());
        tell_created(&queue, had, effects);
        // Those that were there may share consumers with the new ones; and the new ones are as of this revision.
        tell_changed(&queue, effects);
        for Partition { queue: id, group, .. } in queue.partitions().skip(had) {
            if let Some(members) = self.group_count_mut(group) {
                *members += 1;
            }
            self.queue_names.insert(id, (vhost.to_owned(), name.to_owned()));
            self.partitions.insert(id, queue.id);
        }
        let (all, now) = (queue.partitions().collect(), queue.target());
        if let Some(found) = self.vhosts.get_mut(vhost) {
            found.weight += more_weight;
            found.queues.insert(name.to_owned(), queue);
            found.retarget(&Destination::Queue(name.to_owned()), before, now);
        }
        all
    }
}

/// The groups are told of the partitions of a new queue, or of those that it has beyond `had`.
pub(super) fn tell_created(queue: &Queue, had: usize, effects: &mut Vec<CatalogEffect>) {
    effects.extend(queue.partitions().skip(had).map(|partition| CatalogEffect::QueueCreated {
        queue: partition.queue,
        group: partition.group,
        node: queue.node,
        settings: queue.settings_of(partition),
    }));
}

/// The groups are told of what a queue is now.
pub(super) fn tell_changed(queue: &Queue, effects: &mut Vec<CatalogEffect>) {
    effects.extend(queue.partitions().map(|partition| CatalogEffect::QueueChanged {
        queue: partition.queue,
        group: partition.group,
        settings: queue.settings_of(partition),
        revision: queue.revision,
    }));
}
