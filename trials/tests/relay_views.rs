//! `millrace relay` and what docs/relay-shapes.md shows: CloudEvents, bytes, and views over the tables of frameworks. The
//! statements and options are read from the page.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "runs commands, waits for them, and takes what they publish"
)]

#[path = "support/outbox.rs"]
mod outbox;
#[path = "support/relay.rs"]
mod support;

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use outbox::{Message, Outbox, until};
use support::stage;
use trials::chaos::broker::Kind;
use trials::relay::Stage;
use trials::relay::process::Relay;

const PAGE: &str = include_str!("../../docs/relay-shapes.md");

/// What a section of the page shows.
struct Shown {
    sql: String,
    /// The options of `millrace relay run`.
    options: Vec<String>,
}

impl Shown {
    #[track_caller]
    fn under(title: &str) -> Self {
        let begins =
            |line: &str| line.trim_start_matches('#').trim() == title && line.starts_with('#');
        let lines = PAGE.lines().skip_while(|line| !begins(line)).skip(1);
        let lines: Vec<&str> = lines.take_while(|line| !line.starts_with('#')).collect();
        assert!(!lines.is_empty(), "the page has no section {title}");
        let blocks = |fence: &str| {
            let mut text = String::new();
            // The kind of the block that a line is in.
            let mut open: Option<&str> = None;
            for line in &lines {
                open = match (line.strip_prefix("```"), open) {
                    (Some(kind), None) => Some(kind),
                    (Some(_), Some(_)) => None,
                    (None, open) => open,
                };
                if open == Some(fence) && !line.starts_with("```") {
                    text += &format!("{line}\n");
                }
            }
            text
        };
        let command = blocks("").replace("\\\n", " ");
        let command = command.trim().strip_prefix("millrace relay run").unwrap_or_default();
        Self { sql: blocks("sql"), options: words(command) }
    }

    fn run(&self, outbox: &Outbox<'_>) -> Relay {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        outbox.run("run", &options)
    }
}

/// Words as a shell reads them, where quotes are around whole words.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in command.split('"').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Makes an exchange that sends all it gets to a queue.
fn bind(stage: &Stage, exchange: &str, kind: ExchangeKind, key: &str, queue: &str) {
    let uri = format!("amqp://guest:guest@{}/%2f", stage.broker.setup.address());
    stage.runtime.block_on(async {
        let connection = Connection::connect(&uri, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        channel
            .exchange_declare(exchange.into(), kind, durable, FieldTable::default())
            .await
            .unwrap();
        let options = QueueBindOptions::default();
        channel
            .queue_bind(queue.into(), exchange.into(), key.into(), options, FieldTable::default())
            .await
            .unwrap();
    });
}

fn content_type(message: &Message) -> String {
    message.properties.content_type().as_ref().map(ToString::to_string).unwrap_or_default()
}

fn id(message: &Message) -> String {
    message.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn rows_are_cloud_events_in_both_modes_and_bytes_stay_as_they_are() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let outbox = Outbox::on(&stage, "events");
    let shown = Shown::under("Bodies that are no JSON");
    outbox.sql(&shown.sql);
    outbox.take("acme.paid", 0);
    let insert = |content: &str, media: &str| {
        let sql = format!(
            "INSERT INTO outbox (type, content, media, tenant) VALUES ('paid', {content}, {media}, 'acme')"
        );
        outbox.sql(&sql);
    };
    insert("'\\x00ff27'", "'application/x-protobuf'");
    let relay = shown.run(&outbox);
    let [plain] = &outbox.take("acme.paid", 1)[..] else { panic!("there is one") };
    assert_eq!(
        (&plain.body[..], content_type(plain)),
        (&[0, 0xff, 0x27][..], "application/x-protobuf".into())
    );
    assert!(plain.properties.headers().is_none());
    drop(relay);

    let events = |mode: &'static str| {
        let mut options: Vec<&str> = shown.options.iter().map(String::as_str).collect();
        options.extend(["--cloudevents", mode, "--cloudevents-source", "/shop/{tenant}"]);
        outbox.run(mode, &options)
    };
    let relay = events("binary");
    insert("'\\x00ff'", "'application/vnd.apache.avro+binary'");
    let [event] = &outbox.take("acme.paid", 1)[..] else { panic!("there is one") };
    let header = |name: &str| event.header(&format!("cloudEvents:{name}")).unwrap();
    assert_eq!((header("specversion"), header("source")), ("1.0".into(), "/shop/acme".into()));
    assert_eq!((header("id"), header("type")), (id(event), "paid".into()));
    assert!(header("time").contains('T') && header("time").ends_with('Z'), "{}", header("time"));
    assert_eq!(
        (&event.body[..], content_type(event)),
        (&[0, 0xff][..], "application/vnd.apache.avro+binary".into())
    );
    drop(relay);

    let _relay = events("structured");
    insert("convert_to('{\"order\": 7}', 'UTF8')", "NULL");
    let [event] = &outbox.take("acme.paid", 1)[..] else { panic!("there is one") };
    assert!(content_type(event).starts_with("application/cloudevents+json"));
    let json: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
    assert_eq!((&json["id"], &json["source"]), (&id(event).into(), &"/shop/acme".into()));
    assert_eq!((&json["type"], &json["specversion"]), (&"paid".into(), &"1.0".into()));
    assert_eq!(
        (&json["data"]["order"], &json["datacontenttype"]),
        (&7.into(), &"application/json".into())
    );
    // Bytes are no JSON: the row is dead, and says what to do.
    insert("'\\x00ff'", "NULL");
    until("it is set aside", || {
        let dead = "SELECT error FROM millrace.relay_failures WHERE dead_at IS NOT NULL";
        outbox.sql(dead).contains("--cloudevents binary")
    });
}

