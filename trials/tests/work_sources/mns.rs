//! Aliyun MNS as a source, against a local server that speaks its protocol and fails as ordered.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "starts servers and waits for them"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::source::{self, Running, TIMEOUT, bodies, dead, later, publish};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trials::providers::mns::{Call, Fault, MnsServer, Options};
use worker::Settlement;
use worker::io::source::Order;
use worker::io::source::mns::{Mns, Settings};
use worker::limits::DELIVERIES_MAX;

async fn server(visibility: u64) -> MnsServer {
    let server = MnsServer::start(Options::default(), 0).await.unwrap();
    for queue in ["jobs", "dead"] {
        server.create(queue, Duration::from_secs(visibility));
    }
    server
}

fn settings(server: &MnsServer, more: &str) -> Settings {
    let secret =
        if more.contains("access_key_secret") { "" } else { "access_key_secret = 'secret'" };
    let endpoint = server.endpoint();
    let text = format!(
        "endpoint = '{endpoint}'\naccess_key_id = 'id'\nqueue = 'jobs'\ndead_queue = 'dead'\n{secret}\n{more}"
    );
    toml::from_str(&text).unwrap()
}

fn start(server: &MnsServer, more: &str) -> Running {
    source::start(Mns::new(settings(server, more)).unwrap())
}

fn put(server: &MnsServer, body: &str) {
    server.put("jobs", &STANDARD.encode(body));
}

fn text(body: &str) -> String {
    String::from_utf8(STANDARD.decode(body).unwrap()).unwrap()
}

/// Waits until something is so at the server.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "no {what} in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn jobs_are_received_and_deleted_in_batches() {
    let server = server(60).await;
    for number in 0..40 {
        put(&server, &number.to_string());
    }
    let mut source = start(&server, "fetchers = 1");
    source.room(100);
    let jobs = source.take(40).await;
    assert!(jobs.iter().all(|job| job.message.attempt == 1 && job.lease_until.is_some()));
    assert_eq!(server.calls(Call::Receive), 3 + u64::from(server.calls(Call::Receive) > 3));
    for job in &jobs {
        source.settle(job, Settlement::Done);
    }
    source.settled(40).await;
    assert_eq!(server.count("jobs"), 0);
    assert!(server.calls(Call::Delete) <= 6, "{} deletes", server.calls(Call::Delete));
    source.close().await;
}

#[tokio::test]
async fn an_envelope_says_more_than_a_body_and_bodies_need_no_base64() {
    let server = server(60).await;
    server.put("jobs", "{\"millrace\":1,\"id\":\"7\",\"type\":\"mail\",\"key\":\"k\",\"body\":\"<a>\",\"attempt\":3}");
    let mut source = start(&server, "base64 = false");
    source.room(1);
    let job = source.take(1).await.remove(0);
    assert_eq!((job.message.id.as_str(), job.message.kind.as_str()), ("7", "mail"));
    assert_eq!((&job.message.body[..], job.message.attempt), (&b"<a>"[..], 3));
    assert!(job.key.is_some());
    source.close().await;
}

#[tokio::test]
async fn an_empty_queue_is_no_error() {
    let server = server(60).await;
    let mut source = start(&server, "wait = '0s'");
    source.room(5);
    source.listen(Duration::from_millis(300)).await;
    assert!(source.aways.is_empty());
    put(&server, "a");
    assert_eq!(bodies(&source.take(1).await), ["a"]);
    source.close().await;
}

#[tokio::test]
async fn a_fetcher_that_is_synchronous_waits_for_its_jobs_to_be_deleted() {
    let server = server(60).await;
    for number in 0..6 {
        put(&server, &number.to_string());
    }
    let mut source =
        start(&server, "fetchers = 1\nbatch = 1\ndelete_batch = 1\nsynchronous = true");
    source.room(100);
    for number in 0..6 {
        let job = source.take(1).await.remove(0);
        assert_eq!((source.has_jobs(), server.count("jobs")), (0, 6 - number));
        source.settle(&job, Settlement::Done);
    }
    source.settled(6).await;
    assert_eq!(server.calls(Call::Delete), 6, "each is deleted alone");
    source.close().await;
}

