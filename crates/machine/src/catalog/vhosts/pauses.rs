//! Queues are paused, and go on.

use super::super::queues::QueuePause;
use super::super::refusal::{Kind, Refusal};
use super::super::{Catalog, CatalogEffect, check_name, not_found};

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
        effects.push(CatalogEffect::QueueChanged {
            queue: queue.id,
            group: queue.group,
            settings: queue.settings().clone(),
            revision,
        });
        true
    }
}
