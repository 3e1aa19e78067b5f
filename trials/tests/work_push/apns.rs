//! Pushes to Apple devices, against a server that speaks APNs's protocol and misbehaves on demand.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "writes certificates for the targets that it starts, and waits with deadlines"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::devices::{GOOD, Stage, device, job, jobs, push, push_all, run, until};
use bytes::Bytes;
use trials::providers::apns::{ISSUER, Options, Reply};
use worker::io::target::Target;
use worker::io::target::apns::Apns;
use worker::target::apns::Settings;
use worker::{Header, Outcome, Scope};

#[tokio::test]
async fn a_push_arrives_as_it_was_asked_for() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    let mut asked = job("order-7", GOOD);
    asked.body = Bytes::from(format!(
        r#"{{"token":"{GOOD}","topic":"com.example.other","push_type":"background","priority":5,
        "expiration":1700000000,"collapse_id":"score","payload":{{"aps": {{"content-available":1}}}}}}"#
    ));
    assert_eq!(run(&target, asked).await, Outcome::done());
    let [push] = &stage.received(GOOD)[..] else { panic!("one came") };
    assert_eq!(push.payload, r#"{"aps": {"content-available":1}}"#);
    let header = |name: &str| push.headers.get(name).map(String::as_str);
    assert_eq!(header("apns-topic"), Some("com.example.other"));
    assert_eq!(header("apns-push-type"), Some("background"));
    assert_eq!(header("apns-priority"), Some("5"));
    assert_eq!(header("apns-expiration"), Some("1700000000"));
    assert_eq!(header("apns-collapse-id"), Some("score"));
    assert_eq!(header("apns-id").unwrap().len(), 36);
}

#[tokio::test]
async fn every_row_of_the_table_has_its_outcome() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    assert_eq!(push(&target, GOOD).await, Outcome::done(), "one success vouches for the dead");
    let rows = [
        (400, "BadDeviceToken", "token_dead"),
        (400, "DeviceTokenNotForTopic", "token_dead"),
        (410, "Unregistered", "token_dead"),
        (410, "ExpiredToken", "token_dead"),
        (400, "BadCollapseId", "reject"),
        (400, "BadExpirationDate", "reject"),
        (400, "BadMessageId", "reject"),
        (400, "BadPriority", "reject"),
        (400, "BadTopic", "reject"),
        (400, "DuplicateHeaders", "reject"),
        (400, "InvalidPushType", "reject"),
        (400, "MissingDeviceToken", "reject"),
        (400, "MissingTopic", "reject"),
        (400, "PayloadEmpty", "reject"),
        (400, "TopicDisallowed", "reject"),
        (404, "BadPath", "reject"),
        (405, "MethodNotAllowed", "reject"),
        (413, "PayloadTooLarge", "reject"),
        (403, "InvalidProviderToken", "config"),
        (403, "MissingProviderToken", "config"),
        (403, "BadCertificate", "config"),
        (403, "BadCertificateEnvironment", "config"),
        (403, "Forbidden", "config"),
        (429, "TooManyRequests", "retry"),
        (500, "InternalServerError", "retry"),
        (503, "ServiceUnavailable", "retry"),
        (503, "Shutdown", "retry"),
    ];
    for (index, (status, reason, expected)) in rows.into_iter().enumerate() {
        let device = device("b", index as u64);
        stage.server.order(&device, Reply::Reason { status, reason, timestamp: None }, 1);
        let outcome = push(&target, &device).await;
        assert_eq!(outcome.name(), expected, "{status} {reason}: {outcome:?}");
        assert!(format!("{outcome:?}").contains(reason), "{outcome:?}");
        assert_eq!(stage.received(&device).len(), 1, "{reason}: nothing is repeated at once");
    }
}

#[tokio::test]
async fn an_idle_timeout_is_repeated_over_another_connection() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    let idle = Reply::Reason { status: 400, reason: "IdleTimeout", timestamp: None };
    stage.server.order(GOOD, idle, 1);
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    let pushes = stage.received(GOOD);
    assert_ne!(pushes[0].connection, pushes[1].connection);
}

