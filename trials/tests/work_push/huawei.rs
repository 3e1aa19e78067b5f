//! The Huawei target against a server that speaks Huawei's protocol.
#![allow(clippy::disallowed_methods, reason = "starts a server, and waits with deadlines")]

use std::sync::Arc;

use crate::push::{html, job, one, rest, run, settings, told};
use serde_json::{Value, json};
use trials::providers::huawei::{Huawei as Provider, PRIVATE_KEY, coded};
use trials::providers::rest::Server;
use worker::io::target::Target;
use worker::io::target::huawei::Huawei;
use worker::{Message, Outcome};

async fn server() -> Server<Provider> {
    Server::start(Provider::new()).await.expect("a port is free")
}

fn target(server: &Server<Provider>, version: &str) -> Arc<Huawei> {
    let (app, secret, project, account) = {
        let provider = server.provider();
        let account = json!({
            "project_id": provider.project_id, "key_id": provider.key_id,
            "private_key": PRIVATE_KEY, "sub_account": provider.sub_account,
        });
        let secret = provider.client_secret.clone();
        (provider.app_id.clone(), secret, provider.project_id.clone(), account.to_string())
    };
    let account = Value::String(account);
    let url = server.url();
    let text = format!(
        "version = '{version}'\napp_id = '{app}'\nclient_secret = '{secret}'\n\
         project_id = '{project}'\nservice_account = {account}\n\
         push_url = '{url}'\ntoken_url = '{url}/oauth2/v3/token'"
    );
    Arc::new(Huawei::new(settings(&text)).expect("the settings are right"))
}

fn note() -> Value {
    json!({ "notification": { "title": "t", "body": "b" } })
}

