//! A MariaDB, a broker with a queue, and relays between them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    dead_code,
    reason = "a test of the whole: it starts processes, and waits for them; no test needs everything"
)]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use tokio::runtime::Runtime;
use trials::chaos::broker::{Broker, Kind, START_MAX};
use trials::mariadb::MariaDb;
use trials::relay::process::Relay;
use trials::relay::stage::broker_in;

use super::support::{self, done, millrace};

/// Longer than anything here takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const QUEUE: &str = "orders";

/// A database, a broker with a queue, and clients.
pub(crate) struct Stage {
    pub(crate) database: MariaDb,
    pub(crate) broker: Broker,
    runtime: Runtime,
    pub(crate) dir: PathBuf,
}

impl Stage {
    /// None where MariaDB is not installed, which is said.
    pub(crate) fn start(name: &str) -> Option<Self> {
        Self::start_with(name, &[])
    }

    pub(crate) fn start_with(name: &str, options: &[String]) -> Option<Self> {
        let Some(database) = MariaDb::start_with(options).unwrap() else {
            println!("skipped: there is no MariaDB: install it with `cargo xtask setup`");
            return None;
        };
        let dir = support::dir().join(format!("mysql-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut broker = done(broker_in(Kind::Millrace, millrace(), &dir, name, &[]));
        done(broker.start());
        done(broker.wait_ready(START_MAX));
        let stage = Self { database, broker, runtime: Runtime::new().unwrap(), dir };
        stage.declare(QUEUE);
        Some(stage)
    }

    pub(crate) fn amqp(&self) -> String {
        format!("amqp://guest:guest@{}/%2f?heartbeat=5", self.broker.setup.address())
    }

    pub(crate) fn words(&self, command: &str, more: &[&str]) -> Vec<String> {
        let (database, url) = (self.database.url_of("shop"), self.amqp());
        let words = ["relay", command, "--database", &database, "--url", &url];
        words.into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
    }

    pub(crate) fn relay(&self, more: &[&str]) -> Relay {
        let words = self.words("run", more);
        let mut relay = done(Relay::start(millrace(), &words, &self.dir.join("relay.txt")));
        done(relay.wait_open());
        relay
    }

    /// What a command of the relay says; `code`: how it has to end.
    pub(crate) fn told(&self, command: &str, more: &[&str], code: i32) -> String {
        let output = Command::new(millrace()).args(self.words(command, more)).output().unwrap();
        let told = [&output.stdout[..], &output.stderr[..]].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert_eq!(output.status.code(), Some(code), "{command} {more:?}: {told}");
        told
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.database.sql("shop", sql).unwrap()
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let log = std::fs::read_to_string(self.dir.join("relay.txt")).unwrap_or_default();
            assert!(begun.elapsed() < TIMEOUT, "{what}: never\n{log}");
            support::pause();
        }
    }

    pub(crate) fn until_sql(&self, sql: &str, wanted: &str) {
        self.until(sql, |stage| stage.sql(sql) == wanted);
    }

    pub(crate) fn declare(&self, queue: &str) {
        self.runtime.block_on(async {
            let connection =
                Connection::connect(&self.amqp(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.into(), options, FieldTable::default()).await.unwrap();
        });
    }

    /// All that is in the queue, in its order: all that a message has.
    pub(crate) fn take_whole(&self, queue: &str) -> Vec<String> {
        self.runtime.block_on(async {
            let connection =
                Connection::connect(&self.amqp(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let mut taken = Vec::new();
            while let Some(message) =
                channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()
            {
                let of = &message.properties;
                let id = of.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
                let (headers, at) = (of.headers(), of.timestamp());
                taken.push(format!("id: {id}, {at:?}, {headers:?}, {:?}", message.data));
                message.ack(BasicAckOptions::default()).await.unwrap();
            }
            taken
        })
    }

    /// All that is in the queue, in its order: message-id and body.
    pub(crate) fn take(&self, queue: &str) -> Vec<(String, String)> {
        self.runtime.block_on(async {
            let connection =
                Connection::connect(&self.amqp(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let mut taken = Vec::new();
            while let Some(message) =
                channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()
            {
                let id = message.properties.message_id().as_ref().map(ToString::to_string);
                let body = String::from_utf8_lossy(&message.data).into_owned();
                taken.push((id.unwrap_or_default(), body));
                message.ack(BasicAckOptions::default()).await.unwrap();
            }
            taken
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
