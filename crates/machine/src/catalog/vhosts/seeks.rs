//! Subscriptions are set to another place of their streams.

use super::super::refusal::{Kind, Refusal};
use super::super::{Catalog, CatalogEffect, not_found};
use crate::queue::StreamOffset;

impl Catalog {
    pub(in crate::catalog) fn check_seek_queue(
        &self,
        vhost_name: &str,
        name: &str,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        let queue = vhost.queues.get(name);
        let queue = queue.ok_or_else(|| not_found(Kind::Queue, name, vhost_name))?;
        if queue.settings().subscription().is_none() {
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
