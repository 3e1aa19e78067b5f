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
use super::routing::{Found, Routes, Steps, hash};
use super::target::Target;
use crate::value::Headers;

/// Who publishes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedBy {
    /// To an internal exchange it may not.
    Client,
    /// To internal exchanges too.
    Broker,
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
        if first.internal && by == PublishedBy::Client {
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
