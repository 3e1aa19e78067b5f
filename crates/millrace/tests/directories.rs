//! A node starts from the directory that the program of an earlier version left, and has all that was in it.
//!
//! `golden/README.md` says what the directories are, and how the one of a new version is written.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

#[path = "directories/content.rs"]
mod content;
#[path = "support/node.rs"]
mod node;
#[path = "directories/tree.rs"]
mod tree;
#[path = "directories/writer.rs"]
mod writer;

use std::path::PathBuf;

use amqp::{FieldTable, FieldValue, ValueRef};
use client::{Connection, Consumer, ConsumerOptions, Delivery, Options, QueueSpec, Url};
use content::{
    EVENTS, Expected, FLAGGED, GOVERNED, GOVERNED_MAX, MARKED, MARKED_COUNT, ONCE, QUEUES, READY,
    ROUTED, STREAM,
};
use machine::{QueueId, Version};
use node::{Node, until_ready};

/// The version of the first program that left a directory.
const FIRST: u16 = 7;
const ACCESS_REFUSED: u16 = 403;
const PRECONDITION_FAILED: u16 = 406;

/// The directory that the program of this version left.
fn golden(version: u16) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}"))
}

/// A node that starts from a copy of a directory.
fn start(test: &str, version: u16) -> Node {
    let name = format!("golden-{test}-v{version}");
    Node::start_on(&name, &content::ARGUMENTS, |dir| tree::unpack(&golden(version), dir))
}

fn url(node: &Node) -> Url {
    let (user, password) = (content::USER.to_owned(), content::PASSWORD.to_owned());
    Url { user, password, ..node.url.clone() }
}

async fn connect(node: &Node) -> Connection {
    Connection::open(&url(node), &Options::named("golden")).await.unwrap()
}

/// Takes every message of a queue: what a client sees of each.
async fn take_all(client: &mut Connection, queue: &str) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    while let Some(delivery) = client.get(queue, true).await.unwrap() {
        deliveries.push(delivery);
    }
    deliveries
}

/// Identifier, priority, and whether it is flagged as redelivered.
type Seen = (String, Option<u8>, bool);

/// A message, which has the body that belongs to it.
fn seen(delivery: &Delivery) -> Seen {
    let properties = delivery.properties().unwrap();
    let id = properties.message_id.unwrap_or_default().to_owned();
    assert_eq!(delivery.body, content::body(&id), "{id}");
    (id, properties.priority, delivery.redelivered)
}

fn expected(message: &Expected) -> Seen {
    let Expected { id, priority, redelivered } = *message;
    (id.to_owned(), priority, redelivered)
}

/// Waits for these messages of a queue, and takes them.
async fn take_expected(
    client: &mut Connection,
    queue: &str,
    messages: &[Expected],
) -> Vec<Delivery> {
    until_ready(client, queue, messages.len() as u32).await;
    let deliveries = take_all(client, queue).await;
    let found: Vec<_> = deliveries.iter().map(seen).collect();
    let wanted: Vec<_> = messages.iter().map(expected).collect();
    assert_eq!(found, wanted, "{queue}");
    deliveries
}

/// How often a message was given back, as a quorum queue says it.
fn returns(delivery: &Delivery) -> Option<i64> {
    let properties = delivery.properties().unwrap();
    match properties.headers?.find("x-delivery-count")? {
        ValueRef::I64(count) => Some(count),
        other => panic!("{other:?}"),
    }
}

/// The reason of a message's last death.
fn reason(delivery: &Delivery) -> Option<String> {
    let properties = delivery.properties().unwrap();
    let ValueRef::LongStr(reason) = properties.headers?.find("x-first-death-reason")? else {
        return None;
    };
    Some(String::from_utf8(reason.to_vec()).unwrap())
}

#[test]
fn there_is_a_directory_of_every_version() {
    if std::env::var_os("UPDATE").is_some() {
        writer::write(&golden(Version::NEWEST.0));
    }
    for version in FIRST..=Version::NEWEST.0 {
        let is_there = golden(version).join("IDENTITY").exists();
        assert!(
            is_there,
            "no directory of version {version}: golden/README.md says how it is written"
        );
    }
}

