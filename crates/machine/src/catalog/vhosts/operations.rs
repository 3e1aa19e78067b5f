//! Queues are paused, and go on; subscriptions are set to another place of their streams.

use super::super::queues::QueuePause;
use super::super::refusal::{Kind, Refusal};
use super::super::{Catalog, CatalogEffect, check_name, not_found};
use super::partitions::tell_changed;
use crate::queue::StreamOffset;

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
}
