//! A table as it lies in the read buffer: checked once, read as often as wanted, never copied.

use std::fmt;

use bytes::BytesMut;

use super::{tag, validate};
use crate::error::{Error, Fault};
use crate::reader::Reader;
use crate::writer::put_longstr;

/// The bytes of a valid table, without its length. The empty table is the default.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TableRef<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn table(&mut self) -> Result<TableRef<'a>, Fault> {
        TableRef::check(self.longstr()?)
    }
}

#[inline]
pub(crate) fn put_table(out: &mut BytesMut, table: TableRef<'_>) {
    put_longstr(out, table.as_bytes());
}

impl<'a> TableRef<'a> {
    /// The empty table.
    pub const EMPTY: TableRef<'static> = TableRef(&[]);

    /// Reads a length of four octets and the table after it; says how many bytes both took.
    ///
    /// # Errors
    /// 502 if the bytes are too few, or for the reasons of `validate`.
    pub fn decode(bytes_with_length: &'a [u8]) -> Result<(Self, usize), Error> {
        let mut reader = Reader::new(bytes_with_length);
        let table = reader.table().map_err(|fault| fault.within("field table"))?;
        let taken = bytes_with_length.len().saturating_sub(reader.remaining());
        Ok((table, taken))
    }

    /// Takes the bytes of a table without its length.
    ///
    /// # Errors
    /// 502 for an unknown type, a length that crosses its parent's end, and a key that is not UTF-8; 406 for more
    /// bytes, entries or levels than `limits` allows.
    pub fn validate(raw_without_length: &'a [u8]) -> Result<Self, Error> {
        Self::check(raw_without_length).map_err(|fault| fault.within("field table"))
    }

    #[inline]
    pub(crate) fn check(raw: &'a [u8]) -> Result<Self, Fault> {
        if !raw.is_empty() {
            validate::validate(raw)?;
        }
        Ok(Self(raw))
    }

    /// The fields in their order; a key may come twice.
    #[inline]
    pub fn iter(&self) -> Entries<'a> {
        Entries { reader: Reader::new(self.0) }
    }

    /// The keys of the fields and the bytes of each whole field: key, type and value as they lie.
    pub fn raw_fields(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let (mut entries, mut left) = (self.iter(), self.0);
        std::iter::from_fn(move || {
            let (key, _) = entries.next()?;
            let taken = left.len().saturating_sub(entries.reader.remaining());
            let (field, rest) = left.split_at_checked(taken)?;
            left = rest;
            Some((key, field))
        })
    }

    /// The first field with this key.
    pub fn find(&self, key: &str) -> Option<ValueRef<'a>> {
        self.iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    /// The table's bytes, without its length.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for TableRef<'a> {
    type Item = (&'a str, ValueRef<'a>);
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

impl fmt::Debug for TableRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

/// The bytes of a valid array, without its length.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ArrayRef<'a>(&'a [u8]);

impl<'a> ArrayRef<'a> {
    /// The elements in their order.
    #[inline]
    pub fn iter(&self) -> Values<'a> {
        Values { reader: Reader::new(self.0) }
    }

    /// The array's bytes, without its length.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for ArrayRef<'a> {
    type Item = ValueRef<'a>;
    type IntoIter = Values<'a>;

    fn into_iter(self) -> Values<'a> {
        self.iter()
    }
}

impl fmt::Debug for ArrayRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

