//! The Getui target against servers that speak Getui's protocol.
#![allow(clippy::disallowed_methods, reason = "starts a server, and waits with deadlines")]

use std::sync::Arc;

use crate::push::{html, job, one, run, settings, told};
use serde_json::{Value, json};
use trials::providers::getui::{Getui as Provider, coded};
use trials::providers::rest::Server;
use worker::io::target::Target;
use worker::io::target::getui::Getui;
use worker::{Message, Outcome};

async fn server() -> Server<Provider> {
    Server::start(Provider::new()).await.expect("a port is free")
}

fn target(servers: &[&Server<Provider>]) -> Arc<Getui> {
    let (app, key, secret) = {
        let provider = servers[0].provider();
        (provider.app_id.clone(), provider.app_key.clone(), provider.master_secret.clone())
    };
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let text =
        format!("app_id = '{app}'\napp_key = '{key}'\nmaster_secret = '{secret}'\nurls = {urls:?}");
    Arc::new(Getui::new(settings(&text)).expect("the settings are right"))
}

fn note(text: &str) -> Value {
    json!({ "push_message": { "transmission": text } })
}

fn jobs(count: usize) -> Vec<Message> {
    let one = |n: usize| job(&format!("job-{n}"), &[&format!("cid-{n}")], &note(&n.to_string()));
    (0..count).map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_different_messages_go_in_one_request() {
    let server = server().await;
    let target = target(&[&server]);
    let jobs = jobs(200);
    assert_eq!(target.run_jobs_max(), 200);
    assert_eq!(target.group(&jobs[0]), target.group(&jobs[1]));
    assert!(run(&target, jobs).await.iter().all(|outcome| *outcome == Outcome::done()));
    let provider = server.provider();
    assert_eq!((provider.sends, provider.batch_max, provider.sent.len()), (1, 200, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_repeated_is_not_shown_twice() {
    let server = server().await;
    let target = target(&[&server]);
    for _ in 0..2 {
        assert!(run(&target, jobs(50)).await.iter().all(|outcome| *outcome == Outcome::done()));
    }
    let provider = server.provider();
    assert_eq!(provider.repeated, 50);
    assert!(provider.sent.values().all(|count| *count == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_cid_is_told_dead_and_its_neighbours_are_done() {
    for leaves_out in [true, false] {
        let server = server().await;
        server.provider().leaves_out = leaves_out;
        server.provider().refused.insert("cid-3".to_owned());
        let outcomes = run(&target(&[&server]), jobs(10)).await;
        for (index, outcome) in outcomes.iter().enumerate() {
            let expected = if index == 3 { "token_dead" } else { "done" };
            assert_eq!(outcome.name(), expected, "{index}: {outcome:?}");
        }
        assert_eq!(told(&outcomes[3])[0].0, "cid-3");
        let provider = server.provider();
        assert!(provider.sent.values().all(|count| *count == 1));
        assert_eq!(provider.sent.len(), 9);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_wrong_message_does_not_take_those_with_it_that_share_its_request() {
    let server = server().await;
    let mut jobs = jobs(3);
    jobs[1] = job("bad", &["cid-1"], &json!({ "push_message": 1 }));
    jobs.push(job("own", &["cid-9"], &json!({ "push_message": {}, "request_id": "1" })));
    let outcomes = run(&target(&[&server]), jobs).await;
    let names: Vec<_> = outcomes.iter().map(Outcome::name).collect();
    assert_eq!(names, ["done", "reject", "done", "reject"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_the_table_has_its_outcome() {
    let server = server().await;
    let target = target(&[&server]);
    let rows = [
        (400, 1, "not JSON", "reject"),
        (200, 2, "service is starting", "retry"),
        (200, 301, "wrong domain", "config"),
        (401, 10001, "token", "config"),
        (403, 10002, "blacklisted", "config"),
        (401, 10003, "auth rate", "throttle"),
        (401, 10005, "call rate", "throttle"),
        (400, 20001, "push_message is empty", "reject"),
        (403, 30001, "quota", "throttle"),
        (200, 50000, "new", "retry"),
    ];
    for (status, code, msg, expected) in rows {
        // An access token that is refused twice is no matter of time.
        server.provider().faults = [coded(status, code, msg), coded(status, code, msg)].into();
        let outcome = one(&target, job("1", &["a"], &note("t"))).await;
        assert_eq!(outcome.name(), expected, "{status} {code}: {outcome:?}");
    }
    for (status, expected) in
        [(400, "reject"), (403, "config"), (404, "config"), (500, "retry"), (503, "throttle")]
    {
        server.provider().faults = [html(status)].into();
        let outcome = one(&target, job("1", &["a"], &note("t"))).await;
        assert_eq!(outcome.name(), expected, "{status}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_limit_that_comes_as_401_is_no_reason_for_another_access_token() {
    let server = server().await;
    let target = target(&[&server]);
    for code in [10003, 10005] {
        server.provider().faults = [coded(401, code, "too many")].into();
        let outcome = one(&target, job("1", &["a"], &note("t"))).await;
        assert_eq!(outcome.name(), "throttle", "{outcome:?}");
    }
    assert_eq!(server.provider().auths, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_runs_at_once_share_one_access_token_and_refresh_it_once() {
    let server = server().await;
    let target = target(&[&server]);
    for auths in 1..=2 {
        let runs: Vec<_> = jobs(100)
            .into_iter()
            .map(|mut job| {
                job.id = format!("{}-{auths}", job.id);
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
async fn an_app_that_another_domain_serves_is_found_there_and_stays_there() {
    let (first, second) = (server().await, server().await);
    first.provider().is_wrong_domain = true;
    let target = target(&[&first, &second]);
    assert!(run(&target, jobs(10)).await.iter().all(|outcome| *outcome == Outcome::done()));
    assert_eq!(second.provider().sent.len(), 10);
    first.provider().is_wrong_domain = false;
    run(&target, jobs(10)).await;
    assert_eq!(first.provider().sends, 0);
    second.provider().is_wrong_domain = true;
    first.provider().is_wrong_domain = true;
    let outcome = one(&target, job("1", &["a"], &note("t"))).await;
    assert_eq!(outcome.name(), "config", "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_environment_declares_no_cid_dead() {
    let server = server().await;
    server.provider().is_wrong_environment = true;
    let target = target(&[&server]);
    for outcome in run(&target, jobs(40)).await {
        assert_eq!(outcome.name(), "retry", "{outcome:?}");
        assert!(told(&outcome).is_empty());
    }
    assert_eq!(target.token_counts(), (0, 40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_stop_the_target() {
    let (server, other) = (server().await, server().await);
    other.provider().master_secret = "another".to_owned();
    target(&[&server]).check().await.expect("the right ones work");
    let url = other.url();
    let text = format!(
        "app_id = 'appid123'\napp_key = 'canary-app-key'\nmaster_secret = 'canary-wrong'\n\
         urls = ['{url}']"
    );
    let wrong = Arc::new(Getui::new(settings(&text)).expect("the settings can be read"));
    let outcome = one(&wrong, job("1", &["a"], &note("t"))).await;
    assert_eq!(outcome.name(), "config", "{outcome:?}");
    assert!(wrong.check().await.is_err());
}
