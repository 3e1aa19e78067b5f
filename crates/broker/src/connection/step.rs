//! What one step of a session has at hand.

use std::time::Instant;

use machine::Catalog;

use crate::session::boundary::{Outputs, View};

/// One step: the time, what may be looked at, and what comes of it.
pub(crate) struct Step<'a> {
    pub(crate) now: Instant,
    pub(crate) view: &'a View<'a>,
    pub(crate) out: &'a mut Outputs,
    /// Somebody wants to see what passes: see `tap`.
    pub(crate) is_tapped: bool,
}

impl<'a> Step<'a> {
    /// This node's applied copy of the catalog.
    #[inline]
    pub(crate) fn catalog(&self) -> &'a Catalog {
        self.view.catalog
    }
}
