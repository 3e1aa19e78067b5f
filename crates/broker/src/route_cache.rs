//! Where a session's messages go, remembered: exchange and routing key to queues, for as long as the
//! catalog does not change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use machine::{Attributes, Catalog, GroupId, QueueId, Target};

use crate::attributes::Asked;
use crate::exchange_counts::Place;
use crate::limits;
use crate::partitions::Partitioned;

/// The queues of one message, by the group that stores them. Empty: nobody takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// Queues that take a message as it is.
    pub(crate) groups: Vec<(GroupId, Vec<QueueId>)>,
    /// Queues that want to know more of it, or are asked first; sorted, so that what goes into one
    /// command stands together. A plain route has none.
    pub(crate) special: Vec<Target>,
    /// Whether one of the queues takes it: what only remembers messages does not count.
    pub(crate) is_routed: bool,
    /// Whether some of them are asked first.
    pub(crate) is_guarded: bool,
    /// Whether some of them want the message's key.
    pub(crate) dedups: bool,
    /// How many queues take it: what only remembers messages does not count.
    pub(crate) queue_count: u64,
    /// Streams of which one partition takes it: `placed` says which. They are in none of the above.
    partitioned: Vec<Partitioned>,
    /// Of a single one: what the route is for each of its partitions.
    variants: Vec<Route>,
}

impl Route {
    /// Where routing sends a message, before it is known into which partitions it goes.
    pub(crate) fn before_placing(catalog: &Catalog, targets: &[Target]) -> Self {
        if !targets.iter().any(|target| target.has_partitions) {
            return Self::of(targets);
        }
        let is_one = |target: &&Target| !target.has_partitions;
        let others: Vec<Target> = targets.iter().filter(is_one).copied().collect();
        let mut route = Self::of(&others);
        let partitioned = targets.iter().filter_map(|target| Partitioned::of(catalog, target));
        route.partitioned = partitioned.collect();
        if let [partitioned] = &route.partitioned[..] {
            let variant = |index| {
                let target = partitioned.target(index);
                Self::of(&others.iter().copied().chain([target]).collect::<Vec<_>>())
            };
            route.variants = (0..partitioned.count()).map(variant).collect();
        }
        route
    }

    /// Whether `placed` has to say where a message goes.
    #[inline]
    pub(crate) fn has_partitions(&self) -> bool {
        !self.partitioned.is_empty()
    }

    /// The route of a message for which a partition is chosen of each stream.
    pub(crate) fn placed(&self, mut choose: impl FnMut(&Partitioned) -> usize) -> Cow<'_, Self> {
        if let [partitioned] = &self.partitioned[..]
            && let Some(variant) = self.variants.get(choose(partitioned))
        {
            return Cow::Borrowed(variant);
        }
        let chosen =
            self.partitioned.iter().map(|partitioned| partitioned.target(choose(partitioned)));
        let plain = self.groups.iter().flat_map(|(group, queues)| {
            queues.iter().map(move |queue| Target::plain(*queue, *group))
        });
        Cow::Owned(Self::of(
            &plain.chain(self.special.iter().copied()).chain(chosen).collect::<Vec<_>>(),
        ))
    }

    /// Where routing sent a message: each queue once.
    pub(crate) fn of(targets: &[Target]) -> Self {
        let mut route = Self::default();
        for target in targets {
            route.is_routed |= !target.is_history;
            route.queue_count += u64::from(!target.is_history);
            if *target != Target::plain(target.queue, target.group) {
                route.is_guarded |= target.is_guarded;
                route.dedups |= target.dedups;
                route.special.push(*target);
                continue;
            }
            match route.groups.iter_mut().find(|(known, _)| *known == target.group) {
                Some((_, queues)) => queues.push(target.queue),
                None => route.groups.push((target.group, vec![target.queue])),
            }
        }
        route.special.sort_by_key(kind_of);
        route
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.special.is_empty()
    }

    /// Whether nothing has to be known of a message to store it there.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.special.is_empty()
    }

    /// No message for it becomes more commands than this.
    #[inline]
    pub(crate) fn parts_max(&self) -> usize {
        self.groups.len() + self.special.len()
    }

    /// The commands of one message: for which group, with which attributes, for which queues. Without
    /// the queues that are asked first.
    pub(crate) fn parts(
        &self,
        asked: &Asked,
        levels: &mut Vec<QueueId>,
        mut part: impl FnMut(GroupId, &Attributes, &[QueueId]),
    ) {
        let attributes = asked.attributes(false);
        for (group, queues) in &self.groups {
            part(*group, &attributes, queues);
        }
        for special in self.special.chunk_by(|one, two| kind_of(one) == kind_of(two)) {
            let Some(first) = special.first().filter(|first| !first.is_guarded) else { continue };
            levels.clear();
            levels.extend(special.iter().map(|target| asked.level(target)));
            let mut attributes = asked.attributes(first.dedups);
            if first.is_history {
                attributes.ttl_ms = None;
            }
            part(first.group, &attributes, levels);
        }
    }

    /// The same route, but that queues for which something waits are asked first, too. None: it is no other.
    pub(crate) fn asking(&self, waits: impl Fn(QueueId) -> bool) -> Option<Self> {
        let plain = self.groups.iter().flat_map(|(group, queues)| {
            queues.iter().map(move |queue| Target::plain(*queue, *group))
        });
        let mut targets: Vec<Target> = plain.chain(self.special.iter().copied()).collect();
        let mut is_other = false;
        for target in targets.iter_mut().filter(|target| !target.is_guarded) {
            if waits(target.queue) {
                target.is_guarded = true;
                is_other = true;
            }
        }
        is_other.then(|| Self::of(&targets))
    }

    /// The queues that are asked first.
    pub(crate) fn guarded(&self) -> impl Iterator<Item = &Target> {
        self.special.iter().filter(|target| target.is_guarded)
    }

    /// Every queue, by group: where a delayed message may be, in whichever level.
    pub(crate) fn queues(&self) -> Vec<(GroupId, Vec<QueueId>)> {
        let mut all = self.groups.clone();
        for Target { group, queue, .. } in &self.special {
            match all.iter_mut().find(|(known, _)| known == group) {
                Some((_, queues)) => queues.push(*queue),
                None => all.push((*group, vec![*queue])),
            }
        }
        all
    }
}

