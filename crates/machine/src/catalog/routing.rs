//! From an exchange, a routing key and headers to queues.
//!
//! A policy: it reads the compiled routes of each exchange and changes nothing. Exchanges behind
//! exchanges are walked with a list, each once, so cycles end; an exchange that finds no destination
//! of its own hands the message to its alternate. The cost of one message is counted and bounded.

mod choice;
pub(super) mod consistent_hash;
mod direct;
mod fanout;
mod hash;
pub(super) mod headers;
mod target;
mod topic;

use std::collections::BTreeSet;

use super::exchanges::ExchangeSpec;
use super::{Binding, Catalog, Exchange, ExchangeKind, Queue, RouteError};
use crate::limits::ROUTE_STEPS_MAX;
use crate::value::Headers;

pub use target::Target;

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
        }
    }

    pub(super) fn insert(&mut self, binding: &Binding, dest: Dest) {
        match self {
            Self::Direct(direct) => direct.insert(&binding.key, dest),
            Self::Fanout(fanout) | Self::RecentHistory(fanout) => fanout.insert(dest),
            Self::Topic(topic) => topic.insert(&binding.key, dest),
            Self::Headers(rules) => rules.insert(&binding.arguments, dest),
            Self::ConsistentHash(ring) => ring.insert(binding, dest),
            Self::Random(choice) | Self::ModulusHash(choice) => choice.insert(dest),
        }
    }

    pub(super) fn remove(&mut self, binding: &Binding, dest: &Dest) {
        match self {
            Self::Direct(direct) => direct.remove(&binding.key, dest),
            Self::Fanout(fanout) | Self::RecentHistory(fanout) => fanout.remove(dest),
            Self::Topic(topic) => topic.remove(&binding.key, dest),
            Self::Headers(rules) => rules.remove(&binding.arguments, dest),
            Self::ConsistentHash(ring) => ring.remove(binding, dest),
            Self::Random(choice) | Self::ModulusHash(choice) => choice.remove(dest),
        }
    }
}

/// What one message has cost so far.
pub(super) struct Steps(u32);

impl Steps {
    #[inline]
    fn count(&mut self, more: usize) -> Result<(), RouteError> {
        self.0 = self.0.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        if self.0 > ROUTE_STEPS_MAX { Err(RouteError::TooManySteps) } else { Ok(()) }
    }
}

/// What the exchanges walked so far have found.
struct Found<'c, 'o> {
    targets: &'o mut Vec<Target>,
    /// Exchanges to walk.
    exchanges: Vec<&'c str>,
}

impl<'c> Found<'c, '_> {
    fn count(&self) -> usize {
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

impl Catalog {
    /// Which queues get a message that a client publishes: into `out`, which is cleared first, sorted,
    /// each once. Empty, but for histories: unroutable.
    pub fn route(
        &self,
        vhost: &str,
        exchange: &str,
        key: &str,
        headers: &dyn Headers,
        out: &mut Vec<Target>,
    ) -> Result<(), RouteError> {
        self.route_keys(vhost, exchange, &[key], headers, out)
    }

    /// The same for a message with several keys, its own first: it has no route only if none of them
    /// has one.
    pub fn route_keys(
        &self,
        vhost: &str,
        exchange: &str,
        keys: &[&str],
        headers: &dyn Headers,
        out: &mut Vec<Target>,
    ) -> Result<(), RouteError> {
        self.route_from((vhost, exchange), false, keys, headers, out)
    }

    /// The same for a message that the broker publishes itself: to internal exchanges too.
    pub fn route_inside(
        &self,
        vhost: &str,
        exchange: &str,
        keys: &[&str],
        headers: &dyn Headers,
        out: &mut Vec<Target>,
    ) -> Result<(), RouteError> {
        self.route_from((vhost, exchange), true, keys, headers, out)
    }

    fn route_from(
        &self,
        (vhost, exchange): (&str, &str),
        is_inside: bool,
        keys: &[&str],
        headers: &dyn Headers,
        out: &mut Vec<Target>,
    ) -> Result<(), RouteError> {
        out.clear();
        let vhost = self.vhosts.get(vhost).ok_or(RouteError::NoVhost)?;
        let queues_named =
            || keys.iter().filter_map(|key| vhost.queues.get(*key)).map(Queue::target);
        if exchange.is_empty() {
            out.extend(queues_named());
            sort(out);
            return Ok(());
        }
        let first = vhost.exchanges.get(exchange).ok_or(RouteError::NoExchange)?;
        if first.internal && !is_inside {
            return Err(RouteError::Internal);
        }
        let mut steps = Steps(0);
        let mut found = Found { targets: out, exchanges: Vec::new() };
        let mut next = Some(first);
        let mut seen = BTreeSet::new();
        while let Some(exchange) = next {
            steps.count(1)?;
            if exchange.name.is_empty() {
                // Only as an alternate: the default exchange has no compiled routes.
                found.targets.extend(queues_named());
            } else {
                walk(exchange, keys, headers, &mut steps, &mut found)?;
            }
            if found.exchanges.is_empty() {
                break;
            }
            seen.insert(exchange.name.as_str());
            next = None;
            while next.is_none()
                && let Some(name) = found.exchanges.pop()
            {
                steps.count(1)?;
                if !seen.contains(name) {
                    next = vhost.exchanges.get(name);
                }
            }
        }
        sort(out);
        Ok(())
    }
}

/// Each once.
fn sort(targets: &mut Vec<Target>) {
    if targets.len() > 1 {
        targets.sort_unstable();
        targets.dedup();
    }
}

/// One exchange: its own destinations, or else its alternate.
fn walk<'c>(
    exchange: &'c Exchange,
    keys: &[&str],
    headers: &dyn Headers,
    steps: &mut Steps,
    found: &mut Found<'c, '_>,
) -> Result<(), RouteError> {
    let before = found.count();
    let first_key = || keys.first().copied().unwrap_or_default();
    match &exchange.routes {
        Routes::Direct(direct) => keys.iter().for_each(|key| direct.find(key, found)),
        Routes::Fanout(fanout) | Routes::RecentHistory(fanout) => fanout.find(found),
        Routes::Topic(topic) => {
            keys.iter().try_for_each(|key| topic.find(key, steps, found))?;
        }
        Routes::Headers(rules) => rules.find(headers, found),
        Routes::ConsistentHash(ring) => ring.find(first_key(), headers, steps, found)?,
        Routes::Random(choice) => choice.find(headers.chance(), found),
        Routes::ModulusHash(choice) => {
            choice.find(hash::of(first_key().as_bytes()), found);
        }
    }
    if found.count() == before
        && let Some(alternate) = exchange.alternate()
    {
        found.exchanges.push(alternate);
    }
    if matches!(exchange.routes, Routes::RecentHistory(_)) {
        found.targets.extend(exchange.history_for(headers));
    }
    Ok(())
}
