//! Millrace's side of the race: a worker whose handler does nothing, made with the library.

use clap::Args;

use crate::chaos::Failure;

/// `fill|work URL JOBS CONCURRENCY`, as the peers' programs have it.
#[derive(Args, Clone, Debug)]
pub struct Options {
    what: String,
    url: String,
    jobs: u64,
    concurrency: u32,
}

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
            _ => Err(Failure::Trial("not yet".into())),
        }
    })?;
    Ok(true)
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
        let properties = amqp::Properties {
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
