//! Other settings for a queue that has begun: what a policy changes.
//!
//! | Setting | What a change means |
//! | --- | --- |
//! | `message_ttl_ms` | it counts for messages that come later |
//! | `expires_ms` | the queue counts as used at this moment |
//! | `max_length`, `overflow` | they count at once: what is too much leaves, or publishers are refused |
//! | `max_length_bytes` | it counts at once, for the bodies that came while there was such a limit |
//! | `dead_letters` | it counts for messages that die later |
//! | `delivery_limit`, `counts_returns`, `retry` | they count for messages that come back later |
//!
//! What a queue is made of stays as it was declared: whether it is durable, auto-delete, single active, which priorities
//! it has and which keys it remembers.

use super::{Effect, Queue};
use crate::settings::{Features, QueueSettings};

impl Queue {
    /// The queue behaves as `new` says from here on, as far as that can change.
    pub(super) fn set_settings(
        &mut self,
        new: QueueSettings,
        (time_ms, is_leading): (u64, bool),
        effects: &mut Vec<Effect>,
    ) {
        // What came before it in its entry came under the settings of before.
        self.end_runs(time_ms, is_leading, effects);
        let before = self.settings.features.take().map_or_else(Features::default, |it| *it);
        let new = new.features.map_or_else(Features::default, |it| *it);
        let Features { max_priority, single_active, dedup, .. } = before;
        let features = Features { max_priority, single_active, dedup, ..new };
        // A queue without any is served on the short way.
        self.settings.features = (features != Features::default()).then(|| Box::new(features));
        self.touch(time_ms);
    }
}
