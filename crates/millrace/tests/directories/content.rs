//! What is in the directories: what is declared, and which messages are where.

use amqp::{FieldTable, FieldValue, Method, Properties, TableRef, exchange};
use client::{Address, Connection, ExchangeSpec, QueueSpec};

/// A queue that a policy is about, which directories have since version 9; and how many messages it may have.
pub(crate) const GOVERNED: &str = "governed";
pub(crate) const GOVERNED_MAX: u32 = 2;
pub(crate) const USER: &str = "keeper";
pub(crate) const PASSWORD: &str = "golden";

/// Of `serve`: small files, so that the log of a small directory is moved to segments.
pub(crate) const ARGUMENTS: [&str; 12] = [
    "--set",
    "wal_file_bytes=4MiB",
    "--set",
    "message_bytes_max=1MiB",
    "--set",
    "disk_free_limit=0",
    "--set",
    "groups=2",
    "--set",
    "default_user=keeper",
    "--set",
    "default_pass=golden",
];

/// Waits longer than the writer takes, so that the wait is in the directory; and then it is over.
const WAIT_MS: i32 = 300_000;
/// Ten years: the longest that there is.
const LONG_MS: i64 = 315_360_000_000;

/// A stream, which directories have since version 10, and what is in it.
pub(crate) const STREAM: (u64, &str) = (22, "events");
pub(crate) const EVENTS: [&str; 3] = ["event-1", "event-2", "event-3"];

/// The queue that each exchange sends to.
pub(crate) const ROUTED: &str = "routed";
/// The queue that takes each message once.
pub(crate) const ONCE: &str = "once";
/// The queue that is declared behind the checkpoint.
pub(crate) const LATE: &str = "late";

/// The queue of which some messages were delivered, before the checkpoint and behind it.
pub(crate) const MARKED: &str = "marked";
/// How many it has.
pub(crate) const MARKED_COUNT: u32 = 60;
/// How many of them are flagged, by version: the mark lies among them.
pub(crate) const FLAGGED: &[(u16, usize)] = &[(7, 7), (8, 7), (9, 7), (10, 7)];

/// Queues by number. One was deleted.
pub(crate) const QUEUES: &[(u64, &str)] = &[
    (1, "amq.recent-history.by-x-recent-history"),
    (2, "classic"),
    (3, "quorum"),
    (4, "levels"),
    (5, "delayed"),
    (6, "retried"),
    (7, "dead"),
    (8, "work"),
    (9, "full"),
    (10, "blocked"),
    (11, "once"),
    (12, "limited"),
    (13, "single"),
    (14, "brief"),
    (15, "shared-1"),
    (16, "shared-2"),
    (17, "shared-3"),
    (18, "routed"),
    (19, "marked"),
    (21, "late"),
];

/// A message in its queue.
pub(crate) struct Expected {
    pub(crate) id: &'static str,
    pub(crate) priority: Option<u8>,
    pub(crate) redelivered: bool,
}

impl Expected {
    pub(crate) const fn new(id: &'static str) -> Self {
        Self { id, priority: None, redelivered: false }
    }

    const fn again(id: &'static str) -> Self {
        Self { redelivered: true, ..Self::new(id) }
    }

    const fn with(priority: u8, message: Self) -> Self {
        Self { priority: Some(priority), ..message }
    }
}

