//! Pushes to phones: dead device tokens come back as messages of a queue.
//!
//! ```text
//! cargo run --release -- serve &
//! cargo run -p worker --example push
//! ```
//!
//! The provider is a small server within the example that speaks MiPush: it knows every token but `gone`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example talks, and opens a socket"
)]

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use worker::io::replay::{Send, send};
use worker::io::source::amqp::Amqp;
use worker::io::target::xiaomi::Xiaomi;
use worker::io::worker::Worker;
use worker::pool::{PipelineSettings, TargetSettings};
use worker::source::amqp;
use worker::target::xiaomi;
use worker::value::Secret;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("AMQP_URL");
    let url = url.unwrap_or_else(|_| "amqp://guest:guest@localhost:5672/%2F".to_owned());
    let queue = format!("example-push-{}", std::process::id());
    let feedback = format!("{queue}-dead-tokens");
    let options = client::Options::named("example");
    let mut connection = client::Connection::open(&url.parse()?, &options).await?;
    for name in [&queue, &feedback] {
        connection.declare_queue(&client::QueueSpec::durable(name)).await?;
    }
    connection.close().await?;
    for token in ["phone-1", "gone", "phone-2"] {
        let body = format!("{{\"token\":\"{token}\",\"message\":{{\"title\":\"Hello\"}}}}");
        let job = Send { queue: queue.clone(), body: body.into_bytes(), ..Send::default() };
        send(&url, &job).await?;
    }

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(provider(listener));
    let settings: xiaomi::Settings = toml::from_str(&format!(
        "package = 'com.example'\napp_secret = 'secret'\nurl = 'http://{address}'\n\
         feedback = {{ routing_key = '{feedback}' }}\n"
    ))?;
    let source = amqp::Settings::new(Secret::new(&*url), queue);
    let (stop, stopped) = watch::channel(false);
    let worker = Worker::builder()
        .target(TargetSettings::new("phones"), "xiaomi", Arc::new(Xiaomi::new(settings)?))
        .pipeline(PipelineSettings::new("push", "phones"), Amqp::new(source)?)
        .build()?;
    let running = tokio::spawn(worker.run_until(stopped));

    let how = client::ConsumerOptions { prefetch: 10, ..client::ConsumerOptions::default() };
    let mut told = client::Consumer::open(&url.parse()?, &options, &feedback, how).await?;
    let delivery = told.next().await?;
    println!("dead token: {}", String::from_utf8_lossy(&delivery.body));
    told.settle(delivery.tag, client::Outcome::Done)?;
    told.close().await?;
    stop.send_replace(true);
    println!("{}", running.await??);
    Ok(())
}

/// Takes each push, and names `gone` among the tokens that are not valid.
async fn provider(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut buffer = vec![0; 64 * 1024];
        let Ok(count) = stream.read(&mut buffer).await else { continue };
        let request = String::from_utf8_lossy(&buffer[..count]);
        let bad = if request.contains("gone") { "gone" } else { "" };
        let body = format!(
            "{{\"result\":\"ok\",\"code\":0,\"data\":{{\"id\":\"1\",\"bad_regids\":\"{bad}\"}}}}"
        );
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}
