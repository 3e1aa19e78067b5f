//! Where a message goes: to the queues that the catalog names, remembered where that depends on exchange and routing
//! key alone, or to a reply address.

use amqp::{Properties, ReplyCode};
use machine::{PublishedBy, RouteError};

use crate::auth::Verb;
use crate::channel::caller::Caller;
use crate::channel::direct_reply_to::REPLY_TO_PREFIX;
use crate::errors::{Failure, no_exchange};
use crate::exchange_counts::ExchangeCounts;
use crate::route_cache::{Route, RouteCache};
use crate::stored::destination_texts;
use crate::values::Observed;

/// Where a message goes.
pub(super) enum Found {
    /// Where the cache says, at this place.
    Cached(usize),
    /// Where no other message need go.
    Own(Route),
    /// To the reply address that its routing key names.
    ReplyAddress,
}

/// Finds where a message goes, `known` being its place in the cache. `chance` was drawn for it.
pub(super) fn find(
    caller: &Caller<'_, '_>,
    (routes, exchanges): (&mut RouteCache, &mut ExchangeCounts),
    known: Option<usize>,
    destination: &[u8],
    properties: &Properties<'_>,
    chance: u64,
) -> Result<Found, Failure> {
    if let Some(place) = known {
        return Ok(Found::Cached(place));
    }
    let (exchange, key) = destination_texts(destination);
    caller.allow(Verb::Publish { exchange, key })?;
    if exchange.is_empty() && key.starts_with(REPLY_TO_PREFIX) {
        return Ok(Found::ReplyAddress);
    }
    let observed = Observed::new(*properties, chance, caller.client.node);
    let route = resolve(caller, exchange, &[key], &observed)?;
    if observed.was_asked() {
        return Ok(Found::Own(route));
    }
    let (version, exchange) = (caller.catalog().version(), exchanges.place(exchange));
    Ok(Found::Cached(routes.keep(version, destination, route, exchange)))
}

impl Found {
    /// The same for a message that names more routing keys, if there are any.
    pub(super) fn with_keys(
        self,
        caller: &Caller<'_, '_>,
        destination: &[u8],
        keys: &[String],
        properties: &Properties<'_>,
        chance: u64,
    ) -> Result<Self, Failure> {
        if keys.is_empty() {
            return Ok(self);
        }
        let (exchange, key) = destination_texts(destination);
        for key in keys {
            caller.allow(Verb::Publish { exchange, key })?;
        }
        let own_key = (!matches!(self, Self::ReplyAddress)).then_some(key);
        let keys: Vec<&str> = own_key.into_iter().chain(keys.iter().map(String::as_str)).collect();
        let observed = Observed::new(*properties, chance, caller.client.node);
        let route = resolve(caller, exchange, &keys, &observed)?;
        Ok(match self {
            Self::Cached(_) | Self::Own(_) => Self::Own(route),
            Self::ReplyAddress => self,
        })
    }
}

/// Where the catalog sends it.
fn resolve(
    caller: &Caller<'_, '_>,
    exchange: &str,
    keys: &[&str],
    observed: &Observed<'_>,
) -> Result<Route, Failure> {
    let vhost = &caller.client.vhost;
    let mut targets = Vec::new();
    let routed = caller.catalog().route_keys(
        PublishedBy::Client,
        vhost,
        exchange,
        keys,
        observed,
        &mut targets,
    );
    match routed {
        Ok(()) => {}
        Err(RouteError::NoVhost | RouteError::NoExchange) => {
            return Err(no_exchange(exchange, vhost));
        }
        Err(RouteError::Internal) => {
            let text =
                format!("cannot publish to internal exchange '{exchange}' in vhost '{}'", vhost);
            return Err(Failure::channel(ReplyCode::AccessRefused, text));
        }
        Err(RouteError::TooManySteps) => {
            let text = format!(
                "routing from exchange '{exchange}' in vhost '{}' takes too many steps",
                vhost
            );
            return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
        }
    }
    Ok(Route::before_placing(caller.catalog(), &targets))
}
