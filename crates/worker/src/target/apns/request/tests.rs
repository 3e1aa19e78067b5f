use super::*;
use crate::job::Header;

const TOKEN: &str = "aabbccdd00112233aabbccdd00112233aabbccdd00112233aabbccdd00112233";

fn job(body: &str) -> Message {
    Message { id: "order-1".to_owned(), body: Bytes::from(body.to_owned()), ..Message::default() }
}

fn defaults() -> Defaults {
    Defaults::new(Some("com.example.app"), "alert").expect("both are plain")
}

fn refusal(body: &str) -> String {
    read(&job(body), &defaults()).err().expect("it is refused")
}

#[test]
fn a_document_says_everything() {
    let body = format!(
        r#"{{"token":"{TOKEN}","topic":"com.example.other","push_type":"background","priority":5,
        "expiration":1700000000,"collapse_id":"score","payload":{{"aps":{{"content-available":1}}}}}}"#
    );
    let push = read(&job(&body), &defaults()).expect("it is a push");
    assert_eq!(push.path.as_str(), format!("/3/device/{TOKEN}"));
    assert_eq!(push.payload, r#"{"aps":{"content-available":1}}"#);
    let names =
        ["apns-topic", "apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id"];
    let values = names.map(|name| push.headers[name].to_str().expect("text").to_owned());
    assert_eq!(values, ["com.example.other", "background", "5", "1700000000", "score"]);
}

#[test]
fn what_a_document_leaves_out_comes_from_the_settings() {
    let body = format!(r#"{{"token":"{TOKEN}","payload":{{}}}}"#);
    let push = read(&job(&body), &defaults()).expect("it is a push");
    assert_eq!(push.headers["apns-topic"], "com.example.app");
    assert_eq!(push.headers["apns-push-type"], "alert");
    assert!(!push.headers.contains_key("apns-priority"));
}

#[test]
fn with_the_token_in_a_header_the_body_is_the_payload_as_it_is() {
    let mut job = job(r#"{"aps": {"alert":"hello"}}"#);
    let headers = [
        ("X-Push-Token", TOKEN),
        ("x-push-priority", "10"),
        ("x-push-type", "voip"),
        ("x-push-registered-ms", "17"),
    ];
    for (name, value) in headers {
        job.headers.push(Header { name: name.to_owned(), value: value.to_owned() });
    }
    let push = read(&job, &defaults()).expect("it is a push");
    assert_eq!(push.payload, job.body);
    assert_eq!(push.headers["apns-priority"], "10");
    assert_eq!(push.headers["apns-push-type"], "voip");
    assert_eq!(push.registered_ms, Some(17));
}

#[test]
fn the_payloads_size_is_checked_before_anything_is_sent() {
    let with = |kind: &str, bytes: usize| {
        let filler = "x".repeat(bytes - r#"{"a":""}"#.len());
        job(&format!(r#"{{"token":"{TOKEN}","push_type":"{kind}","payload":{{"a":"{filler}"}}}}"#))
    };
    for (kind, most) in [("alert", PAYLOAD_BYTES_MAX), ("voip", VOIP_PAYLOAD_BYTES_MAX)] {
        let push = read(&with(kind, most), &defaults()).expect("it just fits");
        assert_eq!(push.payload.len(), most);
        let why = read(&with(kind, most + 1), &defaults()).err().expect("it is too large");
        assert!(why.contains(&most.to_string()), "{why}");
    }
}

#[test]
fn what_is_no_push_is_refused_without_showing_the_token() {
    let cases = [
        "".to_owned(),
        "[]".to_owned(),
        r#"{"payload":{}}"#.to_owned(),
        format!(r#"{{"token":"{TOKEN}"}}"#),
        format!(r#"{{"token":"{TOKEN}","payload":[1]}}"#),
        format!(r#"{{"token":"{TOKEN}g","payload":{{}}}}"#),
        format!(r#"{{"token":"{TOKEN}","priority":7,"payload":{{}}}}"#),
        format!(r#"{{"token":"{TOKEN}","priority":"{TOKEN}","payload":{{}}}}"#),
        format!(r#"{{"token":"{TOKEN}","topik":"a","payload":{{}}}}"#),
        format!(r#"{{"token":"{TOKEN}","topic":"a\nb","payload":{{}}}}"#),
        format!(r#"{{"token":"{TOKEN}","collapse_id":"{}","payload":{{}}}}"#, "x".repeat(65)),
        r#"{"token":"../../etc","payload":{}}"#.to_owned(),
        format!(r#"{{"token":"{}","payload":{{}}}}"#, "a".repeat(401)),
    ];
    for body in cases {
        let why = refusal(&body);
        assert!(!why.contains(TOKEN), "{why}");
    }
}

#[test]
fn the_apns_id_is_the_same_at_every_attempt_and_the_jobs_own_where_that_is_a_uuid() {
    let own = "0f8fad5b-d9cb-469f-a165-70867728950e";
    assert_eq!(apns_id(own), own);
    assert_eq!(apns_id("order-1"), apns_id("order-1"));
    assert_ne!(apns_id("order-1"), apns_id("order-2"));
    assert!(is_uuid(&apns_id("")), "{}", apns_id(""));
    assert_eq!(apns_id("order-1").as_bytes()[14], b'5', "a UUID of version 5");
}

#[test]
fn a_tokens_case_makes_no_difference_to_what_is_remembered_of_it() {
    assert_eq!(token_hash(TOKEN), token_hash(&TOKEN.to_uppercase()));
    assert_ne!(token_hash(TOKEN), token_hash("00"));
}