/// What must agree for two queues to share one command.
fn kind_of(target: &Target) -> (GroupId, bool, bool, bool) {
    (target.group, target.is_guarded, target.dedups, target.is_history)
}

/// A route that is remembered.
#[derive(Debug)]
struct Kept {
    destination: Arc<[u8]>,
    route: Route,
    /// Where its exchange is counted.
    exchange: Place,
}

/// Routes by exchange and routing key as they stand on the wire, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    /// The version of the catalog that all of them hold for.
    version: u64,
    places: BTreeMap<Arc<[u8]>, usize>,
    routes: Vec<Kept>,
    last: usize,
}

impl RouteCache {
    #[inline]
    pub(crate) fn find(&mut self, version: u64, destination: &[u8]) -> Option<usize> {
        if self.version != version {
            self.forget(version);
            return None;
        }
        if let Some(known) = self.routes.get(self.last)
            && *known.destination == *destination
        {
            return Some(self.last);
        }
        self.last = *self.places.get(destination)?;
        Some(self.last)
    }

    #[inline]
    pub(crate) fn at(&self, place: usize) -> &Route {
        &self.routes[place].route
    }

    /// Where the exchange of a route is counted.
    #[inline]
    pub(crate) fn exchange(&self, place: usize) -> Place {
        self.routes[place].exchange
    }

    pub(crate) fn keep(
        &mut self,
        version: u64,
        destination: &[u8],
        route: Route,
        exchange: Place,
    ) -> usize {
        if self.version != version || self.routes.len() >= limits::ROUTES_MAX {
            self.forget(version);
        }
        let destination: Arc<[u8]> = Arc::from(destination);
        self.last = self.routes.len();
        self.places.insert(Arc::clone(&destination), self.last);
        self.routes.push(Kept { destination, route, exchange });
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
        Route::of(&[Target::plain(QueueId(queue), GroupId(1))])
    }

    #[test]
    fn a_route_is_known_until_the_catalog_changes() {
        let mut routes = RouteCache::default();
        assert_eq!(routes.find(1, b"a"), None);
        routes.keep(1, b"a", route(1), Place::default());
        routes.keep(1, b"b", route(2), Place::default());
        let place = routes.find(1, b"a").unwrap();
        assert_eq!(routes.at(place), &route(1));
        assert_eq!(routes.find(2, b"a"), None);
        assert_eq!(routes.find(2, b"b"), None);
    }

    #[test]
    fn no_more_routes_are_kept_than_the_limit() {
        let mut routes = RouteCache::default();
        for key in 0..limits::ROUTES_MAX + 1 {
            routes.keep(1, &key.to_be_bytes(), Route::default(), Place::default());
        }
        assert_eq!(routes.routes.len(), 1);
    }

    #[test]
    fn a_message_goes_into_one_command_for_each_group_and_kind_of_queue() {
        let plain = |queue| Target::plain(QueueId(queue), GroupId(1));
        let priority = |queue| Target { max_priority: 5, ..plain(queue) };
        let guarded = Target { is_guarded: true, ..plain(5) };
        let dedup = Target { dedups: true, ..plain(6) };
        let route =
            Route::of(&[plain(1), plain(2), priority(3), guarded, dedup, priority(7), plain(8)]);
        assert!(!route.is_plain() && route.is_guarded && route.dedups);
        let asked = Asked { priority: 9, key: Some(4), ..Asked::default() };
        let mut parts = Vec::new();
        route.parts(&asked, &mut Vec::new(), |group, attributes, queues| {
            parts.push((group.0, attributes.key, queues.to_vec()));
        });
        let level = |queue| QueueId(queue).level(5);
        assert_eq!(
            parts,
            [
                (1, None, vec![QueueId(1), QueueId(2), QueueId(8)]),
                (1, None, vec![level(3), level(7)]),
                (1, Some(4), vec![QueueId(6)]),
            ]
        );
    }

    #[test]
    fn a_queue_for_which_something_waits_is_asked_first() {
        let plain = |queue| Target::plain(QueueId(queue), GroupId(1));
        let route = Route::of(&[plain(1), plain(2)]);
        assert_eq!(route.asking(|_| false), None);
        let behind = route.asking(|queue| queue == QueueId(2)).unwrap();
        assert!(behind.is_guarded && behind.is_routed);
        let guarded: Vec<QueueId> = behind.guarded().map(|target| target.queue).collect();
        let others = vec![(GroupId(1), vec![QueueId(1)])];
        assert_eq!((guarded, behind.groups), (vec![QueueId(2)], others));
    }

    #[test]
    fn a_delayed_message_is_looked_for_in_every_queue_that_it_may_be_in() {
        let plain = |queue, group| Target::plain(QueueId(queue), GroupId(group));
        let targets = [
            Target { max_priority: 2, ..plain(3, 1) },
            plain(4, 1),
            Target { is_guarded: true, ..plain(5, 2) },
        ];
        let queues = Route::of(&targets).queues();
        let expected = [(GroupId(1), vec![QueueId(4), QueueId(3)]), (GroupId(2), vec![QueueId(5)])];
        assert_eq!(queues, expected);
    }
}
