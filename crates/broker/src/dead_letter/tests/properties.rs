//! Letters of any message, however strange: within the limits, and never lost.

use amqp::{FieldTable, FieldValue, Properties, TableRef, ValueRef};
use bytes::BytesMut;
use machine::Outcome;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::death::Death;
use super::super::limits;
use super::super::rewrite::write_letter;
use super::super::route::aside_of;
use super::world::head_with;
use crate::stored::split_head;

const QUEUE: &str = "where-it-died";

fn death(reason: Outcome, key: Option<&'static str>) -> Death<'static> {
    Death { queue: QUEUE, reason, time_s: 1_700_000_000, exchange: "dlx", key, retries: None }
}

/// The headers of a letter made of a message with these.
fn letter(headers: &FieldTable, reason: Outcome, key: Option<&'static str>) -> FieldTable {
    let table = headers.to_bytes();
    let headers = Some(TableRef::validate(&table).unwrap());
    let before = Properties { headers, expiration: Some("5"), ..Properties::default() };
    let head = head_with("", "key", &before);
    let mut out = BytesMut::new();
    write_letter(&head, &death(reason, key), &mut out);
    let (_, raw) = split_head(&out).unwrap();
    let after = Properties::decode(raw).expect("a letter may be published again");
    assert_eq!(after.expiration, None);
    after.headers.unwrap_or_default().to_table()
}

fn deaths(headers: &FieldTable) -> &[FieldValue] {
    match headers.find("x-death") {
        Some(FieldValue::Array(deaths)) => deaths,
        _ => &[],
    }
}

fn count(headers: &FieldTable) -> Option<&FieldValue> {
    let FieldValue::Table(newest) = deaths(headers).first()? else { return None };
    newest.find("count")
}

fn reasons() -> impl Strategy<Value = Outcome> {
    proptest::sample::select(Outcome::DEAD.to_vec())
}

fn values() -> impl Strategy<Value = FieldValue> {
    let plain = prop_oneof![
        any::<bool>().prop_map(FieldValue::Bool),
        any::<i64>().prop_map(FieldValue::I64),
        any::<u8>().prop_map(FieldValue::U8),
        any::<u64>().prop_map(FieldValue::Timestamp),
        vec(any::<u8>(), 0..8).prop_map(FieldValue::LongStr),
        proptest::sample::select(vec![QUEUE, "rejected", "expired"])
            .prop_map(|text| FieldValue::LongStr(text.into())),
        Just(FieldValue::Void),
    ];
    plain.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(FieldValue::Array),
            vec((keys(), inner), 0..6).prop_map(|fields| FieldValue::Table(FieldTable(fields))),
        ]
    })
}

fn keys() -> impl Strategy<Value = String> {
    let known =
        vec!["x-death", "CC", "queue", "reason", "count", "time", "x-first-death-queue", "a", "z"];
    proptest::sample::select(known).prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn any_message_makes_a_letter_that_may_be_published_and_tells_of_its_death(
        fields in vec((keys(), values()), 0..12),
        reason in reasons(),
        has_key in any::<bool>(),
    ) {
        let key = has_key.then_some("new");
        let before = FieldTable(fields);
        let after = letter(&before, reason, key);
        prop_assert!(!deaths(&after).is_empty());
        let FieldValue::Table(newest) = &deaths(&after)[0] else { panic!("no table") };
        prop_assert_eq!(newest.find("queue"), Some(&FieldValue::LongStr(QUEUE.into())));
        let names: Vec<&String> = after.0.iter().map(|(name, _)| name).collect();
        prop_assert!(names.is_sorted());
        for (name, value) in &before.0 {
            let is_ours = name == "x-death" || name == "CC" || name.starts_with("x-first");
            prop_assert!(is_ours || after.0.contains(&(name.clone(), value.clone())));
        }
        let again = letter(&after, reason, key);
        let Some(FieldValue::I64(twice)) = count(&again) else { panic!("{again:?}") };
        if let Some(FieldValue::I64(once)) = count(&after) {
            prop_assert_eq!(*twice, once.saturating_add(1));
        }
        prop_assert_eq!(deaths(&again).len(), deaths(&after).len());
    }

    #[test]
    fn no_bytes_break_it(bytes in vec(any::<u8>(), 0..200), reason in reasons()) {
        let mut out = BytesMut::new();
        write_letter(&bytes, &death(reason, None), &mut out);
        prop_assert!(split_head(&out).is_some());
    }

    #[test]
    fn a_queue_set_aside_has_a_name_that_a_queue_may_have(name in "\\PC{1,300}") {
        let end = name.floor_char_boundary(255);
        let aside = aside_of(&name[..end]);
        prop_assert!(aside.len() <= 255 && aside.ends_with(".dead"));
    }
}

