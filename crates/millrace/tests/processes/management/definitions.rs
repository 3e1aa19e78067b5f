//! Definitions: written out, brought in over HTTP, and at the start.

use serde_json::{Value, json};

use super::Managed;
use crate::node::{Node, free_address};

/// Definitions of one broker make another like it: also its users' passwords.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_go_from_one_broker_to_another() {
    let source = Managed::start("management-export");
    source.done("PUT", "/vhosts/shop", &json!({}));
    source.make_user("ann", "management", &["shop"]);
    source.done("PUT", "/users/bare", &json!({ "tags": "" }));
    let arguments = json!({ "x-queue-type": "quorum", "x-delivery-limit": 5 });
    source.done("PUT", "/queues/shop/jobs", &json!({ "durable": true, "arguments": arguments }));
    source.done("PUT", "/exchanges/shop/orders", &json!({ "type": "headers" }));
    let bind = json!({ "routing_key": "", "arguments": { "x-match": "any", "a": 1 } });
    source.done("POST", "/bindings/shop/e/orders/q/jobs", &bind);
    let policy =
        json!({ "pattern": "^jobs", "definition": { "max-length": 9 }, "apply-to": "queues" });
    source.done_at_last("PUT", "/policies/shop/short", &policy);
    source.done("PUT", "/operator-policies/shop/limit", &policy);
    source.done("PUT", "/vhost-limits/shop/max-queues", &json!({ "value": 7 }));
    source.done("PUT", "/user-limits/ann/max-channels", &json!({ "value": 9 }));
    let topic = json!({ "exchange": "amq.topic", "write": "^{username}", "read": "" });
    source.done("PUT", "/topic-permissions/shop/ann", &topic);
    let described = json!({ "description": "the shop", "tags": "live,eu" });
    source.done("PUT", "/vhosts/shop", &described);
    source.done("PUT", "/cluster-name", &json!({ "name": "east" }));
    let mut definitions = source.done("GET", "/definitions", &Value::Null);
    let target = Managed::start("management-import");
    target.done_at_last("POST", "/definitions", &definitions);
    target.done("POST", "/definitions", &definitions);
    assert_eq!(target.done("GET", "/definitions", &Value::Null), definitions);
    target.connect("ann", "secret", "shop").await.unwrap();

    definitions["global_parameters"] = json!([{ "name": "mqtt_port", "value": 1 }]);
    definitions["vhosts"] = json!([{ "name": "other" }]);
    let refused = target.guest("POST", "/definitions", &definitions);
    assert_eq!(refused.status, 400);
    let reason = refused.body["reason"].as_str().unwrap();
    assert!(reason.contains("'mqtt_port' is not supported"), "{reason}");
    assert_eq!(target.guest("GET", "/vhosts/other", &Value::Null).status, 404, "all or nothing");
}

/// A file of definitions is brought in before clients are served, again at each start; with its users `guest` is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_brought_in_at_the_start() {
    let address = free_address();
    let mut definitions = json!({
        "users": [{ "name": "ann", "password": "secret", "tags": "administrator" }],
        "vhosts": [{ "name": "shop", "limits": [] }],
        "permissions": [
            { "user": "ann", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*" }
        ],
        "policies": [{
            "vhost": "shop", "name": "short", "pattern": "^jobs", "apply-to": "queues",
            "definition": { "max-length": 5 }, "priority": 0
        }],
        "queues": [{ "vhost": "shop", "name": "jobs", "durable": true, "arguments": {} }],
    });
    let path = std::env::temp_dir().join(format!("millrace-boot-{}.json", std::process::id()));
    // A start breaks off behind its users: nobody may declare such a queue.
    let mut broken = definitions.clone();
    broken["queues"][0]["name"] = json!("amq.jobs");
    std::fs::write(&path, broken.to_string()).unwrap();
    let mut node = Node::start_with("management-boot", &["--http", &address]);
    node.kill();
    node.add_arguments(&["--definitions", path.to_str().unwrap()]);
    let (code, said) = node.run_to_its_end();
    assert_ne!(code, Some(0));
    assert!(said.contains("amq.jobs"), "{said}");
    std::fs::write(&path, definitions.to_string()).unwrap();
    node.crash();
    let mut managed = Managed { node, address };
    let ann = Some(("ann", "secret"));
    let mut client = managed.connect("ann", "secret", "shop").await.unwrap();
    client.look_up_queue("jobs").await.unwrap();
    let shown = managed.ask(ann, "GET", "/queues/shop/jobs", "").body;
    assert_eq!(shown["policy"], "short");
    assert_eq!(managed.guest("GET", "/whoami", &Value::Null).status, 401, "guest is gone");

    // What clients have made since stays; what the file has more comes.
    definitions["queues"][0]["arguments"] = json!({ "x-max-length": 7 });
    definitions["vhosts"] = json!([{ "name": "shop" }, { "name": "other" }]);
    std::fs::write(&path, definitions.to_string()).unwrap();
    managed.node.crash();
    let shown = managed.ask(ann, "GET", "/queues/shop/jobs", "").body;
    assert_eq!(shown["arguments"], json!({}));
    assert_eq!(managed.ask(ann, "GET", "/vhosts/other", "").status, 200);

    definitions["users"] = json!([{ "name": "ann", "tags": 7 }]);
    std::fs::write(&path, definitions.to_string()).unwrap();
    managed.node.kill();
    let (code, said) = managed.node.run_to_its_end();
    assert_ne!(code, Some(0));
    assert!(said.contains("tags should be a string"), "{said}");
    std::fs::remove_file(&path).unwrap();
}
