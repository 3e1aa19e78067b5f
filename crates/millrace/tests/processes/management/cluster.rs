//! Whichever node of a cluster is asked.

use client::QueueSpec;
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

/// Whichever node is asked tells of the connections of all, and closes any; limits count over all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_tells_of_all() {
    let nodes = Node::start_three("management-cluster").into_iter().map(Managed::of);
    let [one, mut two, three] = nodes.collect::<Vec<_>>().try_into().ok().unwrap();
    one.make_user("ann", "", &["%2F"]);
    let mut client = until_connected(&two, "ann", "secret").await;
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let names = |managed: &Managed, path: &str| -> Vec<String> {
        let shown = managed.done("GET", path, &Value::Null);
        let items = shown.as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    until("the connection is in the list of another node", || {
        names(&one, "/connections").len() == 1
    });
    let name = names(&one, "/connections").remove(0);
    let path = format!("/connections/{}", name.replace(' ', "%20").replace('>', "%3E"));
    let shown = one.done("GET", &path, &Value::Null);
    assert_eq!((&shown["node"], &shown["user"]), (&json!("millrace@2"), &json!("ann")));
    assert_eq!(one.done("GET", "/overview", &Value::Null)["object_totals"]["connections"], 1);
    let nodes = one.done("GET", "/nodes", &Value::Null);
    for node in nodes.as_array().unwrap() {
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"), "{node}");
        assert!(node["address"].as_str().is_some_and(|it| it.contains(':')), "{node}");
    }
    let running = nodes.as_array().unwrap().iter().map(|node| node["running"].clone());
    assert_eq!(running.collect::<Vec<_>>(), [json!(true), json!(true), json!(true)]);

    let message = json!({ "routing_key": "jobs", "payload": "x", "payload_encoding": "string", "properties": {} });
    one.done("POST", "/exchanges/%2F/amq.default/publish", &message);
    for node in [&one, &two, &three] {
        until("each node says how long the oldest message waits", || {
            node.done("GET", "/queues/%2F/jobs", &Value::Null)["oldest_ready_at"].is_u64()
        });
    }

    one.done_at_last("PUT", "/user-limits/ann/max-connections", &json!({ "value": 1 }));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // The others have said within seconds how many there are.
    while let Ok(connection) = three.connect("ann", "secret", "/").await {
        drop(connection);
        assert!(std::time::Instant::now() < deadline, "a second connection at another node");
    }
    one.done("DELETE", &path, &Value::Null);
    let closed = client.look_up_queue("jobs").await.unwrap_err();
    assert_eq!(closed.code(), Some(320), "{closed:?}");
    until("room comes back", || names(&one, "/connections").is_empty());
    let again = until_connected(&three, "ann", "secret").await;
    drop(again);
    // The queue's creation is an entry of its group, so there is something to compare.
    until("replicas have compared what they did", || {
        let told = three.done("GET", "/millrace/reconcile", &Value::Null);
        assert_eq!((&told["wrong_queues"], &told["differing_groups"]), (&json!(0), &json!(0)));
        let compared = |group: &Value| group["comparisons"].as_array().unwrap().len() >= 2;
        told["verdict"] == "ok" && told["groups"].as_array().unwrap().iter().any(compared)
    });
    two.node.kill();
    until("not everything can be looked at", || {
        let told = one.done("GET", "/millrace/reconcile", &Value::Null);
        told["verdict"] == "unknown" && told["silent"] == json!(["millrace@2"])
    });
    until("a node that is gone is a problem", || {
        let told = one.done("GET", "/millrace/problems", &Value::Null);
        let problems = told["problems"].as_array().unwrap();
        let is_gone =
            |it: &Value| it["kind"] == "node_unreachable" && it["object"]["node"] == "millrace@2";
        let found = problems.iter().find(|it| is_gone(it));
        found.is_some_and(|it| it["seen_by"].as_array().unwrap().len() == 2)
    });
    let past = one.done("GET", "/millrace/history?seconds=60", &Value::Null);
    assert_eq!(past["silent"], json!(["millrace@2"]));
    until("a node that is gone is not running", || {
        one.done("GET", "/nodes/millrace@2", &Value::Null)["running"] == json!(false)
    });
}
