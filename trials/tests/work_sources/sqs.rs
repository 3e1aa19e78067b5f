//! Amazon SQS as a source, against moto's server: slow, and correct.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "starts servers and waits for them"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::source::{self, Running, TIMEOUT, bodies, dead, later, publish};
use serde_json::{Value, json};
use worker::Settlement;
use worker::io::http::{Http, Options};
use worker::io::source::Order;
use worker::io::source::sqs::{Settings, Sqs};

/// moto, and two queues in it.
struct Moto {
    child: Child,
    port: u16,
    http: Http,
}

impl Moto {
    /// Starts it; none: it is not installed.
    async fn start() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let binary = match std::env::var_os("TRIALS_MOTO") {
            Some(binary) => binary.into(),
            None => root.join(".tools/venv/bin/moto_server"),
        };
        if !binary.exists() {
            println!("skipped: no moto here: install it with `cargo xtask setup`");
            return None;
        }
        let port = trials::ports::free().unwrap();
        let mut command = Command::new(binary);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moto = Self { child, port, http: Http::new(Options::default()).unwrap() };
        let end = Instant::now() + TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "moto does not come up");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for queue in ["jobs", "dead"] {
            moto.ask("CreateQueue", json!({"QueueName": queue})).await;
        }
        Some(moto)
    }

    fn url(&self, queue: &str) -> String {
        format!("http://127.0.0.1:{}/123456789012/{queue}", self.port)
    }

    async fn ask(&self, action: &str, call: Value) -> Value {
        let request = http::Request::builder()
            .method("POST")
            .uri(format!("http://127.0.0.1:{}/", self.port))
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{action}"))
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=id/20260101/eu-west-1/sqs/aws4_request, \
                 SignedHeaders=host, Signature=0",
            )
            .body(call.to_string().into())
            .unwrap();
        let answer = self.http.send(request, Instant::now() + TIMEOUT).await.unwrap();
        assert_eq!(answer.status, 200, "{action}: {answer:?}");
        serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
    }

    async fn put(&self, body: &str, attributes: &[(&str, &str)]) {
        let attributes: BTreeMap<&str, Value> = attributes
            .iter()
            .map(|(name, value)| (*name, json!({"DataType": "String", "StringValue": value})))
            .collect();
        let call = json!({
            "QueueUrl": self.url("jobs"), "MessageBody": body, "MessageAttributes": attributes,
        });
        self.ask("SendMessage", call).await;
    }

    /// Messages in a queue, visible or not.
    async fn count(&self, queue: &str) -> u64 {
        let call = json!({"QueueUrl": self.url(queue), "AttributeNames": ["All"]});
        let answer = self.ask("GetQueueAttributes", call).await;
        let of = |name: &str| answer["Attributes"][name].as_str().unwrap().parse::<u64>().unwrap();
        of("ApproximateNumberOfMessages")
            + of("ApproximateNumberOfMessagesNotVisible")
            + of("ApproximateNumberOfMessagesDelayed")
    }

    fn settings(&self, more: &str) -> Settings {
        // moto forgets a delete when another one runs beside it, and gives a message to two receive calls that meet
        // there: one deleter, one fetcher.
        let text = format!(
            "deleters = 1\nfetchers = 1\nqueue_url = '{}'\ndead_queue_url = '{}'\nregion = 'eu-west-1'\n\
             access_key_id = 'id'\nsecret_access_key = 'canary'\nwait = '1s'\n{more}",
            self.url("jobs"),
            self.url("dead")
        );
        toml::from_str(&text).unwrap()
    }

    fn source(&self, more: &str) -> Running {
        source::start(Sqs::new(self.settings(more)).unwrap())
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn jobs_are_received_with_their_attributes_and_deleted_in_batches() {
    let Some(moto) = Moto::start().await else { return };
    let attributes =
        [("x-job-id", "7"), ("x-job-type", "mail"), ("x-job-key", "k"), ("colour", "red")];
    moto.put("first", &attributes).await;
    for number in 0..12 {
        moto.put(&number.to_string(), &[]).await;
    }
    let mut source = moto.source("");
    source.room(100);
    let jobs = source.take(13).await;
    let first = jobs.iter().find(|job| &job.message.body[..] == b"first").unwrap();
    assert_eq!((first.message.id.as_str(), first.message.kind.as_str()), ("7", "mail"));
    assert_eq!(first.message.headers[0].name, "colour");
    assert!(first.key.is_some() && first.lease_until.is_some());
    for job in &jobs {
        source.settle(job, Settlement::Done);
    }
    source.settled(13).await;
    assert_eq!(moto.count("jobs").await, 0);
    source.close().await;
}

#[tokio::test]
async fn another_attempt_comes_with_its_number_charged_or_not() {
    let Some(moto) = Moto::start().await else { return };
    for body in ["charged", "uncharged", "partly"] {
        moto.put(body, &[("x-job-id", body)]).await;
    }
    let mut source = moto.source("");
    source.room(10);
    for job in source.take(3).await {
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
        source.settle(&job, settlement);
    }
    let again = source.take(3).await;
    let seen: BTreeSet<(String, String, u32)> = again
        .iter()
        .zip(bodies(&again))
        .map(|(job, body)| (job.message.id.clone(), body, job.message.attempt))
        .collect();
    let expected =
        [("charged", "charged", 2), ("partly", "rest", 2), ("uncharged", "uncharged", 1)];
    let expected = expected.map(|(id, body, number)| (id.to_owned(), body.to_owned(), number));
    assert_eq!(seen, BTreeSet::from(expected));
    assert_eq!(moto.count("jobs").await, 3);
    source.close().await;
}

#[tokio::test]
async fn a_dead_job_is_in_the_dead_queue_and_what_it_publishes_is_there() {
    let Some(moto) = Moto::start().await else { return };
    moto.put("a", &[("x-job-type", "mail")]).await;
    moto.put("b", &[("x-job-attempt", "many")]).await;
    let mut source = moto.source("");
    source.room(2);
    let job = source.take(1).await.remove(0);
    assert_eq!(bodies(std::slice::from_ref(&job)), ["a"], "the other is no job");
    source.settle_with(&job, dead(), vec![publish("jobs", "next", 0)]);
    source.settled(1).await;
    let end = Instant::now() + TIMEOUT;
    let mut causes = BTreeSet::new();
    while causes.len() < 2 {
        assert!(Instant::now() < end, "only {causes:?} are dead");
        let call = json!({
            "QueueUrl": moto.url("dead"), "MaxNumberOfMessages": 10, "VisibilityTimeout": 0,
            "MessageAttributeNames": ["All"],
        });
        let answer = moto.ask("ReceiveMessage", call).await;
        for message in answer["Messages"].as_array().unwrap_or(&Vec::new()) {
            let attributes = &message["MessageAttributes"];
            let of = |name: &str| attributes[name]["StringValue"].as_str().unwrap().to_owned();
            causes.insert((of("x-job-dead-cause"), message["Body"].as_str().unwrap().to_owned()));
        }
    }
    let expected = [("malformed", "b"), ("rejected", "a")];
    let expected = expected.map(|(cause, body)| (cause.to_owned(), body.to_owned()));
    assert_eq!(causes, BTreeSet::from(expected));
    source.room(1);
    let next = source.take(1).await.remove(0);
    assert_eq!((next.message.id.as_str(), next.message.kind.as_str()), ("of-next", "next"));
    source.close().await;
}

#[tokio::test]
async fn what_is_returned_is_visible_to_others_and_a_renewed_job_is_not() {
    let Some(moto) = Moto::start().await else { return };
    moto.put("returned", &[]).await;
    let mut source = moto.source("lease = '600s'");
    source.room(1);
    let job = source.take(1).await.remove(0);
    source.settle(&job, Settlement::Return);
    source.settled(1).await;
    source.close().await;

    let mut first = moto.source("lease = '4s'");
    first.room(1);
    let job = first.take(1).await.remove(0);
    let mut second = moto.source("");
    second.room(1);
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        first.order(Order::Renew(vec![job.receipt]));
        second.listen(Duration::from_millis(500)).await;
    }
    assert_eq!(second.has_jobs(), 0, "it is renewed");
    first.kill().await;
    assert_eq!(bodies(&second.take(1).await), ["returned"], "it came back when nobody renewed it");
    second.close().await;
}

