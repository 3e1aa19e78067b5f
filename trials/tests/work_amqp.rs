//! The AMQP source of `millrace work` at a real Millrace and a real RabbitMQ: every settlement, and no job lost
//! whoever dies.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

#[path = "support/work_amqp.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amqp::{FieldTable, FieldValue, Properties};
use client::{Address, ExchangeSpec, Outcome};
use support::{Desk, Hand, Stage, later, settings};
use trials::chaos::broker::Kind;
use worker::io::replay::{Replay, Send, replay, send};
use worker::io::source::Order;
use worker::{Cause, Message, Publish, Settlement};

#[test]
fn every_settlement_is_carried_out_by_millrace() {
    let Some(stage) = Stage::start(Kind::Millrace, "millrace") else { return };
    settlements(&stage);
}

#[test]
fn every_settlement_is_carried_out_by_rabbitmq() {
    let Some(stage) = Stage::start(Kind::Rabbitmq, "rabbitmq") else { return };
    settlements(&stage);
}

#[test]
fn no_job_is_lost_when_millrace_is_killed() {
    let Some(stage) = Stage::start(Kind::Millrace, "millrace-killed") else { return };
    killed(stage);
}

#[test]
fn no_job_is_lost_when_rabbitmq_is_killed() {
    let Some(stage) = Stage::start(Kind::Rabbitmq, "rabbitmq-killed") else { return };
    killed(stage);
}

fn settlements(stage: &Stage) {
    let url = stage.url();
    stage.runtime.block_on(async {
        what_is_done_is_gone(&url).await;
        what_goes_back_comes_again(&url).await;
        a_retry_comes_when_it_is_due_with_its_attempt(&url).await;
        a_dead_job_is_kept_with_its_reason_and_can_be_replayed(&url).await;
        what_is_no_job_is_dead_in_words(&url).await;
        what_follows_a_job_is_published_before_it_is_let_go(&url).await;
        a_job_is_kept_until_what_follows_it_can_be_published(&url).await;
        a_missing_queue_ends_the_source_in_words(&url).await;
        a_source_that_dies_loses_nothing(&url).await;
        a_source_that_drains_gives_back_what_nobody_has(&url).await;
        a_job_that_is_sent_has_all_that_was_said(&url).await;
        celerys_message_waits_for_its_eta(&url).await;
    });
}

fn said(name: &str) {
    println!("  {name}");
}

async fn what_is_done_is_gone(url: &str) {
    said("what is done is gone");
    let mut desk = Desk::open(url).await;
    desk.queue("done").await;
    for n in 0..20 {
        desk.job("done", &format!("job-{n}")).await;
    }
    let mut hand = Hand::start(settings(url, "done"), 100);
    for n in 0..20 {
        let job = hand.job().await;
        assert_eq!(job.message.id, format!("job-{n}"));
        assert_eq!((&*job.message.kind, job.message.attempt), ("test", 1));
        hand.settle(&job, Settlement::Done).await;
    }
    hand.close().await;
    assert_eq!((desk.count("done").await, desk.count("done.dead").await), (0, 0));
}

async fn what_goes_back_comes_again(url: &str) {
    said("what goes back comes again");
    let mut desk = Desk::open(url).await;
    desk.queue("back").await;
    desk.job("back", "a").await;
    let mut hand = Hand::start(settings(url, "back"), 100);
    for _ in 0..3 {
        let job = hand.job().await;
        assert_eq!((&*job.message.id, job.message.attempt), ("a", 1));
        hand.settle(&job, Settlement::Return).await;
    }
    let job = hand.job().await;
    hand.settle(&job, Settlement::Done).await;
    hand.close().await;
    assert_eq!(desk.count("back").await, 0);
}

