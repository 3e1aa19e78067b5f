//! The Xiaomi target against a server that speaks Xiaomi's protocol.
#![allow(clippy::disallowed_methods, reason = "starts a server, and waits with deadlines")]

use std::sync::Arc;
use std::time::Duration;

use crate::push::{html, job, one, run, settings, told};
use serde_json::{Value, json};
use trials::providers::rest::Server;
use trials::providers::xiaomi::{Xiaomi as Provider, coded};
use worker::io::target::Target;
use worker::io::target::xiaomi::Xiaomi;
use worker::{Message, Outcome, Scope};

/// 2026-03-01 23:59:30 in Shanghai.
const LATE: u64 = 1_772_380_770_000;

async fn server() -> Server<Provider> {
    Server::start(Provider::new()).await.expect("a port is free")
}

fn words(server: &Server<Provider>, more: &str) -> String {
    let provider = server.provider();
    let (package, secret, url) = (&provider.package, &provider.app_secret, server.url());
    format!("package = '{package}'\napp_secret = '{secret}'\nurl = '{url}'\n{more}")
}

fn target(server: &Server<Provider>, more: &str) -> Arc<Xiaomi> {
    let settings = settings(&words(server, more));
    Arc::new(Xiaomi::with_clock(settings, || LATE).expect("the settings are right"))
}

fn note(title: &str) -> Value {
    json!({ "title": title, "description": "d", "payload": "a=b&c", "pass_through": 0,
        "extra": { "channel_id": "news" } })
}

