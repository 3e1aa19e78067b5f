use amqp::{FieldTable, FieldValue};

use super::*;

const NOW_MS: u64 = 1_763_800_000_000;

fn places(broker: Broker) -> Places {
    Places { broker, queue: "jobs".into(), dead_queue: "jobs.dead".into() }
}

fn original() -> Original {
    let properties = Properties { correlation_id: Some("c"), ..Properties::default() };
    let mut raw = bytes::BytesMut::new();
    properties.encode(&mut raw);
    let (id, body) = ("id".to_owned(), Bytes::from_static(b"body"));
    Original { receipt: Receipt(7), id, attempt: 2, properties: raw.freeze(), body }
}

fn headers(letter: &Letter) -> FieldTable {
    let properties = Properties::decode(&letter.properties).expect("it is valid");
    assert_eq!((properties.correlation_id, properties.message_id), (Some("c"), Some("id")));
    properties.headers.expect("there are some").to_table()
}

fn later_in(broker: Broker, after: Duration) -> Letter {
    let why = "no answer".to_owned();
    let settlement = Settlement::Later { after, attempt: 3, why, rest: None };
    let (letter, end) = settle(&places(broker), &original(), &settlement, NOW_MS);
    assert_eq!(end, End::Ack);
    letter.expect("a copy comes again")
}

#[test]
fn what_is_done_or_goes_back_needs_no_copy() {
    let places = places(Broker::Other);
    let done = settle(&places, &original(), &Settlement::Done, NOW_MS);
    assert_eq!(done, (None, End::Ack));
    let back = settle(&places, &original(), &Settlement::Return, NOW_MS);
    assert_eq!(back, (None, End::Requeue));
}

#[test]
fn millrace_is_told_the_delay_and_others_get_a_queue_for_it() {
    let letter = later_in(Broker::Millrace, Duration::from_micros(1_500_100));
    assert_eq!(letter.to, To::Queue("jobs".into()));
    let found = headers(&letter);
    assert_eq!(found.find(name::DELAY), Some(&FieldValue::I64(1501)), "never early");
    assert_eq!(found.find(name::ATTEMPT), Some(&FieldValue::I64(3)));
    assert_eq!(found.find(name::NOT_BEFORE), None);

    let letter = later_in(Broker::Other, Duration::from_secs(20));
    let bucket = Bucket { exchange: String::new(), routing_key: "jobs".into(), ms: 16_384 };
    assert_eq!(letter.to, To::Bucket(bucket));
    let due = FieldValue::I64((NOW_MS + 20_000) as i64);
    assert_eq!(headers(&letter).find(name::NOT_BEFORE), Some(&due));
    assert_eq!(headers(&letter).find(name::DELAY), None);

    for broker in [Broker::Millrace, Broker::Other] {
        assert_eq!(later_in(broker, Duration::ZERO).to, To::Queue("jobs".into()));
    }
}

#[test]
fn the_waits_of_a_delay_add_up_to_it_in_few_steps() {
    let week = DELAY_MAX.as_millis() as u64;
    for ms in (1..2000).chain((2000..week).step_by(1_000_003)).chain([week]) {
        let (mut left, mut steps, mut waited) = (ms, 0, 0);
        while left > 0 {
            let wait = bucket_ms(left);
            assert!(wait.is_power_of_two(), "{wait}");
            (left, steps, waited) = (left.saturating_sub(wait), steps + 1, waited + wait);
        }
        let late = waited - ms;
        assert!(late <= (ms / 8).clamp(BUCKET_MS_MIN, LATE_MS_MAX), "{ms}: {late}");
        assert!(steps <= 23, "{ms}: {steps}");
    }
}

#[test]
fn the_rest_of_a_job_takes_the_place_of_its_body() {
    let rest = Some(Bytes::from_static(b"rest"));
    let later = Settlement::Later { after: Duration::ZERO, attempt: 2, why: String::new(), rest };
    let (letter, _) = settle(&places(Broker::Other), &original(), &later, NOW_MS);
    assert_eq!(letter.expect("a copy comes again").body, "rest");
}

#[test]
fn a_dead_job_says_of_what_it_died_when_and_where() {
    let why = "é".repeat(WHY_BYTES_MAX);
    let settlement = Settlement::Dead { cause: Cause::Exhausted, why };
    let (letter, end) = settle(&places(Broker::Other), &original(), &settlement, NOW_MS);
    let letter = letter.expect("a copy is kept");
    assert_eq!((end, &letter.to), (End::Ack, &To::Queue("jobs.dead".into())));
    let found = headers(&letter);
    let text = |name| match found.find(name) {
        Some(FieldValue::LongStr(text)) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!((&*text(name::DEAD_CAUSE), &*text(name::QUEUE)), ("exhausted", "jobs"));
    assert!(text(name::DEAD_WHY).len() <= WHY_BYTES_MAX);
    assert_eq!(found.find(name::ATTEMPT), Some(&FieldValue::I64(2)));
    assert_eq!(found.find(name::DIED_MS), Some(&FieldValue::I64(NOW_MS as i64)));
}

#[test]
fn a_new_message_goes_to_its_exchange_and_waits_where_it_has_to() {
    let wanted = |exchange: &str, delay| Publish {
        exchange: exchange.into(),
        routing_key: "next".into(),
        message: crate::Message { id: "n".into(), ..crate::Message::default() },
        key: Some("k".into()),
        delay,
    };
    let to = |broker, wanted: &Publish| {
        publish(broker, Receipt(1), wanted, NOW_MS).expect("it can be carried").to
    };
    let here = To::Exchange { exchange: "ex".into(), routing_key: "next".into() };
    assert_eq!(to(Broker::Other, &wanted("ex", None)), here);
    assert_eq!(to(Broker::Other, &wanted("", None)), To::Queue("next".into()));
    let second = Some(Duration::from_secs(1));
    assert_eq!(to(Broker::Millrace, &wanted("ex", second)), here);
    let bucket = Bucket { exchange: "ex".into(), routing_key: "next".into(), ms: 1024 };
    assert_eq!(to(Broker::Other, &wanted("ex", second)), To::Bucket(bucket));
}
