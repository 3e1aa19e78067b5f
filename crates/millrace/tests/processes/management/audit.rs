//! The audit trail: what is changed over HTTP can be read at any node, and comes back after a crash.

use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

fn records(managed: &Managed, query: &str) -> Vec<Value> {
    let path = format!("/millrace/audit?{query}");
    let Value::Array(records) = managed.done("GET", &path, &Value::Null) else { panic!("a list") };
    records
}

/// The oldest first.
fn events(managed: &Managed, query: &str) -> Vec<String> {
    let event = |record: &Value| record["event"].as_str().unwrap().to_owned();
    records(managed, query).iter().rev().map(event).collect()
}

/// Waits until the cluster remembers.
fn until_remembered(managed: &Managed) {
    managed.done_at_last("PUT", "/cluster-name", &json!({ "name": "audited" }));
    assert_eq!(events(managed, ""), ["parameter.set"]);
}

#[test]
fn who_changed_what_is_remembered_without_secrets_and_survives_a_crash() {
    let mut managed = Managed::start("management-audit");
    until_remembered(&managed);
    let secret = json!({ "password": "canary-password", "tags": "administrator" });
    managed.done("PUT", "/users/ann", &secret);
    managed.done("PUT", "/vhosts/shop", &json!({}));
    let all = json!({ "configure": ".*", "write": ".*", "read": ".*" });
    managed.done("PUT", "/permissions/shop/ann", &all);
    let ann = Some(("ann", "canary-password"));
    let by_ann = |method: &str, path: &str, body: Value| {
        let answer = managed.ask(ann, method, path, &body.to_string());
        assert!(answer.status < 300, "{method} {path}: {}", answer.body);
    };
    let policy = json!({ "pattern": "^q", "definition": { "max-length": 5 } });
    by_ann("PUT", "/policies/shop/short", policy);
    by_ann("PUT", "/queues/shop/q", json!({ "durable": true }));
    // It is there already.
    by_ann("PUT", "/queues/shop/q", json!({ "durable": true }));
    by_ann("POST", "/bindings/shop/e/amq.direct/q/q", json!({ "routing_key": "k" }));
    by_ann("DELETE", "/queues/shop/q/contents", json!({}));
    by_ann("DELETE", "/queues/shop/q", json!({}));
    let refused = managed.ask(ann, "PUT", "/policies/shop/wrong", "{\"pattern\":\"(\"}");
    assert_eq!(refused.status, 400);

    let expected =
        ["policy.set", "queue.created", "binding.created", "queue.purged", "queue.deleted"];
    assert_eq!(events(&managed, "user=ann"), expected);
    let of_guest = ["user.created", "vhost.created", "permission.created", "permission.created"];
    assert_eq!(events(&managed, "user=guest&since=0")[1..], of_guest);
    let set = records(&managed, "event=policy").remove(0);
    assert_eq!((&set["vhost"], &set["object"]), (&json!("shop"), &json!("short")));
    assert_eq!(set["details"]["definition"], json!({ "max-length": 5 }));
    assert!(set["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{set}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = set["time"].as_u64().unwrap();
    assert!(at.abs_diff(now.as_millis() as u64) < 600_000, "{set}");
    assert_eq!(
        events(&managed, &format!("until={}", at - 1)).last().unwrap(),
        "permission.created"
    );
    assert_eq!(events(&managed, "event=user"), ["user.created"]);
    assert_eq!(events(&managed, "object=q").len(), 3);
    assert_eq!(events(&managed, "event=queue.c"), Vec::<String>::new(), "no whole word");
    let page = managed.done("GET", "/millrace/audit?page=2&page_size=3", &Value::Null);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["page_count"]), (3, &json!(4)));
    let wrong = managed.guest("GET", "/millrace/audit?since=yesterday", &Value::Null);
    assert_eq!(wrong.status, 400, "{}", wrong.body);

    let before = records(&managed, "");
    assert!(!json!(before).to_string().contains("canary"), "no secret is in it");
    managed.make_user("manager", "monitoring,policymaker", &["shop"]);
    let refused = managed.ask(Some(("manager", "secret")), "GET", "/millrace/audit", "");
    assert_eq!(refused.status, 401);
    managed.node.crash();
    until("the records are back", || {
        records(&managed, "").iter().filter(|record| before.contains(record)).count()
            == before.len()
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_has_the_records_and_closed_connections_are_in_them() {
    let nodes = Node::start_three("management-audit-three").into_iter().map(Managed::of);
    let [one, two, three] = nodes.collect::<Vec<_>>().try_into().ok().unwrap();
    until_remembered(&one);
    two.done("PUT", "/vhosts/shop", &json!({}));
    let _client = until_connected(&three, "guest", "guest").await;
    // Of whom nobody is connected, nothing is closed.
    for user in ["guest", "nobody"] {
        let path = format!("/connections/username/{user}");
        let closed = two.guest("DELETE", &path, &Value::Null);
        assert_eq!(closed.status, 204, "{}", closed.body);
    }
    let expected =
        ["parameter.set", "vhost.created", "permission.created", "user.connections.closed"];
    for node in [&one, &two, &three] {
        until("every node has them", || events(node, "") == expected);
    }
    assert_eq!(records(&one, ""), records(&three, ""));
}
