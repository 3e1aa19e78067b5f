//! Redis streams and lists as sources: nothing is lost, whoever is killed, and what is repeated is what was in hand.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "starts servers and waits for them"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::source::{self, Running, TIMEOUT, bodies, dead, later, publish};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value, cmd};
use trials::redis_server::RedisServer;
use worker::Settlement;
use worker::io::source::Order;
use worker::io::source::redis::Settings;
use worker::io::source::redis_list::RedisList;
use worker::io::source::redis_stream::RedisStream;
use worker::limits::DELIVERIES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stream,
    List,
}

const KINDS: [Kind; 2] = [Kind::Stream, Kind::List];

/// A Redis, and what tests ask it.
struct Stage {
    server: RedisServer,
}

fn stage() -> Option<Stage> {
    let server = RedisServer::start(&[]).unwrap();
    if server.is_none() {
        println!("skipped: no redis-server here: install it with `cargo xtask setup`");
    }
    server.map(|server| Stage { server })
}

impl Stage {
    fn settings(&self, more: &str) -> Settings {
        let text = format!("url = '{}'\nqueue = 'jobs'\n{more}", self.server.url());
        toml::from_str(&text).unwrap()
    }

    fn start(&self, kind: Kind, more: &str) -> Running {
        match kind {
            Kind::Stream => source::start(RedisStream::new(self.settings(more)).unwrap()),
            Kind::List => source::start(RedisList::new(self.settings(more)).unwrap()),
        }
    }

    async fn connection(&self) -> MultiplexedConnection {
        let client = Client::open(self.server.url()).unwrap();
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
        let end = tokio::time::Instant::now() + TIMEOUT;
        loop {
            match client.get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => return connection,
                Err(error) => assert!(tokio::time::Instant::now() < end, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn ask(&self, words: &[&str]) -> Value {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.connection().await).await.unwrap()
    }

    async fn number(&self, words: &[&str]) -> i64 {
        match self.ask(words).await {
            Value::Int(number) => number,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    async fn put(&self, kind: Kind, body: &str) {
        match kind {
            Kind::Stream => {
                let id = format!("id-{body}");
                let fields =
                    ["XADD", "jobs", "*", "id", &id, "type", "mail", "key", "k", "body", body];
                self.ask(&fields).await;
            }
            Kind::List => {
                let element = serde_json::json!({
                    "millrace": 1, "id": format!("id-{body}"), "type": "mail", "key": "k", "body": body,
                });
                self.ask(&["LPUSH", "jobs", &element.to_string()]).await;
            }
        }
    }

    /// How many jobs are at the broker, whoever has them.
    async fn count(&self, kind: Kind) -> i64 {
        let delayed = self.number(&["ZCARD", "jobs:delayed"]).await;
        let taken = match kind {
            Kind::Stream => return delayed + self.number(&["XLEN", "jobs"]).await,
            Kind::List => self.ask(&["KEYS", "jobs:taken:*"]).await,
        };
        let mut count = delayed + self.number(&["LLEN", "jobs"]).await;
        for key in redis::from_redis_value::<Vec<String>>(taken).unwrap() {
            count += self.number(&["LLEN", &key]).await;
        }
        count
    }

    /// The dead, as maps of their fields.
    async fn dead(&self) -> Vec<BTreeMap<String, String>> {
        let entries = self.ask(&["XRANGE", "jobs:dead", "-", "+"]).await;
        let entries: Vec<(String, Vec<String>)> = redis::from_redis_value(entries).unwrap();
        let map = |fields: Vec<String>| {
            fields.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        };
        entries.into_iter().map(|(_, fields)| map(fields)).collect()
    }
}

#[tokio::test]
async fn a_job_that_is_done_leaves_nothing_behind() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        stage.put(kind, "a").await;
        let mut source = stage.start(kind, "");
        source.room(10);
        let job = source.take(1).await.remove(0);
        assert_eq!(job.message.id, "id-a");
        assert_eq!((job.message.kind.as_str(), job.message.attempt), ("mail", 1));
        assert!(job.key.is_some());
        source.settle(&job, Settlement::Done);
        source.settled(1).await;
        assert_eq!(stage.count(kind).await, 0);
        let closed = source.close().await;
        assert_eq!((closed.lost.len(), closed.has_jobs()), (0, 0));
        let keys = redis::from_redis_value::<Vec<String>>(stage.ask(&["KEYS", "*"]).await).unwrap();
        let rest: Vec<&String> = keys.iter().filter(|key| *key != "jobs").collect();
        assert!(rest.is_empty(), "{kind:?}: {rest:?}");
    }
}

#[tokio::test]
async fn a_source_takes_no_more_than_it_has_room_for() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        for number in 0..20 {
            stage.put(kind, &number.to_string()).await;
        }
        let mut source = stage.start(kind, "fetchers = 3");
        source.room(7);
        let jobs = source.take(7).await;
        source.listen(Duration::from_millis(300)).await;
        assert_eq!(source.has_jobs(), 0, "{kind:?}");
        source.settle(&jobs[0], Settlement::Done);
        source.room(13);
        assert_eq!(source.take(13).await.len(), 13);
        source.close().await;
    }
}

