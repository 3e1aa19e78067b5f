//! Who holds messages, and since when.

use client::{Consumer, ConsumerOptions, Options};
use serde_json::{Value, json};

use super::Managed;
use crate::node::until;

/// Of two consumers that hold messages the one that has held one for longest is the first, and says since when at least;
/// who holds none is not listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_held_a_message_for_longest_is_listed_first() {
    let managed = Managed::start("management-held");
    // The connection looks at what it holds as often as a quarter of this time.
    let spec = json!({ "durable": true, "arguments": { "x-consumer-timeout": 100_000 } });
    for queue in ["slow", "later", "idle"] {
        managed.done("PUT", &format!("/queues/%2F/{queue}"), &spec);
    }
    let publish = |queue: &str| {
        let message = json!({ "routing_key": queue, "payload": "x", "payload_encoding": "string", "properties": {} });
        managed.done("POST", "/exchanges/%2F/amq.default/publish", &message);
    };
    let open = async |queue: &'static str| {
        let how = ConsumerOptions { prefetch: 10, ..ConsumerOptions::default() };
        let options = Options::named(queue);
        Consumer::open(&managed.node.url, &options, queue, how).await.unwrap()
    };
    let now_ms = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_millis() as u64
    };
    let began_ms = now_ms();
    publish("slow");
    let (mut slow, _idle) = (open("slow").await, open("idle").await);
    assert_eq!(slow.next().await.unwrap().body, b"x".as_slice());
    let held = || managed.done("GET", "/millrace/held", &Value::Null);
    let queues = |told: &Value| -> Vec<String> {
        let all = told.as_array().unwrap().iter();
        all.map(|it| it["queue"]["name"].as_str().unwrap().to_owned()).collect()
    };
    until("the first is listed", || queues(&held()) == ["slow"]);
    publish("later");
    publish("later");
    let mut later = open("later").await;
    for _ in 0..2 {
        assert_eq!(later.next().await.unwrap().body, b"x".as_slice());
    }
    until("the connection has looked at what it holds", || {
        let told = held();
        told[0]["oldest_held_at"].is_u64() && queues(&told) == ["slow", "later"]
    });
    let told = held();
    let at = told[0]["oldest_held_at"].as_u64().unwrap();
    assert!(began_ms <= at && at <= now_ms(), "{told}");
    assert_eq!(told[0]["millrace"]["held"], 1, "{told}");
    let paged = managed.done("GET", "/millrace/held?page=1&page_size=1", &Value::Null);
    assert_eq!((&paged["filtered_count"], &paged["page_count"]), (&json!(2), &json!(2)), "{paged}");
    assert_eq!(paged["items"][0]["queue"]["name"], "slow", "{paged}");
    let consumers = managed.done("GET", "/consumers", &Value::Null);
    let of_slow = consumers.as_array().unwrap().iter().find(|it| it["queue"]["name"] == "slow");
    assert_eq!(of_slow.unwrap()["oldest_held_at"], at);
    let messages = || managed.done("GET", "/queues/%2F/slow/messages?state=unacked", &Value::Null);
    let holder = messages()["items"][0]["holder"].clone();
    assert_eq!((&holder["held_since"], &holder["user"]), (&json!(at), &json!("guest")), "{holder}");
    managed.make_user("ann", "management", &["%2F"]);
    let hidden = managed.ask(Some(("ann", "secret")), "GET", "/millrace/held", "");
    assert_eq!(hidden.body, json!([]), "they are another user's");
    drop(slow);
    until("what came back is held by nobody", || queues(&held()) == ["later"]);
}
