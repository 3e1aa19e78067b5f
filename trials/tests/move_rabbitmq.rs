//! `millrace move` with a real RabbitMQ at either end: out of it, and back into it.
//!
//! Without RabbitMQ it says so and moves nothing: `cargo xtask setup` installs it.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "starts brokers and the command, waits for them, and shows what they say"
)]

#[path = "support/millrace.rs"]
mod millrace;

use std::path::{Path, PathBuf};
use std::process::Command;

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use client::{Address, Connection, Consumer, ConsumerOptions, Options, Publisher, QueueSpec, Url};
use trials::chaos::Failure;
use trials::chaos::broker::{Broker, Kind, START_MAX};

const COUNT: u32 = 20_000;

/// Two brokers in a folder, ended and removed when dropped.
struct Stage {
    rabbitmq: Broker,
    millrace: Broker,
    dir: PathBuf,
}

impl Stage {
    /// None where RabbitMQ is not installed, which is said.
    fn start() -> Option<Self> {
        let name = format!("move-{}", std::process::id());
        let dir = Path::new(env!("CARGO_BIN_EXE_trials")).with_file_name("move-trials").join(&name);
        let _ = std::fs::remove_dir_all(&dir);
        let broker = |kind: Kind, folder: &str| {
            let dir = dir.join(folder);
            std::fs::create_dir_all(&dir).unwrap();
            trials::relay::broker_in(kind, millrace::broker(), &dir, &name, &[])
        };
        let mut rabbitmq = match broker(Kind::Rabbitmq, "rabbitmq") {
            Ok(broker) => broker,
            Err(skipped @ Failure::Skipped(_)) => {
                println!("{skipped}");
                return None;
            }
            Err(failure) => panic!("{failure}"),
        };
        let mut millrace = broker(Kind::Millrace, "millrace").unwrap();
        for broker in [&mut rabbitmq, &mut millrace] {
            broker.start().unwrap();
            broker.wait_ready(START_MAX).unwrap();
        }
        Some(Self { rabbitmq, millrace, dir })
    }

    fn url(&self, kind: Kind) -> String {
        let broker = match kind {
            Kind::Millrace => &self.millrace,
            Kind::Rabbitmq => &self.rabbitmq,
        };
        format!("amqp://guest:guest@{}/%2F", broker.setup.address())
    }

    async fn connect(&self, kind: Kind) -> Connection {
        let url: Url = self.url(kind).parse().unwrap();
        Connection::open(&url, &Options::named("test")).await.unwrap()
    }

    /// Moves all of `q`; the exit code must be 0.
    fn run(&self, from: Kind, to: Kind) {
        let output = Command::new(millrace::broker())
            .args([
                "move",
                "--queue",
                "q",
                "--log",
                "warn",
                "--from",
                &self.url(from),
                "--to",
                &self.url(to),
            ])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        println!("{}{told}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(!told.contains("twice"), "{told}");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for broker in [&mut self.rabbitmq, &mut self.millrace] {
            let _ = broker.kill();
            if !std::thread::panicking() {
                let _ = std::fs::remove_dir_all(&broker.setup.data);
            }
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// What message `number` has beside its body.
fn headers(number: u32) -> bytes::BytesMut {
    let mut headers = FieldTable::new();
    headers
        .insert("number", FieldValue::I32(number as i32))
        .insert("tenant", FieldValue::LongStr(b"seven".to_vec()))
        .insert("CC", FieldValue::Array(vec![FieldValue::LongStr(b"copy".to_vec())]));
    headers.to_bytes()
}

fn properties<'a>(id: &'a str, headers: &'a [u8]) -> Properties<'a> {
    Properties {
        headers: Some(TableRef::validate(headers).unwrap()),
        delivery_mode: Some(2),
        priority: Some(3),
        expiration: Some("3600000"),
        message_id: Some(id),
        user_id: Some("guest"),
        ..Properties::default()
    }
}

#[tokio::test]
async fn a_backlog_goes_from_rabbitmq_to_millrace_and_back_as_it_was() {
    let Some(stage) = Stage::start() else { return };
    for kind in [Kind::Rabbitmq, Kind::Millrace] {
        let mut broker = stage.connect(kind).await;
        for name in ["q", "copy"] {
            broker.declare_queue(&QueueSpec::durable(name)).await.unwrap();
        }
        broker.bind_queue("q", "amq.topic", "eu.#", &FieldTable::new()).await.unwrap();
        broker.close().await.unwrap();
    }
    let from: Url = stage.url(Kind::Rabbitmq).parse().unwrap();
    let mut publisher = Publisher::open(&from, &Options::named("test"), 1000).await.unwrap();
    for number in 0..COUNT {
        let (id, headers) = (number.to_string(), headers(number));
        let to = Address { exchange: "amq.topic", routing_key: "eu.orders", mandatory: true };
        publisher.publish(to, &properties(&id, &headers), id.as_bytes()).await.unwrap();
    }
    assert!(publisher.close().await.unwrap().is_clean());
    stage.run(Kind::Rabbitmq, Kind::Millrace);
    holds(&stage, Kind::Rabbitmq, 0).await;
    holds(&stage, Kind::Millrace, COUNT).await;
    stage.run(Kind::Millrace, Kind::Rabbitmq);
    holds(&stage, Kind::Millrace, 0).await;
    let mut rabbitmq = stage.connect(Kind::Rabbitmq).await;
    assert_eq!(rabbitmq.look_up_queue("copy").await.unwrap().message_count, 0, "CC made copies");

    let how = ConsumerOptions { no_ack: true, ..ConsumerOptions::default() };
    let mut consumer = Consumer::open(&from, &Options::named("test"), "q", how).await.unwrap();
    for number in 0..COUNT {
        let got = consumer.next().await.unwrap();
        let (id, headers) = (number.to_string(), headers(number));
        let mut wanted = bytes::BytesMut::new();
        properties(&id, &headers).encode(&mut wanted);
        assert_eq!((&got.body[..], got.routing_key()), (id.as_bytes(), "eu.orders"));
        assert_eq!(got.raw_properties()[..], wanted[..], "message {number}");
        assert!(!got.redelivered, "message {number}");
    }
}

async fn holds(stage: &Stage, kind: Kind, count: u32) {
    let mut broker = stage.connect(kind).await;
    assert_eq!(broker.look_up_queue("q").await.unwrap().message_count, count, "{kind:?}");
    broker.close().await.unwrap();
}
