use amqp::{FieldTable, FieldValue};
use chrono::DateTime;
use proptest::prelude::*;

use super::*;

const NOW_MS: u64 = 1_763_800_000_000;

fn came(redelivered: bool) -> Came {
    Came { receipt: Receipt(1), redelivered, now_ms: NOW_MS }
}

/// Reads a delivery with these headers.
fn with(headers: FieldTable, rest: Properties<'_>, redelivered: bool) -> Taken {
    let raw = headers.to_bytes();
    let table = TableRef::validate(&raw).expect("it is a table");
    let properties = Properties { headers: Some(table), ..rest };
    read(came(redelivered), &properties, Bytes::from_static(b"body"))
}

fn taken(headers: FieldTable) -> Taken {
    with(headers, Properties::default(), false)
}

fn job(taken: Taken) -> Job {
    match taken {
        Taken::Job(job) => job,
        other => panic!("{other:?} is not a job to execute"),
    }
}

fn table<const N: usize>(fields: [(&str, FieldValue); N]) -> FieldTable {
    fields.into_iter().collect()
}

#[test]
fn a_message_of_nothing_but_a_body_is_a_job() {
    let body = Bytes::from_static(b"hello");
    let job = job(read(came(false), &Properties::default(), body.clone()));
    assert_eq!(job.message.body, body);
    assert_eq!((job.message.attempt, job.key, job.published_ms), (1, None, None));
    assert_eq!((job.message.kind.as_str(), job.message.extras), ("", None));
    assert_eq!(job.message.id.len(), 32);
}

#[test]
fn every_property_and_header_has_its_place() {
    let headers = table([
        ("tenant", "blue".into()),
        ("x-job-key", "customer 7".into()),
        ("x-job-attempt", 3.into()),
        ("x-job-attempts-max", "9".into()),
        ("x-job-timeout-ms", 1500.into()),
        ("x-job-then", "{}".into()),
        ("x-job-batch", "[]".into()),
        ("x-job-newer", "left alone".into()),
        ("x-delay", FieldValue::I32(-5)),
    ]);
    let rest = Properties {
        message_id: Some("m-1"),
        kind: Some("mail.send"),
        content_type: Some("text/plain"),
        timestamp: Some(1_763_700_000),
        ..Properties::default()
    };
    let job = job(with(headers, rest, false));
    let extras = Extras {
        timeout: Some(Duration::from_millis(1500)),
        attempts_max: Some(9),
        then: Some("{}".into()),
        batch: Some("[]".into()),
    };
    let message = Message {
        id: "m-1".into(),
        kind: "mail.send".into(),
        content_type: Some("text/plain".into()),
        headers: vec![Header { name: "tenant".into(), value: "blue".into() }],
        body: Bytes::from_static(b"body"),
        attempt: 3,
        extras: Some(Box::new(extras)),
    };
    assert_eq!(job.message, message);
    assert_eq!(job.key, Some(key_hash("customer 7")));
    assert_eq!(job.published_ms, Some(1_763_700_000_000));
}

#[test]
fn the_type_may_be_a_header_and_the_key_that_of_other_programs() {
    let headers = table([("x-job-type", "a".into()), ("x-partition-key", FieldValue::I64(7))]);
    let job = job(taken(headers));
    assert_eq!((job.message.kind.as_str(), job.key), ("a", Some(key_hash("7"))));
    let headers = table([("x-job-key", "own".into()), ("x-partition-key", "other".into())]);
    assert_eq!(self::job(taken(headers)).key, Some(key_hash("own")));
}

#[test]
fn an_id_that_was_made_is_the_same_at_every_delivery_and_another_for_other_content() {
    let id = |body: &'static str, headers: FieldTable| {
        let raw = headers.to_bytes();
        let headers = TableRef::validate(&raw).ok();
        let properties = Properties { headers, ..Properties::default() };
        content_id(&properties, body.as_bytes())
    };
    let first = id("x", FieldTable::new());
    let again = table([("x-delivery-count", 3.into()), ("x-job-attempt", 4.into())]);
    assert_eq!(first, id("x", again));
    assert_ne!(first, id("y", FieldTable::new()));
    assert_ne!(first, id("x", table([("tenant", "blue".into())])));
}

