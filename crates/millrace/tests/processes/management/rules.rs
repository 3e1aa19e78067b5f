//! Policies, limits, topic permissions and the types of queues are obeyed.

use client::{Connection, QueueSpec};
use serde_json::{Value, json};

use super::Managed;
use crate::node::until;

/// Policies act on living queues: messages that are too many leave, dead letters go where the policy says, and without
/// it the queue is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_acts_on_a_living_queue() {
    let managed = Managed::start("management-policies");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    for queue in ["jobs", "dead"] {
        client.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
    }
    let fill = async |client: &mut Connection| {
        for body in ["one", "two", "three"] {
            let to = client::Address::queue("jobs");
            client.publish(to, &amqp::Properties::default(), body.as_bytes()).await.unwrap();
        }
    };
    fill(&mut client).await;
    let policy = |definition: Value| json!({ "pattern": "^jobs$", "definition": definition });
    let dead =
        json!({ "dead-letter-exchange": "", "dead-letter-routing-key": "dead", "max-length": 1 });
    managed.done_at_last("PUT", "/policies/%2F/short", &policy(dead.clone()));
    assert_eq!(managed.guest("PUT", "/policies/%2F/short", &policy(dead)).status, 204);
    let ready = |queue: &str| {
        let shown = managed.done("GET", &format!("/queues/%2F/{queue}"), &Value::Null);
        shown["messages_ready"].as_u64()
    };
    until("the queue is short", || ready("jobs") == Some(1));
    until("what left it is where the policy says", || ready("dead") == Some(2));
    let shown = managed.done("GET", "/queues/%2F/jobs", &Value::Null);
    assert_eq!(shown["policy"], "short");
    assert_eq!(shown["effective_policy_definition"]["max-length"], 1);
    let limit = policy(json!({ "max-length": 2 }));
    managed.done("PUT", "/operator-policies/%2F/limit", &limit);
    managed.done("DELETE", "/policies/%2F/short", &Value::Null);
    fill(&mut client).await;
    until("the operator's limit counts", || ready("jobs") == Some(2));
    managed.done("DELETE", "/operator-policies/%2F/limit", &Value::Null);
    fill(&mut client).await;
    until("there is no limit", || ready("jobs") == Some(5));
    for (wrong, why) in [
        (json!({ "pattern": "(", "definition": { "max-length": 1 } }), "regular expression"),
        (json!({ "pattern": "x", "definition": { "unknown": 1 } }), "not recognised"),
        (json!({ "pattern": "x", "definition": {} }), "no policy"),
        (json!({ "pattern": "x" }), "key_missing"),
        (
            json!({ "pattern": "x", "definition": { "max-length": 1 }, "apply-to": "all of it" }),
            "unrecognised",
        ),
        (
            json!({ "pattern": "x", "definition": { "max-length": 1 }, "priority": "high" }),
            "priority",
        ),
    ] {
        let answer = managed.guest("PUT", "/policies/%2F/wrong", &wrong);
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.body["reason"].as_str().unwrap().contains(why), "{wrong}: {}", answer.body);
    }
}

/// What is over a limit is refused in RabbitMQ's words, and room comes back; topic permissions say which keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_topic_permissions_are_obeyed() {
    let managed = Managed::start("management-limits");
    managed.done("PUT", "/vhosts/shop", &json!({}));
    managed.make_user("ann", "", &["shop"]);
    let set = |path: &str, value: i64| {
        managed.done_at_last("PUT", path, &json!({ "value": value }));
    };
    let connect = || managed.connect("ann", "secret", "shop");
    let refused = async |why: &str| {
        let error = connect().await.map(drop).unwrap_err();
        assert_eq!(error.code(), Some(530), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    set("/user-limits/ann/max-connections", 2);
    let (one, mut two) = (connect().await.unwrap(), connect().await.unwrap());
    refused("user connection limit (2) is reached").await;
    drop(one);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let three = loop {
        match connect().await {
            Ok(connection) => break connection,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    };
    set("/user-limits/ann/max-connections", -1);
    set("/vhost-limits/shop/max-connections", 1);
    refused("connection limit (1) is reached").await;
    let listed = managed.done("GET", "/vhost-limits", &Value::Null);
    assert_eq!(listed, json!([{ "vhost": "shop", "value": { "max-connections": 1 } }]));
    assert_eq!(managed.done("GET", "/user-limits", &Value::Null), json!([]));
    managed.done("DELETE", "/vhost-limits/shop/max-connections", &Value::Null);
    drop(three);

    set("/vhost-limits/shop/max-queues", 1);
    two.declare_queue(&QueueSpec::durable("one")).await.unwrap();
    let over = two.declare_queue(&QueueSpec::durable("two")).await.unwrap_err();
    assert_eq!(over.code(), Some(406));
    let over = over.to_string();
    assert!(over.contains("queue limit in vhost 'shop' (1) is reached"), "{over}");

    let topic = json!({ "exchange": "amq.topic", "write": "^{username}\\.", "read": "" });
    managed.done("PUT", "/topic-permissions/shop/ann", &topic);
    let mut ann = connect().await.unwrap();
    let to = |routing_key: &'static str| client::Address {
        exchange: "amq.topic",
        routing_key,
        mandatory: false,
    };
    ann.publish(to("ann.orders"), &amqp::Properties::default(), b"1").await.unwrap();
    let error = ann.publish(to("bob.orders"), &amqp::Properties::default(), b"1").await;
    assert_eq!(error.unwrap_err().code(), Some(403));
    managed.done("DELETE", "/topic-permissions/shop/ann", &Value::Null);
    let mut ann = connect().await.unwrap();
    ann.publish(to("bob.orders"), &amqp::Properties::default(), b"1").await.unwrap();

    for (path, value, why) in [
        ("/user-limits/ann/max-queues", json!(1), "no limit 'max-queues'"),
        ("/vhost-limits/shop/max-channels", json!(1), "no limit 'max-channels'"),
        ("/vhost-limits/shop/max-queues", json!("many"), "whole number"),
        ("/vhost-limits/shop/max-queues", json!(1u64 << 40), "whole number"),
        ("/vhost-limits/shop/max-queues", Value::Null, "missing"),
    ] {
        let answer = managed.guest("PUT", path, &json!({ "value": value }));
        assert_eq!(answer.status, 400, "{path} {value}");
        assert!(answer.body["reason"].as_str().unwrap().contains(why), "{path}: {}", answer.body);
    }
}

/// Queues that are declared without a type get that of their vhost, and are found by the same declaration again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vhost_gives_its_queues_a_type() {
    let managed = Managed::start("management-types");
    let mut early = managed.connect("guest", "guest", "/").await.unwrap();
    early.declare_queue(&QueueSpec::durable("older")).await.unwrap();
    managed.done_at_last("PUT", "/vhosts/%2F", &json!({ "default_queue_type": "quorum" }));
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    for _ in 0..2 {
        client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
        client.declare_queue(&QueueSpec::durable("older")).await.unwrap();
    }
    let shown = managed.done("GET", "/queues/%2F/jobs", &Value::Null);
    assert_eq!(
        (&shown["type"], &shown["arguments"]["x-queue-type"]),
        (&json!("quorum"), &json!("quorum"))
    );
    let vhost = managed.done("GET", "/vhosts/%2F", &Value::Null);
    assert_eq!(vhost["default_queue_type"], "quorum");
}
