//! Where a session's messages go, remembered: exchange and routing key to queues, for as long as the
//! catalog does not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use machine::{GroupId, QueueId};

use crate::limits;

/// The queues of one message, by the group that stores them. Empty: nobody takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) groups: Vec<(GroupId, Vec<QueueId>)>,
}

impl Route {
    pub(crate) fn add(&mut self, group: GroupId, queue: QueueId) {
        match self.groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, queues)) if queues.contains(&queue) => {}
            Some((_, queues)) => queues.push(queue),
            None => self.groups.push((group, vec![queue])),
        }
    }

    /// The queues come from routing, which says each once.
    pub(crate) fn add_new(&mut self, group: GroupId, queue: QueueId) {
        match self.groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, queues)) => queues.push(queue),
            None => self.groups.push((group, vec![queue])),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

/// Routes by exchange and routing key as they stand on the wire, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// The version of the catalog that all of them hold for.
    version: u64,
    places: BTreeMap<Arc<[u8]>, usize>,
    routes: Vec<(Arc<[u8]>, Route)>,
    last: usize,
}

impl Routes {
    #[inline]
    pub(crate) fn find(&mut self, version: u64, destination: &[u8]) -> Option<usize> {
        if self.version != version {
            self.forget(version);
            return None;
        }
        if let Some((known, _)) = self.routes.get(self.last)
            && **known == *destination
        {
            return Some(self.last);
        }
        self.last = *self.places.get(destination)?;
        Some(self.last)
    }

    #[inline]
    pub(crate) fn at(&self, place: usize) -> &Route {
        &self.routes[place].1
    }

    pub(crate) fn keep(&mut self, version: u64, destination: &[u8], route: Route) -> usize {
        if self.version != version || self.routes.len() >= limits::ROUTES_MAX {
            self.forget(version);
        }
        let destination: Arc<[u8]> = Arc::from(destination);
        self.last = self.routes.len();
        self.places.insert(Arc::clone(&destination), self.last);
        self.routes.push((destination, route));
        self.last
    }

    fn forget(&mut self, version: u64) {
        self.version = version;
        self.places.clear();
        self.routes.clear();
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(queue: u64) -> Route {
        Route { groups: vec![(GroupId(1), vec![QueueId(queue)])] }
    }

    #[test]
    fn a_route_is_known_until_the_catalog_changes() {
        let mut routes = Routes::default();
        assert_eq!(routes.find(1, b"a"), None);
        routes.keep(1, b"a", route(1));
        routes.keep(1, b"b", route(2));
        let place = routes.find(1, b"a").unwrap();
        assert_eq!(routes.at(place), &route(1));
        assert_eq!(routes.find(2, b"a"), None);
        assert_eq!(routes.find(2, b"b"), None);
    }

    #[test]
    fn no_more_routes_are_kept_than_the_limit() {
        let mut routes = Routes::default();
        for key in 0..limits::ROUTES_MAX + 1 {
            routes.keep(1, &key.to_be_bytes(), Route::default());
        }
        assert_eq!(routes.routes.len(), 1);
    }

    #[test]
    fn a_queue_that_two_keys_lead_to_is_in_the_route_once() {
        let mut both = route(1);
        both.add(GroupId(1), QueueId(1));
        both.add(GroupId(1), QueueId(2));
        both.add(GroupId(2), QueueId(3));
        let expected =
            vec![(GroupId(1), vec![QueueId(1), QueueId(2)]), (GroupId(2), vec![QueueId(3)])];
        assert_eq!(both.groups, expected);
    }
}
