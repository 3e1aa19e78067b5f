//! A declaration of an exchange: whether RabbitMQ, with its plugins, takes it.
//!
//! The order of the checks is RabbitMQ's, because a client is told only the first thing that is wrong.

#[cfg(test)]
mod tests;

use machine::{
    Arguments, Catalog, CatalogCommand, Exchange, ExchangeKind, ExchangeSpec, HashBy, HashProperty,
    Kind, Refusal, SessionOwner, Value, Version,
};

use super::error::{ArgumentProblem, DeclareError, Difference, ExchangeProblem};
use super::{compare, names};

const ALTERNATE: &str = "alternate-exchange";
const DELAYED_TYPE: &str = "x-delayed-type";
const HASH_HEADER: &str = "hash-header";
const HASH_PROPERTY: &str = "hash-property";
const HISTORY_LENGTH: &str = "x-recent-history-length";
const HISTORY_LENGTH_DEFAULT: u64 = 20;

/// What a client declares.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub(crate) vhost: String,
    pub(crate) name: String,
    pub(crate) kind: ExchangeKind,
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    pub(crate) internal: bool,
    pub(crate) arguments: Arguments,
    pub(crate) by: SessionOwner,
}

impl Declaration {
    /// Whether RabbitMQ would take it, as far as this node's copy of the catalog knows. Whether there is room, and
    /// whether there is such a vhost, is the catalog's to say.
    pub(crate) fn judge(&self, catalog: &Catalog) -> Result<(), DeclareError> {
        if catalog.vhost(&self.vhost).is_none() {
            return Ok(());
        }
        if self.name.is_empty() {
            return Err(Refusal::DefaultExchange.into());
        }
        if !self.arguments.is_within_limits() {
            return Err(Refusal::ArgumentsTooLarge.into());
        }
        match catalog.exchange(&self.vhost, &self.name) {
            Some(existing) => self.judge_again(existing),
            None => self.judge_new(),
        }
    }

    /// Whether it means the exchange that there is.
    pub(crate) fn judge_again(&self, existing: &Exchange) -> Result<(), DeclareError> {
        self.compare(existing).map_err(|difference| DeclareError::Inequivalent {
            kind: Kind::Exchange,
            name: self.name.clone(),
            vhost: self.vhost.clone(),
            difference: Box::new(difference),
        })
    }

    /// Of the arguments only the alternate is compared.
    fn compare(&self, existing: &Exchange) -> Result<(), Difference> {
        let name_of = |kind: ExchangeKind| Value::LongStr(kind.name().as_bytes().to_vec());
        compare::property("type", name_of(self.kind), name_of(existing.kind()))?;
        for (name, received, current) in [
            ("durable", self.durable, existing.durable),
            ("auto_delete", self.auto_delete, existing.auto_delete),
            ("internal", self.internal, existing.internal),
        ] {
            compare::property(name, Value::Bool(received), Value::Bool(current))?;
        }
        compare::argument(ALTERNATE, &self.arguments, &existing.arguments)
    }

    fn judge_new(&self) -> Result<(), DeclareError> {
        names::check_possible(Kind::Exchange, &self.name)?;
        names::check_not_reserved(Kind::Exchange, &self.name)?;
        if let Some(got) = self.arguments.find(ALTERNATE).filter(|value| value.text().is_none()) {
            let problem = ArgumentProblem::InvalidType { got: got.clone() };
            return Err(self.invalid(ALTERNATE, problem));
        }
        let is_delayed = self.kind == ExchangeKind::DelayedMessage;
        self.check_kind(if is_delayed { self.inner_kind()? } else { self.kind })
    }

    /// The kind inside a delayed exchange, which is another than that.
    fn inner_kind(&self) -> Result<ExchangeKind, DeclareError> {
        let Some(Value::LongStr(inner)) = self.arguments.find(DELAYED_TYPE) else {
            return refuse(ExchangeProblem::NoDelayedType);
        };
        let inner = String::from_utf8_lossy(inner);
        match ExchangeKind::parse(&inner) {
            None => refuse(ExchangeProblem::UnknownType { name: inner.into_owned() }),
            Some(ExchangeKind::DelayedMessage) => refuse(ExchangeProblem::DelayedTwice),
            Some(kind) => Ok(kind),
        }
    }

