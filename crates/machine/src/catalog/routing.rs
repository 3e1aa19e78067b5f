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
mod topic;

use std::collections::BTreeSet;

use super::{Binding, Catalog, Exchange, ExchangeKind, Queue, RouteError};
use crate::ids::{GroupId, QueueId};
use crate::limits::ROUTE_STEPS_MAX;
use crate::settings::Overflow;
use crate::value::{Arguments, Headers};

/// A queue that gets a message, and what who publishes the message must know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub queue: QueueId,
    pub group: GroupId,
    /// The queue has a lane for each priority up to this.
    pub max_priority: u8,
    /// It refuses messages at a limit: its leader is asked first.
    pub is_guarded: bool,
    /// It leaves out messages whose key came lately.
    pub dedups: bool,
}

impl Target {
    /// A queue without features.
    pub fn plain(queue: QueueId, group: GroupId) -> Self {
        Self { queue, group, max_priority: 0, is_guarded: false, dedups: false }
    }

    pub(super) fn of(queue: &Queue) -> Self {
        let plain = Self::plain(queue.id, queue.group);
        let Some(features) = queue.settings().features else { return plain };
        Self {
            max_priority: features.max_priority,
            is_guarded: features.overflow != Overflow::DropHead,
            dedups: features.dedup.is_some(),
            ..plain
        }
    }
}

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
}

impl Routes {
    /// Of `ExchangeKind::routing`, which is never the delayed one.
    pub(super) fn new(kind: ExchangeKind, arguments: &Arguments) -> Self {
        use ExchangeKind as K;
        match kind {
            K::Direct | K::DelayedMessage => Self::Direct(direct::Direct::default()),
            K::Fanout | K::RecentHistory => Self::Fanout(fanout::Fanout::default()),
            K::Topic => Self::Topic(topic::Topic::default()),
            K::Headers => Self::Headers(headers::HeaderRules::default()),
            K::ConsistentHash => {
                Self::ConsistentHash(consistent_hash::ConsistentHash::new(arguments))
            }
            K::Random => Self::Random(choice::Choice::default()),
            K::ModulusHash => Self::ModulusHash(choice::Choice::default()),
        }
    }

    pub(super) fn insert(&mut self, binding: &Binding, dest: Dest) {
        match self {
            Self::Direct(direct) => direct.insert(&binding.key, dest),
            Self::Fanout(fanout) => fanout.insert(dest),
            Self::Topic(topic) => topic.insert(&binding.key, dest),
            Self::Headers(rules) => rules.insert(&binding.arguments, dest),
            Self::ConsistentHash(ring) => ring.insert(binding, dest),
            Self::Random(choice) | Self::ModulusHash(choice) => choice.insert(dest),
        }
    }

    pub(super) fn remove(&mut self, binding: &Binding, dest: &Dest) {
        match self {
            Self::Direct(direct) => direct.remove(&binding.key, dest),
            Self::Fanout(fanout) => fanout.remove(dest),
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
    /// Which queues get a message: into `out`, which is cleared first, sorted, each once. Empty:
    /// unroutable.
    pub fn route(
        &self,
        vhost: &str,
        exchange: &str,
        key: &str,
        headers: &dyn Headers,
        out: &mut Vec<Target>,
    ) -> Result<(), RouteError> {
        out.clear();
        let vhost = self.vhosts.get(vhost).ok_or(RouteError::NoVhost)?;
        let queue_named = |name: &str| vhost.queues.get(name).map(Queue::target);
        if exchange.is_empty() {
            out.extend(queue_named(key));
            return Ok(());
        }
        let first = vhost.exchanges.get(exchange).ok_or(RouteError::NoExchange)?;
        if first.internal {
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
                found.targets.extend(queue_named(key));
            } else {
                walk(exchange, key, headers, &mut steps, &mut found)?;
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
        if out.len() > 1 {
            out.sort_unstable();
            out.dedup();
        }
        Ok(())
    }
}

/// One exchange: its own destinations, or else its alternate.
fn walk<'c>(
    exchange: &'c Exchange,
    key: &str,
    headers: &dyn Headers,
    steps: &mut Steps,
    found: &mut Found<'c, '_>,
) -> Result<(), RouteError> {
    let before = found.count();
    match &exchange.routes {
        Routes::Direct(direct) => direct.find(key, found),
        Routes::Fanout(fanout) => fanout.find(found),
        Routes::Topic(topic) => topic.find(key, steps, found)?,
        Routes::Headers(rules) => rules.find(headers, steps, found)?,
        Routes::ConsistentHash(ring) => ring.find(key, headers, steps, found)?,
        Routes::Random(choice) => choice.find(headers.chance(), found),
        Routes::ModulusHash(choice) => {
            choice.find(hash::of(headers.first_key().unwrap_or(key).as_bytes()), found);
        }
    }
    if found.count() == before
        && let Some(alternate) = &exchange.alternate
    {
        found.exchanges.push(alternate);
    }
    Ok(())
}
