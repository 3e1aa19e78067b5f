//! What several workers agree on (`worker::io::coord`), with real brokers: ticks that fire once, batches that are
//! completed, and shares whose sum stays below the rate, while one process after the other dies.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "starts servers and waits for them"
)]

mod support {
    pub(crate) mod coord;
    pub(crate) mod millrace;
}

use std::path::{Path, PathBuf};

use support::{coord, millrace};
use trials::chaos::Failure;
use trials::chaos::broker::{Kind, START_MAX};
use trials::redis_server::RedisServer;
use trials::relay::broker_in;
use worker::io::coord::{Broker, Queues};

#[test]
fn millrace_keeps_what_workers_agree_on() {
    amqp(Kind::Millrace, "millrace");
}

#[test]
fn rabbitmq_keeps_what_workers_agree_on() {
    amqp(Kind::Rabbitmq, "rabbitmq");
}

#[test]
fn redis_keeps_what_workers_agree_on_for_streams_and_for_lists() {
    for queues in [Queues::Streams, Queues::ListsFromRight] {
        let Some(server) = RedisServer::start(&[]).unwrap() else {
            println!("there is no Redis on this machine");
            return;
        };
        let client = redis::Client::open(server.url()).unwrap();
        all(Broker::Redis { client, queues });
    }
}

fn amqp(kind: Kind, word: &str) {
    let name = format!("coord-{word}-{}", std::process::id());
    let dir =
        Dir(Path::new(env!("CARGO_BIN_EXE_trials")).with_file_name("work-trials").join(&name));
    let _ = std::fs::remove_dir_all(&dir.0);
    std::fs::create_dir_all(&dir.0).unwrap();
    let mut broker = match broker_in(kind, millrace::broker(), &dir.0, &name, &[]) {
        Ok(broker) => broker,
        Err(skipped @ Failure::Skipped(_)) => {
            println!("{skipped}");
            return;
        }
        Err(failure) => panic!("{failure}"),
    };
    let data = Dir(broker.setup.data.clone());
    broker.start().unwrap();
    broker.wait_ready(START_MAX).unwrap();
    let url = format!("amqp://guest:guest@{}/%2F", broker.setup.address());
    all(Broker::Amqp { url: url.parse().unwrap() });
    broker.kill().unwrap();
    drop((data, dir));
}

/// What a server has written; it goes with the test.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Everything at once: they have nothing in common but the broker.
fn all(broker: Broker) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let ticks = tokio::spawn(coord::a_tick_fires_once_whoever_dies(broker.clone()));
        let batch = tokio::spawn(coord::a_batch_is_completed_over_crashes(broker.clone()));
        let shares = tokio::spawn(coord::shares_stay_below_the_rate(broker));
        for test in [ticks, batch, shares] {
            test.await.unwrap();
        }
    });
}
