//! What is remembered of unconfirmed messages, and how returns and confirms find them.

use super::*;

fn publisher(messages: &[&str]) -> (Outstanding, BytesMut) {
    let mut outstanding = Outstanding::new(100);
    let mut out = BytesMut::new();
    for body in messages {
        publish(&mut outstanding, body, &mut out);
    }
    (outstanding, out)
}

fn publish(outstanding: &mut Outstanding, body: &str, out: &mut BytesMut) -> u64 {
    let to = Address::queue("q");
    let seq = outstanding.publish(4096, 1, to, &[0, 0], body.as_bytes(), out);
    seq.expect("the names are short").0
}

fn run(first: u64, last: u64) -> Run {
    Run { first: PublishSeq(first), last: PublishSeq(last) }
}

fn returned(body: &str) -> Content {
    let mut method = BytesMut::new();
    let code =
        basic::Return { reply_code: 312, reply_text: "NO_ROUTE", exchange: "", routing_key: "q" };
    Method::BasicReturn(code).encode(&mut method);
    let body = bytes::Bytes::copy_from_slice(body.as_bytes());
    Content { method: method.freeze(), properties: bytes::Bytes::from_static(&[0, 0]), body }
}

#[test]
fn confirms_of_neighbours_become_one_verdict() {
    let (mut outstanding, _) = publisher(&["a", "b", "c"]);
    outstanding.confirmed(1, false, true).expect("known");
    outstanding.confirmed(3, true, true).expect("known");
    assert_eq!(*outstanding.verdicts(), [Verdict::Confirmed(run(1, 3))]);
    assert_eq!(outstanding.kept_bytes(), 0);
}

#[test]
fn a_nack_is_told_apart_from_the_acks_around_it() {
    let (mut outstanding, _) = publisher(&["a", "b", "c"]);
    outstanding.confirmed(2, false, false).expect("known");
    outstanding.confirmed(3, true, true).expect("known");
    let expected =
        [Verdict::Refused(run(2, 2)), Verdict::Confirmed(run(1, 1)), Verdict::Confirmed(run(3, 3))];
    assert_eq!(*outstanding.verdicts(), expected);
}

#[test]
fn a_returned_message_is_not_told_as_confirmed() {
    let (mut outstanding, _) = publisher(&["a", "b", "c", "b"]);
    assert_eq!(outstanding.returned(&returned("b")), Ok(true));
    assert_eq!(outstanding.returned(&returned("zzz")), Ok(false));
    outstanding.confirmed(4, true, true).expect("known");
    let (code, text) = (312, "NO_ROUTE".to_string());
    let expected = [
        Verdict::Confirmed(run(1, 1)),
        Verdict::Returned { seq: PublishSeq(2), code, text },
        Verdict::Confirmed(run(3, 4)),
    ];
    assert_eq!(*outstanding.verdicts(), expected);
}

#[test]
fn equal_messages_are_returned_oldest_first() {
    let (mut outstanding, _) = publisher(&["b", "b"]);
    assert_eq!(outstanding.returned(&returned("b")), Ok(true));
    assert_eq!(outstanding.returned(&returned("b")), Ok(true));
    assert_eq!(outstanding.returned(&returned("b")), Ok(false));
}

#[test]
fn after_a_reconnect_the_unconfirmed_go_out_again_and_keep_their_numbers() {
    let (mut outstanding, first) = publisher(&["a", "b", "c", "d"]);
    let length = first.len() / 4;
    outstanding.confirmed(1, false, true).expect("known");
    outstanding.confirmed(3, false, true).expect("known");
    outstanding.verdicts().clear();

    let mut again = BytesMut::new();
    outstanding.resend(&mut again);
    assert_eq!(again, [&first[length..2 * length], &first[3 * length..]].concat());
    assert_eq!(publish(&mut outstanding, "e", &mut again), 5);

    outstanding.confirmed(2, false, true).expect("d has the tag 2 now");
    assert_eq!(*outstanding.verdicts(), [Verdict::Confirmed(run(4, 4))]);
    outstanding.confirmed(3, true, true).expect("e has the tag 3");
    assert_eq!(
        outstanding.verdicts()[1..],
        [Verdict::Confirmed(run(2, 2)), Verdict::Confirmed(run(5, 5))]
    );
    assert!(outstanding.window().is_empty());
}

