//! What a table promises beside its bytes.

use super::*;

fn table(fields: &[(&str, FieldValue)]) -> FieldTable {
    fields.iter().cloned().collect()
}

#[test]
fn duplicate_keys_and_order_survive_the_way_through() {
    let sent = table(&[
        ("b", FieldValue::I32(1)),
        ("a", FieldValue::I64(2)),
        ("b", FieldValue::LongStr(b"3".to_vec())),
    ]);
    let raw = sent.to_bytes();
    let view = TableRef::validate(&raw).unwrap();
    assert_eq!(view.as_bytes(), &raw[..]);
    assert_eq!(view.to_table(), sent);
    assert_eq!(view.find("b"), Some(ValueRef::I32(1)), "the first of two");
    assert_eq!(sent.find("b"), Some(&FieldValue::I32(1)));
}

#[test]
fn a_whole_number_of_any_width_is_an_integer() {
    let numbers = [
        (ValueRef::I8(i8::MIN), i64::from(i8::MIN)),
        (ValueRef::U8(u8::MAX), i64::from(u8::MAX)),
        (ValueRef::I16(i16::MIN), i64::from(i16::MIN)),
        (ValueRef::U16(u16::MAX), i64::from(u16::MAX)),
        (ValueRef::I32(i32::MIN), i64::from(i32::MIN)),
        (ValueRef::U32(u32::MAX), i64::from(u32::MAX)),
        (ValueRef::I64(i64::MIN), i64::MIN),
    ];
    for (value, number) in numbers {
        assert_eq!(value.integer(), Some(number));
        assert_eq!(value.widened(), Widened::Integer(number));
    }
    for other in [ValueRef::Timestamp(7), ValueRef::F64(7.0), ValueRef::LongStr(b"7")] {
        assert_eq!(other.integer(), None);
    }
}

#[test]
fn both_letters_for_64_bits_are_read_as_signed() {
    let view = TableRef::validate(b"\x01lL\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
    assert_eq!(view.find("l"), Some(ValueRef::I64(-1)));
    assert_eq!(&view.to_table().to_bytes()[..], b"\x01ll\xff\xff\xff\xff\xff\xff\xff\xff");
}

#[test]
fn the_letter_s_is_a_number_and_not_a_short_string() {
    let view = TableRef::validate(b"\x01ks\xff\xfe").unwrap();
    assert_eq!(view.find("k"), Some(ValueRef::I16(-2)));
}

#[test]
fn any_octet_but_zero_is_true() {
    let view = TableRef::validate(b"\x01at\x02\x01bt\x00").unwrap();
    assert_eq!(view.find("a"), Some(ValueRef::Bool(true)));
    assert_eq!(view.find("b"), Some(ValueRef::Bool(false)));
}

#[test]
fn nested_values_are_read_in_place() {
    let inner = table(&[("reason", "expired".into())]);
    let sent =
        table(&[("x-death", vec![inner.clone().into()].into()), ("after", FieldValue::Void)]);
    let raw = sent.to_bytes();
    let view = TableRef::validate(&raw).unwrap();
    let Some(ValueRef::Array(deaths)) = view.find("x-death") else { panic!("an array") };
    let Some(ValueRef::Table(death)) = deaths.iter().next() else { panic!("a table") };
    assert_eq!(death.find("reason"), Some(ValueRef::LongStr(b"expired")));
    assert_eq!(death.to_table(), inner);
    assert_eq!(view.iter().count(), 2);
}

#[test]
fn a_table_with_its_length_says_how_much_it_took() {
    let (view, taken) = TableRef::decode(b"\0\0\0\x03\x01kVrest").unwrap();
    assert_eq!(taken, 7);
    assert_eq!(view.find("k"), Some(ValueRef::Void));
    assert_eq!(TableRef::decode(b"\0\0\0\0").unwrap(), (TableRef::EMPTY, 4));
}

#[test]
fn a_table_of_our_own_is_checked_before_it_is_sent() {
    let long_key = "k".repeat(256);
    assert!(table(&[("k", FieldValue::Void)]).check().is_ok());
    assert!(table(&[(&long_key, FieldValue::Void)]).check().is_err());
    let nested = table(&[("outer", table(&[(&long_key, FieldValue::Void)]).into())]);
    assert!(nested.check().is_err(), "a long key further down");

    let mut deep = FieldTable::new();
    for _ in 0..crate::limits::TABLE_DEPTH_MAX {
        deep = table(&[("k", deep.into())]);
    }
    assert!(deep.check().is_err());
}