async fn a_retry_comes_when_it_is_due_with_its_attempt(url: &str) {
    said("a retry comes when it is due with its attempt");
    let mut desk = Desk::open(url).await;
    desk.queue("later").await;
    let headers = [("tenant", "blue"), ("x-job-key", "k")].into_iter().collect();
    desk.publish("later", "a", headers).await;
    let mut hand = Hand::start(settings(url, "later"), 100);
    for (attempt, ms) in [(1, 0_u64), (2, 1), (3, 450), (4, 1700)] {
        let job = hand.job().await;
        assert_eq!((&*job.message.id, job.message.attempt), ("a", attempt));
        assert_eq!(job.message.headers.len(), 1, "{:?}", job.message.headers);
        assert!(job.key.is_some());
        let asked = SystemTime::now();
        hand.settle(&job, later(Duration::from_millis(ms), attempt + 1)).await;
        hand.until("it comes again", |hand| !hand.jobs.is_empty()).await;
        // Brokers count in milliseconds of their own.
        let waited = asked.elapsed().unwrap() + Duration::from_millis(3);
        assert!(waited >= Duration::from_millis(ms), "{waited:?} is earlier than {ms} ms");
    }
    let job = hand.job().await;
    assert_eq!((job.message.attempt, &job.message.body[..]), (5, &b"a"[..]));
    hand.settle(&job, Settlement::Done).await;
    hand.close().await;
    assert_eq!(desk.count("later").await, 0);
}

async fn a_dead_job_is_kept_with_its_reason_and_can_be_replayed(url: &str) {
    said("a dead job is kept with its reason and can be replayed");
    let mut desk = Desk::open(url).await;
    desk.queue("dies").await;
    for id in ["a", "b"] {
        let headers = [("x-job-attempt", FieldValue::from(3)), ("tenant", "blue".into())];
        desk.publish("dies", id, headers.into_iter().collect()).await;
    }
    let mut hand = Hand::start(settings(url, "dies"), 100);
    for cause in [Cause::Rejected, Cause::Exhausted] {
        let job = hand.job().await;
        hand.settle(&job, Settlement::Dead { cause, why: format!("it was {cause}") }).await;
    }
    desk.until_count("dies.dead", 2).await;
    let dead = desk.0.get("dies.dead", false).await.unwrap().unwrap();
    let headers = dead.properties().unwrap().headers.unwrap().to_table();
    let text = |name: &str| headers.find(name).cloned();
    assert_eq!(text("x-job-dead-cause"), Some("rejected".into()));
    assert_eq!(text("x-job-dead-why"), Some("it was rejected".into()));
    assert_eq!(text("x-job-queue"), Some("dies".into()));
    assert_eq!(text("x-job-attempt"), Some(FieldValue::I64(3)));
    assert_eq!(text("tenant"), Some("blue".into()));
    desk.0.settle(dead.tag, Outcome::Requeue).await.unwrap();
    desk.until_count("dies.dead", 2).await;

    let all = Replay { queue: "dies".into(), is_dry_run: true, ..Replay::default() };
    let seen = replay(url, &all).await.unwrap();
    assert_eq!((seen.seen, seen.replayed, seen.jobs.len()), (2, 2, 2));
    desk.until_count("dies.dead", 2).await;
    let some = Replay { cause: Some("exhausted".into()), is_dry_run: false, ..all.clone() };
    let done = replay(url, &some).await.unwrap();
    assert_eq!((done.seen, done.replayed), (2, 1));
    assert_eq!((&*done.jobs[0].id, &*done.jobs[0].why), ("b", "it was exhausted"));
    let job = hand.job().await;
    assert_eq!((&*job.message.id, job.message.attempt), ("b", 1));
    hand.settle(&job, Settlement::Done).await;
    desk.until_count("dies.dead", 1).await;
    let rest = Replay { is_dry_run: false, rate: Some(100.0), ..all };
    assert_eq!(replay(url, &rest).await.unwrap().replayed, 1);
    let job = hand.job().await;
    assert_eq!((&*job.message.id, job.message.attempt), ("a", 1));
    hand.settle(&job, Settlement::Done).await;
    hand.close().await;
    assert_eq!((desk.count("dies").await, desk.count("dies.dead").await), (0, 0));
}

async fn what_is_no_job_is_dead_in_words(url: &str) {
    said("what is no job is dead in words");
    let mut desk = Desk::open(url).await;
    desk.queue("malformed").await;
    let headers = [("x-job-attempt", "many")].into_iter().collect();
    desk.publish("malformed", "bad", headers).await;
    desk.job("malformed", "good").await;
    let mut hand = Hand::start(settings(url, "malformed"), 100);
    let job = hand.job().await;
    assert_eq!(job.message.id, "good");
    desk.until_count("malformed.dead", 1).await;
    let dead = desk.0.get("malformed.dead", true).await.unwrap().unwrap();
    let properties = dead.properties().unwrap();
    let headers = properties.headers.unwrap().to_table();
    assert_eq!(headers.find("x-job-dead-cause"), Some(&"malformed".into()));
    let Some(FieldValue::LongStr(why)) = headers.find("x-job-dead-why") else { panic!() };
    assert!(String::from_utf8_lossy(why).contains("`many`"));
    assert_eq!((properties.message_id, &dead.body[..]), (Some("bad"), &b"bad"[..]));
    hand.settle(&job, Settlement::Done).await;
    hand.close().await;
    assert_eq!(desk.count("malformed").await, 0);
}