#[tokio::test]
async fn another_attempt_comes_after_its_delay_with_its_number_and_what_is_left_to_do() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        stage.put(kind, "a").await;
        stage.put(kind, "b").await;
        let mut source = stage.start(kind, "");
        source.room(10);
        let jobs = source.take(2).await;
        let rest = Some("rest".into());
        let after = Duration::from_millis(200);
        let partly = Settlement::Later { after, attempt: 1, why: "part".into(), rest };
        let before = std::time::Instant::now();
        source.settle(&jobs[0], partly);
        source.settle(&jobs[1], later(400, 2));
        let again = source.take(2).await;
        assert!(before.elapsed() >= Duration::from_millis(400), "{kind:?}: a delay is kept");
        assert_eq!(bodies(&again), ["rest", "b"]);
        assert_eq!((again[0].message.attempt, again[1].message.attempt), (1, 2));
        assert_eq!(again[0].message.id, "id-a", "the id is the same at every attempt");
        assert_eq!(again[1].message.id, "id-b");
        assert_eq!(again[1].message.kind, "mail");
        assert_eq!(again[1].key, jobs[1].key);
        source.close().await;
    }
}

#[tokio::test]
async fn a_dead_job_lies_in_the_dead_stream_with_its_reason() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        stage.put(kind, "a").await;
        let mut source = stage.start(kind, "");
        source.room(1);
        let job = source.take(1).await.remove(0);
        source.settle(&job, dead());
        source.settled(1).await;
        let dead = stage.dead().await;
        assert_eq!(dead.len(), 1);
        for (name, value) in [
            ("id", "id-a"),
            ("type", "mail"),
            ("key", "k"),
            ("body", "a"),
            ("dead_cause", "rejected"),
            ("dead_why", "no such mailbox"),
        ] {
            assert_eq!(dead[0].get(name).map(String::as_str), Some(value), "{kind:?} {name}");
        }
        assert!(dead[0].contains_key("dead_ms"));
        assert_eq!(stage.count(kind).await, 0);
        source.close().await;
    }
}

#[tokio::test]
async fn what_is_returned_goes_to_others_uncharged() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        for body in ["a", "b", "c"] {
            stage.put(kind, body).await;
        }
        let mut source = stage.start(kind, "");
        source.room(2);
        let jobs = source.take(2).await;
        source.settle(&jobs[1], Settlement::Return);
        source.settle(&jobs[0], Settlement::Return);
        source.settled(2).await;
        source.close().await;
        let mut other = stage.start(kind, "");
        other.room(3);
        let jobs = other.take(3).await;
        let expected = match kind {
            Kind::Stream => ["c", "b", "a"],
            Kind::List => ["a", "b", "c"],
        };
        assert_eq!(bodies(&jobs), expected, "streams have no way back to the head");
        assert!(jobs.iter().all(|job| job.message.attempt == 1));
        assert!(jobs.iter().all(|job| job.message.id.starts_with("id-")));
        other.close().await;
    }
}