#[test]
fn views_over_the_tables_of_frameworks_publish_what_is_in_them() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    modulith(&stage);
    cap(&stage);
    masstransit(&stage);
    wolverine(&stage);
}

fn modulith(stage: &Stage) {
    let outbox = Outbox::on(stage, "modulith");
    outbox.sql(
        "CREATE TABLE event_publication (id uuid NOT NULL, listener_id text NOT NULL, event_type text NOT NULL, \
           serialized_event text NOT NULL, publication_date timestamptz NOT NULL, completion_date timestamptz, \
           PRIMARY KEY (id))",
    );
    let shown = Shown::under("Spring Modulith");
    outbox.sql(&shown.sql);
    outbox.take("OrderPaid", 0);
    let _relay = shown.run(&outbox);
    outbox.sql(
        "INSERT INTO event_publication \
         SELECT gen_random_uuid(), listener, 'com.shop.orders.OrderPaid', '{\"order\":42}', now(), now() \
         FROM unnest(ARRAY['shop.Broker.on(com.shop.orders.OrderPaid)', 'shop.Mail.on(com.shop.orders.OrderPaid)']) listener",
    );
    let [message] = &outbox.take("OrderPaid", 1)[..] else { panic!("there is one") };
    assert_eq!(message.text(), "{\"order\":42}");
    let marked = "SELECT count(*) FILTER (WHERE published_on IS NOT NULL) || ' of ' || count(*) FROM event_publication";
    until("the row is marked, the other listener's is not", || outbox.sql(marked) == "1 of 2");
}

fn cap(stage: &Stage) {
    let outbox = Outbox::on(stage, "cap");
    outbox.sql(
        "CREATE SCHEMA cap; \
         CREATE TABLE cap.published (\"Id\" bigint PRIMARY KEY NOT NULL, \"Version\" varchar(20) NOT NULL, \
           \"Name\" varchar(200) NOT NULL, \"Content\" text, \"Retries\" int NOT NULL, \"Added\" timestamp NOT NULL, \
           \"ExpiresAt\" timestamp, \"StatusName\" varchar(50) NOT NULL)",
    );
    let shown = Shown::under("CAP");
    outbox.sql(&shown.sql);
    outbox.take("billing", 0);
    bind(stage, "cap.default.router", ExchangeKind::Topic, "order.#", "billing");
    let _relay = shown.run(&outbox);
    outbox.sql(
        "INSERT INTO cap.published SELECT id, 'v1', 'order.paid', \
           jsonb_build_object('Headers', jsonb_build_object('cap-msg-id', id::text, 'cap-msg-name', 'order.paid'), \
             'Value', jsonb_build_object('order', id))::text, 0, now(), NULL, status \
         FROM (VALUES (7, 'Scheduled'), (8, 'Succeeded')) AS v (id, status)",
    );
    let [message] = &outbox.take("billing", 1)[..] else { panic!("there is one") };
    assert_eq!((message.text(), id(message)), ("{\"order\": 7}", "7".into()));
    assert_eq!(message.header("cap-msg-id").as_deref(), Some("7"));
    assert_eq!(message.header("cap-msg-name").as_deref(), Some("order.paid"));
    let waiting = "SELECT count(*) FROM cap.published WHERE \"StatusName\" <> 'Succeeded'";
    until("it has CAP's own mark", || outbox.sql(waiting) == "0");
}

