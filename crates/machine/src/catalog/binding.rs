//! One binding: from an exchange to a queue or exchange, with a key and arguments.

use super::destination::Destination;
use crate::value::Arguments;

/// One binding: equal ones are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    pub source: String,
    pub destination: Destination,
    pub key: String,
    /// Sorted by name: their order does not tell bindings apart.
    pub arguments: Arguments,
}

impl Binding {
    pub(super) fn new(
        source: String,
        destination: Destination,
        key: String,
        mut arguments: Arguments,
    ) -> Self {
        arguments.0.sort_by(|(one, _), (two, _)| one.cmp(two));
        Self { source, destination, key, arguments }
    }
}
