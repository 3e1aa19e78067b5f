//! Messages are looked at, and nothing is taken.

use client::{Connection, QueueSpec};
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

/// Messages are looked at wherever they are, by whoever may; then they come as if nobody had looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_looked_at_and_nothing_is_taken() {
    let managed = Managed::start("management-peek");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let publish = async |client: &mut Connection, body: &[u8], delay: Option<i64>| {
        let kind = ("kind".to_owned(), amqp::FieldValue::LongStr(b"letter".to_vec()));
        let delay = delay.map(|ms| ("x-delay".to_owned(), amqp::FieldValue::I64(ms)));
        let raw = amqp::FieldTable([kind].into_iter().chain(delay).collect()).to_bytes();
        let headers = Some(amqp::TableRef::validate(&raw).unwrap());
        let properties = amqp::Properties { headers, ..amqp::Properties::default() };
        client.publish(client::Address::queue("jobs"), &properties, body).await.unwrap();
    };
    for body in [&b"one"[..], b"two", b"\xff\xfe", "f\u{fc}nf".as_bytes()] {
        publish(&mut client, body, None).await;
    }
    publish(&mut client, b"later", Some(3_600_000)).await;
    let mut holder = managed.connect("guest", "guest", "/").await.unwrap();
    let held = holder.get("jobs", false).await.unwrap().unwrap();
    assert_eq!(held.body, &b"one"[..]);

    let path = "/queues/%2F/jobs/messages";
    let look = |query: &str| managed.done("GET", &format!("{path}?{query}"), &Value::Null);
    let texts = |shown: &Value, field: &str| -> Vec<String> {
        let items = shown["items"].as_array().unwrap().iter();
        items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    let all = look("");
    assert_eq!(texts(&all, "state"), ["unacked", "ready", "ready", "ready", "delayed"]);
    assert_eq!(texts(&all, "payload"), ["one", "two", "//4=", "f\u{fc}nf", "later"]);
    assert_eq!(texts(&all, "position"), ["1", "2", "3", "4", "5"]);
    assert_eq!(all["next"], Value::Null);
    let [one, two, three, ..] = &all["items"].as_array().unwrap()[..] else { panic!("{all}") };
    assert_eq!((&two["exchange"], &two["routing_key"]), (&json!(""), &json!("jobs")));
    assert_eq!(two["properties"]["headers"]["kind"], "letter");
    assert_eq!(
        (&three["payload_encoding"], &three["payload_bytes"]),
        (&json!("base64"), &json!(2))
    );
    let connection = one["holder"]["connection"].as_str().unwrap();
    assert!(connection.starts_with("1-"), "{one}");
    assert_eq!(one["holder"]["user"], "guest");
    let listed = managed.done("GET", "/connections", &Value::Null);
    let listed = listed.as_array().unwrap().iter();
    let named = listed.filter(|it| it["millrace"]["id"] == one["holder"]["connection"]);
    let named: Vec<&Value> = named.map(|it| &it["name"]).collect();
    assert_eq!(named, [&one["holder"]["connection_name"]], "the connection that holds it");
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let came_ms = two["enqueued_at"].as_u64().unwrap();
    assert!(came_ms.abs_diff(now_ms.as_millis() as u64) < 600_000, "{came_ms}");

    assert_eq!(texts(&look("state=ready&count=1"), "payload"), ["two"]);
    assert_eq!(look("state=ready&count=1")["next"], "3");
    assert_eq!(texts(&look("from=3&state=ready"), "payload"), ["//4=", "f\u{fc}nf"]);
    assert_eq!(texts(&look("state=delayed"), "payload"), ["later"]);
    assert_eq!(texts(&look("contains=wo"), "payload"), ["two"]);
    assert_eq!(texts(&look("contains=letter&count=2"), "payload"), ["one", "two"]);
    let cut = look("from=4&count=1&truncate=2");
    assert_eq!(
        (&cut["items"][0]["payload"], &cut["items"][0]["truncated"]),
        (&json!("f"), &json!(true))
    );
    assert_eq!(texts(&look("state=dead"), "payload"), Vec::<String>::new());
    for (query, why) in [
        ("state=lost", "ready, unacked, delayed, dead or all"),
        ("count=0", "from 1 to 1000"),
        ("from=here", "position"),
        ("encoding=hex", "encoding"),
        ("truncate=-1", "whole number"),
    ] {
        let answer = managed.guest("GET", &format!("{path}?{query}"), &Value::Null);
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body["reason"].as_str().unwrap().contains(why), "{query}: {}", answer.body);
    }

    // The tag alone is not enough, nor is the permission.
    managed.make_user("ann", "peek", &[]);
    managed.make_user("bob", "monitoring", &["%2F"]);
    let status = |user| managed.ask(Some((user, "secret")), "GET", path, "").status;
    assert_eq!((status("ann"), status("bob")), (401, 401));
    let read = |pattern: &str| json!({ "configure": "", "write": "", "read": pattern });
    managed.done("PUT", "/permissions/%2F/ann", &read("^letters$"));
    assert_eq!(status("ann"), 401, "another queue");
    managed.done("PUT", "/permissions/%2F/ann", &read("^jobs$"));
    assert_eq!(status("ann"), 200);

    drop(client);
    let mut consumer = managed.connect("guest", "guest", "/").await.unwrap();
    for body in ["two".as_bytes(), b"\xff\xfe", "f\u{fc}nf".as_bytes()] {
        let got = consumer.get("jobs", true).await.unwrap().unwrap();
        assert_eq!((&got.body[..], got.redelivered), (body, false));
    }
    assert!(consumer.get("jobs", true).await.unwrap().is_none());
    drop(holder);
    until("what was held is back", || texts(&look("state=ready"), "payload") == ["one"]);
    assert!(consumer.get("jobs", true).await.unwrap().unwrap().redelivered, "a client saw it");
}

