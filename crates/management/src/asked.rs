//! What was asked: the path's parts, the query, the body.

use std::collections::BTreeMap;
use std::sync::Arc;

use machine::Catalog;
use oauth::Grant;
use serde_json::{Map, Value};

use crate::access::Who;
use crate::limits::NAME_BYTES_MAX;
use crate::reply::Problem;

/// A request, as far as its route needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Who asks: known, and let in.
    pub(crate) user: String,
    /// What the token gives that was shown.
    pub(crate) grant: Option<Arc<Grant>>,
    /// The variable parts of the path, by the names that the route gives them.
    pub(crate) path: BTreeMap<String, String>,
    /// The query. The last of equal names counts.
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) body: bytes::Bytes,
    /// Why a connection is closed: the header `X-Reason`.
    pub(crate) reason: Option<String>,
}

impl Asked {
    /// Who asks, as far as it says what may be done.
    pub(crate) fn who<'a>(&'a self, catalog: &'a Catalog) -> Result<Who<'a>, Problem> {
        Who::find(catalog, &self.user, self.grant.as_deref()).ok_or(Problem::NotFound)
    }

    /// A part of the path that the route has.
    pub(crate) fn part(&self, name: &str) -> &str {
        self.path.get(name).map_or("", String::as_str)
    }

    pub(crate) fn vhost(&self) -> &str {
        self.part("vhost")
    }

    /// A word of the query; none if it is empty.
    pub(crate) fn word(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|word| !word.is_empty())
    }

    /// Whether the query says `true`.
    pub(crate) fn says(&self, name: &str) -> bool {
        self.query.get(name).is_some_and(|word| word == "true")
    }

    /// The body, which is a JSON object; an empty one is an empty object.
    pub(crate) fn object(&self) -> Result<Body, Problem> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Body(Map::new()));
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(fields)) => Ok(Body(fields)),
            Ok(_) | Err(_) => Err(Problem::bad("not_json")),
        }
    }
}

/// The fields of a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body(pub(crate) Map<String, Value>);

impl Body {
    pub(crate) fn find(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text; `None` if there is none.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.find(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::bad(format!("{name} should be a string"))),
        }
    }

    /// A text that AMQP's short strings hold; `None` if there is none.
    pub(crate) fn short(&self, name: &str) -> Result<Option<&str>, Problem> {
        let text = self.text(name)?;
        match text.is_some_and(|text| text.len() > NAME_BYTES_MAX) {
            true => Err(Problem::bad(format!("{name} should have at most {NAME_BYTES_MAX} bytes"))),
            false => Ok(text),
        }
    }

    /// A text that must be there.
    pub(crate) fn needed(&self, name: &str) -> Result<&str, Problem> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// The same of a short text.
    pub(crate) fn needed_short(&self, name: &str) -> Result<&str, Problem> {
        self.short(name)?.ok_or_else(|| missing(name))
    }

    /// A truth value, also written as a text: `rabbitmqadmin` does so.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Problem> {
        match self.find(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(_) => Err(Problem::bad(format!("{name} should be true or false"))),
        }
    }

    /// A count, also written as a text.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u64>, Problem> {
        let number = match self.find(name) {
            None => return Ok(None),
            Some(Value::Number(number)) => number.as_u64(),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| Problem::bad(format!("{name} should be a whole number")))
    }

    /// An object; none is an empty one. RabbitMQ takes an empty list for one, too: some clients send it.
    pub(crate) fn object(&self, name: &str) -> Result<Map<String, Value>, Problem> {
        match self.find(name) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object.clone()),
            Some(Value::Array(list)) if list.is_empty() => Ok(Map::new()),
            Some(_) => Err(Problem::bad(format!("{name} should be an object"))),
        }
    }

    /// A list; none is an empty one.
    pub(crate) fn list(&self, name: &str) -> Result<&[Value], Problem> {
        match self.find(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(Problem::bad(format!("{name} should be a list"))),
        }
    }
}

pub(crate) fn missing(name: &str) -> Problem {
    Problem::bad(format!("[{{key_missing,{name}}}]"))
}
