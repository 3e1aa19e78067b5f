//! AMQP's tables in the machine's words. The machine does not know AMQP; this is where they meet.

use std::cell::Cell;

use amqp::{FieldTable, FieldValue, Properties, TableRef, ValueRef, Widened};
use machine::{Arguments, HashProperty, Headers, NodeId, Value, ValueView};

/// The arguments of a declaration.
pub(crate) fn arguments(table: TableRef<'_>) -> Arguments {
    from_table(table.to_table())
}

/// Depth is bounded: the table was checked when it was decoded (`amqp::limits::TABLE_DEPTH_MAX`).
fn from_table(table: FieldTable) -> Arguments {
    Arguments(table.0.into_iter().map(|(name, value)| (name, from_value(value))).collect())
}

fn from_value(value: FieldValue) -> Value {
    match value {
        FieldValue::Bool(value) => Value::Bool(value),
        FieldValue::I8(value) => Value::I8(value),
        FieldValue::U8(value) => Value::U8(value),
        FieldValue::I16(value) => Value::I16(value),
        FieldValue::U16(value) => Value::U16(value),
        FieldValue::I32(value) => Value::I32(value),
        FieldValue::U32(value) => Value::U32(value),
        FieldValue::I64(value) => Value::I64(value),
        FieldValue::F32(value) => Value::F32(value.to_bits()),
        FieldValue::F64(value) => Value::F64(value.to_bits()),
        FieldValue::Decimal { scale, value } => Value::Decimal { scale, value },
        FieldValue::LongStr(bytes) => Value::LongStr(bytes),
        FieldValue::Bytes(bytes) => Value::Bytes(bytes),
        FieldValue::Timestamp(seconds) => Value::Timestamp(seconds),
        FieldValue::Array(values) => Value::Array(values.into_iter().map(from_value).collect()),
        FieldValue::Table(table) => Value::Table(from_table(table)),
        FieldValue::Void => Value::Void,
    }
}

/// A table of the machine's as AMQP's. Depth is bounded: the machine has taken it (`machine::limits::VALUE_DEPTH_MAX`).
pub(crate) fn field_table(arguments: &Arguments) -> FieldTable {
    FieldTable(arguments.0.iter().map(|(name, value)| (name.clone(), field(value))).collect())
}

fn field(value: &Value) -> FieldValue {
    match value {
        Value::Bool(value) => FieldValue::Bool(*value),
        Value::I8(value) => FieldValue::I8(*value),
        Value::U8(value) => FieldValue::U8(*value),
        Value::I16(value) => FieldValue::I16(*value),
        Value::U16(value) => FieldValue::U16(*value),
        Value::I32(value) => FieldValue::I32(*value),
        Value::U32(value) => FieldValue::U32(*value),
        Value::I64(value) => FieldValue::I64(*value),
        Value::F32(bits) => FieldValue::F32(f32::from_bits(*bits)),
        Value::F64(bits) => FieldValue::F64(f64::from_bits(*bits)),
        Value::Decimal { scale, value } => FieldValue::Decimal { scale: *scale, value: *value },
        Value::LongStr(bytes) => FieldValue::LongStr(bytes.clone()),
        Value::Bytes(bytes) => FieldValue::Bytes(bytes.clone()),
        Value::Timestamp(seconds) => FieldValue::Timestamp(*seconds),
        Value::Array(values) => FieldValue::Array(values.iter().map(field).collect()),
        Value::Table(table) => FieldValue::Table(field_table(table)),
        Value::Void => FieldValue::Void,
    }
}

/// A message as routing sees it. Remembers whether the route depends on more than the key.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    properties: Properties<'a>,
    chance: u64,
    node: NodeId,
    was_asked: Cell<bool>,
}

impl<'a> Observed<'a> {
    /// `chance` is a number drawn for this message, `node` the one that its publisher is connected to.
    pub(crate) fn new(properties: Properties<'a>, chance: u64, node: NodeId) -> Self {
        Self { properties, chance, node, was_asked: Cell::new(false) }
    }

    /// Whether routing looked at more than the key: then the route is this message's alone.
    pub(crate) fn was_asked(&self) -> bool {
        self.was_asked.get()
    }
}

