//! Spans of messages with a trace context, at a collector of OpenTelemetry. Which message makes which span is tested with
//! `broker::spans`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

mod collector;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use amqp::{FieldTable, Properties, TableRef};
use client::{
    Address, Connection, Consumer, ConsumerOptions, Options, Outcome, Publisher, QueueSpec, Url,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};

use self::collector::Collector;
use crate::client_tls::Authority;
use crate::metrics::{body, value};
use crate::node::{free_address, text, until};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Spans that wait at a node at most, and those of one request beside them.
const WAITING_MAX: u64 = 10_000;
const REQUEST_MAX: u64 = 512;

/// A node that sends spans, in a folder with its log.
struct Traced {
    folder: PathBuf,
    process: Child,
    url: Url,
    metrics: String,
}

impl Traced {
    fn start(test: &str, settings: &[&str]) -> Self {
        let folder =
            std::env::temp_dir().join(format!("millrace-spans-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let metrics = free_address();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["serve", "--amqp", "127.0.0.1:0", "--metrics", &metrics, "--data-dir"]);
        command.arg(folder.join("data")).args(settings);
        let log = File::create(folder.join("log")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("amqp://"));
        let url = url.unwrap_or_else(|| panic!("the broker says {line:?}")).parse().unwrap();
        Self { folder, process, url, metrics }
    }

    /// How often the log has these words.
    fn says(&self, words: &str) -> usize {
        std::fs::read_to_string(self.folder.join("log")).unwrap().matches(words).count()
    }

    /// Spans sent, and dropped.
    fn counts(&self) -> (u64, u64) {
        let text = body(&self.metrics, "/metrics");
        let of = |name: &str| value(&text, &format!("millrace_spans_{name}_total")) as u64;
        (of("sent"), of("dropped"))
    }

    /// A publisher; the queue `jobs` is there.
    async fn publisher(&self, window: u32) -> Publisher {
        let mut connection = Connection::open(&self.url, &Options::named("shop")).await.unwrap();
        connection.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
        Publisher::open(&self.url, &Options::named("shop"), window).await.unwrap()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The headers of a message with this trace context.
fn headers(traceparent: &str) -> bytes::BytesMut {
    FieldTable::new().insert("traceparent", text(traceparent)).to_bytes()
}

fn properties(headers: &[u8]) -> Properties<'_> {
    Properties {
        headers: Some(TableRef::validate(headers).unwrap()),
        message_id: Some("m-1"),
        ..Properties::default()
    }
}

fn shown(attributes: &[KeyValue]) -> Vec<String> {
    let shown = |one: &KeyValue| {
        let value = match one.value.as_ref().unwrap().value.as_ref().unwrap() {
            Value::StringValue(text) => text.clone(),
            Value::IntValue(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        format!("{}={value}", one.key)
    };
    attributes.iter().map(shown).collect()
}

fn spans(collector: &Collector) -> Vec<Span> {
    let taken = collector.taken().into_iter();
    taken.flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_with_a_trace_context_makes_spans_at_the_collector() {
    let collector = Collector::start("127.0.0.1:0").await;
    let url = format!("http://{}", collector.address);
    let node = Traced::start("both", &["--otlp", &url]);
    let mut publisher = node.publisher(16).await;
    let to = Address::queue("jobs");
    publisher.publish(to, &properties(&headers(PARENT)), b"hello").await.unwrap();
    for traceparent in [PARENT.replace("-01", "-00").as_str(), "00-malformed-01", ""] {
        publisher.publish(to, &properties(&headers(traceparent)), b"hello").await.unwrap();
    }
    publisher.publish(to, &Properties::default(), b"hello").await.unwrap();
    assert_eq!(publisher.settle_all().await.unwrap().confirmed, 5);

    let how = ConsumerOptions { ack_every: 1, ..ConsumerOptions::default() };
    let mut consumer =
        Consumer::open(&node.url, &Options::named("shop"), "jobs", how).await.unwrap();
    let mut deliveries = Vec::new();
    for _ in 0..5 {
        deliveries.push(consumer.next().await.unwrap());
    }
    let mut expected = bytes::BytesMut::new();
    properties(&headers(PARENT)).encode(&mut expected);
    assert_eq!(deliveries[0].raw_properties(), &expected, "the message was not changed");
    until("the publish is told", || spans(&collector).len() == 1);
    for delivery in &deliveries {
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
    }
    consumer.flush().await.unwrap();
    until("the delivery is told", || spans(&collector).len() == 2);
    until("both are counted", || node.counts() == (2, 0));

    let taken = collector.taken();
    let resource = shown(&taken[0].resource.as_ref().unwrap().attributes);
    let version = format!("service.version={}", env!("CARGO_PKG_VERSION"));
    let node_name = "service.instance.id=millrace@1".to_owned();
    assert_eq!(resource, ["service.name=millrace".to_owned(), node_name, version]);
    let told = spans(&collector);
    let [publish, deliver] = &told[..] else { panic!("two spans") };
    for span in [publish, deliver] {
        assert_eq!(span.trace_id[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!(span.parent_span_id[..3], [0xb7, 0xad, 0x6b]);
        assert!(span.end_time_unix_nano > span.start_time_unix_nano, "{span:?}");
        let said = shown(&span.attributes);
        for attribute in [
            "messaging.system=rabbitmq",
            "messaging.destination.name=jobs",
            "messaging.rabbitmq.destination.routing_key=jobs",
            "messaging.message.body.size=5",
            "messaging.message.id=m-1",
            "server.address=127.0.0.1",
            "millrace.vhost=/",
        ] {
            assert!(said.iter().any(|one| one == attribute), "{attribute} is not in {said:?}");
        }
    }
    assert_eq!((publish.name.as_str(), publish.kind()), ("publish jobs", SpanKind::Producer));
    assert_eq!((deliver.name.as_str(), deliver.kind()), ("deliver jobs", SpanKind::Consumer));
    let tag = "messaging.rabbitmq.message.delivery_tag=1".to_owned();
    assert!(shown(&deliver.attributes).contains(&tag));
    assert!(publish.end_time_unix_nano <= deliver.end_time_unix_nano);
    assert_ne!(publish.span_id, deliver.span_id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_holds_nobody_up_and_what_finds_no_room_is_counted() {
    let address = free_address();
    let node = Traced::start("away", &["--otlp", &format!("http://{address}")]);
    let mut publisher = node.publisher(512).await;
    let headers = headers(PARENT);
    let count = WAITING_MAX + REQUEST_MAX + 1000;
    for _ in 0..count {
        publisher.publish(Address::queue("jobs"), &properties(&headers), b"x").await.unwrap();
    }
    assert_eq!(publisher.settle_all().await.unwrap().confirmed, count);
    until("spans are dropped", || node.counts().1 >= 1000);
    let (sent, dropped) = node.counts();
    assert!(sent == 0 && dropped <= 1000 + REQUEST_MAX, "{sent} sent, {dropped} dropped");
    until("it is told", || node.says("the collector takes no spans") == 1);

    let collector = Collector::start(&address).await;
    until("all that waited are sent", || node.counts() == (count - dropped, dropped));
    assert_eq!(spans(&collector).len() as u64, count - dropped);
    assert_eq!(node.says("the collector takes no spans"), 1);
    assert_eq!(node.says("the collector takes spans again"), 1);

    collector.answer(400);
    publisher.publish(Address::queue("jobs"), &properties(&headers), b"x").await.unwrap();
    publisher.settle_all().await.unwrap();
    until("what is refused is counted", || node.counts().1 == dropped + 1);
    assert_eq!(node.says("the collector refuses spans"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_go_under_tls_to_whom_the_authority_has_signed_and_the_last_when_the_node_stops() {
    let authority = Authority::new("spans");
    let collector = Collector::start_sealed(&authority).await;
    let url = format!("https://localhost:{}", collector.address.port());
    let file = format!("otlp_cacertfile={}", authority.file("ca.pem"));
    let mut node = Traced::start("tls", &["--otlp", &url, "--set", &file]);
    let mut publisher = node.publisher(16).await;
    let headers = headers(PARENT);
    publisher.publish(Address::queue("jobs"), &properties(&headers), b"x").await.unwrap();
    publisher.settle_all().await.unwrap();
    until("the publish is told", || spans(&collector).len() == 1);

    let how = ConsumerOptions::default();
    let mut consumer =
        Consumer::open(&node.url, &Options::named("shop"), "jobs", how).await.unwrap();
    consumer.next().await.unwrap();
    let pid = rustix::process::Pid::from_child(&node.process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("the node has stopped", || node.process.try_wait().unwrap().is_some());
    let last = spans(&collector).pop().unwrap();
    assert_eq!(last.name, "deliver jobs");
    assert!(shown(&last.attributes).contains(&"error.type=returned".to_owned()));
}