/// A field's value, borrowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// `t`; any octet but zero is true.
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`, and `L` when read.
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: the number is `value`, signed or not as its reader likes, over ten to the power of `scale`.
    Decimal { scale: u8, value: u32 },
    /// `S`: text by convention, but not promised to be.
    LongStr(&'a [u8]),
    /// `x`
    Bytes(&'a [u8]),
    /// `A`
    Array(ArrayRef<'a>),
    /// `T`: seconds since 1970.
    Timestamp(u64),
    /// `F`
    Table(TableRef<'a>),
    /// `V`
    Void,
}

impl<'a> ValueRef<'a> {
    /// The value, with a whole number of any width as one kind.
    #[inline]
    pub fn widened(self) -> Widened<'a> {
        match self {
            Self::I8(number) => Widened::Integer(number.into()),
            Self::U8(number) => Widened::Integer(number.into()),
            Self::I16(number) => Widened::Integer(number.into()),
            Self::U16(number) => Widened::Integer(number.into()),
            Self::I32(number) => Widened::Integer(number.into()),
            Self::U32(number) => Widened::Integer(number.into()),
            Self::I64(number) => Widened::Integer(number),
            Self::Bool(is_true) => Widened::Bool(is_true),
            Self::F32(number) => Widened::F32(number),
            Self::F64(number) => Widened::F64(number),
            Self::Decimal { scale, value } => Widened::Decimal { scale, value },
            Self::LongStr(bytes) => Widened::LongStr(bytes),
            Self::Bytes(bytes) => Widened::Bytes(bytes),
            Self::Array(array) => Widened::Array(array),
            Self::Timestamp(seconds) => Widened::Timestamp(seconds),
            Self::Table(table) => Widened::Table(table),
            Self::Void => Widened::Void,
        }
    }

    /// A whole number of any width. A timestamp is none.
    #[inline]
    pub fn integer(self) -> Option<i64> {
        match self.widened() {
            Widened::Integer(number) => Some(number),
            Widened::Bool(_)
            | Widened::F32(_)
            | Widened::F64(_)
            | Widened::Decimal { .. }
            | Widened::LongStr(_)
            | Widened::Bytes(_)
            | Widened::Array(_)
            | Widened::Timestamp(_)
            | Widened::Table(_)
            | Widened::Void => None,
        }
    }
}

/// A field's value for those who do not care how wide a whole number is. Else as `ValueRef`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Widened<'a> {
    Bool(bool),
    /// Of any width, signed or not: all of them fit.
    Integer(i64),
    F32(f32),
    F64(f64),
    Decimal {
        scale: u8,
        value: u32,
    },
    LongStr(&'a [u8]),
    Bytes(&'a [u8]),
    Array(ArrayRef<'a>),
    Timestamp(u64),
    Table(TableRef<'a>),
    Void,
}

/// The fields of a table.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, ValueRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // The bytes were checked: the only failure is the end.
        let key = self.reader.shortstr().ok()?;
        let value = read_value(&mut self.reader).ok()?;
        Some((key, value))
    }
}

/// The elements of an array.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for Values<'a> {
    type Item = ValueRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<ValueRef<'a>> {
        read_value(&mut self.reader).ok()
    }
}

fn read_value<'a>(reader: &mut Reader<'a>) -> Result<ValueRef<'a>, Fault> {
    Ok(match reader.u8()? {
        tag::BOOL => ValueRef::Bool(reader.u8()? != 0),
        tag::I8 => ValueRef::I8(i8::from_be_bytes(reader.array()?)),
        tag::U8 => ValueRef::U8(reader.u8()?),
        tag::I16 => ValueRef::I16(i16::from_be_bytes(reader.array()?)),
        tag::U16 => ValueRef::U16(reader.u16()?),
        tag::I32 => ValueRef::I32(i32::from_be_bytes(reader.array()?)),
        tag::U32 => ValueRef::U32(reader.u32()?),
        tag::I64 | tag::I64_TOO => ValueRef::I64(i64::from_be_bytes(reader.array()?)),
        tag::F32 => ValueRef::F32(f32::from_be_bytes(reader.array()?)),
        tag::F64 => ValueRef::F64(f64::from_be_bytes(reader.array()?)),
        tag::DECIMAL => ValueRef::Decimal { scale: reader.u8()?, value: reader.u32()? },
        tag::LONGSTR => ValueRef::LongStr(reader.longstr()?),
        tag::BYTES => ValueRef::Bytes(reader.longstr()?),
        tag::ARRAY => ValueRef::Array(ArrayRef(reader.longstr()?)),
        tag::TIMESTAMP => ValueRef::Timestamp(reader.u64()?),
        tag::TABLE => ValueRef::Table(TableRef(reader.longstr()?)),
        tag::VOID => ValueRef::Void,
        unknown => return Err(Fault::UnknownType(unknown)),
    })
}