fn jobs(count: usize) -> Vec<Message> {
    (0..count).map(|n| job(&format!("job-{n}"), &[&format!("reg-{n}")], &note("t"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_jobs_with_one_message_go_in_one_request() {
    for version in ["v2", "v3"] {
        let server = server().await;
        let target = target(&server, &format!("version = '{version}'"));
        let outcomes = run(&target, jobs(1000)).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::done()));
        let provider = server.provider();
        assert_eq!((provider.sends, provider.sent.len(), provider.tokens_max), (1, 1000, 1000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_token_can_have_its_own_text_in_one_request() {
    let server = server().await;
    let target = target(&server, "per_device = true");
    let jobs: Vec<Message> = (0..500)
        .map(|n| job(&format!("job-{n}"), &[&format!("reg-{n}")], &note(&format!("title {n}"))))
        .collect();
    assert_eq!(target.group(&jobs[0]), target.group(&jobs[1]));
    let outcomes = run(&target, jobs).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::done()));
    let provider = server.provider();
    assert_eq!((provider.sends, provider.titles.len(), provider.sent.len()), (1, 500, 500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_wrong_message_does_not_take_those_with_it_that_share_its_request() {
    let server = server().await;
    let target = target(&server, "per_device = true");
    let long = "x".repeat(60);
    let jobs = vec![
        job("1", &["a"], &note("fine")),
        job("2", &["b"], &note(&long)),
        job("3", &["c"], &note("fine too")),
    ];
    let outcomes = run(&target, jobs).await;
    let names: Vec<_> = outcomes.iter().map(Outcome::name).collect();
    assert_eq!(names, ["done", "reject", "done"]);
    assert!(server.provider().sent.values().all(|count| *count == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_tokens_are_told_dead_and_their_neighbours_are_done() {
    let server = server().await;
    server.provider().refused.insert("bad".to_owned());
    let target = target(&server, "");
    let jobs = vec![
        job("1", &["good", "bad"], &note("t")),
        job("2", &["fine"], &note("t")),
        job("3", &["bad"], &note("t")),
    ];
    let outcomes = run(&target, jobs).await;
    let names: Vec<_> = outcomes.iter().map(Outcome::name).collect();
    assert_eq!(names, ["done", "done", "token_dead"]);
    assert_eq!(told(&outcomes[0]), [("bad".to_owned(), "bad_regids".to_owned())]);
    assert_eq!(told(&outcomes[2]), [("bad".to_owned(), "20301".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_the_table_has_its_outcome() {
    let server = server().await;
    let target = target(&server, "");
    let rows: [(&str, &[i64]); 4] = [
        ("retry", &[-1, 1, 10001, 10002, 10003, 20607, 26003, 65029, 424_242]),
        ("throttle", &[10027, 26004, 10030, 10034]),
        ("config", &[21301, 21302, 22000, 22006, 22007, 22022, 10031, 10036, 26006, 27001]),
        ("reject", &[10008, 10012, 10016, 10017, 65009, 65014, 65015]),
    ];
    for (expected, codes) in rows {
        for code in codes {
            server.provider().faults = [coded(*code, "text")].into();
            let outcome = one(&target, job("1", &["a"], &note("t"))).await;
            assert_eq!(outcome.name(), expected, "{code}: {outcome:?}");
        }
    }
    for (status, expected) in
        [(400, "reject"), (401, "config"), (404, "config"), (500, "retry"), (503, "throttle")]
    {
        server.provider().faults = [html(status)].into();
        let outcome = one(&target, job("1", &["a"], &note("t"))).await;
        assert_eq!(outcome.name(), expected, "{status}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_up_quota_parks_the_app_until_midnight_in_shanghai() {
    let server = server().await;
    server.provider().quota = Some(10);
    let late = target(&server, "");
    assert!(run(&late, jobs(10)).await.iter().all(|outcome| *outcome == Outcome::done()));
    for outcome in run(&late, jobs(5)).await {
        let Outcome::Throttle { scope, until, why } = outcome else { panic!("{outcome:?}") };
        assert_eq!((scope, until), (Scope::Target, Duration::from_secs(30)), "{why}");
    }
    let settings = settings(&words(&server, ""));
    let next_day = Xiaomi::with_clock(settings, || LATE + 30_000).expect("the settings are right");
    let next_day = Arc::new(next_day);
    let outcome = one(&next_day, job("1", &["a"], &note("t"))).await;
    let day = Duration::from_secs(24 * 3600);
    assert!(matches!(outcome, Outcome::Throttle { until, .. } if until == day), "{outcome:?}");
    server.provider().quota = Some(10);
    assert_eq!(one(&next_day, job("1", &["a"], &note("t"))).await, Outcome::done());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_environment_declares_no_token_dead() {
    let server = server().await;
    server.provider().is_wrong_environment = true;
    let target = target(&server, "");
    for outcome in run(&target, jobs(300)).await {
        assert_eq!(outcome.name(), "retry", "{outcome:?}");
        assert!(told(&outcome).is_empty());
    }
    assert_eq!(target.token_counts(), (0, 300));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regids_that_xiaomi_lists_as_invalid_are_told_with_a_job_that_was_done() {
    let server = server().await;
    server.provider().invalid = vec!["old-1".to_owned(), "old-2".to_owned()];
    let url = server.url();
    let target = target(&server, &format!("invalid_poll = '1d'\nfeedback_url = '{url}'"));
    server.provider().faults = [coded(10001, "busy")].into();
    assert_eq!(one(&target, job("1", &["a"], &note("t"))).await.name(), "retry");
    assert_eq!(server.provider().fetches, 0, "nothing was done that it could ride on");
    let outcome = one(&target, job("1", &["a"], &note("t"))).await;
    let tokens: Vec<String> = told(&outcome).into_iter().map(|(token, _)| token).collect();
    assert_eq!(tokens, ["old-1", "old-2"]);
    assert_eq!(one(&target, job("2", &["a"], &note("t"))).await, Outcome::done());
    assert_eq!(server.provider().fetches, 1, "not before a day is over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_secret_stops_the_target() {
    let server = server().await;
    let right = words(&server, "");
    let wrong = right.replace("canary-app-secret", "canary-wrong");
    let wrong = Arc::new(Xiaomi::new(settings(&wrong)).expect("the settings can be read"));
    let outcome = one(&wrong, job("1", &["a"], &note("t"))).await;
    assert_eq!(outcome.name(), "config", "{outcome:?}");
    assert!(wrong.check().await.is_err());
    target(&server, "").check().await.expect("the right one works");
    assert!(server.provider().sent.is_empty());
}
