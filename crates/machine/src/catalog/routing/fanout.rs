//! Fanout: everything goes everywhere.

use super::{Dest, Dests, Found};

#[derive(Clone, Debug, Default)]
pub(in crate::catalog) struct Fanout {
    all: Dests,
}

impl Fanout {
    pub(super) fn insert(&mut self, dest: Dest) {
        self.all.insert(dest);
    }

    pub(super) fn remove(&mut self, dest: &Dest) {
        self.all.remove(dest);
    }

    pub(in crate::catalog) fn find<'c>(&'c self, found: &mut Found<'c, '_>) {
        found.add(&self.all);
    }
}
