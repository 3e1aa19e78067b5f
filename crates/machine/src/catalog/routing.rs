//! The bindings of an exchange as its kind looks them up: compiled when they come, read for each message.

mod choice;
pub(super) mod consistent_hash;
mod direct;
mod fanout;
pub(in crate::catalog) mod hash;
pub(super) mod headers;
mod topic;

use super::binding::Binding;
use super::exchanges::{ExchangeKind, ExchangeSpec};
use super::refusal::RouteError;
use super::target::Target;
use crate::limits::ROUTE_STEPS_MAX;

/// Where a binding leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dest {
    Queue(Target),
    Exchange(Box<str>),
}

/// Destinations, each with the number of bindings that lead there, sorted. New queues have the
/// highest ids, so they usually join at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Dests(Vec<(Dest, u32)>);

impl Dests {
    fn insert(&mut self, dest: Dest) {
        match self.0.binary_search_by(|(other, _)| other.cmp(&dest)) {
            Ok(index) => self.0[index].1 += 1,
            Err(index) => self.0.insert(index, (dest, 1)),
        }
    }

    fn remove(&mut self, dest: &Dest) {
        if let Ok(index) = self.0.binary_search_by(|(other, _)| other.cmp(dest)) {
            self.0[index].1 -= 1;
            if self.0[index].1 == 0 {
                self.0.remove(index);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The destination of the nth binding, of `count` in all.
    fn nth(&self, mut nth: u32, count: u32) -> Option<&Dest> {
        if self.0.len() == count as usize {
            return self.0.get(nth as usize).map(|(dest, _)| dest);
        }
        let holds = |(_, bindings): &&(Dest, u32)| {
            let is_here = nth < *bindings;
            nth = nth.saturating_sub(*bindings);
            is_here
        };
        self.0.iter().find(holds).map(|(dest, _)| dest)
    }
}

/// The bindings of one exchange as its kind looks them up.
#[derive(Clone, Debug)]
pub(super) enum Routes {
    Direct(direct::Direct),
    Fanout(fanout::Fanout),
    Topic(topic::Topic),
    Headers(headers::HeaderRules),
    ConsistentHash(consistent_hash::ConsistentHash),
    Random(choice::Choice),
    ModulusHash(choice::Choice),
    RecentHistory(fanout::Fanout),
    LocalRandom(choice::Choice),
}

impl Routes {
    /// `ExchangeSpec::routing` is never the delayed kind.
    pub(super) fn new(spec: &ExchangeSpec) -> Self {
        use ExchangeKind as K;
        match spec.routing {
            K::Direct | K::DelayedMessage => Self::Direct(direct::Direct::default()),
            K::Fanout => Self::Fanout(fanout::Fanout::default()),
            K::RecentHistory => Self::RecentHistory(fanout::Fanout::default()),
            K::Topic => Self::Topic(topic::Topic::default()),
            K::Headers => Self::Headers(headers::HeaderRules::default()),
            K::ConsistentHash => {
                Self::ConsistentHash(consistent_hash::ConsistentHash::new(spec.hash_by.clone()))
            }
            K::Random => Self::Random(choice::Choice::default()),
            K::ModulusHash => Self::ModulusHash(choice::Choice::default()),
            K::LocalRandom => Self::LocalRandom(choice::Choice::default()),
        }
    }

    pub(super) fn insert(&mut self, binding: &Binding, dest: Dest) {
        match self {
            Self::Direct(direct) => direct.insert(&binding.key, dest),
            Self::Fanout(fanout) | Self::RecentHistory(fanout) => fanout.insert(dest),
            Self::Topic(topic) => topic.insert(&binding.key, dest),
            Self::Headers(rules) => rules.insert(&binding.arguments, dest),
            Self::ConsistentHash(ring) => ring.insert(binding, dest),
            Self::Random(choice) | Self::ModulusHash(choice) | Self::LocalRandom(choice) => {
                choice.insert(dest);
            }
        }
    }

    pub(super) fn remove(&mut self, binding: &Binding, dest: &Dest) {
        match self {
            Self::Direct(direct) => direct.remove(&binding.key, dest),
            Self::Fanout(fanout) | Self::RecentHistory(fanout) => fanout.remove(dest),
            Self::Topic(topic) => topic.remove(&binding.key, dest),
            Self::Headers(rules) => rules.remove(&binding.arguments, dest),
            Self::ConsistentHash(ring) => ring.remove(binding, dest),
            Self::Random(choice) | Self::ModulusHash(choice) | Self::LocalRandom(choice) => {
                choice.remove(dest);
            }
        }
    }
}

/// What one message has cost so far.
pub(super) struct Steps(pub(super) u32);

impl Steps {
    #[inline]
    pub(super) fn count(&mut self, more: usize) -> Result<(), RouteError> {
        self.0 = self.0.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        if self.0 > ROUTE_STEPS_MAX { Err(RouteError::TooManySteps) } else { Ok(()) }
    }
}

/// What the exchanges walked so far have found.
pub(super) struct Found<'c, 'o> {
    pub(super) targets: &'o mut Vec<Target>,
    /// Exchanges to walk.
    pub(super) exchanges: Vec<&'c str>,
}

impl<'c> Found<'c, '_> {
    pub(super) fn count(&self) -> usize {
        self.targets.len() + self.exchanges.len()
    }

    fn add(&mut self, dests: &'c Dests) {
        for (dest, _) in &dests.0 {
            self.add_one(dest);
        }
    }

    fn add_one(&mut self, dest: &'c Dest) {
        match dest {
            Dest::Queue(target) => self.targets.push(*target),
            Dest::Exchange(name) => self.exchanges.push(name),
        }
    }
}
