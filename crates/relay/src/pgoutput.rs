//! Changes as PostgreSQL's pgoutput plugin sends them (protocol version 1), and rows in the same form.
//!
//! Only what a relay needs: which columns a table has, and the rows that were inserted. Begin, Commit and Message are
//! taken out by the replication client. Total over any bytes: what is malformed is an error, never a panic.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// The type `bytea` in PostgreSQL's catalog.
const BYTEA: u32 = 17;
/// Tag, relation and `N` of an insert, before its columns.
const INSERT_HEAD_BYTES: usize = 6;
/// The relation of rows that were not decoded from the log, but made by [`encode_row`].
pub(crate) const OWN_RELATION: u32 = 0;

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A table's columns, told before its first row and again when they have changed.
    Relation(Relation),
    /// A row was inserted: [`columns`] reads it.
    Insert { relation: u32 },
    /// Nothing that a relay publishes.
    Other,
}

/// A table as pgoutput describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) id: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Its text is hexadecimal.
    pub(crate) is_bytea: bool,
}

/// These bytes are not what pgoutput sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a change that cannot be read ({})", self.0)
    }
}

/// Reads one message. Of an insert every column's length is checked.
pub(crate) fn decode(data: &[u8]) -> Result<Change, Malformed> {
    let mut reader = Reader(data);
    Ok(match reader.u8()? {
        b'R' => Change::Relation(relation(&mut reader)?),
        b'I' => {
            let relation = reader.u32()?;
            if reader.u8()? != b'N' {
                return Err(Malformed("an insert without its new row"));
            }
            let count = reader.u16()?;
            for _ in 0..count {
                reader.column()?;
            }
            Change::Insert { relation }
        }
        _ => Change::Other,
    })
}

fn relation(reader: &mut Reader<'_>) -> Result<Relation, Malformed> {
    let id = reader.u32()?;
    let (schema, name) = (reader.text()?, reader.text()?);
    let _replica_identity = reader.u8()?;
    let count = reader.u16()?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let _flags = reader.u8()?;
        let name = reader.text()?;
        let is_bytea = reader.u32()? == BYTEA;
        let _modifier = reader.u32()?;
        columns.push(Column { name, is_bytea });
    }
    Ok(Relation { id, schema, name, columns })
}

/// The columns of an insert that [`decode`] has accepted: where each value is in `insert`; none is NULL.
pub(crate) fn columns(insert: &[u8]) -> impl Iterator<Item = Option<(usize, usize)>> {
    let mut reader = Reader(insert.get(INSERT_HEAD_BYTES + 2..).unwrap_or_default());
    std::iter::from_fn(move || {
        let value = reader.column().ok()?;
        Some(value.map(|value| {
            let end = insert.len() - reader.0.len();
            (end - value.len(), end)
        }))
    })
}

/// Reads anybody's bytes, and panics if what [`decode`] and [`columns`] promise does not hold: for the fuzzer, and
/// public for it alone.
pub fn read_any(bytes: &[u8]) {
    let accepted = decode(bytes);
    for (start, end) in columns(bytes).flatten() {
        assert!(start <= end && end <= bytes.len(), "a value lies outside of its message");
    }
    if let Ok(Change::Insert { .. }) = accepted {
        let count = u16::from_be_bytes([bytes[6], bytes[7]]);
        assert!(columns(bytes).count() >= usize::from(count), "a column of an insert is lost");
    }
}

/// A row in the form of an insert, of [`OWN_RELATION`].
pub(crate) fn encode_row<'a>(values: impl IntoIterator<Item = Option<&'a [u8]>>) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    out.put_u8(b'I');
    out.put_u32(OWN_RELATION);
    out.put_u8(b'N');
    out.put_u16(0);
    let mut count: u16 = 0;
    for value in values {
        count += 1;
        match value {
            None => out.put_u8(b'n'),
            Some(value) => {
                out.put_u8(b't');
                out.put_u32(
                    u32::try_from(value.len()).expect("PostgreSQL's values are below 1 GB"),
                );
                out.put_slice(value);
            }
        }
    }
    out[INSERT_HEAD_BYTES..INSERT_HEAD_BYTES + 2].copy_from_slice(&count.to_be_bytes());
    out.freeze()
}