#[tokio::test]
async fn publishes_are_there_when_their_job_is_settled_and_never_for_one_that_is_lost() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        stage.put(kind, "a").await;
        stage.put(kind, "b").await;
        let mut source = stage.start(kind, "");
        source.room(2);
        let jobs = source.take(2).await;
        let publishes = vec![publish("jobs", "next", 0), publish("jobs", "delayed", 300)];
        source.settle_with(&jobs[0], Settlement::Done, publishes);
        source.settled(1).await;
        assert_eq!(stage.count(kind).await, 3);
        // Somebody else takes the second away.
        match kind {
            Kind::Stream => {
                let id = redis::from_redis_value::<Vec<(String, Vec<String>)>>(
                    stage.ask(&["XRANGE", "jobs", "-", "+", "COUNT", "1"]).await,
                );
                let id = id.unwrap().remove(0).0;
                stage.ask(&["XCLAIM", "jobs", "millrace", "somebody", "0", &id]).await;
            }
            Kind::List => {
                let keys = stage.ask(&["KEYS", "jobs:taken:*"]).await;
                let keys = redis::from_redis_value::<Vec<String>>(keys).unwrap();
                stage.ask(&["LMOVE", &keys[0], "elsewhere", "LEFT", "LEFT"]).await;
            }
        }
        source.settle_with(&jobs[1], Settlement::Done, vec![publish("jobs", "never", 0)]);
        source.until("loss", |source| source.lost.len() == 1).await;
        source.room(5);
        let next = source.take(2).await;
        assert_eq!(bodies(&next), ["next", "delayed"]);
        assert_eq!(
            (next[0].message.id.as_str(), next[0].message.kind.as_str()),
            ("of-next", "next")
        );
        source.close().await;
    }
}

#[tokio::test]
async fn a_worker_that_dies_loses_nothing_and_repeats_what_it_had_in_hand() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        for number in 0..10 {
            stage.put(kind, &number.to_string()).await;
        }
        let mut first = stage.start(kind, "lease = '1s'");
        first.room(6);
        let jobs = first.take(6).await;
        first.settle(&jobs[0], Settlement::Done);
        first.settle(&jobs[1], dead());
        first.settled(2).await;
        // Ordered, and perhaps carried out.
        first.settle(&jobs[2], Settlement::Done);
        first.kill().await;
        let mut second = stage.start(kind, "lease = '1s'");
        second.room(100);
        let expected = ["3", "4", "5", "6", "7", "8", "9"];
        let end = std::time::Instant::now() + TIMEOUT;
        let mut seen: Vec<String> = Vec::new();
        // The third may come, too: nobody has seen whether its settlement was carried out.
        while seen.iter().filter(|body| *body != "2").count() < expected.len() {
            assert!(std::time::Instant::now() < end, "{kind:?}: only {seen:?} in time");
            let job = second.take(1).await.remove(0);
            second.settle(&job, Settlement::Done);
            seen.extend(bodies(&[job]));
        }
        second.settled(seen.len()).await;
        seen.sort();
        seen.retain(|body| body != "2");
        assert!(seen == expected, "{kind:?}: {seen:?}");
        assert_eq!(stage.dead().await.len(), 1);
        assert!(stage.count(kind).await <= 1, "{kind:?}: at most the third is left");
        second.close().await;
    }
}

#[tokio::test]
async fn a_long_job_that_lives_is_not_taken_away() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        stage.put(kind, "long").await;
        let mut first = stage.start(kind, "lease = '1s'");
        first.room(1);
        let job = first.take(1).await.remove(0);
        let mut second = stage.start(kind, "lease = '1s'");
        second.room(10);
        for _ in 0..15 {
            first.order(Order::Renew(vec![job.receipt]));
            second.listen(Duration::from_millis(200)).await;
        }
        assert_eq!(second.has_jobs(), 0, "{kind:?}");
        first.settle(&job, Settlement::Done);
        first.settled(1).await;
        assert_eq!(stage.count(kind).await, 0);
        assert!(first.lost.is_empty());
        first.close().await;
        second.close().await;
    }
}