fn jobs(count: usize) -> Vec<Message> {
    (0..count).map(|n| job(&format!("job-{n}"), &[&format!("token-{n}")], &note())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_jobs_with_one_message_go_in_one_request() {
    for version in ["v1", "v2", "v3"] {
        let server = server().await;
        let target = target(&server, version);
        let jobs = jobs(1000);
        let group = target.group(&jobs[0]);
        assert!(group.is_some() && jobs.iter().all(|job| target.group(job) == group));
        let outcomes = run(&target, jobs).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::done()), "{version}");
        let provider = server.provider();
        assert_eq!((provider.sends, provider.sent.len(), provider.tokens_max), (1, 1000, 1000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_more_tokens_than_fit_goes_in_several_requests() {
    let server = server().await;
    let tokens: Vec<String> = (0..1000).map(|n| format!("t{n}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let big = |id: &str| job(id, &tokens, &note());
    let outcomes = run(&target(&server, "v1"), vec![big("a"), big("b")]).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::done()));
    let provider = server.provider();
    assert_eq!((provider.sends, provider.tokens_max), (2, 1000));
    assert!(provider.sent.values().all(|count| *count == 2), "each job reaches each token once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_tokens_are_told_dead_and_their_neighbours_are_done() {
    let server = server().await;
    server.provider().refused.insert("bad".to_owned(), "tokenFormatError");
    let target = target(&server, "v1");
    let jobs = vec![
        job("all", &["good", "bad"], &note()),
        job("none", &["bad2", "bad"], &note()),
        job("fine", &["fine"], &note()),
    ];
    server.provider().refused.insert("bad2".to_owned(), "tokenFormatError");
    let outcomes = run(&target, jobs).await;
    let names: Vec<_> = outcomes.iter().map(Outcome::name).collect();
    // `bad` is in two jobs: the second time it goes in another request.
    assert_eq!(told(&outcomes[0]), [("bad".to_owned(), "80100000 illegal_tokens".to_owned())]);
    assert_eq!(names, ["done", "token_dead", "done"]);
    assert_eq!(told(&outcomes[1]).len(), 2);
    assert_eq!(server.provider().sent.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_tokens_that_may_work_again_are_sent_again() {
    let server = server().await;
    let refused = [("gone", "tokenFormatError"), ("right", "noPushTypeRight"), ("new", "else")];
    for (token, reason) in refused {
        server.provider().refused.insert(token.to_owned(), reason);
    }
    let target = target(&server, "v3");
    let outcome = one(&target, job("1", &["good", "gone", "right", "new"], &note())).await;
    assert_eq!(rest(&outcome), ["right", "new"]);
    assert_eq!(told(&outcome), [("gone".to_owned(), "80100000 tokenFormatError".to_owned())]);
    server.provider().refused.clear();
    let Outcome::Retry { rest: Some(body), .. } = outcome else { panic!("{outcome:?}") };
    let again = Message { id: "1".to_owned(), body, attempt: 2, ..Message::default() };
    assert_eq!(one(&target, again).await, Outcome::done());
    let provider = server.provider();
    let sent: Vec<_> = provider.sent.iter().map(|(token, n)| (token.as_str(), *n)).collect();
    assert_eq!(sent, [("good", 1), ("new", 1), ("right", 1)], "nobody twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_type_goes_into_the_header_of_v3_and_parts_groups() {
    let server = server().await;
    let target = target(&server, "v3");
    let mut other = job("2", &["b"], &note());
    let body = json!({ "tokens": ["b"], "push_type": 6, "message": note() }).to_string();
    other.body = body.into();
    let first = job("1", &["a"], &note());
    assert_ne!(target.group(&first), target.group(&other));
    run(&target, vec![first, other]).await;
    let provider = server.provider();
    assert_eq!(provider.push_types.iter().collect::<Vec<_>>(), ["0", "6"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_the_table_has_its_outcome() {
    let server = server().await;
    let target = target(&server, "v1");
    let rows = [
        (200, "80000000", "done"),
        (200, "80100001", "reject"),
        (400, "80100003", "reject"),
        (200, "80200001", "config"),
        (401, "80200003", "config"),
        (401, "80200005", "config"),
        (200, "80300002", "config"),
        (200, "80300008", "reject"),
        (200, "80300010", "reject"),
        (200, "80300029", "throttle"),
        (200, "80300037", "config"),
        (500, "81000001", "retry"),
        (503, "81000001", "throttle"),
    ];
    for (status, code, expected) in rows {
        // An access token that is refused twice is no matter of time.
        let faults = [coded(status, code, "text"), coded(status, code, "text")];
        server.provider().faults = faults.into();
        let outcome = one(&target, job("1", &["a"], &note())).await;
        assert_eq!(outcome.name(), expected, "{status} {code}: {outcome:?}");
    }
    for (status, expected) in [
        (400, "reject"),
        (403, "config"),
        (404, "config"),
        (500, "retry"),
        (502, "retry"),
        (503, "throttle"),
    ] {
        server.provider().faults = [html(status)].into();
        let outcome = one(&target, job("1", &["a"], &note())).await;
        assert_eq!(outcome.name(), expected, "{status}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_control_is_obeyed_for_as_long_as_it_says_and_stops_the_run() {
    let server = server().await;
    let target = target(&server, "v1");
    let mut fault = html(503);
    fault.retry_after = Some(17);
    server.provider().faults = [fault].into();
    let jobs = vec![job("1", &["a"], &note()), job("2", &["a"], &note())];
    for outcome in run(&target, jobs).await {
        assert!(matches!(outcome, Outcome::Throttle { until, .. } if until.as_secs() == 17));
    }
    assert_eq!(server.provider().sends, 1, "the second request was not sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_runs_at_once_share_one_access_token_and_refresh_it_once() {
    let server = server().await;
    let target = target(&server, "v1");
    for auths in 1..=2 {
        let runs: Vec<_> = jobs(100)
            .into_iter()
            .map(|job| {
                let target = target.clone();
                tokio::spawn(async move { one(&target, job).await })
            })
            .collect();
        for run in runs {
            assert_eq!(run.await.expect("it does not panic"), Outcome::done());
        }
        assert_eq!(server.provider().auths, auths);
        server.provider().expire_access();
    }
    assert!(server.provider().sent.values().all(|count| *count == 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_away_is_waited_for_and_one_that_refuses_stops_the_target() {
    let server = self::server().await;
    let target = target(&server, "v1");
    server.provider().auth_faults = [html(500)].into();
    let outcome = one(&target, job("1", &["a"], &note())).await;
    assert_eq!(outcome.name(), "retry", "{outcome:?}");
    let other = self::server().await;
    other.provider().client_secret = "another".to_owned();
    let text = format!(
        "app_id = '100001'\nclient_secret = 'canary-wrong'\npush_url = '{0}'\n\
         token_url = '{0}/oauth2/v3/token'",
        other.url()
    );
    let wrong = Arc::new(Huawei::new(settings(&text)).expect("the settings can be read"));
    for _ in 0..3 {
        let outcome = one(&wrong, job("1", &["a"], &note())).await;
        assert_eq!(outcome.name(), "config", "{outcome:?}");
    }
    assert_eq!(other.provider().sends, 0);
    assert!(wrong.check().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_environment_declares_no_token_dead() {
    for version in ["v1", "v3"] {
        let server = server().await;
        server.provider().is_wrong_environment = true;
        let target = target(&server, version);
        for outcome in run(&target, jobs(300)).await {
            assert_eq!(outcome.name(), "retry", "{outcome:?}");
            let Outcome::Retry { why, .. } = &outcome else { panic!("{outcome:?}") };
            assert!(why.contains("environment or the credentials"), "{why}");
            assert!(told(&outcome).is_empty());
        }
        assert_eq!(target.token_counts(), (0, 300));
        server.provider().is_wrong_environment = false;
        assert!(run(&target, jobs(300)).await.iter().all(|o| *o == Outcome::done()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_push_job_is_refused_and_its_neighbours_are_sent() {
    let server = server().await;
    let mut bad = job("bad", &["a"], &note());
    bad.body = "canary".into();
    let outcomes = run(&target(&server, "v1"), vec![bad, job("1", &["b"], &note())]).await;
    assert_eq!(outcomes.iter().map(Outcome::name).collect::<Vec<_>>(), ["reject", "done"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_huawei_repeats_is_in_no_outcome() {
    let server = server().await;
    let target = target(&server, "v1");
    let msg = "no: canary-access-1, canary-client-secret";
    server.provider().faults = [coded(400, "80100003", msg)].into();
    // `one` looks for canaries.
    let outcome = one(&target, job("1", &["a"], &note())).await;
    assert_eq!(outcome, Outcome::reject("huawei 80100003: no: ***, ***"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_sees_whether_the_credentials_work() {
    let server = server().await;
    for version in ["v1", "v2", "v3"] {
        target(&server, version).check().await.expect("they do");
    }
}