#[tokio::test]
async fn a_worker_that_dies_loses_nothing() {
    let Some(moto) = Moto::start().await else { return };
    for number in 0..8 {
        moto.put(&number.to_string(), &[]).await;
    }
    let mut first = moto.source("lease = '2s'");
    first.room(5);
    let jobs = first.take(5).await;
    let mut done = BTreeSet::new();
    for job in &jobs[..2] {
        first.settle(job, Settlement::Done);
        done.extend(bodies(std::slice::from_ref(job)));
    }
    first.until("an answer", |source| source.settled.len() + source.lost.len() >= 2).await;
    first.kill().await;
    let mut second = moto.source("lease = '30s'");
    second.room(100);
    let end = Instant::now() + TIMEOUT;
    while moto.count("jobs").await > 0 {
        assert!(Instant::now() < end, "jobs are left");
        second.listen(Duration::from_millis(100)).await;
        let count = second.has_jobs();
        for job in second.take(count).await {
            second.settle(&job, Settlement::Done);
            done.extend(bodies(&[job]));
        }
    }
    assert_eq!(done.len(), 8);
    second.close().await;
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_said_at_once() {
    let Some(moto) = Moto::start().await else { return };
    let mut settings = moto.settings("");
    settings.queue_url = moto.url("missing");
    let error = source::start(Sqs::new(settings).unwrap()).end().await.expect_err("no queue");
    let error = error.to_string();
    assert!(error.contains("create the queue") && !error.contains("canary"), "{error}");
}
