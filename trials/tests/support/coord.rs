//! What several workers agree on, with a broker that is there: three of each task, of which one after the other
//! is killed (its future is dropped, its sockets close without a word).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "waits for brokers, with deadlines"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Address, Connection, Options, Outcome, QueueSpec};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use worker::batches::{QUEUE, completion_job};
use worker::cron::{Cron, Settings};
use worker::io::coord::{self, Broker, Queues};
use worker::{Cause, Extras, Header, Message, Publish, Settlement};

/// A machine may have much else to do.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Something that is there once per process; killed without a word.
struct Workers {
    make: Box<dyn Fn() -> JoinHandle<()> + Send>,
    tasks: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start(make: impl Fn() -> JoinHandle<()> + Send + 'static) -> Self {
        let tasks = (0..3).map(|_| make()).collect();
        Self { make: Box::new(make), tasks }
    }

    async fn kill(&mut self, place: usize) {
        self.tasks[place].abort();
        let _ = (&mut self.tasks[place]).await;
        self.tasks[place] = (self.make)();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn never_stop() -> coord::Stop {
    let (stop, stopped) = watch::channel(false);
    std::mem::forget(stop);
    stopped
}

/// A job as it came: its id and its headers.
type Came = (String, BTreeMap<String, String>);

/// What lies in a queue, taken out of it.
enum Reader {
    Amqp(Box<Connection>),
    Redis(redis::aio::MultiplexedConnection, Queues),
}

impl Reader {
    async fn open(broker: &Broker, queue: &str) -> Self {
        match broker {
            Broker::Amqp { url } => {
                let mut connection = Connection::open(url, &Options::default()).await.unwrap();
                connection.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
                Self::Amqp(Box::new(connection))
            }
            Broker::Redis { client, queues } => {
                // The crate's own limit of half a second is short for a machine that tests keep busy.
                let config = redis::AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(TIMEOUT))
                    .set_response_timeout(Some(TIMEOUT));
                let opened = client.get_multiplexed_async_connection_with_config(&config).await;
                Self::Redis(opened.unwrap(), *queues)
            }
        }
    }

    async fn take(&mut self, queue: &str) -> Option<Came> {
        match self {
            Self::Amqp(connection) => {
                let delivery = connection.get(queue, false).await.unwrap()?;
                let properties = delivery.properties().unwrap();
                let headers = properties.headers.into_iter().flatten();
                let text = |value: amqp::ValueRef<'_>| match value {
                    amqp::ValueRef::LongStr(text) => String::from_utf8(text.to_vec()).unwrap(),
                    other => format!("{other:?}"),
                };
                let headers = headers.map(|(name, value)| (name.to_owned(), text(value)));
                let came =
                    (properties.message_id.unwrap_or_default().to_owned(), headers.collect());
                connection.settle(delivery.tag, Outcome::Done).await.unwrap();
                Some(came)
            }
            Self::Redis(connection, Queues::Streams) => {
                let entries: redis::streams::StreamRangeReply = redis::cmd("XRANGE")
                    .arg(queue)
                    .arg("-")
                    .arg("+")
                    .arg("COUNT")
                    .arg(1)
                    .query_async(connection)
                    .await
                    .unwrap();
                let entry = entries.ids.into_iter().next()?;
                let _: i64 = redis::cmd("XDEL")
                    .arg(queue)
                    .arg(&entry.id)
                    .query_async(connection)
                    .await
                    .unwrap();
                let headers: Option<String> = entry.get("headers");
                let headers =
                    headers.map_or_else(BTreeMap::new, |text| serde_json::from_str(&text).unwrap());
                Some((entry.get("id").unwrap(), headers))
            }
            Self::Redis(connection, Queues::ListsFromLeft | Queues::ListsFromRight) => {
                let element: Option<String> =
                    redis::cmd("RPOP").arg(queue).query_async(connection).await.unwrap();
                let element: serde_json::Value = serde_json::from_str(&element?).unwrap();
                let headers = element.get("headers").cloned();
                let headers = headers
                    .map_or_else(BTreeMap::new, |headers| serde_json::from_value(headers).unwrap());
                Some((element["id"].as_str().unwrap().to_owned(), headers))
            }
        }
    }