#[tokio::test]
async fn another_attempt_comes_with_its_number_charged_or_not_and_with_what_is_left() {
    let server = server(60).await;
    for body in ["charged", "uncharged", "partly"] {
        put(&server, body);
    }
    let mut source = start(&server, "");
    source.room(10);
    let jobs = source.take(3).await;
    for job in &jobs {
        let settlement = match &job.message.body[..] {
            b"charged" => later(100, 2),
            b"uncharged" => later(100, 1),
            _ => Settlement::Later {
                after: Duration::ZERO,
                attempt: 2,
                why: String::new(),
                rest: Some("rest".into()),
            },
        };
        source.settle(job, settlement);
    }
    let again = source.take(3).await;
    let attempts: BTreeMap<String, (u32, String)> = again
        .iter()
        .zip(bodies(&again))
        .map(|(job, body)| (body, (job.message.attempt, job.message.id.clone())))
        .collect();
    let id = |body: &str| {
        let place = bodies(&jobs).iter().position(|b| b == body).unwrap();
        jobs[place].message.id.clone()
    };
    assert_eq!(attempts["charged"], (2, id("charged")));
    assert_eq!(attempts["uncharged"], (1, id("uncharged")));
    assert_eq!(attempts["rest"], (2, id("partly")));
    assert_eq!(server.count("jobs"), 3);
    source.close().await;
}

#[tokio::test]
async fn a_dead_job_is_sent_to_the_dead_queue_with_its_reason_and_publishes_come_first() {
    let server = server(60).await;
    put(&server, "a");
    let mut source = start(&server, "");
    source.room(1);
    let job = source.take(1).await.remove(0);
    source.settle_with(&job, dead(), vec![publish("jobs", "next", 0)]);
    source.settled(1).await;
    let dead = text(&server.bodies("dead")[0]);
    for part in ["rejected", "no such mailbox", "\"body\":\"a\""] {
        assert!(dead.contains(part), "{dead}");
    }
    assert_eq!(server.count("jobs"), 1);
    assert!(text(&server.bodies("jobs")[0]).contains("of-next"));
    source.close().await;
}

#[tokio::test]
async fn what_is_returned_is_visible_to_others() {
    let server = server(600).await;
    put(&server, "a");
    let mut source = start(&server, "");
    source.room(1);
    let job = source.take(1).await.remove(0);
    source.settle(&job, Settlement::Return);
    source.settled(1).await;
    source.close().await;
    let mut other = start(&server, "");
    other.room(1);
    assert_eq!(bodies(&other.take(1).await), ["a"]);
    other.close().await;
}

#[tokio::test]
async fn a_renewal_brings_a_new_handle_and_a_lease_without_one_is_lost() {
    let server = server(4).await;
    put(&server, "long");
    let mut source = start(&server, "lease = '4s'\nwait = '0s'");
    source.room(1);
    let job = source.take(1).await.remove(0);
    for count in 1..=4 {
        source.order(Order::Renew(vec![job.receipt]));
        source.until("renewal", |source| source.renewed.len() >= count).await;
    }
    // Ordered together: the settlement waits for the new handle.
    source.order(Order::Renew(vec![job.receipt]));
    source.settle(&job, Settlement::Done);
    source.settled(1).await;
    assert_eq!(server.count("jobs"), 0);
    put(&server, "slow");
    source.room(1);
    let job = source.take(1).await.remove(0);
    source.until("loss", |source| source.lost.contains(&job.receipt)).await;
    let deletes = server.calls(Call::Delete);
    source.settle(&job, Settlement::Done);
    source.until("second loss", |source| source.lost.len() == 2).await;
    assert_eq!(server.calls(Call::Delete), deletes, "an old handle is never used");
    source.close().await;
}

