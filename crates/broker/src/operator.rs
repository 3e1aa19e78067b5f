//! What an operator makes without a client: definitions that are brought in. The rules are those for clients, but
//! that nobody's permissions are asked.

use amqp::FieldTable;
use machine::{
    Arguments, Catalog, CatalogCommand, Destination, ExchangeKind, SessionId, SessionOwner,
    StreamOffset,
};

use crate::arguments::binding::Binding;
use crate::arguments::offset::{offset_of, word_of};
use crate::arguments::{exchange, queue};
use crate::errors::Failure;
use crate::values;

/// A queue that is to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct NewQueue {
    pub vhost: String,
    pub name: String,
    pub durable: bool,
    pub auto_delete: bool,
    pub arguments: FieldTable,
}

/// An exchange that is to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct NewExchange {
    pub vhost: String,
    pub name: String,
    pub kind: String,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: FieldTable,
}

/// A binding that is to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBinding {
    pub vhost: String,
    pub source: String,
    pub destination: String,
    pub to_exchange: bool,
    pub key: String,
    pub arguments: FieldTable,
}

/// What the catalog is asked for. `None`: it is there already.
pub type Asked = Result<Option<CatalogCommand>, String>;

impl NewQueue {
    /// # Errors
    /// What a client would be told.
    pub fn command(self, catalog: &Catalog, by: SessionOwner) -> Asked {
        let exists = catalog.queue(&self.vhost, &self.name).is_some();
        let declaration = queue::Declaration {
            vhost: self.vhost,
            name: self.name,
            durable: self.durable,
            auto_delete: self.auto_delete,
            exclusive: false,
            server_named: false,
            arguments: arguments(&self.arguments),
            by,
        }
        .with_default_type(catalog);
        declaration.judge(catalog).map_err(told)?;
        Ok((!exists).then(|| declaration.into_command_for(catalog)))
    }
}

impl NewExchange {
    /// # Errors
    /// What a client would be told.
    pub fn command(self, catalog: &Catalog, by: SessionOwner) -> Asked {
        let exists = catalog.exchange(&self.vhost, &self.name).is_some();
        let Some(kind) = ExchangeKind::parse(&self.kind) else {
            return Err(format!("unknown exchange type '{}'", self.kind));
        };
        let declaration = exchange::Declaration {
            vhost: self.vhost,
            name: self.name,
            kind,
            durable: self.durable,
            auto_delete: self.auto_delete,
            internal: self.internal,
            arguments: arguments(&self.arguments),
            by,
        };
        declaration.judge(catalog).map_err(told)?;
        Ok((!exists).then(|| declaration.into_command(catalog.agreed())))
    }
}

impl NewBinding {
    /// # Errors
    /// What a client would be told.
    pub fn command(self, catalog: &Catalog, by: SessionOwner) -> Asked {
        let destination = match self.to_exchange {
            true => Destination::Exchange(self.destination),
            false => Destination::Queue(self.destination),
        };
        let binding = Binding {
            vhost: self.vhost,
            source: self.source,
            destination,
            key: self.key,
            arguments: arguments(&self.arguments),
            by,
        };
        binding.judge(catalog).map_err(told)?;
        let command = binding.into_command(catalog.agreed());
        Ok((!catalog.is_bound(&command)).then_some(command))
    }
}

fn told(error: crate::arguments::error::DeclareError) -> String {
    Failure::from(error).error.text
}

/// Nobody's session: what an operator makes is no session's.
pub fn owner(node: machine::NodeId) -> SessionOwner {
    SessionOwner { node, session: SessionId(0) }
}

/// A table as the catalog keeps it.
pub fn arguments(table: &FieldTable) -> Arguments {
    let raw = table.to_bytes();
    let checked = amqp::TableRef::validate(&raw).unwrap_or_default();
    let mut arguments = values::arguments(checked);
    arguments.0.sort_by(|(one, _), (other, _)| one.cmp(other));
    arguments
}

/// The same as a client sends it.
pub fn table(arguments: &Arguments) -> FieldTable {
    values::field_table(arguments)
}

/// The place in a stream of the message with this offset.
pub fn stream_offset(offset: i64) -> StreamOffset {
    offset_of(offset)
}

/// A place in a stream by its word: `first`, `last`, `next`, or how long ago. None: it is none of these.
pub fn stream_place(word: &str) -> Option<StreamOffset> {
    word_of(word)
}

#[cfg(test)]
mod tests {
    use amqp::FieldValue;

    use super::*;

    #[test]
    fn arguments_come_back_as_a_client_gave_them() {
        let inner = FieldTable(vec![("n".into(), FieldValue::I16(7))]);
        let list = FieldValue::Array(vec![FieldValue::Table(inner), FieldValue::F64(0.5)]);
        let given = FieldTable(vec![("a".into(), list), ("b".into(), FieldValue::Void)]);
        assert_eq!(table(&arguments(&given)), given);
    }

    #[test]
    fn what_is_there_already_is_not_made_again_and_what_differs_is_refused() {
        let catalog = Catalog::new(1);
        let by = owner(machine::NodeId(1));
        let topic = |kind: &str| NewExchange {
            vhost: "/".into(),
            name: "amq.topic".into(),
            kind: kind.into(),
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: FieldTable::default(),
        };
        assert_eq!(topic("topic").command(&catalog, by), Ok(None));
        assert!(topic("fanout").command(&catalog, by).is_err_and(|told| told.contains("topic")));
        assert!(topic("unknown").command(&catalog, by).is_err());
        let queue = NewQueue {
            vhost: "/".into(),
            name: "jobs".into(),
            durable: true,
            auto_delete: false,
            arguments: FieldTable::default(),
        };
        assert!(matches!(queue.command(&catalog, by), Ok(Some(_))));
    }
}
