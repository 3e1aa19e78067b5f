//! Dead letters are sent on, and none is lost, whatever is killed meanwhile.

use std::collections::BTreeSet;

use client::{Address, Connection, Options, Outcome, Publisher, QueueSpec};
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, to, until, until_ready};

const RETRY: &str = "/millrace/queues/%2F/dead/retry";

/// Queues `jobs` and `dead`, and so many dead letters of the first in the second.
async fn with_dead_letters(managed: &Managed, count: usize) -> Connection {
    let mut client = until_connected(managed, "guest", "guest").await;
    client.declare_queue(&QueueSpec::durable("dead")).await.unwrap();
    client.declare_queue(&to("jobs", "dead", &[])).await.unwrap();
    let url = &managed.node.url;
    let mut publisher = Publisher::open(url, &Options::named("test"), 1000).await.unwrap();
    let properties = amqp::Properties { delivery_mode: Some(2), ..amqp::Properties::default() };
    for number in 0..count {
        let body = number.to_string();
        publisher.publish(Address::queue("jobs"), &properties, body.as_bytes()).await.unwrap();
    }
    assert!(publisher.close().await.unwrap().is_clean());
    for _ in 0..count {
        let job = client.get("jobs", false).await.unwrap().unwrap();
        client.settle(job.tag, Outcome::DeadLetter).await.unwrap();
    }
    until_ready(&mut client, "dead", u32::try_from(count).unwrap()).await;
    client
}

/// Begins a retry, and waits for its end.
fn retried(managed: &Managed, body: &Value) -> Value {
    let begun = managed.guest("POST", RETRY, body);
    assert_eq!(begun.status, 202, "{}", begun.body);
    ended(managed, begun.body["id"].as_str().unwrap())
}

fn ended(managed: &Managed, id: &str) -> Value {
    let mut shown = Value::Null;
    until("the retry is over", || {
        shown = managed.done("GET", &format!("/millrace/retries/{id}"), &Value::Null);
        shown["state"] != "running"
    });
    shown
}

