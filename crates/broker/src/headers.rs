//! One header of a message set, in its raw properties: flags, the fields before the headers and behind
//! them are copied as they lie.

use amqp::TableRef;
use bytes::{BufMut, BytesMut};

/// The flag of the headers, and of the two fields that stand before them.
const HEADERS: u16 = 1 << 13;
const BEFORE: [u16; 2] = [1 << 15, 1 << 14];

/// A number as a header's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    I32(i32),
    I64(i64),
}

/// Properties with a header of this name and number. The header takes the place of one of that name, or
/// stands at the end; `is_sorted`: the headers are sorted by name, as RabbitMQ does when it adds one to
/// a message on its way out. None: those are no properties.
pub(crate) fn with_number(
    raw: &[u8],
    name: &str,
    number: Number,
    is_sorted: bool,
) -> Option<BytesMut> {
    let Parts { flags, before, headers, behind } = Parts::of(raw)?;
    let mut field = Vec::with_capacity(name.len() + 10);
    put_field(&mut field, name, number)?;
    let mut fields: Vec<(&str, &[u8])> = headers.raw_fields().collect();
    match fields.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = &field,
        None => fields.push((name, &field)),
    }
    if is_sorted {
        fields.sort_by_key(|(name, _)| *name);
    }
    let bytes: usize = fields.iter().map(|(_, field)| field.len()).sum();
    let mut out = BytesMut::with_capacity(raw.len() + field.len() + 4);
    out.put_u16(flags | HEADERS);
    out.extend_from_slice(before);
    out.put_u32(u32::try_from(bytes).ok()?);
    fields.iter().for_each(|(_, field)| out.extend_from_slice(field));
    out.extend_from_slice(behind);
    Some(out)
}

/// Writes the same properties to `out`, in place of what was there, with the header at the end: what goes out with each
/// message of a stream. False: nothing is written, those are no properties.
pub(crate) fn put_with_number(out: &mut BytesMut, raw: &[u8], name: &str, number: Number) -> bool {
    out.clear();
    let Some(Parts { flags, before, headers, behind }) = Parts::of(raw) else { return false };
    if headers.raw_fields().any(|(known, _)| known == name) {
        let Some(changed) = with_number(raw, name, number, false) else { return false };
        out.extend_from_slice(&changed);
        return true;
    }
    let mut field = [0; 64];
    let mut left = &mut field[..];
    if put_field(&mut left, name, number).is_none() {
        return false;
    }
    let left = left.len();
    let field = &field[..64 - left];
    let fields = headers.raw_fields();
    let bytes: usize = fields.map(|(_, field)| field.len()).sum();
    let Ok(bytes) = u32::try_from(bytes + field.len()) else { return false };
    out.reserve(raw.len() + field.len() + 4);
    out.put_u16(flags | HEADERS);
    out.extend_from_slice(before);
    out.put_u32(bytes);
    headers.raw_fields().for_each(|(_, field)| out.extend_from_slice(field));
    out.extend_from_slice(field);
    out.extend_from_slice(behind);
    true
}

/// Raw properties, cut around their headers.
struct Parts<'a> {
    flags: u16,
    before: &'a [u8],
    headers: TableRef<'a>,
    behind: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(raw: &'a [u8]) -> Option<Self> {
        let flags = u16::from_be_bytes(raw.get(..2)?.try_into().ok()?);
        let mut at = 2;
        for _ in BEFORE.iter().filter(|flag| flags & **flag != 0) {
            at += 1 + usize::from(*raw.get(at)?);
        }
        let (before, mut behind) = raw.split_at_checked(at)?;
        let mut headers = TableRef::EMPTY;
        if flags & HEADERS != 0 {
            let (table, taken) = TableRef::decode(behind).ok()?;
            (headers, behind) = (table, behind.get(taken..)?);
        }
        Some(Self { flags, before: &before[2..], headers, behind })
    }
}

/// A header as a table has it.
fn put_field(out: &mut impl BufMut, name: &str, number: Number) -> Option<()> {
    if out.remaining_mut() < name.len() + 10 {
        return None;
    }
    out.put_u8(u8::try_from(name.len()).ok()?);
    out.put_slice(name.as_bytes());
    match number {
        Number::I32(number) => {
            out.put_u8(b'I');
            out.put_i32(number);
        }
        Number::I64(number) => {
            out.put_u8(b'l');
            out.put_i64(number);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp::{FieldTable, FieldValue, Properties, ValueRef};

    fn raw(properties: &Properties<'_>) -> BytesMut {
        let mut raw = BytesMut::new();
        properties.encode(&mut raw);
        raw
    }

    #[test]
    fn a_header_joins_properties_that_had_none() {
        let before = Properties {
            content_type: Some("text/plain"),
            delivery_mode: Some(2),
            message_id: Some("id"),
            ..Properties::default()
        };
        let after = with_number(&raw(&before), "x-delivery-count", Number::I64(1), true).unwrap();
        let after = Properties::decode(&after).unwrap();
        let headers = after.headers.unwrap();
        assert_eq!(headers.find("x-delivery-count"), Some(ValueRef::I64(1)));
        assert_eq!(Properties { headers: None, ..after }, before);
    }

    #[test]
    fn a_header_takes_the_place_of_one_of_its_name_and_others_keep_their_bytes() {
        let value = |number| FieldValue::I16(number);
        let table = FieldTable(vec![
            ("b".into(), value(1)),
            ("x-delay".into(), value(2)),
            ("a".into(), value(3)),
            ("a".into(), value(4)),
        ]);
        let table = table.to_bytes();
        let headers = Some(TableRef::validate(&table).unwrap());
        let before = Properties { headers, app_id: Some("app"), ..Properties::default() };
        let names = |is_sorted| {
            let after = with_number(&raw(&before), "x-delay", Number::I32(-2), is_sorted).unwrap();
            let after = Properties::decode(&after).unwrap();
            assert_eq!(after.app_id, Some("app"));
            let headers = after.headers.unwrap();
            assert_eq!(headers.find("x-delay"), Some(ValueRef::I32(-2)));
            assert_eq!(headers.find("a"), Some(ValueRef::I16(3)), "the first stays the first");
            headers.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["b", "x-delay", "a", "a"]);
        assert_eq!(names(true), ["a", "a", "b", "x-delay"]);
    }

    #[test]
    fn a_header_that_goes_out_with_each_message_is_the_same_whichever_way_it_is_put() {
        let table = FieldTable(vec![("b".into(), FieldValue::I16(1))]).to_bytes();
        let own = FieldTable(vec![("x".into(), FieldValue::I16(1))]).to_bytes();
        let mut out = BytesMut::new();
        for headers in [None, Some(&table[..]), Some(&own[..])] {
            let headers = headers.map(|table| TableRef::validate(table).unwrap());
            let app_id = Some("app");
            let raw =
                raw(&Properties { headers, app_id, content_type: app_id, ..Properties::default() });
            assert!(put_with_number(&mut out, &raw, "x", Number::I64(7)));
            assert_eq!(Some(&out), with_number(&raw, "x", Number::I64(7), false).as_ref());
        }
    }

    #[test]
    fn bytes_that_are_no_properties_are_left_alone() {
        for bytes in [&b""[..], b"\x80", b"\x80\x00\x09ab", b"\x20\x00\0\0\0\x09ab"] {
            assert_eq!(with_number(bytes, "x", Number::I32(1), false), None);
            assert!(!put_with_number(&mut BytesMut::new(), bytes, "x", Number::I32(1)));
        }
    }
}
