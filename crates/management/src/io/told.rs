//! What others have said last, and who wants to hear more: requests share it.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::sync::{Mutex, Notify, watch};

use crate::fronts::Told;

/// What nodes said of fronts last: `fronts`.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    pub(super) told: watch::Sender<Told>,
    /// Somebody wants to know of them.
    pub(super) wanted: Notify,
}

/// Relays and workers that this node is told of, and what they said last: `companions`.
#[derive(Debug, Default)]
pub(super) struct Companions {
    pub(super) addresses: OnceLock<Vec<String>>,
    /// What they are shown with an order.
    pub(super) secret: OnceLock<String>,
    /// When it was, in milliseconds since 1970.
    pub(super) last: Mutex<Option<(u64, Arc<Vec<Value>>)>>,
}
