//! Whether rows of a batch are written down one by one: some row's data kept a batch from being written as a whole.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long batches are written apart after that.
const APART_FOR: Duration = Duration::from_secs(30);

/// What the workers of one relay know of it.
#[derive(Debug, Default)]
pub(in crate::io) struct Apart(Mutex<Option<Instant>>);

impl Apart {
    /// The row is to be found.
    pub(in crate::io) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(in crate::io) fn is_on(&self) -> bool {
        let since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < APART_FOR)
    }
}