    async fn next(&mut self, queue: &str, what: &str) -> Came {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(came) = self.take(queue).await {
                return came;
            }
            assert!(Instant::now() < end, "{what} does not come");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn publish(&mut self, publish: &Publish) {
        let (queue, body) = (&publish.routing_key, &publish.message.body[..]);
        match self {
            Self::Amqp(connection) => {
                let properties = amqp::Properties { delivery_mode: Some(2), ..Default::default() };
                connection.publish(Address::queue(queue), &properties, body).await.unwrap();
            }
            Self::Redis(connection, Queues::Streams) => {
                let _: String = redis::cmd("XADD")
                    .arg(queue)
                    .arg("*")
                    .arg("body")
                    .arg(body)
                    .query_async(connection)
                    .await
                    .unwrap();
            }
            Self::Redis(connection, Queues::ListsFromLeft | Queues::ListsFromRight) => {
                let body = std::str::from_utf8(body).unwrap();
                let element = serde_json::json!({ "millrace": 1, "body": body }).to_string();
                let _: i64 = redis::cmd("LPUSH")
                    .arg(queue)
                    .arg(element)
                    .query_async(connection)
                    .await
                    .unwrap();
            }
        }
    }
}

/// A name that no other run has.
fn fresh(word: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{word}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Every second a tick, three schedulers, and one after the other dies.
pub(crate) async fn a_tick_fires_once_whoever_dies(broker: Broker) {
    const TICKS: usize = 15;
    let (queue, name) = (fresh("ticks"), fresh("every-second"));
    let mut reader = Reader::open(&broker, &queue).await;
    let settings: Settings = serde_json::from_value(serde_json::json!({
        "name": name, "cron": "* * * * * *", "routing_key": queue, "missed": "all", "late": "30s",
    }))
    .unwrap();
    let cron = Cron::new(vec![settings]).unwrap();
    let is_exact = matches!(broker, Broker::Redis { .. });
    let mut workers = Workers::start(move || {
        let (cron, broker) = (cron.clone(), broker.clone());
        tokio::spawn(async move { coord::cron::run(cron, broker, never_stop()).await.unwrap() })
    });
    let (mut ids, mut repeats, mut kills) = (Vec::new(), 0, 0);
    while ids.len() < TICKS {
        let (id, _) = reader.next(&queue, "a tick").await;
        if ids.contains(&id) {
            repeats += 1;
            continue;
        }
        ids.push(id);
        if ids.len().is_multiple_of(2) {
            workers.kill(kills % 3).await;
            kills += 1;
        }
    }
    let allowed = if is_exact { 0 } else { kills };
    assert!(repeats <= allowed, "{repeats} ticks came twice, {kills} schedulers died");
    let prefix = format!("cron:{name}:");
    let ticks: Vec<i64> =
        ids.iter().map(|id| id.strip_prefix(&prefix).unwrap().parse().unwrap()).collect();
    let expected: Vec<i64> = (0..TICKS as i64).map(|place| ticks[0] + 1000 * place).collect();
    assert_eq!(ticks, expected, "a tick is missing, or out of its order");
}

/// Jobs of a batch end, some twice and some dead, while one tracker after the other dies.
pub(crate) async fn a_batch_is_completed_over_crashes(broker: Broker) {
    const JOBS: usize = 300;
    let (over, id) = (fresh("over"), fresh("batch"));
    let mut reader = Reader::open(&broker, &over).await;
    coord::batches::declare(&broker).await.unwrap();
    let batch = serde_json::json!({
        "id": id, "size": JOBS, "completion": { "queue": over, "type": "report" },
    });
    let own = broker.clone();
    let mut workers = Workers::start(move || {
        let broker = own.clone();
        let settings = coord::batches::Settings::default();
        tokio::spawn(
            async move { coord::batches::run(settings, broker, never_stop()).await.unwrap() },
        )
    });
    for job in 0..JOBS {
        let extras = Extras { batch: Some(batch.to_string()), ..Extras::default() };
        let message = Message {
            id: format!("job-{job}"),
            extras: Some(Box::new(extras)),
            ..Message::default()
        };
        let dead = Settlement::Dead { cause: Cause::Rejected, why: "no".into() };
        let settlement = if job % 10 == 0 { &dead } else { &Settlement::Done };
        let notes = worker::finish::finish(&message, settlement);
        for note in notes.iter().cycle().take(1 + usize::from(job % 7 == 0)) {
            assert_eq!(note.routing_key, QUEUE);
            reader.publish(note).await;
        }
        if job % 50 == 49 {
            workers.kill(job / 50 % 3).await;
        }
    }
    let (came, headers) = reader.next(&over, "the completion").await;
    assert_eq!(came, format!("batch:{id}"));
    let number = |name: &str| headers[name].parse::<usize>().unwrap();
    assert_eq!((number("batch-done"), number("batch-dead")), (JOBS - JOBS / 10, JOBS / 10));
    // Nobody died after the last note: it comes once. What else comes later would be the next batch's.
    let second =
        serde_json::json!({ "id": format!("{id}-2"), "size": 1, "completion": { "queue": over } });
    let extras = Extras { batch: Some(second.to_string()), ..Extras::default() };
    let message =
        Message { id: "one".into(), extras: Some(Box::new(extras)), ..Message::default() };
    for note in worker::finish::finish(&message, &Settlement::Done) {
        reader.publish(&note).await;
    }
    let mut ids = BTreeSet::new();
    while !ids.contains(&format!("batch:{id}-2")) {
        let (again, _) = reader.next(&over, "the next completion").await;
        // A crash may repeat the completion, under the same id.
        assert!(again == came || again == format!("{came}-2"), "{again}");
        ids.insert(again);
    }
}

/// Three processes share a rate; the target counts what they start, while one after the other dies.
pub(crate) async fn shares_stay_below_the_rate(broker: Broker) {
    const RATE: f64 = 200.0;
    let target = fresh("target");
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
    let own = broker.clone();
    let mut workers = Workers::start(move || {
        let (broker, target, starts) = (own.clone(), target.clone(), starts.clone());
        tokio::spawn(async move {
            let settings = serde_json::from_value(serde_json::json!({ "rate": RATE })).unwrap();
            let (_wish, wishes) = watch::channel(RATE);
            let (share, shares) = watch::channel(0.0);
            let sharing =
                coord::shares::run(&target, &settings, broker, wishes, share, never_stop());
            tokio::select! {
                _ = sharing => (),
                () = start(shares, starts) => (),
            }
        })
    });
    let (mut times, mut kills) = (Vec::<Instant>::new(), 0);
    let end = Instant::now() + TIMEOUT;
    // Each life of a granter is seen at work, and each death.
    while kills < 4 {
        let enough = times.len() + 400;
        while times.len() < enough {
            let wait = tokio::time::timeout_at(end.into(), started.recv()).await;
            times.push(wait.expect("shares are granted again").unwrap());
        }
        workers.kill(kills % 3).await;
        kills += 1;
    }
    drop(workers);
    times.sort_unstable();
    // Three buckets of one start each, anew for each that was started in place of a killed one.
    let window = Duration::from_secs(5);
    let most = RATE * window.as_secs_f64() + 3.0 + kills as f64;
    let mut first = 0;
    for last in 0..times.len() {
        while times[last] - times[first] > window {
            first += 1;
        }
        let count = last - first + 1;
        assert!(count as f64 <= most, "{count} starts in 5 s, at most {most} are allowed");
    }
}

/// Starts as many as the share allows: a bucket of one.
async fn start(shares: watch::Receiver<f64>, starts: tokio::sync::mpsc::UnboundedSender<Instant>) {
    let (mut tokens, mut before) = (0.0_f64, Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let now = Instant::now();
        // The share as it is now counts for the time since the last look, which is short; a long one counts little.
        let since = (now - before).min(Duration::from_millis(5));
        tokens = (tokens + *shares.borrow() * since.as_secs_f64()).min(1.0);
        before = now;
        if tokens >= 1.0 {
            tokens -= 1.0;
            let _ = starts.send(now);
        }
    }
}

/// The completion of a batch is a job like any other.
#[test]
fn a_completion_names_its_batch() {
    let batch = worker::batches::Batch::parse(
        r#"{"id":"b","size":2,"completion":{"queue":"q","type":"report"}}"#,
    );
    let publish = completion_job(&batch.unwrap(), 1, 1).unwrap();
    let id = Header { name: "batch-id".into(), value: "b".into() };
    assert!(publish.message.headers.contains(&id));
}
