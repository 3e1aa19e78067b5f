//! The machine's own typed table: the arguments of queues, exchanges and bindings.
//!
//! The same types as AMQP's tables have, but no floats: those are kept as their bits, so that
//! replicas agree. Order and duplicates of a table are kept. Encoding and decoding walk with a stack
//! of their own; depth, entries and bytes are bounded by `limits`.

use crate::encoding::{Corrupt, Reader, put_bool, put_text, put_u32, put_u64};
use crate::ids::NodeId;
use crate::limits::{
    ARGUMENT_ENTRIES_MAX, ARGUMENTS_BYTES_FREE, ARGUMENTS_BYTES_MAX, VALUE_DEPTH_MAX,
    VALUE_DEPTH_READ_MAX,
};

/// One value of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Void,
    Bool(bool),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    /// The bits of an IEEE 754 single.
    F32(u32),
    /// The bits of an IEEE 754 double.
    F64(u64),
    Decimal {
        scale: u8,
        value: u32,
    },
    /// Seconds since 1970.
    Timestamp(u64),
    LongStr(Vec<u8>),
    Bytes(Vec<u8>),
    Array(Vec<Value>),
    Table(Arguments),
}

impl Value {
    /// The number, whatever its width.
    pub fn integer(&self) -> Option<i64> {
        match *self {
            Self::I8(value) => Some(value.into()),
            Self::U8(value) => Some(value.into()),
            Self::I16(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::I32(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::I64(value) => Some(value),
            Self::Void
            | Self::Bool(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Decimal { .. }
            | Self::Timestamp(_)
            | Self::LongStr(_)
            | Self::Bytes(_)
            | Self::Array(_)
            | Self::Table(_) => None,
        }
    }

    /// The text of a long string.
    pub fn text(&self) -> Option<&str> {
        let Self::LongStr(bytes) = self else { return None };
        std::str::from_utf8(bytes).ok()
    }

    /// The same value: integers of different width are equal when their numbers are.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.integer(), other.integer()) {
            (Some(one), Some(two)) => one == two,
            (None, None) => self == other,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// A borrowed look at it.
    pub fn view(&self) -> ValueView<'_> {
        match self {
            Self::Void => ValueView::Void,
            Self::Bool(value) => ValueView::Bool(*value),
            Self::F32(bits) => ValueView::F32(*bits),
            Self::F64(bits) => ValueView::F64(*bits),
            Self::Decimal { scale, value } => ValueView::Decimal { scale: *scale, value: *value },
            Self::Timestamp(seconds) => ValueView::Timestamp(*seconds),
            Self::LongStr(bytes) => ValueView::LongStr(bytes),
            Self::Bytes(bytes) => ValueView::Bytes(bytes),
            Self::Array(_) | Self::Table(_) => ValueView::Nested(self.clone()),
            Self::I8(_)
            | Self::U8(_)
            | Self::I16(_)
            | Self::U16(_)
            | Self::I32(_)
            | Self::U32(_)
            | Self::I64(_) => ValueView::Int(self.integer().expect("these are the integers")),
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Void => 0,
            Self::Bool(_) => 1,
            Self::I8(_) => 2,
            Self::U8(_) => 3,
            Self::I16(_) => 4,
            Self::U16(_) => 5,
            Self::I32(_) => 6,
            Self::U32(_) => 7,
            Self::I64(_) => 8,
            Self::F32(_) => 9,
            Self::F64(_) => 10,
            Self::Decimal { .. } => 11,
            Self::Timestamp(_) => 12,
            Self::LongStr(_) => 13,
            Self::Bytes(_) => 14,
            Self::Array(_) => ARRAY,
            Self::Table(_) => TABLE,
        }
    }
}

const ARRAY: u8 = 15;
const TABLE: u8 = 16;

/// A value that is looked at where it lies: a header of a message being routed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueView<'a> {
    Void,
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// The bits of an IEEE 754 single.
    F32(u32),
    /// The bits of an IEEE 754 double.
    F64(u64),
    Decimal {
        scale: u8,
        value: u32,
    },
    /// Seconds since 1970.
    Timestamp(u64),
    LongStr(&'a [u8]),
    Bytes(&'a [u8]),
    /// An array or a table.
    Nested(Value),
}

/// What routing may ask of a message, besides its key: its headers most of all. Few exchanges ask; whose
/// message was asked has a route of its own.
pub trait Headers {
    /// The first header of this name.
    fn find(&self, name: &str) -> Option<ValueView<'_>>;

    /// Shows all headers, in their order.
    fn each<'m>(&'m self, show: &mut dyn FnMut(&'m str, ValueView<'m>));

    /// A property, for an exchange that hashes it.
    fn property(&self, _property: HashProperty) -> Option<ValueView<'_>> {
        None
    }

    /// A number drawn for this message: the same however often it is asked for.
    fn chance(&self) -> u64 {
        0
    }

    /// The node that its publisher is connected to. `None`: nobody published it, or nobody knows.
    fn node(&self) -> Option<NodeId> {
        None
    }
}

/// A property that can be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashProperty {
    MessageId,
    CorrelationId,
    Timestamp,
}