/// The messages of each queue in the order in which they come. What is delivered is flagged, and a little more: the
/// mark in the log runs ahead.
pub(crate) const READY: &[(&str, &[Expected])] = &[
    (
        "classic",
        &[
            Expected::again("classic-2"),
            Expected::again("classic-3"),
            Expected::again("classic-5"),
            Expected::again("classic-6"),
            Expected::again("classic-7"),
        ],
    ),
    (
        "quorum",
        &[Expected::again("quorum-1"), Expected::again("quorum-2"), Expected::new("quorum-3")],
    ),
    (
        "levels",
        &[
            Expected::with(4, Expected::again("high-1")),
            Expected::with(4, Expected::again("high-2")),
            Expected::with(1, Expected::new("low-1")),
            Expected::with(1, Expected::new("low-2")),
            Expected::with(1, Expected::new("low-3")),
        ],
    ),
    ("delayed", &[Expected::new("delayed-1")]),
    ("retried", &[Expected::again("retried-1")]),
    ("dead", &[Expected::new("work-1")]),
    ("work", &[Expected::again("work-2")]),
    ("blocked", &[Expected::again("blocked-2")]),
    (ONCE, &[Expected::new("once-1")]),
    ("limited", &[Expected::new("limited-1"), Expected::new("limited-2")]),
    ("single", &[Expected::new("single-1")]),
    ("shared-1", &[Expected::new("shared")]),
    ("shared-2", &[Expected::new("shared")]),
    ("shared-3", &[Expected::new("shared")]),
    (
        ROUTED,
        &[
            Expected::new("by-direct"),
            Expected::new("by-fanout"),
            Expected::new("by-topic"),
            Expected::new("by-headers"),
            Expected::new("by-x-delayed-message"),
            Expected::new("by-x-consistent-hash"),
            Expected::new("by-x-random"),
            Expected::new("by-x-modulus-hash"),
            Expected::new("by-x-recent-history"),
            Expected::new("outer"),
            Expected::new("elsewhere"),
        ],
    ),
    (LATE, &[Expected::new("late-1")]),
    // A dead letter is stored beyond the limit.
    ("full", &[Expected::new("full-1"), Expected::new("blocked-1")]),
];

/// The messages of `MARKED`.
pub(crate) fn marked() -> Vec<String> {
    (1..=MARKED_COUNT).map(|number| format!("marked-{number}")).collect()
}

/// The body of a message. Some fill more than a sector of the disk.
pub(crate) fn body(id: &str) -> String {
    let lines = if id.ends_with('2') { 100 } else { 1 };
    vec![format!("the body of {id}"); lines].join("\n")
}

fn text(text: &str) -> FieldValue {
    FieldValue::LongStr(text.into())
}

fn table(fields: &[(&str, FieldValue)]) -> FieldTable {
    fields.iter().map(|(name, value)| (*name, value.clone())).collect()
}

fn queue(name: &str, arguments: &[(&str, FieldValue)]) -> QueueSpec {
    QueueSpec { arguments: table(arguments), ..QueueSpec::durable(name) }
}

pub(crate) fn stream() -> QueueSpec {
    queue(STREAM.1, &[("x-queue-type", text("stream")), ("x-max-age", text("10Y"))])
}

/// Everything but what is declared late.
pub(crate) fn queues() -> Vec<QueueSpec> {
    let dead_letters_to = |target| {
        [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(target))]
    };
    let limits = [
        ("x-max-length", FieldValue::I32(100)),
        ("x-max-length-bytes", FieldValue::I32(1 << 20)),
        ("x-message-ttl", FieldValue::I64(LONG_MS)),
        ("x-expires", FieldValue::I64(LONG_MS)),
        ("x-overflow", text("drop-head")),
    ];
    let one = [("x-max-length", FieldValue::I32(1)), ("x-overflow", text("reject-publish"))];
    let quorum = [("x-queue-type", text("quorum")), ("x-delivery-limit", FieldValue::I32(5))];
    let retried = [
        ("x-delayed-retry-type", text("all")),
        ("x-delayed-retry-min", FieldValue::I32(WAIT_MS)),
        ("x-delayed-retry-max", FieldValue::I32(WAIT_MS)),
    ];
    let once = [
        ("x-message-deduplication", FieldValue::Bool(true)),
        ("x-cache-ttl", FieldValue::I64(LONG_MS)),
    ];
    let single = [
        ("x-single-active-consumer", FieldValue::Bool(true)),
        ("x-consumer-timeout", FieldValue::I32(60_000)),
    ];
    vec![
        queue("classic", &[("x-queue-type", text("classic"))]),
        queue("quorum", &quorum),
        queue("levels", &[("x-max-priority", FieldValue::I32(5))]),
        queue("delayed", &[]),
        queue("retried", &retried),
        queue("dead", &[]),
        queue("work", &dead_letters_to("dead")),
        queue("full", &one),
        queue("blocked", &dead_letters_to("full")),
        queue(ONCE, &once),
        queue("limited", &limits),
        queue("single", &single),
        QueueSpec { auto_delete: true, ..queue("brief", &[]) },
        queue("shared-1", &[]),
        queue("shared-2", &[]),
        queue("shared-3", &[]),
        queue(ROUTED, &[]),
        queue(MARKED, &[]),
    ]
}