#[tokio::test]
async fn a_device_that_registered_after_the_providers_time_is_not_dead() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("feedback = { routing_key = 'tokens.dead' }");
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    let gone = Reply::Reason { status: 410, reason: "Unregistered", timestamp: Some(1000) };
    let device = device("b", 1);
    stage.server.order(&device, gone, 3);
    let registered = |at: &str| {
        let mut job = job("job", &device);
        job.headers.push(Header { name: "x-push-registered-ms".to_owned(), value: at.to_owned() });
        job
    };
    assert_eq!(run(&target, registered("1001")).await.name(), "retry");
    for job in [registered("999"), job("job", &device)] {
        let Outcome::TokenDead { publishes, .. } = run(&target, job).await else {
            panic!("it is dead")
        };
        let body = String::from_utf8_lossy(&publishes[0].message.body).into_owned();
        assert!(body.contains(&device) && body.contains("\"since_ms\":1000"), "{body}");
    }
}

#[tokio::test]
async fn a_round_without_one_success_declares_no_device_token_dead() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("feedback = { routing_key = 'dead', wait = '10ms' }");
    let wrong = Reply::Reason { status: 400, reason: "BadDeviceToken", timestamp: None };
    stage.server.order("b", wrong, u32::MAX);
    for outcome in push_all(&target, jobs("b", 20)).await {
        assert_eq!(outcome.name(), "retry", "{outcome:?}");
    }
}

#[tokio::test]
async fn what_apns_would_refuse_for_its_size_is_not_sent() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    let mut large = job("large", GOOD);
    let text = "x".repeat(4096);
    large.body = Bytes::from(format!(r#"{{"token":"{GOOD}","payload":{{"a":"{text}"}}}}"#));
    assert_eq!(run(&target, large).await.name(), "reject");
    assert!(stage.received("").is_empty());
}

#[tokio::test]
async fn a_provider_token_is_used_for_fifty_minutes_and_then_replaced() {
    let stage = Stage::start(Options { counts_updates: true, ..Options::default() }).await;
    let minutes = Arc::new(AtomicU64::new(0));
    let target = stage.target_with_clock(&minutes);
    for minute in [0, 20, 49, 50, 99, 100] {
        minutes.store(minute, Ordering::Relaxed);
        stage.set_server_clock(minute);
        for outcome in push_all(&target, jobs("a", 10)).await {
            assert_eq!(outcome, Outcome::done(), "minute {minute}");
        }
    }
    let tokens: BTreeSet<_> =
        stage.received("a").into_iter().map(|push| push.headers["authorization"].clone()).collect();
    assert_eq!(tokens.len(), 3);
}

#[tokio::test]
async fn an_expired_provider_token_is_replaced_once_and_the_pushes_are_repeated() {
    let stage = Stage::start(Options { counts_updates: true, ..Options::default() }).await;
    let minutes = Arc::new(AtomicU64::new(0));
    let target = stage.target_with_clock(&minutes);
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    minutes.store(30, Ordering::Relaxed);
    stage.set_server_clock(61);
    for outcome in push_all(&target, jobs("c", 50)).await {
        assert_eq!(outcome, Outcome::done());
    }
    let tokens: BTreeSet<_> =
        stage.received("c").into_iter().map(|push| push.headers["authorization"].clone()).collect();
    assert_eq!(tokens.len(), 2, "the old one, and one new one");
}

#[tokio::test]
async fn a_wrong_clock_is_told_as_that() {
    let stage = Stage::start(Options::default()).await;
    stage.set_server_clock(120);
    let Outcome::Config { why } = push(&stage.target(""), GOOD).await else { panic!("it stops") };
    assert!(why.contains("clock"), "{why}");
}

#[tokio::test]
async fn too_many_new_provider_tokens_leave_the_old_one_in_use() {
    let stage = Stage::start(Options { counts_updates: true, ..Options::default() }).await;
    let minutes = Arc::new(AtomicU64::new(0));
    let target = stage.target_with_clock(&minutes);
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    // Another process with the same key.
    let at = |minute| {
        minutes.store(minute, Ordering::Relaxed);
        stage.set_server_clock(minute);
    };
    at(45);
    let other = stage.target_with_clock(&minutes);
    assert_eq!(push(&other, GOOD).await, Outcome::done());
    at(51);
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    let third = stage.target_with_clock(&minutes);
    let Outcome::Throttle { scope: Scope::Target, .. } = push(&third, GOOD).await else {
        panic!("it has no older one, and waits")
    };
}

#[tokio::test]
async fn a_wrong_key_stops_the_target() {
    let stage = Stage::start(Options::default()).await;
    let dir = stage.dir.display();
    let wrong = stage
        .settings(&format!("key = 'file:{dir}/key.p8'\nkey_id = 'OTHER'\nteam_id = '{ISSUER}'"));
    let target = Arc::new(Apns::new(&wrong).unwrap());
    assert_eq!(push(&target, GOOD).await.name(), "config");
    target.check().await.expect_err("the doctor says so, too");
    stage.target("").check().await.expect("the right key is taken");
}

#[tokio::test]
async fn a_client_certificate_is_enough() {
    let stage = Stage::start(Options { wants_certificate: true, ..Options::default() }).await;
    let pair = stage.server.authority.sign(&["client"]);
    let both = format!("{}{}", pair.certificate, pair.key);
    std::fs::write(stage.dir.join("client.pem"), both).unwrap();
    let settings =
        stage.settings(&format!("certificate = 'file:{}/client.pem'", stage.dir.display()));
    let target = Arc::new(Apns::new(&settings).unwrap());
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    assert!(!stage.received(GOOD)[0].headers.contains_key("authorization"));
    assert_eq!(push(&stage.target(""), GOOD).await.name(), "config");
}

#[tokio::test]
async fn no_connection_has_more_streams_than_the_server_allows_even_while_that_changes() {
    let latency = Duration::from_millis(2);
    let options = Options { streams_max: 4, is_slow_start: true, latency, ..Options::default() };
    let stage = Stage::start(options).await;
    let target = stage.target("connections = 3");
    for round in 0..6 {
        stage.server.set_limit([4, 1, 3, 2, 4, 1][round]);
        for outcome in push_all(&target, jobs(&format!("a{round}"), 60)).await {
            assert_eq!(outcome, Outcome::done());
        }
    }
    assert_eq!(stage.count(|counts| &counts.over_limit), 0);
    assert!(stage.count(|counts| &counts.streams_seen_max) <= 4);
    let connections = stage.count(|counts| &counts.connections);
    assert!((2..=4).contains(&connections), "{connections}: three, and the quarantine");
}

#[tokio::test]
async fn what_a_goaway_leaves_out_is_sent_again_and_arrives_once() {
    let latency = Duration::from_millis(20);
    let stage = Stage::start(Options { latency, ..Options::default() }).await;
    let target = stage.target("connections = 1");
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    let all = jobs("c", 40);
    stage.server.order(&device("c", 17), Reply::GoAwayBefore, 1);
    for outcome in push_all(&target, all).await {
        assert_eq!(outcome, Outcome::done());
    }
    let pushes = stage.received("c");
    let accepted = pushes.iter().filter(|push| push.answer == "200").count();
    assert_eq!(accepted, 40, "each once");
    assert!(pushes.iter().any(|push| push.answer == "left out"), "the fault happened");
}

#[tokio::test]
async fn what_a_goaway_leaves_open_is_retried_with_the_same_id_and_said() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("connections = 1");
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    stage.server.order("c", Reply::GoAwayAfter, 1);
    let job = job("order-9", &device("c", 1));
    let Outcome::Retry { why, .. } = run(&target, job.clone()).await else {
        panic!("its outcome is unknown")
    };
    assert_eq!(run(&target, job).await, Outcome::done());
    let pushes = stage.received("c");
    let id = &pushes.last().unwrap().headers["apns-id"];
    assert!(why.contains(id.as_str()), "{why}");
}