/// Number in commands and snapshots, which never changes, and RabbitMQ's name.
const HASH_PROPERTIES: &[(HashProperty, u8, &str)] = &[
    (HashProperty::MessageId, 1, "message_id"),
    (HashProperty::CorrelationId, 2, "correlation_id"),
    (HashProperty::Timestamp, 3, "timestamp"),
];

impl HashProperty {
    /// By RabbitMQ's name.
    pub fn parse(name: &str) -> Option<Self> {
        let known = HASH_PROPERTIES.iter().find(|(_, _, known)| *known == name);
        known.map(|(property, _, _)| *property)
    }

    pub(crate) fn number(self) -> u8 {
        let known = HASH_PROPERTIES.iter().find(|(property, _, _)| *property == self);
        known.expect("every property is in the table").1
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        let known = HASH_PROPERTIES.iter().find(|(_, known, _)| *known == number);
        known.map(|(property, _, _)| *property)
    }
}

/// A message without headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn find(&self, _name: &str) -> Option<ValueView<'_>> {
        None
    }

    fn each<'m>(&'m self, _show: &mut dyn FnMut(&'m str, ValueView<'m>)) {}
}

/// A table: named values in the order they were given, duplicates kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arguments(pub Vec<(String, Value)>);

impl Headers for Arguments {
    fn find(&self, name: &str) -> Option<ValueView<'_>> {
        self.find(name).map(Value::view)
    }

    fn each<'m>(&'m self, show: &mut dyn FnMut(&'m str, ValueView<'m>)) {
        self.0.iter().for_each(|(name, value)| show(name, value.view()));
    }
}

impl Arguments {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: Value) -> Self {
        self.0.push((name.into(), value));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first value of this name.
    pub fn find(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Whether depth, entries and bytes are within the limits.
    pub fn is_within_limits(&self) -> bool {
        self.bytes().is_some()
    }

    /// What it adds to the bytes of arguments of its vhost.
    pub(crate) fn weight(&self) -> usize {
        self.bytes().unwrap_or(ARGUMENTS_BYTES_MAX).saturating_sub(ARGUMENTS_BYTES_FREE)
    }

    /// About what it takes when it is encoded. None: it is beyond the limits.
    fn bytes(&self) -> Option<usize> {
        // Depth first, without writing: the stack is bounded before it is used.
        let mut left = vec![Level::Table(self.0.iter())];
        let mut entries = 0;
        let mut bytes = 0;
        while let Some(level) = left.last_mut() {
            let Some((name, value)) = level.next() else {
                left.pop();
                continue;
            };
            entries += 1;
            bytes += 9 + name.map_or(0, |name| 4 + name.len());
            if entries > ARGUMENT_ENTRIES_MAX || bytes > ARGUMENTS_BYTES_MAX {
                return None;
            }
            if let Value::LongStr(text) | Value::Bytes(text) = value {
                bytes += text.len();
            }
            left.extend(Level::inside(value));
            if left.len() > VALUE_DEPTH_MAX {
                return None;
            }
        }
        (bytes <= ARGUMENTS_BYTES_MAX).then_some(bytes)
    }

    /// Appends the table to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.0.len() as u32);
        let mut left = vec![Level::Table(self.0.iter())];
        while let Some(level) = left.last_mut() {
            let Some((name, value)) = level.next() else {
                left.pop();
                continue;
            };
            if let Some(name) = name {
                put_text(out, name);
            }
            put_value(out, value);
            left.extend(Level::inside(value));
        }
    }

