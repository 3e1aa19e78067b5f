//! A table of our own: built by hand to be sent, or copied out of a view. Walks with a stack of its own.

use bytes::{BufMut, BytesMut};

use super::view::{Entries, TableRef, ValueRef, Values};
use super::{tag, validate};
use crate::error::Error;
use crate::limits;
use crate::reply_code::ReplyCode;
use crate::writer::{fill_length, put_length_later, put_longstr, put_shortstr};

/// Fields in their order; a key may come twice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldTable(pub Vec<(String, FieldValue)>);

impl TableRef<'_> {
    /// An owned copy.
    pub fn to_table(&self) -> FieldTable {
        table_of(*self)
    }
}

/// A field's value. The letters of the wire stand at `ValueRef`.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    Bool(bool),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    F32(f32),
    F64(f64),
    Decimal { scale: u8, value: u32 },
    LongStr(Vec<u8>),
    Bytes(Vec<u8>),
    Array(Vec<FieldValue>),
    Timestamp(u64),
    Table(FieldTable),
    Void,
}

impl FieldTable {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field at the end, whether the key is there already or not.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<FieldValue>) -> &mut Self {
        self.0.push((key.into(), value.into()));
        self
    }

    /// The first field with this key.
    pub fn find(&self, key: &str) -> Option<&FieldValue> {
        self.0.iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the table with its length. Of a key longer than 255 bytes the first 255 are written: a table of
    /// foreign making is to pass `check` first.
    pub fn encode(&self, out: &mut BytesMut) {
        let at = put_length_later(out);
        let mut open = vec![OpenOut { at, rest: Rest::Fields(self.0.iter()) }];
        while let Some(innermost) = open.last_mut() {
            let value = match &mut innermost.rest {
                Rest::Fields(fields) => fields.next().map(|(key, value)| {
                    put_shortstr(out, key);
                    value
                }),
                Rest::Elements(elements) => elements.next(),
            };
            match value {
                None => {
                    fill_length(out, innermost.at);
                    open.pop();
                }
                Some(FieldValue::Table(table)) => {
                    out.put_u8(tag::TABLE);
                    let at = put_length_later(out);
                    open.push(OpenOut { at, rest: Rest::Fields(table.0.iter()) });
                }
                Some(FieldValue::Array(elements)) => {
                    out.put_u8(tag::ARRAY);
                    let at = put_length_later(out);
                    open.push(OpenOut { at, rest: Rest::Elements(elements.iter()) });
                }
                Some(value) => put_plain(out, value),
            }
        }
    }

    /// The table's bytes without its length: what `TableRef::validate` takes and `TableRef::as_bytes` gives.
    pub fn to_bytes(&self) -> BytesMut {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.split_off(4)
    }

    /// Whether a peer with our limits will take it.
    ///
    /// # Errors
    /// 502 with what is too long, too deep or too many.
    pub fn check(&self) -> Result<(), Error> {
        if self.has_long_key() {
            return Err(Error::new(ReplyCode::SyntaxError, "a key is longer than 255 bytes"));
        }
        validate::validate(&self.to_bytes()).map_err(|fault| fault.within("field table"))?;
        Ok(())
    }

    fn has_long_key(&self) -> bool {
        let mut open = vec![Rest::Fields(self.0.iter())];
        while let Some(innermost) = open.last_mut() {
            let value = match innermost {
                Rest::Fields(fields) => match fields.next() {
                    Some((key, _)) if key.len() > limits::SHORTSTR_BYTES_MAX => return true,
                    field => field.map(|(_, value)| value),
                },
                Rest::Elements(elements) => elements.next(),
            };
            match value {
                None => drop(open.pop()),
                Some(FieldValue::Table(table)) => open.push(Rest::Fields(table.0.iter())),
                Some(FieldValue::Array(elements)) => open.push(Rest::Elements(elements.iter())),
                Some(_) => {}
            }
        }
        false
    }
}

