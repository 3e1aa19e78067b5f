use super::*;

fn answered(status: u16, body: &str) -> Answered<'_> {
    Answered { status, retry_after: None, body: body.as_bytes() }
}

fn all(status: u16, code: i64, msg: &str) -> String {
    let body = json!({ "code": code, "msg": msg }).to_string();
    match meaning(answered(status, &body), &["a"]) {
        Meaning::All(verdict) => verdict.name().to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn every_code_has_its_verdict() {
    let rows = [
        (200, 1, "not JSON", "reject"),
        (200, 2, "starting", "retry"),
        (200, 301, "wrong domain", "WrongDomain"),
        (401, 10001, "token", "auth"),
        (200, 10001, "token", "auth"),
        (403, 10002, "blacklist", "config"),
        (401, 10003, "too many auth", "throttle"),
        (401, 10005, "too many calls", "throttle"),
        (400, 20001, "target user is invalid", "dead"),
        (400, 20001, "push_message is empty", "reject"),
        (403, 30001, "quota", "throttle"),
        (403, 39999, "package", "throttle"),
        (200, 50000, "new", "retry"),
    ];
    for (status, code, msg, expected) in rows {
        assert_eq!(all(status, code, msg), expected, "{status} {code} {msg}");
    }
    for (status, expected) in [
        (200, "retry"),
        (400, "reject"),
        (401, "auth"),
        (403, "config"),
        (404, "config"),
        (413, "reject"),
        (429, "throttle"),
        (500, "retry"),
        (502, "retry"),
        (503, "throttle"),
    ] {
        let Meaning::All(verdict) = meaning(answered(status, "<html>"), &["a"]) else {
            panic!("{status} is about all");
        };
        assert_eq!(verdict.name(), expected, "{status}");
    }
}

#[test]
fn a_wrong_message_in_a_batch_makes_each_go_alone() {
    let body = json!({ "code": 20001, "msg": "target user is invalid" }).to_string();
    assert_eq!(meaning(answered(400, &body), &["a", "b"]), Meaning::Split);
}

#[test]
fn each_cid_of_a_batch_has_its_status() {
    let body = json!({ "code": 0, "data": {
        "task-1": { "a": "successed_online" }, "task-2": { "b": "successed_offline" },
        "task-3": { "c": "successed_ignore" }, "task-4": { "d": "target user is invalid" },
        "task-5": { "e": "other_error" },
    }});
    let Meaning::Each(each) =
        meaning(answered(200, &body.to_string()), &["a", "b", "c", "d", "e", "f"])
    else {
        panic!("it is about each");
    };
    let names: Vec<_> = each
        .iter()
        .map(|one| match one {
            One::Known(verdict) => verdict.name(),
            One::Unnamed => "alone",
        })
        .collect();
    assert_eq!(names, ["done", "done", "done", "dead", "retry", "alone"]);
}

#[test]
fn the_request_id_is_the_same_at_every_attempt_and_fits() {
    let body = Body::parse(br#"{"token":"x","message":{"push_message":{}}}"#).expect("valid");
    let one = message("job-1", "cid-1", &body).expect("it fits");
    let id = one["request_id"].as_str().expect("a text").to_owned();
    assert!((10..=32).contains(&id.len()));
    assert_eq!(message("job-1", "cid-1", &body).expect("it fits"), one);
    for (job, cid) in [("job-2", "cid-1"), ("job-1", "cid-2")] {
        assert_ne!(message(job, cid, &body).expect("it fits")["request_id"], json!(id));
    }
    let own = Body::parse(br#"{"token":"x","message":{"request_id":"1"}}"#).expect("valid");
    assert!(message("job-1", "cid-1", &own).is_err());
}

#[test]
fn the_signature_is_that_of_the_documentation() {
    // sha256 of "key" + "1500000000000" + "secret".
    let request = auth_request("key", "secret", 1_500_000_000_000);
    assert_eq!(request["timestamp"], "1500000000000");
    assert_eq!(request["sign"], "674b66c9937a746fe82056a68af90467fe93391e91eeda2479cb9164993b098c");
}

#[test]
fn an_access_token_is_read_and_a_refusal_is_told_apart() {
    let body = json!({ "code": 0, "data": { "token": "t", "expire_time": "1000000" } }).to_string();
    let granted = access_token(answered(200, &body), 400_000);
    assert_eq!(granted, Ok(("t".to_owned(), Duration::from_secs(600))));
    let rows = [
        (401, 10003, Some("throttle")),
        (401, 10001, Some("config")),
        (403, 10002, Some("config")),
        (400, 20001, Some("config")),
        (200, 301, None),
        (200, 2, Some("retry")),
        (200, 0, Some("retry")),
    ];
    for (status, code, expected) in rows {
        let body = json!({ "code": code, "msg": "m", "data": {} }).to_string();
        let refused = access_token(answered(status, &body), 0).expect_err("there is none");
        assert_eq!(refused.as_ref().map(Verdict::name), expected, "{code}");
    }
}

#[test]
fn settings_that_miss_something_say_what() {
    let problems = |text: &str| toml::from_str::<Settings>(text).expect(text).problems();
    let keys = "app_key = 'k'\nmaster_secret = 's'\n";
    assert!(problems(&format!("app_id = 'a'\n{keys}")).is_empty());
    assert_eq!(problems(&format!("app_id = 'a/b'\n{keys}")).len(), 1);
    assert_eq!(problems(&format!("app_id = 'a'\nurls = []\n{keys}")).len(), 1);
    assert_eq!(problems(&format!("app_id = 'a'\nurls = ['x']\n{keys}")).len(), 1);
}