#[tokio::test]
async fn a_lease_that_nobody_renews_goes_to_another_and_is_never_settled_by_the_first() {
    let Some(stage) = stage() else { return };
    stage.put(Kind::Stream, "slow").await;
    let mut first = stage.start(Kind::Stream, "lease = '1s'");
    first.room(1);
    let job = first.take(1).await.remove(0);
    first.until("loss", |source| source.lost == [job.receipt]).await;
    let mut second = stage.start(Kind::Stream, "lease = '5s'");
    second.room(1);
    let again = second.take(1).await.remove(0);
    assert_eq!(again.message.id, job.message.id);
    first.settle(&job, dead());
    first.until("second loss", |source| source.lost.len() == 2).await;
    assert!(stage.dead().await.is_empty());
    second.settle(&again, Settlement::Done);
    second.settled(1).await;
    assert_eq!(stage.count(Kind::Stream).await, 0);
    first.close().await;
    second.close().await;
}

#[tokio::test]
async fn a_worker_of_a_list_that_was_silent_for_too_long_says_that_its_jobs_are_lost() {
    let Some(stage) = stage() else { return };
    stage.put(Kind::List, "a").await;
    let mut source = stage.start(Kind::List, "lease = '4s'");
    source.room(1);
    let job = source.take(1).await.remove(0);
    // As if it had been silent: its last sign of life is long ago.
    let workers = stage.ask(&["ZRANGE", "jobs:workers", "0", "-1"]).await;
    let workers = redis::from_redis_value::<Vec<String>>(workers).unwrap();
    stage.ask(&["ZADD", "jobs:workers", "1000", &workers[0]]).await;
    source.until("loss", |source| source.lost == [job.receipt]).await;
    source.room(1);
    let again = source.take(1).await.remove(0);
    assert_eq!(again.message.id, job.message.id);
    source.settle(&again, Settlement::Done);
    source.settled(1).await;
    assert_eq!(stage.count(Kind::List).await, 0);
    source.close().await;
}

#[tokio::test]
async fn a_job_that_ends_its_workers_is_dead_in_the_end() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        stage.put(kind, "poison").await;
        let mut first = stage.start(kind, "lease = '1s'");
        first.room(1);
        first.take(1).await;
        first.kill().await;
        // As if so many workers had died of it before.
        let times = DELIVERIES_MAX.to_string();
        match kind {
            Kind::Stream => {
                let entries = stage.ask(&["XRANGE", "jobs", "-", "+"]).await;
                let entries: Vec<(String, Vec<String>)> = redis::from_redis_value(entries).unwrap();
                let id = entries[0].0.as_str();
                let claim = ["XCLAIM", "jobs", "millrace", "gone", "0", id, "RETRYCOUNT", &times];
                stage.ask(&claim).await;
            }
            Kind::List => {
                let script = "local key = redis.call('KEYS', 'jobs:taken:*')[1]; \
                    local hash = redis.sha1hex(redis.call('LINDEX', key, 0)); \
                    return redis.call('HSET', 'jobs:deliveries', hash, ARGV[1])";
                stage.ask(&["EVAL", script, "0", &times]).await;
            }
        }
        let mut second = stage.start(kind, "lease = '1s'");
        second.room(1);
        let end = std::time::Instant::now() + TIMEOUT;
        while stage.dead().await.is_empty() {
            assert!(std::time::Instant::now() < end, "{kind:?}: it is not dead in time");
            second.listen(Duration::from_millis(50)).await;
        }
        assert_eq!(stage.dead().await[0]["dead_cause"], "exhausted");
        assert_eq!((stage.count(kind).await, second.has_jobs()), (0, 0));
        second.close().await;
    }
}

