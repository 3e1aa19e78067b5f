//! From an exchange, a routing key and headers to queues.
//!
//! A policy: it reads the compiled routes of each exchange and changes nothing. Exchanges behind
//! exchanges are walked with a list, each once, so cycles end; an exchange that finds no destination
//! of its own hands the message to its alternate. The cost of one message is counted and bounded.

use std::collections::BTreeSet;

use super::Catalog;
use super::exchanges::Exchange;
use super::queues::Queue;
use super::refusal::RouteError;
use super::routing::{Dest, Found, Routes, Steps, hash};
use super::target::Target;
use crate::ids::{GroupId, NodeId};
use crate::value::Headers;

/// Who publishes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedBy {
    /// To an internal exchange it may not.
    Client,
    /// To internal exchanges too.
    Broker,
}

/// An exchange that a message has passed, and what was found there.
pub(super) struct Passed<'c, 'f> {
    pub(super) exchange: &'c Exchange,
    pub(super) targets: &'f [Target],
    /// The alternate is the last of them, if it is used.
    pub(super) exchanges: &'f [&'c str],
    pub(super) uses_alternate: bool,
}

impl Catalog {
    /// Which queues get a message that a client publishes with one key: see `route_keys`.
    pub fn route(
        &self,
        vhost: &str,
        exchange: &str,
        key: &str,
        headers: &dyn Headers,
        out: &mut Vec<Target>,
    ) -> Result<(), RouteError> {
        self.route_keys(PublishedBy::Client, vhost, exchange, &[key], headers, out)
    }

    /// Which queues get a message: into `out`, which is cleared first, sorted, each once. Empty, but for histories:
    /// unroutable. Of several keys the message's own is the first. It has no route only if none of them has one.
    pub fn route_keys(
        &self,
        by: PublishedBy,
        vhost: &str,
        exchange: &str,
        keys: &[&str],
        headers: &dyn Headers,
        out: &mut Vec<Target>,
    ) -> Result<(), RouteError> {
        self.route_along(by, (vhost, exchange), keys, headers, out, |_| {})
    }

    /// The same, and each exchange on the way is told as the message passes it.
    pub(super) fn route_along<'c>(
        &'c self,
        by: PublishedBy,
        (vhost, exchange): (&str, &str),
        keys: &[&str],
        headers: &dyn Headers,
        out: &mut Vec<Target>,
        mut passed: impl FnMut(Passed<'c, '_>),
    ) -> Result<(), RouteError> {
        out.clear();
        let vhost = self.vhosts.get(vhost).ok_or(RouteError::NoVhost)?;
        let queues_named =
            || keys.iter().filter_map(|key| vhost.queues.get(*key)).filter_map(Queue::addressed);
        if exchange.is_empty() {
            out.extend(queues_named());
            sort(out);
            return Ok(());
        }
        let first = vhost.exchanges.get(exchange).ok_or(RouteError::NoExchange)?;
        if first.internal && by == PublishedBy::Client {
            return Err(RouteError::Internal);
        }
        let mut steps = Steps(0);
        let mut found = Found { targets: out, exchanges: Vec::new() };
        let mut next = Some(first);
        let mut seen = BTreeSet::new();
        while let Some(exchange) = next {
            steps.count(1)?;
            let before = (found.targets.len(), found.exchanges.len());
            let mut uses_alternate = false;
            if exchange.name.is_empty() {
                // Only as an alternate: the default exchange has no compiled routes.
                found.targets.extend(queues_named());
            } else {
                uses_alternate = self.walk(exchange, keys, headers, &mut steps, &mut found)?;
            }
            passed(Passed {
                exchange,
                targets: &found.targets[before.0..],
                exchanges: &found.exchanges[before.1..],
                uses_alternate,
            });
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

    /// One exchange: its own destinations, or else its alternate. Says whether that is used.
    fn walk<'c>(
        &self,
        exchange: &'c Exchange,
        keys: &[&str],
        headers: &dyn Headers,
        steps: &mut Steps,
        found: &mut Found<'c, '_>,
    ) -> Result<bool, RouteError> {
        let before = found.count();
        self.look_up(&exchange.routes, keys, headers, steps, found)?;
        let alternate = exchange.alternate().filter(|_| found.count() == before);
        found.exchanges.extend(alternate);
        if matches!(exchange.routes, Routes::RecentHistory(_)) {
            found.targets.extend(exchange.history_for(headers));
        }
        Ok(alternate.is_some())
    }

    /// The destinations of some bindings of one exchange.
    pub(super) fn look_up<'c>(
        &self,
        routes: &'c Routes,
        keys: &[&str],
        headers: &dyn Headers,
        steps: &mut Steps,
        found: &mut Found<'c, '_>,
    ) -> Result<(), RouteError> {
        let first_key = || keys.first().copied().unwrap_or_default();
        match routes {
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
            Routes::LocalRandom(choice) => {
                let node = headers.node();
                let is_local = |dest: &Dest| self.is_at(dest, node);
                choice.find_among(headers.chance(), is_local, steps, found)?;
            }
        }
        Ok(())
    }

    /// Whether messages for it stay at this node: its queue is in the node's memory, or the node leads its group while
    /// it can.
    fn is_at(&self, dest: &Dest, node: Option<NodeId>) -> bool {
        let (Dest::Queue(target), Some(node)) = (dest, node) else { return false };
        target.group == GroupId::local(node) || self.preferred_leader(target.group) == Some(node)
    }
}

/// Each once.
fn sort(targets: &mut Vec<Target>) {
    if targets.len() > 1 {
        targets.sort_unstable();
        targets.dedup();
    }
}
