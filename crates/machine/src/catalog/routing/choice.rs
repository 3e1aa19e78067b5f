//! One of all bindings, by a number: chance, or a hash of the key.

use super::{Dest, Dests, Found};

#[derive(Clone, Debug, Default)]
pub(in crate::catalog) struct Choice {
    all: Dests,
    /// Bindings, of which a destination may have several.
    count: u32,
}

impl Choice {
    pub(super) fn insert(&mut self, dest: Dest) {
        self.all.insert(dest);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, dest: &Dest) {
        self.all.remove(dest);
        self.count -= 1;
    }

    /// The number modulo the count.
    pub(in crate::catalog) fn find<'c>(&'c self, number: u64, found: &mut Found<'c, '_>) {
        if self.count > 0 {
            let nth = number % u64::from(self.count);
            self.all.nth(nth as u32, self.count).into_iter().for_each(|dest| found.add_one(dest));
        }
    }
}