/// Each kind of exchange, with its arguments, and the key of its binding.
fn kinds() -> Vec<(&'static str, FieldTable, &'static str)> {
    vec![
        ("direct", FieldTable::new(), "a.key"),
        ("fanout", FieldTable::new(), ""),
        ("topic", FieldTable::new(), "*.key"),
        ("headers", FieldTable::new(), ""),
        ("x-delayed-message", table(&[("x-delayed-type", text("direct"))]), "a.key"),
        ("x-consistent-hash", table(&[("hash-property", text("message_id"))]), "1"),
        ("x-random", FieldTable::new(), ""),
        ("x-modulus-hash", FieldTable::new(), ""),
        ("x-recent-history", table(&[("x-recent-history-length", FieldValue::I32(5))]), ""),
    ]
}

fn exchange(name: &str, kind: &str, arguments: FieldTable) -> ExchangeSpec {
    let (name, kind) = (name.to_owned(), kind.to_owned());
    ExchangeSpec { name, kind, durable: true, arguments, ..ExchangeSpec::default() }
}

/// `by-KIND` for each kind, one that sends to another exchange, and one that has an alternate exchange.
pub(crate) fn exchanges() -> Vec<ExchangeSpec> {
    let mut all: Vec<_> = kinds()
        .into_iter()
        .map(|(kind, arguments, _)| exchange(&format!("by-{kind}"), kind, arguments))
        .collect();
    all.push(exchange("outer", "direct", FieldTable::new()));
    let alternate = table(&[("alternate-exchange", text("by-fanout"))]);
    all.push(exchange("elsewhere", "direct", alternate));
    all.push(exchange("shared", "fanout", FieldTable::new()));
    all
}

/// Binds everything that is bound.
pub(crate) async fn bind(client: &mut Connection) {
    for (kind, _, key) in kinds() {
        let headers = [("x-match", text("all")), ("colour", text("red"))];
        let arguments = table(if kind == "headers" { &headers[..] } else { &[] });
        client.bind_queue(ROUTED, &format!("by-{kind}"), key, &arguments).await.unwrap();
    }
    for queue in ["shared-1", "shared-2", "shared-3"] {
        client.bind_queue(queue, "shared", "", &FieldTable::new()).await.unwrap();
    }
    let arguments = FieldTable::new().to_bytes();
    let bind = exchange::Bind {
        destination: "by-fanout",
        source: "outer",
        routing_key: "a.key",
        no_wait: false,
        arguments: TableRef::validate(&arguments).unwrap(),
    };
    client.call(&Method::ExchangeBind(bind)).await.unwrap();
}

/// Each exchange by which a message comes to `ROUTED`, and the key with which it does.
pub(crate) fn routes() -> Vec<(String, &'static str)> {
    let names = exchanges().into_iter().map(|exchange| exchange.name);
    names.filter(|name| name != "shared").map(|name| (name, "a.key")).collect()
}

/// Publishes a message, and waits until it is stored. Its id says what it is.
pub(crate) async fn publish(client: &mut Connection, exchange: &str, key: &str, id: &str) {
    let mut headers = table(&[("colour", text("red"))]);
    if id.starts_with("delayed") {
        headers.insert("x-delay", FieldValue::I32(WAIT_MS));
    }
    let priority = match id.split_once('-') {
        Some(("high", _)) => Some(4),
        Some(("low", _)) => Some(1),
        _ => None,
    };
    let headers = headers.to_bytes();
    let properties = Properties {
        delivery_mode: Some(2),
        message_id: Some(id),
        priority,
        headers: Some(TableRef::validate(&headers).unwrap()),
        ..Properties::default()
    };
    let address = Address { exchange, routing_key: key, mandatory: true };
    client.publish(address, &properties, body(id).as_bytes()).await.unwrap();
}
