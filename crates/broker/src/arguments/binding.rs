//! A binding that a client asks for: whether RabbitMQ, with its plugins, takes it.
//!
//! The order of the checks is RabbitMQ's: first whether both ends exist, then whose they are, then key and arguments.

#[cfg(test)]
mod tests;

use machine::limits::NAME_BYTES_MAX;
use machine::{
    Arguments, BindingChange, Catalog, CatalogCommand, Destination, ExchangeKind, Kind, Refusal,
    SessionOwner, Value, Version,
};

use super::error::DeclareError;

const MATCH: &str = "x-match";

/// What a client binds.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) vhost: String,
    pub(crate) source: String,
    pub(crate) destination: Destination,
    pub(crate) key: String,
    pub(crate) arguments: Arguments,
    pub(crate) by: SessionOwner,
}

impl Binding {
    /// Whether RabbitMQ would take it, as far as this node's copy of the catalog knows. Whether there is room, and
    /// whether there is such a vhost, is the catalog's to say.
    pub(crate) fn judge(&self, catalog: &Catalog) -> Result<(), DeclareError> {
        let Some(vhost) = catalog.vhost(&self.vhost) else { return Ok(()) };
        let names_default = match &self.destination {
            Destination::Exchange(name) => name.is_empty(),
            Destination::Queue(_) => false,
        };
        if self.source.is_empty() || names_default {
            return Err(Refusal::DefaultExchange.into());
        }
        let Some(source) = vhost.exchange(&self.source) else {
            return Err(self.not_found(Kind::Exchange, &self.source).into());
        };
        match &self.destination {
            Destination::Queue(name) => match vhost.queue(name) {
                Some(queue) => queue.check_access(&self.vhost, Some(self.by))?,
                None => return Err(self.not_found(Kind::Queue, name).into()),
            },
            Destination::Exchange(name) => {
                if vhost.exchange(name).is_none() {
                    return Err(self.not_found(Kind::Exchange, name).into());
                }
            }
        }
        if self.key.len() > NAME_BYTES_MAX {
            let name = self.key.clone();
            return Err(Refusal::InvalidName { kind: Kind::Binding, name }.into());
        }
        if !self.arguments.is_within_limits() {
            return Err(Refusal::ArgumentsTooLarge.into());
        }
        self.judge_for(source.routing())
    }

    /// Whether an exchange that routes like this can route by the key and the arguments.
    fn judge_for(&self, routing: ExchangeKind) -> Result<(), DeclareError> {
        match routing {
            ExchangeKind::Headers => match self.arguments.find(MATCH) {
                Some(value) if !is_known_match(value) => {
                    Err(DeclareError::InvalidMatch { value: value.clone() })
                }
                Some(_) | None => Ok(()),
            },
            ExchangeKind::ConsistentHash => check_weight(&self.key),
            ExchangeKind::LocalRandom => self.check_local(),
            ExchangeKind::Direct
            | ExchangeKind::Fanout
            | ExchangeKind::Topic
            | ExchangeKind::DelayedMessage
            | ExchangeKind::Random
            | ExchangeKind::ModulusHash
            | ExchangeKind::RecentHistory => Ok(()),
        }
    }

    /// A queue, without a key.
    fn check_local(&self) -> Result<(), DeclareError> {
        if !self.key.is_empty() {
            return Err(DeclareError::KeyNotPermitted { key: self.key.clone() });
        }
        match &self.destination {
            Destination::Queue(_) => Ok(()),
            Destination::Exchange(_) => Err(DeclareError::NoLocalQueue),
        }
    }

    fn not_found(&self, kind: Kind, name: &str) -> Refusal {
        Refusal::NotFound { kind, name: name.to_owned(), vhost: self.vhost.clone() }
    }

    /// For a cluster that has agreed on this version.
    pub(crate) fn into_command(self, agreed: Version) -> CatalogCommand {
        let Self { vhost, source, destination, key, arguments, by } = self;
        let change = BindingChange { vhost, source, destination, key, arguments, by: Some(by) };
        match agreed >= Version::SPECS {
            true => CatalogCommand::CreateBinding(change),
            false => CatalogCommand::Bind(change),
        }
    }
}

/// The four words that `x-match` may be.
fn is_known_match(value: &Value) -> bool {
    matches!(value.text(), Some("all" | "any" | "all-with-x" | "any-with-x"))
}

/// The key of a binding to a consistent hash exchange is a positive number in decimal digits.
fn check_weight(key: &str) -> Result<(), DeclareError> {
    let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_positive = !key.starts_with('-') && digits.bytes().any(|digit| digit != b'0');
    if is_number && is_positive {
        return Ok(());
    }
    Err(DeclareError::InvalidWeight { key: key.to_owned(), is_number })
}