/// What a look shows, in words.
fn texts(shown: &Value, field: &str) -> Vec<String> {
    let items = shown["items"].as_array().unwrap_or_else(|| panic!("{shown}")).iter();
    items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
}

/// Each message with the header `number`, and with `kind` the letter behind it.
async fn publish_numbers(client: &mut Connection, queue: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let kind = ["a", "b", "c"][number as usize % 3].as_bytes().to_vec();
        let raw = amqp::FieldTable(vec![
            ("number".to_owned(), amqp::FieldValue::I64(number.into())),
            ("kind".to_owned(), amqp::FieldValue::LongStr(kind)),
        ]);
        let raw = raw.to_bytes();
        let headers = Some(amqp::TableRef::validate(&raw).unwrap());
        // Of queues with priorities: 1 for the odd ones.
        let priority = Some((number % 2) as u8);
        let properties = amqp::Properties { headers, priority, ..amqp::Properties::default() };
        let to = client::Address::queue(queue);
        client.publish(to, &properties, number.to_string().as_bytes()).await.unwrap();
    }
}

/// For each time at which a message came, a look from that time on shows what came then or later.
fn assert_found_by_time(look: impl Fn(&str) -> Value) {
    let all = look("count=1000");
    let items = all["items"].as_array().unwrap();
    let time = |item: &Value| item["enqueued_at"].as_u64().unwrap();
    let times: std::collections::BTreeSet<u64> = items.iter().map(time).collect();
    assert!(times.len() > 1, "{times:?}");
    let beyond = times.last().unwrap() + 1;
    for from in times.into_iter().chain([0, beyond]) {
        let later = items.iter().filter(|item| time(item) >= from);
        let later: Vec<&str> = later.map(|item| item["position"].as_str().unwrap()).collect();
        let shown = look(&format!("count=1000&from_time={from}"));
        assert_eq!(texts(&shown, "position"), later, "{from}");
        assert_eq!((&shown["time_is_exact"], &shown["next"]), (&json!(true), &Value::Null));
    }
}

