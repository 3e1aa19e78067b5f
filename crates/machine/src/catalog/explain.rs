//! Why a message goes where it goes: what routing found at each exchange, and which bindings it was by.
//!
//! Routing itself is asked, not a copy of it: the walk is that of every message (`Catalog::route_keys`), and whether a
//! binding matches is what the kind of the exchange finds with that binding alone. Nothing is stored, and nothing counts
//! as published. For operators: it takes longer than routing, within the bounds below.

use super::Catalog;
use super::binding::Binding;
use super::exchanges::{Exchange, ExchangeKind};
use super::refusal::RouteError;
use super::route::{Passed, PublishedBy};
use super::routing::{Dest, Found, Routes, Steps};
use super::target::Target;
use super::vhosts::Vhost;
use crate::limits::{EXPLAINED_BINDINGS_MAX, EXPLAINED_HOPS_MAX, EXPLAINED_LOOKS_MAX};
use crate::value::Headers;

/// What becomes of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The exchanges that it passes, in that order.
    pub hops: Vec<Hop>,
    /// Exchanges that it passes besides.
    pub hops_left_out: usize,
    /// The queues that get it, each once: what `route_keys` says.
    pub targets: Vec<Target>,
}

/// An exchange that a message passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Empty: the default exchange, which looks for queues by name.
    pub exchange: String,
    pub routing: ExchangeKind,
    /// Those that match, then the others.
    pub bindings: Vec<HopBinding>,
    /// Bindings that the exchange has besides: not shown, or not looked at.
    pub bindings_left_out: usize,
    /// Queues that it has found here.
    pub targets: Vec<Target>,
    /// Where it goes because it has found nothing here.
    pub alternate: Option<String>,
}

/// A binding, and what it makes of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopBinding {
    pub binding: Binding,
    /// By it alone the message would go to its destination.
    pub matches: bool,
    /// The message goes to its destination. An exchange that sends a message to one of several destinations has
    /// bindings that match and are not taken.
    pub is_taken: bool,
}

/// Says what would become of a message.
///
/// # Errors
/// As `route_keys`.
pub fn explain(
    catalog: &Catalog,
    by: PublishedBy,
    vhost: &str,
    exchange: &str,
    keys: &[&str],
    headers: &dyn Headers,
) -> Result<Explanation, RouteError> {
    let mut explained = Explanation::default();
    let known = catalog.vhost(vhost).ok_or(RouteError::NoVhost)?;
    if exchange.is_empty() {
        catalog.route_keys(by, vhost, exchange, keys, headers, &mut explained.targets)?;
        explained.hops.push(Hop {
            exchange: String::new(),
            routing: ExchangeKind::Direct,
            bindings: Vec::new(),
            bindings_left_out: 0,
            targets: explained.targets.clone(),
            alternate: None,
        });
        return Ok(explained);
    }
    let mut looks = EXPLAINED_LOOKS_MAX;
    let (mut hops, mut hops_left_out) = (Vec::new(), 0);
    let targets = &mut explained.targets;
    catalog.route_along(by, (vhost, exchange), keys, headers, targets, |passed| {
        match hops.len() < EXPLAINED_HOPS_MAX {
            true => hops.push(hop(catalog, known, keys, headers, &passed, &mut looks)),
            false => hops_left_out += 1,
        }
    })?;
    Ok(Explanation { hops, hops_left_out, ..explained })
}

fn hop(
    catalog: &Catalog,
    vhost: &Vhost,
    keys: &[&str],
    headers: &dyn Headers,
    passed: &Passed<'_, '_>,
    looks: &mut usize,
) -> Hop {
    let Passed { exchange, targets, exchanges, uses_alternate } = passed;
    let alternate = exchanges.last().filter(|_| *uses_alternate);
    let own = &exchanges[..exchanges.len() - usize::from(*uses_alternate)];
    let all = vhost.bindings_of_source(&exchange.name);
    let count = vhost.bindings_of_source(&exchange.name).count();
    let (mut matching, mut others) = (Vec::new(), Vec::new());
    for binding in all.take(*looks) {
        *looks -= 1;
        let Some(dest) = vhost.dest(&binding.destination) else { continue };
        let is_taken = match &dest {
            Dest::Queue(target) => targets.contains(target),
            Dest::Exchange(name) => own.contains(&&**name),
        };
        let matches = matches(catalog, exchange, binding, dest, keys, headers);
        let list = if matches { &mut matching } else { &mut others };
        if list.len() < EXPLAINED_BINDINGS_MAX {
            // One of several destinations has been chosen by what it is, not by this binding.
            let is_taken = is_taken && matches;
            list.push(HopBinding { binding: binding.clone(), matches, is_taken });
        }
    }
    matching.sort_by_key(|binding| !binding.is_taken);
    matching.extend(others);
    matching.truncate(EXPLAINED_BINDINGS_MAX);
    Hop {
        exchange: exchange.name.clone(),
        routing: exchange.routing(),
        bindings_left_out: count - matching.len(),
        bindings: matching,
        targets: targets.to_vec(),
        alternate: alternate.map(|name| (*name).to_owned()),
    }
}

/// Whether an exchange with this binding alone has a destination for the message.
fn matches(
    catalog: &Catalog,
    exchange: &Exchange,
    binding: &Binding,
    dest: Dest,
    keys: &[&str],
    headers: &dyn Headers,
) -> bool {
    let mut routes = Routes::new(exchange.spec());
    routes.insert(binding, dest);
    let mut targets = Vec::new();
    let mut found = Found { targets: &mut targets, exchanges: Vec::new() };
    let looked = catalog.look_up(&routes, keys, headers, &mut Steps(0), &mut found);
    looked.is_ok() && found.count() > 0
}