#[test]
fn every_queue_has_the_number_that_it_had() {
    for version in FIRST..=Version::NEWEST.0 {
        let dir = std::env::temp_dir()
            .join(format!("millrace-numbers-v{version}-{}", std::process::id()));
        tree::unpack(&golden(version), &dir);
        let names = cluster::queue_names(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let wanted = QUEUES
            .iter()
            .map(|(number, name)| (QueueId(*number), ("/".to_owned(), (*name).to_owned())));
        let stream = Some(STREAM).filter(|_| version >= Version::STREAMS.0);
        let stream =
            stream.map(|(number, name)| (QueueId(number), ("/".to_owned(), name.to_owned())));
        assert_eq!(names, wanted.chain(stream).collect(), "version {version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_is_as_it_was() {
    for version in FIRST..=Version::NEWEST.0 {
        let mut node = start("messages", version);
        let mut client = connect(&node).await;
        for (queue, messages) in READY {
            let deliveries = take_expected(&mut client, queue, messages).await;
            match *queue {
                "quorum" => assert_eq!(returns(&deliveries[0]), Some(2)),
                "dead" => assert_eq!(reason(&deliveries[0]).as_deref(), Some("rejected")),
                "full" => assert_eq!(reason(&deliveries[1]).as_deref(), Some("rejected")),
                _ => {}
            }
        }

        until_ready(&mut client, MARKED, MARKED_COUNT).await;
        let marked: Vec<_> = take_all(&mut client, MARKED).await.iter().map(seen).collect();
        let flagged = marked.iter().take_while(|(_, _, is_flagged)| *is_flagged).count();
        let wanted = content::marked().into_iter().enumerate();
        let wanted: Vec<_> = wanted.map(|(nth, id)| (id, None, nth < flagged)).collect();
        assert_eq!(marked, wanted);
        assert!(
            FLAGGED.contains(&(version, flagged)),
            "{flagged} are flagged in version {version}"
        );

        node.crash();
        let mut client = connect(&node).await;
        for (queue, _) in READY {
            assert_eq!(client.look_up_queue(queue).await.unwrap().message_count, 0, "{queue}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_counts_for_a_queue_that_comes_later() {
    for version in Version::POLICIES.0..=Version::NEWEST.0 {
        let node = start("policies", version);
        let mut client = connect(&node).await;
        client.declare_queue(&QueueSpec::durable(GOVERNED)).await.unwrap();
        for number in 0..5 {
            content::publish(&mut client, "", GOVERNED, &number.to_string()).await;
        }
        until_ready(&mut client, GOVERNED, GOVERNED_MAX).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_read_from_its_first_message_on() {
    for version in Version::STREAMS.0..=Version::NEWEST.0 {
        let node = start("stream", version);
        let mut client = connect(&node).await;
        client.declare_queue(&content::stream()).await.unwrap();
        for _ in 0..2 {
            let mut arguments = FieldTable::new();
            arguments.insert("x-stream-offset", FieldValue::LongStr(b"first".to_vec()));
            let how = ConsumerOptions { arguments, ..ConsumerOptions::default() };
            let options = Options::named("golden");
            let mut consumer = Consumer::open(&url(&node), &options, STREAM.1, how).await.unwrap();
            for (offset, id) in (0..).zip(EVENTS) {
                let delivery = consumer.next().await.unwrap();
                let properties = delivery.properties().unwrap();
                assert_eq!(properties.message_id, Some(id));
                let told = properties.headers.and_then(|all| all.find("x-stream-offset"));
                assert_eq!(told, Some(ValueRef::I64(offset)));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_was_declared_is_as_it_was() {
    for version in FIRST..=Version::NEWEST.0 {
        let node = start("declared", version);
        let guest = Connection::open(&node.url, &Options::named("golden").without_retry()).await;
        assert_eq!(guest.err().and_then(|error| error.code()), Some(ACCESS_REFUSED));
        let mut client = connect(&node).await;
        // Whatever differs from what is there is refused.
        for exchange in content::exchanges() {
            client.declare_exchange(&exchange).await.unwrap();
        }
        for queue in content::queues() {
            let otherwise = QueueSpec { auto_delete: !queue.auto_delete, ..queue.clone() };
            let refused = client.declare_queue(&otherwise).await.unwrap_err();
            assert_eq!(refused.code(), Some(PRECONDITION_FAILED), "{refused}");
            client.declare_queue(&queue).await.unwrap();
        }
        let without = client.declare_queue(&QueueSpec::durable("limited")).await.unwrap_err();
        assert_eq!(without.code(), Some(PRECONDITION_FAILED), "{without}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_exchange_routes_as_it_did() {
    for version in FIRST..=Version::NEWEST.0 {
        let node = start("routes", version);
        let mut client = connect(&node).await;
        take_all(&mut client, ROUTED).await;
        for (exchange, key) in content::routes() {
            content::publish(&mut client, &exchange, key, &format!("new-{exchange}")).await;
            let deliveries = take_all(&mut client, ROUTED).await;
            let ids: Vec<_> = deliveries.iter().map(|delivery| seen(delivery).0).collect();
            assert_eq!(ids, [format!("new-{exchange}")], "by {exchange}");
            assert_eq!(deliveries[0].exchange(), exchange);
        }
        // What the exchange has kept comes to a queue that is bound later.
        client.declare_queue(&QueueSpec::durable("historian")).await.unwrap();
        let history = "by-x-recent-history";
        client.bind_queue("historian", history, "", &FieldTable::new()).await.unwrap();
        let deliveries = take_all(&mut client, "historian").await;
        let ids: Vec<_> = deliveries.iter().map(|delivery| seen(delivery).0).collect();
        assert_eq!(ids, [history.to_owned(), format!("new-{history}")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_still_knows_which_messages_it_had() {
    for version in FIRST..=Version::NEWEST.0 {
        let node = start("once", version);
        let mut client = connect(&node).await;
        take_all(&mut client, ONCE).await;
        for id in ["once-1", "once-2"] {
            content::publish(&mut client, "", ONCE, id).await;
        }
        let deliveries = take_all(&mut client, ONCE).await;
        let ids: Vec<_> = deliveries.iter().map(|delivery| seen(delivery).0).collect();
        assert_eq!(ids, ["once-2"], "the first came before");
    }
}
