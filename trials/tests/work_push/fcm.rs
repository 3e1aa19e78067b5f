//! Pushes through FCM, against a local server that speaks its protocol.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test stops where its stage cannot be set, and waits with a deadline"
)]

use std::sync::Arc;
use std::time::Duration;

use crate::push::{one, run, settings, told};
use serde_json::json;
use trials::providers::fcm::{Fcm as Provider, code, error, field};
use trials::providers::rest::{Reply, Server};
use worker::io::target::Target;
use worker::io::target::fcm::Fcm;
use worker::{Message, Outcome, Scope};

struct Stage {
    server: Server<Provider>,
    target: Arc<Fcm>,
}

async fn stage(more: &str) -> Stage {
    let server = Server::start(Provider::new()).await.unwrap();
    let url = server.url();
    let account = server.provider().service_account(&url);
    let text = format!("service_account = '''{account}'''\npush_url = '{url}'\n{more}");
    let target = Arc::new(Fcm::new(settings(&text)).unwrap());
    Stage { server, target }
}

fn job(id: &str, token: &str) -> Message {
    let body = json!({ "message": { "token": token, "data": { "order": id } } }).to_string();
    Message { id: id.to_owned(), body: body.into(), attempt: 1, ..Message::default() }
}

impl Stage {
    async fn push(&self, token: &str) -> Outcome {
        one(&self.target, job("job", token)).await
    }

    async fn push_after(&self, fault: Reply) -> Outcome {
        self.server.provider().faults.push_back(fault);
        self.push("good").await
    }
}

#[tokio::test]
async fn a_message_arrives_as_it_was_written() {
    let stage = stage("").await;
    let job = job("order-1", "device-1");
    assert_eq!(one(&stage.target, job.clone()).await, Outcome::done());
    assert_eq!(stage.server.provider().bodies, [String::from_utf8_lossy(&job.body)]);
}

#[tokio::test]
async fn a_target_that_only_validates_delivers_nothing() {
    let stage = stage("validate_only = true").await;
    assert_eq!(stage.push("device-1").await, Outcome::done());
    let provider = stage.server.provider();
    assert_eq!((provider.validated, provider.sent.len()), (1, 0));
}

#[tokio::test]
async fn every_row_of_the_table_has_its_outcome() {
    let stage = stage("").await;
    assert_eq!(stage.push("good").await, Outcome::done(), "one success vouches for the dead");
    let rows = [
        (404, vec![code("UNREGISTERED")], "token_dead"),
        (403, vec![code("SENDER_ID_MISMATCH")], "token_dead"),
        (401, vec![code("THIRD_PARTY_AUTH_ERROR")], "config"),
        (429, vec![code("QUOTA_EXCEEDED")], "throttle"),
        (500, vec![code("INTERNAL")], "retry"),
        (503, vec![code("UNAVAILABLE")], "retry"),
        (403, vec![], "config"),
        (413, vec![], "reject"),
    ];
    for (status, details, expected) in rows {
        let outcome = stage.push_after(error(status, "WORD", &details)).await;
        assert_eq!(outcome.name(), expected, "{status} {details:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_invalid_argument_is_a_wrong_message_or_a_wrong_token() {
    let stage = stage("").await;
    assert_eq!(stage.push("good").await, Outcome::done());
    let invalid = |details| error(400, "INVALID_ARGUMENT", details);
    let token = [code("INVALID_ARGUMENT")];
    let outcome = stage.push_after(invalid(&token)).await;
    assert_eq!(told(&outcome), [("good".to_owned(), "INVALID_ARGUMENT".to_owned())]);
    let message = [code("INVALID_ARGUMENT"), field("message.android.ttl")];
    assert_eq!(stage.push_after(invalid(&message)).await.name(), "reject");
    let token = [code("INVALID_ARGUMENT"), field("message.token")];
    assert_eq!(stage.push_after(invalid(&token)).await.name(), "token_dead");
}

#[tokio::test]
async fn retry_after_is_obeyed() {
    let stage = stage("").await;
    let mut quota = error(429, "RESOURCE_EXHAUSTED", &[code("QUOTA_EXCEEDED")]);
    quota.retry_after = Some(17);
    let wait = Duration::from_secs(17);
    let Outcome::Throttle { scope: Scope::Target, until, .. } = stage.push_after(quota).await
    else {
        panic!("everything waits")
    };
    assert_eq!(until, wait);
    let mut away = error(503, "UNAVAILABLE", &[code("UNAVAILABLE")]);
    away.retry_after = Some(17);
    let Outcome::Retry { after, .. } = stage.push_after(away).await else { panic!("a retry") };
    assert_eq!(after, Some(wait));
}

#[tokio::test]
async fn a_hundred_pushes_ask_for_one_access_token() {
    let stage = stage("").await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..100 {
        let target = Arc::clone(&stage.target);
        let job = job(&format!("job-{i}"), &format!("device-{i}"));
        tasks.spawn(async move { one(&target, job).await });
    }
    for outcome in tasks.join_all().await {
        assert_eq!(outcome, Outcome::done());
    }
    assert_eq!(stage.server.provider().auths, 1);
    assert_eq!(stage.server.provider().sent.len(), 100);
}

#[tokio::test]
async fn an_access_token_that_is_refused_is_replaced_and_the_push_repeated_once() {
    let stage = stage("").await;
    assert_eq!(stage.push("a").await, Outcome::done());
    stage.server.provider().expire_access();
    assert_eq!(stage.push("b").await, Outcome::done());
    assert_eq!(stage.server.provider().auths, 2);
    let refused = error(401, "UNAUTHENTICATED", &[]);
    stage.server.provider().faults.extend([refused.clone(), refused]);
    assert_eq!(stage.push("c").await.name(), "config", "a new one has not helped");
}

#[tokio::test]
async fn a_service_account_that_is_refused_stops_the_target() {
    let stage = stage("").await;
    stage.server.provider().client_email = "other@example.com".to_owned();
    let Outcome::Config { why } = stage.push("a").await else { panic!("it stops") };
    assert!(why.contains("invalid_grant"), "{why}");
    Arc::clone(&stage.target).check().await.expect_err("the doctor says so, too");
}

#[tokio::test]
async fn a_token_server_that_is_away_is_a_retry() {
    let stage = stage("").await;
    stage.server.provider().auth_faults.push_back(Reply::text(503, "away"));
    assert_eq!(stage.push("a").await.name(), "retry");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while Arc::clone(&stage.target).check().await.is_err() {
        assert!(std::time::Instant::now() < deadline, "it is there again, and not asked");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_round_without_one_success_declares_no_device_token_dead() {
    let stage = stage("").await;
    for i in 0..5 {
        let refused = (403, "SENDER_ID_MISMATCH");
        stage.server.provider().refused.insert(format!("device-{i}"), refused);
    }
    for i in 0..5 {
        assert_eq!(stage.push(&format!("device-{i}")).await.name(), "retry");
    }
    assert_eq!(stage.target.token_counts(), (0, 5));
}

#[tokio::test]
async fn no_secret_is_in_what_the_target_says() {
    let stage = stage("").await;
    let said = format!("{:?}", stage.target);
    let body = error(400, "canary-word", &[code("canary code")]);
    let faults = [body, Reply::text(500, "canary"), Reply::text(401, "canary")];
    for fault in faults {
        // `one` looks for canaries in the outcome.
        stage.push_after(fault).await;
    }
    run(&stage.target, vec![job("a", "canary-device")]).await;
    assert!(!said.contains("canary"), "{said}");
}