#[tokio::test]
async fn what_is_no_job_is_dead_and_what_is_no_envelope_is_a_body() {
    let Some(stage) = stage() else { return };
    stage.ask(&["XADD", "jobs", "*", "attempt", "many", "body", "x"]).await;
    stage.ask(&["XADD", "jobs", "*", "colour", "red"]).await;
    let mut source = stage.start(Kind::Stream, "");
    source.room(5);
    let job = source.take(1).await.remove(0);
    assert_eq!(job.message.headers[0].name, "colour");
    assert!(
        job.message.id.starts_with("jobs/"),
        "it has an id that its entry gives: {}",
        job.message.id
    );
    let dead = stage.dead().await;
    assert_eq!((dead[0]["dead_cause"].as_str(), dead[0]["body"].as_str()), ("malformed", "x"));
    source.close().await;

    stage.ask(&["DEL", "jobs", "jobs:dead"]).await;
    stage.ask(&["LPUSH", "jobs", "{\"millrace\":9}"]).await;
    stage.ask(&["LPUSH", "jobs", "plain"]).await;
    let mut source = stage.start(Kind::List, "");
    source.room(5);
    let job = source.take(1).await.remove(0);
    assert_eq!((&job.message.body[..], job.message.id.len()), (&b"plain"[..], 32));
    assert_eq!(stage.dead().await[0]["body"], "{\"millrace\":9}");
    source.settle(&job, later(1, 2));
    let again = source.take(1).await.remove(0);
    assert_eq!((again.message.id.clone(), again.message.attempt), (job.message.id, 2));
    source.close().await;
}

#[tokio::test]
async fn a_redis_that_dies_comes_back_with_everything_that_it_has_confirmed() {
    for kind in KINDS {
        let Some(mut stage) = stage() else { return };
        for number in 0..200 {
            stage.put(kind, &number.to_string()).await;
        }
        let mut source = stage.start(kind, "batch = 10\nlease = '10s'");
        source.room(1000);
        let mut settled = BTreeMap::new();
        let mut round = 0;
        while settled.len() < 200 {
            let count = source.has_jobs().max(1);
            for job in source.take(count).await {
                source.settle(&job, Settlement::Done);
                *settled.entry(job.message.id).or_insert(0) += 1;
            }
            round += 1;
            if round % 3 == 0 && round < 12 {
                stage.server.kill9().unwrap();
                // The first opening says that it is there, too.
                source.until("Away", |source| source.aways.len() >= source.backs).await;
                stage.server.start_again().unwrap();
                source.until("Back", |source| source.backs > source.aways.len()).await;
            }
        }
        // Only what was lost on the way may be repeated.
        let given: usize = settled.values().sum();
        source
            .until("every answer", |source| source.settled.len() + source.lost.len() >= given)
            .await;
        assert!(given - 200 <= source.lost.len(), "{kind:?}: {given} jobs, {:?}", source.lost);
        assert_eq!(stage.count(kind).await, 0);
        source.close().await;
    }
}