fn follows(exchange: &str, routing_key: &str, delay: Option<Duration>) -> Publish {
    let message = Message {
        id: "next".into(),
        kind: "second".into(),
        body: "body".into(),
        attempt: 1,
        ..Message::default()
    };
    let (exchange, routing_key) = (exchange.to_owned(), routing_key.to_owned());
    Publish { exchange, routing_key, message, key: Some("k".into()), delay }
}

async fn what_follows_a_job_is_published_before_it_is_let_go(url: &str) {
    said("what follows a job is published before it is let go");
    let mut desk = Desk::open(url).await;
    for queue in ["first", "second"] {
        desk.queue(queue).await;
    }
    desk.job("first", "a").await;
    let mut hand = Hand::start(settings(url, "first"), 100);
    let job = hand.job().await;
    let delayed = Some(Duration::from_millis(300));
    let publishes = vec![follows("", "second", None), follows("", "second", delayed)];
    hand.order_with(&job, Settlement::Done, publishes);
    hand.until_settled(job.receipt).await;
    assert!(desk.count("second").await >= 1, "it is there when the job is settled");
    hand.close().await;
    let mut second = Hand::start(settings(url, "second"), 100);
    for _ in 0..2 {
        let job = second.job().await;
        assert_eq!((&*job.message.id, &*job.message.kind), ("next", "second"));
        assert!(job.key.is_some());
        second.settle(&job, Settlement::Done).await;
    }
    second.close().await;
}

async fn a_job_is_kept_until_what_follows_it_can_be_published(url: &str) {
    said("a job is kept until what follows it can be published");
    let mut desk = Desk::open(url).await;
    desk.queue("kept").await;
    for id in ["a", "b", "c"] {
        desk.job("kept", id).await;
    }
    let mut hand = Hand::start(settings(url, "kept"), 100);
    let to_queue = hand.job().await;
    hand.order_with(&to_queue, Settlement::Done, vec![follows("", "not-yet", None)]);
    let to_exchange = hand.job().await;
    hand.order_with(&to_exchange, Settlement::Done, vec![follows("not-yet-ex", "k", None)]);
    // Others go on meanwhile.
    let other = hand.job().await;
    hand.settle(&other, later(Duration::ZERO, 2)).await;
    let again = hand.job().await;
    hand.settle(&again, Settlement::Done).await;
    assert!(!hand.settled.contains(&to_queue.receipt));
    assert!(!hand.settled.contains(&to_exchange.receipt));
    desk.queue("not-yet").await;
    hand.until_settled(to_queue.receipt).await;
    let (name, kind) = ("not-yet-ex".to_owned(), "direct".to_owned());
    let spec = ExchangeSpec { name, kind, durable: true, ..ExchangeSpec::default() };
    desk.0.declare_exchange(&spec).await.unwrap();
    desk.0.bind_queue("not-yet", "not-yet-ex", "k", &FieldTable::new()).await.unwrap();
    hand.until_settled(to_exchange.receipt).await;
    assert_eq!(desk.count("not-yet").await, 2);
    hand.close().await;
    assert_eq!(desk.count("kept").await, 0);
}

async fn a_missing_queue_ends_the_source_in_words(url: &str) {
    said("a missing queue ends the source in words");
    let hand = Hand::start(settings(url, "nowhere"), 1);
    let error = hand.ended().await.expect_err("there is no such queue");
    assert!(!error.is_temporary());
    let text = error.to_string();
    assert!(text.contains("`nowhere`") && text.contains("declare = true"), "{text}");
    let mut declared = settings(url, "somewhere");
    declared.declare = true;
    let mut hand = Hand::start(declared, 1);
    hand.until("it is declared", |hand| hand.backs == 1).await;
    hand.close().await;
    Desk::open(url).await.job("somewhere", "a").await;
    let wrong = url.replace("guest:guest", "guest:wrong");
    let error = Hand::start(settings(&wrong, "somewhere"), 1).ended().await;
    assert!(!error.expect_err("the password is wrong").is_temporary());
}