    /// Reads what `encode` wrote. Total on any bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "arguments");
        let arguments = Self::read(&mut reader)?;
        reader.end()?;
        Ok(arguments)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut open = vec![Open::table(None, reader.u32()?)];
        loop {
            let level = open.last_mut().ok_or(reader.corrupt())?;
            if level.left == 0 {
                let done = open.pop().ok_or(reader.corrupt())?;
                let (name, value) = done.close();
                match open.last_mut() {
                    Some(outer) => outer.push(name, value),
                    None => {
                        let Value::Table(table) = value else { return Err(reader.corrupt()) };
                        return Ok(table);
                    }
                }
                continue;
            }
            level.left -= 1;
            if open.len() > VALUE_DEPTH_READ_MAX {
                return Err(reader.corrupt());
            }
            let level = open.last_mut().ok_or(reader.corrupt())?;
            let name = if level.is_table { Some(reader.string()?) } else { None };
            match reader.u8()? {
                ARRAY => open.push(Open::array(name, reader.u32()?)),
                TABLE => open.push(Open::table(name, reader.u32()?)),
                tag => level.push(name, read_scalar(reader, tag)?),
            }
        }
    }
}

/// A table or array being walked.
enum Level<'a> {
    Table(std::slice::Iter<'a, (String, Value)>),
    Array(std::slice::Iter<'a, Value>),
}

impl<'a> Level<'a> {
    /// None: the value stands for itself.
    fn inside(value: &'a Value) -> Option<Self> {
        if let Value::Array(values) = value {
            return Some(Self::Array(values.iter()));
        }
        let Value::Table(table) = value else { return None };
        Some(Self::Table(table.0.iter()))
    }

    fn next(&mut self) -> Option<(Option<&'a str>, &'a Value)> {
        match self {
            Self::Table(entries) => {
                entries.next().map(|(name, value)| (Some(name.as_str()), value))
            }
            Self::Array(values) => values.next().map(|value| (None, value)),
        }
    }
}

/// A table or array being read.
struct Open {
    is_table: bool,
    /// Under which name it goes into the one around it.
    name: Option<String>,
    left: u32,
    values: Vec<(String, Value)>,
}

impl Open {
    fn table(name: Option<String>, left: u32) -> Self {
        Self { is_table: true, name, left, values: Vec::new() }
    }

    fn array(name: Option<String>, left: u32) -> Self {
        Self { is_table: false, name, left, values: Vec::new() }
    }

    fn push(&mut self, name: Option<String>, value: Value) {
        self.values.push((name.unwrap_or_default(), value));
    }

    fn close(self) -> (Option<String>, Value) {
        let value = if self.is_table {
            Value::Table(Arguments(self.values))
        } else {
            Value::Array(self.values.into_iter().map(|(_, value)| value).collect())
        };
        (self.name, value)
    }
}

/// The tag and the value; of a table or array only how many entries follow.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    out.push(value.tag());
    match value {
        Value::Void => {}
        Value::Bool(value) => put_bool(out, *value),
        Value::I8(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::U8(value) => out.push(*value),
        Value::I16(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::U16(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::I32(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::U32(value) | Value::F32(value) => put_u32(out, *value),
        Value::I64(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::F64(value) | Value::Timestamp(value) => put_u64(out, *value),
        Value::Decimal { scale, value } => {
            out.push(*scale);
            put_u32(out, *value);
        }
        Value::LongStr(bytes) | Value::Bytes(bytes) => {
            put_u32(out, bytes.len() as u32);
            out.extend_from_slice(bytes);
        }
        Value::Array(values) => put_u32(out, values.len() as u32),
        Value::Table(table) => put_u32(out, table.0.len() as u32),
    }
}

fn read_scalar(reader: &mut Reader<'_>, tag: u8) -> Result<Value, Corrupt> {
    Ok(match tag {
        0 => Value::Void,
        1 => Value::Bool(reader.bool()?),
        2 => Value::I8(reader.u8()? as i8),
        3 => Value::U8(reader.u8()?),
        4 => Value::I16(reader.u16()? as i16),
        5 => Value::U16(reader.u16()?),
        6 => Value::I32(reader.u32()? as i32),
        7 => Value::U32(reader.u32()?),
        8 => Value::I64(reader.u64()? as i64),
        9 => Value::F32(reader.u32()?),
        10 => Value::F64(reader.u64()?),
        11 => Value::Decimal { scale: reader.u8()?, value: reader.u32()? },
        12 => Value::Timestamp(reader.u64()?),
        13 => Value::LongStr(reader.blob()?.to_vec()),
        14 => Value::Bytes(reader.blob()?.to_vec()),
        _ => return Err(reader.corrupt()),
    })
}