#[tokio::test]
async fn a_refused_stream_is_repeated_and_another_reset_is_a_retry() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    let (refused, reset) = (device("c", 1), device("c", 2));
    stage.server.order(&refused, Reply::Reset(7), 2);
    stage.server.order(&reset, Reply::Reset(2), 1);
    assert_eq!(push(&target, &refused).await, Outcome::done());
    assert_eq!(push(&target, &reset).await.name(), "retry");
    stage.server.order(&refused, Reply::Reset(7), u32::MAX);
    assert_eq!(push(&target, &refused).await.name(), "retry", "not for ever");
}

#[tokio::test]
async fn a_broken_connection_is_a_retry_and_a_new_one_follows() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("connections = 1");
    for round in 0..5 {
        let device = device("c", round);
        stage.server.order(&device, Reply::Break, 1);
        assert_eq!(push(&target, &device).await.name(), "retry");
        assert_eq!(push(&target, &device).await, Outcome::done());
    }
}

#[tokio::test]
async fn a_push_that_is_never_answered_holds_up_no_other() {
    let stage = Stage::start(Options { streams_max: 2, ..Options::default() }).await;
    let target = stage.target("connections = 1");
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    stage.server.order("c", Reply::Silence, 1);
    let silent = {
        let target = Arc::clone(&target);
        tokio::spawn(async move { push(&target, &device("c", 1)).await })
    };
    until("it is out", || !stage.received("c").is_empty()).await;
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    // What the worker does at the deadline.
    silent.abort();
    for outcome in push_all(&target, jobs("a", 20)).await {
        assert_eq!(outcome, Outcome::done());
    }
    assert_eq!(stage.count(|counts| &counts.over_limit), 0);
}