async fn a_source_that_dies_loses_nothing(url: &str) {
    said("a source that dies loses nothing");
    let mut desk = Desk::open(url).await;
    desk.queue("dropped").await;
    for n in 0..50 {
        desk.job("dropped", &format!("job-{n}")).await;
    }
    let mut hand = Hand::start(settings(url, "dropped"), 100);
    hand.until("all are taken", |hand| hand.jobs.len() == 50).await;
    hand.die().await;
    let mut hand = Hand::start(settings(url, "dropped"), 100);
    let mut seen = BTreeMap::new();
    for _ in 0..50 {
        let job = hand.job().await;
        *seen.entry(job.message.id.clone()).or_insert(0) += 1;
        hand.settle(&job, Settlement::Done).await;
    }
    hand.close().await;
    assert_eq!((seen.len(), desk.count("dropped").await), (50, 0));
}

async fn a_source_that_drains_gives_back_what_nobody_has(url: &str) {
    said("a source that drains gives back what nobody has");
    let mut desk = Desk::open(url).await;
    desk.queue("drained").await;
    for n in 0..10 {
        desk.job("drained", &format!("job-{n}")).await;
    }
    let mut hand = Hand::start(settings(url, "drained"), 3);
    hand.until("its room is used", |hand| hand.jobs.len() == 3).await;
    desk.until_count("drained", 0).await;
    hand.orders.send(Order::Drain).unwrap();
    desk.until_count("drained", 7).await;
    let jobs: Vec<_> = hand.jobs.drain(..).collect();
    hand.settle(&jobs[0], Settlement::Done).await;
    hand.settle(&jobs[1], Settlement::Return).await;
    hand.settle(&jobs[2], later(Duration::ZERO, 2)).await;
    hand.close().await;
    assert_eq!(desk.count("drained").await, 9);
}

async fn a_job_that_is_sent_has_all_that_was_said(url: &str) {
    said("a job that is sent has all that was said");
    let mut desk = Desk::open(url).await;
    desk.queue("sent").await;
    let mut hand = Hand::start(settings(url, "sent"), 100);
    let wanted = Send {
        queue: "sent".into(),
        kind: "mail".into(),
        body: b"{\"to\":\"a\"}".to_vec(),
        key: Some("k".into()),
        delay: Some(Duration::from_millis(400)),
        timeout: Some(Duration::from_secs(3)),
        attempts_max: Some(7),
        ..Send::default()
    };
    let before = SystemTime::now();
    let id = send(url, &wanted).await.unwrap();
    let job = hand.job().await;
    assert!(before.elapsed().unwrap() + Duration::from_millis(3) >= Duration::from_millis(400));
    assert_eq!((job.message.id.as_str(), job.message.kind.as_str()), (&*id, "mail"));
    assert_eq!(job.message.content_type.as_deref(), Some("application/json"));
    let extras = job.message.extras.as_ref().unwrap();
    assert_eq!((extras.timeout, extras.attempts_max), (wanted.timeout, wanted.attempts_max));
    assert!(job.key.is_some() && job.published_ms.is_some());
    hand.settle(&job, Settlement::Done).await;
    hand.close().await;
    let missing = Send { queue: "nowhere".into(), ..wanted };
    let error = send(url, &missing).await.expect_err("there is no such queue");
    assert!(error.to_string().contains("`nowhere`"), "{error}");
}