    /// What a kind asks of the arguments.
    fn check_kind(&self, kind: ExchangeKind) -> Result<(), DeclareError> {
        match kind {
            ExchangeKind::Direct
            | ExchangeKind::Fanout
            | ExchangeKind::Topic
            | ExchangeKind::Headers
            | ExchangeKind::DelayedMessage
            | ExchangeKind::Random
            | ExchangeKind::ModulusHash
            | ExchangeKind::LocalRandom => Ok(()),
            ExchangeKind::ConsistentHash => self.check_hashed(),
            ExchangeKind::RecentHistory => match self.arguments.find(HISTORY_LENGTH) {
                Some(got) if !is_length(got) => {
                    refuse(ExchangeProblem::InvalidHistoryLength { got: got.clone() })
                }
                Some(_) | None => Ok(()),
            },
        }
    }

    /// A header or a property, not both.
    fn check_hashed(&self) -> Result<(), DeclareError> {
        for argument in [HASH_HEADER, HASH_PROPERTY] {
            if let Some(got) = self.arguments.find(argument)
                && !matches!(got, Value::LongStr(_))
            {
                let problem = ArgumentProblem::UnacceptableType { got: got.clone() };
                return Err(self.invalid(argument, problem));
            }
        }
        let Some(Value::LongStr(property)) = self.arguments.find(HASH_PROPERTY) else {
            return Ok(());
        };
        let property = String::from_utf8_lossy(property);
        match (self.arguments.find(HASH_HEADER), HashProperty::parse(&property)) {
            (Some(_), _) => refuse(ExchangeProblem::HeaderAndProperty),
            (None, Some(_)) => Ok(()),
            (None, None) => {
                refuse(ExchangeProblem::UnsupportedProperty { property: property.into_owned() })
            }
        }
    }

    fn invalid(&self, argument: &str, problem: ArgumentProblem) -> DeclareError {
        DeclareError::InvalidArgument {
            kind: Kind::Exchange,
            name: self.name.clone(),
            vhost: self.vhost.clone(),
            argument: argument.to_owned(),
            problem,
        }
    }

    /// What it means. Total: what is not valid is as if it were not there.
    pub(super) fn spec(&self) -> ExchangeSpec {
        let text = |name: &str| self.arguments.find(name).and_then(Value::text);
        let routing = match self.kind {
            ExchangeKind::DelayedMessage => self.inner_kind().unwrap_or(ExchangeKind::Direct),
            kind => kind,
        };
        let property = || text(HASH_PROPERTY).and_then(HashProperty::parse);
        let hash_by = match text(HASH_HEADER) {
            Some(header) => HashBy::Header(header.to_owned()),
            None => property().map_or(HashBy::Key, HashBy::Property),
        };
        let length = self.arguments.find(HISTORY_LENGTH).filter(|value| is_length(value));
        let length =
            length.and_then(Value::integer).map_or(HISTORY_LENGTH_DEFAULT, i64::unsigned_abs);
        ExchangeSpec {
            kind: self.kind,
            routing,
            alternate: text(ALTERNATE).map(str::to_owned),
            hash_by,
            history_length: (routing == ExchangeKind::RecentHistory).then_some(length),
        }
    }

    /// For a cluster that has agreed on this version.
    pub(crate) fn into_command(self, agreed: Version) -> CatalogCommand {
        let spec = Box::new(self.spec());
        let Self { vhost, name, kind, durable, auto_delete, internal, arguments, by } = self;
        if agreed >= Version::SPECS {
            let node = (!durable).then_some(by.node);
            return CatalogCommand::CreateExchange {
                vhost,
                name,
                auto_delete,
                internal,
                node,
                spec,
                arguments,
            };
        }
        CatalogCommand::DeclareExchange {
            vhost,
            name,
            kind,
            durable,
            auto_delete,
            internal,
            arguments,
            by,
        }
    }
}

fn refuse<T>(problem: ExchangeProblem) -> Result<T, DeclareError> {
    Err(DeclareError::InvalidExchange(problem))
}

/// RabbitMQ takes signed numbers only.
fn is_length(value: &Value) -> bool {
    let is_signed = matches!(value, Value::I8(_) | Value::I16(_) | Value::I32(_) | Value::I64(_));
    is_signed && value.integer().is_some_and(|length| length > 0)
}