#[test]
fn names_that_begin_alike_are_set_aside_apart() {
    let long = |end: &str| format!("{}{end}", "x".repeat(252));
    assert_ne!(aside_of(&long("a")), aside_of(&long("b")));
    assert_eq!(aside_of("jobs"), "jobs.dead");
}

/// A text that takes so many bytes.
fn filler(bytes: usize) -> FieldValue {
    FieldValue::LongStr(vec![b'x'; bytes])
}

#[test]
fn headers_near_the_limits_stay_and_the_message_with_them() {
    // Name, type and length of one field take 9 bytes.
    for room in [0, 10, 100, 160, 400] {
        let size = limits::LETTER_HEADERS_BYTES_MAX - 9 - room;
        let before = FieldTable(vec![("big".into(), filler(size))]);
        let after = letter(&before, Outcome::Rejected, None);
        assert_eq!(after.find("big"), before.find("big"), "room for {room}");
        assert_eq!(deaths(&after).len(), usize::from(room >= 160), "room for {room}");
    }
    let elements = vec![FieldValue::Void; amqp::limits::TABLE_ENTRIES_MAX - 1];
    let before = FieldTable(vec![("list".into(), FieldValue::Array(elements))]);
    assert_eq!(letter(&before, Outcome::Expired, None), before);
}

#[test]
fn as_many_copies_as_there_may_be_leave_room_for_the_death() {
    let keys: Vec<_> = (0..9000).map(|i| FieldValue::LongStr(format!("k{i}").into())).collect();
    let before = FieldTable(vec![("CC".into(), FieldValue::Array(keys))]);
    let after = letter(&before, Outcome::Rejected, None);
    assert_eq!(after.find("CC"), before.find("CC"));
    let FieldValue::Table(newest) = &deaths(&after)[0] else { panic!("no table") };
    let told = FieldValue::Array(vec![FieldValue::LongStr(b"key".into())]);
    assert_eq!(
        newest.find("routing-keys"),
        Some(&told),
        "the first key has room, the copies have not"
    );
}

#[test]
fn a_long_journey_is_remembered_as_far_as_the_limit_goes_the_newest_first() {
    let mut head = head_with("", "key", &Properties::default());
    let total = limits::DEATHS_MAX * 3;
    for number in 0..total {
        let queue = format!("station-{number}");
        let time_s = 1_700_000_000 + number as u64;
        let death = Death { queue: &queue, time_s, ..death(Outcome::Expired, None) };
        let mut out = BytesMut::new();
        let letter = write_letter(&head, &death, &mut out);
        assert!(letter.trail.is_cycle(&queue));
        head = out;
    }
    let (_, raw) = split_head(&head).unwrap();
    let headers = Properties::decode(raw).unwrap().headers.unwrap();
    let Some(ValueRef::Array(deaths)) = headers.find("x-death") else { panic!("no deaths") };
    let mut stations: Vec<_> = deaths
        .iter()
        .map(|death| {
            let ValueRef::Table(death) = death else { panic!("{death:?}") };
            let Some(ValueRef::Timestamp(time)) = death.find("time") else { panic!("{death:?}") };
            time - 1_700_000_000
        })
        .collect();
    assert_eq!(stations[0], total as u64 - 1);
    stations.sort_unstable();
    let expected: Vec<u64> = (total - limits::DEATHS_MAX..total).map(|at| at as u64).collect();
    assert_eq!(stations, expected);
}
