//! The times that a look at a queue goes by.

/// When it is, and before when something must have expired that is thrown away, ms since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now_ms: u64,
    pub(crate) before_ms: u64,
}