/// Appends the bytes that `bytea` text (`\x…`) stands for; what is no such text stays as it is.
pub(crate) fn push_bytea(out: &mut Vec<u8>, text: &[u8]) {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let Some(hex) = text.strip_prefix(b"\\x").filter(|hex| hex.len() % 2 == 0) else {
        return out.extend_from_slice(text);
    };
    let before = out.len();
    for pair in hex.chunks_exact(2) {
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
            out.truncate(before);
            return out.extend_from_slice(text);
        };
        out.push(high << 4 | low);
    }
}

/// What is not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let end = self.0.iter().position(|&byte| byte == 0);
        let text = self.take(end.ok_or(Malformed("a name without its end"))?)?;
        self.take(1)?;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed("a name that is not UTF-8"))
    }

    fn column(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.u8()? {
            // `u`: a large value that an update did not touch; inserts have none.
            b'n' | b'u' => Ok(None),
            b't' | b'b' => {
                let length = self.u32()?;
                self.take(length as usize).map(Some)
            }
            _ => Err(Malformed("a column of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use client::Chance;

    use super::*;

    fn orders() -> Vec<u8> {
        let mut message = b"R\x00\x00\x40\x01public\0orders\0d\x00\x02".to_vec();
        message.extend_from_slice(b"\x01id\0\x00\x00\x0b\x86\xff\xff\xff\xff");
        message.extend_from_slice(b"\x00body\0\x00\x00\x00\x11\xff\xff\xff\xff");
        message
    }

    #[test]
    fn a_table_is_read_with_its_columns() {
        let column = |name: &str, is_bytea| Column { name: name.into(), is_bytea };
        let relation = Relation {
            id: 0x4001,
            schema: "public".into(),
            name: "orders".into(),
            columns: vec![column("id", false), column("body", true)],
        };
        assert_eq!(decode(&orders()), Ok(Change::Relation(relation)));
    }

    #[test]
    fn an_insert_is_read_and_null_is_told_apart_from_empty() {
        let row = encode_row([Some(&b"one"[..]), None, Some(b"")]);
        assert_eq!(decode(&row), Ok(Change::Insert { relation: OWN_RELATION }));
        let values: Vec<_> =
            columns(&row).map(|span| span.map(|(start, end)| &row[start..end])).collect();
        assert_eq!(values, [Some(&b"one"[..]), None, Some(b"")]);
    }

    #[test]
    fn what_a_relay_does_not_publish_is_passed_over() {
        for message in [&b"B"[..], b"C\0", b"U\x01\x02", b"D", b"T\0\0", b"Y", b"Oorigin\0", b"?"] {
            assert_eq!(decode(message), Ok(Change::Other));
        }
    }

    #[test]
    fn every_part_of_a_message_that_is_cut_short_is_an_error() {
        let insert = encode_row([Some(&b"one"[..]), None, Some(b"three")]);
        for whole in [orders(), insert.to_vec()] {
            for end in 0..whole.len() {
                assert!(decode(&whole[..end]).is_err(), "{:?}", &whole[..end]);
            }
            assert!(decode(&whole).is_ok());
        }
    }

    #[test]
    fn any_bytes_at_all_are_read_or_refused_without_a_panic() {
        let insert = encode_row([Some(&b"one"[..]), None, Some(b"three")]);
        let mut chance = Chance::new(7);
        for round in 0..200_000u32 {
            let mut bytes = if round % 2 == 0 { orders() } else { insert.to_vec() };
            for _ in 0..1 + chance.next_bits() % 4 {
                let at = chance.next_bits() as usize % bytes.len();
                bytes[at] = chance.next_bits() as u8;
            }
            bytes.truncate(1 + chance.next_bits() as usize % (2 * bytes.len()));
            read_any(&bytes);
        }
    }

    #[test]
    fn bytea_is_raw_bytes() {
        let raw = |text: &[u8]| {
            let mut out = b"-".to_vec();
            push_bytea(&mut out, text);
            out
        };
        assert_eq!(raw(b"\\x00ffAb"), b"-\x00\xff\xab");
        assert_eq!(raw(b"\\x"), b"-");
        assert_eq!(raw(b"\\x0"), b"-\\x0");
        assert_eq!(raw(b"\\x0g"), b"-\\x0g");
    }
}
