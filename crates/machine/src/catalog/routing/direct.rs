//! Direct: the routing key is the binding key.

use std::collections::BTreeMap;

use super::{Dest, Dests, Found};

#[derive(Clone, Debug, Default)]
pub(in crate::catalog) struct Direct {
    keys: BTreeMap<Box<str>, Dests>,
}

impl Direct {
    pub(super) fn insert(&mut self, key: &str, dest: Dest) {
        self.keys.entry(key.into()).or_default().insert(dest);
    }

    pub(super) fn remove(&mut self, key: &str, dest: &Dest) {
        if let Some(dests) = self.keys.get_mut(key) {
            dests.remove(dest);
            if dests.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    pub(in crate::catalog) fn find<'c>(&'c self, key: &str, found: &mut Found<'c, '_>) {
        if let Some(dests) = self.keys.get(key) {
            found.add(dests);
        }
    }
}
