//! A value shared by the writer, the readers and the flusher, held for a few instructions at a
//! time. Never locked across a write or a sync of the log.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// A thread that panicked while it held the lock has broken an assertion about itself; what
    /// it guards here is only changed in whole steps.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
