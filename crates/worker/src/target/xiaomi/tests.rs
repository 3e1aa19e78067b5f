use super::*;

/// 2026-03-01 12:00:00 in Shanghai.
const NOON: u64 = 1_772_337_600_000;

fn answered(status: u16, body: &str) -> Answered<'_> {
    Answered { status, retry_after: None, body: body.as_bytes(), now_ms: NOON }
}

#[test]
fn every_code_has_its_verdict() {
    let rows: [(&str, &[i64]); 6] = [
        ("done", &[0]),
        ("retry", &[-1, 1, 10001, 10002, 10003, 20607, 26003, 65029, 424_242]),
        ("throttle", &[10027, 26004, 10030, 10034]),
        ("dead", &[10029, 20301]),
        ("config", &[21301, 21302, 22000, 22006, 22007, 22022, 10031, 10036, 26006, 27001]),
        ("reject", &[10008, 10012, 10016, 10017, 65009, 65014, 65015]),
    ];
    for (expected, codes) in rows {
        for code in codes {
            let body = json!({ "result": "error", "code": code, "reason": "why" }).to_string();
            let verdicts = verdicts(answered(200, &body), &["a", "b"]);
            assert!(verdicts.iter().all(|v| v.name() == expected), "{code}: {verdicts:?}");
        }
    }
    for (status, expected) in [
        (200, "retry"),
        (400, "reject"),
        (401, "config"),
        (403, "config"),
        (404, "config"),
        (413, "reject"),
        (429, "throttle"),
        (500, "retry"),
        (502, "retry"),
        (503, "throttle"),
    ] {
        assert_eq!(verdicts(answered(status, "<html>"), &["a"])[0].name(), expected, "{status}");
    }
}

#[test]
fn bad_tokens_of_an_accepted_request_are_split_from_the_others() {
    for bad in [json!("b,c"), json!(["b", "c"])] {
        let body = json!({ "code": 0, "data": { "id": "1", "bad_regids": bad } }).to_string();
        let verdicts = verdicts(answered(200, &body), &["a", "b", "c"]);
        let names: Vec<_> = verdicts.iter().map(Verdict::name).collect();
        assert_eq!(names, ["done", "dead", "dead"]);
    }
}

#[test]
fn a_used_up_quota_waits_for_midnight_in_shanghai() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    assert_eq!(until_next_day(NOON), hours(12));
    assert_eq!(until_next_day(NOON + 12 * 3_600_000 - 1), Duration::from_millis(1));
    assert_eq!(until_next_day(NOON + 12 * 3_600_000), hours(24), "the new day is a whole one");
    // 20:00 in London is 04:00 of the next day in Shanghai.
    assert_eq!(until_next_day(1_772_395_200_000), hours(20));
    assert_eq!(until_next_day(u64::MAX), hours(24));
}

#[test]
fn a_message_becomes_a_form() {
    let body = Body::parse(
        br#"{"token":"x","message":{"title":"t","pass_through":0,"extra":{"a":"b","n":1}}}"#,
    );
    let mut fields =
        fields(&body.expect("it is valid"), "com.example", &["a", "b"]).expect("it fits");
    fields.sort();
    let fields: Vec<_> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let expected = [
        ("extra.a", "b"),
        ("extra.n", "1"),
        ("pass_through", "0"),
        ("registration_id", "a,b"),
        ("restricted_package_name", "com.example"),
        ("title", "t"),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn what_fits_no_form_is_named() {
    for message in [r#"{"title":[]}"#, r#"{"registration_id":"b"}"#, r#"{"extra":{"a":null}}"#] {
        let body = format!(r#"{{"token":"x","message":{message}}}"#);
        let body = Body::parse(body.as_bytes()).expect("it is valid");
        assert!(fields(&body, "com.example", &["a"]).is_err(), "{message}");
    }
}

#[test]
fn each_token_can_have_its_own_message() {
    let body = |title: &str| {
        let text = format!(r#"{{"token":"x","message":{{"title":"{title}"}}}}"#);
        Body::parse(text.as_bytes()).expect("it is valid")
    };
    let (one, two) = (body("1"), body("2"));
    let text = messages(&[("a", &one), ("b", &two)], "com.example");
    let list: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(list[1]["target"], "b");
    assert_eq!(list[1]["message"]["title"], "2");
}

#[test]
fn settings_that_miss_something_say_what() {
    let problems = |text: &str| toml::from_str::<Settings>(text).expect(text).problems();
    assert!(problems("package = 'a.b'\napp_secret = 's'").is_empty());
    assert_eq!(problems("package = ''\napp_secret = 's'").len(), 1);
    assert_eq!(problems("package = 'a,b'\nversion = 'v2'\napp_secret = 's'").len(), 1);
    assert_eq!(problems("package = 'a'\napp_secret = 's'\nurl = 'x'").len(), 1);
    assert_eq!(problems("package = 'a'\napp_secret = 's'\ninvalid_poll = '1s'").len(), 2);
}