impl Headers for Observed<'_> {
    fn find(&self, name: &str) -> Option<ValueView<'_>> {
        self.was_asked.set(true);
        Some(view(self.properties.headers?.find(name)?))
    }

    fn each<'m>(&'m self, show: &mut dyn FnMut(&'m str, ValueView<'m>)) {
        self.was_asked.set(true);
        for (name, value) in self.properties.headers.unwrap_or_default() {
            show(name, view(value));
        }
    }

    fn property(&self, property: HashProperty) -> Option<ValueView<'_>> {
        self.was_asked.set(true);
        match property {
            HashProperty::MessageId => self.properties.message_id.map(text_view),
            HashProperty::CorrelationId => self.properties.correlation_id.map(text_view),
            HashProperty::Timestamp => self.properties.timestamp.map(ValueView::Timestamp),
        }
    }

    fn chance(&self) -> u64 {
        self.was_asked.set(true);
        self.chance
    }

    /// The same for all messages of a session: it makes no route one message's alone.
    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }
}

fn text_view(text: &str) -> ValueView<'_> {
    ValueView::LongStr(text.as_bytes())
}

/// A value as the machine looks at it.
pub(crate) fn view(value: ValueRef<'_>) -> ValueView<'_> {
    match value.widened() {
        Widened::Bool(value) => ValueView::Bool(value),
        Widened::Integer(value) => ValueView::Int(value),
        Widened::F32(value) => ValueView::F32(value.to_bits()),
        Widened::F64(value) => ValueView::F64(value.to_bits()),
        Widened::Decimal { scale, value } => ValueView::Decimal { scale, value },
        Widened::LongStr(bytes) => ValueView::LongStr(bytes),
        Widened::Bytes(bytes) => ValueView::Bytes(bytes),
        Widened::Timestamp(seconds) => ValueView::Timestamp(seconds),
        Widened::Void => ValueView::Void,
        Widened::Array(array) => {
            // An array is copied as the only field of a table.
            let mut raw = vec![1, b'a', b'A'];
            raw.extend_from_slice(&(array.as_bytes().len() as u32).to_be_bytes());
            raw.extend_from_slice(array.as_bytes());
            let value = TableRef::validate(&raw)
                .ok()
                .and_then(|table| arguments(table).0.pop().map(|(_, value)| value));
            ValueView::Nested(value.unwrap_or(Value::Void))
        }
        Widened::Table(table) => ValueView::Nested(Value::Table(arguments(table))),
    }
}

/// RabbitMQ's name for the type of a value, as error texts have it.
pub(crate) fn type_name(value: &ValueRef<'_>) -> &'static str {
    match value {
        ValueRef::Bool(_) => "bool",
        ValueRef::I8(_) => "byte",
        ValueRef::U8(_) => "unsignedbyte",
        ValueRef::I16(_) => "short",
        ValueRef::U16(_) => "unsignedshort",
        ValueRef::I32(_) => "signedint",
        ValueRef::U32(_) => "unsignedint",
        ValueRef::I64(_) => "long",
        ValueRef::F32(_) => "float",
        ValueRef::F64(_) => "double",
        ValueRef::Decimal { .. } => "decimal",
        ValueRef::LongStr(_) => "longstr",
        ValueRef::Bytes(_) => "binary",
        ValueRef::Timestamp(_) => "timestamp",
        ValueRef::Array(_) => "array",
        ValueRef::Table(_) => "table",
        ValueRef::Void => "void",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_table_keeps_its_types() {
        let inner = FieldTable(vec![("n".into(), FieldValue::I16(7))]);
        let list = FieldValue::Array(vec![FieldValue::Table(inner), FieldValue::Bool(true)]);
        let raw = FieldTable(vec![("a".into(), list)]).to_bytes();
        let table = TableRef::validate(&raw).unwrap();
        let expected = Value::Array(vec![
            Value::Table(Arguments::new().with("n", Value::I16(7))),
            Value::Bool(true),
        ]);
        assert_eq!(arguments(table).find("a"), Some(&expected));
        let properties = Properties { headers: Some(table), ..Properties::default() };
        let message = Observed::new(properties, 7, NodeId(1));
        assert!(!message.was_asked());
        assert_eq!(message.find("a"), Some(ValueView::Nested(expected)));
        assert!(message.was_asked());
    }

    #[test]
    fn a_route_that_asked_for_a_property_or_for_chance_is_one_messages_alone() {
        let properties = Properties { message_id: Some("id"), ..Properties::default() };
        let message = Observed::new(properties, 7, NodeId(1));
        assert!(!message.was_asked());
        let id = message.property(HashProperty::MessageId);
        assert_eq!(id, Some(ValueView::LongStr(b"id")));
        assert!(message.was_asked());
        let message = Observed::new(properties, 7, NodeId(1));
        assert_eq!(message.chance(), 7);
        assert!(message.was_asked());
    }
}