impl<K: Into<String>, V: Into<FieldValue>> FromIterator<(K, V)> for FieldTable {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Self {
        Self(fields.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

/// A container that is being written: where its length goes, and what is left of it.
struct OpenOut<'t> {
    at: usize,
    rest: Rest<'t>,
}

enum Rest<'t> {
    Fields(std::slice::Iter<'t, (String, FieldValue)>),
    Elements(std::slice::Iter<'t, FieldValue>),
}

fn put_plain(out: &mut BytesMut, value: &FieldValue) {
    match value {
        FieldValue::Bool(is_true) => {
            out.put_u8(tag::BOOL);
            out.put_u8(u8::from(*is_true));
        }
        FieldValue::I8(number) => {
            out.put_u8(tag::I8);
            out.put_i8(*number);
        }
        FieldValue::U8(number) => {
            out.put_u8(tag::U8);
            out.put_u8(*number);
        }
        FieldValue::I16(number) => {
            out.put_u8(tag::I16);
            out.put_i16(*number);
        }
        FieldValue::U16(number) => {
            out.put_u8(tag::U16);
            out.put_u16(*number);
        }
        FieldValue::I32(number) => {
            out.put_u8(tag::I32);
            out.put_i32(*number);
        }
        FieldValue::U32(number) => {
            out.put_u8(tag::U32);
            out.put_u32(*number);
        }
        FieldValue::I64(number) => {
            out.put_u8(tag::I64);
            out.put_i64(*number);
        }
        FieldValue::F32(number) => {
            out.put_u8(tag::F32);
            out.put_f32(*number);
        }
        FieldValue::F64(number) => {
            out.put_u8(tag::F64);
            out.put_f64(*number);
        }
        FieldValue::Decimal { scale, value } => {
            out.put_u8(tag::DECIMAL);
            out.put_u8(*scale);
            out.put_u32(*value);
        }
        FieldValue::LongStr(text) => {
            out.put_u8(tag::LONGSTR);
            put_longstr(out, text);
        }
        FieldValue::Bytes(bytes) => {
            out.put_u8(tag::BYTES);
            put_longstr(out, bytes);
        }
        FieldValue::Timestamp(seconds) => {
            out.put_u8(tag::TIMESTAMP);
            out.put_u64(*seconds);
        }
        FieldValue::Void => out.put_u8(tag::VOID),
        FieldValue::Array(_) | FieldValue::Table(_) => unreachable!("containers are opened"),
    }
}

/// A container that is being copied: what is left to read, and what it has so far.
enum OpenIn<'a> {
    Table { key: String, rest: Entries<'a>, done: Vec<(String, FieldValue)> },
    Array { key: String, rest: Values<'a>, done: Vec<FieldValue> },
}

impl<'a> OpenIn<'a> {
    fn next(&mut self) -> Option<(&'a str, ValueRef<'a>)> {
        match self {
            Self::Table { rest, .. } => rest.next(),
            Self::Array { rest, .. } => rest.next().map(|value| ("", value)),
        }
    }

    fn push(&mut self, key: String, value: FieldValue) {
        match self {
            Self::Table { done, .. } => done.push((key, value)),
            Self::Array { done, .. } => done.push(value),
        }
    }
}

/// The copy behind `TableRef::to_table`. The view was checked, so depth and count are bounded.
pub(super) fn table_of(view: TableRef<'_>) -> FieldTable {
    let outermost = OpenIn::Table { key: String::new(), rest: view.iter(), done: Vec::new() };
    let mut open = vec![outermost];
    let mut top = FieldTable::new();
    while let Some(innermost) = open.last_mut() {
        match innermost.next() {
            Some((key, ValueRef::Table(table))) => {
                let key = key.to_owned();
                open.push(OpenIn::Table { key, rest: table.iter(), done: Vec::new() });
            }
            Some((key, ValueRef::Array(array))) => {
                let key = key.to_owned();
                open.push(OpenIn::Array { key, rest: array.iter(), done: Vec::new() });
            }
            Some((key, value)) => innermost.push(key.to_owned(), plain_of(value)),
            None => {
                let (key, value) = match open.pop() {
                    Some(OpenIn::Table { key, done, .. }) => {
                        (key, FieldValue::Table(FieldTable(done)))
                    }
                    Some(OpenIn::Array { key, done, .. }) => (key, FieldValue::Array(done)),
                    None => break,
                };
                match (open.last_mut(), value) {
                    (Some(parent), value) => parent.push(key, value),
                    (None, FieldValue::Table(table)) => top = table,
                    (None, _) => unreachable!("the outermost is a table"),
                }
            }
        }
    }
    top
}

fn plain_of(value: ValueRef<'_>) -> FieldValue {
    match value {
        ValueRef::Bool(is_true) => FieldValue::Bool(is_true),
        ValueRef::I8(number) => FieldValue::I8(number),
        ValueRef::U8(number) => FieldValue::U8(number),
        ValueRef::I16(number) => FieldValue::I16(number),
        ValueRef::U16(number) => FieldValue::U16(number),
        ValueRef::I32(number) => FieldValue::I32(number),
        ValueRef::U32(number) => FieldValue::U32(number),
        ValueRef::I64(number) => FieldValue::I64(number),
        ValueRef::F32(number) => FieldValue::F32(number),
        ValueRef::F64(number) => FieldValue::F64(number),
        ValueRef::Decimal { scale, value } => FieldValue::Decimal { scale, value },
        ValueRef::LongStr(text) => FieldValue::LongStr(text.to_vec()),
        ValueRef::Bytes(bytes) => FieldValue::Bytes(bytes.to_vec()),
        ValueRef::Timestamp(seconds) => FieldValue::Timestamp(seconds),
        ValueRef::Void => FieldValue::Void,
        ValueRef::Array(_) | ValueRef::Table(_) => unreachable!("containers are opened"),
    }
}

impl From<bool> for FieldValue {
    fn from(is_true: bool) -> Self {
        Self::Bool(is_true)
    }
}

impl From<i32> for FieldValue {
    fn from(number: i32) -> Self {
        Self::I32(number)
    }
}

impl From<u32> for FieldValue {
    fn from(number: u32) -> Self {
        Self::U32(number)
    }
}

impl From<i64> for FieldValue {
    fn from(number: i64) -> Self {
        Self::I64(number)
    }
}

impl From<f64> for FieldValue {
    fn from(number: f64) -> Self {
        Self::F64(number)
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::LongStr(text.as_bytes().to_vec())
    }
}

impl From<String> for FieldValue {
    fn from(text: String) -> Self {
        Self::LongStr(text.into_bytes())
    }
}

impl From<FieldTable> for FieldValue {
    fn from(table: FieldTable) -> Self {
        Self::Table(table)
    }
}

impl From<Vec<FieldValue>> for FieldValue {
    fn from(elements: Vec<FieldValue>) -> Self {
        Self::Array(elements)
    }
}
