//! Jobs of a queue are posted to an endpoint, which is away at first.
//!
//! ```text
//! cargo run --release -- serve &
//! cargo run -p worker --example webhook
//! ```
//!
//! The endpoint is a small server within the example: it answers 503 once, and 200 from then on.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example talks, and opens a socket"
)]

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use worker::io::replay::{Send, send};
use worker::io::source::amqp::Amqp;
use worker::io::target::webhook::Webhook;
use worker::io::worker::Worker;
use worker::pool::{PipelineSettings, TargetSettings};
use worker::source::amqp;
use worker::target::webhook;
use worker::value::{Secret, Time};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("AMQP_URL");
    let url = url.unwrap_or_else(|_| "amqp://guest:guest@localhost:5672/%2F".to_owned());
    let queue = format!("example-webhook-{}", std::process::id());
    let options = client::Options::named("example");
    let mut connection = client::Connection::open(&url.parse()?, &options).await?;
    connection.declare_queue(&client::QueueSpec::durable(&queue)).await?;
    connection.close().await?;
    let job = Send {
        queue: queue.clone(),
        kind: "welcome".to_owned(),
        body: br#"{"email":"ann@example.com"}"#.to_vec(),
        ..Send::default()
    };
    println!("sent job {}", send(&url, &job).await?);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (taken, mut accepted) = watch::channel(false);
    tokio::spawn(endpoint(listener, taken));

    // As the configuration file has it: what is not set has its default.
    let settings: webhook::Settings =
        toml::from_str(&format!("url = 'http://{address}/jobs/{{type}}'\nallow_private = true\n"))?;
    let source = amqp::Settings::new(Secret::new(url), queue);
    let pipeline = PipelineSettings {
        backoff: Time(Duration::from_millis(200)),
        ..PipelineSettings::new("mail", "hook")
    };
    let (stop, stopped) = watch::channel(false);
    let worker = Worker::builder()
        .target(TargetSettings::new("hook"), "webhook", Arc::new(Webhook::new(settings)?))
        .pipeline(pipeline, Amqp::new(source)?)
        .build()?;
    let running = tokio::spawn(worker.run_until(stopped));
    accepted.wait_for(|is_accepted| *is_accepted).await?;
    stop.send_replace(true);
    println!("{}", running.await??);
    Ok(())
}

/// Answers 503 to the first request, and 200 to all others.
async fn endpoint(listener: TcpListener, taken: watch::Sender<bool>) {
    let mut requests = 0;
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut buffer = vec![0; 64 * 1024];
        let Ok(count) = stream.read(&mut buffer).await else { continue };
        let request = String::from_utf8_lossy(&buffer[..count]);
        requests += 1;
        let status = if requests == 1 { "503 Service Unavailable" } else { "200 OK" };
        println!("{}: answered {status}", request.lines().next().unwrap_or_default());
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(answer.as_bytes()).await;
        if requests > 1 {
            taken.send_replace(true);
        }
    }
}
