//! One binding: from an exchange to a queue or exchange, with a key and arguments; and what a command says of it.

use super::destination::Destination;
use super::encoding::{put_owner_option, read_owner_option};
use crate::encoding::{Corrupt, Reader, put_text};
use crate::ids::SessionOwner;
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

/// A binding that is to come or to go, as commands hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingChange {
    pub vhost: String,
    pub source: String,
    pub destination: Destination,
    pub key: String,
    pub arguments: Arguments,
    /// `None`: an operator, whom no exclusive queue stops.
    pub by: Option<SessionOwner>,
}

impl BindingChange {
    /// The binding itself.
    pub(super) fn binding(&self) -> Binding {
        let (source, destination) = (self.source.clone(), self.destination.clone());
        Binding::new(source, destination, self.key.clone(), self.arguments.clone())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.vhost);
        put_text(out, &self.source);
        self.destination.encode(out);
        put_text(out, &self.key);
        self.arguments.encode(out);
        put_owner_option(out, self.by);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self {
            vhost: reader.string()?,
            source: reader.string()?,
            destination: Destination::read(reader)?,
            key: reader.string()?,
            arguments: Arguments::read(reader)?,
            by: read_owner_option(reader)?,
        })
    }
}
