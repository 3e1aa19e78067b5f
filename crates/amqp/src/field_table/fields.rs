//! Writes a table field by field, straight into the output: for tables that are made of what lies in a buffer
//! already, without an owned copy in between.

use bytes::{BufMut, BytesMut};

use super::tag;
use crate::writer::{fill_length, put_length_later, put_longstr, put_shortstr};

/// A table that is being written: what it holds so far is in the output.
#[derive(Debug)]
pub struct FieldWriter<'o> {
    out: &'o mut BytesMut,
}

/// An array that is being written.
#[derive(Debug)]
pub struct ElementWriter<'o> {
    out: &'o mut BytesMut,
}

impl<'o> FieldWriter<'o> {
    /// Writes the table's bytes without its length, as `TableRef::validate` takes them.
    pub fn new(out: &'o mut BytesMut) -> Self {
        Self { out }
    }

    /// `S`
    pub fn text(&mut self, key: &str, text: &[u8]) {
        put_shortstr(self.out, key);
        put_text(self.out, text);
    }

    /// `l`
    pub fn long(&mut self, key: &str, number: i64) {
        put_shortstr(self.out, key);
        self.out.put_u8(tag::I64);
        self.out.put_i64(number);
    }

    /// `T`: seconds since 1970.
    pub fn timestamp(&mut self, key: &str, seconds: u64) {
        put_shortstr(self.out, key);
        self.out.put_u8(tag::TIMESTAMP);
        self.out.put_u64(seconds);
    }

    /// `A`
    pub fn array(&mut self, key: &str, fill: impl FnOnce(&mut ElementWriter<'_>)) {
        put_shortstr(self.out, key);
        self.out.put_u8(tag::ARRAY);
        let at = put_length_later(self.out);
        fill(&mut ElementWriter { out: self.out });
        fill_length(self.out, at);
    }

    /// A whole field as it lies in a valid table, or many of them.
    pub fn raw(&mut self, fields: &[u8]) {
        self.out.put_slice(fields);
    }
}

impl ElementWriter<'_> {
    /// `S`
    pub fn text(&mut self, text: &[u8]) {
        put_text(self.out, text);
    }

    /// `F`
    pub fn table(&mut self, fill: impl FnOnce(&mut FieldWriter<'_>)) {
        self.out.put_u8(tag::TABLE);
        let at = put_length_later(self.out);
        fill(&mut FieldWriter { out: self.out });
        fill_length(self.out, at);
    }
}

fn put_text(out: &mut BytesMut, text: &[u8]) {
    out.put_u8(tag::LONGSTR);
    put_longstr(out, text);
}

#[cfg(test)]
mod tests {
    use super::super::{FieldTable, FieldValue};
    use super::*;

    #[test]
    fn a_table_written_by_field_is_the_one_that_its_owned_copy_writes() {
        let inner = FieldTable(vec![("t".into(), FieldValue::Timestamp(7))]);
        let list = vec![FieldValue::LongStr(b"x".into()), FieldValue::Table(inner.clone())];
        let owned = FieldTable(vec![
            ("a".into(), FieldValue::Array(list)),
            ("n".into(), FieldValue::I64(-1)),
            ("s".into(), FieldValue::LongStr(b"text".into())),
            ("t".into(), FieldValue::Timestamp(7)),
        ]);
        let mut out = BytesMut::new();
        let mut fields = FieldWriter::new(&mut out);
        fields.array("a", |elements| {
            elements.text(b"x");
            elements.table(|fields| fields.timestamp("t", 7));
        });
        fields.long("n", -1);
        fields.text("s", b"text");
        fields.raw(&inner.to_bytes());
        assert_eq!(out, owned.to_bytes());
    }
}