#[tokio::test]
async fn what_cannot_work_is_said_at_once() {
    let Some(stage) = stage() else { return };
    stage.ask(&["SET", "jobs", "text"]).await;
    for kind in KINDS {
        let source = stage.start(kind, "");
        source.room(1);
        let error = source.end().await.expect_err("a text is no queue").to_string();
        assert!(error.contains("another type"), "{kind:?}: {error}");
    }
    stage.ask(&["CONFIG", "SET", "requirepass", "secret"]).await;
    for more in ["", "password = 'canary'"] {
        let source = stage.start(Kind::Stream, more);
        let error = source.end().await.expect_err("no password is no entrance").to_string();
        assert!(error.contains("password") && !error.contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn jobs_that_come_after_the_order_to_take_no_more_go_back() {
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        let mut source = stage.start(kind, "");
        source.room(10);
        // The fetch waits by now.
        source.listen(Duration::from_millis(300)).await;
        source.order(Order::Drain);
        stage.put(kind, "a").await;
        let closed = source.close().await;
        assert_eq!(closed.has_jobs(), 0, "{kind:?}");
        assert_eq!(stage.count(kind).await, 1);
        let mut other = stage.start(kind, "");
        other.room(1);
        assert_eq!(bodies(&other.take(1).await), ["a"]);
        other.close().await;
    }
}

#[tokio::test]
async fn dead_jobs_go_back_when_they_are_wanted_and_jobs_can_be_sent_by_hand() {
    use worker::io::replay::{Replay, Send, replay, send};
    for kind in KINDS {
        let Some(stage) = stage() else { return };
        let url = stage.server.url();
        let url = match kind {
            Kind::Stream => url,
            Kind::List => format!("{url}?kind=list"),
        };
        let day = Duration::from_secs(86_400);
        for (body, delay_ms, unique) in
            [("a", 0, None), ("b", 100, None), ("c", 0, Some(("k".to_owned(), Some(day))))]
        {
            let job = Send {
                queue: "jobs".into(),
                kind: "mail".into(),
                body: body.into(),
                id: Some(format!("id-{body}")),
                delay: Some(Duration::from_millis(delay_ms)),
                unique,
                ..Send::default()
            };
            assert_eq!(send(&url, &job).await.unwrap(), format!("id-{body}"));
            if job.unique.is_some() {
                let again = send(&url, &job).await.expect_err("it is unique").to_string();
                assert!(again.contains("unique"), "{again}");
            }
        }
        let mut source = stage.start(kind, "");
        source.room(10);
        for job in source.take(3).await {
            source.settle(&job, dead());
        }
        source.settled(3).await;
        let mut what = Replay {
            queue: "jobs".into(),
            id: Some("id-b".into()),
            is_dry_run: true,
            ..Replay::default()
        };
        let looked = replay(&url, &what).await.unwrap();
        assert_eq!((looked.seen, looked.replayed, stage.dead().await.len()), (3, 1, 3));
        assert_eq!(
            (looked.jobs[0].cause.as_str(), looked.jobs[0].kind.as_str()),
            ("rejected", "mail")
        );
        assert!(looked.jobs[0].died_ms.is_some());
        what.is_dry_run = false;
        assert_eq!(replay(&url, &what).await.unwrap().replayed, 1);
        let job = source.take(1).await.remove(0);
        assert_eq!((job.message.id.as_str(), &job.message.body[..]), ("id-b", &b"b"[..]));
        assert!(job.message.headers.is_empty(), "{kind:?}: {:?}", job.message.headers);
        let all = Replay { queue: "jobs".into(), ..Replay::default() };
        assert_eq!(replay(&url, &all).await.unwrap().replayed, 2);
        source.take(2).await;
        assert!(stage.dead().await.is_empty());
        source.close().await;
    }
}

/// Not a measurement: it prints how fast it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_jobs_of_a_stream_are_each_given_and_settled_once() {
    const COUNT: usize = 50_000;
    let Some(stage) = stage() else { return };
    let fill = "for i = 1, tonumber(ARGV[1]) do \
        redis.call('XADD', 'jobs', '*', 'id', i, 'type', 'noop', 'body', 'x') end";
    stage.ask(&["EVAL", fill, "0", &COUNT.to_string()]).await;
    let mut source = stage.start(Kind::Stream, "fetchers = 2");
    let start = std::time::Instant::now();
    source.room(4000);
    let mut ids = std::collections::BTreeSet::new();
    let mut taken = 0;
    while taken < COUNT {
        let count = source.has_jobs().max(1);
        let jobs = source.take(count).await;
        taken += jobs.len();
        let settled = jobs.into_iter().map(|job| {
            ids.insert(job.message.id);
            worker::Settled {
                receipt: job.receipt,
                settlement: Settlement::Done,
                publishes: Vec::new(),
            }
        });
        let settled: Vec<_> = settled.collect();
        source.room(settled.len());
        source.order(Order::Settle(settled));
    }
    source.settled(COUNT).await;
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.0} jobs/s", COUNT as f64 / seconds);
    assert_eq!(
        (ids.len(), source.settled.len(), stage.count(Kind::Stream).await),
        (COUNT, COUNT, 0)
    );
    source.close().await;
}

