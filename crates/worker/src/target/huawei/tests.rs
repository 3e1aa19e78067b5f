use super::*;

fn answered(status: u16, body: &str) -> Answered<'_> {
    Answered { status, retry_after: None, body: body.as_bytes() }
}

fn name(verdict: &Verdict) -> &'static str {
    verdict.name()
}

#[test]
fn every_code_and_status_has_its_verdict() {
    let rows = [
        (200, "80000000", "done"),
        (200, "80100001", "reject"),
        (400, "80100003", "reject"),
        (200, "80100004", "reject"),
        (200, "80100022", "reject"),
        (200, "80200001", "auth"),
        (200, "80200003", "auth"),
        (401, "80200005", "auth"),
        (200, "80200006", "config"),
        (200, "80300002", "config"),
        (200, "80300007", "dead"),
        (200, "80300008", "reject"),
        (200, "80300010", "reject"),
        (200, "80300029", "throttle"),
        (200, "80300030", "reject"),
        (200, "80300036", "config"),
        (200, "80300037", "config"),
        (200, "81000001", "retry"),
        (500, "81000001", "retry"),
        (200, "81999999", "retry"),
        (200, "99999999", "retry"),
        (503, "80000000", "throttle"),
        (429, "", "throttle"),
    ];
    for (status, code, expected) in rows {
        let body = json!({ "code": code, "msg": "text", "requestId": "1" }).to_string();
        let verdicts = verdicts(answered(status, &body), &["a", "b"]);
        assert_eq!(verdicts.len(), 2);
        assert!(verdicts.iter().all(|v| name(v) == expected), "{status} {code}: {verdicts:?}");
    }
    for (status, expected) in [
        (200, "retry"),
        (302, "retry"),
        (400, "reject"),
        (401, "auth"),
        (403, "config"),
        (404, "config"),
        (413, "reject"),
        (500, "retry"),
        (502, "retry"),
        (503, "throttle"),
    ] {
        let verdicts = verdicts(answered(status, "<html>"), &["a"]);
        assert_eq!(name(&verdicts[0]), expected, "{status}");
    }
}

#[test]
fn a_partial_failure_is_split_exactly() {
    let msg = r#"{"success":2,"failure":1,"illegal_tokens":["b"]}"#;
    let body = json!({ "code": "80100000", "msg": msg }).to_string();
    let verdicts = verdicts(answered(200, &body), &["a", "b", "c"]);
    assert_eq!(verdicts.iter().map(name).collect::<Vec<_>>(), ["done", "dead", "done"]);
}

#[test]
fn a_partial_failure_of_v3_has_a_reason_for_each_token() {
    let msg = json!({ "success": 1, "failure": 5, "illegalTokens": {
        " tokenFormatError ": ["b"], "noPushTypeRight": ["c"], "countryNotSupport": ["d"],
        "noRight": ["e"], "somethingNew": ["f"],
    }});
    let body = json!({ "code": "80100000", "msg": msg.to_string() }).to_string();
    let verdicts = verdicts(answered(200, &body), &["a", "b", "c", "d", "e", "f"]);
    let names: Vec<_> = verdicts.iter().map(name).collect();
    assert_eq!(names, ["done", "dead", "config", "reject", "dead", "retry"]);
}

#[test]
fn a_partial_failure_that_names_too_few_tokens_is_tried_again() {
    let msg = r#"{"success":1,"failure":2,"illegal_tokens":["b"]}"#;
    let body = json!({ "code": "80100000", "msg": msg }).to_string();
    let few = verdicts(answered(200, &body), &["a", "b", "c"]);
    assert_eq!(few.iter().map(name).collect::<Vec<_>>(), ["retry", "dead", "retry"]);
    let body = json!({ "code": "80100000", "msg": "Partial" }).to_string();
    let none = verdicts(answered(200, &body), &["a", "b"]);
    assert!(none.iter().all(|verdict| name(verdict) == "retry"));
}

#[test]
fn a_missing_right_of_all_tokens_is_a_wrong_setting_and_no_dead_token() {
    let msg = json!({ "failure": 1, "illegalTokens": { "noPushTypeRight": ["a"] } });
    let body = json!({ "code": "80300007", "msg": msg.to_string() }).to_string();
    assert_eq!(name(&verdicts(answered(200, &body), &["a"])[0]), "config");
}

#[test]
fn tokens_are_put_where_the_version_wants_them() {
    let body = Body::parse(br#"{"token":"x","message":{"payload":{"a":1},"target":{"b":2}}}"#);
    let body = body.expect("it is valid");
    let v1 = request(Version::V1, &body, &["a", "b"]);
    assert_eq!(v1["message"]["token"], json!(["a", "b"]));
    assert_eq!(v1["validate_only"], json!(false));
    let v3 = request(Version::V3, &body, &["a", "b"]);
    assert_eq!(v3, json!({ "payload": {"a": 1}, "target": {"b": 2, "token": ["a", "b"]} }));
}

#[test]
fn an_access_token_is_read_and_a_refusal_is_told_apart() {
    let granted = access_token(answered(200, r#"{"access_token":"t","expires_in":3600}"#));
    assert_eq!(granted, Ok(("t".to_owned(), Duration::from_secs(3600))));
    let rows = [
        (400, r#"{"error":1101,"sub_error":20001,"error_description":"bad"}"#, "config"),
        (401, "{}", "config"),
        (403, "", "config"),
        (429, "", "throttle"),
        (500, "", "retry"),
        (503, "", "throttle"),
        (200, "{}", "retry"),
    ];
    for (status, body, expected) in rows {
        let refused = access_token(answered(status, body)).expect_err("there is none");
        assert_eq!(name(&refused), expected, "{status}");
    }
}

#[test]
fn settings_that_miss_something_say_what() {
    let problems = |text: &str| toml::from_str::<Settings>(text).expect(text).problems();
    assert!(problems("app_id = '1'\nclient_secret = 'env:S'").is_empty());
    assert_eq!(problems("version = 'v1'").len(), 2);
    assert_eq!(problems("version = 'v2'\napp_id = '1'\nclient_secret = 's'").len(), 1);
    assert_eq!(problems("version = 'v3'").len(), 1);
    assert_eq!(problems("version='v3'\nservice_account='file:a'\npush_url='ftp://a'").len(), 1);
    assert_eq!(problems("app_id = '../1'\nclient_secret = 's'").len(), 1);
}