fn masstransit(stage: &Stage) {
    let outbox = Outbox::on(stage, "masstransit");
    outbox.sql(
        "CREATE TABLE \"OutboxMessage\" (\"SequenceNumber\" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, \
           \"EnqueueTime\" timestamptz, \"SentTime\" timestamptz NOT NULL, \"Headers\" text, \"Properties\" text, \
           \"InboxMessageId\" uuid, \"InboxConsumerId\" uuid, \"OutboxId\" uuid, \"MessageId\" uuid NOT NULL, \
           \"ContentType\" varchar(256) NOT NULL, \"MessageType\" text NOT NULL, \"Body\" text NOT NULL, \
           \"ConversationId\" uuid, \"CorrelationId\" uuid, \"InitiatorId\" uuid, \"RequestId\" uuid, \
           \"SourceAddress\" varchar(256), \"DestinationAddress\" varchar(256), \"ResponseAddress\" varchar(256), \
           \"FaultAddress\" varchar(256), \"ExpirationTime\" timestamptz)",
    );
    let shown = Shown::under("MassTransit");
    outbox.sql(&shown.sql);
    outbox.take("paid-orders", 0);
    bind(stage, "Shop.Contracts:OrderPaid", ExchangeKind::Fanout, "", "paid-orders");
    let _relay = shown.run(&outbox);
    outbox.sql(
        "INSERT INTO \"OutboxMessage\" (\"EnqueueTime\", \"SentTime\", \"Headers\", \"MessageId\", \"ContentType\", \
           \"MessageType\", \"Body\", \"ConversationId\", \"CorrelationId\", \"DestinationAddress\", \"ExpirationTime\") \
         SELECT due, now(), '{\"tenant\":\"acme\"}', gen_random_uuid(), 'application/vnd.masstransit+json', \
           'urn:message:Shop.Contracts:OrderPaid', '{\"message\":{\"order\":' || number || '}}', \
           '00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002', \
           'rabbitmq://localhost/shop/Shop.Contracts:OrderPaid?durable=true', now() + interval '1 hour' \
         FROM (VALUES (1, NULL::timestamptz), (2, now() + interval '1 day'), (3, now())) AS v (number, due)",
    );
    let messages = outbox.take("paid-orders", 2);
    let bodies: Vec<&str> = messages.iter().map(Message::text).collect();
    assert_eq!(bodies, [r#"{"message":{"order":1}}"#, r#"{"message":{"order":3}}"#]);
    let first = &messages[0];
    assert_eq!(content_type(first), "application/vnd.masstransit+json");
    let correlation = first.properties.correlation_id().as_ref().map(ToString::to_string);
    assert_eq!(correlation.as_deref(), Some("00000000-0000-0000-0000-000000000002"));
    let expiration = first.properties.expiration().as_ref().map(ToString::to_string).unwrap();
    // The transaction that reads the row may have begun a little before the row was made.
    assert!((3_000_000..=3_601_000).contains(&expiration.parse::<u32>().unwrap()), "{expiration}");
    for (name, value) in [
        ("tenant", "acme"),
        ("ConversationId", "00000000-0000-0000-0000-000000000001"),
        ("MessageType", "urn:message:Shop.Contracts:OrderPaid"),
    ] {
        assert_eq!(first.header(name).as_deref(), Some(value), "{name}");
    }
    let left = "SELECT count(*) FROM \"OutboxMessage\"";
    until("what is not due stays, the others are gone", || outbox.sql(left) == "1");
}

fn wolverine(stage: &Stage) {
    let outbox = Outbox::on(stage, "wolverine");
    outbox.sql(
        "CREATE SCHEMA wolverine; \
         CREATE TABLE wolverine.wolverine_outgoing_envelopes (id uuid NOT NULL PRIMARY KEY, owner_id integer NOT NULL, \
           destination varchar NOT NULL, deliver_by timestamptz, body bytea NOT NULL, attempts integer DEFAULT 0, \
           message_type varchar NOT NULL)",
    );
    let shown = Shown::under("Wolverine");
    outbox.sql(&shown.sql);
    outbox.take("shipping", 0);
    let _relay = shown.run(&outbox);
    outbox.sql(
        "INSERT INTO wolverine.wolverine_outgoing_envelopes (id, owner_id, destination, body, message_type) \
         SELECT gen_random_uuid(), 0, destination, '\\x0001ff', 'Shop.OrderPaid' \
         FROM unnest(ARRAY['rabbitmq://queue/shipping', 'tcp://localhost:2222']) destination",
    );
    let [message] = &outbox.take("shipping", 1)[..] else { panic!("there is one") };
    assert_eq!(&message.body[..], [0, 1, 0xff]);
    let kind = message.properties.kind().as_ref().map(ToString::to_string);
    assert_eq!(kind.as_deref(), Some("Shop.OrderPaid"));
    let left = "SELECT string_agg(destination, ',') FROM wolverine.wolverine_outgoing_envelopes";
    until("the other transport's row stays", || outbox.sql(left) == "tcp://localhost:2222");
}

#[test]
fn each_operation_of_an_nservicebus_row_is_a_message_once() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let outbox = Outbox::on(&stage, "nservicebus");
    outbox.sql(
        "CREATE TABLE \"OutboxData\" (\"MessageId\" varchar(200), \"Dispatched\" boolean NOT NULL DEFAULT false, \
           \"DispatchedAt\" timestamp, \"PersistenceVersion\" varchar(23), \"Operations\" jsonb NOT NULL, \
           PRIMARY KEY (\"MessageId\"))",
    );
    let shown = Shown::under("NServiceBus");
    outbox.sql(&shown.sql);
    outbox.take("billing", 0);
    bind(&stage, "Shop.Events:OrderPaid", ExchangeKind::Fanout, "", "billing");
    let _relay = shown.run(&outbox);
    // Two events and a command, of one handler. Once more as an update: that is the same again.
    outbox.sql(
        "INSERT INTO \"OutboxData\" (\"MessageId\", \"PersistenceVersion\", \"Operations\") \
         SELECT 'incoming', '8.0.0.0', jsonb_agg(jsonb_build_object('MessageId', 'op-' || number, 'Options', options, \
           'Headers', jsonb_build_object('NServiceBus.ContentType', 'application/json', \
             'NServiceBus.CorrelationId', 'c-1', 'NServiceBus.EnclosedMessageTypes', 'Shop.Events.OrderPaid, Shop'), \
           'Body', encode(convert_to('{\"number\":' || number || '}', 'UTF8'), 'base64')) ORDER BY number) \
         FROM (VALUES (1, '{\"EventType\": \"Shop.Events.OrderPaid, Shop, Version=1.0.0.0\"}'::jsonb), \
                      (2, '{\"Destination\": \"billing\"}'), \
                      (3, '{\"EventType\": \"Shop.Events.OrderPaid, Shop, Version=1.0.0.0\"}')) AS v (number, options)",
    );
    outbox.sql("UPDATE \"OutboxData\" SET \"Operations\" = \"Operations\"");
    outbox.sql("UPDATE \"OutboxData\" SET \"Operations\" = '[]', \"Dispatched\" = true");
    let messages = outbox.take("billing", 3);
    let mut bodies: Vec<&str> = messages.iter().map(Message::text).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [r#"{"number":1}"#, r#"{"number":2}"#, r#"{"number":3}"#]);
    let mut ids: Vec<String> = messages.iter().map(id).collect();
    ids.sort();
    assert_eq!(ids, ["op-1", "op-2", "op-3"]);
    let first = &messages[0];
    assert_eq!(content_type(first), "application/json");
    let kind = first.properties.kind().as_ref().map(ToString::to_string);
    assert_eq!(kind.as_deref(), Some("Shop.Events.OrderPaid"));
    let order = "SELECT string_agg(id, ',' ORDER BY seq) FROM nservicebus_outbox";
    assert_eq!(outbox.sql(order), "op-1,op-2,op-3");
    let left = "SELECT count(*) FROM nservicebus_outbox WHERE published_at IS NULL";
    until("all are marked", || outbox.sql(left) == "0");
}
