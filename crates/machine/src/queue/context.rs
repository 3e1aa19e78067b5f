//! What a level of a queue has to know of its surroundings when an entry is applied.

use crate::settings::Features;

/// What a level has to know of its surroundings when an entry is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) features: Option<&'a Features>,
    /// The entry's time.
    pub(crate) time_ms: u64,
    pub(crate) is_leading: bool,
}
