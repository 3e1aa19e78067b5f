//! Where a store ends.

/// Where a store ends: the number that its next message gets. Nothing from here on has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End(pub(crate) u64);
