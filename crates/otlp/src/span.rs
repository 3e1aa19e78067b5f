//! A span: what happened to a message between two moments.

use std::time::Instant;

use crate::Parent;

/// What a span is taken to weigh beside its texts.
const SPAN_BYTES: usize = 256;

/// What an attribute is taken to weigh beside its text.
const ATTRIBUTE_BYTES: usize = 64;

/// Whose side a span tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message comes.
    Producer,
    /// A message goes out.
    Consumer,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(i64),
    Switch(bool),
}

/// A span that is over. Its own id is drawn when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub parent: Parent,
    pub name: String,
    pub kind: Kind,
    pub began: Instant,
    pub ended: Instant,
    /// Keys after OpenTelemetry's semantic conventions.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did: the attribute `error.type`.
    pub error: Option<&'static str>,
}

impl Span {
    /// The bytes that it counts for while it waits.
    pub fn weight(&self) -> usize {
        let attributes = self.attributes.iter().map(|(_, value)| match value {
            Value::Text(text) => ATTRIBUTE_BYTES + text.len(),
            Value::Number(_) | Value::Switch(_) => ATTRIBUTE_BYTES,
        });
        SPAN_BYTES + self.name.len() + self.parent.state.len() + attributes.sum::<usize>()
    }
}
