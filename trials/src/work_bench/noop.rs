//! Millrace's side of the race: a worker whose handler does nothing, made with the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use tokio::sync::watch;
use worker::Outcome;
use worker::io::source::amqp::Amqp;
use worker::io::worker::Worker;
use worker::source::amqp;
use worker::value::Secret;

use crate::chaos::Failure;

/// `fill|work URL JOBS CONCURRENCY`, as the peers' programs have it.
#[derive(Args, Clone, Debug)]
pub struct Options {
    what: String,
    url: String,
    jobs: u64,
    concurrency: u32,
}

/// Jobs in hand: enough that the broker never waits for the worker.
const PREFETCH: u16 = 4096;
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
            (_, true) => Err(Failure::Trial("Redis: not yet".into())),
            (_, false) => work_amqp(options).await,
        }
    })?;
    Ok(true)
}

async fn work_amqp(options: &Options) -> Result<(), Failure> {
    let settings = amqp::Settings {
        prefetch: PREFETCH,
        ..amqp::Settings::new(Secret::new(options.url.clone()), QUEUE)
    };
    let source = Amqp::new(settings).map_err(wrong)?;
    let (stop, stopped) = watch::channel(false);
    let (handled, jobs) = (Arc::new(AtomicU64::new(0)), options.jobs);
    let worker = Worker::builder()
        .source(source)
        .concurrency(options.concurrency as usize)
        .settings(|settings| settings.buffer = Some(usize::from(PREFETCH)))
        .otherwise(move |_| {
            let count = handled.fetch_add(1, Ordering::Relaxed) + 1;
            if count == 1 {
                println!("first");
            }
            if count == jobs {
                println!("done");
                stop.send_replace(true);
            }
            std::future::ready(Outcome::done())
        })
        .build()
        .map_err(wrong)?;
    let proof = worker.run_until(stopped).await.map_err(wrong)?;
    println!("{proof}");
    Ok(())
}

fn wrong(error: worker::Error) -> Failure {
    Failure::Trial(error.to_string())
}

async fn fill_amqp(options: &Options) -> Result<(), Failure> {
    let failed = |error: client::Error| Failure::Trial(error.to_string());
    let url: client::Url =
        options.url.parse().map_err(|error| Failure::Trial(format!("{error}")))?;
    let how = client::Options::named("fill");
    let mut connection = client::Connection::open(&url, &how).await.map_err(failed)?;
    let queue = client::QueueSpec { name: QUEUE.into(), durable: true, ..Default::default() };
    connection.declare_queue(&queue).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
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
        publisher.publish(to, &properties, BODY.as_bytes()).await.map_err(failed)?;
        publisher.take_verdicts(&mut verdicts);
        verdicts.clear();
    }
    let settled = publisher.close().await.map_err(failed)?;
    if settled.is_clean() { Ok(()) } else { Err(Failure::Trial(format!("{settled:?}"))) }
}

async fn fill_redis(options: &Options) -> Result<(), Failure> {
    let failed = |error: redis::RedisError| Failure::Trial(error.to_string());
    let server = redis::Client::open(options.url.as_str()).map_err(failed)?;
    let mut connection = server.get_multiplexed_async_connection().await.map_err(failed)?;
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