#[test]
fn a_confirm_of_what_is_not_outstanding_is_the_servers_mistake() {
    let (mut outstanding, _) = publisher(&["a"]);
    assert!(outstanding.confirmed(2, false, true).is_err());
    outstanding.confirmed(1, false, true).expect("known");
    assert!(outstanding.confirmed(1, false, true).is_err());
    assert!(outstanding.confirmed(u64::MAX, true, true).is_err());
}

#[test]
fn a_routing_key_that_amqp_cannot_carry_is_refused_before_it_has_a_number() {
    let (mut outstanding, mut out) = publisher(&[]);
    let key = "k".repeat(256);
    let to = Address { routing_key: &key, ..Address::default() };
    assert!(outstanding.publish(4096, 1, to, &[0, 0], b"", &mut out).is_err());
    assert_eq!((outstanding.window().next(), out.len()), (PublishSeq(1), 0));
}

fn with_id(id: &str) -> BytesMut {
    let mut raw = BytesMut::new();
    Properties { message_id: Some(id), ..Properties::default() }.encode(&mut raw);
    raw
}

#[test]
fn a_returned_message_is_known_by_its_id_although_its_body_is_anothers_too() {
    let mut outstanding = Outstanding::new(100);
    let mut out = BytesMut::new();
    for id in ["x", "y", "z"] {
        let to = Address::queue("q");
        outstanding.publish(4096, 1, to, &with_id(id), b"same", &mut out).expect("short names");
    }
    let mut content = returned("not even the body that was sent");
    content.properties = with_id("y").freeze();
    assert_eq!(outstanding.returned(&content), Ok(true));
    content.properties = with_id("w").freeze();
    assert_eq!(outstanding.returned(&content), Ok(false));
    assert_eq!(outstanding.returned(&returned("same")), Ok(false), "it had no id");
    outstanding.confirmed(3, true, true).expect("known");
    let (code, text) = (312, "NO_ROUTE".to_string());
    assert_eq!(outstanding.verdicts()[1], Verdict::Returned { seq: PublishSeq(2), code, text });
}

/// With a search from the oldest message for each return this takes minutes.
#[test]
fn a_hundred_thousand_returns_are_each_found_where_the_last_one_was() {
    const COUNT: u64 = 100_000;
    let mut outstanding = Outstanding::new(COUNT as u32);
    let mut out = BytesMut::new();
    for number in 0..COUNT {
        let properties = with_id(&number.to_string());
        let to = Address::queue("q");
        outstanding.publish(4096, 1, to, &properties, b"body", &mut out).expect("short names");
        out.clear();
    }
    let mut content = returned("body");
    for number in 0..COUNT {
        content.properties = with_id(&number.to_string()).freeze();
        assert_eq!(outstanding.returned(&content), Ok(true));
        if number % 1000 == 999 {
            outstanding.confirmed(number + 1, true, true).expect("known");
        }
    }
    assert_eq!(outstanding.verdicts().len(), COUNT as usize);
    assert_eq!(outstanding.kept_bytes(), 0);
}

#[test]
fn returns_out_of_order_are_found_as_well() {
    let (mut outstanding, _) = publisher(&["a", "b", "c", "d"]);
    for body in ["c", "a", "d", "b"] {
        assert_eq!(outstanding.returned(&returned(body)), Ok(true), "{body}");
    }
    outstanding.confirmed(2, true, true).expect("known");
    assert_eq!(outstanding.returned(&returned("d")), Ok(false));
    assert_eq!(publish(&mut outstanding, "e", &mut BytesMut::new()), 5);
    assert_eq!(outstanding.returned(&returned("e")), Ok(true));
    outstanding.confirmed(5, true, true).expect("known");
    let are_returned = |verdict: &Verdict| matches!(verdict, Verdict::Returned { .. });
    assert!(outstanding.verdicts().iter().all(are_returned), "{:?}", outstanding.verdicts());
}