/// The bodies of all messages of a queue, which it takes.
async fn take_all(client: &mut Connection, queue: &str, into: &mut BTreeSet<String>) -> usize {
    let mut count = 0;
    while let Some(got) = client.get(queue, true).await.unwrap() {
        into.insert(String::from_utf8(got.body.to_vec()).unwrap());
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_go_back_to_where_they_died_or_elsewhere() {
    let managed = Managed::start("management-retry");
    let mut client = with_dead_letters(&managed, 6).await;
    let listed = managed.done("GET", "/millrace/dead-letter-queues", &Value::Null);
    assert_eq!((listed[0]["name"].as_str(), listed.as_array().unwrap().len()), (Some("dead"), 1));
    let deaths = managed.done("GET", "/millrace/queues/%2F/dead/dead-letters", &Value::Null);
    let group = &deaths["groups"][0];
    assert_eq!((&group["died_in"], &group["reason"]), (&json!("jobs"), &json!("rejected")));
    assert_eq!((&group["count"], &deaths["whole"]), (&json!(6), &json!(true)));

    let dry = retried(&managed, &json!({ "dry_run": true }));
    assert_eq!((&dry["sent"], &dry["stay"], &dry["state"]), (&json!(6), &json!(0), &json!("done")));
    let target = json!({ "exchange": "", "routing_key": "jobs", "count": 6 });
    assert_eq!(dry["targets"], json!([target]));
    let astray = retried(&managed, &json!({ "dry_run": true, "exchange": "none" }));
    assert_eq!(astray["stay_reasons"][0]["reason"], "no_exchange", "{astray}");
    until_ready(&mut client, "dead", 6).await;

    // Two by their places, one by its text, and the first of those left; then to another queue.
    let some = retried(&managed, &json!({ "positions": ["2", "5", "99"] }));
    assert_eq!((&some["sent"], &some["gone"]), (&json!(2), &json!(1)), "{some}");
    assert_eq!(retried(&managed, &json!({ "contains": "5" }))["sent"], 1);
    assert_eq!(retried(&managed, &json!({ "limit": 1, "died_in": "jobs" }))["sent"], 1);
    assert_eq!(retried(&managed, &json!({ "reason": "expired" }))["matched"], 0);
    client.declare_queue(&QueueSpec::durable("elsewhere")).await.unwrap();
    assert_eq!(retried(&managed, &json!({ "queue": "elsewhere" }))["sent"], 2);
    for (queue, bodies) in [("jobs", &["1", "4", "5", "0"][..]), ("elsewhere", &["2", "3"])] {
        for body in bodies {
            let got = client.get(queue, false).await.unwrap().unwrap();
            assert_eq!((&got.body[..], got.redelivered), (body.as_bytes(), false), "{queue}");
            let properties = got.properties().unwrap();
            let headers = properties.headers.unwrap();
            let retries = headers.find("x-millrace-retries").and_then(|it| it.integer());
            assert_eq!(retries, Some(1));
            if queue == "jobs" {
                client.settle(got.tag, Outcome::DeadLetter).await.unwrap();
            }
        }
    }

    // They have died again: that is counted, and who has been sent on often enough stays.
    until_ready(&mut client, "dead", 4).await;
    let deaths = managed.done("GET", "/millrace/queues/%2F/dead/dead-letters", &Value::Null);
    assert_eq!((&deaths["groups"][0]["retries_max"], &deaths["seen"]), (&json!(1), &json!(4)));
    let stayed = retried(&managed, &json!({ "max_retries": 1 }));
    assert_eq!(stayed["stay_reasons"][0]["reason"], "too_often", "{stayed}");
    assert_eq!(retried(&managed, &json!({ "to": "exchange", "max_retries": 2 }))["sent"], 4);

    for (body, why) in [
        (json!({ "to": "nowhere" }), "to should be"),
        (json!({ "queue": "a", "exchange": "b" }), "one of"),
        (json!({ "positions": ["x"] }), "positions"),
        (json!({ "rate": 0 }), "rate should be"),
        (json!({ "speed": 1 }), "no field 'speed'"),
    ] {
        let answer = managed.guest("POST", RETRY, &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
        let reason = answer.body["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{body}: {reason}");
    }
}

/// A dead letter is mended and sent back in one step; the others stay as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_mended_and_goes_back() {
    let managed = Managed::start("management-retry-edit");
    managed.done_at_last("PUT", "/cluster-name", &json!({ "name": "mended" }));
    let mut client = with_dead_letters(&managed, 3).await;
    let mended = json!({ "kind": "mended", "count": 7, "x-death": "never" });
    let edit = json!({ "positions": ["2"], "payload": "new", "headers": mended });
    let mut dry = edit.clone();
    dry["dry_run"] = json!(true);
    assert_eq!(retried(&managed, &dry)["sent"], 1);
    until_ready(&mut client, "dead", 3).await;
    let told = retried(&managed, &edit);
    assert_eq!((&told["sent"], &told["stay"]), (&json!(1), &json!(0)), "{told}");
    assert_eq!(told["edited"], json!(["payload", "headers"]));
    let bytes = json!({ "positions": ["3"], "payload": "/w==", "payload_encoding": "base64" });
    let told = retried(&managed, &bytes);
    assert_eq!((&told["sent"], &told["edited"]), (&json!(1), &json!(["payload"])), "{told}");

    let got = client.get("jobs", false).await.unwrap().unwrap();
    assert_eq!((&got.body[..], got.redelivered), (&b"new"[..], false));
    let properties = got.properties().unwrap();
    assert_eq!(properties.delivery_mode, Some(2));
    let headers = properties.headers.unwrap();
    assert_eq!(headers.find("kind"), Some(amqp::ValueRef::LongStr(b"mended")));
    assert_eq!(headers.find("count").and_then(|it| it.integer()), Some(7));
    assert_eq!(headers.find("x-millrace-retries").and_then(|it| it.integer()), Some(1));
    let Some(amqp::ValueRef::Array(deaths)) = headers.find("x-death") else { panic!("no deaths") };
    assert_eq!(deaths.iter().count(), 2, "in jobs, and the retry");
    let got = client.get("jobs", true).await.unwrap().unwrap();
    assert_eq!(&got.body[..], b"\xff");
    until_ready(&mut client, "dead", 1).await;
    let left = managed.done("GET", "/queues/%2F/dead/messages", &Value::Null);
    assert_eq!((&left["items"][0]["payload"], &left["items"][1]), (&json!("0"), &Value::Null));
    let audited = managed.done("GET", "/millrace/audit?event=queue.retried", &Value::Null);
    let edited: Vec<&Value> = match &audited {
        Value::Array(events) => events.iter().map(|event| &event["details"]["edited"]).collect(),
        other => panic!("{other}"),
    };
    assert_eq!(edited, [&json!(true), &json!(true)]);

    let long = "x".repeat(17 << 20);
    for (body, why) in [
        (json!({ "payload": "a" }), "positions names one"),
        (json!({ "positions": ["1", "2"], "headers": {} }), "positions names one"),
        (json!({ "positions": ["1"], "payload": "a", "payload_encoding": "hex" }), "encoding"),
        (json!({ "positions": ["1"], "payload": long }), "a message may have"),
    ] {
        let answer = managed.guest("POST", RETRY, &body);
        assert_eq!(answer.status, 400, "{why}: {}", answer.body);
        let reason = answer.body["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{why}: {reason}");
    }
    until_ready(&mut client, "dead", 1).await;
}

/// One list tells of the dead letters of all queues whose vhosts the user sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_all_queues_are_told_in_one_list() {
    let managed = Managed::start("management-dead-letters");
    let mut client = with_dead_letters(&managed, 4).await;
    managed.done("PUT", "/vhosts/shop", &json!({}));
    let mut shop = managed.connect("guest", "guest", "shop").await.unwrap();
    shop.declare_queue(&QueueSpec::durable("lost")).await.unwrap();
    shop.declare_queue(&QueueSpec::durable("plain")).await.unwrap();
    let ttl = ("x-message-ttl", amqp::FieldValue::I32(1));
    shop.declare_queue(&to("orders", "lost", &[ttl])).await.unwrap();
    for _ in 0..6 {
        for queue in ["orders", "plain"] {
            let properties = amqp::Properties::default();
            shop.publish(Address::queue(queue), &properties, b"order").await.unwrap();
        }
    }
    let properties = amqp::Properties::default();
    shop.publish(Address::queue("lost"), &properties, b"no death").await.unwrap();
    until_ready(&mut shop, "lost", 7).await;

    let ask = |user: &str| managed.ask(Some((user, "secret")), "GET", "/millrace/dead-letters", "");
    let told = managed.done("GET", "/millrace/dead-letters", &Value::Null);
    assert_eq!(told["complete"], true, "{told}");
    let words = |told: &Value| -> Vec<String> {
        let groups = told["groups"].as_array().unwrap().iter();
        let word = |group: &Value, name: &str| group[name].as_str().unwrap_or("-").to_owned();
        let names = ["vhost", "queue", "reason", "died_in"];
        let line = |group: &Value| {
            let words: Vec<String> = names.iter().map(|name| word(group, name)).collect();
            format!("{} {}", words.join(" "), group["messages"])
        };
        groups.map(line).collect()
    };
    let (of_shop, of_jobs) = ("shop lost expired orders 6", "/ dead rejected jobs 4");
    assert_eq!(words(&told), [of_shop, of_jobs, "shop lost - - 1"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    for group in told["groups"].as_array().unwrap() {
        let age = |name: &str| group[name].as_u64().unwrap();
        assert!(age("oldest_at") <= age("newest_at"), "{group}");
        assert!(age("oldest_at").abs_diff(now.as_millis() as u64) < 600_000, "{group}");
    }
    managed.make_user("ann", "management", &["%2F"]);
    assert_eq!(words(&ask("ann").body), [of_jobs]);
    managed.make_user("bob", "", &["%2F"]);
    assert_eq!(ask("bob").status, 401);
    client.delete_queue("dead").await.unwrap();
    assert_eq!(words(&ask("ann").body), Vec::<String>::new());
}

/// Who may: to read from the queue, to publish where its messages go, and to look into messages for a text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_takes_the_rights_that_a_client_needs() {
    let managed = Managed::start("management-retry-rights");
    let mut client = with_dead_letters(&managed, 2).await;
    managed.make_user("ann", "management", &["%2F"]);
    let ask = |body: &Value| managed.ask(Some(("ann", "secret")), "POST", RETRY, &body.to_string());
    let rights = |write: &str, read: &str| {
        let rights = json!({ "configure": "", "write": write, "read": read });
        managed.done("PUT", "/permissions/%2F/ann", &rights);
    };
    rights(".*", "^jobs$");
    assert_eq!(ask(&json!({})).status, 401);
    rights("^none$", "^dead$");
    let begun = ask(&json!({}));
    assert_eq!(begun.status, 202, "{}", begun.body);
    let told = ended(&managed, begun.body["id"].as_str().unwrap());
    assert_eq!(told["stay_reasons"][0]["reason"], "not_allowed", "{told}");
    until_ready(&mut client, "dead", 2).await;
    rights("^amq\\.default$", "^dead$");
    assert_eq!(ask(&json!({ "contains": "1" })).status, 401, "payloads are private");
    let begun = ask(&json!({}));
    let told = ended(&managed, begun.body["id"].as_str().unwrap());
    assert_eq!(told["sent"], 2, "{told}");
    until_ready(&mut client, "jobs", 2).await;
}

/// One at a time for a queue, at its rate; it can be stopped, and goes on with what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_is_held_to_its_rate_and_can_be_stopped() {
    let managed = Managed::start("management-retry-stop");
    let mut client = with_dead_letters(&managed, 20).await;
    let slow = managed.done("POST", RETRY, &json!({ "rate": 1 }));
    assert_eq!(slow["state"], "running", "{slow}");
    let again = managed.guest("POST", RETRY, &json!({}));
    assert_eq!(again.status, 400);
    assert!(again.body["reason"].as_str().unwrap().contains("runs still"), "{}", again.body);
    let id = slow["id"].as_str().unwrap();
    let path = format!("/millrace/retries/{id}");
    assert_eq!(managed.guest("DELETE", &path, &Value::Null).status, 204);
    let told = ended(&managed, id);
    assert_eq!(told["state"], "stopped");
    let sent = told["sent"].as_u64().unwrap();
    assert!(sent < 20, "{told}");
    assert_eq!(managed.guest("DELETE", "/millrace/retries/1-99", &Value::Null).status, 404);
    until_ready(&mut client, "dead", 20 - sent as u32).await;
    assert_eq!(retried(&managed, &json!({}))["sent"], 20 - sent);
    until_ready(&mut client, "jobs", 20).await;
    let listed = managed.done("GET", "/millrace/retries", &Value::Null);
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_when_the_node_is_killed_during_a_retry() {
    const MESSAGES: usize = 2000;
    let mut managed = Managed::start("management-retry-kill");
    drop(with_dead_letters(&managed, MESSAGES).await);
    for _ in 0..3 {
        let begun = managed.done("POST", RETRY, &json!({ "rate": 400 }));
        let path = format!("/millrace/retries/{}", begun["id"].as_str().unwrap());
        let before = begun["sent"].as_u64().unwrap();
        until("some of them are sent on", || {
            let told = managed.done("GET", &path, &Value::Null);
            told["sent"].as_u64().unwrap() > before || told["state"] != "running"
        });
        managed.node.crash();
    }
    let mut client = until_connected(&managed, "guest", "guest").await;
    let told = retried(&managed, &json!({}));
    assert_eq!((&told["state"], &told["stay"]), (&json!("done"), &json!(0)), "{told}");
    until_ready(&mut client, "dead", 0).await;
    let mut seen = BTreeSet::new();
    let count = take_all(&mut client, "jobs", &mut seen).await;
    println!("{count} messages of {MESSAGES}");
    assert_eq!(seen.len(), MESSAGES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_goes_on_when_another_node_is_killed() {
    const MESSAGES: usize = 600;
    let nodes = Node::start_three("management-retry-cluster").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    drop(with_dead_letters(&nodes[0], MESSAGES).await);
    let led_by = |queue: &str| {
        let shown = nodes[0].done("GET", &format!("/queues/%2F/{queue}"), &Value::Null);
        let leader = shown["node"].as_str().unwrap().to_owned();
        leader.rsplit('@').next().unwrap().parse::<usize>().unwrap()
    };
    // The leader of the dead letters is killed, or of the others if this node leads those.
    let victim = ["dead", "jobs"].map(led_by).into_iter().find(|node| *node != 1).unwrap_or(2);
    until("the newest version is agreed on", || {
        nodes[0].guest("POST", RETRY, &json!({ "dry_run": true })).status == 202
    });
    let begun = nodes[0].done("POST", RETRY, &json!({ "rate": 200 }));
    assert_eq!(begun["state"], "running", "{begun}");
    nodes[victim - 1].node.kill();
    let id = begun["id"].as_str().unwrap().to_owned();
    let other = (2..=3).find(|node| *node != victim).unwrap();
    let seen_there = format!("/millrace/retries/{id}");
    until("another node tells of it", || {
        nodes[other - 1].guest("GET", &seen_there, &Value::Null).status == 200
    });
    let told = ended(&nodes[0], &id);
    assert_eq!((&told["state"], &told["stay"]), (&json!("done"), &json!(0)), "{told}");
    // What was held by a leader that is gone may need another look.
    retried(&nodes[0], &json!({}));
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    until_ready(&mut client, "dead", 0).await;
    let mut seen = BTreeSet::new();
    take_all(&mut client, "jobs", &mut seen).await;
    assert_eq!(seen.len(), MESSAGES);
}