/// A small generator, so that a failure can be repeated.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[tokio::test]
async fn workers_and_redis_are_killed_at_any_step_and_every_job_ends() {
    const COUNT: usize = 200;
    for kind in KINDS {
        let Some(mut stage) = stage() else { return };
        for number in 0..COUNT {
            stage.put(kind, &number.to_string()).await;
        }
        let mut chance = Chance(7);
        // How often each job was given out, and the ends that were confirmed.
        let (mut given, mut ended) = (BTreeMap::new(), BTreeMap::new());
        // Ends that were ordered and not confirmed when their worker was killed.
        let mut in_doubt = std::collections::BTreeSet::new();
        let end = std::time::Instant::now() + 3 * TIMEOUT;
        for round in 0.. {
            assert!(
                std::time::Instant::now() < end,
                "{kind:?}: {} jobs are left",
                stage.count(kind).await
            );
            if stage.count(kind).await == 0 {
                break;
            }
            let mut source = stage.start(kind, "lease = '1s'\nbatch = 16");
            source.room(40);
            let mut open = BTreeMap::new();
            for _ in 0..chance.below(30) {
                source.listen(Duration::from_millis(chance.below(40))).await;
                let count = source.has_jobs();
                for job in source.take(count).await {
                    *given.entry(job.message.id.clone()).or_insert(0_usize) += 1;
                    let settlement = match chance.below(10) {
                        0 => dead(),
                        1 => later(chance.below(50), job.message.attempt + 1),
                        2 => Settlement::Return,
                        // Nothing: its worker dies with it in hand, or its lease runs out.
                        3 => continue,
                        _ => Settlement::Done,
                    };
                    let is_end =
                        !matches!(settlement, Settlement::Later { .. } | Settlement::Return);
                    open.insert(job.receipt, (job.message.id.clone(), is_end));
                    source.settle(&job, settlement);
                    source.room(1);
                }
                for receipt in source.settled.drain(..) {
                    if let Some((id, true)) = open.remove(&receipt) {
                        *ended.entry(id).or_insert(0_usize) += 1;
                    }
                }
                if round % 4 == 3 && chance.below(10) == 0 {
                    stage.server.kill9().unwrap();
                    stage.server.start_again().unwrap();
                }
            }
            in_doubt.extend(open.into_values().filter(|(_, is_end)| *is_end).map(|(id, _)| id));
            source.kill().await;
        }
        assert_eq!(given.len(), COUNT, "{kind:?}: every job was given out");
        assert!(ended.values().all(|count| *count == 1), "{kind:?}: {ended:?}");
        let is_missing = |id: &&String| !ended.contains_key(*id) && !in_doubt.contains(*id);
        let missing: Vec<&String> = given.keys().filter(is_missing).collect();
        assert!(missing.is_empty(), "{kind:?}: lost without an end: {missing:?}");
        let dead = stage.dead().await;
        let mut ids: Vec<&String> = dead.iter().map(|dead| &dead["id"]).collect();
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "{kind:?}: nobody dies twice");
    }
}

/// A Redis that still reads its file takes connections and refuses every command: a start ends after that.
#[tokio::test]
async fn a_redis_that_was_started_again_answers_at_once() {
    let Some(mut server) = RedisServer::start(&["--key-load-delay", "500"]).unwrap() else {
        return;
    };
    {
        let stage = Stage { server };
        let mut pipe = redis::pipe();
        for number in 0..4_000 {
            pipe.cmd("RPUSH").arg("many").arg(number).ignore();
        }
        pipe.query_async::<()>(&mut stage.connection().await).await.unwrap();
        server = stage.server;
    }
    server.kill9().unwrap();
    server.start_again().unwrap();
    assert_eq!(Stage { server }.number(&["LLEN", "many"]).await, 4_000);
}
