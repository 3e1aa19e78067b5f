use super::*;

fn body(tokens: &[&str], message: &str) -> Body {
    let text = serde_json::json!({ "tokens": tokens }).to_string();
    let text = text.replacen('{', &format!("{{\"message\":{message},"), 1);
    Body::parse(text.as_bytes()).expect("it is valid")
}

fn retry() -> Fate {
    Fate::Retry { after: None, why: "busy".to_owned() }
}

fn dead() -> Fate {
    Fate::Dead { why: "gone".to_owned(), publishes: Vec::new() }
}

fn parts(chunk: &[Part]) -> Vec<(usize, usize)> {
    chunk.iter().map(|part| (part.job, part.token)).collect()
}

#[test]
fn a_body_has_a_token_or_several_and_a_message() {
    let one = Body::parse(br#"{"token":"a","message":{"x":1}}"#).expect("one token");
    assert_eq!(one.tokens(), ["a"]);
    let many = Body::parse(br#"{"tokens":["a","b"],"message":{"x":1}}"#).expect("two tokens");
    assert_eq!(one.group(), many.group(), "the same message goes to all");
    let canary = r#"{"token":"canary a","message":{}}"#;
    for bad in [
        "",
        "{}",
        r#"{"message":{}}"#,
        r#"{"token":"","message":{}}"#,
        canary,
        r#"{"token":"a,b","message":{}}"#,
        r#"{"token":"a","message":1}"#,
        r#"{"token":"a","message":{},"canary":1}"#,
    ] {
        let why = Body::parse(bad.as_bytes()).expect_err(bad);
        assert!(!why.contains("canary"), "{why}");
    }
    let tokens: Vec<String> = (0..=TOKENS_MAX).map(|index| index.to_string()).collect();
    let text = serde_json::json!({ "tokens": tokens, "message": {} }).to_string();
    assert!(Body::parse(text.as_bytes()).is_err(), "more than a thousand");
}

#[test]
fn jobs_with_one_message_share_requests_up_to_the_limit() {
    let bodies = [
        Some(body(&["a", "b"], "{}")),
        None,
        Some(body(&["c", "d"], "{}")),
        Some(body(&["e"], r#"{"x":1}"#)),
    ];
    let chunks = plan(&bodies, Fill::SameMessage { tokens_max: 3 });
    let chunks: Vec<_> = chunks.iter().map(|chunk| parts(chunk)).collect();
    assert_eq!(chunks, [vec![(0, 0), (0, 1), (2, 0)], vec![(2, 1)], vec![(3, 0)]]);
    assert_eq!(plan(&bodies, Fill::OwnMessages { tokens_max: 200 }).len(), 1);
}

#[test]
fn a_token_is_once_in_a_request() {
    let bodies = [Some(body(&["a"], "{}")), Some(body(&["a"], "{}"))];
    assert_eq!(plan(&bodies, Fill::SameMessage { tokens_max: 1000 }).len(), 2);
}

#[test]
fn only_the_tokens_that_may_work_again_are_tried_again() {
    let body = body(&["a", "b", "c", "d"], r#"{"x": 1}"#);
    let outcome = fold(&body, vec![Fate::Done, retry(), dead(), retry()]);
    let Outcome::Retry { rest: Some(rest), why, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(rest, r#"{"tokens":["b","d"],"message":{"x": 1}}"#.as_bytes());
    assert_eq!(why, "2 of 4 tokens are left: busy");
    let again = Body::parse(&rest).expect("it can be read again");
    assert_eq!(again.group(), body.group());
}

#[test]
fn a_job_is_done_when_each_token_is_done_or_dead_and_dead_when_all_are() {
    let two = || body(&["a", "b"], "{}");
    assert_eq!(fold(&two(), vec![Fate::Done, Fate::Done]), Outcome::done());
    assert_eq!(fold(&two(), vec![dead(), Fate::Done]), Outcome::done());
    assert_eq!(fold(&two(), vec![dead(), dead()]).name(), "token_dead");
}

#[test]
fn a_refused_token_beside_a_done_one_comes_again_alone_and_is_then_refused_alone() {
    let reject = || Fate::Reject { why: "too long".to_owned() };
    let outcome = fold(&body(&["a", "b"], "{}"), vec![Fate::Done, reject()]);
    let Outcome::Retry { rest: Some(rest), .. } = outcome else { panic!("{outcome:?}") };
    let rest = Body::parse(&rest).expect("it can be read again");
    assert_eq!(fold(&rest, vec![reject()]), Outcome::reject("too long"));
}

#[test]
fn the_gravest_decides_for_a_job_of_which_nothing_is_over() {
    let two = || body(&["a", "b"], "{}");
    let throttle = |seconds| Fate::Throttle {
        scope: Scope::Target,
        until: Duration::from_secs(seconds),
        why: "slow".to_owned(),
    };
    let config = Fate::Config { why: "key".to_owned() };
    assert_eq!(fold(&two(), vec![retry(), retry()]), Outcome::retry("busy"));
    let outcome = fold(&two(), vec![throttle(1), throttle(5)]);
    assert!(matches!(outcome, Outcome::Throttle { until, .. } if until.as_secs() == 5));
    assert_eq!(fold(&two(), vec![throttle(1), config]).name(), "config");
}