#[test]
fn what_cannot_be_read_is_dead_with_the_reason() {
    let wrong = [
        ("x-job-attempt", FieldValue::from("many")),
        ("x-job-attempt", 0.into()),
        ("x-job-attempts-max", FieldValue::I64(-1)),
        ("x-job-timeout-ms", "0".into()),
        ("x-job-then", 7.into()),
        ("x-job-type", FieldValue::LongStr(vec![0xff])),
        ("x-job-not-before", FieldValue::Void),
    ];
    for (name, value) in wrong {
        match taken(table([(name, value)])) {
            Taken::Dead { cause: Cause::Malformed, why } => assert!(why.contains(name), "{why}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let body = Bytes::from(vec![0; BODY_BYTES_MAX + 1]);
    let dead = read(came(false), &Properties::default(), body);
    assert!(matches!(dead, Taken::Dead { cause: Cause::Malformed, .. }));
}

#[test]
fn a_job_whose_time_has_not_come_waits() {
    let due = |ms: u64| table([("x-job-not-before", FieldValue::I64(ms as i64))]);
    match taken(due(NOW_MS + 1500)) {
        Taken::Early { wait, .. } => assert_eq!(wait, Duration::from_millis(1500)),
        other => panic!("{other:?}"),
    }
    assert_eq!(job(taken(due(NOW_MS))).message.attempt, 1);
}

#[test]
fn a_job_that_kills_its_workers_ends_after_so_many_deliveries() {
    let counted = |count: u32| table([("x-delivery-count", count.into())]);
    assert_eq!(job(with(counted(19), Properties::default(), true)).message.attempt, 1);
    let dead = with(counted(20), Properties::default(), true);
    assert!(matches!(dead, Taken::Dead { cause: Cause::Exhausted, .. }), "{dead:?}");
    // A broker that does not count: the copies do.
    let ours = |count: u32| table([("x-job-deliveries", count.into())]);
    match with(ours(4), Properties::default(), true) {
        Taken::Uncounted { deliveries, .. } => assert_eq!(deliveries, 5),
        other => panic!("{other:?}"),
    }
    assert_eq!(job(with(ours(4), Properties::default(), false)).message.attempt, 1);
    let dead = with(ours(19), Properties::default(), true);
    assert!(matches!(dead, Taken::Dead { cause: Cause::Exhausted, .. }), "{dead:?}");
}

#[test]
fn a_job_with_a_key_keeps_its_place_when_it_comes_back() {
    let headers = table([("x-job-key", "k".into())]);
    assert_eq!(job(with(headers, Properties::default(), true)).key, Some(key_hash("k")));
}

/// The headers as kombu 5 and Celery 5 put them on the wire.
fn celerys() -> FieldTable {
    table([
        ("lang", "py".into()),
        ("task", "shop.tasks.pay".into()),
        ("id", "6f1d2f0e-0000-4000-8000-000000000001".into()),
        ("shadow", FieldValue::Void),
        ("eta", FieldValue::Void),
        ("expires", FieldValue::Void),
        ("group", FieldValue::Void),
        ("retries", FieldValue::I32(0)),
        ("timelimit", FieldValue::Array(vec![FieldValue::I32(30), FieldValue::Void])),
        ("root_id", "6f1d2f0e-0000-4000-8000-000000000001".into()),
        ("argsrepr", "(1,)".into()),
        ("kwargsrepr", "{}".into()),
        ("origin", "gen1@host".into()),
        ("ignore_result", false.into()),
    ])
}

fn celery_with(name: &str, value: FieldValue) -> Taken {
    let mut headers = celerys();
    headers.0.retain(|(key, _)| key != name);
    headers.insert(name, value);
    taken(headers)
}

#[test]
fn celerys_task_is_the_type_and_its_id_the_id() {
    let job = job(celery_with("retries", FieldValue::I32(2)));
    assert_eq!(job.message.kind, "shop.tasks.pay");
    assert_eq!(job.message.id, "6f1d2f0e-0000-4000-8000-000000000001");
    assert_eq!(job.message.attempt, 3);
    let extras = job.message.extras.expect("it has a time limit");
    assert_eq!(extras.timeout, Some(Duration::from_secs(30)));
}

#[test]
fn celerys_eta_and_expires_are_obeyed_with_and_without_a_zone() {
    let at = |seconds: i64, zone: &str| {
        let time = DateTime::from_timestamp_millis(NOW_MS as i64 + seconds * 1000);
        let time = time.expect("it is a time").format("%Y-%m-%dT%H:%M:%S%.6f");
        FieldValue::from(format!("{time}{zone}"))
    };
    for zone in ["", "+00:00", "Z"] {
        match celery_with("eta", at(60, zone)) {
            Taken::Early { wait, .. } => assert_eq!(wait, Duration::from_secs(60)),
            other => panic!("{zone}: {other:?}"),
        }
        assert_eq!(job(celery_with("eta", at(-60, zone))).message.attempt, 1);
        let late = celery_with("expires", at(-1, zone));
        assert!(matches!(late, Taken::Dead { cause: Cause::Rejected, .. }), "{late:?}");
        assert_eq!(job(celery_with("expires", at(1, zone))).message.attempt, 1);
    }
    match celery_with("eta", "tomorrow".into()) {
        Taken::Dead { cause: Cause::Malformed, why } => assert!(why.contains("tomorrow"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn header_values_of_every_kind_are_shown_as_text() {
    let inner = table([("a", FieldValue::Array(vec![1.into(), true.into(), FieldValue::Void]))]);
    let headers = table([
        ("text", "é".into()),
        ("bytes", FieldValue::LongStr(vec![0xff, 0x00])),
        ("truth", true.into()),
        ("number", FieldValue::I8(-3)),
        ("float", 1.5.into()),
        ("nothing", FieldValue::Void),
        ("time", FieldValue::Timestamp(9)),
        ("decimal", FieldValue::Decimal { scale: 2, value: 314 }),
        ("nested", inner.into()),
    ]);
    let job = job(taken(headers));
    let values: Vec<&str> = job.message.headers.iter().map(|header| &*header.value).collect();
    let nested = r#"{"a":[1,true,null]}"#;
    assert_eq!(values, ["é", "/wA=", "true", "-3", "1.5", "", "9", "314e-2", nested]);
}

#[test]
fn a_copy_keeps_what_was_written_and_leaves_out_what_would_act_again() {
    let headers = table([
        ("tenant", "blue".into()),
        ("x-job-attempt", 1.into()),
        ("x-delay", 5.into()),
        ("CC", FieldValue::Array(vec!["other".into()])),
        ("x-death", FieldValue::Array(Vec::new())),
        ("x-delivery-count", 3.into()),
    ]);
    let raw = headers.to_bytes();
    let original = Properties {
        headers: TableRef::validate(&raw).ok(),
        expiration: Some("100"),
        user_id: Some("guest"),
        correlation_id: Some("c"),
        priority: Some(4),
        ..Properties::default()
    };
    let changes = [Change::Number(name::ATTEMPT, 2), Change::Text(name::LAST_WHY, "no answer")];
    let bytes = copy(&original, "id", &changes);
    let properties = Properties::decode(&bytes).expect("it is valid");
    let expected = table([
        ("tenant", "blue".into()),
        ("x-job-attempt", FieldValue::I64(2)),
        ("x-job-last-why", "no answer".into()),
    ]);
    assert_eq!(properties.headers.map(|headers| headers.to_table()), Some(expected));
    assert_eq!((properties.expiration, properties.user_id), (None, None));
    assert_eq!((properties.correlation_id, properties.priority), (Some("c"), Some(4)));
    assert_eq!((properties.message_id, properties.delivery_mode), (Some("id"), Some(2)));
}

#[test]
fn a_copy_of_a_message_with_as_many_headers_as_it_can_have_is_valid() {
    let many: FieldTable = (0..3000).map(|n| (format!("h{n}"), "v")).collect();
    let long = table([("long", FieldValue::LongStr(vec![b'x'; 65_000]))]);
    let nested: FieldTable = (0..65_534).map(|n| (format!("{n}"), true)).collect();
    let wide = table([("wide", nested.into())]);
    for headers in [many, long, wide] {
        let raw = headers.to_bytes();
        let headers = Some(TableRef::validate(&raw).expect("the broker has let it through"));
        let original = Properties { headers, ..Properties::default() };
        let bytes = copy(
            &original,
            "id",
            &[Change::Text(name::DEAD_WHY, "why"), Change::Number(name::ATTEMPT, 2)],
        );
        let copied =
            Properties::decode(&bytes).expect("it is valid").headers.expect("there are some");
        assert!(copied.find(name::DEAD_WHY).is_some());
    }
}

#[test]
fn a_new_message_that_is_too_long_is_refused_in_words() {
    let header = Header { name: "long".into(), value: "x".repeat(70_000) };
    let message = Message { headers: vec![header], ..Message::default() };
    assert!(fresh(&message, None, &[]).is_err_and(|why| why.contains("do not fit")));
}

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 äß/:._-]{0,40}"
}

prop_compose! {
    fn messages()(
        id in "[a-z0-9-]{1,40}",
        kind in text(),
        content_type in proptest::option::of("[a-z]{1,9}/[a-z]{1,9}"),
        headers in proptest::collection::vec(("[a-w][a-z-]{0,20}", text()), 0..8),
        body in proptest::collection::vec(any::<u8>(), 0..64),
        attempt in 1..500_u32,
        timeout in proptest::option::of(1..1_000_000_u64),
        attempts_max in proptest::option::of(1..=ATTEMPTS_MAX),
        then in proptest::option::of(text()),
        batch in proptest::option::of(text()),
    ) -> Message {
        let timeout = timeout.map(Duration::from_millis);
        let extras = Extras { timeout, attempts_max, then, batch };
        // Names that mean something to Celery's reader are not drawn together.
        let headers = headers.into_iter().filter(|(name, _)| name != "task");
        let headers = headers.map(|(name, value)| Header { name, value }).collect();
        let extras = (extras != Extras::default()).then(|| Box::new(extras));
        Message { id, kind, content_type, headers, body: body.into(), attempt, extras }
    }
}

proptest! {
    #[test]
    fn what_is_published_is_what_is_taken(message in messages(), key in proptest::option::of(text())) {
        let raw = fresh(&message, key.as_deref(), &[]).expect("it fits");
        let properties = Properties::decode(&raw).expect("it is valid");
        let job = job(read(came(false), &properties, message.body.clone()));
        prop_assert_eq!(&job.message, &message);
        prop_assert_eq!(job.key, key.as_deref().map(key_hash));
        // And so is a copy of it, but for the attempt.
        let attempt = message.attempt + 1;
        let raw = copy(&properties, &message.id, &[Change::Number(name::ATTEMPT, attempt.into())]);
        let properties = Properties::decode(&raw).expect("it is valid");
        let again = self::job(read(came(false), &properties, message.body.clone()));
        prop_assert_eq!(again.message, Message { attempt, ..message });
        prop_assert_eq!(again.key, job.key);
    }

    #[test]
    fn no_properties_make_the_reader_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(properties) = Properties::decode(&raw) {
            read(came(true), &properties, Bytes::new());
            copy(&properties, "id", &[]);
        }
    }
}
