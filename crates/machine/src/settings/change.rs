//! Other settings for a queue that is there: what a policy changes.
//!
//! | Setting | What a change means |
//! | --- | --- |
//! | `message_ttl_ms` | it counts for messages that come later |
//! | `expires_ms` | the queue counts as used at this moment |
//! | `max_length`, `overflow` | they count at once: what is too much leaves, or publishers are refused |
//! | `max_length_bytes` | it counts at once, for the bodies that came while there was such a limit |
//! | `dead_letters` | it counts for messages that die later |
//! | `delivery_limit`, `counts_returns`, `retry` | they count for messages that come back later |
//! | `stream` | its bounds count at once |
//! | `subscription` | it is set to another place, or holds what is not settled, from here on; its stream stays |
//! | `assignment` | there are more partitions: some may be another consumer's |
//! | `rates` | they count at once; tokens stay, as far as they are within the new burst. Bytes count of messages that came while there was a rate of bytes |
//! | `tokens_of` | tokens that it has are gone: it borrows from here on, or has a bucket of its own, which is empty |
//! | `is_paused` | nobody is given messages any more, or those who wait are at once |
//!
//! What a queue is made of stays as it was declared: whether it is durable, auto-delete, single active, a stream, which
//! priorities it has, which keys it remembers, which stream it reads and what of it its filter matches, and the key of its
//! order.

use super::{Features, QueueSettings, Subscription};

impl QueueSettings {
    /// The settings of a queue that was like this and is to behave as `new` says, as far as that can change.
    pub(crate) fn changed_to(&self, new: Self) -> Self {
        let features = |settings: &Self| settings.features.as_deref().cloned().unwrap_or_default();
        let Features {
            max_priority,
            single_active,
            dedup,
            stream,
            subscription,
            assignment,
            filter,
            order,
            ..
        } = features(self);
        let subscription = subscription.map(|it| {
            let new = features(&new).subscription.unwrap_or(it);
            // Who declares it again does not set it to where it began.
            let is_set = new.seeks > it.seeks;
            let (start, seeks) = if is_set { (new.start, new.seeks) } else { (it.start, it.seeks) };
            Subscription { stream: it.stream, start, skips: new.skips, seeks }
        });
        let assignment = assignment.map(|it| features(&new).assignment.unwrap_or(it));
        let features = match stream {
            Some(_) => {
                let stream = Some(features(&new).stream.unwrap_or_default());
                Features { stream, ..Features::default() }
            }
            None => Features {
                max_priority,
                single_active,
                dedup,
                stream,
                subscription,
                assignment,
                filter,
                order,
                ..features(&new)
            },
        };
        // A queue without any is served on the short way.
        let features = (features != Features::default()).then(|| Box::new(features));
        Self { features, is_paused: new.is_paused, ..self.clone() }
    }
}