/// Messages are found by when they came, from the end and by a header, also page by page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_found_by_time_from_the_end_and_by_a_header() {
    let managed = Managed::start("management-peek-found");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    let with = |name: &str, value: amqp::FieldValue| {
        let arguments = amqp::FieldTable(vec![(name.to_owned(), value)]);
        QueueSpec { arguments, ..QueueSpec::durable("") }
    };
    let text = amqp::FieldValue::LongStr(b"stream".to_vec());
    for (queue, spec) in [
        ("plain", QueueSpec::durable("")),
        ("urgent", with("x-max-priority", amqp::FieldValue::I32(2))),
        ("stream", with("x-queue-type", text)),
    ] {
        client.declare_queue(&QueueSpec { name: queue.to_owned(), ..spec }).await.unwrap();
        publish_numbers(&mut client, queue, 0..60).await;
        let path = format!("/queues/%2F/{queue}/messages");
        let look = |query: &str| managed.done("GET", &format!("{path}?{query}"), &Value::Null);
        assert_found_by_time(look);

        let all = texts(&look(""), "payload");
        assert_eq!(texts(&look("from=last&count=7"), "payload"), all[53..], "{queue}");
        assert_eq!(texts(&look("from=last&count=50"), "payload"), all[10..], "{queue}");
        assert_eq!(texts(&look("from=last&count=100"), "payload"), all, "{queue}");
        let of_last = look("from=last&count=7&header=kind:a");
        let is_a = |it: &&String| it.parse::<u32>().unwrap() % 3 == 0;
        let wanted: Vec<&String> = all[53..].iter().filter(is_a).collect();
        assert_eq!(texts(&of_last, "payload").iter().collect::<Vec<_>>(), wanted, "{queue}");

        let wanted: Vec<&String> = all.iter().filter(is_a).collect();
        let whole = look("header=kind:a");
        assert_eq!(texts(&whole, "payload").iter().collect::<Vec<_>>(), wanted, "{queue}");
        assert_eq!(whole["next"], Value::Null);
        let (mut paged, mut from) = (Vec::new(), String::new());
        loop {
            let page = look(&format!("header=kind:a&count=3&from={from}"));
            assert!(texts(&page, "payload").len() <= 3);
            paged.extend(texts(&page, "payload"));
            let Some(next) = page["next"].as_str() else { break };
            next.clone_into(&mut from);
        }
        assert_eq!(paged.iter().collect::<Vec<_>>(), wanted, "{queue}");
        assert_eq!(texts(&look("header=number:17"), "payload"), ["17"]);
        assert_eq!(texts(&look("header=number:170"), "payload"), Vec::<String>::new());
        assert_eq!(texts(&look("header=number:17&contains=nothing"), "payload"), [""; 0]);
    }

    // From a time on, page by page: of both priorities what came then or later.
    let look = |query: &str| {
        managed.done("GET", &format!("/queues/%2F/urgent/messages?{query}"), &Value::Null)
    };
    let all = look("");
    let items = all["items"].as_array().unwrap();
    let from_time = items[20]["enqueued_at"].as_u64().unwrap();
    let later = items.iter().filter(|item| item["enqueued_at"].as_u64().unwrap() >= from_time);
    let later: Vec<&str> = later.map(|item| item["position"].as_str().unwrap()).collect();
    let (mut paged, mut from) = (Vec::new(), String::new());
    loop {
        let page = look(&format!("from_time={from_time}&count=4&from={from}"));
        paged.extend(texts(&page, "position"));
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut from);
    }
    assert_eq!(paged, later);

    // What is gone in between does not count.
    for _ in 0..40 {
        client.get("plain", true).await.unwrap().unwrap();
    }
    publish_numbers(&mut client, "plain", 60..61).await;
    let look = |query: &str| {
        managed.done("GET", &format!("/queues/%2F/plain/messages?{query}"), &Value::Null)
    };
    let last: Vec<String> = (51..61).map(|number: u32| number.to_string()).collect();
    assert_eq!(texts(&look("from=last&count=10"), "payload"), last);
    assert_eq!(texts(&look("from=last&count=1000"), "payload").len(), 21);

    client
        .declare_queue(&QueueSpec { durable: false, ..QueueSpec::durable("memory") })
        .await
        .unwrap();
    for (queue, query, why) in [
        ("plain", "from=last&from_time=1", "no from_time"),
        ("plain", "from_time=today", "milliseconds since 1970"),
        ("plain", "header=kind", "NAME:VALUE"),
        ("memory", "from_time=1", "do not say when they came"),
    ] {
        let path = format!("/queues/%2F/{queue}/messages?{query}");
        let answer = managed.guest("GET", &path, &Value::Null);
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body["reason"].as_str().unwrap().contains(why), "{query}: {}", answer.body);
    }
    managed.make_user("bob", "monitoring", &["%2F"]);
    let path = "/queues/%2F/plain/messages?header=kind:a";
    assert_eq!(managed.ask(Some(("bob", "secret")), "GET", path, "").status, 401);
}

/// A dead letter is shown with its history; a node that does not lead the queue shows its messages, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_shows_the_messages_of_a_queue() {
    let nodes = Node::start_three("management-peek-cluster").into_iter().map(Managed::of);
    let nodes: Vec<Managed> = nodes.collect();
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    let to_dead = [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", "dead")];
    let text = |text: &str| amqp::FieldValue::LongStr(text.as_bytes().to_vec());
    let to_dead = to_dead.map(|(name, value)| (name.to_owned(), text(value)));
    let arguments = amqp::FieldTable(to_dead.to_vec());
    client.declare_queue(&QueueSpec::durable("dead")).await.unwrap();
    let jobs = QueueSpec { arguments, ..QueueSpec::durable("jobs") };
    client.declare_queue(&jobs).await.unwrap();
    for body in [&b"bad"[..], b"fine"] {
        let to = client::Address::queue("jobs");
        client.publish(to, &amqp::Properties::default(), body).await.unwrap();
    }
    let bad = client.get("jobs", false).await.unwrap().unwrap();
    client.settle(bad.tag, client::Outcome::DeadLetter).await.unwrap();
    for node in &nodes {
        let look = |queue: &str| {
            let answer = node.guest("GET", &format!("/queues/%2F/{queue}/messages"), &Value::Null);
            // Until all have agreed on the newest version, and the dead letter is stored.
            answer.body["items"][0].clone()
        };
        until("its messages are shown", || look("jobs")["payload"] == "fine");
        until("its dead letter is shown", || look("dead")["payload"] == "bad");
        let death = look("dead")["dead_letter_history"][0].clone();
        assert_eq!((&death["queue"], &death["reason"]), (&json!("jobs"), &json!("rejected")));
    }
    publish_numbers(&mut client, "jobs", 0..30).await;
    for node in &nodes {
        let look = |query: &str| {
            node.done("GET", &format!("/queues/%2F/jobs/messages?{query}"), &Value::Null)
        };
        assert_found_by_time(look);
        assert_eq!(texts(&look("from=last&count=2"), "payload"), ["28", "29"]);
        assert_eq!(texts(&look("header=number:7"), "payload"), ["7"]);
    }
    let got = client.get("jobs", true).await.unwrap().unwrap();
    assert_eq!((&got.body[..], got.redelivered), (&b"fine"[..], false));
}