/// What Celery 5 writes, but for the time.
async fn celerys_message_waits_for_its_eta(url: &str) {
    said("Celery's message waits for its eta");
    let mut desk = Desk::open(url).await;
    desk.queue("celery").await;
    let due_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64 + 700;
    let id = "6f1d2f0e-0000-4000-8000-000000000001";
    let eta = rfc3339(due_ms);
    let limits = vec![FieldValue::Void, FieldValue::Void];
    let headers: FieldTable = [
        ("lang", "py".into()),
        ("task", "shop.tasks.pay".into()),
        ("id", id.into()),
        ("shadow", FieldValue::Void),
        ("eta", eta.as_str().into()),
        ("expires", FieldValue::Void),
        ("retries", FieldValue::I32(0)),
        ("timelimit", FieldValue::Array(limits)),
        ("root_id", id.into()),
        ("argsrepr", "(7,)".into()),
        ("kwargsrepr", "{}".into()),
        ("origin", "gen1@host".into()),
        ("ignore_result", false.into()),
    ]
    .into_iter()
    .collect();
    let raw = headers.to_bytes();
    let properties = Properties {
        content_type: Some("application/json"),
        content_encoding: Some("utf-8"),
        headers: Some(amqp::TableRef::validate(&raw).unwrap()),
        delivery_mode: Some(2),
        priority: Some(0),
        correlation_id: Some(id),
        reply_to: Some("c1b3"),
        ..Properties::default()
    };
    let body = br#"[[7], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]"#;
    desk.0.publish(Address::queue("celery"), &properties, body).await.unwrap();
    let mut hand = Hand::start(settings(url, "celery"), 100);
    let job = hand.job().await;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    assert!(now_ms >= due_ms, "{} ms early", due_ms - now_ms);
    assert_eq!((&*job.message.id, &*job.message.kind), (id, "shop.tasks.pay"));
    assert_eq!((job.message.attempt, &job.message.body[..]), (1, &body[..]));
    hand.settle(&job, Settlement::Done).await;
    hand.close().await;
}

/// A time as Python writes it.
fn rfc3339(ms: i64) -> String {
    let time = chrono::DateTime::from_timestamp_millis(ms).unwrap();
    time.format("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

/// The broker is killed when jobs are taken, when copies are on their way, and when acknowledgements are.
fn killed(mut stage: Stage) {
    const JOBS: usize = 120;
    let url = stage.url();
    let runtime = std::mem::replace(
        &mut stage.runtime,
        tokio::runtime::Builder::new_current_thread().build().unwrap(),
    );
    runtime.block_on(async {
        let mut desk = Desk::open(&url).await;
        desk.queue("killed").await;
        for n in 0..JOBS {
            desk.job("killed", &format!("job-{n}")).await;
        }
        let mut how = settings(&url, "killed");
        how.prefetch = 20;
        let mut hand = Hand::start(how, 20);
        let mut done: BTreeMap<String, u32> = BTreeMap::new();
        for round in 0..6 {
            hand.until("jobs are taken", |hand| hand.jobs.len() >= 10).await;
            let (aways, backs) = (hand.aways, hand.backs);
            let taken: Vec<_> = hand.jobs.drain(..).collect();
            // Nothing, retries, or acknowledgements are on their way when the broker dies.
            for job in &taken {
                match round % 3 {
                    0 => (),
                    1 => hand.order(job, later(Duration::from_millis(50), 2)),
                    _ => {
                        hand.order(job, Settlement::Done);
                        *done.entry(job.message.id.clone()).or_default() += 1;
                    }
                }
            }
            if round >= 3 {
                // Some of it has arrived.
                let settled = hand.settled.len();
                let some = settled + usize::from(round > 3);
                hand.until("one is settled", |hand| hand.settled.len() >= some).await;
            }
            stage.kill();
            hand.until("it is noticed", |hand| hand.aways > aways).await;
            stage.revive();
            hand.until("it is there again", |hand| hand.backs > backs).await;
            hand.orders.send(Order::Room { jobs: 20 }).unwrap();
        }
        let mut count = 0;
        while done.len() < JOBS {
            let job = hand.job().await;
            *done.entry(job.message.id.clone()).or_default() += 1;
            hand.settle(&job, Settlement::Done).await;
            count += 1;
            assert!(count < 10 * JOBS, "repeats are bounded");
        }
        // What is repeated at the end.
        let mut desk = Desk::open(&url).await;
        loop {
            hand.hear_all();
            while let Some(job) = hand.jobs.pop_front() {
                *done.entry(job.message.id.clone()).or_default() += 1;
                hand.settle(&job, Settlement::Done).await;
            }
            if desk.count("killed").await == 0 && hand.jobs.is_empty() {
                break;
            }
        }
        hand.close().await;
        let repeats: u32 = done.values().map(|times| times - 1).sum();
        println!("  {repeats} of {JOBS} jobs were repeated by 6 kills");
        assert!(repeats <= 6 * 2 * 20, "no more than was in hand at each kill: {repeats}");
        assert_eq!(desk.count("killed.dead").await, 0);
    });
}