#[tokio::test]
async fn a_slow_server_has_many_pushes_under_way_at_a_time() {
    let latency = Duration::from_millis(50);
    let stage = Stage::start(Options { latency, ..Options::default() }).await;
    let target = stage.target("");
    for outcome in push_all(&target, jobs("a", 500)).await {
        assert_eq!(outcome, Outcome::done());
    }
    assert!(stage.count(|counts| &counts.streams_seen_max) > 50);
}

#[tokio::test]
async fn a_server_that_is_away_is_a_retry_in_words() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    let settings = stage.token_settings("");
    drop(target);
    let free = trials::ports::free().unwrap();
    let settings = Settings { server: format!("https://localhost:{free}"), ..settings };
    let target = Arc::new(Apns::new(&settings).unwrap());
    let Outcome::Retry { why, after, .. } = push(&target, GOOD).await else { panic!("a retry") };
    assert!(why.contains("no connection") && after.is_some(), "{why}");
}

#[tokio::test]
async fn suspected_device_tokens_do_not_throttle_the_good_ones() {
    let options = Options { throttles: true, ..Options::default() };
    let stage = Stage::start(options).await;
    let target = stage.target("connections = 1");
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    let main = stage.received(GOOD)[0].connection;
    let refused = Reply::Reason { status: 400, reason: "BadDeviceToken", timestamp: None };
    stage.server.order("d", refused, u32::MAX);
    // They are unknown yet, and go where the good ones go, or to the quarantine once that is throttled.
    for outcome in push_all(&target, jobs("d", 5)).await {
        assert_eq!(outcome.name(), "token_dead");
    }
    assert_eq!(push(&target, GOOD).await, Outcome::done(), "ends the throttling");
    let seen = stage.server.received().len();
    let good = (0..50).map(|i| job(&format!("good-{i}"), GOOD));
    let both = jobs("d", 5).into_iter().chain(good).collect();
    push_all(&target, both).await;
    for push in &stage.server.received()[seen..] {
        let is_bad = push.device_token.starts_with('d');
        assert_eq!(is_bad, push.connection != main, "{push:?}");
    }
    assert_eq!(stage.count(|counts| &counts.over_limit), 0);
}

#[tokio::test]
async fn unknown_device_tokens_get_through_a_throttled_server() {
    let options = Options { throttles: true, is_slow_start: true, ..Options::default() };
    let stage = Stage::start(options).await;
    let target = stage.target("connections = 2\nfeedback = { routing_key = 'd', wait = '10ms' }");
    let refused = Reply::Reason { status: 400, reason: "BadDeviceToken", timestamp: None };
    stage.server.order("d", refused, u32::MAX);
    let mixed = jobs("d", 40).into_iter().zip(jobs("a", 40)).flat_map(|(bad, good)| [bad, good]);
    push_all(&target, mixed.collect()).await;
    let accepted = stage.received("a").iter().filter(|push| push.answer == "200").count();
    assert_eq!(accepted, 40);
    assert_eq!(stage.count(|counts| &counts.over_limit), 0);
}

#[tokio::test]
async fn a_target_that_is_dropped_closes_its_connections() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    drop(target);
    let closed = || stage.count(|counts| &counts.connections_closed);
    until("the connection is closed", || closed() == 1).await;
}

#[tokio::test]
async fn no_secret_is_in_what_the_target_says() {
    let stage = Stage::start(Options::default()).await;
    let target = stage.target("");
    let secret_line = stage.server.keys().private.lines().nth(1).unwrap().to_owned();
    let mut said = format!("{target:?} {:?}", stage.token_settings(""));
    let replies = [
        Reply::Reason { status: 400, reason: "BadDeviceToken", timestamp: None },
        Reply::Reason { status: 403, reason: "InvalidProviderToken", timestamp: None },
        Reply::Reason { status: 400, reason: "BadTopic", timestamp: None },
        Reply::Reset(2),
        Reply::GoAwayAfter,
        Reply::Break,
    ];
    let device = device("c", 0xcafe);
    assert_eq!(push(&target, GOOD).await, Outcome::done());
    for reply in replies {
        stage.server.order(&device, reply, 1);
        said += &format!("{:?}", push(&target, &device).await);
    }
    let token = stage.received(GOOD)[0].headers["authorization"].clone();
    for secret in [secret_line.as_str(), &device, token.trim_start_matches("bearer ")] {
        assert!(!said.contains(secret), "{said}");
    }
}
