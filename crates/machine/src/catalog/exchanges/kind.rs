//! The kinds of exchanges: their names, their numbers, and the arguments that each must have.
//!
//! The rules that follow RabbitMQ are the broker's: `broker::arguments`. This copy decides about entries that are in
//! logs, the same on every node and for ever, so it must not change.

use super::super::refusal::{ArgumentProblem, ExchangeProblem, Kind, Refusal};
use crate::value::{Arguments, HashProperty, Value};

pub(super) const ALTERNATE: &str = "alternate-exchange";
pub(super) const DELAYED_TYPE: &str = "x-delayed-type";
pub(super) const HASH_HEADER: &str = "hash-header";
pub(super) const HASH_PROPERTY: &str = "hash-property";
pub(super) const HISTORY_LENGTH: &str = "x-recent-history-length";

/// How an exchange routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    Direct,
    Fanout,
    Topic,
    Headers,
    /// As the kind that `x-delayed-type` names, for messages that may say when they are due.
    DelayedMessage,
    /// To one destination, by a hash; each has the share that its binding's key says.
    ConsistentHash,
    /// To one destination, by chance.
    Random,
    /// To one destination: the hash of the key, modulo the number of bindings.
    ModulusHash,
    /// To all; the last messages are kept for queues that are bound later.
    RecentHistory,
}

/// Number in commands and snapshots, which never changes, and name.
const ALL: &[(ExchangeKind, u8, &str)] = &[
    (ExchangeKind::Direct, 1, "direct"),
    (ExchangeKind::Fanout, 2, "fanout"),
    (ExchangeKind::Topic, 3, "topic"),
    (ExchangeKind::Headers, 4, "headers"),
    (ExchangeKind::DelayedMessage, 5, "x-delayed-message"),
    (ExchangeKind::ConsistentHash, 6, "x-consistent-hash"),
    (ExchangeKind::Random, 7, "x-random"),
    (ExchangeKind::ModulusHash, 8, "x-modulus-hash"),
    (ExchangeKind::RecentHistory, 9, "x-recent-history"),
];

impl ExchangeKind {
    /// By the name that clients use.
    pub fn parse(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, _, known)| *known == name).map(|(kind, _, _)| *kind)
    }

    pub fn name(self) -> &'static str {
        self.entry().2
    }

    pub(crate) fn number(self) -> u8 {
        self.entry().1
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        ALL.iter().find(|(_, known, _)| *known == number).map(|(kind, _, _)| *kind)
    }

    fn entry(self) -> (Self, u8, &'static str) {
        *ALL.iter().find(|(kind, _, _)| *kind == self).expect("every kind is in the table")
    }

    /// Whether a new exchange of this kind may have these arguments.
    pub(super) fn validate(
        self,
        vhost: &str,
        name: &str,
        arguments: &Arguments,
    ) -> Result<(), Refusal> {
        let refuse = |problem| Err(Refusal::InvalidExchange(problem));
        match self {
            Self::Direct
            | Self::Fanout
            | Self::Topic
            | Self::Headers
            | Self::Random
            | Self::ModulusHash => Ok(()),
            Self::DelayedMessage => {
                let Some(Value::LongStr(inner)) = arguments.find(DELAYED_TYPE) else {
                    return refuse(ExchangeProblem::NoDelayedType);
                };
                let inner = String::from_utf8_lossy(inner);
                match Self::parse(&inner) {
                    None => refuse(ExchangeProblem::UnknownType { name: inner.into_owned() }),
                    Some(Self::DelayedMessage) => refuse(ExchangeProblem::DelayedTwice),
                    // No deeper than this: the inner kind is another.
                    Some(kind) => kind.validate(vhost, name, arguments),
                }
            }
            Self::ConsistentHash => {
                for argument in [HASH_HEADER, HASH_PROPERTY] {
                    if let Some(got) = arguments.find(argument)
                        && !matches!(got, Value::LongStr(_))
                    {
                        return Err(Refusal::InvalidArgument {
                            kind: Kind::Exchange,
                            name: name.to_owned(),
                            vhost: vhost.to_owned(),
                            argument: argument.to_owned(),
                            problem: ArgumentProblem::UnacceptableType { got: got.clone() },
                        });
                    }
                }
                let header = arguments.find(HASH_HEADER);
                let Some(Value::LongStr(property)) = arguments.find(HASH_PROPERTY) else {
                    return Ok(());
                };
                let property = String::from_utf8_lossy(property);
                match (header, HashProperty::parse(&property)) {
                    (Some(_), _) => refuse(ExchangeProblem::HeaderAndProperty),
                    (None, Some(_)) => Ok(()),
                    (None, None) => refuse(ExchangeProblem::UnsupportedProperty {
                        property: property.into_owned(),
                    }),
                }
            }
            Self::RecentHistory => match arguments.find(HISTORY_LENGTH) {
                Some(got) if !is_length(got) => {
                    refuse(ExchangeProblem::InvalidHistoryLength { got: got.clone() })
                }
                Some(_) | None => Ok(()),
            },
        }
    }
}

/// RabbitMQ takes signed numbers only.
pub(super) fn is_length(value: &Value) -> bool {
    let is_signed = matches!(value, Value::I8(_) | Value::I16(_) | Value::I32(_) | Value::I64(_));
    is_signed && value.integer().is_some_and(|length| length > 0)
}
