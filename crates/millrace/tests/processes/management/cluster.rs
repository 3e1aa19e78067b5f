//! Whichever node of a cluster is asked.

use client::QueueSpec;
use serde_json::{Value, json};

use super::{Managed, basic, send, until_connected};
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
    for node in [&one, &two, &three] {
        until("each node says how far all replicas are", || {
            let groups = node.done("GET", "/millrace/groups", &Value::Null);
            groups.as_array().unwrap().iter().all(|group| {
                let replicas = group["replicas"].as_array().unwrap();
                let is_known = |it: &Value| it["matched"].is_u64() && it["behind"] == 0;
                group["leader"].is_string() && replicas.len() == 3 && replicas.iter().all(is_known)
            })
        });
        for number in 1..=3 {
            let path = format!("/millrace/nodes/millrace@{number}/disk");
            let disk = node.done("GET", &path, &Value::Null);
            let parts = disk["parts"].as_array().unwrap();
            let log = parts.iter().find(|part| part["name"] == "log").unwrap();
            assert!(log["bytes"].as_u64() > Some(0) && log["files"].as_u64() > Some(0), "{disk}");
            assert!(disk["total"].as_u64() >= disk["free"].as_u64(), "{disk}");
            assert!(disk["path"].as_str().unwrap().starts_with('/'), "{disk}");
        }
    }
    let paths: std::collections::BTreeSet<String> = (1..=3)
        .map(|number| {
            let path = format!("/millrace/nodes/millrace@{number}/disk");
            one.done("GET", &path, &Value::Null)["path"].to_string()
        })
        .collect();
    assert_eq!(paths.len(), 3, "each node tells of its own: {paths:?}");
    assert_eq!(one.guest("GET", "/millrace/nodes/millrace@9/disk", &Value::Null).status, 404);
    let running = nodes.as_array().unwrap().iter().map(|node| node["running"].clone());
    assert_eq!(running.collect::<Vec<_>>(), [json!(true), json!(true), json!(true)]);

    let message = json!({ "routing_key": "jobs", "payload": "x", "payload_encoding": "string", "properties": {} });
    one.done("POST", "/exchanges/%2F/amq.default/publish", &message);
    for node in [&one, &two, &three] {
        until("each node says how long the oldest message waits", || {
            node.done("GET", "/queues/%2F/jobs", &Value::Null)["oldest_ready_at"].is_u64()
        });
    }

    let lock = "/millrace/locks/%2F/job";
    one.done_at_last("PUT", lock, &json!({ "owner": "ann", "lease_ms": 60_000 }));
    let address = three.address.clone();
    let waiting = std::thread::spawn(move || {
        let body = json!({ "owner": "bob", "lease_ms": 1_000, "wait_ms": 60_000 }).to_string();
        send(&address, &basic("guest", "guest"), "PUT", lock, &body).status
    });
    for node in [&one, &two, &three] {
        until("each node says who waits for a lock", || {
            let shown = node.done("GET", lock, &Value::Null);
            shown["waiting"][0]["owner"] == "bob" && shown["waiting_count"] == 1
        });
    }
    one.done("DELETE", &format!("{lock}?force=true"), &Value::Null);
    assert_eq!(waiting.join().unwrap(), 201);

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
    let gone = one.guest("GET", "/millrace/nodes/millrace@2/disk", &Value::Null);
    assert_eq!(gone.status, 503, "{}", gone.body);
    until("a replica on a node that is gone falls behind, or nobody leads it any more", || {
        let groups = one.done("GET", "/millrace/groups", &Value::Null);
        let groups = groups.as_array().unwrap();
        groups.iter().all(|group| group["leader"] != "millrace@2" && group["leader"].is_string())
    });
    until("a node that is gone is not running", || {
        one.done("GET", "/nodes/millrace@2", &Value::Null)["running"] == json!(false)
    });
}
