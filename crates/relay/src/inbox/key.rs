//! What of a message is its key: messages of one key are stored in the order of their delivery.

use std::str::FromStr;

use serde_json::{Map, Value};

/// Begins the name of a header.
const HEADER: &str = "header:";

/// Where the key of a message is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Key {
    #[default]
    RoutingKey,
    CorrelationId,
    /// The header of this name.
    Header(String),
}

impl FromStr for Key {
    type Err = String;

    /// In the words of a queue's `x-partition-by`.
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix(HEADER)) {
            ("routing-key", _) => Ok(Self::RoutingKey),
            ("correlation-id", _) => Ok(Self::CorrelationId),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Header(name.into())),
            _ => {
                Err(format!("`{text}` is no key: it is routing-key, correlation-id or header:NAME"))
            }
        }
    }
}

/// What may be a key of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidates<'a> {
    pub routing_key: &'a str,
    pub correlation_id: Option<&'a str>,
    pub headers: Option<&'a Map<String, Value>>,
}

impl Key {
    /// The message's key; none: it has none, and its order is nobody's.
    pub(super) fn of(&self, candidates: Candidates<'_>) -> Option<String> {
        match self {
            Self::RoutingKey => Some(candidates.routing_key.to_owned()),
            Self::CorrelationId => candidates.correlation_id.map(str::to_owned),
            Self::Header(name) => match candidates.headers?.get(name)? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                Value::Bool(yes) => Some(yes.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_it_is_called() {
        let headers = serde_json::json!({"text": "a", "number": 7, "list": []});
        let candidates =
            Candidates { routing_key: "eu", correlation_id: None, headers: headers.as_object() };
        for (words, key) in [
            ("routing-key", Some("eu")),
            ("correlation-id", None),
            ("header:text", Some("a")),
            ("header:number", Some("7")),
            ("header:list", None),
            ("header:other", None),
        ] {
            let found = words.parse::<Key>().expect("it is one").of(candidates);
            assert_eq!(found.as_deref(), key, "{words}");
        }
        for wrong in ["", "header:", "message-id"] {
            assert!(wrong.parse::<Key>().is_err(), "{wrong}");
        }
    }
}
