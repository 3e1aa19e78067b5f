//! The bindings of a vhost, by either end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::binding::Binding;
use super::destination::Destination;

/// All bindings of a vhost, by either end. Those of the default exchange are not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings {
    by_source: BTreeMap<String, BTreeSet<Arc<Binding>>>,
    by_destination: BTreeMap<Destination, BTreeSet<Arc<Binding>>>,
    /// What their arguments weigh.
    weight: usize,
}

impl Bindings {
    pub(super) fn contains(&self, binding: &Binding) -> bool {
        self.by_source.get(&binding.source).is_some_and(|bindings| bindings.contains(binding))
    }

    pub(super) fn insert(&mut self, binding: Arc<Binding>) {
        self.weight += binding.arguments.weight();
        self.by_source.entry(binding.source.clone()).or_default().insert(binding.clone());
        self.by_destination.entry(binding.destination.clone()).or_default().insert(binding);
    }

    pub(super) fn remove(&mut self, binding: &Binding) {
        self.weight -= binding.arguments.weight();
        remove_from(&mut self.by_source, &binding.source, binding);
        remove_from(&mut self.by_destination, &binding.destination, binding);
    }

    pub(super) fn remove_source(&mut self, source: &str) {
        for binding in self.by_source.remove(source).unwrap_or_default() {
            self.weight -= binding.arguments.weight();
            remove_from(&mut self.by_destination, &binding.destination, &binding);
        }
    }

    pub(super) fn remove_destination(
        &mut self,
        destination: &Destination,
    ) -> BTreeSet<Arc<Binding>> {
        let all = self.by_destination.remove(destination).unwrap_or_default();
        for binding in &all {
            self.weight -= binding.arguments.weight();
            remove_from(&mut self.by_source, &binding.source, binding);
        }
        all
    }

    pub(super) fn to_destination(
        &self,
        destination: &Destination,
    ) -> impl Iterator<Item = &Binding> {
        self.by_destination.get(destination).into_iter().flatten().map(Arc::as_ref)
    }

    pub(super) fn of_source(&self, source: &str) -> impl Iterator<Item = &Binding> {
        self.by_source.get(source).into_iter().flatten().map(Arc::as_ref)
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn has_source(&self, source: &str) -> bool {
        self.by_source.contains_key(source)
    }

    pub(super) fn source_count(&self, source: &str) -> usize {
        self.by_source.get(source).map_or(0, BTreeSet::len)
    }

    /// By source, destination, key.
    pub(super) fn all(&self) -> impl Iterator<Item = &Binding> {
        self.by_source.values().flatten().map(Arc::as_ref)
    }
}

/// Sets that become empty go: an exchange without bindings costs nothing.
fn remove_from<K: Ord + Clone>(
    sets: &mut BTreeMap<K, BTreeSet<Arc<Binding>>>,
    key: &K,
    binding: &Binding,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(binding);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
