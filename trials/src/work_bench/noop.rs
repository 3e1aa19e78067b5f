//! Millrace's side of the race: a worker whose handler does nothing, made with the library.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use clap::Args;
use tokio::sync::watch;
use worker::io::source::BoxFuture;
use worker::io::source::amqp::Amqp;
use worker::io::source::redis_stream::RedisStream;
use worker::io::target::apns::Apns;
use worker::io::target::webhook::Webhook;
use worker::io::target::{Run, Target};
use worker::io::worker::Worker;
use worker::pool::TargetSettings;
use worker::source::amqp;
use worker::value::Secret;
use worker::{Message, Outcome};

use crate::chaos::Failure;

/// `fill|work|latency URL JOBS CONCURRENCY`, as the peers' programs have it.
#[derive(Args, Clone, Debug)]
pub struct Options {
    what: String,
    url: String,
    jobs: u64,
    /// Jobs at a time; of `latency`: jobs per second
    concurrency: u32,
    /// Who executes the jobs: nothing, apns:FILE or webhook:URL
    #[arg(long, default_value = "")]
    target: String,
}

/// Jobs in hand: enough that the broker never waits for the worker.
const PREFETCH: u16 = 4096;
/// The crate's own limit of half a second is short for a thousand entries on a busy machine.
const REDIS_MAX: std::time::Duration = std::time::Duration::from_secs(30);
/// The queue, stream or list.
const QUEUE: &str = "noop";
const BODY: &str = "{\"order\":4711,\"customer\":\"c-17\",\"note\":\"0123456789abcdef0123456789abcdef0123456789abcdef\"}";

/// Fills the queue, or works it off.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match (options.what.as_str(), options.url.starts_with("redis:")) {
            ("fill", true) => fill_redis(options).await,
            ("fill", false) => fill_amqp(options).await,
            ("latency", _) => latency(options).await,
            _ => work(options).await,
        }
    })?;
    Ok(true)
}

/// Prints `first` and `done`, and ends the worker with the last job.
struct Tally {
    handled: AtomicU64,
    jobs: u64,
    stop: watch::Sender<bool>,
}

impl Tally {
    fn add(&self, count: u64) {
        let before = self.handled.fetch_add(count, Ordering::Relaxed);
        if before == 0 {
            println!("first");
        }
        if before < self.jobs && before + count >= self.jobs {
            println!("done");
            self.stop.send_replace(true);
        }
    }
}

/// A target whose jobs are counted.
struct Counted {
    inner: Arc<dyn Target>,
    tally: Arc<Tally>,
}

impl Target for Counted {
    fn run_jobs_max(&self) -> usize {
        self.inner.run_jobs_max()
    }

    fn group(&self, job: &Message) -> Option<u64> {
        self.inner.group(job)
    }

    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        Box::pin(async move {
            let outcomes = Arc::clone(&self.inner).run(run).await;
            let done = |outcome: &&Outcome| matches!(outcome, Outcome::Done { .. });
            if let Some(other) = outcomes.iter().find(|outcome| !done(outcome)) {
                eprintln!("not done: {other:?}");
            }
            self.tally.add(outcomes.iter().filter(done).count() as u64);
            outcomes
        })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, worker::Error>> {
        Arc::clone(&self.inner).check()
    }
}

async fn work(options: &Options) -> Result<(), Failure> {
    let (stop, stopped) = watch::channel(false);
    let tally = Arc::new(Tally { handled: AtomicU64::new(0), jobs: options.jobs, stop });
    let builder = if options.url.starts_with("redis:") {
        let settings = format!("url = \"{}\"\nqueue = \"{QUEUE}\"", options.url);
        let settings = toml::from_str(&settings).map_err(|bad| Failure::Trial(bad.to_string()))?;
        Worker::builder().source(RedisStream::new(settings).map_err(wrong)?)
    } else {
        let settings = amqp::Settings {
            prefetch: PREFETCH,
            ..amqp::Settings::new(Secret::new(options.url.clone()), QUEUE)
        };
        Worker::builder().source(Amqp::new(settings).map_err(wrong)?)
    };
    let concurrency = options.concurrency as usize;
    let builder = builder
        .concurrency(concurrency)
        .settings(|settings| settings.buffer = Some(usize::from(PREFETCH)));
    let builder = match target(&options.target)? {
        None => builder.otherwise(move |_| {
            tally.add(1);
            std::future::ready(Outcome::done())
        }),
        Some(inner) => {
            let limits = TargetSettings { concurrency, ..TargetSettings::new("served") };
            let counted = Arc::new(Counted { inner, tally });
            builder
                .settings(|settings| settings.target = "served".into())
                .target(limits, "counted", counted)
        }
    };
    let proof = builder.build().map_err(wrong)?.run_until(stopped).await.map_err(wrong)?;
    println!("{proof}");
    Ok(())
}

/// `apns:FILE` with its settings, `webhook:URL`; none: the handler that does nothing.
fn target(words: &str) -> Result<Option<Arc<dyn Target>>, Failure> {
    let bad = |error: toml::de::Error| Failure::Trial(error.to_string());
    if let Some(file) = words.strip_prefix("apns:") {
        let settings = toml::from_str(&std::fs::read_to_string(file)?).map_err(bad)?;
        return Ok(Some(Arc::new(Apns::new(&settings).map_err(wrong)?)));
    }
    if let Some(url) = words.strip_prefix("webhook:") {
        let settings = format!(
            "url = \"{url}\"\nallow_private = true\nsecrets = [\"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\"]"
        );
        let settings = toml::from_str(&settings).map_err(bad)?;
        return Ok(Some(Arc::new(Webhook::new(settings).map_err(wrong)?)));
    }
    Ok(None)
}

