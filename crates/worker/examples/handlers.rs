//! Jobs of a queue are executed by functions of this process; one of them fails at first and is tried again.
//!
//! ```text
//! cargo run --release -- serve &
//! cargo run -p worker --example handlers
//! ```
//!
//! It publishes three jobs, executes them, and ends. `AMQP_URL` names another broker.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example talks, and starts tasks"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use tokio::sync::watch;
use worker::io::handlers::{Failure, Logged};
use worker::io::source::amqp::Amqp;
use worker::io::worker::Worker;
use worker::source::amqp::Settings;
use worker::value::{Secret, Time};

#[derive(Deserialize)]
struct Welcome {
    email: String,
}

static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);

/// Fails at its first attempt.
async fn welcome(job: Welcome) -> Result<(), Failure> {
    if ATTEMPTS.fetch_add(1, Ordering::Relaxed) == 0 {
        println!("welcome {}: the mail server is away", job.email);
        return Err(Failure::retry("the mail server is away"));
    }
    println!("welcome {}: sent", job.email);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("AMQP_URL");
    let url = url.unwrap_or_else(|_| "amqp://guest:guest@localhost:5672/%2F".to_owned());
    let queue = format!("example-handlers-{}", std::process::id());
    publish(&url, &queue).await?;

    let settings = Settings { declare: true, ..Settings::new(Secret::new(url), queue) };
    let (done, mut counted) = watch::channel(0_u32);
    let (stop, stopped) = watch::channel(false);
    let worker = Worker::builder()
        .source(Amqp::new(settings)?)
        .handler("welcome", move |job: Welcome| {
            let done = done.clone();
            async move {
                welcome(job).await?;
                done.send_modify(|count| *count += 1);
                Ok(())
            }
        })
        .middleware(Logged)
        .concurrency(10)
        .settings(|pipeline| pipeline.backoff = Time(std::time::Duration::from_millis(200)))
        .build()?;
    let running = tokio::spawn(worker.run_until(stopped));
    counted.wait_for(|count| *count == 3).await?;
    stop.send_replace(true);
    println!("{}", running.await??);
    Ok(())
}

/// Any AMQP client can publish jobs: a body, and the property `type`.
async fn publish(url: &str, queue: &str) -> Result<(), Box<dyn std::error::Error>> {
    let url = url.parse()?;
    let options = client::Options::named("example");
    let mut connection = client::Connection::open(&url, &options).await?;
    connection.declare_queue(&client::QueueSpec::durable(queue)).await?;
    connection.close().await?;
    let mut publisher = client::Publisher::open(&url, &options, 100).await?;
    for name in ["ann", "bob", "cyd"] {
        let properties = amqp::Properties {
            kind: Some("welcome"),
            delivery_mode: Some(2),
            ..amqp::Properties::default()
        };
        let body = format!("{{\"email\":\"{name}@example.com\"}}");
        publisher.publish(client::Address::queue(queue), &properties, body.as_bytes()).await?;
    }
    publisher.close().await?;
    Ok(())
}
