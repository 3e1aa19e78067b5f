//! A database with an outbox on a stage: relays that read it, commands about it, and what they publish.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    dead_code,
    reason = "runs commands, waits for them, and takes what they publish; no test needs everything"
)]

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use trials::relay::Stage;
use trials::relay::process::Relay;

use crate::support::{done, pause};

/// Longer than anything here takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A database on the stage.
pub(crate) struct Outbox<'s> {
    pub(crate) stage: &'s Stage,
    pub(crate) name: &'static str,
}

/// What was published.
pub(crate) struct Message {
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BasicProperties,
}

impl Message {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        match self.properties.headers().as_ref()?.inner().get(name)? {
            AMQPValue::LongString(text) => Some(text.to_string()),
            other => panic!("{name} is {other:?}"),
        }
    }
}

#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "it does not come to it: {what}");
        pause();
    }
}

impl<'s> Outbox<'s> {
    pub(crate) fn on(stage: &'s Stage, name: &'static str) -> Self {
        stage.postgres.psql(&format!("CREATE DATABASE {name}")).unwrap();
        Self { stage, name }
    }

    #[track_caller]
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.stage.postgres.psql_in(self.name, sql).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn words(&self, command: &str, more: &[&str]) -> Vec<String> {
        let database = self.stage.postgres.url_of(self.name);
        let url = format!("amqp://guest:guest@{}/%2f", self.stage.broker.setup.address());
        let words = ["relay", command, "--database", &database, "--url", &url];
        words.iter().chain(more).map(|&word| word.to_owned()).collect()
    }

    /// A relay, whatever becomes of it.
    pub(crate) fn launch(&self, log: &str, more: &[&str]) -> Relay {
        let log = self.stage.dir.join(format!("{}-{log}.txt", self.name));
        done(Relay::start(&self.stage.millrace, &self.words("run", more), &log))
    }

    pub(crate) fn run(&self, log: &str, more: &[&str]) -> Relay {
        let mut relay = self.launch(log, more);
        done(relay.wait_open());
        relay
    }

    /// A relay that ends by itself, and badly: what it said.
    pub(crate) fn refused(&self, log: &str, more: &[&str]) -> String {
        let mut relay = self.launch(log, more);
        assert!(!done(relay.wait(TIMEOUT)).success(), "{}", relay.last_words());
        relay.last_words()
    }

    pub(crate) fn command(&self, command: &str, more: &[&str]) -> Output {
        let mut run = Command::new(&self.stage.millrace);
        run.args(self.words(command, more)).stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn says(&self, command: &str, more: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(command, more);
        let said = String::from_utf8_lossy(&stdout).into_owned();
        assert!(status.success(), "{said}\n{}", String::from_utf8_lossy(&stderr));
        said
    }

    pub(crate) fn status(&self, more: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.says("status", &[&["--json"], more].concat())).unwrap()
    }

    /// The next `count` messages of a queue, which is made.
    #[track_caller]
    pub(crate) fn take(&self, queue: &str, count: usize) -> Vec<Message> {
        let uri = format!("amqp://guest:guest@{}/%2f", self.stage.broker.setup.address());
        self.stage.runtime.block_on(async {
            let connection =
                Connection::connect(&uri, ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            let declared = channel.queue_declare(queue.into(), durable, FieldTable::default());
            declared.await.unwrap();
            let begun = Instant::now();
            let mut messages = Vec::new();
            while messages.len() < count {
                assert!(begun.elapsed() < TIMEOUT, "{} of {count} came", messages.len());
                let got = channel.basic_get(queue.into(), BasicGetOptions::default()).await;
                let Some(got) = got.unwrap() else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let delivery = got.delivery;
                let (body, properties) = (delivery.data, delivery.properties);
                messages.push(Message { body, properties });
                let tag = delivery.delivery_tag;
                channel.basic_ack(tag, BasicAckOptions::default()).await.unwrap();
            }
            connection.close(200, "taken".into()).await.unwrap();
            messages
        })
    }
}