/// One publisher at an even rate, one worker; prints the time from before the publish to the handler.
async fn latency(options: &Options) -> Result<(), Failure> {
    declare(options).await?;
    let settings = amqp::Settings::new(Secret::new(options.url.clone()), QUEUE);
    let (stop, stopped) = watch::channel(false);
    let times = Arc::new(Mutex::new(Vec::new()));
    let (seen, jobs) = (Arc::clone(&times), options.jobs as usize);
    let worker = Worker::builder()
        .source(Amqp::new(settings).map_err(wrong)?)
        .otherwise(move |job| {
            let sent: u64 =
                std::str::from_utf8(&job.body).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
            let mut seen = seen.lock().expect("nobody panics here");
            seen.push(now_us().saturating_sub(sent));
            if seen.len() == jobs {
                stop.send_replace(true);
            }
            std::future::ready(Outcome::done())
        })
        .build()
        .map_err(wrong)?;
    let running = tokio::spawn(worker.run_until(stopped));
    let failed = |error: client::Error| Failure::Trial(error.to_string());
    let url: client::Url =
        options.url.parse().map_err(|error| Failure::Trial(format!("{error}")))?;
    let mut publisher = client::Publisher::open(&url, &client::Options::named("pace"), 4096)
        .await
        .map_err(failed)?;
    let pause = std::time::Duration::from_secs_f64(1.0 / f64::from(options.concurrency));
    let mut ticks = tokio::time::interval(pause);
    let (mut verdicts, mut left) = (Vec::new(), options.jobs);
    let properties = ::amqp::Properties { delivery_mode: Some(2), ..Default::default() };
    while left > 0 {
        tokio::select! {
            _ = ticks.tick() => {
                let body = now_us().to_string();
                let to = client::Address::queue(QUEUE);
                publisher.publish(to, &properties, body.as_bytes()).await.map_err(failed)?;
                publisher.flush().await.map_err(failed)?;
                left -= 1;
            }
            driven = publisher.drive(&mut verdicts) => driven.map_err(failed)?,
        }
        verdicts.clear();
    }
    publisher.close().await.map_err(failed)?;
    let proof = running.await.map_err(|error| Failure::Trial(error.to_string()))?.map_err(wrong)?;
    let mut times = times.lock().expect("nobody panics here").clone();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    println!(
        "publish to handler at {}/s: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms; {proof}",
        options.concurrency,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    Ok(())
}

fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

fn wrong(error: worker::Error) -> Failure {
    Failure::Trial(error.to_string())
}

async fn fill_amqp(options: &Options) -> Result<(), Failure> {
    let (url, how) = declare(options).await?;
    let failed = |error: client::Error| Failure::Trial(error.to_string());
    let is_push = options.target.starts_with("apns");
    let mut publisher = client::Publisher::open(&url, &how, 4096).await.map_err(failed)?;
    let mut verdicts = Vec::new();
    for number in 0..options.jobs {
        let id = number.to_string();
        let properties = ::amqp::Properties {
            delivery_mode: Some(2),
            message_id: Some(&id),
            kind: Some("noop"),
            ..Default::default()
        };
        let to = client::Address::queue(QUEUE);
        let push = format!(
            "{{\"token\":\"{number:064x}\",\"payload\":{{\"aps\":{{\"alert\":\"Your order is on its way\"}}}}}}"
        );
        let body = if is_push { push.as_bytes() } else { BODY.as_bytes() };
        publisher.publish(to, &properties, body).await.map_err(failed)?;
        publisher.take_verdicts(&mut verdicts);
        verdicts.clear();
    }
    let settled = publisher.close().await.map_err(failed)?;
    if settled.is_clean() { Ok(()) } else { Err(Failure::Trial(format!("{settled:?}"))) }
}

/// The queue, and how to get there.
async fn declare(options: &Options) -> Result<(client::Url, client::Options), Failure> {
    let failed = |error: client::Error| Failure::Trial(error.to_string());
    let url: client::Url =
        options.url.parse().map_err(|error| Failure::Trial(format!("{error}")))?;
    let how = client::Options::named("fill");
    let mut connection = client::Connection::open(&url, &how).await.map_err(failed)?;
    connection.declare_queue(&client::QueueSpec::durable(QUEUE)).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok((url, how))
}

async fn fill_redis(options: &Options) -> Result<(), Failure> {
    let failed = |error: redis::RedisError| Failure::Trial(error.to_string());
    let server = redis::Client::open(options.url.as_str()).map_err(failed)?;
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(REDIS_MAX))
        .set_response_timeout(Some(REDIS_MAX));
    let opened = server.get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = opened.map_err(failed)?;
    let mut left = options.jobs;
    while left > 0 {
        let count = left.min(1000);
        let mut pipe = redis::pipe();
        for number in 0..count {
            pipe.cmd("XADD").arg(QUEUE).arg("*");
            pipe.arg("id").arg(left - number).arg("type").arg("noop").arg("body").arg(BODY);
            pipe.ignore();
        }
        pipe.query_async::<()>(&mut connection).await.map_err(failed)?;
        left -= count;
    }
    Ok(())
}