#[tokio::test]
async fn faults_pass_and_nothing_is_lost() {
    let server = server(5).await;
    for number in 0..60 {
        put(&server, &number.to_string());
    }
    let receive = [Fault::QpsLimitExceeded, Fault::InternalError, Fault::LostAnswer];
    server.order(Call::Receive, &receive);
    let delete = [Fault::Partly, Fault::InternalError, Fault::LostAnswer, Fault::QpsLimitExceeded];
    server.order(Call::Delete, &delete);
    let mut source = start(&server, "wait = '1s'");
    source.room(1000);
    let mut seen = BTreeSet::new();
    let end = Instant::now() + TIMEOUT;
    while server.count("jobs") > 0 {
        assert!(Instant::now() < end, "{} jobs are left", server.count("jobs"));
        source.listen(Duration::from_millis(50)).await;
        let count = source.has_jobs();
        for job in source.take(count).await {
            source.settle(&job, Settlement::Done);
            seen.insert(bodies(&[job]).remove(0));
        }
    }
    assert_eq!(seen.len(), 60);
    assert!(server.is_harmless(), "every fault happened");
    assert!(!source.aways.is_empty());
    source.close().await;
}

#[tokio::test]
async fn what_cannot_work_is_said_at_once() {
    let server = server(60).await;
    let wrong = [
        ("access_key_secret = 'canary'", "access_key_secret"),
        ("queue = 'missing'", "create the queue"),
    ];
    for (more, word) in wrong {
        let mut text = format!("{:?}", settings(&server, ""));
        assert!(!text.contains("canary"));
        let mut settings = settings(&server, if more.starts_with("queue") { "" } else { more });
        if more.starts_with("queue") {
            settings.queue = "missing".into();
        }
        let error = source::start(Mns::new(settings).unwrap()).end().await;
        text = error.expect_err(more).to_string();
        assert!(text.contains(word) && !text.contains("canary"), "{text}");
    }
    for (fault, word) in [(Fault::TimeExpired, "clock"), (Fault::AccessDenied, "right")] {
        server.order(Call::Queue, &[fault]);
        let error = start(&server, "").end().await.expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_job_and_what_ends_its_workers_is_dead() {
    let server = server(60).await;
    server.put("jobs", "no base64!");
    put(&server, "poison");
    // It comes out and becomes visible again, as if its workers had died.
    let mut source = start(&server, "wait = '0s'\nbatch = 1\nfetchers = 1");
    source.room(1);
    until("dead", || server.count("dead") == 1).await;
    assert!(text(&server.bodies("dead")[0]).contains("malformed"));
    let job = source.take(1).await.remove(0);
    source.close().await;
    server.deliver("jobs", &job.message.id, DELIVERIES_MAX);
    let mut other = start(&server, "wait = '0s'");
    other.room(5);
    until("dead", || server.count("dead") == 2).await;
    assert!(text(&server.bodies("dead")[1]).contains("exhausted"));
    other.listen(Duration::from_millis(100)).await;
    assert_eq!((other.has_jobs(), server.count("jobs")), (0, 0));
    other.close().await;
}

#[tokio::test]
async fn a_worker_that_dies_loses_nothing() {
    let server = server(2).await;
    for number in 0..10 {
        put(&server, &number.to_string());
    }
    let mut first = start(&server, "wait = '1s'");
    first.room(6);
    let jobs = first.take(6).await;
    let mut done = bodies(&jobs[..2]);
    for job in &jobs[..2] {
        first.settle(job, Settlement::Done);
    }
    first.settled(2).await;
    first.kill().await;
    let mut second = start(&server, "wait = '1s'");
    second.room(100);
    let end = Instant::now() + TIMEOUT;
    while server.count("jobs") > 0 {
        assert!(Instant::now() < end, "{} jobs are left", server.count("jobs"));
        second.listen(Duration::from_millis(50)).await;
        let count = second.has_jobs();
        for job in second.take(count).await {
            second.settle(&job, Settlement::Done);
            done.push(bodies(&[job]).remove(0));
        }
    }
    let distinct: BTreeSet<&String> = done.iter().collect();
    assert_eq!(distinct.len(), 10, "{done:?}");
    second.close().await;
}
